"""Preprocessing and labels of Hugging Face models: preprocessor_config.json and config.json's id2label."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from vitreous.checkpoints.format import as_pair, assumed_preprocessing
from vitreous.checkpoints.formats.open_clip import CLIP_MEAN, CLIP_STD
from vitreous.checkpoints.source import Source
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

log = logging.getLogger(__name__)
# By Pillow's numbers.
RESAMPLING = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))

# Where there is no preprocessor_config.json: the default of the family's image processor.
IMAGENET: dict[str, object] = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
CLIP: dict[str, object] = {"mean": CLIP_MEAN, "std": CLIP_STD}
SQUASHED: dict[str, object] = {"resize": "squash", "interpolation": "bicubic"}
CONVENTIONS: dict[str, dict[str, object]] = {
    "vit": {"resize": "squash", "interpolation": "bilinear"},
    "siglip": SQUASHED,
    "siglip2": {"resize": "squash", "interpolation": "bilinear"},
    "clip": CLIP,
    "deit": {"resize": "squash", "crop_fraction": 0.875, **IMAGENET},
    **dict.fromkeys(("aimv2", "mlcd", "altclip", "metaclip_2", "chinese_clip", "git", "kosmos_2"), CLIP),
    **dict.fromkeys(("idefics2", "idefics3", "smolvlm", "janus", "dpt"), SQUASHED),
    **dict.fromkeys(("blip", "blip_2", "instructblip", "instructblipvideo"), CLIP | SQUASHED),
    **dict.fromkeys(("owlvit", "owlv2", "idefics", "flava_image_model"), CLIP | SQUASHED),
    **dict.fromkeys(("internvl", "intern_vit_6b"), SQUASHED | IMAGENET),
    "beit": {"resize": "squash", "crop_fraction": 0.875, "interpolation": "bicubic"},
    "dinov2": {"crop_fraction": 0.875, **IMAGENET},
    "dinov3_vit": {"resize": "squash", "interpolation": "bilinear", **IMAGENET},
    "vit_mae": {"resize": "squash", "interpolation": "bilinear", **IMAGENET},
}


def preprocessing_of(source: Source, config: ViTConfig, usual: str = "vit") -> Preprocessing:
    """Read preprocessor_config.json, or take the family's convention, which is then said to be assumed.

    Args:
        usual: the model_type where no config.json states one.
    """
    kind = re.sub("[-_]vision(_model)?$|_with_registers$", "", source.facts.name or usual)
    source.assumed.extend(source.facts.open)
    described = source.facts.images
    if not described:
        convention = CONVENTIONS.get(kind, CONVENTIONS["vit"])
        return assumed_preprocessing(source, config, f"transformers' {kind}", **convention)
    try:
        fields = resize_settings(source, described, config)
        mean, std = (0.0,) * config.channels, (1.0,) * config.channels
        if described.get("do_normalize", True):
            mean, std = (
                (stated,) * config.channels if isinstance(stated, int | float) else stated
                for stated in (described["image_mean"], described["image_std"])
            )
        # theirs are of pixels times this factor, ours of pixels / 255
        factor = 255 * described.get("rescale_factor", 1 / 255) if described.get("do_rescale", True) else 255
        factor = 1.0 if abs(factor - 1) < 1e-9 else factor
        return Preprocessing(
            size=config.image_size,
            channels=config.channels,
            mean=tuple(each / factor for each in mean),
            std=tuple(each / factor for each in std),
            interpolation=RESAMPLING[described.get("resample", 2)],
            **fields,
        )
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError):
        raise InputError(f"{source.where}: preprocessor_config.json is not understood") from None


def cropped_size(source: Source) -> tuple[int, int] | None:
    """Return the size of the images that preprocessor_config.json makes, whatever that of the table of
    positions is: transformers' Dinov2 resamples the table for it. None where it says none."""
    described = source.facts.images
    crop = described.get("crop_size") if described.get("do_center_crop") else described.get("size")
    sides = (crop.get("height"), crop.get("width")) if isinstance(crop, dict) else (crop, crop)
    return as_pair(sides)


