"""Recipes beside the code that they cite, run on the same data: the largest difference of each quantity.

    git clone https://github.com/google-research/big_vision
    # and google-research/{vision_transformer,big_transfer}, facebookresearch/{deit,dino,mae}, wangf3014/ViT-5
    python benchmarks/provenance.py --sources FOLDER --out src/vitreous/training/recipes/provenance.json

FOLDER has the clones. What needs none runs without `--sources`: it asks timm, torchvision, and the numbers of
TensorFlow that `provenance_tensorflow.py` keeps. The models and optimizers of big_vision and vit_jax run in
JAX (flax, optax). `--only` runs some of the programs again and keeps the other rows of the file.

    provenance_data.py      crops, colors, resizing, the images of an epoch
    provenance_torch.py     models and steps beside code in PyTorch
    provenance_jax.py       the same beside big_vision and vit_jax
    provenance_schedules.py rates of every step, decays of every parameter
    provenance_settings.py  what the sources set, out of their own configurations and parsers

Quantities:
    (a recipe is beside its source, or beside a `peer`: another library that has the same model)
    weights    Kolmogorov-Smirnov distance of the initial values of a tensor, the largest of all tensors
    crops      the same for height, width, area and place of 20,000 crops
    colors     mean difference of the pixels (0 ... 255) after an operation of RandAugment, the largest
    color draws  Kolmogorov-Smirnov distance of what an image looks like after 20,000 draws of all operations
    resizing   mean difference of pixels after the resizing of training crops and of evaluation
    batch      share of images that come another number of times in an epoch; with repeated augmentation also
               of those whose copies are all in one batch, at the step where that is least
    gradient   of the first step, relative to its norm, the largest of all tensors
    angle      degrees between a tensor before and after 20 steps, the largest difference from the source's
    loss       of 200 steps, the largest difference
    rate       of every step of the full length, by the source's own scheduler, as a share of the peak
    decay      tensors whose decay or share of the rate differs, by the source's own groups
    state      of the optimizer, relative to its norm, after 20 steps; of DINO 20 steps after its whole frozen
               epoch. After the slash: the source beside itself, from weights that are one rounding apart, of
               which n steps explain sqrt(n) times as much
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from provenance_data import (
    colors_of_big_vision,
    colors_of_timm,
    copies,
    crops_of_tensorflow,
    crops_of_torchvision,
    draws_of_authors,
    draws_of_big_vision,
    draws_of_timm,
    epochs_of_tensorflow,
    epochs_of_torch,
    images_of_bit,
    resizing_of_tensorflow,
    resizing_of_torchvision,
)
from provenance_jax import augreg_of_big_vision, from_vit_jax, s16_of_big_vision
from provenance_rows import Row
from provenance_schedules import PROGRAMS as SCHEDULES
from provenance_settings import settings
from provenance_torch import (
    from_bit,
    from_deit,
    from_deit3,
    from_dino,
    from_mae,
    from_mae_fine_tuning,
    from_timm,
    from_transformers,
    from_vit5,
    from_vit_pytorch,
)
from record import write_results

Program = Callable[[Path | None], Iterator[Row]]


def without_sources(program: Callable[[], Iterator[Row]]) -> Program:
    return lambda sources: program()


PROGRAMS: dict[str, Program] = {
    program.__name__: without_sources(program)
    for program in (
        crops_of_tensorflow,
        crops_of_torchvision,
        colors_of_big_vision,
        colors_of_timm,
        draws_of_big_vision,
        draws_of_timm,
        resizing_of_tensorflow,
        epochs_of_tensorflow,
        epochs_of_torch,
    )
}
PROGRAMS |= {
    program.__name__: program
    for program in (resizing_of_torchvision, copies, from_timm, from_transformers, from_vit_pytorch)
}
WITH_SOURCES: dict[str, Callable[[Path], Iterator[Row]]] = {
    program.__name__: program
    for program in (
        draws_of_authors,
        images_of_bit,
        s16_of_big_vision,
        augreg_of_big_vision,
        from_vit_jax,
        from_bit,
        from_deit,
        from_deit3,
        from_mae_fine_tuning,
        from_mae,
        from_dino,
        from_vit5,
        *SCHEDULES,
    )
}

MOMENT = "its first moment is in bfloat16; in float32 the losses agree"
FIRST_MOMENT = "its first moment is in bfloat16; in float32 the states agree"
BFLOAT16_MOMENTUM = (
    "its momentum is in bfloat16; in float32, as for paper-fine-tuning-imagenet, the states agree"
)
BILINEAR = "TensorFlow's bilinear filter has no antialiasing; ours has"
WHY = {
    "transformers weights": "transformers initializes the patch projection from N(0, 0.02), like all "
    "matrices; timm keeps PyTorch's initialization of convolutions",
    "transformers loss": "its Trainer decays positions and the class token, too; if both decay the same, the "
    "losses agree",
    "vit-pytorch weights": "vit-pytorch initializes positions and tokens from N(0, 1), and keeps PyTorch's "
    "initialization of linear layers",
    "mae weights": "as in vit_jax: three matrices for query, key and value, LeCun normal for patches, zeros "
    "for tokens",
    "vit5 weights": "as in timm: the class token and the registers start near zero, not from N(0, 0.02)",
    "colors": "TensorFlow shears about the center of the first pixel, and Pillow about its corner",
    "s16-baseline loss": MOMENT,
    "paper-fine-tuning-imagenet loss": "its momentum is in bfloat16; in float32 the losses agree",
    "color draws": "TensorFlow shears about the center of the first pixel; one image has few outcomes, so "
    "small differences count in full",
    "augreg loss": MOMENT,
    "deit3 weights": "as in timm: the class token starts near zero, not from N(0, 0.02)",
    "dino rate": "its warm-up is numpy's linspace, which reaches the peak one step earlier",
    "s16-baseline state": FIRST_MOMENT,
    "augreg state": FIRST_MOMENT,
    "paper-fine-tuning state": BFLOAT16_MOMENTUM,
    "vtab-1k state": BFLOAT16_MOMENTUM,
    "paper-fine-tuning-imagenet state": "its momentum is in bfloat16; in float32 it agrees",
    "transformers state": "its Trainer decays positions and the class token, too",
    "vit-pytorch state": "plain AdamW decays biases, norms, positions and tokens, too; with the decay of the "
    "recipe, it agrees",
    "dino weights": "as in timm: the class token starts near zero, not from N(0, 0.02)",
    "batch": "vit_jax repeats its data before shuffling, so an image can come again before others have come",
    "paper-fine-tuning resizing in evaluation": BILINEAR,
    "paper-fine-tuning-imagenet resizing in evaluation": BILINEAR,
    "vtab-1k resizing in evaluation": BILINEAR,
    "resizing in evaluation": "TensorFlow's area filter; a bilinear filter with antialiasing averages more "
    "pixels",
}

MODELS = ("weights", "gradient", "angle", "loss", "rate", "decay", "state")
QUANTITIES = (
    *("crops", "colors", "color draws", "resizing of crops", "resizing in evaluation", "batch"),
    *MODELS,
)
RECIPES = (
    *("s16-baseline", "augreg", "vtab-1k", "paper-jft", "paper-imagenet1k", "paper-imagenet21k"),
    *("paper-fine-tuning", "paper-fine-tuning-imagenet", "paper-masked-patch", "deit", "deit-distilled"),
    *("deit3", "bit-hyperrule", "mae", "mae-fine-tuning", "dino", "vit5"),
)
# Cells in which there is nothing to compare: the recipe has no such thing, or its source no code of it.
PRETRAINED = ("paper-jft", "paper-imagenet1k", "paper-imagenet21k")
COLORLESS = (
    "vtab-1k",
    *PRETRAINED,
    "paper-fine-tuning",
    "paper-fine-tuning-imagenet",
    "paper-masked-patch",
    "bit-hyperrule",
    "mae",
)
NONE: dict[tuple[str, str], str] = {}
NONE |= {(name, each): "changes no colors" for name in COLORLESS for each in ("colors", "color draws")}
NONE |= {(name, "colors"): "its operations are compared in draws alone" for name in ("dino", "vit5", "deit3")}
NONE |= {
    (name, each): "vit_jax has its model, and no code of its pre-training"
    for name in PRETRAINED
    for each in ("resizing in evaluation", "batch", *MODELS[1:])
}
NONE |= {
    ("paper-masked-patch", each): "no published code" for each in ("resizing in evaluation", "batch", *MODELS)
}
NONE |= {
    (name, "decay"): "SGD without decay and with one rate, in its code and here"
    for name in ("paper-fine-tuning", "paper-fine-tuning-imagenet", "vtab-1k", "bit-hyperrule")
}
NONE |= {(name, "resizing in evaluation"): "pre-training evaluates nothing" for name in ("mae", "dino")}


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the documentation: for each recipe the largest difference of each quantity."""
    found = {(row["recipe"], row["peer"], row["quantity"]): row for row in rows}
    lines = [f"| recipe | {' | '.join(QUANTITIES)} |", f"|---|{'---|' * len(QUANTITIES)}"]
    peers = dict.fromkeys((row["recipe"], row["peer"]) for row in rows if row["peer"])
    for recipe, peer in [*((name, "") for name in RECIPES), *peers]:
        cells = []
        for quantity in QUANTITIES:
            row = found.get((recipe, peer, quantity))
            mark = "*" if row and row["difference"] > row["limit"] else ""
            nothing = "–" if peer or (recipe, quantity) in NONE else ""
            null = f" / {row['null']:.2g}" if row and row["null"] is not None else ""
            cells.append(f"{row['difference']:.2g}{mark}{null}" if row else nothing)
        lines.append(f"| `{recipe}`{peer and f', {peer}'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reason(row: Row) -> str:
    """Why a difference is more than chance and rounding explain."""
    if row.difference <= row.limit:
        return ""
    return WHY.get(f"{row.peer or row.recipe} {row.quantity}", WHY.get(row.quantity, ""))


def merged(kept: list[dict[str, Any]], rows: Mapping[tuple[str, str, str], Row]) -> list[dict[str, Any]]:
    """Rows of a file, and new ones in the place of those of the same recipe, peer and quantity; in the order
    of the table."""
    found = {(each["recipe"], each["peer"], each["quantity"]): each for each in kept}
    found |= {key: row._asdict() for key, row in rows.items()}

    def place(key: tuple[str, ...]) -> tuple[bool, int, str, int]:
        recipe, peer, quantity = key
        return bool(peer), RECIPES.index(recipe), peer, QUANTITIES.index(quantity)

    return [found[key] for key in sorted(found, key=place)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, help="folder of clones")
    parser.add_argument("--out", type=Path, help="file of the results")
    parser.add_argument("--only", nargs="+", choices=[*PROGRAMS, *WITH_SOURCES, "settings"], help="programs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    programs = dict(PROGRAMS)
    if arguments.sources:
        programs |= WITH_SOURCES  # type: ignore[arg-type]
    chosen = arguments.only or [*programs, "settings"]
    out: Path | None = arguments.out
    rows: dict[tuple[str, str, str], Row] = {}
    found: dict[str, Any] = {"rows": []}
    if arguments.only and out and out.exists():
        found = json.loads(out.read_text(encoding="utf-8"))
    before = found["rows"]
    packages = ("timm", "torchvision", "transformers", "vit-pytorch", "jax", "flax", "optax")
    for name in [name for name in chosen if name in programs]:
        for row in programs[name](arguments.sources):
            print(f"{row.recipe:28} {row.quantity:24} {row.difference:10.3g}  {row.where}", file=sys.stderr)
            rows[row.recipe, row.peer, row.quantity] = row._replace(why=reason(row))
            found["rows"] = merged(before, rows)
            write_results(found, out, packages=packages, shown=False)
    if arguments.sources and "settings" in chosen:
        found["settings"] = settings(arguments.sources)
        write_results(found, out, packages=packages, shown=False)


if __name__ == "__main__":
    main()
