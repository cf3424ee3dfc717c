"""report.html of a training run: how it learned, how good it is, what it gets wrong, what it looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vitreous.data.contact_sheet import ContactSheet
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.evaluation.baselines import Baseline
from vitreous.evaluation.classification import Evaluation
from vitreous.evaluation.multilabel import MultiLabelEvaluation
from vitreous.inspection.model_figures import attention_figure, filters_figure, positions_figure
from vitreous.inspection.page import Exhibit, LeftOut, write_run_report
from vitreous.inspection.training_figures import (
    augmented_figure,
    calibration_figure,
    comparison_figure,
    confusion_figure,
    curves_figure,
    mistakes_figure,
)
from vitreous.models.names import Model
from vitreous.models.segmenter import Segmenter
from vitreous.models.vit import ViT
from vitreous.training.journal import read_metrics

SAMPLES = 8  # images whose attention is shown


def write_training_report(
    run: Path,
    *,
    model: Model,
    evaluation: Evaluation | MultiLabelEvaluation,
    images: ImageDataset,
    baselines: Sequence[Baseline] = (),
    sheet: ContactSheet | None = None,
) -> Path:
    """Write report.html into the run's directory: one file, which needs no network.

    Args:
        run: the run's directory; its config.toml and metrics.jsonl are read.
        images: the held-out images that `evaluation` judged.
        baselines: what simpler methods get on the same images.
        sheet: augmented images, as training saw them.
    """
    batch, names = sample(model, images)
    rows = read_metrics(run / "metrics.jsonl")
    parts: list[Exhibit | LeftOut] = [curves_figure(rows)]
    if isinstance(evaluation, Evaluation):
        parts = [
            comparison_figure("this model", evaluation, baselines),
            *parts,
            confusion_figure(evaluation),
            calibration_figure(evaluation),
            mistakes_figure(evaluation, images, model.preprocessing),
        ]
    else:
        parts.append(LeftOut("Confusion, calibration, mistakes", "an image may show several things at once"))
    parts += [attention_figure(model, batch, names), positions_figure(model), filters_figure(model)]
    parts.append(augmented_figure(sheet))
    return write_run_report(
        run,
        "training.html.j2",
        parts=parts,
        kind=describe(model),
        facts=facts(model, evaluation.classes, rows),
        evaluation=evaluation,
    )


def sample(model: Model, images: ImageDataset) -> tuple[Float[Tensor, "B C H W"], list[str]]:
    """Some of the images, prepared for the model, and what they show."""
    chosen, names = spread(images, SAMPLES)
    return model.preprocessing(chosen).to(next(model.parameters()).device), names


def spread(images: ImageDataset, count: int) -> tuple[list[Image.Image], list[str]]:
    """Images from all over the set, which is often sorted by class, and what they show; those that cannot
    be read are left out."""
    chosen, names = [], []
    for index in torch.linspace(0, len(images) - 1, min(count, len(images))).long().tolist():
        try:
            chosen.append(images.image(index))
        except BadImage:
            continue  # counted and named where the set was judged
        target = images.targets[index]
        names.append(images.classes[int(target)] if target.ndim == 0 else images.name(index))
    return chosen, names


def facts(model: Model, classes: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What stands under the headline."""
    known = {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "classes": f"{len(classes):,}",
    }
    if rows:
        last = rows[-1]
        known["epochs"] = f"{last['epoch']:g}"
        known["steps"] = f"{last['step']:,}"
        known["training time"] = f"{last['seconds']:,.0f} s"
    return known


STEMS = {"patch": "", "convolution": " behind convolutions", "resnet": " behind a ResNet"}


def describe(model: Model) -> str:
    """The model in a line."""
    height, width = model.config.image_size
    if isinstance(model, ViT | Segmenter):
        config = model.config
        p, q = config.patch_size
        registers = f", {config.registers} registers" if config.registers else ""
        return (
            f"Vision Transformer{STEMS[config.stem.kind]}, {config.depth} layers of width {config.width}, "
            f"{config.heads} heads, patches of {p}×{q} on {height}×{width}{registers}"
        )
    return f"BiT, {sum(model.config.layers)} units, on {height}×{width}"