def resize_settings(source: Source, described: Mapping[str, Any], config: ViTConfig) -> dict[str, Any]:
    """Return how an image gets its size: both sides freely, or the shorter side; then perhaps cut to the
    center."""
    size = config.image_size
    if not described.get("do_resize", True):
        source.assumed.append(f"images are resized to {size[0]}x{size[1]}, where theirs must have this size")
        return {"resize": "squash"}
    resized = described.get("size", size[0])
    if isinstance(resized, int):
        resized = {"shortest_edge": resized} if described["shorter"] else dict.fromkeys(SIDES, resized)
    if set(resized) not in ({"shortest_edge"}, set(SIDES)):
        raise InputError(f"{source.where}: size={resized!r} of preprocessor_config.json is not supported")
    shorter = resized.get("shortest_edge")
    tall, wide = (shorter, shorter) if shorter else (resized["height"], resized["width"])
    made, fraction = None if shorter else (tall, wide), 1.0
    if described.get("do_center_crop", False):
        crop = described.get("crop_size", size[0])
        made = (crop["height"], crop["width"]) if isinstance(crop, dict) else (crop, crop)
        fraction = (min(made) if shorter else made[0]) / tall
        if shorter and made[0] != made[1]:
            source.assumed.append(
                f"the crop of {made[0]}x{made[1]} pixels is taken from an image that covers it; in "
                "transformers, the image may be smaller and get black borders"
            )
        elif fraction > 1 or made[0] * wide != made[1] * tall:
            raise InputError(
                f"{source.where}: crop_size={made} of images of size={resized!r} in preprocessor_config.json "
                "is not supported: the crop must be no larger than the image, and of the same shape"
            )
    follows = source.facts.name.startswith("dinov2") and made is not None
    follows = follows and not any(side % p for side, p in zip(made or (), config.patch_size, strict=True))
    if made is None:
        source.assumed.append("the center of an image that is not square, of which transformers takes all")
    elif tuple(made) != size and "image_size" not in source.specified and not follows:
        source.assumed.append(
            f"images of {made[0]}x{made[1]}, as preprocessor_config.json makes them, are scaled to the "
            f"{size[0]}x{size[1]} of the weights' positions (or pass image_size={tuple(made)})"
        )
    return {
        "resize": "crop" if shorter else "squash",
        "crop_fraction": min(fraction, 1.0),
        "crop_start": "floored" if shorter or fraction < 1 else "rounded",
    }


SIDES = ("height", "width")


def naflex_preprocessor_config(look: Mapping[str, object], config: ViTConfig) -> dict[str, object]:
    """Return the description of images as SigLIP 2 takes them, each in its own aspect ratio."""
    shared = {name: look[name] for name in ("do_normalize", "image_mean", "image_std", "resample")}
    return shared | {
        "image_processor_type": "Siglip2ImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "patch_size": config.patch_size[0],
        "max_num_patches": config.grid[0] * config.grid[1],
    }


def preprocessor_config(preprocessing: Preprocessing) -> dict[str, object]:
    """Return preprocessor_config.json for our preprocessing, with a warning where transformers has none like
    it."""
    height, width = preprocessing.size
    if preprocessing.resize == "fit":
        log.warning("huggingface has no preprocessing that pads images: it is written as crop")
    if preprocessing.resize != "squash" and height != width:
        log.warning(
            "transformers resizes the shorter side alone: of images that are not of the shape %dx%d it sees "
            "another part, with black borders where the crop is larger than the image",
            height,
            width,
        )
    tall, wide = preprocessing.enlarged
    kind, size = "BitImageProcessor", {"shortest_edge": min(tall, wide)}
    if preprocessing.resize == "squash":
        kind, size = "DeiTImageProcessor", {"height": tall, "width": wide}
    crop = {"do_center_crop": True, "crop_size": {"height": height, "width": width}}
    if preprocessing.resize == "squash" and preprocessing.crop_fraction == 1:
        kind, crop = "ViTImageProcessor", {}
    return {
        "image_processor_type": kind,
        "do_resize": True,
        "size": size,
        "resample": list(RESAMPLING.values()).index(preprocessing.interpolation),
        **crop,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }


def labels_of(source: Source, count: int | None) -> list[str] | None:
    """Return the names of `count` classes, unless they are transformers' placeholders. A number is that of an
    output, also where the first one is not 0; an output without a name has a placeholder."""
    described = source.facts.model.get("id2label")
    if not isinstance(described, dict) or not described:
        return None
    try:
        named = {int(key): str(label) for key, label in described.items()}
    except ValueError:
        return None
    labels = [named.get(i, f"LABEL_{i}") for i in range(count or len(named))]
    return None if all(label == f"LABEL_{i}" for i, label in enumerate(labels)) else labels


# The tasks of transformers' heads, as config.json's `problem_type` names it.
PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


def task_of(source: Source) -> str:
    """Return the task that config.json names; classification where it names none. Raises InputError: a
    problem_type that transformers does not have."""
    problem = source.facts.model.get("problem_type")
    for ours, theirs in PROBLEMS.items():
        if problem in (None, theirs):
            return ours
    raise InputError(f"{source.where}: unknown problem_type {problem!r} in config.json")


def label_fields(model: Model) -> dict[str, object]:
    """Return id2label, label2id and problem_type of config.json."""
    count = model.config.num_classes
    if count is None:
        return {}
    labels = model.labels or [f"LABEL_{i}" for i in range(count)]
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        **({"problem_type": PROBLEMS[model.task]} if model.task in PROBLEMS else {}),
    }
