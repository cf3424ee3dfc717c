"""Figures of a ViT on images, from the numbers of a `Survey`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.ticker import MaxNLocator
from PIL import Image, ImageDraw
from torch import Tensor

from vitreous.inspection.charts import (
    FIRST,
    MUTED,
    ONE_CHART,
    SECOND,
    Chart,
    canvas,
    label_decades,
    lines,
    matrix,
)
from vitreous.inspection.images import Pixels, contact_sheet, overlay
from vitreous.inspection.measures import (
    FEWEST,
    Lens,
    Survey,
    cka_matrix,
    feature_colors,
    map_words,
    patch_distances,
    to_grid,
    unusual_norms,
)
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out
from vitreous.inspection.relevance import Relevance
from vitreous.languages import phrase
from vitreous.models.config import ViTConfig

PRUNABLE = 0.1  # of the mean head's importance


def distance_figure(survey: Survey, config: ViTConfig) -> Exhibit:
    """Plot the mean attention distance of each head (Fig. 7 right and Fig. 11): a dot for each head over its
    layer, a line through the layers' means, and the distance of uniform attention, which is about that of an
    untrained model: a head that is there looks at nothing in particular."""
    distance = survey.distance.mean(dim=0).numpy()
    layers, heads = distance.shape
    with canvas(ONE_CHART, 3.0) as (figure, (axes,)):
        place = np.repeat(np.arange(1, layers + 1), heads)
        axes.scatter(place, distance.ravel(), s=16, color=FIRST, alpha=0.65, linewidths=0, zorder=3)
        axes.plot(range(1, layers + 1), distance.mean(axis=1), color=SECOND, linewidth=1.4, zorder=2)
        uniform = float(patch_distances(config.grid, config.patch_size).mean())
        axes.axhline(uniform, color="0.45", linestyle="--", linewidth=1, label=phrase("charts.uniform"))
        axes.legend(loc="lower right", fontsize=7, frameon=False)
        axes.set_title(phrase("charts.distance"))
        axes.set_xlabel(phrase("charts.layer"))
        axes.set_xticks(range(1, layers + 1, max(1, layers // 12)))
        axes.set_ylim(0, max(1.08 * distance.max(), 1.08 * uniform, 1e-9))
    arrays = {"distance": survey.distance.numpy()}
    table = [[phrase("charts.layer"), *(f"{phrase('charts.head')} {head + 1}" for head in range(heads))]]
    for layer, row in enumerate(distance, start=1):
        table.append([str(layer), *(f"{pixels:.3g}" for pixels in row)])
    return exhibit(
        "distance", Chart(figure, table if heads < 40 else ()), arrays=arrays, count=len(survey.distance)
    )


def patch_figure(
    survey: Survey, image: tuple[Pixels, str], config: ViTConfig, patch: tuple[int, int]
) -> Exhibit:
    """Show the attention of one patch, layer by layer, on the first image."""
    maps = to_grid(survey.asked[0], config)
    pixels, caption = image
    shown, notes = [], []
    for number, layer in enumerate(maps, start=1):
        tile = overlay(marked(pixels, config, patch), layer)
        shown.append((tile, phrase("images.layer", number=number)))
        notes.append(map_words(layer))
    return exhibit(
        "patch",
        HTML.image_row(shown, notes, [caption] * len(shown)),
        file=contact_sheet([tile for tile, _ in shown], columns=6),
        heat=True,
        arrays={"patch_attention": to_grid(survey.asked, config).numpy()},
        row=patch[0] + 1,
        column=patch[1] + 1,
    )


def marked(image: Pixels, config: ViTConfig, patch: tuple[int, int]) -> Pixels:
    """Draw a white frame around a patch; fill the patch where it is too small for a frame."""
    height, width = config.patch_size
    top, left = patch[0] * height, patch[1] * width
    framed = Image.fromarray(image)
    color = {"fill": "white"} if min(height, width) <= 6 else {"outline": "white"}
    ImageDraw.Draw(framed).rectangle((left, top, left + width - 1, top + height - 1), **color, width=2)
    return np.asarray(framed)


def entropy_figure(survey: Survey) -> Exhibit:
    """Show the entropy of each head's attention."""
    entropy = survey.entropy.mean(dim=0).numpy()
    chart = by_layer_and_head(entropy, 100 * entropy, title=phrase("charts.entropy"))
    return exhibit("entropy", chart, arrays={"entropy": survey.entropy.numpy()})


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
    chart = by_layer_and_head(share / max(share.max(), 1e-30), 100 * share, marked=prunable)
    return exhibit(
        "importance",
        chart,
        arrays={"head_importance": evidence.heads.numpy()},
        count=len(evidence.heads),
        prunable=int(prunable.sum()),
        all=prunable.size,
        limit=PRUNABLE,
    )


def by_layer_and_head(
    values: Float[np.ndarray, "L K"],
    numbers: Float[np.ndarray, "L K"],
    *,
    title: str = "",
    marked: Bool[np.ndarray, "L K"] | None = None,
) -> Chart:
    """Return a matrix of layers (rows) and heads (columns), with `numbers`."""
    texts: list[list[str]] = []
    for row in numbers:
        texts.append([f"{value:.0f}" for value in row])
    return matrix(
        values,
        rows=[str(layer + 1) for layer in range(values.shape[0])],
        columns=[str(head + 1) for head in range(values.shape[1])],
        title=title,
        axes_names=(phrase("charts.layer"), phrase("charts.head")),
        numbers=texts,
        marked=marked,
    )


