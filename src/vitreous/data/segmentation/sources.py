"""DATA of --task segmentation, as it is written on the command line, to images with masks."""

from __future__ import annotations

from pathlib import Path

from vitreous.data.config import DataConfig
from vitreous.data.segmentation.digit_pages import CLASSES, DIGIT_PAGES, open_digit_pages
from vitreous.data.segmentation.folders import LAYOUT, listed, open_masked_folder
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.errors import InputError


def open_masked(spec: str, config: DataConfig, *, classes: tuple[str, ...] | None = None) -> MaskSplits:
    """The parts of a source.

    Args:
        spec: "digit-pages", or a folder of images and masks.
        classes: those that a model knows; the source's must be these.

    Raises:
        InputError: nothing of these, or what `open_masked_folder` raises.
    """
    if spec == DIGIT_PAGES:
        if classes not in (None, CLASSES):
            raise InputError(f"{DIGIT_PAGES} has other classes than the model, which knows {listed(classes)}")
        return open_digit_pages(config)
    root = Path(spec).expanduser()
    if not root.is_dir():
        raise InputError(f"there is no folder {spec}: give {DIGIT_PAGES}, or a folder: {LAYOUT}")
    return open_masked_folder(root, config, classes=classes)
