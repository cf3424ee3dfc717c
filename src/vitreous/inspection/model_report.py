"""The report of `vitreous inspect`: an interactive page, the figures as files, the numbers as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.errors import InputError, Param, check_free, nearest, writing_to
from vitreous.evaluation.outputs import ProgressCallback
from vitreous.extensions import imported, kind_of
from vitreous.inspection import survey_figures as figures
from vitreous.inspection.architecture import architecture_figure
from vitreous.inspection.attributions import affordable, attribute_batch, attributions_figure
from vitreous.inspection.explorer import View, explorer_data
from vitreous.inspection.images import Pixels, rgb
from vitreous.inspection.live import LiveViT
from vitreous.inspection.measures import Lens, PreparedImages, Survey, layer_features, survey, unusual_norms
from vitreous.inspection.model_figures import (
    attention_triples,
    filters_figure,
    is_undecided,
    model_summary,
    network_to_show,
    positions_figure,
    predicted_labels,
)
from vitreous.inspection.page import Exhibit, Inspection, LeftOut, left_out, save_arrays, write_page
from vitreous.inspection.relevance import Relevance, relevances
from vitreous.languages import phrase, speaking
from vitreous.models.ensemble import Ensemble
from vitreous.models.model import Model
from vitreous.models.stored import ImageLike
from vitreous.models.vit import ViT
from vitreous.whole_files import folder_for, whole

MOST_NAMED = 30  # classes in a sentence
CLOSE = 8  # images that are shown; the others enter the averages


@dataclass(frozen=True)
class InspectionRequest:
    """What a report is asked to show.

    Attributes:
        name: the path or the name of the model.
        about: a sentence on where the images come from.
        fresh: whether the weights have learned nothing yet.
        label: the class to explain; None: each image's own prediction.
        patch: (row, column), from 0, of the patch whose attention is shown; None: the one in the middle.
        other: another model, whose layers are compared with this one's.
        other_name: what to call it.
        labels: the true class of each image, where they are known.
        attributions: how many images are attributed by every method; None: as many as take about a minute.
        progress: is called with the images done and all of them.
    """

    name: str
    about: str = ""
    fresh: bool = False
    label: str | None = None
    patch: tuple[int, int] | None = None
    other: Model | None = None
    other_name: str = "the other"
    labels: Sequence[str] = ()
    attributions: int | None = None
    progress: ProgressCallback | None = None


def write_inspection(
    answerer: object, examples: Sequence[object], folder: Path, request: InspectionRequest
) -> Inspection:
    """Write the page of `vitreous inspect` on images with their names, or on texts, for a model of any kind.
    Raises InputError: a request that cannot be answered, or `folder` is not empty, now or at the end."""
    model = getattr(answerer, "model", answerer)
    kind = kind_of(getattr(model, "config", None))
    write: Callable[..., Inspection] = imported(kind.inspect) if kind and kind.inspect else write_model_report
    check_free(folder)
    with writing_to(folder), folder_for(folder), whole(folder, new=True) as temporary:
        found = write(answerer, examples, temporary, request)
    return replace(
        found,
        report=folder / found.report.name,
        arrays=folder / found.arrays.name,
        drawings=tuple(folder / drawing.name for drawing in found.drawings),
    )


def write_model_report(
    model: Model,
    images: Sequence[tuple[ImageLike, str]],
    folder: Path,
    request: InspectionRequest,
    *,
    own_figures: Sequence[Exhibit] = (),
    classes: int | None = None,
) -> Inspection:
    """Run `model` on images (with their names); write report.html, figures and arrays.npz into `folder`.

    Args:
        own_figures: those that only this kind of model has; they come first.
        classes: how many the whole model has, where `model` is but a part of it; else its own.

    Raises:
        InputError: an unknown class, or a patch outside the grid.
    """
    name = short_name(request.name)
    model.eval()
    whole_model, model = model, network_to_show(model)
    parts: list[Exhibit | LeftOut] = list(own_figures)
    seen = OfViT()
    if isinstance(model, ViT):
        seen = vit_exhibits(model, images, request)
        parts += seen.exhibits
    else:
        of_attention: dict[str, object] = {
            "label": request.label,
            "patch": request.patch,
            "compare": request.other,
            "attributions": request.attributions,
        }
        for option, value in of_attention.items():
            if value is not None:
                raise InputError(
                    f"{Param(option)} does not apply to a model without attention, such as a convolutional "
                    "network or an SVM: leave it out"
                )
        reason = "no-network" if isinstance(model, Ensemble) else "no-tokens"
        parts += [filters_figure(model), left_out("groups.attention", reason)]
    # Nothing is known of the parts of a module of another library.
    if isinstance(model, LiveViT):
        parts.append(left_out("architecture", "other-library"))
    else:
        parts.append(architecture_figure(model))
    exhibits = [part for part in parts if isinstance(part, Exhibit)]
    missing = [part for part in parts if isinstance(part, LeftOut)]
    folder.mkdir(parents=True, exist_ok=True)
    page = write_page(
        folder / "report.html",
        "model.html.j2",
        parts=parts,
        title=phrase("titles.model", name=name),
        name=name,
        kind=model_summary(whole_model),
        images=request.about,
        notice=phrase("inspection.fresh") if request.fresh else seen.notice,
        facts={
            "parameters": sum(parameter.numel() for parameter in whole_model.parameters()),
            "classes": classes or whole_model.config.num_classes or 0,
            "images": len(images),
        },
        explorer=seen.explorer,
    )
    drawings: list[Path] = []
    arrays: dict[str, np.ndarray] = {}
    for each in exhibits:
        drawings += each.save(folder)
        arrays |= each.arrays
    with speaking("en"):
        reasons = [{"figure": each.title, "reason": each.reason} for each in missing]
    return Inspection(
        page,
        save_arrays(arrays, folder / "arrays.npz"),
        tuple(drawings),
        {"images": len(images), **seen.summary, "left_out": reasons},
    )


class OfViT(NamedTuple):
    """What a page shows of a Vision Transformer alone; nothing, of other models.

    Attributes:
        explorer: what the interactive part reads.
        summary: the main numbers; layers and heads count from 1.
        notice: a sentence at the top of the page.
    """

    exhibits: Sequence[Exhibit | LeftOut] = ()
    explorer: dict[str, object] | None = None
    summary: Mapping[str, object] = MappingProxyType({})
    notice: str = ""


def vit_exhibits(model: ViT, images: Sequence[tuple[ImageLike, str]], request: InspectionRequest) -> OfViT:
    """Return what a page shows of a Vision Transformer with images (and their names). Raises InputError: an
    unknown class, or a patch outside the grid."""
    config = model.config
    rows, columns = config.grid
    patch = request.patch or (rows // 2, columns // 2)
    if not (0 <= patch[0] < rows and 0 <= patch[1] < columns):
        raise InputError(
            f"there is no patch in row {patch[0] + 1}, column {patch[1] + 1}: "
            f"the grid has {rows} rows and {columns} columns"
        )
    labels = labels_or_numbers(model)
    wanted = None if request.label is None else class_number(labels, request.label)
    names = [name for _, name in images]
    batch = PreparedImages(model.preprocessing, [image for image, _ in images])
    close = batch[:CLOSE]
    seen = survey(model, batch, patch=patch, close=CLOSE, progress=request.progress)
    view = view_of(short_name(request.name), model, close, seen, names, request.labels, wanted)
    named, evidence = view.shown, view.evidence
    parts: list[Exhibit | LeftOut] = [
        attention_triples(config, named, seen),
        *relevance_figures(evidence, named, request.label),
        *attribution_figures(model, close, named, wanted, request.attributions),
        figures.distance_figure(seen, config),
        figures.patch_figure(seen, named[0], config, patch),
        positions_figure(model),
        filters_figure(model),
        figures.features_figure(seen.patches, named, config),
        figures.lens_figure(seen.lens, labels),
        figures.entropy_figure(seen),
        figures.alignment_figure(seen.features),
        figures.norms_figure(seen.norms, config),
    ]
    views = [view]
    if isinstance(request.other, ViT):
        others, other = other_view(request.other.eval(), images, request)
        views.append(other)
        parts.append(figures.alignment_figure(seen.features, others, short_name(request.other_name)))
    elif request.other is not None:
        parts.append(left_out("alignment.with-other", "no-tokens-to-compare", other=request.other_name))
    unsure = is_undecided(seen.lens)
    notice = ""
    if model.has_untrained_layers:
        notice = phrase("inspection.untrained-layers")
    elif 2 * sum(unsure) > len(unsure):
        notice = phrase("inspection.undecided", number=sum(unsure), count=len(unsure))
    answers = zip(names, predicted_labels(seen.lens, labels), strict=False)
    summary = {
        "answers": [{"image": name, "answer": each} for name, each in answers],
        "mean_attention_distance": seen.distance.mean(dim=(0, 2)).tolist(),
        "mean_attention_entropy": seen.entropy.mean(dim=(0, 2)).tolist(),
        "prunable_heads": figures.prunable_heads(evidence) if evidence and evidence.heads.any() else [],
        "artifact_tokens": int(unusual_norms(seen.norms[:, config.num_prefix_tokens :]).sum()),
    }
    return OfViT(parts, explorer_data(views, len(images)), summary, notice)


def view_of(
    name: str,
    model: ViT,
    images: Float[Tensor, "B C H W"],
    seen: Survey,
    names: Sequence[str],
    true: Sequence[str],
    wanted: int | None = None,
) -> View:
    """Return what a model sees in the images that are shown, with what contributed to the class `wanted`, or
    to the prediction for each."""
    captions = captions_of(names[: len(images)], seen.lens, labels_or_numbers(model), true)
    pixels = model.preprocessing.denormalize(model.whole_patches(images))
    shown = [(rgb(each), caption) for each, caption in zip(pixels, captions, strict=True)]
    evidence = None if model.config.num_classes is None else relevances(model, images, wanted)
    return View(name, model, images, shown, seen, evidence)


def other_view(
    model: ViT, images: Sequence[tuple[ImageLike, str]], request: InspectionRequest
) -> tuple[Tensor, View]:
    """Return the features of each layer of another model on the same images, with its own preprocessing; and
    what it sees in those that are shown."""
    batch = PreparedImages(model.preprocessing, [image for image, _ in images])
    close, (rows, columns) = batch[:CLOSE], model.config.grid
    seen = survey(model, close, patch=(rows // 2, columns // 2), close=CLOSE)
    names = [name for _, name in images]
    view = view_of(short_name(request.other_name), model, close, seen, names, request.labels)
    return layer_features(model, batch), view


def short_name(model: str) -> str:
    """Return the last part of a path; the name of anything else as it is."""
    return Path(model).name if Path(model).exists() else model


def labels_or_numbers(model: ViT) -> Sequence[str]:
    """Return the model's labels; numbers where it has none."""
    numbers = range(model.config.num_classes or 0)
    return model.labels or [phrase("images.class-number", number=i) for i in numbers]


