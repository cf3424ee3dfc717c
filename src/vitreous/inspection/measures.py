"""Measures of what the layers of a ViT compute, and all those of a model report in one pass over the images
(`survey`).

Of attention maps: readout (the tokens that the head reads), distance (the paper's Fig. 7 right and Fig. 11),
entropy, and rollout (Abnar & Zuidema, arXiv 2005.00928; the paper's Fig. 6 and 14 are made with it, appendix
D.8). Of the tokens after every layer: logit lens (nostalgebraist, "interpreting GPT: the logit lens", 2020,
applied to images), principal components, norms, and layer similarity (CKA: Kornblith et al., arXiv
1905.00414, with the unbiased estimate of Song et al. (2012) averaged over minibatches as in Nguyen et al.,
arXiv 2010.15327, Eq. 3 to 5, so that a few images do not make all layers look similar).

The survey computes attention again layer by layer and reduces it at once, and images go through in batches
that suit the size of a map, so that memory does not grow with the number of layers or images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitreous.errors import InputError
from vitreous.evaluation.outputs import ProgressCallback
from vitreous.extensions import CLASSES, outputs_of
from vitreous.inspection.capture import capture_attention
from vitreous.languages import phrase
from vitreous.layers.pooling import AttentionPooling
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import ImageLike
from vitreous.models.vit import ViT

MAP_BYTES = 1 << 25  # of one layer's maps for one batch; reducing them takes four times as much
FOLLOWED = 5  # classes followed through the layers


def readout_weights(config: ViTConfig) -> Float[Tensor, "T"]:
    """Return the weight of each token of the last layer in the pooled representation; sums to one.

    The class token alone (Eq. 4), the mean of the patches, or half of each. Attention pooling weighs
    patches by their content, which depends on the image (`readout_of`), and a maximum by the channel; here
    they weigh the same.
    """
    weights = torch.zeros(config.sequence_length)
    patches = torch.zeros(config.sequence_length)
    patches[config.num_prefix_tokens :] = 1 / (config.sequence_length - config.num_prefix_tokens)
    match config.pooling.kind:
        case "class":
            weights[0] = 1
        case "class+distillation":
            weights[:2] = 0.5
        case "class+mean":
            weights[0] = 0.5
            weights = weights + patches / 2
        case "mean-all" | "attention-all":
            weights[:] = 1 / config.sequence_length
        case "mean" | "max" | "mean+max" | "attention":
            weights = patches
    return weights


@singledispatch
def readout_of(model: ViT, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B T"]:
    """Return the weight of each token of the last layer, image by image, on the CPU; rows sum to one.

    For attention pooling this is its attention map, mean of its heads: the last step of a rollout.
    """
    pool = attention_pooling(model)
    if pool is None:
        return readout_weights(model.config).expand(images.shape[0], -1)
    with torch.no_grad():
        probe, seen = pool.probe.expand(len(images), -1, -1), model.tokens(images)[:, pool.skip :]
        maps = pool.attention.attention_weights(probe, seen)[:, :, 0]  # (B, K, T - skip)
        return F.pad(maps, (pool.skip, 0)).mean(dim=1).float().cpu()


def attention_pooling(model: ViT) -> AttentionPooling | None:
    """Return the model's attention pooling, with or without a norm after it; None for other poolings."""
    return next((each for each in model.pool.modules() if isinstance(each, AttentionPooling)), None)


def readout_attention(
    maps: Float[Tensor, "*B K T T"], weights: Float[Tensor, "*#B T"]
) -> Float[Tensor, "*B K T"]:
    """Return what the readout attends to: the rows of each map, averaged with `weights`."""
    return torch.einsum("...t,...kts->...ks", weights.to(maps), maps)


def to_grid(values: Float[Tensor, "*B T"], config: ViTConfig) -> Float[Tensor, "*B rows columns"]:
    """Return the patches' part of a value per token, laid out as in the image."""
    return values[..., config.num_prefix_tokens :].reshape(*values.shape[:-1], *config.grid)


def flow(maps: Float[Tensor, "B K T T"]) -> Float[Tensor, "B T T"]:
    """Return one layer of the rollout: half the heads' mean, half the residual connection, 0.5 A + 0.5 I."""
    identity = torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)
    return (maps.mean(dim=1) + identity) / 2


def rollout(flows: Sequence[Float[Tensor, "B T T"]]) -> Float[Tensor, "B T T"]:
    """Return how much of each input token (column) reaches each token of the last layer (row); rows sum to
    one.

    The product of all layers' flows, the last on the left (equation 1 of 2005.00928).
    """
    total = flows[0]
    for layer in flows[1:]:
        total = layer @ total
    return total


