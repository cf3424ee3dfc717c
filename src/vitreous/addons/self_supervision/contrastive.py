"""Contrastive learning: two views of an image find each other among the views of all images in the batch
(SimCLR, Chen et al., arXiv 2002.05709).

The features of both views pass a small head; the loss is the cross-entropy of finding the other view of the
same image by cosine similarity (NT-Xent, Eq. 1). Other than in the paper, the features are standardized over
the batch before the head, which has GELU and no batch normalization inside: a ViT's features of different
images are nearly equal at first, and without it a small batch learned little. The optimizer is AdamW, not
LARS, and some views are negatives.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.addons.self_supervision.dino import feature_width
from vitreous.addons.self_supervision.views import PairConfig, Views, multi_crop
from vitreous.errors import InputError
from vitreous.layers.initialization import init_weights
from vitreous.models.config_parts import Config, Positive, setting
from vitreous.models.model import Model
from vitreous.rng import torch_generator
from vitreous.training.objectives import Illustration

EPS = 1e-5  # added to variances
ONE_IMAGE = (
    "contrastive learning compares the images of a micro-batch, and this one has only one: use a larger "
    "training.batch_size or a smaller training.machine.grad_accum_steps"
)


class ContrastiveConfig(Config):
    """Contrastive learning, with the authors' temperature and head for ImageNet. The views suit small images
    of any kind: large crops, seldom blurred, in any hue, since the colors of an image would otherwise give
    its crops away."""

    temperature: float = setting(0.1, "temperature of the softmax over all other views", gt=0)
    head_hidden: Positive = setting(2048, "number of hidden units of the projection head")
    head_outputs: Positive = setting(
        128, "number of outputs of the projection head, by which views are compared"
    )
    views: PairConfig = PairConfig(
        large_scale=(0.6, 1.0), saturation=0.4, hue=0.5, gray=0.3, blur=0.1, solarize=0.0, invert=0.2
    )


class Contrastive(nn.Module):
    """The objective around `model`. Any model with features will do, a hybrid or a BiT too. Several processes
    compare their views with each other's, as one with the whole batch does; micro-batches are compared each
    by itself."""

    def __init__(self, model: Model, config: ContrastiveConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.model = model
        self.crops = multi_crop(model.config, self.config.views)
        width = feature_width(model)
        self.head = nn.Sequential(
            nn.Linear(width, self.config.head_hidden),
            nn.GELU(),
            nn.Linear(self.config.head_hidden, self.config.head_outputs),
        )
        init_weights(self.head, torch_generator(seed, "contrastive head"), "timm")

    @property
    def encoder(self) -> Model:
        """What pre-training was for."""
        return self.model

    def forward(
        self, images: Views | Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss, and the share of views whose nearest is the other one of their image; the views of
        whole images are cut here."""
        shown = self.model.preprocessing
        views = images if isinstance(images, Views) else self.crops(images, shown, generator)
        # All first views come before all second ones.
        pairs = views.images.transpose(0, 1).flatten(0, 1)
        # In evaluation each process has batches of its own.
        together = self.training and dist.is_initialized()
        features = standardized(self.model.features(pairs).flatten(1).float(), together=together)
        z = F.normalize(self.head(features).float(), dim=-1)
        if self.training and len(z) * (dist.get_world_size() if together else 1) == 2:
            raise InputError(ONE_IMAGE)  # where the memory has no room for more
        rounded = torch.is_autocast_enabled(z.device.type)  # bf16 has two digits of a cosine
        with torch.autocast(z.device.type, enabled=False) if rounded else nullcontext():
            return contrastive_loss(*z.chunk(2), temperature=self.config.temperature, together=together)

    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        """Return the loss of features that are the same for all views: log (2 B - 1)."""
        return torch.tensor(math.log(2 * len(images) - 1))

    @torch.no_grad()
    def illustration(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Illustration:
        """Show both views of each image."""
        views = self.crops(images, self.model.preprocessing, generator).images
        columns = {"image": images, "first-view": views[:, 0], "second-view": views[:, 1]}
        return Illustration("view-pairs", columns)


def standardized(features: Float[Tensor, "B D"], *, together: bool) -> Float[Tensor, "B D"]:
    """Return features with mean 0 and variance 1 over the batch, of all processes if `together`."""
    everything = gather_rows(features) if together else features
    variance, mean = torch.var_mean(everything, dim=0, correction=0)
    return (features - mean) * torch.rsqrt(variance + EPS)


def contrastive_loss(
    first: Float[Tensor, "B D"], second: Float[Tensor, "B D"], *, temperature: float, together: bool = False
) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """Return NT-Xent (Eq. 1): the mean over all 2 B views of -log softmax of the similarity to the other view
    of the same image, among all views but itself; and the share of views that are most similar to it.

    Args:
        first, second: vectors of length one.
        together: compare with the views of all processes, which have equally many.
    """
    own = torch.cat([first, second])
    others = torch.cat([gather_rows(first), gather_rows(second)]) if together else own
    count, size = len(others) // 2, len(first)
    start = dist.get_rank() * size if together else 0
    rows = torch.arange(start, start + size, device=own.device)
    rows = torch.cat([rows, rows + count])  # where the own views are among all
    similar = own @ others.T / temperature
    similar = similar.scatter(1, rows.unsqueeze(1), -math.inf)  # not with itself
    targets = (rows + count) % (2 * count)
    found = (similar.detach().argmax(dim=1) == targets).float().mean()
    return F.cross_entropy(similar, targets), {"pairs_found": found}


class Gathered(torch.autograd.Function):
    """The rows of all processes, in the order of their ranks; gradients come back from all of them."""

    @staticmethod
    def forward(ctx: object, own: Tensor) -> Tensor:
        rank, size = dist.get_rank(), dist.get_world_size()
        everything = own.new_zeros(size, *own.shape)
        everything[rank] = own
        dist.all_reduce(everything)
        return everything.flatten(0, 1)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


def gather_rows(own: Float[Tensor, "B D"]) -> Float[Tensor, "N D"]:
    """Return the rows of all processes, through which gradients flow. Their losses are averaged, so each row
    needs the sum of the gradients that it gets from all of them."""
    rows: Tensor = Gathered.apply(own)  # type: ignore[no-untyped-call]
    return rows
