"""Figures of a ViT on images, from the numbers of a `Survey`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from vitreous.inspection import captions
from vitreous.inspection.attention_metrics import readout_name, to_grid
from vitreous.inspection.charts import FIRST, MUTED, SECOND, Chart, canvas, lines, matrix, per_head
from vitreous.inspection.images import Pixels, contact_sheet, heat, overlay
from vitreous.inspection.page import Exhibit, LeftOut, image_row, percent, sheet
from vitreous.inspection.relevance import Relevance
from vitreous.inspection.representations import FEWEST, cka_matrix, feature_colors, unusual_norms
from vitreous.inspection.survey import Lens, Survey
from vitreous.models.config import ViTConfig

PRUNABLE = 0.1  # of the mean head's importance
ALIKE = 1e-5  # where the largest probability is the mean but for rounding, all are the same


def distance_figure(survey: Survey) -> Exhibit:
    """Plot the mean attention distance of each head (Fig. 7 right and Fig. 11)."""
    distance = survey.distance.mean(dim=0).numpy()
    chart = per_head(distance, title="mean attention distance, pixels")
    return Exhibit.of_chart(
        chart,
        name="distance",
        title="Mean attention distance",
        subtitle="how far each head looks",
        caption=captions.DISTANCE.format(count=len(survey.distance)),
        arrays={"distance": survey.distance.numpy()},
    )


def heads_figure(survey: Survey, config: ViTConfig) -> Exhibit:
    """Show every head of every layer on the first image, for print."""
    maps = to_grid(survey.reading[0], config)
    tiles = [heat(each / each.max().clamp_min(1e-12)) for each in maps.flatten(0, 1)]
    tiled = contact_sheet(tiles, columns=config.heads)
    return Exhibit(
        name="heads",
        title="Attention maps of all heads",
        subtitle="on the first image",
        caption=captions.HEADS.format(readout=readout_name(config)),
        html=sheet(tiled, "attention of every head"),
        files={"heads": tiled},
        arrays={"readout_attention": to_grid(survey.reading, config).numpy()},
    )


def patch_figure(
    survey: Survey, shown: Sequence[Pixels], config: ViTConfig, patch: tuple[int, int]
) -> Exhibit:
    """Show the attention of one patch, layer by layer, on the first image."""
    maps = to_grid(survey.asked[0], config)
    tiles = [overlay(marked(shown[0], config, patch), layer) for layer in maps]
    row, column = patch
    return Exhibit(
        name="patch",
        title="Patch attention",
        subtitle=f"what the patch in row {row + 1}, column {column + 1} attends to",
        caption=captions.PATCH,
        html=image_row([(tile, f"layer {layer + 1}") for layer, tile in enumerate(tiles)]),
        files={"patch": contact_sheet(tiles, columns=6)},
        arrays={"patch_attention": to_grid(survey.asked, config).numpy()},
    )


def marked(image: Pixels, config: ViTConfig, patch: tuple[int, int]) -> Pixels:
    """Draw a white frame around a patch; fill the patch where it is too small for a frame."""
    height, width = config.patch_size
    top, left = patch[0] * height, patch[1] * width
    framed = image.copy()
    inside = framed[top : top + height, left : left + width].copy()
    framed[top : top + height, left : left + width] = 255
    if min(height, width) > 6:
        framed[top + 2 : top + height - 2, left + 2 : left + width - 2] = inside[2:-2, 2:-2]
    return framed


def entropy_figure(survey: Survey) -> Exhibit:
    """Show the entropy of each head's attention."""
    entropy = survey.entropy.mean(dim=0).numpy()
    chart = by_layer_and_head(entropy, "entropy, % of the largest possible")
    return Exhibit.of_chart(
        chart,
        name="entropy",
        title="Attention entropy",
        subtitle="how widely each head spreads its attention",
        caption=captions.ENTROPY,
        arrays={"entropy": survey.entropy.numpy()},
    )


def head_shares(evidence: Relevance) -> Float[Tensor, "L K"]:
    """Return the importance of each head, as a share of the mean head."""
    importance = evidence.heads.mean(dim=0)
    return importance / importance.mean().clamp_min(1e-30)


