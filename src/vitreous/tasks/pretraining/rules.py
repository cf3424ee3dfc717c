"""The configuration of a self-supervised pre-training, and how the data decide it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor

from vitreous.checkpoints.loading import open_path
from vitreous.data.dataset import DataSummary, ImageDataset
from vitreous.errors import InputError, nearest
from vitreous.layers.embedding import to_patches
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, setting
from vitreous.models.preprocessing import to_tensor
from vitreous.tasks.choose import choose_recipe, packaged_config, rate_factor
from vitreous.tasks.pretraining.contrastive import ONE_IMAGE, ContrastiveConfig
from vitreous.tasks.pretraining.dino import DINOConfig
from vitreous.tasks.pretraining.distillation import FeatureDistillationConfig
from vitreous.tasks.pretraining.mae_decoder import MAEConfig, decoder_for, published_decoder
from vitreous.tasks.pretraining.masked_patch import MaskedPatchConfig
from vitreous.tasks.pretraining.views import PairConfig, ViewsConfig
from vitreous.training.config import RunConfig
from vitreous.training.recipes import NAMES, Recipe, read_recipe, recipe
from vitreous.training.settings import configure

ObjectiveName = Literal["masked-patch", "mae", "dino", "contrastive", "distillation"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
WITH_VIEWS = ("dino", "contrastive")  # learn from several views of each image
DROP_PATH = 0.1  # of DINO's student
SAMPLED = 64  # images whose patches are looked at
FLAT = 8.0  # gray levels
FLAT_SHARE = 0.25  # of flat patches, from which on plain pixels are the target
GRAY_VIEWS = ViewsConfig(
    large_scale=(0.6, 1.0), small_scale=(0.3, 0.6), small_count=4, flip=0.0, blur=0.0, solarize=0.0
)
NOT_OF_VIEWS = ("random_resized_crop", "flip", "three_augment", "rand_augment", "color_jitter", "noise")
FOR_CLASSES = {
    "training": ("loss", "label_smoothing", "distillation", "lora", "head_bias_init", "head_std_init"),
    "augmentation": ("mixup", "cutmix", "mix_probability"),
    "evaluation": ("calibrate", "temperature"),
    "data": ("class_balance",),
}


class PretrainingConfig(Config):
    """The settings of each objective; a run has those of its own."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    mae: MAEConfig = MAEConfig()
    dino: DINOConfig = DINOConfig()
    contrastive: ContrastiveConfig = ContrastiveConfig()
    distillation: FeatureDistillationConfig = FeatureDistillationConfig()


