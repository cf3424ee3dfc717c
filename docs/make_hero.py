"""The image of the README: what each layer of a small ViT looks at, one column for each digit.

vitreous train --out runs/digits        # under a minute on two cores
python docs/make_hero.py runs/digits    # writes docs/hero.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

import vitreous as vt
from vitreous.evaluation.classification import evaluate
from vitreous.inspection.measures import to_grid
from vitreous.inspection.relevance import relevance
from vitreous.inspection.survey import survey
from vitreous.tasks import task_named

GROUND, INK, FAINT = "#101416", "#eceae4", "#8f9a97"
SIDE = 96  # pixels of a tile


def main(run: str) -> None:
    model = vt.load(run).eval()
    images = task_named("classification").held_out(run, None, None, {}).examples
    evaluated = evaluate(model, images)
    right = [
        int(evaluated.indices[np.flatnonzero(evaluated.correct & (evaluated.targets == digit))[3]])
        for digit in range(10)
    ]
    batch = model.preprocessing([images.image(index) for index in right])
    seen = survey(model, batch, patch=(0, 0), close=len(batch))
    rows = {f"layer {layer + 1}": seen.reading[:, layer] for layer in range(model.config.depth)}
    maps = {name: to_grid(reading.mean(dim=1), model.config) for name, reading in rows.items()}
    maps |= {"rollout": seen.rollout, "relevance": relevance(model, batch).patches}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    draw(
        batch[:, 0] - batch.min(),
        maps,
        f"A Vision Transformer of {parameters:,} parameters: {int(evaluated.correct.sum())} of "
        f"{evaluated.count} held-out digits correct. Each tile is scaled to its own maximum.",
        Path(__file__).with_name("hero.png"),
    )


def draw(
    digits: Float[Tensor, "10 H W"], maps: dict[str, Float[Tensor, "10 h w"]], words: str, path: Path
) -> None:
    """Rows of tiles: the images, and the attention of each layer, brighter where the digit's strokes are."""
    rows = {"image": [smooth(digit)[..., None].repeat(3, axis=2) for digit in digits]}
    rows |= {
        name: [lit(values, digit) for values, digit in zip(each, digits, strict=True)]
        for name, each in maps.items()
    }
    tall = 0.755 * len(rows) + 0.5
    with matplotlib.rc_context(
        {"font.family": "sans-serif", "font.sans-serif": ["Noto Sans", "DejaVu Sans"]}
    ):
        figure = Figure(figsize=(8.6, tall), facecolor=GROUND)
        axes = figure.subplots(len(rows), 10)
        for line, (name, tiles) in zip(axes, rows.items(), strict=True):
            for cell, tile in zip(line, tiles, strict=True):
                cell.imshow(tile)
                cell.set_axis_off()
            line[0].text(
                -0.14, 0.5, name, color=INK, fontsize=9, ha="right", va="center", transform=line[0].transAxes
            )
        figure.subplots_adjust(
            left=0.115, right=0.985, top=1 - 0.1 / tall, bottom=0.42 / tall, wspace=0.05, hspace=0.05
        )
        figure.text(0.985, 0.14 / tall, words, color=FAINT, fontsize=8.5, ha="right")
        figure.savefig(path, dpi=116, facecolor=GROUND)
    with Image.open(path) as drawn:  # a third of the bytes, no visible difference
        palette = drawn.convert("RGB").quantize(256, kmeans=4, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)
    print(path, f"{path.stat().st_size / 1024:.0f} KB")


def lit(values: Float[Tensor, "h w"], digit: Float[Tensor, "H W"]) -> Float[np.ndarray, "H2 W2 3"]:
    """Colors of the values, brighter where the digit's strokes are."""
    stroke = smooth(digit)[..., None]
    colors = matplotlib.colormaps["inferno"](smooth(values))[..., :3]
    return np.clip(colors * (0.65 + 0.35 * stroke) + 0.16 * stroke, 0, 1)


def smooth(values: Float[Tensor, "h w"]) -> Float[np.ndarray, "H W"]:
    """Enlarged, and scaled to its own largest value."""
    large = F.interpolate(values[None, None], size=(SIDE, SIDE), mode="bicubic", align_corners=False)[0, 0]
    return (large.clamp_min(0) / large.max()).numpy()


if __name__ == "__main__":
    main(sys.argv[1])
