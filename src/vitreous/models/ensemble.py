"""What did best, where that is not one network alone: a kernel machine, kernel ridge regression, neighbors or
a linear map on what is described of an image, and the mean of such answers and of a network's. One kind of
model, saved, loaded, exported and asked as every other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.extensions import OutputKind, outputs_of_task
from vitreous.languages import phrase, words
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.config import Origin, ViTConfig
from vitreous.models.config_parts import Config, Positive, Sides, setting
from vitreous.models.descriptors import DESCRIPTORS
from vitreous.models.preprocessing import HALF, Preprocessing, check_channels
from vitreous.models.vit import Images, ViT

FeatureBatch = Float[Tensor, "B D"]  # that describe images


# ---- Configuration


class DescribedConfig(Config):
    """Image features for classical methods."""

    kind: Literal["gradients", "pixels", "thumbnail"] = setting(
        "gradients", "histograms of oriented gradients and of color; pixels; or means of 4 x 4 pixels"
    )


class NetworkConfig(Config):
    """The features of a network without its head."""

    kind: Literal["network"] = setting("network", "features of a network")
    network: SerializeAsAny[ViTConfig | BiTConfig] = setting(
        ViTConfig(num_classes=None), "configuration of the network"
    )
    mean: tuple[float, ...] = setting(HALF, "mean that is subtracted from each channel")
    std: tuple[float, ...] = setting(HALF, "standard deviation by which each channel is divided")


class LinearConfig(Config):
    """Products with weights, and a bias."""

    kind: Literal["linear"] = setting("linear", "a linear map from the features to the outputs")


class KernelConfig(Config):
    """A support vector machine with a Gaussian kernel; each class against each other one."""

    kind: Literal["kernel"] = setting("kernel", "a support vector machine with a Gaussian kernel")
    gamma: float = setting(1.0, "coefficient of the kernel, exp(-gamma * squared distance)", gt=0)
    vectors: tuple[int, ...] = setting(
        (), "number of support vectors of each class; 0: the class was not seen in training"
    )


class KernelRidgeConfig(Config):
    """Ridge regression with a Gaussian kernel: a weighted sum of how near the training images are."""

    kind: Literal["kernel-ridge"] = setting("kernel-ridge", "ridge regression with a Gaussian kernel")
    gamma: float = setting(1.0, "coefficient of the kernel, exp(-gamma * squared distance)", gt=0)
    examples: Positive = setting(1, "number of training images to compare with")


class NeighborsConfig(Config):
    """The mean of the labels of the nearest training images."""

    kind: Literal["neighbors"] = setting("neighbors", "the mean label of the nearest training images")
    neighbors: Positive = setting(1, "number of nearest training images")
    examples: Positive = setting(1, "number of training images to compare with")


class MemberConfig(Config):
    """A model in an ensemble: the features that it uses, and the head that it applies to them."""

    features: Annotated[DescribedConfig | NetworkConfig, Field(discriminator="kind")] = setting(
        DescribedConfig(), "gradients, pixels or network"
    )

    head: Annotated[
        LinearConfig | KernelConfig | KernelRidgeConfig | NeighborsConfig, Field(discriminator="kind")
    ] = setting(LinearConfig(), "linear, kernel, kernel-ridge or neighbors")

    @model_validator(mode="before")
    @classmethod
    def _without_columns(cls, fields: Any) -> Any:
        """Leave out a range of the features, which files of release candidates have: None where all are
        seen."""
        if isinstance(fields, dict) and "columns" in fields and fields["columns"] is None:
            fields = {name: value for name, value in fields.items() if name != "columns"}
        return fields


class EnsembleConfig(Config):
    """Members whose predictions are averaged: their probabilities, or their numbers."""

    image_size: Sides = setting((64, 64), "image size (H, W) in pixels, which each member resizes to its own")
    channels: Positive = setting(3, "number of channels of the image")
    num_classes: Positive = setting(1, "number of outputs")
    members: tuple[MemberConfig, ...] = setting(
        (MemberConfig(),), "models whose predictions are averaged", min_length=1
    )

    @model_validator(mode="after")
    def _whole(self) -> EnsembleConfig:
        for member in self.members:
            if isinstance(member.head, KernelConfig) and len(member.head.vectors) != self.num_classes:
                raise ValueError("a kernel machine needs a number of support vectors for each class")
        return self

    @property
    def feature_width(self) -> int:
        """Numbers of `Ensemble.features`: those of all members."""
        return sum(member_width(member, self.channels) for member in self.members)

    @property
    def title(self) -> str:
        """What it is, in the language that is spoken."""
        heads, seen = words("models.heads"), words("models.seen")
        parts = [
            phrase("models.member", head=heads[each.head.kind], seen=seen[each.features.kind])
            for each in self.members
        ]
        return parts[0] if len(parts) == 1 else phrase("models.mean", parts=parts)


def member_width(member: MemberConfig, channels: int) -> int:
    """Return how many numbers a member sees of an image."""
    if isinstance(member.features, NetworkConfig):
        return member.features.network.feature_width
    return DESCRIPTORS[member.features.kind].width(channels)


# ---- What a member sees


class DescriptorFeatures(nn.Module):
    """Images, squashed to the size of a descriptor and rounded to bytes, as it describes them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.descriptor = DESCRIPTORS[kind]

    def forward(self, values: Float[Tensor, "B C H W"]) -> FeatureBatch:
        with in_float32(values):
            return self.descriptor.describe(as_bytes(values, self.descriptor.side))


