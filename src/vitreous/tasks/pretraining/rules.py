"""The configuration of a self-supervised pre-training, and how the data decide it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor

from vitreous.data.dataset import ImageDataset
from vitreous.errors import InputError, nearest
from vitreous.extensions import recipe_files
from vitreous.layers.embedding import to_patches
from vitreous.models.config_parts import Config, Positive, Probability, setting
from vitreous.tasks import task_named
from vitreous.training.config import RunConfig
from vitreous.training.recipes import NAMES, Recipe, read_recipe, recipe

SAMPLED = 64  # images whose patches are looked at
FLAT = 8.0  # gray levels
FOR_CLASSES = {
    "training": ("loss", "label_smoothing", "distillation", "head"),
    "augmentation": ("mix",),
    "evaluation": ("calibrate",),
    "data": ("class_balance",),
}


class MaskedPatchConfig(Config):
    """Masked patch prediction, with the shares of B.1.2. The other corrupted patches stay unchanged."""

    target: Literal["mean-color", "small-colors", "pixels"] = setting(
        "mean-color", "what is predicted for a hidden patch (appendix B.1.2)"
    )
    corrupted: float = setting(0.5, "share of the patches that are corrupted", gt=0, lt=1)
    masked: Probability = setting(0.8, "share of the corrupted patches that become the mask token")
    swapped: Probability = setting(0.1, "share of the corrupted patches that are replaced by another patch")


class MAEConfig(Config):
    """Masking and decoder, by default those of the paper for ViT-B/16; `decoder_for` gives small encoders
    small decoders."""

    mask_ratio: Probability = setting(0.75, "share of the patches that are hidden")
    normalize_pixels: bool = setting(True, "predict pixels that are normalized within each patch")
    decoder_width: Positive = setting(512, "embedding dimension of the decoder", multiple_of=4)
    decoder_depth: Positive = setting(8, "number of layers of the decoder")
    decoder_heads: Positive = setting(16, "number of attention heads of the decoder")
    decoder_mlp_dim: Positive = setting(2048, "number of hidden units of the decoder's MLPs")


class PretrainingRunConfig(RunConfig):
    """All of a pre-training run; `vitreous pretrain --config` runs it again. Each objective has a subclass,
    whose group `pretraining` has its settings, under its name."""

    command: ClassVar[str] = "pretrain"

    @property
    def own(self) -> Any:
        """The settings of the objective."""
        groups: Any = self
        return getattr(groups.pretraining, self.task.replace("-", "_"))

    @model_validator(mode="after")
    def _nothing_ignored(self) -> PretrainingRunConfig:
        for group, names in FOR_CLASSES.items():
            self.check_defaults(group, names, "is not for pre-training: leave it out")
        if self.training.lora and not self.init:
            raise ValueError(
                "training.lora changes trained weights: name some with init, or set training.lora=none"
            )
        return self


class MaskedPatchSettings(Config):
    """The settings of masked patch prediction."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()


class MaskedPatchRunConfig(PretrainingRunConfig):
    """The complete configuration of a run of masked patch prediction."""

    task: Literal["masked-patch"] = setting("masked-patch", "always masked-patch")
    pretraining: MaskedPatchSettings = MaskedPatchSettings()


class MAESettings(Config):
    """The settings of a masked autoencoder."""

    mae: MAEConfig = MAEConfig()


class MAERunConfig(PretrainingRunConfig):
    """The complete configuration of a run of a masked autoencoder."""

    task: Literal["mae"] = setting("mae", "always mae")
    pretraining: MAESettings = MAESettings()

    @model_validator(mode="after")
    def _something_hidden(self) -> MAERunConfig:
        if not self.pretraining.mae.mask_ratio:
            raise ValueError("pretraining.mae.mask_ratio=0 hides nothing to predict: set it to 0.75")
        return self


PATHS = [*(Path(__file__).parent / "recipes").glob("*.toml"), *recipe_files("pretrain")]
RECIPES = {path.stem: path for path in sorted(PATHS, key=lambda path: path.stem)}


def pretraining_recipe(name: str) -> Recipe[PretrainingRunConfig]:
    """Return a paper's pre-training. Raises InputError: there is none of that name."""
    if name not in RECIPES:
        raise InputError(f"unknown recipe of a pre-training {name!r}: {nearest(name, list(RECIPES))}")
    objective = tomllib.loads(RECIPES[name].read_text(encoding="utf-8"))["task"]
    kind: Any = task_named(objective).config
    return read_recipe(RECIPES[name], kind())


def recipe_names() -> list[str]:
    """Return the names of all recipes: those of `train`, then those of `pretrain`."""
    return [*NAMES, *RECIPES]


def find_recipe(name: str) -> Recipe[RunConfig]:
    """Return a recipe of `train` or of `pretrain`. Raises InputError: there is none of that name."""
    if name not in recipe_names():
        raise InputError(f"unknown recipe {name!r}: {nearest(name, recipe_names())}")
    return pretraining_recipe(name) if name in RECIPES else recipe(name)


def flat_share(images: ImageDataset, config: PretrainingRunConfig, patch_size: tuple[int, int]) -> float:
    """Return the share of flat patches, whose values differ by less than eight gray levels in each channel:
    normalized one by one, they would be noise to predict."""
    pixels = config.prepared.denormalize(sampled_images(images, config)).float()
    channels = to_patches(pixels.flatten(0, 1).unsqueeze(1), patch_size).std(dim=-1)  # (B C, N)
    return float((channels.view(len(pixels), -1, channels.shape[1]).mean(dim=1) < FLAT).float().mean())


def sampled_images(images: ImageDataset, config: PretrainingRunConfig) -> Float[Tensor, "B C H W"]:
    """Return a few of the images as the model sees them. Raises InputError: none of them can be read."""
    preprocessing, (height, width) = config.prepared, config.model.image_size
    rows = images.sample(SAMPLED)
    pixels = [preprocessing.of_one(image) for _, image in images.readable(rows)]
    if not pixels:
        raise InputError(f"none of the {len(rows)} images that were tried can be read: see `data check`")
    return preprocessing.normalize(torch.stack(pixels)[..., :height, :width])
