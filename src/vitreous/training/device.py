"""Where to train."""

from __future__ import annotations

import torch

from vitreous.errors import InputError


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the GPU where there is one.

    Raises:
        InputError: no such device, or it is not here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"--device {name}: there are {torch.cuda.device_count()} GPUs here; use cpu or auto")
    return device
