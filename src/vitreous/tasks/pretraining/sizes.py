"""A model's features of images smaller than it was built for, with its own weights."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from vitreous.checkpoints.resizing import POSITION_TABLE, resize_axis, resize_table
from vitreous.checkpoints.weights import compute_positions, meta_model
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model, build
from vitreous.models.vit import ViT


class FeaturesAt:
    """`model.features` for images of `size` pixels, with gradients for the model's own weights.

    `vitreous.resize` makes a second model; here the learned positions are resampled anew in every call, as
    the authors of DINO do it, so that what is learned from small crops is learned by the model itself.

    Raises:
        InputError: relative positions, which have no resized form; a size that the patches do not divide.
    """

    def __init__(self, model: Model, size: tuple[int, int]) -> None:
        changes = {"image_size": size, "num_classes": None}
        config = build(type(model.config), model.config.model_dump(), changes)
        relative = isinstance(config, ViTConfig) and config.position.kind == "relative"
        if relative and size != model.config.image_size:
            raise InputError(
                "relative positions have no resized form for small crops: "
                "set pretraining.dino.views.small_count=0, or choose other positions"
            )
        self.shape = meta_model(config)  # the computation alone: weights come with each call
        compute_positions(self.shape)
        self.names = {name for name, _ in self.shape.named_parameters()}

    def __call__(self, model: Model, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        weights: dict[str, Tensor] = {
            name: weight for name, weight in model.named_parameters() if name in self.names
        }
        if isinstance(model, ViT) and isinstance(self.shape, ViT):
            for name, weight in weights.items():
                weights[name] = resized(name, weight, model.config, self.shape.config)
        buffers = {name: buffer.to(images.device) for name, buffer in self.shape.named_buffers()}
        return functional_call(self.shape.train(model.training), weights | buffers, (images,))


def resized(name: str, weight: Tensor, old: ViTConfig, new: ViTConfig) -> Tensor:
    """The same weight; resampled if it is a table of positions."""
    if not POSITION_TABLE.match(name):
        return weight
    match name.rpartition(".")[2]:
        case "table":
            return resize_table(weight, old.grid, new.grid, "huggingface")  # bicubic, as DINO's code
        case "x":
            return resize_axis(weight, new.grid[1])
        case "y":
            return resize_axis(weight, new.grid[0])
        case _:
            return weight