def captions_of(
    names: Sequence[str], lens: Lens | None, labels: Sequence[str], true: Sequence[str]
) -> list[str]:
    """Return the name of each image with the predicted class, and with the true one where that is known and a
    class of the model; the name alone where there are no classes."""
    if lens is None:
        return list(names)
    answers, captions = predicted_labels(lens, labels), []
    for place, (name, is_open) in enumerate(zip(names, is_undecided(lens), strict=False)):
        label, predicted = next(iter(true[place : place + 1]), ""), labels[int(lens.classes[place, 0])]
        words = {"name": name, "answer": answers[place]}
        if is_open:
            words["name"] += f" ({label})" if label in labels else ""
            captions.append(phrase("images.open", **words))
        elif label in labels:
            sign = "✓" if label == predicted else "✗"
            captions.append(phrase("images.named", sign=sign, label=label, **words))
        else:
            captions.append(phrase("images.prediction", **words))
    return captions


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


def attribution_figures(
    model: ViT,
    images: Float[Tensor, "B C H W"],
    shown: Sequence[tuple[Pixels, str]],
    wanted: int | None,
    count: int | None,
) -> list[Exhibit | LeftOut]:
    """Return the attributions of the first images, for a class or for each image's prediction."""
    if model.config.num_classes is None or count == 0:
        return []
    several = affordable(model, len(images)) if count is None else min(count, len(images))
    if not several:
        return [left_out("attributions", "costly")]
    classes = None if wanted is None else torch.full((several,), wanted)
    return [attributions_figure(attribute_batch(model, images[:several], classes), shown)]


def relevance_figures(
    evidence: Relevance | None, images: Sequence[tuple[Pixels, str]], label: str | None
) -> list[Exhibit | LeftOut]:
    """Return the relevance maps and the head importance."""
    if evidence is None:
        return [left_out("groups.relevance", "no-classes")]
    if not evidence.heads.any():
        return [left_out("groups.relevance", "zero-head")]
    return [figures.relevance_figure(evidence, images, label), figures.importance_figure(evidence)]
