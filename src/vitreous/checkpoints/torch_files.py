"""PyTorch's own files (.pth, .pt, .bin): state dicts, read without running what a pickle may hold."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.checkpoints.files import Entry, Tensors
from vitreous.errors import InputError

# Where training code puts the weights among the rest of its state; the first that is there is taken.
WRAPPINGS = ("state_dict_ema", "model_ema", "state_dict", "model", "model_state_dict", "teacher")


def read_torch(path: Path) -> Tensors:
    """The tensors of a PyTorch file.

    Raises:
        InputError: it is damaged, holds anything but plain tensors and containers, or no state dict.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
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


def is_plain(tensor: Tensor) -> bool:
    """Dense, in memory, and not larger than what is stored of it."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def entry(tensor: Tensor) -> Entry:
    return Entry(tuple(tensor.shape), lambda: tensor)


def unwrapped(loaded: Any) -> dict[str, Tensor] | None:
    """The state dict among what was loaded, without the prefix that DistributedDataParallel gives."""
    if not isinstance(loaded, Mapping):
        return None
    tensors = {name: value for name, value in loaded.items() if isinstance(value, Tensor)}
    if not tensors:
        inner = (unwrapped(loaded[name]) for name in WRAPPINGS if name in loaded)
        return next((state for state in inner if state), None)
    if not all(isinstance(name, str) for name in tensors):
        return None
    prefix = "module." if all(name.startswith("module.") for name in tensors) else ""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def write_torch(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises OSError where the file cannot be written."""
    with path.open("wb") as file:
        try:
            torch.save(dict(tensors), file)
        except RuntimeError as error:  # PyTorch's archive was cut short, and does not say by what
            reason = "the file cannot be written whole; is the disk full?"
            raise OSError(errno.EIO, reason, str(path)) from error