def prunable_heads(evidence: Relevance) -> list[tuple[int, int]]:
    """Return (layer, head), counted from 1, of the least important heads."""
    return [(layer + 1, head + 1) for layer, head in (head_shares(evidence) < PRUNABLE).nonzero().tolist()]


def importance_figure(evidence: Relevance) -> Exhibit:
    """Show how much each head contributes to the prediction."""
    share = head_shares(evidence).numpy()
    prunable = share < PRUNABLE
    chart = by_layer_and_head(share / max(share.max(), 1e-30), "", numbers=share * 100, marked=prunable)
    return Exhibit.of_chart(
        chart,
        name="importance",
        title="Head importance",
        subtitle="which heads could be pruned",
        caption=captions.IMPORTANCE.format(
            count=len(evidence.heads),
            prunable=int(prunable.sum()),
            all=prunable.size,
            limit=percent(PRUNABLE),
        ),
        arrays={"head_importance": evidence.heads.numpy()},
    )


def by_layer_and_head(
    values: Float[np.ndarray, "L K"],
    title: str,
    *,
    numbers: Float[np.ndarray, "L K"] | None = None,
    marked: Bool[np.ndarray, "L K"] | None = None,
) -> Chart:
    """Return a matrix of layers (rows) and heads (columns) with `numbers`, by default the values in %."""
    written = values * 100 if numbers is None else numbers
    return matrix(
        values,
        rows=[str(layer + 1) for layer in range(values.shape[0])],
        columns=[str(head + 1) for head in range(values.shape[1])],
        title=title,
        axes_names=("layer", "head"),
        numbers=[[f"{value:.0f}" for value in row] for row in written],
        marked=marked,
    )


def relevance_figure(evidence: Relevance, images: Sequence[tuple[Pixels, str]], label: str | None) -> Exhibit:
    """Show the relevance for the given class, or for each image's own prediction."""
    tiles = [overlay(image, patches) for (image, _), patches in zip(images, evidence.patches, strict=True)]
    what = "the prediction" if label is None else f"“{label}”"
    return Exhibit(
        name="relevance",
        title="Relevance map",
        subtitle=f"which patches contributed to {what}",
        caption=captions.RELEVANCE,
        html=image_row([(tile, words) for tile, (_, words) in zip(tiles, images, strict=True)]),
        files={"relevance": contact_sheet(tiles, columns=8)},
        arrays={"relevance": evidence.patches.numpy()},
    )


def features_figure(
    patches: Float[Tensor, "B N D"], shown: Sequence[Pixels], names: Sequence[str], config: ViTConfig
) -> Exhibit:
    colors = (feature_colors(patches) * 255).round().to(torch.uint8)
    tiles = list(colors.reshape(len(patches), *config.grid, 3).numpy())
    pairs = [
        entry
        for image, tile, name in zip(shown, tiles, names, strict=True)
        for entry in ((image, name), (tile, "PCA of its features"))
    ]
    return Exhibit(
        name="features",
        title="Patch features (PCA)",
        subtitle="which patches have similar features",
        caption=captions.FEATURES,
        html=image_row(pairs),
        files={"features": contact_sheet(tiles, columns=8, least=128)},
        arrays={"feature_colors": np.stack(tiles)},
    )


def lens_figure(lens: Lens | None, labels: Sequence[str]) -> Exhibit | LeftOut:
    """Plot the predictions of every layer."""
    title = "Logit lens"
    if lens is None:
        return LeftOut(title, "the model has no classes")
    layers = [float(layer) for layer in range(lens.agrees.shape[1])]
    with canvas(6.8, 2.7, columns=2) as (figure, (agreement, first)):
        lines(
            agreement,
            {"": (layers, (lens.agrees.float().mean(dim=0) * 100).tolist())},
            title="images whose final prediction already leads, %",
            x="layer",
        )
        agreement.set_ylim(0, 103)
        for place in range(lens.classes.shape[1]):
            probabilities = lens.probabilities[0, :, place].tolist()
            color, weight = (FIRST, 1.8) if place == 0 else (SECOND, 1.4) if place == 1 else (MUTED, 0.9)
            name = labels[int(lens.classes[0, place])] if place < 2 else "others" if place == 2 else None
            first.plot(layers, probabilities, color=color, linewidth=weight, label=name)
        first.legend(loc="best", labelcolor="linecolor", handlelength=1.2)
        first.set_title("first image: its most probable classes")
        first.set_xlabel("layer")
        first.set_ylim(0, 1.03)
        for axes in (agreement, first):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    chart = Chart(figure)
    return Exhibit.of_chart(
        chart,
        name="lens",
        title=title,
        subtitle="when the answer appears",
        caption=captions.LENS,
        arrays={
            "lens_classes": lens.classes.numpy(),
            "lens_probabilities": lens.probabilities.numpy(),
            "lens_agrees": lens.agrees.numpy(),
        },
    )


