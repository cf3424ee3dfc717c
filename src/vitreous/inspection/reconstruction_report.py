"""report.html of a pre-training run: what was hidden, what the model made of it, how it learned."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor

from vitreous.data.dataset import ImageDataset
from vitreous.inspection.images import rgb
from vitreous.inspection.model_figures import attention_figure, filters_figure, positions_figure
from vitreous.inspection.page import Exhibit, LeftOut, img, write_run_report
from vitreous.inspection.training_figures import curves_figure
from vitreous.inspection.training_report import describe, sample
from vitreous.pretraining.config import PretrainingConfig
from vitreous.pretraining.dino import DINO
from vitreous.pretraining.masked_patch import MaskedPatchPrediction
from vitreous.pretraining.objectives import SelfSupervision
from vitreous.training.journal import read_metrics

NAMES = {
    "masked-patch": "masked patch prediction (appendix B.1.2 of the ViT paper)",
    "mae": "a masked autoencoder (He et al., 2021)",
    "simmim": "SimMIM (Xie et al., 2021)",
    "dino": "self-distillation, DINO (Caron et al., 2021)",
}
RECONSTRUCTIONS = (
    "Images that training never saw. In each row: the image, what the model was shown (hidden patches in "
    "the mean color), and the hidden patches as the model fills them in. Fillings are blurred where several "
    "contents would be possible: the loss asks for their mean. A filling that ignores its surroundings is a "
    "model that has not learned yet."
)
CORRUPTION = (
    " The model saw a tenth of the hidden patches as they are and a tenth as another patch; that is left out."
)
TARGETS = {
    "mean-color": " It predicts one color for a patch, of 8 levels a channel: fillings are plain squares.",
    "small-colors": " It predicts 4x4 cells for a patch, each a color of 8 levels a channel.",
    "pixels": "",
}
VIEWS = (
    "Images that training never saw. In each row: the image, a large view, and a small view. The student "
    "has to say of the small view what the teacher says of the large one."
)


def write_reconstruction_report(
    run: Path, *, objective: SelfSupervision, config: PretrainingConfig, images: ImageDataset
) -> Path:
    """Write report.html into the run's directory: one file, which needs no network.

    Args:
        config: which objective it is.
        images: held-out ones, to show the objective on.
    """
    encoder = objective.encoder
    batch, names = sample(encoder, images)
    rows = read_metrics(run / "metrics.jsonl")
    shown = (
        views_figure(objective, batch, names)
        if isinstance(objective, DINO)
        else reconstruction_figure(objective, batch, names, config)
    )
    parts: list[Exhibit | LeftOut] = [
        shown,
        curves_figure(rows),
        attention_figure(encoder, batch, names),
        positions_figure(encoder),
        filters_figure(encoder),
    ]
    last = rows[-1] if rows else {}
    return write_run_report(
        run,
        "pretraining.html.j2",
        parts=parts,
        kind=describe(encoder),
        objective=NAMES[config.objective],
        facts={
            "parameters": f"{sum(parameter.numel() for parameter in encoder.parameters()):,}",
            "epochs": f"{last.get('epoch', 0):g}",
            "training time": f"{last.get('seconds', 0):,.0f} s",
            "loss": f"{last.get('loss', float('nan')):.4f}",
            "loss, held out": f"{last.get('validation_loss', float('nan')):.4f}",
        },
    )


def reconstruction_figure(
    objective: SelfSupervision,
    images: Float[Tensor, "B C H W"],
    names: list[str],
    config: PretrainingConfig,
) -> Exhibit:
    """Each image, what was shown of it, and what the model made of that."""
    assert not isinstance(objective, DINO)
    masked, reconstructed = objective.eval().reconstruct(images, torch.Generator().manual_seed(0))
    corrupted = isinstance(objective, MaskedPatchPrediction)
    target = config.masked_patch.target
    return Exhibit(
        name="reconstruction",
        title="What was hidden, and what it made of it",
        caption=RECONSTRUCTIONS + (CORRUPTION + TARGETS[target] if corrupted else ""),
        html=triples(objective, names, (images, masked, reconstructed), ("image", "shown", "filled in")),
        arrays={"masked": masked.numpy(), "reconstructed": reconstructed.numpy()},
    )


def views_figure(objective: DINO, images: Float[Tensor, "B C H W"], names: list[str]) -> Exhibit:
    """Each image, one of its large views, and a small one (the other large one where there are none)."""
    large, small = objective.crops(images, torch.Generator().manual_seed(0))
    second = small[0] if small else large[1]
    return Exhibit(
        name="views",
        title="Views of one image",
        caption=VIEWS,
        html=triples(objective, names, (images, large[0], second), ("image", "large view", "small view")),
    )


def triples(
    objective: SelfSupervision,
    names: list[str],
    columns: tuple[Float[Tensor, "B C H W"], ...],
    words: tuple[str, ...],
) -> Markup:
    """Images in rows of three, with the name of what they show below."""
    shown = [
        [rgb(each) for each in objective.encoder.preprocessing.denormalize(column)] for column in columns
    ]
    rows = Markup("").join(
        Markup('<figure class="triple">{}<figcaption>{}</figcaption></figure>').format(
            Markup("").join(img(image, f"{name}: {word}") for image, word in zip(row, words, strict=True)),
            name,
        )
        for name, *row in zip(names, *shown, strict=True)
    )
    return Markup('<div class="triples">{}</div>').format(rows)
