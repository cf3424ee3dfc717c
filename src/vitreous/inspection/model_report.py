"""The report of `vitreous inspect`: an interactive page, the figures as files, the numbers as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from vitreous.errors import InputError, nearest
from vitreous.inspection import captions
from vitreous.inspection import survey_figures as figures
from vitreous.inspection.attention_metrics import readout_name, to_grid
from vitreous.inspection.charts import Chart
from vitreous.inspection.explorer import explorer_data, fitting_factor, store_for_page
from vitreous.inspection.images import Pixels, enlarged, png, rgb
from vitreous.inspection.model_figures import attention_triples, filters_figure, positions_figure
from vitreous.inspection.page import Exhibit, LeftOut, save_arrays, write_page
from vitreous.inspection.relevance import Relevance
from vitreous.inspection.representations import unusual_norms
from vitreous.inspection.run_report import model_summary
from vitreous.inspection.survey import Progress, Survey, layer_features, relevances, survey
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT

NO_TOKENS = "a convolutional network has no attention and no tokens"
MOST_NAMED = 30  # classes in a sentence
CLOSE = 8  # images that are shown; the others enter the averages


@dataclass(frozen=True)
class Question:
    """What to show beyond the default.

    Attributes:
        label: the class to explain; None: each image's own prediction.
        patch: (row, column), from 0, of the patch whose attention is shown; None: the one in the middle.
        other: another model, whose layers are compared with this one's.
        other_name: what to call it.
    """

    label: str | None = None
    patch: tuple[int, int] | None = None
    other: Model | None = None
    other_name: str = "the other"


@dataclass(frozen=True)
class ModelReport:
    """The files of a report, and its main numbers.

    Attributes:
        boxes: whether characters that no installed font has are boxes in the PNG figures.
    """

    report: Path
    figures: tuple[Path, ...]
    arrays: Path
    summary: Mapping[str, Any]
    boxes: bool


class ViTParts(NamedTuple):
    """The data and the caption of the explorer, the figures, and the main numbers."""

    explorer: dict[str, Any] | None
    explorer_caption: str
    parts: list[Exhibit | LeftOut]
    summary: dict[str, Any]


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
    """Run `model` on images (with their names); write report.html, figures and arrays.npz into `folder`.

    Args:
        name: what the page calls the model.
        about_images: a sentence on where the images come from.
        more: figures that only this kind of model has; they come first.
        classes: how many the whole model has, where `model` is but a part of it; else its own.

    Raises:
        InputError: no images; an unknown class, or a patch outside the grid; `folder` is not empty.
    """
    if not images:
        raise InputError("there is no image to inspect: give at least one")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already, and nothing is overwritten: choose another --out")
    if model.preprocessing.channels not in (1, 3):
        raise InputError(
            f"the model takes {model.preprocessing.channels} channels: only gray and RGB images can be read"
        )
    model.eval()
    if isinstance(model, ViT):
        found = inspect_vit(model, images, question or Question(), progress)
    else:
        left_out = LeftOut("Attention, rollout, position embeddings and layers", NO_TOKENS)
        found = ViTParts(None, "", [filters_figure(model), left_out], {})
    parts = [*more, *found.parts]
    exhibits = [part for part in parts if isinstance(part, Exhibit)]
    folder.mkdir(parents=True, exist_ok=True)
    page = write_page(
        folder / "report.html",
        "model.html.j2",
        parts=parts,
        title=f"Inspection of {name}",
        name=name,
        kind=model_summary(model),
        images=about_images,
        facts={
            "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
            "classes": f"{classes or model.config.num_classes or 0:,}",
            "images": f"{len(images):,}",
        },
        explorer=found.explorer,
        explorer_caption=found.explorer_caption,
    )
    files = tuple(path for each in exhibits for path in save_files(each.files, folder))
    arrays = {key: value for each in exhibits for key, value in each.arrays.items()}
    charts = [each for part in exhibits for each in part.files.values() if isinstance(each, Chart)]
    reasons = [{"figure": part.title, "reason": part.reason} for part in parts if isinstance(part, LeftOut)]
    return ModelReport(
        page,
        files,
        save_arrays(arrays, folder / "arrays.npz"),
        {"images": len(images), **found.summary, "left_out": reasons},
        boxes=any(chart.boxes for chart in charts),
    )


def inspect_vit(
    model: ViT,
    images: Sequence[tuple[Image.Image, str]],
    question: Question,
    progress: Progress | None,
) -> ViTParts:
    """Return all that a report shows of a Vision Transformer with images (and their names).

    Raises:
        InputError: an unknown class, or a patch outside the grid.
    """
    config = model.config
    patch = patch_in_grid(config, question.patch)
    labels = model.labels or [f"class {number}" for number in range(config.num_classes or 0)]
    wanted = None if question.label is None else class_number(labels, question.label)
    names = [name for _, name in images]
    batch = model.preprocessing([image for image, _ in images])
    close = batch[:CLOSE]

    seen = survey(model, batch, patch=patch, close=CLOSE, progress=progress)
    evidence = None if config.num_classes is None else relevances(model, close, wanted)
    answers = figures.predicted_labels(seen.lens, labels)
    words = (
        [f"{name}, predicted {answer}" for name, answer in zip(names, answers, strict=True)]
        if answers
        else names
    )
    shown = [rgb(each) for each in model.preprocessing.denormalize(model.sized(close))]
    named = list(zip(shown, words[:CLOSE], strict=True))
    factor = fitting_factor(config)
    maps = store_for_page(model, close, factor)
    last = to_grid(seen.reading[:, -1].mean(dim=1), config)

    parts: list[Exhibit | LeftOut] = [
        attention_triples(config, named, last, seen.rollout[:CLOSE]),
        *relevance_figures(evidence, named, question.label),
        figures.heads_figure(seen, config),
        figures.distance_figure(seen),
        figures.patch_figure(seen, shown, config, patch),
        positions_figure(model),
        filters_figure(model),
        figures.features_figure(seen.patches, shown, names[:CLOSE], config),
        figures.lens_figure(seen.lens, labels),
        figures.entropy_figure(seen),
        figures.alignment_figure(seen.features, None, ""),
        figures.norms_figure(seen.norms, config),
    ]
    if question.other is not None:
        parts.append(comparison_figure(question, seen, [image for image, _ in images]))
    return ViTParts(
        explorer_data(config, named, seen, evidence.patches if evidence else None, maps, factor),
        captions.EXPLORER.format(
            readout=readout_name(config), left_out=left_out_of_page(config, len(batch), len(maps), factor)
        ),
        parts,
        main_numbers(seen, evidence, names, answers, config),
    )


def patch_in_grid(config: ViTConfig, patch: tuple[int, int] | None) -> tuple[int, int]:
    """Return the patch, the middle one by default. Raises InputError for one outside the grid."""
    rows, columns = config.grid
    if patch is None:
        return rows // 2, columns // 2
    if not (0 <= patch[0] < rows and 0 <= patch[1] < columns):
        raise InputError(
            f"there is no patch in row {patch[0] + 1}, column {patch[1] + 1}: "
            f"the grid has {rows} rows and {columns} columns"
        )
    return patch


def class_number(labels: Sequence[str], label: str) -> int:
    """Return the number of a class that is given by its label, or by its number. Raises InputError."""
    if label in labels:
        return labels.index(label)
    if label.isdigit() and int(label) < len(labels):
        return int(label)
    hint = nearest(label, labels)
    if len(labels) > MOST_NAMED and not hint.startswith("did you mean"):
        hint = f"give one of its labels, or a number from 0 to {len(labels) - 1}"
    raise InputError(f"the model has no class {label!r}: {hint}")


def relevance_figures(
    evidence: Relevance | None, images: Sequence[tuple[Pixels, str]], label: str | None
) -> list[Exhibit | LeftOut]:
    """Return the relevance maps and the head importance."""
    title = "Relevance map and head importance"
    if evidence is None:
        return [LeftOut(title, "the model has no classes")]
    if not evidence.heads.any():
        return [LeftOut(title, "the model's head is all zeros, so no input changes the class's logit")]
    return [
        figures.relevance_figure(evidence, images, label),
        figures.importance_figure(evidence),
    ]


def comparison_figure(question: Question, seen: Survey, images: Sequence[Image.Image]) -> Exhibit | LeftOut:
    """Compare the layers of two models, each with its own preprocessing of the same images."""
    other = question.other
    if not isinstance(other, ViT):
        title = f"Layer similarity (CKA) with {question.other_name}"
        return LeftOut(title, "a convolutional network has no tokens to compare")
    features = layer_features(other.eval(), other.preprocessing(images))
    return figures.alignment_figure(seen.features, features, question.other_name)


def left_out_of_page(config: ViTConfig, images: int, maps: int, factor: int) -> str:
    """Return what the explorer omits, as sentences; empty where it has everything."""
    shown = min(images, CLOSE)
    words = []
    if shown < images:
        words.append(f"Of {images} images the first {shown} are shown; all enter the averages.")
    if maps < shown:
        words.append(
            f"To limit the page's size, patches can be queried in the first {maps} of {shown} images."
        )
    if factor > 1:
        words.append(
            f"Patch queries are averaged over blocks of {factor}×{factor}; the query of "
            f"{readout_name(config)} is not."
        )
    return "".join(f" {each}" for each in words)


def main_numbers(
    seen: Survey,
    evidence: Relevance | None,
    names: Sequence[str],
    answers: Sequence[str],
    config: ViTConfig,
) -> dict[str, Any]:
    """Return the numbers that fit into a few lines of JSON; layers and heads count from 1."""
    unusual = unusual_norms(seen.norms[:, config.num_prefix_tokens :])
    return {
        "answers": [{"image": name, "answer": each} for name, each in zip(names, answers, strict=False)],
        "mean_attention_distance": seen.distance.mean(dim=(0, 2)).tolist(),
        "mean_attention_entropy": seen.entropy.mean(dim=(0, 2)).tolist(),
        "prunable_heads": figures.prunable_heads(evidence) if evidence and evidence.heads.any() else [],
        "artifact_tokens": int(unusual.sum()),
    }


def save_files(files: Mapping[str, Chart | Pixels], folder: Path) -> list[Path]:
    """Save charts as SVG and PNG, images as PNG."""
    paths = []
    for stem, drawing in files.items():
        if isinstance(drawing, Chart):
            paths += drawing.save(folder / stem)
        else:
            paths.append(folder / f"{stem}.png")
            paths[-1].write_bytes(png(enlarged(drawing, 512)))
    return paths
