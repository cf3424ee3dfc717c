"""All that a report says of a Vision Transformer: the page's data, its figures, the numbers in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from vitreous.errors import InputError, nearest
from vitreous.inspection import captions
from vitreous.inspection import survey_figures as figures
from vitreous.inspection.explorer import explorer_data
from vitreous.inspection.features import standing_out
from vitreous.inspection.images import Pixels, rgb
from vitreous.inspection.model_figures import attention_triples, filters_figure, positions_figure
from vitreous.inspection.page import Exhibit, LeftOut
from vitreous.inspection.readout import readout_name, to_grid
from vitreous.inspection.relevance import Relevance
from vitreous.inspection.stored_maps import fitting_factor, store_for_page
from vitreous.inspection.survey import Progress, Survey, layer_features, relevances, survey
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT

MOST_NAMED = 30  # classes in a sentence
CLOSE = 8  # images that are shown; the others enter the averages


@dataclass(frozen=True)
class Question:
    """What is asked beyond the usual.

    Attributes:
        label: the class to explain; None: each image's own answer.
        patch: (row, column), from 0, of the patch whose attention is drawn; None: the one in the middle.
        other: another model, whose layers are compared with this one's.
        other_name: what to call it.
    """

    label: str | None = None
    patch: tuple[int, int] | None = None
    other: Model | None = None
    other_name: str = "the other"


class CloseLook(NamedTuple):
    """The interactive part's data and words, the figures, and the numbers in short."""

    explorer: dict[str, Any] | None
    explorer_caption: str
    parts: list[Exhibit | LeftOut]
    summary: dict[str, Any]


def look_closely(
    model: ViT,
    images: Sequence[tuple[Image.Image, str]],
    question: Question,
    progress: Progress | None,
) -> CloseLook:
    """Look at a Vision Transformer with images (and their names).

    Raises:
        InputError: an unknown class, or a patch outside the grid.
    """
    config = model.config
    patch = chosen_patch(config, question.patch)
    labels = model.labels or [f"class {number}" for number in range(config.num_classes or 0)]
    wanted = None if question.label is None else class_number(labels, question.label)
    names = [name for _, name in images]
    batch = model.preprocessing([image for image, _ in images])
    close = batch[:CLOSE]

    seen = survey(model, batch, patch=patch, close=CLOSE, progress=progress)
    evidence = None if config.num_classes is None else relevances(model, close, wanted)
    said = figures.answers(seen.lens, labels)
    words = (
        [f"{name}, taken for {answer}" for name, answer in zip(names, said, strict=True)] if said else names
    )
    shown = [rgb(each) for each in model.preprocessing.denormalize(model.sized(close))]
    named = list(zip(shown, words[:CLOSE], strict=True))
    factor = fitting_factor(config)
    maps = store_for_page(model, close, factor)
    last = to_grid(seen.reading[:, -1].mean(dim=1), config)

    parts: list[Exhibit | LeftOut] = [
        attention_triples(config, named, last, seen.rollout[:CLOSE]),
        *evidence_figures(evidence, named, question.label),
        figures.reading_figure(seen, config),
        figures.distance_figure(seen),
        figures.asked_figure(seen, shown, config, patch),
        positions_figure(model),
        filters_figure(model),
        figures.features_figure(seen.patches, shown, names[:CLOSE], config),
        figures.lens_figure(seen.lens, labels),
        figures.entropy_figure(seen),
        figures.alignment_figure(seen.features, None, ""),
        figures.norms_figure(seen.norms, config),
    ]
    if question.other is not None:
        parts.append(compare(question, seen, [image for image, _ in images]))
    return CloseLook(
        explorer_data(config, named, seen, evidence.patches if evidence else None, maps, factor),
        captions.EXPLORER.format(
            readout=readout_name(config), left_out=left_out_of_page(config, len(batch), len(maps), factor)
        ),
        parts,
        in_short(seen, evidence, names, said, config),
    )


def chosen_patch(config: ViTConfig, patch: tuple[int, int] | None) -> tuple[int, int]:
    """The patch in the middle, unless another is asked for."""
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
    """A class by its label, or by its number."""
    if label in labels:
        return labels.index(label)
    if label.isdigit() and int(label) < len(labels):
        return int(label)
    hint = nearest(label, labels)
    if len(labels) > MOST_NAMED and not hint.startswith("did you mean"):
        hint = f"give one of its labels, or a number from 0 to {len(labels) - 1}"
    raise InputError(f"the model has no class {label!r}: {hint}")


def evidence_figures(
    evidence: Relevance | None, images: Sequence[tuple[Pixels, str]], label: str | None
) -> list[Exhibit | LeftOut]:
    """What speaks for a class, and which heads matter for it."""
    title = "Which patches speak for the class; which heads matter"
    if evidence is None:
        return [LeftOut(title, "the model has no classes")]
    if not evidence.heads.any():
        return [LeftOut(title, "the model's head is all zeros: nothing changes the class's logit")]
    return [
        figures.relevance_figure(evidence, images, label),
        figures.importance_figure(evidence),
    ]


def compare(question: Question, seen: Survey, images: Sequence[Image.Image]) -> Exhibit | LeftOut:
    """The layers of two models, each with its own preprocessing of the same images."""
    other = question.other
    if not isinstance(other, ViT):
        return LeftOut(f"Layers of {question.other_name}", "a convolutional network has no tokens to compare")
    features = layer_features(other.eval(), other.preprocessing(images))
    return figures.alignment_figure(seen.features, features, question.other_name)


def left_out_of_page(config: ViTConfig, images: int, maps: int, factor: int) -> str:
    """What the page does not hold, so that nobody takes it for everything; empty where it holds all."""
    shown = min(images, CLOSE)
    words = []
    if shown < images:
        words.append(f"Of {images} images the first {shown} are shown, all enter the averages.")
    if maps < shown:
        words.append(
            f"To keep the page small, patches can be asked in the first {maps} of the {shown} images."
        )
    if factor > 1:
        words.append(
            f"Patches answer in blocks of {factor}×{factor}; what {readout_name(config)} asks does not."
        )
    return "".join(f" {each}" for each in words)


def in_short(
    seen: Survey, evidence: Relevance | None, names: Sequence[str], said: Sequence[str], config: ViTConfig
) -> dict[str, Any]:
    """The numbers that fit into a few lines of JSON; layers and heads count from 1."""
    unusual = standing_out(seen.norms[:, config.num_prefix_tokens :])
    return {
        "answers": [{"image": name, "answer": each} for name, each in zip(names, said, strict=False)],
        "mean_attention_distance": seen.distance.mean(dim=(0, 2)).tolist(),
        "mean_attention_entropy": seen.entropy.mean(dim=(0, 2)).tolist(),
        "prunable_heads": figures.prunable_heads(evidence) if evidence and evidence.heads.any() else [],
        "artifact_tokens": int(unusual.sum()),
    }
