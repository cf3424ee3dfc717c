"""The objectives of pre-training, the whole configuration of such a run, and how the data decide it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import model_validator

from vitreous.data.config import DataConfig
from vitreous.data.dataset import DataSummary, Splits, split
from vitreous.data.sources import open_data, summarize
from vitreous.data.sources.folders import FileImages, index_folder, subfolders
from vitreous.errors import InputError
from vitreous.models.config import Config, ViTConfig
from vitreous.models.names import Model
from vitreous.tasks.choose import packaged_config
from vitreous.tasks.pretraining.dino import DINO, DINOConfig
from vitreous.tasks.pretraining.mae import MAE, MAEConfig, decoder_for, published_decoder
from vitreous.tasks.pretraining.masked_patch import MaskedPatchConfig, MaskedPatchPrediction
from vitreous.tasks.pretraining.masking import SimMIM, SimMIMConfig
from vitreous.tasks.pretraining.views import ViewsConfig
from vitreous.training.config import RunConfig

ObjectiveName = Literal["masked-patch", "mae", "simmim", "dino"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)
SelfSupervision = MaskedPatchPrediction | MAE | SimMIM | DINO
SMALL_IMAGE = 40  # pixels; up to here images are taken as they are
FOR_CLASSES = {
    "training": ("loss", "label_smoothing", "distillation", "lora"),
    "augmentation": ("mixup", "cutmix", "mix_probability"),
    "data": ("class_balance",),
}


class PretrainingConfig(Config):
    """The settings of each objective; a run has those of its own."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    mae: MAEConfig = MAEConfig()
    simmim: SimMIMConfig = SimMIMConfig()
    dino: DINOConfig = DINOConfig()


class PretrainingRunConfig(RunConfig):
    """All of a pre-training run; `vitreous pretrain --config` runs it again."""

    command: ClassVar[str] = "pretrain"

    task: str = "mae"
    pretraining: PretrainingConfig = PretrainingConfig()

    @model_validator(mode="after")
    def _nothing_ignored(self) -> PretrainingRunConfig:
        if self.task not in OBJECTIVES:
            raise ValueError(f"task is {self.task!r}: choose one of {', '.join(OBJECTIVES)}")
        for group, names in FOR_CLASSES.items():
            self.check_defaults(group, names, "is not for pre-training: leave it out")
        for name in OBJECTIVES:
            if name != self.task:
                problem = f"has no effect with the objective {self.task}: leave it out, or choose"
                self.check_defaults("pretraining", [name.replace("-", "_")], f"{problem} --objective {name}")
        return self


def build_objective(
    model: Model, name: ObjectiveName, config: PretrainingConfig, *, steps: int, seed: int = 0
) -> SelfSupervision:
    """Build the objective called `name` around `model`.

    Args:
        steps: of the optimizer in the whole training.
        seed: of the weights that the objective adds: mask token, decoder, heads.

    Raises:
        InputError: the objective cannot be had with this model.
    """
    match name:
        case "masked-patch":
            return MaskedPatchPrediction(model, config.masked_patch, seed=seed)
        case "mae":
            return MAE(model, config.mae, seed=seed)
        case "simmim":
            return SimMIM(model, config.simmim, seed=seed)
        case "dino":
            return DINO(model, config.dino, steps=steps, seed=seed)


def open_unlabeled(source: str, data: DataConfig) -> Splits:
    """Open any DATA, or a folder of images in any sub-folders. Where there are classes, the held-out part
    is the one that `vitreous train` holds out, so that it stays unseen until then."""
    folder = Path(source).expanduser()
    if not folder.is_dir() or len(subfolders(folder)) > 1 or (folder / "train").is_dir():
        return open_data(source, data)
    paths = index_folder(folder, (".",)).paths
    if not len(paths):
        if any(folder.glob("*.tar")):
            return open_data(source, data)
        raise InputError(f"{folder} holds no images")
    images = FileImages(folder, paths, np.zeros(len(paths), dtype=np.int64), ("image",))
    train, validation, test = split(images, data)
    return Splits(train, validation, test, source, summarize(train))


def rules(data: DataSummary, objective: ObjectiveName) -> PretrainingRunConfig:
    """Return a small ViT with plain patches, trained for long: images cost nothing without labels.

    Its size goes by the longer side of the images: icons, small images as they are, photographs scaled down.
    """
    pixels = max(data.height, data.width)
    if pixels < 16:
        patch, width, depth, heads = 2, 64, 4, 4
    elif pixels <= SMALL_IMAGE:
        patch, width, depth, heads = 4, 128, 6, 4
    else:
        patch, width, depth, heads = 6, 192, 6, 3
    sizes = {"patch_size": patch, "width": width, "depth": depth, "heads": heads, "mlp_dim": 2 * width}
    model: dict[str, Any] = {**sizes, "channels": data.channels}
    tree: dict[str, Any] = {"task": objective, "recipe": f"pretrain-{objective}", "model": model}
    tree["training"] = {"batch_size": min(64, data.images)}
    if pixels <= SMALL_IMAGE:  # the nearest multiples of the patch that are not smaller
        model["image_size"] = (-(-data.height // patch) * patch, -(-data.width // patch) * patch)
        tree["augmentation"] = {"random_resized_crop": None}
    if data.channels == 1:
        tree["preprocessing"] = {"mean": (0.5,), "std": (0.5,)}
    name = "dino" if objective == "dino" else "pretraining"
    return packaged_config(PretrainingRunConfig, name, tree)


def by_model(config: PretrainingRunConfig, data: DataSummary) -> dict[str, Any]:
    """Return what follows from the encoder and the number of images: MAE's decoder, DINO's head. A published
    MAE brings its own decoder."""
    if config.task == "mae" and isinstance(config.model, ViTConfig):
        published = published_decoder(config.init) if config.init else None
        mae = published[0] if published else decoder_for(config.model)
        return {"pretraining": {"mae": mae.model_dump()}}
    if config.task != "dino":
        return {}
    width = config.model.width if isinstance(config.model, ViTConfig) else 768
    dino = DINOConfig(
        prototypes=min(65_536, max(64, data.images // 4)),
        head_hidden=min(2048, 4 * width),
        head_bottleneck=min(256, width),
        views=ViewsConfig(small_count=4, flip=0.5 if data.channels == 3 else 0.0),
    )
    return {"pretraining": {"dino": dino.model_dump()}}


def reason(config: PretrainingRunConfig, data: DataSummary) -> str:
    """Return why the configuration is what it is, in a sentence."""
    height, width = config.model.image_size
    return (
        f"{data.images} images of about {data.width}x{data.height}: {config.task} with "
        f"{type(config.model).__name__.removesuffix('Config')} at {width}x{height} for "
        f"{config.training.epochs:g} epochs"
    )