def alignment_figure(
    first: Sequence[Float[Tensor, "B _"]], second: Sequence[Float[Tensor, "B _"]] | None, name: str
) -> Exhibit | LeftOut:
    """Show the CKA of all pairs of layers, of one model or of two."""
    title = "Layer similarity (CKA)" if second is None else f"Layer similarity (CKA) with {name}"
    if len(first[0]) < FEWEST:
        return LeftOut(title, f"layer similarity needs at least {FEWEST} images")
    alignment = cka_matrix(first, first if second is None else second).numpy()
    chart = matrix(
        alignment,
        rows=[str(layer) for layer in range(alignment.shape[0])],
        columns=[str(layer) for layer in range(alignment.shape[1])],
        title="",
        axes_names=("layer", "layer" if second is None else f"layer of {name}"),
        numbers=[["–" if value != value else f"{100 * value:.0f}" for value in row] for row in alignment],
    )
    return Exhibit.of_chart(
        chart,
        name="alignment" if second is None else "alignment-with-other",
        title=title,
        subtitle="which layers compute the same",
        caption=captions.ALIGNMENT.format(count=len(first[0])),
        arrays={"cka" if second is None else "cka_with_other": alignment},
    )


def norms_figure(norms: Float[Tensor, "B T"], config: ViTConfig) -> Exhibit:
    """Plot the norms of patch tokens; unusually high ones are artifacts."""
    patches = norms[:, config.num_prefix_tokens :]
    unusual = unusual_norms(patches)
    with canvas(6.4, 2.4) as (figure, (axes,)):
        axes.hist(patches.flatten().numpy(), bins=60, color=FIRST, alpha=0.8)
        for token in range(config.num_prefix_tokens):
            axes.axvline(float(norms[:, token].mean()), color=SECOND, linewidth=1.4)
        axes.set_yscale("log")
        axes.set_title("patch tokens by their norm after the last layer")
        axes.set_xlabel(
            "norm" + ("; lines: the mean of each prefix token" if config.num_prefix_tokens else "")
        )
    chart = Chart(figure)
    return Exhibit.of_chart(
        chart,
        name="norms",
        title="Token norms",
        subtitle="artifacts and registers",
        caption=captions.NORMS.format(
            unusual=int(unusual.sum()), all=unusual.numel(), where=artifact_images(unusual)
        ),
        arrays={"token_norms": norms.numpy(), "artifacts": unusual.reshape(-1, *config.grid).numpy()},
    )


def artifact_images(unusual: Bool[Tensor, "B N"]) -> str:
    """Return in how many images they are, as a sentence; empty where there are none."""
    counts: Int[Tensor, "B"] = unusual.sum(dim=1)
    if not counts.any():
        return ""
    holding = int((counts > 0).sum())
    return f" They are in {holding} of {len(counts)} images, at most {int(counts.max())} in one."


def predicted_labels(lens: Lens | None, labels: Sequence[str]) -> list[str]:
    """Return the prediction for each image with its probability; nothing without classes."""
    if lens is None:
        return []
    return [
        # Of fresh weights, most often: with a head of zeros all classes are equally probable.
        f"no class: all have {percent(probability)}"
        if len(labels) > 1 and abs(probability * len(labels) - 1) < ALIKE
        else f"{labels[number]} ({percent(probability)})"
        for number, probability in zip(
            lens.classes[:, 0].tolist(), lens.probabilities[:, -1, 0].tolist(), strict=True
        )
    ]
