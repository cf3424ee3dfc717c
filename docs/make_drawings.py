"""Drawings of the README, the site and the lessons: `python docs/make_drawings.py` writes docs/figures/*.svg.

A test compares the files with what is drawn today.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import vitreous as vt

FIGURES = Path(__file__).parent / "figures"
# The example of the lessons: an image of 32 x 32 in four patches, D = 3, three heads of 4.
EXAMPLE = {
    "image_size": 32,
    "width": 3,
    "depth": 1,
    "heads": 3,
    "head_dim": 4,
    "mlp_dim": 4,
    "num_classes": 10,
}
SETTINGS = {f"model.{name}": value for name, value in EXAMPLE.items()}
DRAWINGS = {
    "vit": ("ViT-B/16", "model", {}),
    "vit-example": ("ViT-Ti/16", "model", SETTINGS),
    "vit-matrices": ("ViT-Ti/16", "matrices", SETTINGS),
    "vit-block": ("ViT-B/16", "block", {}),
    "vit-head": ("ViT-Ti/16", "head", SETTINGS),
    "encoder-decoder": ("transformer-base", "model", {}),
}


def drawn() -> Iterator[tuple[str, str]]:
    """The name of each file, and what is in it."""
    for language in ("en", "ko"):
        for name, (model, part, settings) in DRAWINGS.items():
            drawing = vt.draw(model, part, language=language, settings=settings or None)
            yield f"{name}-{language}.svg", drawing.svg


if __name__ == "__main__":
    for name, svg in drawn():
        (FIGURES / name).write_text(svg, encoding="utf-8")
        print(FIGURES / name)
