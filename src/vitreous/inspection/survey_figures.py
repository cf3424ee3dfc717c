"""Figures of what a ViT does with images, drawn from a `Survey`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from vitreous.inspection import captions
from vitreous.inspection.charts import FIRST, MUTED, SECOND, Chart, canvas, lines, matrix, per_head
from vitreous.inspection.cka import FEWEST, cka_matrix
from vitreous.inspection.features import feature_colors, standing_out
from vitreous.inspection.images import Pixels, contact_sheet, heat, overlay
from vitreous.inspection.page import Exhibit, LeftOut, image_row, percent, sheet
from vitreous.inspection.readout import readout_name, to_grid
from vitreous.inspection.relevance import Relevance
from vitreous.inspection.survey import Lens, Survey
from vitreous.models.config import ViTConfig

PRUNABLE = 0.1  # of the mean head's importance
ALIKE = 1e-5  # where the largest probability is the mean but for rounding, all are the same


def distance_figure(survey: Survey) -> Exhibit:
    """Fig. 7 right and Fig. 11."""
    distance = survey.distance.mean(dim=0).numpy()
    chart = per_head(distance, title="mean attention distance, pixels")
    return Exhibit(
        name="distance",
        title="How far each head looks",
        caption=captions.DISTANCE.format(count=len(survey.distance)),
        html=chart.inline(),
        files={"distance": chart},
        arrays={"distance": survey.distance.numpy()},
    )


def reading_figure(survey: Survey, config: ViTConfig) -> Exhibit:
    """Every head of every layer on the first image, as an image that can be printed."""
    maps = to_grid(survey.reading[0], config)
    tiles = [heat(each / each.max().clamp_min(1e-12)) for each in maps.flatten(0, 1)]
    tiled = contact_sheet(tiles, columns=config.heads)
    return Exhibit(
        name="heads",
        title="Head by head, on the first image",
        caption=captions.HEADS.format(readout=readout_name(config)),
        html=sheet(tiled, "attention of every head"),
        files={"heads": tiled},
        arrays={"readout_attention": to_grid(survey.reading, config).numpy()},
    )


def asked_figure(
    survey: Survey, shown: Sequence[Pixels], config: ViTConfig, patch: tuple[int, int]
) -> Exhibit:
    """The patch-to-patch map of one patch, layer by layer, on the first image."""
    maps = to_grid(survey.asked[0], config)
    tiles = [overlay(marked(shown[0], config, patch), layer) for layer in maps]
    row, column = patch
    return Exhibit(
        name="patch",
        title=f"What the patch in row {row + 1}, column {column + 1} looks at",
        caption=captions.PATCH,
        html=image_row([(tile, f"layer {layer + 1}") for layer, tile in enumerate(tiles)]),
        files={"patch": contact_sheet(tiles, columns=6)},
        arrays={"patch_attention": to_grid(survey.asked, config).numpy()},
    )


def marked(image: Pixels, config: ViTConfig, patch: tuple[int, int]) -> Pixels:
    """A white frame around a patch; where patches are too small for a frame, the patch itself."""
    height, width = config.patch_size
    top, left = patch[0] * height, patch[1] * width
    framed = image.copy()
    inside = framed[top : top + height, left : left + width].copy()
    framed[top : top + height, left : left + width] = 255
    if min(height, width) > 6:
        framed[top + 2 : top + height - 2, left + 2 : left + width - 2] = inside[2:-2, 2:-2]
    return framed


def entropy_figure(survey: Survey) -> Exhibit:
    entropy = survey.entropy.mean(dim=0).numpy()
    chart = by_layer_and_head(entropy, "entropy, % of the largest possible")
    return Exhibit(
        name="entropy",
        title="How widely each head spreads its attention",
        caption=captions.ENTROPY,
        html=chart.inline(),
        files={"entropy": chart},
        arrays={"entropy": survey.entropy.numpy()},
    )


def head_shares(evidence: Relevance) -> Float[Tensor, "L K"]:
    """What each head matters, as a share of the mean head."""
    importance = evidence.heads.mean(dim=0)
    return importance / importance.mean().clamp_min(1e-30)


def prunable_heads(evidence: Relevance) -> list[tuple[int, int]]:
    """(layer, head), counted from 1, of the heads that matter least."""
    return [(layer + 1, head + 1) for layer, head in (head_shares(evidence) < PRUNABLE).nonzero().tolist()]


def importance_figure(evidence: Relevance) -> Exhibit:
    share = head_shares(evidence).numpy()
    prunable = share < PRUNABLE
    chart = by_layer_and_head(share / max(share.max(), 1e-30), "", numbers=share * 100, marked=prunable)
    return Exhibit(
        name="importance",
        title="Which heads matter, and which could be pruned",
        caption=captions.IMPORTANCE.format(
            count=len(evidence.heads),
            prunable=int(prunable.sum()),
            all=prunable.size,
            limit=percent(PRUNABLE),
        ),
        html=chart.inline(),
        files={"importance": chart},
        arrays={"head_importance": evidence.heads.numpy()},
    )


def by_layer_and_head(
    values: Float[np.ndarray, "L K"],
    title: str,
    *,
    numbers: Float[np.ndarray, "L K"] | None = None,
    marked: Bool[np.ndarray, "L K"] | None = None,
) -> Chart:
    """A matrix with layers going down and heads across; `numbers` are written in, values in % if none."""
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
    """Evidence for the class named, or for each image's own answer."""
    tiles = [overlay(image, patches) for (image, _), patches in zip(images, evidence.patches, strict=True)]
    what = "the model's answer" if label is None else f"“{label}”"
    return Exhibit(
        name="relevance",
        title=f"Which patches speak for {what}",
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
        for entry in ((image, name), (tile, "its features"))
    ]
    return Exhibit(
        name="features",
        title="Which patches the model takes for the same thing",
        caption=captions.FEATURES,
        html=image_row(pairs),
        files={"features": contact_sheet(tiles, columns=8, least=128)},
        arrays={"feature_colors": np.stack(tiles)},
    )


