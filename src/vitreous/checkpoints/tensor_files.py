"""Tensors to files. Whatever stands in the way, a full disk or a folder that takes no files, is an OSError
whose `strerror` says what, as it is for every other file."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def write_safetensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises OSError where the file cannot be written."""
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path)) from error


def write_torch(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises OSError where the file cannot be written."""
    with path.open("wb") as file:
        try:
            torch.save(dict(tensors), file)
        except RuntimeError as error:  # PyTorch's archive was cut short, and does not say by what
            reason = "the file cannot be written whole; is the disk full?"
            raise OSError(errno.EIO, reason, str(path)) from error
