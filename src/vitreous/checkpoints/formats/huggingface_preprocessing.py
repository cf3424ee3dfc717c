"""Preprocessing and labels of Hugging Face models: preprocessor_config.json and config.json's id2label."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import as_pair, assumed_preprocessing
from vitreous.checkpoints.formats.huggingface_configs import processors, towers
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


# The image processors that are known here go by the name of their class without its ending; their defaults
# are in the table of `huggingface_configs`.
ENDING = re.compile("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$")
# Of a model whose description names none: by its model_type.
USUAL = {"beit": "Beit", "data2vec": "Beit", "deit": "DeiT", "dinov2": "Bit", "siglip": "Siglip"}
USUAL |= {"siglip2": "Siglip2", "dinov3_vit": "DINOv3ViT", "clip": "CLIP", "blip": "Blip", "dpt": "DPT"}
# Of a processor for the fields that change what is computed, the value that is known here.
ONLY = {
    **dict.fromkeys(("do_pad", "keep_aspect_ratio", "rescale_offset", "do_flip_channel_order"), False),
    **dict.fromkeys(("do_thumbnail", "do_align_long_axis", "do_image_splitting"), False),
    "crop_pct": None,
    "ensure_multiple_of": 1,
}
CLIPS = ("metaclip_2", "chinese_clip", "altclip")  # by their model_type


def preprocessing_of(source: Source, config: ViTConfig) -> Preprocessing:
    """From preprocessor_config.json, or the family's convention, which is then said to be assumed."""
    kind = re.sub("[-_]vision(_model)?$|_with_registers$", "", str(source.config.get("model_type", "vit")))
    described = complete(source, kind)
    if not described:
        convention = CONVENTIONS.get("clip" if kind in CLIPS else kind, CONVENTIONS["vit"])
        return assumed_preprocessing(source, config, f"transformers' {kind}", **convention)
    try:
        fields = geometry(source, described, config.image_size)
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


def complete(source: Source, kind: str) -> dict[str, Any]:
    """preprocessor_config.json with the defaults of its own class for what it leaves out; empty where there
    is none, or in a larger model where it is of a class that is not known here.

    Raises:
        InputError: the class, or a field of it, is not known here.
    """
    described = {name: value for name, value in source.preprocessor.items() if value is not None}
    if not described:
        return {}
    named = described.get("image_processor_type", described.get("feature_extractor_type"))
    name = ENDING.sub("", str(named)) if named else USUAL.get("clip" if kind in CLIPS else kind, "ViT")
    if name not in processors():
        if next(towers(source.config), None) is not None:
            source.assumed.append(f"the preprocessing of its tower, as {named} is not known here")
            return {}
        raise InputError(
            f"{source.where}: the {named} of preprocessor_config.json is not known here, only "
            f"{', '.join(processors())}: give the file one of them, or remove it"
        )
    complete = processors()[name] | described
    for field, only in ONLY.items():
        if complete.get(field, only) != only:
            raise InputError(
                f"{source.where}: {field}={complete[field]!r} of preprocessor_config.json is not known here, "
                f"only {only!r}"
            )
    complete["shorter"] = "shortest_edge" in processors()[name].get("size", {})  # that one number means
    return complete


def cropped_size(source: Source) -> tuple[int, int] | None:
    """The size of the images that preprocessor_config.json makes, whatever that of the table of positions is:
    transformers' Dinov2 resamples the table for it. None where it says none."""
    described = source.preprocessor
    crop = described.get("crop_size") if described.get("do_center_crop") else described.get("size")
    sides = (crop.get("height"), crop.get("width")) if isinstance(crop, dict) else (crop, crop)
    return as_pair(sides)


def geometry(source: Source, described: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """How an image gets its size: both sides freely, or the shorter side; then perhaps cut to the center."""
    if not described.get("do_resize", True):
        source.assumed.append(f"images are resized to {size[0]}x{size[1]}, where theirs must have this size")
        return {"resize": "squash"}
    resized, shorter = described.get("size", size[0]), None
    if isinstance(resized, int):
        shorter = resized if described["shorter"] else None
        resized = {"height": resized}
    shorter = resized.get("shortest_edge", shorter)
    if not shorter and "height" not in resized:
        raise InputError(f"{source.where}: size={resized!r} of preprocessor_config.json is not known here")
    height = cropped = shorter or resized["height"]
    other = height if shorter else resized.get("width", height)
    if described.get("do_center_crop", False):
        crop = described.get("crop_size", size[0])
        sides = (crop["height"], crop["width"]) if isinstance(crop, dict) else (crop, crop)
        cropped, side = (min(sides), min(size)) if shorter else (sides[0], size[0])
        if shorter and sides[0] != sides[1]:
            source.assumed.append(
                f"the crop of {sides[0]}x{sides[1]} pixels is taken of an image that covers it, where "
                "transformers' may be smaller and get black borders"
            )
        elif sides[0] > height or sides[1] > other or sides[0] * other != sides[1] * height:
            raise InputError(
                f"{source.where}: crop_size={sides} of an image of size={resized!r} is not known here: the "
                "crop is to be no larger than the image, and of the same shape"
            )
        follows = str(source.config.get("model_type")).startswith("dinov2")
        if cropped != side and "image_size" not in source.overrides and not follows:
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


def naflex_preprocessor_config(look: Mapping[str, Any], config: ViTConfig) -> dict[str, Any]:
    """The description of images as SigLIP 2 takes them, each in its own aspect ratio."""
    shared = {name: look[name] for name in ("do_normalize", "image_mean", "image_std", "resample")}
    return shared | {
        "image_processor_type": "Siglip2ImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "patch_size": config.patch_size[0],
        "max_num_patches": config.grid[0] * config.grid[1],
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