@torch.inference_mode()
def rollout_map(
    model: ViT, images: Float[Tensor, "B C H W"], weights: Float[Tensor, "B T"]
) -> Float[Tensor, "B rows columns"]:
    """Return what arrives of each patch, through all layers, at the tokens that have weights."""
    with capture_attention(model, reduce=lambda maps: flow(maps.float()).cpu()) as attention:
        model(images)
    return to_grid(torch.einsum("bt,bts->bs", weights, rollout(attention.maps)), model.config)


def attention_distance(
    maps: Float[Tensor, "*B K T T"], *, grid: tuple[int, int], patch: tuple[int, int]
) -> Float[Tensor, "*B K"]:
    """Return the distance in pixels between a query patch and what it attends to, averaged over queries.

    Distances are between centers of patches, weighted by the query's attention; prefix tokens have no
    position, so they are left out and each row is normalized again. Comparable to the receptive field of a
    convolution.

    Args:
        grid: (rows, columns) of patches; the last `rows * columns` tokens are they.
        patch: (height, width) of a patch in pixels.
    """
    prefix = maps.shape[-1] - grid[0] * grid[1]
    between = maps[..., prefix:, prefix:]
    # A row whose attention is all on prefix tokens attends to no patch: its distance is zero.
    between = between / between.sum(dim=-1, keepdim=True).clamp_min(1e-12)
    return (between * patch_distances(grid, patch).to(maps)).sum(dim=-1).mean(dim=-1)


def patch_distances(grid: tuple[int, int], patch: tuple[int, int]) -> Float[Tensor, "N N"]:
    """Return the pixels between the centers of each pair of patches."""
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    centers = torch.stack([rows.flatten() * float(patch[0]), columns.flatten() * float(patch[1])], dim=-1)
    return torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")


def head_entropy(maps: Float[Tensor, "*B K T T"]) -> Float[Tensor, "*B K"]:
    """Return the mean entropy of a head's rows: 0 for a single token, 1 for uniform attention."""
    return share_of_entropy(maps).mean(dim=-1)


def share_of_entropy(shares: Float[Tensor, "*B T"]) -> Float[Tensor, "*B"]:
    """Return the entropy of shares that sum to one: 0 for a single one, 1 for equal ones (log T)."""
    return torch.special.entr(shares).sum(dim=-1) / max(math.log(shares.shape[-1]), 1e-12)


def map_words(values: Float[Tensor, "rows columns"]) -> str:
    """Return the legend of a map: its range as shares of its sum, what even values would be, its entropy."""
    shares = values.flatten() / values.sum().clamp_min(1e-12)
    low, high, entropy = float(shares.min()), float(shares.max()), float(share_of_entropy(shares))
    return phrase("images.map", low=low, high=high, even=1 / len(shares), entropy=entropy)


@singledispatch
def layer_tokens(model: ViT, images: Float[Tensor, "B C H W"]) -> Iterator[Float[Tensor, "B T D"]]:
    """Yield z_0, z_1 ... z_L of Eq. 1 to 3."""
    z = model.embed(images)
    yield z
    for block in model.blocks:
        z = block(z)
        yield z