def relevance_figure(evidence: Relevance, images: Sequence[tuple[Pixels, str]], label: str | None) -> Exhibit:
    """Show the relevance for the given class, or for each image's own prediction."""
    shown, notes = [], []
    for (image, caption), patches in zip(images, evidence.patches, strict=True):
        shown.append((overlay(image, patches), caption))
        notes.append(map_words(patches))
    return exhibit(
        "relevance",
        HTML.image_row(shown, notes),
        file=contact_sheet([tile for tile, _ in shown], columns=8),
        heat=True,
        arrays={"relevance": evidence.patches.numpy()},
        label=label,
    )


def features_figure(
    patches: Float[Tensor, "B N D"], images: Sequence[tuple[Pixels, str]], config: ViTConfig
) -> Exhibit:
    colors = (feature_colors(patches) * 255).round().to(torch.uint8)
    tiles = list(colors.reshape(len(patches), *config.grid, 3).numpy())
    pairs, alternatives = [], []
    for (image, caption), tile in zip(images, tiles, strict=True):
        pairs += [(image, caption), (tile, phrase("images.pca"))]
        alternatives += [caption, caption]
    return exhibit(
        "features",
        HTML.image_row(pairs, [], alternatives),
        file=contact_sheet(tiles, columns=8, least=128),
        arrays={"feature_colors": np.stack(tiles)},
    )


def lens_figure(lens: Lens | None, labels: Sequence[str]) -> Exhibit | LeftOut:
    """Plot the predictions of every layer."""
    if lens is None:
        return left_out("lens", "no-classes")
    layers = [float(layer) for layer in range(lens.agrees.shape[1])]
    with canvas(6.8, 2.7, columns=2) as (figure, (agreement, first)):
        points = lines(
            agreement,
            {"": (layers, (lens.agrees.float().mean(dim=0) * 100).tolist())},
            title=phrase("charts.lens-agrees"),
            x=phrase("charts.layer"),
        )
        agreement.set_ylim(0, 103)
        for place in range(lens.classes.shape[1]):
            probabilities = lens.probabilities[0, :, place].tolist()
            color, weight = (FIRST, 1.8) if place == 0 else (SECOND, 1.4) if place == 1 else (MUTED, 0.9)
            name = labels[int(lens.classes[0, place])] if place < 2 else phrase("charts.others")
            first.plot(layers, probabilities, color=color, linewidth=weight, label=name if place < 3 else "")
        first.legend(loc="best", labelcolor="linecolor", handlelength=1.2)
        first.set_title(phrase("charts.lens-first"))
        first.set_xlabel(phrase("charts.layer"))
        first.set_ylim(0, 1.03)
        for axes in (agreement, first):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    arrays = {
        "lens_classes": lens.classes.numpy(),
        "lens_probabilities": lens.probabilities.numpy(),
        "lens_agrees": lens.agrees.numpy(),
    }
    header = [phrase("charts.layer"), phrase("charts.curve"), phrase("charts.value")]
    chart = Chart(figure, [header, *(point.cells for point in points)], points)
    return exhibit("lens", chart, arrays=arrays)


def alignment_figure(
    first: Float[Tensor, "B layers D"], second: Float[Tensor, "B others E"] | None = None, other: str = ""
) -> Exhibit | LeftOut:
    """Show the CKA of all pairs of layers of one model, or of it and another."""
    name = "alignment" if second is None else "alignment.with-other"
    if len(first) < FEWEST:
        return left_out(name, "few-images", other=other, fewest=FEWEST)
    alignment = cka_matrix(first.unbind(1), (first if second is None else second).unbind(1)).numpy()
    texts: list[list[str]] = []
    for row in alignment:
        texts.append(["–" if math.isnan(value) else f"{100 * value:.0f}" for value in row])
    chart = matrix(
        alignment,
        rows=[str(layer) for layer in range(alignment.shape[0])],
        columns=[str(layer) for layer in range(alignment.shape[1])],
        axes_names=(
            phrase("charts.layer"),
            phrase("charts.layer") if second is None else phrase("charts.layer-of", other=other),
        ),
        numbers=texts,
    )
    arrays = {"cka" if second is None else "cka_with_other": alignment}
    return exhibit(name, chart, arrays=arrays, count=len(first), other=other)


def norms_figure(norms: Float[Tensor, "B T"], config: ViTConfig) -> Exhibit:
    """Plot the norms of patch tokens; unusually high ones are artifacts."""
    patches = norms[:, config.num_prefix_tokens :]
    unusual = unusual_norms(patches)
    with canvas(ONE_CHART, 2.4) as (figure, (axes,)):
        axes.hist(patches.flatten().numpy(), bins=60, color=FIRST, alpha=0.8)
        for token in range(config.num_prefix_tokens):
            axes.axvline(float(norms[:, token].mean()), color=SECOND, linewidth=1.4)
        axes.set_yscale("log")
        label_decades(axes.yaxis)
        axes.set_title(phrase("charts.norms"))
        axes.set_xlabel(phrase("charts.norm-prefix" if config.num_prefix_tokens else "charts.norm"))
    counts, edges = np.histogram(patches.flatten().numpy(), bins=20)
    table = [[phrase("charts.norm"), phrase("charts.tokens")]]
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        table.append([f"{low:.3g} – {high:.3g}", str(count)])
    per_image = unusual.sum(dim=1)
    return exhibit(
        "norms",
        Chart(figure, table),
        arrays={"token_norms": norms.numpy(), "artifacts": unusual.reshape(-1, *config.grid).numpy()},
        unusual=int(unusual.sum()),
        all=unusual.numel(),
        holding=int((per_image > 0).sum()),
        count=len(per_image),
        most=int(per_image.max()),
    )
