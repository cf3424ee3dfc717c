"""How an encoder is pre-trained, by the number and size of the images, and how unlabeled data are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitreous.data.config import AugmentationConfig, DataConfig, RandomResizedCropConfig
from vitreous.data.dataset import DataSummary
from vitreous.data.sources import Splits, open_data, summarize
from vitreous.data.sources.files import FileImages
from vitreous.data.sources.folders import index_folder, subfolders
from vitreous.data.splitting import split
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitreous.tasks.pretraining.config import ObjectiveName, PretrainingRunConfig
from vitreous.tasks.pretraining.dino import DINOConfig
from vitreous.tasks.pretraining.mae import decoder_for
from vitreous.tasks.pretraining.views import ViewsConfig
from vitreous.training.config import EvaluationConfig, OptimizerConfig, ScheduleConfig, TrainingConfig
from vitreous.training.settings import Tree

SMALL_IMAGE = 40  # pixels; up to here images are taken as they are


def open_unlabeled(source: str, data: DataConfig) -> Splits:
    """Any DATA, shards among them, and a folder of images in whatever sub-folders. Where there are classes,
    the held-out part is the one that `vitreous train` holds out, so that it stays unseen until then."""
    folder = Path(source).expanduser()
    if not folder.is_dir() or len(subfolders(folder)) > 1 or (folder / "train").is_dir():
        return open_data(source, data)
    table = index_folder(folder, (".",)).table
    if not len(table) and any(folder.glob("*.tar")):
        return open_data(source, data)
    if not len(table):
        raise InputError(f"{folder} holds no images")
    images = FileImages(folder, table, np.zeros(len(table), dtype=np.int64), ("image",))
    train, validation, test = split(images, data)
    return Splits(train, validation, test, source, summarize(train))


class Scale(NamedTuple):
    """The encoder for images of a size."""

    patch: int
    width: int
    depth: int
    heads: int


def scale_for(pixels: int) -> Scale:
    """By the longer side: icons, small images as they are, photographs scaled down."""
    if pixels < 16:
        return Scale(patch=2, width=64, depth=4, heads=4)
    if pixels <= SMALL_IMAGE:
        return Scale(patch=4, width=128, depth=6, heads=4)
    return Scale(patch=6, width=192, depth=6, heads=3)


def rules(data: DataSummary, objective: ObjectiveName) -> PretrainingRunConfig:
    """A small ViT with plain patches, trained for long: images cost nothing without labels."""
    small = max(data.height, data.width) <= SMALL_IMAGE
    scale = scale_for(max(data.height, data.width))
    size = (whole(data.height, scale.patch), whole(data.width, scale.patch)) if small else (48, 48)
    dino = objective == "dino"
    model = ViTConfig(
        image_size=size,
        channels=data.channels,
        patch_size=(scale.patch, scale.patch),
        num_classes=None,
        width=scale.width,
        depth=scale.depth,
        heads=scale.heads,
        mlp_dim=2 * scale.width,
        class_token=dino,
        pooling="class" if dino else "mean",
    )
    gray = Preprocessing(size=size, channels=1, mean=(0.5,), std=(0.5,))
    color = Preprocessing(size=size, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    crop = RandomResizedCropConfig(scale=(0.2, 1.0))
    return PretrainingRunConfig(
        task=objective,
        source="photos",
        recipe=f"pretrain-{objective}",
        model=model,
        preprocessing=gray if data.channels == 1 else color,
        augmentation=AugmentationConfig(random_resized_crop=None if small or dino else crop),
        training=TrainingConfig(
            epochs=100,
            batch_size=min(64, data.images),
            peak_lr=5e-4 if dino else 1e-3,
            optimizer=OptimizerConfig(betas=(0.9, 0.999) if dino else (0.9, 0.95), weight_decay=0.05),
            schedule=ScheduleConfig(warmup=0.05),
        ),
        evaluation=EvaluationConfig(every_epochs=10),
    )


def published_size(settings: Tree) -> Tree:
    """A model that is asked for by name sees 224 pixels, as published, unless a size is asked for too."""
    return {"model": {"image_size": (224, 224)}} if "name" in settings.get("model", {}) else {}


def by_model(config: PretrainingRunConfig, data: DataSummary) -> dict[str, Any]:
    """Return what follows from the encoder and the number of images: MAE's decoder, DINO's head."""
    if config.task == "mae" and isinstance(config.model, ViTConfig):
        return {"pretraining": {"mae": decoder_for(config.model).model_dump()}}
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


def whole(side: int, patch: int) -> int:
    """The nearest multiple of the patch that is not smaller."""
    return -(-side // patch) * patch


def reason(config: PretrainingRunConfig, data: DataSummary) -> str:
    """Why the configuration is what it is, in a sentence."""
    height, width = config.model.image_size
    return (
        f"{data.images} images of about {data.width}x{data.height}: {config.task} with "
        f"{type(config.model).__name__.removesuffix('Config')} at {width}x{height} for "
        f"{config.training.epochs:g} epochs"
    )