@singledispatch
def logit_lens(model: ViT, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B classes"]:
    """Return the class probabilities if the encoder ended with these tokens: same norm, pooling and head."""
    return model.head(model.representation(model.pool(model.norm(z)))).softmax(dim=-1)


def feature_colors(patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B N 3"]:
    """Return the first three principal components of all images' patches as red, green, blue in 0 ... 1.

    Patches of one color have similar features, in all of the images (as in DINOv2, arXiv 2304.07193, Fig. 1).
    Each component is stretched from its 1st to its 99th percentile.
    """
    flat = patches.flatten(0, 1)
    centered = flat - flat.mean(dim=0)
    # With few patches of wide features, a product of D x D numbers would take longer.
    if len(flat) < flat.shape[1]:
        principal = torch.linalg.svd(centered, full_matrices=False).Vh[:3].T
    else:
        _, vectors = torch.linalg.eigh(centered.T @ centered)  # ascending
        principal = vectors[:, -3:].flip(1)
    signs = principal.gather(0, principal.abs().argmax(dim=0, keepdim=True)).sign()
    projected = centered @ (principal * signs)
    projected = torch.nn.functional.pad(projected, (0, 3 - projected.shape[1]))
    low, high = torch.quantile(projected, torch.tensor([0.01, 0.99]).to(projected), dim=0)
    return ((projected - low) / (high - low).clamp_min(1e-12)).clamp(0, 1).view(*patches.shape[:2], 3)


def unusual_norms(norms: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Find tokens of unusually high norm: artifacts in large models that were trained long, where a
    background patch is used as scratch space (arXiv 2309.16588, section 2).

    That paper uses a fixed threshold between the two modes of the distribution; here a token is unusual if it
    is above twice the median and more than eight median absolute deviations above it, which suits any model.
    """
    median = norms.median()
    deviation = (norms - median).abs().median()
    return (norms > 2 * median) & (norms > median + 8 * deviation)


FEWEST = 4  # the estimate divides by n - 3
ROUNDING = 1e-6  # of float32 features


def hsic(first: Float[Tensor, "a n n"], second: Float[Tensor, "b n n"]) -> Float[Tensor, "a b"]:
    """Return the unbiased Hilbert-Schmidt independence criterion of all pairs of Gram matrices (2010.15327,
    Eq. 3)."""
    n = first.shape[1]
    if n < FEWEST:
        raise InputError(f"layer similarity (CKA) needs at least {FEWEST} images, not {n}")
    off_diagonal = 1 - torch.eye(n, dtype=first.dtype)
    first, second = first * off_diagonal, second * off_diagonal
    crossed = first.flatten(1) @ second.flatten(1).T
    means = first.sum((1, 2))[:, None] * second.sum((1, 2)) / ((n - 1) * (n - 2))
    rows = 2 * (first.sum(1) @ second.sum(1).T) / (n - 2)
    return (crossed + means - rows) / (n * (n - 3))


def cka_matrix(
    first: Sequence[Float[Tensor, "n _"]], second: Sequence[Float[Tensor, "n _"]], *, batch: int = 256
) -> Float[Tensor, "layers1 layers2"]:
    """Return the CKA of every layer of `first` with every layer of `second`, for the same n images; NaN for
    a layer that is the same for all images, such as the class token before the first layer.

    Args:
        batch: images in one Gram matrix; the criterion is averaged over batches before the division.
    """
    n = first[0].shape[0]
    cross = torch.zeros(len(first), len(second), dtype=torch.float64)
    own_first, own_second = cross[:, 0].clone(), cross[0].clone()
    # A last small batch would be a noisy estimate, and is left out.
    for start in range(0, max(n - n % batch, 1), batch):
        grams = torch.stack([gram(layer[start : start + batch]) for layer in first])
        others = torch.stack([gram(layer[start : start + batch]) for layer in second])
        own_first += hsic(grams, grams).diagonal()
        own_second += hsic(others, others).diagonal()
        cross += hsic(grams, others)
    scale = (own_first[:, None] * own_second).sqrt()
    varies = (own_first > 0)[:, None] & (own_second > 0)
    return torch.where(varies, cross / scale, torch.nan).float()


def gram(features: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return the inner products of all pairs of images, in double precision and centered, since the sums of
    `hsic` cancel; zero where all images are equal up to rounding."""
    features = features.double()
    centered = features - features.mean(dim=0)
    if centered.norm() <= ROUNDING * features.norm():
        centered = torch.zeros_like(centered)
    return centered @ centered.T


class PreparedImages:
    """Images that are prepared when a slice of them is asked for, since all at once would fill the memory."""

    def __init__(self, preprocessing: Preprocessing, images: Sequence[ImageLike]) -> None:
        self.preprocessing, self.images = preprocessing, images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice) -> Float[Tensor, "B C H W"]:
        chosen = self.images[part]
        batch = torch.empty(len(chosen), self.preprocessing.channels, *self.preprocessing.size)
        for place, image in enumerate(chosen):
            batch[place] = self.preprocessing(image)
        return batch


@dataclass(frozen=True)
class Lens:
    """The logit lens: the head's prediction from every layer; layer 0 are the embedded patches.

    Attributes:
        classes: the most probable classes of each image, by the last layer.
        probabilities: of these classes, by each layer.
        agrees: whether the layer's prediction is already the last layer's.
        entropy: of the last layer's probabilities, as a share of that of equal ones; 0 for a single class.
    """

    classes: Int[Tensor, "B followed"]
    probabilities: Float[Tensor, "B layers followed"]
    agrees: Bool[Tensor, "B layers"]
    entropy: Float[Tensor, "B"]


@dataclass(frozen=True)
class Survey:
    """The measurements of a ViT on B images. Shapes: L layers, K heads, T tokens.

    Attributes:
        distance: mean attention distance in pixels.
        entropy: of attention, as a share of that of uniform attention.
        reading: what the tokens that the head reads attend to; of the first C images.
        asked: what one chosen patch attends to, mean of the heads.
        rollout: which patches reach the head through all layers.
        features: the mean of the patch tokens; layer 0 is the embedding.
        norms: of each token after the last layer, before the final norm.
        patches: the patch tokens after the final norm; of the first C images.
        lens: None where the model has no classes.
    """

    distance: Float[Tensor, "B L K"]
    entropy: Float[Tensor, "B L K"]
    reading: Float[Tensor, "C L K T"]
    asked: Float[Tensor, "B L T"]
    rollout: Float[Tensor, "B rows columns"]
    features: Float[Tensor, "B layers D"]
    norms: Float[Tensor, "B T"]
    patches: Float[Tensor, "C N D"]
    lens: Lens | None


def survey(
    model: ViT,
    images: Float[Tensor, "B C H W"] | PreparedImages,
    *,
    patch: tuple[int, int],
    close: int = 8,
    progress: ProgressCallback | None = None,
) -> Survey:
    """Measure `model`, in evaluation mode, on `images`.

    Args:
        images: as the model takes them; or such as are prepared batch by batch.
        patch: (row, column) of the patch whose attention is `asked`.
        close: C, the number of images with `reading` and `patches`.
    """
    parts: list[Survey] = []
    size = batch_size(model.config)
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        part, room = survey_batch(model, batch, patch), max(close - start, 0)
        parts.append(replace(part, reading=part.reading[:room].clone(), patches=part.patches[:room].clone()))
        if progress:
            progress(start + len(batch), len(images))
    lenses = [part.lens for part in parts if part.lens is not None]
    fields = concatenated(parts, but="lens")
    return Survey(**fields, lens=Lens(**concatenated(lenses)) if lenses else None)


def concatenated(parts: Sequence[Survey] | Sequence[Lens], but: str = "") -> dict[str, Tensor]:
    """Return every field of some dataclasses of tensors, but for one, with the tensors of all of them."""
    fields = {}
    for name in vars(parts[0]):
        if name != but:
            fields[name] = torch.cat([getattr(part, name) for part in parts])
    return fields


def batch_size(config: ViTConfig) -> int:
    """Return for how many images the maps of one layer fit into `MAP_BYTES`."""
    return max(1, MAP_BYTES // (4 * config.heads * config.sequence_length**2))


@torch.inference_mode()
def survey_batch(model: ViT, images: Float[Tensor, "B C H W"], patch: tuple[int, int]) -> Survey:
    config = model.config
    token = config.num_prefix_tokens + patch[0] * config.grid[1] + patch[1]
    images = images.to(next(model.parameters()).device)
    weights = readout_of(model, images)
    of_classes = config.num_classes is not None and outputs_of(model) in CLASSES
    flows: list[Tensor] = []  # of all layers so far, as one
    features, predictions = [], []

    def measures(maps: Float[Tensor, "B K T T"]) -> tuple[Tensor, ...]:
        maps = maps.float()
        flows[:] = [rollout([*flows, flow(maps).cpu()])]
        return (
            attention_distance(maps, grid=config.grid, patch=config.patch_size).cpu(),
            head_entropy(maps).cpu(),
            readout_attention(maps, weights).cpu(),
            maps[:, :, token].mean(dim=1).cpu(),
        )

    with capture_attention(model, reduce=measures) as attention:
        for z in layer_tokens(model, images):
            features.append(z[:, config.num_prefix_tokens :].mean(dim=1).float().cpu())
            if of_classes:
                predictions.append(logit_lens(model, z).float().cpu())
    measured = [torch.stack(layers, dim=1) for layers in zip(*attention.maps, strict=True)]
    distance, entropy, reading, asked = measured
    return Survey(
        distance=distance,
        entropy=entropy,
        reading=reading,
        asked=asked,
        rollout=to_grid(torch.einsum("bt,bts->bs", weights, flows[0]), config),
        # As one block of memory: a small one from each layer, kept, would hold the gaps between them open.
        features=torch.stack(features, dim=1),
        norms=z.float().norm(dim=-1).cpu(),
        patches=model.norm(z)[:, config.num_prefix_tokens :].float().cpu(),
        lens=follow_predictions(torch.stack(predictions, dim=1)) if predictions else None,
    )


def follow_predictions(predictions: Float[Tensor, "B layers classes"]) -> Lens:
    """Follow the most probable classes of the last layer back to the first."""
    last = predictions[:, -1]
    classes = last.topk(min(FOLLOWED, last.shape[-1]), dim=-1).indices
    return Lens(
        classes=classes,
        probabilities=predictions.gather(2, classes[:, None].expand(-1, predictions.shape[1], -1)),
        agrees=predictions.argmax(dim=-1) == last.argmax(dim=-1, keepdim=True),
        entropy=share_of_entropy(last),
    )


@torch.inference_mode()
def layer_features(
    model: ViT, images: Float[Tensor, "B C H W"] | PreparedImages
) -> Float[Tensor, "B layers D"]:
    """Return `Survey.features` alone."""
    prefix, device = model.config.num_prefix_tokens, next(model.parameters()).device
    size = batch_size(model.config)
    parts = []
    for start in range(0, len(images), size):
        layers = layer_tokens(model, images[start : start + size].to(device))
        parts.append(torch.stack([z[:, prefix:].mean(dim=1).float().cpu() for z in layers], dim=1))
    return torch.cat(parts)
