"""Labels of which any is right for an image, as of ImageNet ReaL (https://arxiv.org/abs/2006.07159)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from vitreous.errors import InputError, Param
from vitreous.outside import read_text

RealLabels = tuple[frozenset[int], ...]
FILE = TypeAdapter(list[frozenset[Annotated[int, Field(ge=0, strict=True)]]])
NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})")  # a name of ImageNet's validation images, from 1
IMAGENET = 1000  # classes, of which the numbers are: in the order of their WordNet ids


def read_real_labels(path: str | Path) -> RealLabels:
    """Return the labels of each validation image out of a file as real.json, which Beyer et al. have
    published: a list of the numbers of classes for every image, in the order of the images' names.

    Raises:
        InputError: no such file, or another content.
    """
    try:
        return tuple(FILE.validate_json(read_text(Path(path))))
    except OSError as error:
        raise InputError(f"{Param('real_labels')} {path} cannot be read: {error.strerror}") from None
    except (ValidationError, UnicodeDecodeError):
        raise InputError(
            f"{Param('real_labels')} {path} is not a list of lists of class numbers in JSON: give the file "
            "real.json of ImageNet ReaL"
        ) from None


def labels_of_images(labels: RealLabels, names: Iterable[str], classes: int) -> RealLabels:
    """Return the labels of images by their names.

    Raises:
        InputError: images that have no number among ImageNet's in their names, or classes that are not
            ImageNet's.
    """
    largest = max((max(each) for each in labels if each), default=0)
    if not largest < classes <= IMAGENET:
        raise InputError(
            f"{Param('real_labels')} has numbers of ImageNet's {IMAGENET} classes, up to {largest}, but the "
            f"model has {classes} classes: evaluate one that was fine-tuned on ImageNet-1k"
        )
    of_images = []
    for name in names:
        number = NUMBERED.search(name)
        if number is None or not 1 <= int(number[1]) <= len(labels):
            raise InputError(
                f"{name} is not among the {len(labels)} images of {Param('real_labels')}: these are found by "
                "the names of ImageNet's validation images, such as ILSVRC2012_val_00000293.JPEG"
            )
        of_images.append(labels[int(number[1]) - 1])
    if not any(of_images):
        raise InputError(f"{Param('real_labels')} has no label for any of these images: leave it out")
    return tuple(of_images)
