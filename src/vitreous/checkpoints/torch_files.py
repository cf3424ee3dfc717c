"""State dicts in PyTorch's own files (.pth, .pt, .bin), read without running what a pickle may hold; and how
these and safetensors are written."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from vitreous.checkpoints.files import Entry, Tensors
from vitreous.errors import InputError

# Where training code puts the weights among the rest of its state; the first that is there is taken.
WRAPPINGS = (
    *("state_dict_ema", "model_ema", "ema_state_dict", "state_dict", "model", "model_state_dict", "net"),
    *("teacher", "student"),
)
# Classes of training code's settings beside the weights; making one runs nothing.
HARMLESS: list[Any] = [argparse.Namespace]
log = logging.getLogger(__name__)


def read_torch(path: Path) -> Tensors:
    """The tensors of a PyTorch file.

    Raises:
        InputError: it is damaged, holds anything but plain tensors and containers, or no state dict.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        if zipped and is_torchscript(path):
            raise InputError(
                f"{path} is a TorchScript archive, a program: save the state dict of the module that "
                "torch.jit.load makes of it, and load that"
            )
        with torch.serialization.safe_globals(HARMLESS):
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except InputError:
        raise
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds Python objects and not only tensors, or is damaged: save a state dict instead"
        ) from None
    except Exception:  # damaged bytes can make this parser fail in any way
        raise InputError(f"{path} is a damaged PyTorch file") from None
    state = unwrapped(loaded)
    if state is None:
        raise InputError(f"{path} holds no state dict: names and their tensors")
    if other := [name for name, tensor in state.items() if not is_plain(tensor)]:
        raise InputError(f"{path}: {other[0]!r} is not a plain tensor with all of its numbers in the file")
    return Tensors({name: entry(tensor) for name, tensor in state.items()})


def is_torchscript(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def is_plain(tensor: Tensor) -> bool:
    """Dense, in memory, and not larger than what is stored of it."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def entry(tensor: Tensor) -> Entry:
    return Entry(tuple(tensor.shape), lambda: tensor)


def unwrapped(loaded: Any) -> dict[str, Tensor] | None:
    """The state dict among what was loaded."""
    if not isinstance(loaded, Mapping):
        return None
    inner = {name: unwrapped(loaded[name]) for name in WRAPPINGS if isinstance(loaded.get(name), Mapping)}
    if found := [name for name, state in inner.items() if state]:
        if len(found) > 1:
            log.warning("the weights under %r are taken, not those under %s", found[0], ", ".join(found[1:]))
        return inner[found[0]]
    tensors = {name: value for name, value in loaded.items() if isinstance(value, Tensor)}
    return tensors if tensors and all(isinstance(name, str) for name in tensors) else None


def write_torch(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises OSError where the file cannot be written."""
    with path.open("wb") as file:
        try:
            torch.save(dict(tensors), file)
        except RuntimeError as error:  # PyTorch's archive was cut short, and does not say by what
            reason = "the file cannot be written whole; is the disk full?"
            raise OSError(errno.EIO, reason, str(path)) from error


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


def write_state_dict(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A state dict alone: safetensors where the ending says so, PyTorch's own file otherwise."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    (write_safetensors if path.suffix == ".safetensors" else write_torch)(tensors, path)