def lens_figure(lens: Lens | None, labels: Sequence[str]) -> Exhibit | LeftOut:
    title = "When it makes up its mind"
    if lens is None:
        return LeftOut(title, "the model has no classes")
    layers = [float(layer) for layer in range(lens.agrees.shape[1])]
    with canvas(6.8, 2.7, columns=2) as (figure, (agreement, first)):
        lines(
            agreement,
            {"": (layers, (lens.agrees.float().mean(dim=0) * 100).tolist())},
            title="images whose final answer already leads, %",
            x="layer",
        )
        agreement.set_ylim(0, 103)
        for place in range(lens.classes.shape[1]):
            probabilities = lens.probabilities[0, :, place].tolist()
            color, weight = (FIRST, 1.8) if place == 0 else (SECOND, 1.4) if place == 1 else (MUTED, 0.9)
            name = labels[int(lens.classes[0, place])] if place < 2 else "others" if place == 2 else None
            first.plot(layers, probabilities, color=color, linewidth=weight, label=name)
        first.legend(loc="best", labelcolor="linecolor", handlelength=1.2)
        first.set_title("first image: probability of its likeliest classes")
        first.set_xlabel("layer")
        first.set_ylim(0, 1.03)
        for axes in (agreement, first):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    chart = Chart(figure)
    return Exhibit(
        name="lens",
        title=title,
        caption=captions.LENS,
        html=chart.inline(),
        files={"lens": chart},
        arrays={
            "lens_classes": lens.classes.numpy(),
            "lens_probabilities": lens.probabilities.numpy(),
            "lens_agrees": lens.agrees.numpy(),
        },
    )


def alignment_figure(
    first: Sequence[Float[Tensor, "B _"]], second: Sequence[Float[Tensor, "B _"]] | None, name: str
) -> Exhibit | LeftOut:
    """CKA of all pairs of layers, of one model or of two."""
    title = "Which layers compute the same" if second is None else f"Layers of this model and of {name}"
    if len(first[0]) < FEWEST:
        return LeftOut(title, f"the alignment of layers needs at least {FEWEST} images")
    alignment = cka_matrix(first, first if second is None else second).numpy()
    chart = matrix(
        alignment,
        rows=[str(layer) for layer in range(alignment.shape[0])],
        columns=[str(layer) for layer in range(alignment.shape[1])],
        title="",
        axes_names=("layer", "layer" if second is None else f"layer of {name}"),
        numbers=[["–" if value != value else f"{100 * value:.0f}" for value in row] for row in alignment],
    )
    return Exhibit(
        name="alignment" if second is None else "alignment-with-other",
        title=title,
        caption=captions.ALIGNMENT.format(count=len(first[0])),
        html=chart.inline(),
        files={"alignment" if second is None else "alignment_with_other": chart},
        arrays={"cka" if second is None else "cka_with_other": alignment},
    )


def norms_figure(norms: Float[Tensor, "B T"], config: ViTConfig) -> Exhibit:
    """Artifacts: patch tokens of unusually high norm."""
    patches = norms[:, config.num_prefix_tokens :]
    unusual = standing_out(patches)
    with canvas(6.4, 2.4) as (figure, (axes,)):
        axes.hist(patches.flatten().numpy(), bins=60, color=FIRST, alpha=0.8)
        for token in range(config.num_prefix_tokens):
            axes.axvline(float(norms[:, token].mean()), color=SECOND, linewidth=1.4)
        axes.set_yscale("log")
        axes.set_title("patch tokens by their norm behind the last layer")
        axes.set_xlabel(
            "norm" + ("; lines: the mean of each prefix token" if config.num_prefix_tokens else "")
        )
    chart = Chart(figure)
    return Exhibit(
        name="norms",
        title="Artifacts and registers",
        caption=captions.NORMS.format(
            unusual=int(unusual.sum()), all=unusual.numel(), where=places(unusual, config)
        ),
        html=chart.inline(),
        files={"norms": chart},
        arrays={"token_norms": norms.numpy(), "artifacts": to_mask(unusual, config)},
    )


def to_mask(unusual: Bool[Tensor, "B N"], config: ViTConfig) -> np.ndarray:
    return unusual.reshape(len(unusual), *config.grid).numpy()


def places(unusual: Bool[Tensor, "B N"], config: ViTConfig) -> str:
    """The images with most of them, as a sentence; empty where there are none."""
    counts: Int[Tensor, "B"] = unusual.sum(dim=1)
    if not counts.any():
        return ""
    holding = int((counts > 0).sum())
    return f" They lie in {holding} of {len(counts)} images, at most {int(counts.max())} in one."


def answers(lens: Lens | None, labels: Sequence[str]) -> list[str]:
    """The last layer's answer to each image with its probability; empty words without classes."""
    if lens is None:
        return []
    return [
        # Of fresh weights, most often: a head of zeros holds all classes for alike.
        f"no class, since all have {percent(probability)}"
        if len(labels) > 1 and abs(probability * len(labels) - 1) < ALIKE
        else f"{labels[number]} ({percent(probability)})"
        for number, probability in zip(
            lens.classes[:, 0].tolist(), lens.probabilities[:, -1, 0].tolist(), strict=True
        )
    ]
