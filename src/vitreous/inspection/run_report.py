"""report.html of a run: how it learned, how good it is, its errors, and what the model attends to.

Each kind of run has its own figures; `page.write_run_page` makes the page of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vitreous.data.contact_sheet import ContactSheet
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.data.segmentation.masked import MaskedDataset
from vitreous.evaluation.baselines import Baseline
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.multilabel import MultiLabelEvaluation
from vitreous.evaluation.segmentation import SegmentationEvaluation
from vitreous.inspection import captions
from vitreous.inspection.evaluation_figures import (
    augmented_figure,
    baselines_figure,
    calibration_figure,
    classes_table,
    confusion_figure,
    curves_figure,
    mistakes_figure,
)
from vitreous.inspection.images import rgb
from vitreous.inspection.model_figures import attention_figure, filters_figure, positions_figure
from vitreous.inspection.page import Exhibit, Headline, LeftOut, image_triples, percent, write_run_page
from vitreous.inspection.segmentation_figures import (
    iou_figure,
    masks_figure,
    pixel_confusion_figure,
    sample_masks,
)
from vitreous.models.names import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.segmenter import Segmenter
from vitreous.models.vit import ViT
from vitreous.training.callbacks import read_metrics

if TYPE_CHECKING:
    from vitreous.tasks.pretraining.config import PretrainingRunConfig
    from vitreous.tasks.pretraining.objectives import SelfSupervision

SAMPLES = 8  # images whose attention is shown
SEGMENTATION_PANELS = {"loss": "Loss", "miou": "Mean IoU", "accuracy": "Pixel accuracy"}
OBJECTIVES = {
    "masked-patch": "masked patch prediction (appendix B.1.2 of the ViT paper)",
    "mae": "a masked autoencoder (MAE; He et al., 2021)",
    "simmim": "SimMIM (Xie et al., 2021)",
    "dino": "self-distillation (DINO; Caron et al., 2021)",
}
TARGETS = {
    "mean-color": " It predicts one color per patch, of 8 levels per channel, so reconstructions are plain.",
    "small-colors": " It predicts 4x4 cells per patch, each a color of 8 levels per channel.",
    "pixels": "",
}
STEMS = {"patch": "", "convolution": " with a convolutional stem", "resnet": " on a ResNet"}


def write_training_report(
    run: Path,
    *,
    model: Model,
    evaluation: ClassificationEvaluation | MultiLabelEvaluation,
    images: ImageDataset,
    baselines: Sequence[Baseline] = (),
    sheet: ContactSheet | None = None,
) -> Path:
    """Write the report of a classifier.

    Args:
        run: the run's directory; its config.toml and metrics.jsonl are read.
        images: the held-out images of `evaluation`.
        baselines: simpler methods on the same images.
        sheet: augmented images, as training saw them.
    """
    batch, names = sample_batch(model, images)
    rows = read_metrics(run / "metrics.jsonl")
    parts: list[Exhibit | LeftOut] = [curves_figure(rows)]
    count = f"{evaluation.count:,} held-out images"
    if isinstance(evaluation, ClassificationEvaluation):
        parts = [
            baselines_figure("this model", evaluation, baselines),
            *parts,
            confusion_figure(evaluation.confusion, evaluation.classes),
            calibration_figure(evaluation),
            mistakes_figure(evaluation, images, model.preprocessing),
        ]
        low, high = evaluation.interval
        headline = Headline(
            percent(evaluation.accuracy),
            f"accuracy on {count}; 95 % confidence interval: {percent(low)} to {percent(high)}.",
        )
    else:
        parts.append(
            LeftOut("Confusion matrix, calibration and errors", "an image may have several labels at once")
        )
        headline = Headline(
            percent(evaluation.mean_average_precision),
            f"mean average precision (mAP) on {count}: how well the images that show a class are ranked "
            "before those that do not, averaged over the classes.",
        )
    parts += [
        attention_figure(model, batch, names),
        positions_figure(model),
        filters_figure(model),
        augmented_figure(sheet),
        classes_table(evaluation),
    ]
    return write_run_page(
        run,
        eyebrow="Training report",
        lead=f"{model_summary(model)}.",
        headline=headline,
        facts=training_facts(model, rows, classes=evaluation.classes),
        parts=parts,
        command="vitreous train --config config.toml",
    )


def write_segmentation_report(
    run: Path, *, model: Segmenter, evaluation: SegmentationEvaluation, images: MaskedDataset
) -> Path:
    """Write the report of a segmenter.

    Args:
        images: the held-out images of `evaluation`.
    """
    rows = read_metrics(run / "metrics.jsonl")
    segmented = sample_masks(model, evaluation, images)
    encoder, some = model.encoder, segmented[-SAMPLES:]
    batch = model.preprocessing([each.image for each in some]).to(next(model.parameters()).device)
    depth = model.config.decoder_depth
    decoder = (
        f"a mask Transformer of {depth} layer{'s' if depth > 1 else ''}"
        if model.config.decoder == "mask-transformer"
        else "a linear layer"
    )
    low, high = evaluation.interval
    foreground = (
        f" Background or not: {percent(evaluation.foreground_miou)} mean IoU."
        if evaluation.foreground_miou is not None
        else ""
    )
    return write_run_page(
        run,
        eyebrow="Training report, segmentation",
        lead=f"Segmenter: {model_summary(model)}, and {decoder} that classifies each pixel.",
        headline=Headline(
            percent(evaluation.miou),
            f"mean IoU on {len(evaluation.names):,} held-out images; 95 % confidence interval (bootstrap): "
            f"{percent(low)} to {percent(high)}. Pixel accuracy: {percent(evaluation.pixel_accuracy)}."
            f"{foreground} Predicting {evaluation.classes[0]} everywhere gives "
            f"{percent(evaluation.always_first)} mean IoU.",
        ),
        facts=training_facts(model, rows, classes=evaluation.classes),
        parts=[
            masks_figure(
                segmented,
                evaluation.classes,
                subtitle="where the model is right, and where not",
                caption=captions.MASKS.format(count=len(evaluation.names)),
            ),
            iou_figure(evaluation),
            pixel_confusion_figure(evaluation),
            curves_figure(rows, shown=SEGMENTATION_PANELS, caption=captions.SEGMENTATION_CURVES),
            attention_figure(encoder, batch, [each.words.split(":")[0] for each in some]),
            positions_figure(encoder),
        ],
        command="vitreous train --config config.toml",
    )


def write_pretraining_report(
    run: Path, *, objective: SelfSupervision, config: PretrainingRunConfig, images: ImageDataset
) -> Path:
    """Write the report of a self-supervised run.

    Args:
        config: of the run.
        images: held-out ones, to show the objective on.
    """
    encoder = objective.encoder
    batch, names = sample_batch(encoder, images)
    rows = read_metrics(run / "metrics.jsonl")
    last = rows[-1] if rows else {}
    return write_run_page(
        run,
        eyebrow="Pre-training report",
        lead=f"{model_summary(encoder)}, trained without labels by {OBJECTIVES[config.task]}.",
        facts={
            **training_facts(encoder, rows),
            "loss": f"{last.get('loss', float('nan')):.4f}",
            "validation loss": f"{last.get('validation_loss', float('nan')):.4f}",
        },
        parts=[
            objective_figure(objective, config, batch, names),
            curves_figure(rows),
            attention_figure(encoder, batch, names),
            positions_figure(encoder),
            filters_figure(encoder),
        ],
        command="vitreous pretrain --config config.toml",
    )


def objective_figure(
    objective: Any, config: PretrainingRunConfig, images: Float[Tensor, "B C H W"], names: Sequence[str]
) -> Exhibit:
    """Show what the objective asks: masked and reconstructed images, or the crops of self-distillation."""
    generator = torch.Generator().manual_seed(0)
    preprocessing: Preprocessing = objective.encoder.preprocessing
    if config.task == "dino":
        large, small = objective.crops(images, generator)
        second = small[0] if small else large[1]
        return Exhibit(
            name="views",
            title="Multi-crop views",
            caption=captions.VIEWS,
            html=batch_triples(
                preprocessing, names, (images, large[0], second), ("image", "global crop", "local crop")
            ),
        )
    masked, reconstructed = objective.eval().reconstruct(images, generator)
    corrupted = config.task == "masked-patch"
    return Exhibit(
        name="reconstruction",
        title="Reconstruction",
        subtitle="what was masked, and what the model made of it",
        caption=captions.RECONSTRUCTION
        + (captions.CORRUPTION + TARGETS[config.pretraining.masked_patch.target] if corrupted else ""),
        html=batch_triples(
            preprocessing, names, (images, masked, reconstructed), ("image", "masked", "reconstructed")
        ),
        arrays={"masked": masked.numpy(), "reconstructed": reconstructed.numpy()},
    )


def batch_triples(
    preprocessing: Preprocessing,
    names: Sequence[str],
    batches: tuple[Float[Tensor, "B C H W"], ...],
    kinds: tuple[str, str, str],
) -> Any:
    """Return the images of three batches side by side, with their names."""
    columns = [[rgb(each) for each in preprocessing.denormalize(batch)] for batch in batches]
    return image_triples(((row, name) for name, *row in zip(names, *columns, strict=True)), kinds)


def sample_batch(model: Model, images: ImageDataset) -> tuple[Float[Tensor, "B C H W"], list[str]]:
    """Return some of the images, prepared for the model, and their labels."""
    some, names = sample_images(images, SAMPLES)
    return model.preprocessing(some).to(next(model.parameters()).device), names


def sample_images(images: ImageDataset, count: int) -> tuple[list[Image.Image], list[str]]:
    """Return images evenly spaced over the dataset, which is often sorted by class, and their labels.

    Unreadable images are left out; the evaluation reports them.
    """
    some, names = [], []
    for index in torch.linspace(0, len(images) - 1, min(count, len(images))).long().tolist():
        try:
            some.append(images.image(index))
        except BadImage:
            continue
        target = images.targets[index]
        names.append(images.classes[int(target)] if target.ndim == 0 else images.name(index))
    return some, names


def training_facts(
    model: Model, rows: Sequence[Mapping[str, Any]], *, classes: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the numbers below the headline."""
    facts = {"parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}"}
    if classes is not None:
        facts["classes"] = f"{len(classes):,}"
    if rows:
        last = rows[-1]
        facts["epochs"] = f"{last['epoch']:g}"
        facts["steps"] = f"{last['step']:,}"
        facts["training time"] = f"{last['seconds']:,.0f} s"
    return facts


def model_summary(model: Model) -> str:
    """Return the model in a line."""
    height, width = model.config.image_size
    if isinstance(model, ViT | Segmenter):
        config = model.config
        p, q = config.patch_size
        registers = f", {config.registers} registers" if config.registers else ""
        return (
            f"Vision Transformer{STEMS[config.stem.kind]}, {config.depth} layers, embedding dimension "
            f"{config.width}, {config.heads} heads, {p}×{q} patches of {height}×{width} images{registers}"
        )
    return f"BiT, {sum(model.config.layers)} units, on {height}×{width}"
