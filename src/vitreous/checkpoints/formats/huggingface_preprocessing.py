"""Preprocessing and labels of Hugging Face models: preprocessor_config.json and config.json's id2label."""

from __future__ import annotations

import re
from typing import Any

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import assumed_preprocessing
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

# By Pillow's numbers.
RESAMPLING = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# Where there is no preprocessor_config.json: the default of the family's image processor.
CONVENTIONS: dict[str, dict[str, Any]] = {
    "vit": {"resize": "squash", "interpolation": "bilinear"},
    "siglip": {"resize": "squash", "interpolation": "bicubic"},
    "clip": {"mean": CLIP_MEAN, "std": CLIP_STD},
    "deit": {"resize": "squash", "crop_fraction": 0.875, "mean": IMAGENET_MEAN, "std": IMAGENET_STD},
    "dinov2": {"crop_fraction": 0.875, "mean": IMAGENET_MEAN, "std": IMAGENET_STD},
    "vit_mae": {"resize": "squash", "interpolation": "bilinear", "mean": IMAGENET_MEAN, "std": IMAGENET_STD},
}


def preprocessing_of(source: Source, config: ViTConfig) -> tuple[Preprocessing, tuple[str, ...]]:
    """From preprocessor_config.json, or the family's convention, which is then said to be assumed."""
    described = source.preprocessor
    if not described:
        kind = re.sub("_vision_model$|_with_registers$", "", str(source.config.get("model_type", "vit")))
        convention = CONVENTIONS.get(kind, CONVENTIONS["vit"])
        return assumed_preprocessing(config, f"transformers' {kind}", **convention)
    try:
        fields = geometry(described, config.image_size)
        if described.get("do_normalize", True):
            fields |= {"mean": tuple(described["image_mean"]), "std": tuple(described["image_std"])}
        else:
            fields |= {"mean": (0.0,) * config.channels, "std": (1.0,) * config.channels}
        fields["interpolation"] = RESAMPLING[described.get("resample", 2)]
        return Preprocessing(size=config.image_size, channels=config.channels, **fields), ()
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        raise InputError(f"{source.where}: preprocessor_config.json is not understood") from None


def geometry(described: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """How an image gets its size: both sides freely, or the shorter side; then perhaps cut to the center."""
    resized = described.get("size", size[0])
    shortest = resized.get("shortest_edge") if isinstance(resized, dict) else None
    height = shortest or (resized["height"] if isinstance(resized, dict) else resized)
    cropped = height
    if described.get("do_center_crop", False):
        crop = described.get("crop_size", size[0])
        cropped = crop["height"] if isinstance(crop, dict) else crop
    return {"resize": "crop" if shortest else "squash", "crop_fraction": min(cropped / height, 1.0)}


def preprocessor_config(preprocessing: Preprocessing) -> dict[str, Any]:
    """preprocessor_config.json for our preprocessing."""
    height, width = preprocessing.size
    tall, wide = (round(side / preprocessing.crop_fraction) for side in preprocessing.size)
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
    """The task that config.json names; classification where it names none.

    Raises:
        InputError: a problem_type that transformers does not have.
    """
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
