"""Preprocessing and labels of Hugging Face models: preprocessor_config.json and config.json's id2label."""

from __future__ import annotations

import logging
import re
from typing import Any

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import assumed_preprocessing
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

log = logging.getLogger(__name__)
# By Pillow's numbers.
RESAMPLING = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# Where there is no preprocessor_config.json: the default of the family's image processor.
IMAGENET = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
CONVENTIONS: dict[str, dict[str, Any]] = {
    "vit": {"resize": "squash", "interpolation": "bilinear"},
    "siglip": {"resize": "squash", "interpolation": "bicubic"},
    "siglip2": {"resize": "squash", "interpolation": "bilinear"},
    "clip": {"mean": CLIP_MEAN, "std": CLIP_STD},
    "deit": {"resize": "squash", "crop_fraction": 0.875} | IMAGENET,
    "aimv2": {"mean": CLIP_MEAN, "std": CLIP_STD},
    "mlcd": {"mean": CLIP_MEAN, "std": CLIP_STD},
    "internvl": {"resize": "squash", "interpolation": "bicubic"} | IMAGENET,
    "intern_vit_6b": {"resize": "squash", "interpolation": "bicubic"} | IMAGENET,
    "beit": {"resize": "squash", "crop_fraction": 0.875, "interpolation": "bicubic"},
    "dinov2": {"crop_fraction": 0.875} | IMAGENET,
    "dinov3_vit": {"resize": "squash", "interpolation": "bilinear"} | IMAGENET,
    "vit_mae": {"resize": "squash", "interpolation": "bilinear"} | IMAGENET,
}


# Families whose processor takes one number for the shorter side; for all others it is a square.
SHORTER_SIDE = re.compile(r"CLIP|Bit")
CLIPS = ("metaclip_2", "chinese_clip", "altclip")  # by their model_type


def preprocessing_of(source: Source, config: ViTConfig) -> Preprocessing:
    """From preprocessor_config.json, or the family's convention, which is then said to be assumed."""
    described = source.preprocessor
    if not described:
        kind = re.sub("_vision(_model)?$|_with_registers$", "", str(source.config.get("model_type", "vit")))
        convention = CONVENTIONS.get("clip" if kind in CLIPS else kind, CONVENTIONS["vit"])
        return assumed_preprocessing(source, config, f"transformers' {kind}", **convention)
    try:
        fields = geometry(source, config.image_size)
        mean, std = (0.0,) * config.channels, (1.0,) * config.channels
        if described.get("do_normalize", True):
            mean, std = described["image_mean"], described["image_std"]
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


def geometry(source: Source, size: tuple[int, int]) -> dict[str, Any]:
    """How an image gets its size: both sides freely, or the shorter side; then perhaps cut to the center."""
    described = source.preprocessor
    if not described.get("do_resize", True):
        source.assumed.append(f"images are resized to {size[0]}x{size[1]}, where theirs must have this size")
        return {"resize": "squash"}
    resized, shorter = described.get("size", size[0]), None
    if isinstance(resized, int):
        kind = described.get("image_processor_type", described.get("feature_extractor_type", ""))
        shorter = resized if SHORTER_SIDE.search(str(kind)) else None
        resized = {"height": resized}
    shorter = resized.get("shortest_edge", shorter)
    height = cropped = shorter or resized["height"]
    if described.get("do_center_crop", False):
        crop = described.get("crop_size", size[0])
        sides = (crop["height"], crop["width"]) if isinstance(crop, dict) else (crop, crop)
        cropped, side = (min(sides), min(size)) if shorter else (sides[0], size[0])
        if cropped != side and "image_size" not in source.overrides:
            source.assumed.append(
                f"the center crop of {cropped} pixels is scaled to the {side} of the weights' positions "
                f"(or pass image_size={cropped})"
            )
    fraction = min(cropped / height, 1.0)
    return {
        "resize": "crop" if shorter else "squash",
        "crop_fraction": fraction,
        "crop_start": "floored" if shorter or fraction < 1 else "rounded",
    }


def preprocessor_config(preprocessing: Preprocessing) -> dict[str, Any]:
    """preprocessor_config.json for our preprocessing, with a warning where transformers has none like it."""
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


def labels_of(source: Source) -> list[str] | None:
    """The names of the classes, unless they are transformers' placeholders."""
    described = source.config.get("id2label")
    if not isinstance(described, dict) or not described:
        return None
    try:
        labels = [str(described[key]) for key in sorted(described, key=int)]
    except ValueError:
        return None
    return None if all(label == f"LABEL_{i}" for i, label in enumerate(labels)) else labels


# What the outputs of a head mean, as config.json's `problem_type` names it.
PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


def task_of(source: Source) -> str:
    """The task that config.json names; classification where it names none. Raises InputError: a problem_type
    that transformers does not have."""
    problem = source.config.get("problem_type")
    for ours, theirs in PROBLEMS.items():
        if problem in (None, theirs):
            return ours
    raise InputError(f"{source.where}: unknown problem_type {problem!r} in config.json")


def label_fields(model: Model) -> dict[str, Any]:
    """id2label, label2id and problem_type of config.json."""
    count = model.config.num_classes
    if count is None:
        return {}
    labels = model.labels or [f"LABEL_{i}" for i in range(count)]
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        **({"problem_type": PROBLEMS[model.task]} if model.task in PROBLEMS else {}),
    }