class PretrainingRunConfig(RunConfig):
    """All of a pre-training run; `vitreous pretrain --config` runs it again."""

    command: ClassVar[str] = "pretrain"

    task: str = setting("contrastive", "masked-patch, mae, dino, contrastive or distillation")
    pretraining: PretrainingConfig = PretrainingConfig()

    @classmethod
    def following(cls, tree: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """A contrastive loss grows with the images that are compared: evaluation compares as many."""
        found, names = super().following(tree, override), ("batch_size", "grad_accum_steps")
        batch, parts = (tree["training"][name] for name in names)
        changed = any(name in override.get("training", {}) for name in names)
        own = "batch_size" in override.get("evaluation", {})
        valid = type(batch) is type(parts) is int and batch >= parts > 0  # what is not is refused later
        if tree["task"] == "contrastive" and changed and valid and not own:
            found["evaluation"] = {"batch_size": batch // parts}
        return found

    @model_validator(mode="after")
    def _nothing_ignored(self) -> PretrainingRunConfig:
        if self.task not in OBJECTIVES:
            raise ValueError(f"task is {self.task!r}: choose one of {', '.join(OBJECTIVES)}")
        for group, names in FOR_CLASSES.items():
            self.check_defaults(group, names, "is not for pre-training: leave it out")
        if self.task == "mae" and not self.pretraining.mae.mask_ratio:
            raise ValueError("pretraining.mae.mask_ratio=0 hides nothing to predict: set it to 0.75")
        if self.task == "contrastive" and self.training.batch_size == self.training.grad_accum_steps:
            raise ValueError(ONE_IMAGE)
        if self.views:
            instead = f"has no effect: set pretraining.{self.task}.views instead"
            self.check_defaults("augmentation", NOT_OF_VIEWS, instead)
        for name in OBJECTIVES:
            if name != self.task:
                problem = f"has no effect with the objective {self.task}: leave it out, or choose"
                self.check_defaults("pretraining", [name.replace("-", "_")], f"{problem} `objective` {name}")
        return self

    @property
    def views(self) -> PairConfig | None:
        """Of an objective that learns from several views of each image."""
        return getattr(self.pretraining, self.task).views if self.task in WITH_VIEWS else None


def rules(
    data: DataSummary, objective: ObjectiveName, source: str = "", named: str | None = None
) -> PretrainingRunConfig:
    """Return the model, normalization and changes of the images with which `vitreous train` learns the same
    data from scratch, so that its run can begin from this one; trained for long, since images without labels
    cost nothing, at a rate that falls with the model's width."""
    config = choose_recipe(source, data, named).config
    model = config.model.model_dump() | {"num_classes": None}
    tree: dict[str, Any] = {"task": objective, "recipe": f"pretrain-{objective}", "model": model}
    tree["preprocessing"] = config.preprocessing.model_dump()
    tree["training"] = {"batch_size": min(64, data.images)}
    tree["augmentation"] = {"affine": config.augmentation.model_dump()["affine"]}
    if objective == "dino" and isinstance(config.model, ViTConfig):
        model["drop_path"] = DROP_PATH
    if objective == "contrastive":
        views = {"flip": config.augmentation.flip}  # a letter is none in the mirror, and `train` knows
        if data.channels != 3:
            views["blur"] = GRAY_VIEWS.blur
        tree["pretraining"] = {"contrastive": {"views": views}}
    if objective == "mae":
        tree["augmentation"]["flip"] = 0.5 if data.channels == 3 else 0.0
    masked = objective in ("mae", "masked-patch")  # whose first question is where a patch was
    if masked and isinstance(config.model, ViTConfig) and config.model.position.kind == "learned":
        model["position"] = {"kind": "sincos-2d"}
    name = objective if objective in WITH_VIEWS else "pretraining"
    chosen = packaged_config(PretrainingRunConfig, name, tree)
    rate = chosen.training.peak_lr * rate_factor(chosen.model)
    return configure(chosen, {"training": {"peak_lr": rate}})


RECIPES = {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.toml"))}


def pretraining_recipe(name: str) -> Recipe:
    """Return a paper's pre-training. Raises InputError: there is none of that name."""
    if name not in RECIPES:
        raise InputError(f"unknown recipe of a pre-training {name!r}: {nearest(name, list(RECIPES))}")
    return read_recipe(RECIPES[name], PretrainingRunConfig())


def recipe_names() -> list[str]:
    """Return the names of all recipes: those of `train`, then those of `pretrain`."""
    return [*NAMES, *RECIPES]


def find_recipe(name: str) -> Recipe:
    """Return a recipe of `train` or of `pretrain`. Raises InputError: there is none of that name."""
    if name not in recipe_names():
        raise InputError(f"unknown recipe {name!r}: {nearest(name, recipe_names())}")
    return pretraining_recipe(name) if name in RECIPES else recipe(name)


def by_model(config: PretrainingRunConfig, data: DataSummary, images: ImageDataset) -> dict[str, Any]:
    """Return what follows from the encoder and the images: MAE's decoder (a published one's) and target;
    the width of the contrastive head; DINO's head and views, which are larger, neither blurred nor mirrored
    for gray images: digits and letters as a rule, which lose what they are in a small view."""
    if config.task == "mae" and isinstance(config.model, ViTConfig):
        published = published_decoder(open_path(config.init)) if config.init else None
        if published:
            return {"pretraining": {"mae": published.config.model_dump()}}
        share = flat_share(images, config, config.model.patch_size)
        mae = decoder_for(config.model).model_copy(update={"normalize_pixels": share < FLAT_SHARE})
        return {"pretraining": {"mae": mae.model_dump()}}
    width = config.model.width if isinstance(config.model, ViTConfig) else 768
    if config.task == "contrastive":
        return {"pretraining": {"contrastive": {"head_hidden": min(2048, 4 * width)}}}
    if config.task != "dino":
        return {}
    dino = DINOConfig(
        prototypes=min(65_536, max(64, data.images // 4)),
        head_hidden=min(2048, 4 * width),
        head_bottleneck=min(256, width),
        views=ViewsConfig(small_count=4, flip=0.5) if data.channels == 3 else GRAY_VIEWS,
    )
    return {"pretraining": {"dino": dino.model_dump()}}


def flat_share(images: ImageDataset, config: PretrainingRunConfig, patch_size: tuple[int, int]) -> float:
    """Return the share of flat patches, whose values differ by less than eight gray levels in each channel:
    normalized one by one, they would be noise to predict."""
    pixels = config.preprocessing.denormalize(sampled(images, config)).float()
    channels = to_patches(pixels.flatten(0, 1).unsqueeze(1), patch_size).std(dim=-1)  # (B C, N)
    return float((channels.view(len(pixels), -1, channels.shape[1]).mean(dim=1) < FLAT).float().mean())


def sampled(images: ImageDataset, config: PretrainingRunConfig) -> Float[Tensor, "B C H W"]:
    """Return a few of the images as the model sees them. Raises InputError: none of them can be read."""
    preprocessing, (height, width) = config.preprocessing, config.model.image_size
    rows = images.sample(SAMPLED)
    pixels = [to_tensor(preprocessing.image(image)) for _, image in images.readable(rows)]
    if not pixels:
        raise InputError(f"none of the {len(rows)} images that were tried can be read: see `data check`")
    return preprocessing.normalize(torch.stack(pixels)[..., :height, :width])


def reason(config: PretrainingRunConfig, data: DataSummary) -> str:
    """Return why the configuration is what it is, in a sentence."""
    (height, width), training = config.model.image_size, config.training
    length = f"{training.steps} steps" if training.steps else f"{training.epochs:g} epochs"
    return (
        f"{data.images} images of about {data.width}x{data.height}: {config.task} with "
        f"{type(config.model).__name__.removesuffix('Config')} at {width}x{height} for {length}"
    )