class Network(nn.Module):
    """A network without its head, on images in its own size and normalization."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        made: type[ViT] | type[BiT] = BiT if isinstance(config.network, BiTConfig) else ViT
        self.network = made(config.network)  # type: ignore[arg-type]

    def forward(self, values: Float[Tensor, "B C H W"]) -> FeatureBatch:
        size = self.config.network.image_size
        mean, std = (
            torch.tensor(each, device=values.device).view(-1, 1, 1)
            for each in (self.config.mean, self.config.std)
        )
        images = (resized_images(values, size) / 255 - mean) / std
        return self.network.features(images).flatten(1)


def stored_values(images: Images, prepared: Preprocessing) -> Float[Tensor, "B C H W"]:
    """Return images as they were before their normalization, from 0 to 255."""
    std, mean = (
        torch.tensor(each, device=images.device).view(-1, 1, 1) for each in (prepared.std, prepared.mean)
    )
    return (images.float() * std + mean) * 255


def as_bytes(values: Float[Tensor, "B C H W"], side: int) -> Float[Tensor, "B C side side"]:
    """Return images squashed to a square, in whole numbers. Rounded a little above one half: a value between
    two bytes then becomes the same one in every engine."""
    return (resized_images(values, (side, side)) + 0.501).floor().clamp(0, 255)


def resized_images(values: Float[Tensor, "B C H W"], size: tuple[int, int]) -> Float[Tensor, "B C h w"]:
    """Return images at a size, as Pillow's bilinear filter resizes them; as they are where they have it. Two
    products with constants: every engine computes these alike."""
    height, width = values.shape[-2:]
    if (height, width) == size:
        return values
    down, across = shares(height, size[0]).to(values), shares(width, size[1]).to(values)
    return down @ (values @ across.T)


def shares(count: int, target: int) -> Float[Tensor, "target count"]:
    """Return the share of each of `count` lines in each of `target` lines: a triangle around its center."""
    step = count / target
    centers = (np.arange(target)[:, None] + 0.5) * step
    distance = np.abs(np.arange(count)[None] + 0.5 - centers) / max(step, 1.0)
    triangle = np.maximum(1 - distance, 0.0)
    return torch.from_numpy((triangle / triangle.sum(axis=1, keepdims=True)).astype(np.float32))


def in_float32(values: Tensor) -> AbstractContextManager[object]:
    """Compute without the lower precision of autocast, where it is on: distances would lose their digits."""
    kind = values.device.type
    lowered = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if lowered else nullcontext()


# ---- What a member makes of it


class KernelMachine(nn.Module):
    """The scores of a support vector machine: for each class, how many others it beats, and by how much."""

    def __init__(self, config: KernelConfig, width: int, classes: int) -> None:
        super().__init__()
        self.config = config
        count = sum(config.vectors)
        self.vectors = weight(count, width)  # those of the first class first
        self.coefficients = weight(count, classes)  # of each vector, where its class meets each other one
        self.bias = weight(classes, classes)  # [i, j] where class i meets class j, i < j
        self.sharpness = weight(1)  # of the scores as logits

    def forward(self, values: FeatureBatch) -> Float[Tensor, "B classes"]:
        return self.scores(torch.exp(-self.config.gamma * squared_distances(values, self.vectors)))

    def scores(self, near: Float[Tensor, "B vectors"]) -> Float[Tensor, "B classes"]:
        """Return the scores from how near images are to each vector."""
        sides: list[Tensor] = []  # [i][:, j]: what the vectors of class i say where it meets class j
        first = 0
        for count in self.config.vectors:
            part = slice(first, first + count)
            sides.append(near[:, part] @ self.coefficients[part])
            first += count
        side = torch.stack(sides, dim=1)
        met = torch.triu(side + side.transpose(1, 2) + self.bias, diagonal=1)
        won = met - met.transpose(1, 2)  # above 0 where the class of the row wins
        seen = torch.tensor([float(count > 0) for count in self.config.vectors], device=near.device)
        won = won * seen[:, None] * seen
        sums = won.sum(dim=2)
        scores = (won > 0).to(sums.dtype).sum(dim=2) + sums / (3 * (sums.abs() + 1))
        return self.sharpness * scores + NEVER * (1 - seen)


class KernelRidge(nn.Module):
    """Ridge regression with a Gaussian kernel."""

    def __init__(self, config: KernelRidgeConfig, width: int, outputs: int) -> None:
        super().__init__()
        self.config = config
        self.examples = weight(config.examples, width)
        self.coefficients = weight(config.examples, outputs)
        self.bias = weight(outputs)

    def forward(self, values: FeatureBatch) -> Float[Tensor, "B outputs"]:
        return gaussian_kernel(values, self.examples, self.config.gamma) @ self.coefficients + self.bias


class Neighbors(nn.Module):
    """The mean of the labels of the nearest training images: as logits, those of classes; or as numbers."""

    def __init__(self, config: NeighborsConfig, width: int, outputs: int, task: str | None) -> None:
        super().__init__()
        self.config, self.task = config, task
        self.examples = weight(config.examples, width)
        self.labels = weight(config.examples, outputs)  # 1 for each class that an example has; or its number

    def forward(self, values: FeatureBatch) -> Float[Tensor, "B outputs"]:
        return self.answers(squared_distances(values, self.examples))

    def answers(self, distance: Float[Tensor, "B examples"]) -> Float[Tensor, "B outputs"]:
        """Return the answers from the distances to the examples."""
        count = self.config.neighbors
        nearest = distance.topk(count, dim=1, largest=False).indices
        votes = torch.linspace(1 + DECIDING, 1, count, device=distance.device)
        mean = (self.labels[nearest] * (votes / votes.sum())[:, None]).sum(dim=1)
        meaning = outputs_of_task(self.task)
        return mean if meaning == "number" else as_logits(mean, meaning, count)


def as_logits(
    shares: Float[Tensor, "B classes"], meaning: OutputKind, count: int
) -> Float[Tensor, "B classes"]:
    """Return the logits of shares among so many votes; one vote more is spread over all classes, so that none
    is impossible."""
    if meaning == "sigmoid":
        smooth = (shares * count + 0.5) / (count + 1)
        return smooth.log() - (1 - smooth).log()
    return ((shares * count + 1 / shares.shape[1]) / (count + 1)).log()


NEVER = -20.0  # the logit of a class that a kernel machine has not seen
DECIDING = 0.01  # of a vote, by which the nearest decides between equals


def squared_distances(a: Float[Tensor, "B D"], b: Float[Tensor, "N D"]) -> Float[Tensor, "B N"]:
    """Return the squared distance of each row of `a` to each of `b`."""
    found = a.square().sum(dim=1)[:, None] + b.square().sum(dim=1) - 2 * (a @ b.T)
    return found.clamp_min(0)


def gaussian_kernel(a: Float[Tensor, "B D"], b: Float[Tensor, "N D"], gamma: float) -> Float[Tensor, "B N"]:
    """Return how near each row of `a` is to each of `b`: exp(-gamma * squared distance). What all have in
    common is subtracted first: it would take the digits of float32 from the differences."""
    center = b.mean(dim=0)
    return torch.exp(-gamma * squared_distances(a - center, b - center))


def weight(*shape: int) -> nn.Parameter:
    """Return numbers that are fitted, not trained by steps."""
    return nn.Parameter(torch.zeros(*shape), requires_grad=False)


# ---- Together


class Together(nn.Module):
    """The heads of all members, and the mean of what they say.

    Attributes:
        scale: of the logits; calibration changes it.
    """

    def __init__(self, config: EnsembleConfig, task: str | None) -> None:
        super().__init__()
        self.task = task
        self.widths = [member_width(member, config.channels) for member in config.members]
        heads: list[nn.Module] = []
        for member, width in zip(config.members, self.widths, strict=True):
            heads.append(head_of_zeros(member, width, config.num_classes, task))
        self.heads = nn.ModuleList(heads)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, values: FeatureBatch) -> Float[Tensor, "B outputs"]:
        parts = torch.split(values, self.widths, dim=1)
        with in_float32(values):
            outputs = torch.stack([head(part) for head, part in zip(self.heads, parts, strict=True)])
            return self.scale * mean_answer(outputs, outputs_of_task(self.task))


def head_of_zeros(member: MemberConfig, width: int, outputs: int, task: str | None) -> nn.Module:
    """Return the head of a member, with weights of zeros."""
    if isinstance(member.head, KernelConfig):
        return KernelMachine(member.head, width, outputs)
    if isinstance(member.head, KernelRidgeConfig):
        return KernelRidge(member.head, width, outputs)
    if isinstance(member.head, NeighborsConfig):
        return Neighbors(member.head, width, outputs, task)
    return nn.Linear(width, outputs)


def mean_answer(outputs: Float[Tensor, "M B outputs"], meaning: OutputKind) -> Float[Tensor, "B outputs"]:
    """Return what several say together: the mean of numbers, or the logits of the mean of probabilities."""
    if len(outputs) == 1:
        return outputs[0]
    if meaning == "number":
        return outputs.mean(dim=0)
    if meaning == "sigmoid":
        yes, no = F.logsigmoid(outputs).logsumexp(dim=0), F.logsigmoid(-outputs).logsumexp(dim=0)
        return yes - no
    return outputs.log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(outputs))


class Ensemble(nn.Module):
    """Members that answer together; the methods of `ViT`, but for its tokens."""

    described: ClassVar = {"seen": ("what the members see", ""), "head": ("heads, and their mean", "")}

    def __init__(
        self,
        config: EnsembleConfig,
        *,
        preprocessing: Preprocessing | None = None,
        labels: Sequence[str] | None = None,
        task: str | None = None,
        temperature: float = 1.0,
        origin: Origin | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.preprocessing = preprocessing or Preprocessing(
            size=config.image_size, channels=config.channels, resize="squash", interpolation="bilinear"
        )
        self.labels = None if labels is None else list(labels)
        self.task, self.temperature, self.origin = task, temperature, origin
        seen: list[nn.Module] = []
        for member in config.members:
            network = isinstance(member.features, NetworkConfig)
            seen.append(Network(member.features) if network else DescriptorFeatures(member.features.kind))  # type: ignore[arg-type]
        self.seen = nn.ModuleList(seen)
        self.head = Together(config, task)

    def features(self, images: Images) -> FeatureBatch:
        """Return what the members see of images, side by side."""
        check_channels(images, self.config.channels)
        values = stored_values(images, self.preprocessing)
        return torch.cat([each(values).float() for each in self.seen], dim=1)

    def forward(self, images: Images) -> Float[Tensor, "B outputs"]:
        outputs: Float[Tensor, "B outputs"] = self.head(self.features(images))
        return outputs

    def tokens(self, images: Images) -> Float[Tensor, "B T D"]:
        """Raise InputError: there are no tokens."""
        raise InputError(
            "an ensemble has no patch tokens: pass the network of its run, or a model that is a single "
            "network"
        )

    def network(self) -> ViT | BiT | None:
        """Return a copy of the network of the first member that has one, with its preprocessing; with its
        head and labels where that is a linear map. The weights are shared."""
        for place, seen in enumerate(self.seen):
            if isinstance(seen, Network):
                return self.network_of(place, seen)
        return None

    def network_of(self, place: int, seen: Network) -> ViT | BiT:
        config, head = seen.config, self.head.heads[place]
        outputs = self.config.num_classes if isinstance(head, nn.Linear) else None
        own = {"size": config.network.image_size, "mean": config.mean, "std": config.std}
        made: type[ViT] | type[BiT] = BiT if isinstance(config.network, BiTConfig) else ViT
        with torch.device("meta"):
            network = made(
                config.network.model_copy(update={"num_classes": outputs}),  # type: ignore[arg-type]
                preprocessing=self.preprocessing.model_copy(update=own),
                labels=self.labels if outputs else None,
                task=self.task if outputs else None,
                origin=self.origin,
            )
        if outputs:
            network.head = head
        for name, part in seen.network.named_children():
            if name != "head":
                setattr(network, name, part)
        for name, weight in seen.network.named_parameters(recurse=False):
            network.register_parameter(name, weight)
        for name, buffer in seen.network.named_buffers(recurse=False):
            network.register_buffer(name, buffer)
        return network.eval()
