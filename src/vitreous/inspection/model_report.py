"""The paper's figures for any model: an interactive page, the figures as files, the numbers as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from vitreous import __version__
from vitreous.errors import InputError
from vitreous.inspection.arrays import save_arrays
from vitreous.inspection.charts import Chart
from vitreous.inspection.close_look import CloseLook, Question, look_closely
from vitreous.inspection.images import Pixels, enlarged, png
from vitreous.inspection.model_figures import filters_figure
from vitreous.inspection.page import Exhibit, LeftOut, write_page
from vitreous.inspection.survey import Progress
from vitreous.inspection.training_report import describe
from vitreous.models.names import Model
from vitreous.models.vit import ViT

NO_TOKENS = "a convolutional network has no attention and no tokens"


@dataclass(frozen=True)
class ModelReport:
    """What was written, and the numbers in short.

    Attributes:
        boxes: whether letters that no installed font has are boxes in the PNG figures.
    """

    report: Path
    figures: tuple[Path, ...]
    arrays: Path
    summary: Mapping[str, Any]
    boxes: bool


def write_model_report(
    model: Model,
    images: Sequence[tuple[Image.Image, str]],
    folder: Path,
    *,
    name: str,
    about_images: str = "",
    question: Question | None = None,
    more: Sequence[Exhibit] = (),
    classes: int | None = None,
    progress: Progress | None = None,
) -> ModelReport:
    """Look at `model` with images (and their names); write report.html, figures, arrays.npz into `folder`.

    Args:
        name: what the page calls the model.
        about_images: a sentence on where the images come from.
        more: figures that only this kind of model has; they stand first.
        classes: how many the whole has, where `model` is but a part of it; else its own.

    Raises:
        InputError: no image; an unknown class, or a patch outside the grid; there is something in `folder`.
    """
    if not images:
        raise InputError("there is no image to look at")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already, and nothing is written over: choose another --out")
    if model.preprocessing.channels not in (1, 3):
        raise InputError(
            f"the model takes {model.preprocessing.channels} channels: only gray and RGB images can be read"
        )
    model.eval()
    if isinstance(model, ViT):
        look = look_closely(model, images, question or Question(), progress)
    else:
        parts: list[Exhibit | LeftOut] = [
            filters_figure(model),
            LeftOut("Attention, rollout, positions and all else", NO_TOKENS),
        ]
        look = CloseLook(None, "", parts, {})
    exhibits = [*more, *(part for part in look.parts if isinstance(part, Exhibit))]
    left_out = [part for part in look.parts if isinstance(part, LeftOut)]
    folder.mkdir(parents=True, exist_ok=True)
    page = write_page(
        folder / "report.html",
        "model.html.j2",
        title=f"What {name} sees",
        name=name,
        kind=describe(model),
        images=about_images,
        facts=facts(model, len(images), classes),
        explorer=look.explorer,
        explorer_caption=look.explorer_caption,
        exhibits=exhibits,
        left_out=left_out,
        version=__version__,
    )
    figures = tuple(path for each in exhibits for path in save_files(each.files, folder))
    charts = [each for part in exhibits for each in part.files.values() if isinstance(each, Chart)]
    return ModelReport(
        page,
        figures,
        save_arrays(
            {key: value for each in exhibits for key, value in each.arrays.items()}, folder / "arrays.npz"
        ),
        {
            "images": len(images),
            **look.summary,
            "left_out": [{"figure": each.title, "reason": each.reason} for each in left_out],
        },
        boxes=any(chart.boxes for chart in charts),
    )


def facts(model: Model, images: int, classes: int | None) -> dict[str, str]:
    """What stands under the headline."""
    return {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "classes": f"{classes or model.config.num_classes or 0:,}",
        "images": f"{images:,}",
    }


def save_files(files: Mapping[str, Chart | Pixels], folder: Path) -> list[Path]:
    """Charts as SVG and PNG, images as PNG."""
    paths = []
    for stem, drawing in files.items():
        if isinstance(drawing, Chart):
            paths += drawing.save(folder / stem)
        else:
            paths.append(folder / f"{stem}.png")
            paths[-1].write_bytes(png(enlarged(drawing, 512)))
    return paths
