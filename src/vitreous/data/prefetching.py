"""Batches on the device: moved once, as bytes, while the model still computes; then transformed there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import count
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from vitreous.data.dataset import BadFiles
from vitreous.data.loading import BatchLoader, in_order, pool

BatchT = TypeVar("BatchT", bound=tuple[Any, ...])
Transform = Callable[[BatchT, int, int], BatchT]


class DevicePrefetcher(Generic[BatchT]):
    """The batches of a loader, on a device and transformed. Iterating gives one epoch, as for evaluation.

    On a CUDA device a batch is pinned by a thread, copied and transformed on a stream of its own while the
    model computes the batch before it. Elsewhere a batch is transformed when it is asked for.

    Args:
        loader: yields NamedTuples on the CPU; what is not a tensor in them stays there.
        transform: changes a batch, given (batch, epoch, step); None: nothing.
    """

    def __init__(
        self,
        loader: BatchLoader[BatchT],
        transform: Transform[BatchT] | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.loader, self.device = loader, torch.device(device)
        self.transform = transform.to(self.device) if isinstance(transform, torch.nn.Module) else transform

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch

    @property
    def bad(self) -> BadFiles:
        """The samples that could not be read."""
        return self.loader.bad

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[BatchT]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Generator[BatchT]:
        """Yield the batches of an epoch from step `start` on.

        Raises:
            InputError: over 1 % of the training samples cannot be read.
        """
        with closing(self.loader.epoch(number, start)) as batches:
            steps = zip(count(start), batches, strict=False)
            if self.device.type == "cuda":
                yield from self.ahead_on_stream(number, steps)
            else:
                for step, batch in steps:
                    yield self.transformed(moved(batch, self.device), number, step)

    def ahead_on_stream(self, epoch: int, steps: Iterable[tuple[int, BatchT]]) -> Iterator[BatchT]:
        """Yield each batch when the copy of the next one has been issued."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        waiting: tuple[BatchT, torch.cuda.Event] | None = None
        with pool(1) as thread:
            assert thread is not None
            for step, batch in in_order(thread, pinned, steps, ahead=1):
                with torch.cuda.stream(stream):
                    batch = self.transformed(moved(batch, self.device), epoch, step)
                    ready = stream.record_event()
                if waiting is not None:
                    yield self.received(*waiting)
                waiting = batch, ready
            if waiting is not None:
                yield self.received(*waiting)

    def received(self, batch: BatchT, ready: torch.cuda.Event) -> BatchT:
        """Return a batch that the current stream may use; its memory is not given away before that stream is
        done."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(ready)
        for each in batch:
            if isinstance(each, Tensor) and each.is_cuda:
                each.record_stream(stream)
        return batch

    def transformed(self, batch: BatchT, epoch: int, step: int) -> BatchT:
        return batch if self.transform is None else self.transform(batch, epoch, step)


def moved(batch: BatchT, device: torch.device) -> BatchT:
    """Return a NamedTuple with its tensors on a device."""
    return type(batch)(
        *(each.to(device, non_blocking=True) if isinstance(each, Tensor) else each for each in batch)
    )


def pinned(numbered: tuple[int, BatchT]) -> tuple[int, BatchT]:
    """Return (step, batch) with the batch's tensors in page-locked memory, from which copies are
    asynchronous."""
    step, batch = numbered
    return step, type(batch)(*(each.pin_memory() if isinstance(each, Tensor) else each for each in batch))
