"""The folder of a state that several processes have written, by PyTorch's distributed checkpoints (DCP): each
process writes its own shares, and any other number of processes reads what it needs of them.

The storage is DCP's safetensors form, since its own holds pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SHARES = ".shares"  # how the name of such a folder ends


def write_shares(folder: Path, tensors: Mapping[str, Tensor]) -> str:
    """Every process writes its shares. Why they could not be written, the same in every process; empty if
    they were."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer)
    except CheckpointException as error:
        return "; ".join(f"process {rank}: {why[0]}" for rank, why in sorted(error.failures.items()))
    return ""


def read_whole(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a state that several processes have written, put together in this one alone."""
    return read_shares(folder, lambda _, size, dtype: torch.empty(size, dtype=dtype), together=False)


def read_shares(
    folder: Path, room: Callable[[str, torch.Size, torch.dtype], Tensor], *, together: bool = True
) -> dict[str, Tensor]:
    """The tensors of a folder, each read into the room that is made for it.

    Args:
        together: whether all processes read, each into its shares.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    stored: dict[str, Any] = reader.read_metadata().state_dict_metadata
    tensors = {name: room(name, each.size, each.properties.dtype) for name, each in stored.items()}
    load(tensors, storage_reader=reader, no_dist=not together)
    return tensors
