"""What counts as a model: a ViT, a BiT, an ensemble, a model around a ViT, an exported program; and what
builds one from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.errors import InputError, Param
from vitreous.extensions import OutputKind, imported, kind_of
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.config import Origin, ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.ensemble import Ensemble, EnsembleConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import Images, ViT

Compute = Callable[..., list[NDArray[np.float32]]]  # of images, and of how many outputs: all, by default


class WithEncoder(nn.Module):
    """A model around a Vision Transformer, such as one that decodes its patch tokens. What is done with a ViT
    (resizing, freezing, rates that decay with depth, inspection) is done with the one inside.

    Attributes:
        encoder: the ViT, without a head.
        head: what comes after it.
        config: whose `encoder` is that of the ViT.
        preprocessing, labels, task, temperature, origin: as of a ViT.
    """

    encoder: ViT
    head: nn.Module
    config: Any
    preprocessing: Preprocessing
    labels: list[str] | None
    task: str | None
    temperature: float
    origin: Origin | None

    def tokens(self, images: Images) -> Float[Tensor, "B T D"]:
        """Return all tokens of the encoder after its final norm."""
        return self.encoder.tokens(images)

    def intermediates(
        self, images: Images, layers: Sequence[int] | None = None, *, maps: bool = False, norm: bool = False
    ) -> list[Float[Tensor, "B T D"]] | list[Float[Tensor, "B D h w"]]:
        """Return the tokens of the encoder after some layers: see `ViT.intermediates`."""
        return self.encoder.intermediates(images, layers, maps=maps, norm=norm)

    def features(self, images: Images) -> Float[Tensor, "B D"]:
        """Return the pooled tokens of the encoder."""
        return self.encoder.features(images)


def is_finite(tensor: Tensor) -> bool:
    """Return whether every number of a tensor is; one without numbers (on the meta device) counts as
    finite."""
    if tensor.is_meta:
        return True
    tensor = tensor if tensor.element_size() > 1 else tensor.float()
    # NaN and infinity reach the sum, which is several times faster than to look at each number
    return bool(torch.isfinite(tensor.sum(dtype=torch.float32)) or torch.isfinite(tensor).all())


def check_finite(outputs: Tensor) -> Tensor:
    """Return the outputs of a model. Raises InputError: some are NaN or infinite, which is not an answer."""
    if not is_finite(outputs):
        raise InputError(
            "the model's outputs are NaN or infinite: its weights are damaged, or its training diverged, or "
            f"the precision is too low (see vitreous doctor, and {Param('precision')} fp32)"
        )
    return outputs


def as_probabilities(logits: Float[Tensor, "B classes"], outputs: OutputKind) -> Float[Tensor, "B classes"]:
    """Return the probability of each class. Raises InputError: such outputs are not of classes."""
    if outputs == "sigmoid":
        return logits.sigmoid()
    if outputs == "softmax":
        return logits.softmax(dim=-1)
    raise InputError("the model does not predict classes: use `vitreous.predict`, which handles every task")


def encoder_of(model: nn.Module) -> nn.Module:
    """Return the encoder of images that learns inside an objective or another model; any other model is its
    own encoder."""
    for each in model.modules():
        if isinstance(each, ViT | BiT) and any(weight.requires_grad for weight in each.parameters()):
            return each
    return model


class Program(nn.Module):
    """An exported model: its logits and its features, without weights to look at or to train.

    Args:
        path: the file.
        compute: returns logits and features of images, as arrays; or the logits alone, `compute(images, 1)`.
        config, preprocessing, labels, task: of the model that was exported.
        digest: of the file, in place of weights for whatever is cached by them.
    """

    def __init__(
        self,
        path: Path,
        compute: Compute,
        config: Any,
        preprocessing: Preprocessing,
        labels: list[str] | None,
        task: str | None,
        digest: bytes,
    ) -> None:
        super().__init__()
        self.path, self.compute = path, compute
        self.config, self.preprocessing, self.labels, self.task = config, preprocessing, labels, task
        self.temperature = 1.0  # what calibration has changed is in the program
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        return self.outputs(images, 1)[0]

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        """Return what the head of the model sees."""
        return self.outputs(images, 2)[1]

    def outputs(self, images: Float[Tensor, "B C H W"], count: int = 2) -> list[Tensor]:
        """Return the logits and the features. Raises InputError for another precision than the file's."""
        if torch.is_autocast_enabled("cpu"):
            raise InputError(
                f"{self.path} runs in the precision it was exported in: use {Param('precision')} fp32"
            )
        found = self.compute(images.float().cpu().numpy(), count)
        return [torch.tensor(each, device=images.device) for each in found]


Trainable = ViT | BiT | WithEncoder  # learns by steps
Model = Trainable | Ensemble
Runnable = Model | Program  # gives logits and features


def build_model(config: ViTConfig | BiTConfig, **attributes: object) -> Model:
    """Build the model of a configuration with fresh weights.

    Args:
        attributes: its `preprocessing`, `labels`, `task`, `origin` and `seed`. Without a task, that of a ViT
            or BiT with a head is classification.
    """
    if kind_of(config) is None:
        attributes.setdefault("task", None if config.num_classes is None else "classification")
    model: Model = model_of(config, **attributes)
    return model


def model_of(config: Config, **attributes: Any) -> Any:
    """Build the model of any configuration, of models that see no images too, with fresh weights."""
    if kind := kind_of(config):
        return imported(kind.build)(config, **attributes)
    if isinstance(config, BiTConfig):
        return BiT(config, **attributes)
    if isinstance(config, EnsembleConfig):
        return Ensemble(config, **attributes)
    assert isinstance(config, ViTConfig)
    return ViT(config, **attributes)


@contextmanager
def modes_restored(*models: object) -> Iterator[None]:
    """Give modules back in training or evaluation mode, as they were."""
    modes: list[tuple[nn.Module, bool]] = []
    for model in models:
        if isinstance(model, nn.Module):
            modes += [(part, part.training) for part in model.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
