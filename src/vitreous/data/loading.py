"""Batches for every task, read by threads or processes, deterministic in (seed, epoch, step); then moved to
the device, as bytes, while the model still computes, and transformed there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from vitreous.data.dataset import Indices
from vitreous.data.sampling import Order
from vitreous.data.workers import forked, in_worker, map_in_order, pool
from vitreous.errors import InputError, Param
from vitreous.models.stored import BadImage, Stored
from vitreous.rng import numpy_generator
from vitreous.whole_files import write_text

AHEAD = 3  # batches in the making while the model works
CHUNK = 8  # samples that a thread takes at a time
# In bad_files.txt these begin what is said of an image that is read all the same.
DAMAGED, LOST = "damaged: ", "not seen by the model: its "
MOST = 0.5  # of the images that cannot be read, beyond which there is nothing to go on with
ASSEMBLERS = 2  # threads that put batches together, so that one's decoding fills the other's gaps

BatchT = TypeVar("BatchT", bound=tuple[Any, ...])
Transform = Callable[[BatchT, int, int], BatchT]


class Sample(NamedTuple):
    """An image that could be read, as a batch is made of it.

    value: its pixels, with what else belongs to it. damage: what is wrong with it all the same, if
    something is. lost: what of it the model cannot see, if anything: see `Stored.lost`.
    """

    value: Any
    name: str
    damage: str | None = None
    lost: str | None = None

    @classmethod
    def of(cls, value: Any, image: Stored) -> Sample:
        """Return a sample of an image that has been decoded."""
        return cls(value, image.name, image.damage, image.lost)


@dataclass(eq=False, kw_only=True)
class BadFiles:
    """The images that could not be read, those that are damaged, and those of which the model cannot see all,
    each once; and when to stop because of the first."""

    ALWAYS_ALLOWED = 3  # in a set of 50 one is already 2%
    MOST_LOST = 100_000  # names of images of which the model cannot see all

    # The part of an epoch of which more is too much; up to three files never are, unless it is 0.
    allowed: float = 0.01
    reasons: dict[str, str] = field(default_factory=dict, init=False)  # by name
    damaged: dict[str, str] = field(default_factory=dict, init=False)  # read all the same: what is wrong
    lost: dict[str, str] = field(default_factory=dict, init=False)  # what of an image the model cannot see

    def __len__(self) -> int:
        return len(self.reasons)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.reasons.items())

    def add(self, bad: BadImage) -> None:
        """Remember an image. Raises InputError if none is allowed."""
        if not self.allowed:
            raise InputError(
                f"{bad.name} cannot be read ({bad.reason}): fix or remove it, or drop {Param('strict')}"
            )
        self.reasons.setdefault(bad.name, bad.reason)

    def note(self, sample: object) -> None:
        """Remember what is wrong with a sample: that it cannot be read, or that it is damaged."""
        if isinstance(sample, BadImage):
            self.add(sample)
        elif isinstance(sample, Sample):
            if sample.damage is not None:
                self.damaged[sample.name] = sample.damage
            if sample.lost is not None and len(self.lost) < self.MOST_LOST:
                self.lost[sample.name] = sample.lost

    def copy(self) -> BadFiles:
        """Return the same, to which threads do not add any more."""
        found = BadFiles(allowed=self.allowed)
        found.merge(self)
        return found

    def merge(self, other: BadFiles) -> None:
        """Remember what another loader has seen, too."""
        self.reasons |= other.reasons.copy()
        self.damaged |= other.damaged.copy()
        self.lost |= other.lost.copy()

    def check(self, images: int) -> None:
        """Raise InputError, with the list, if too many of `images` were bad."""
        if len(self) > max(self.allowed * images, self.ALWAYS_ALLOWED):
            first = "; ".join(f"{name} ({reason})" for name, reason in list(self)[:20])
            more = f"; and {len(self) - 20} more" if len(self) > 20 else ""
            share = math.ceil(100 * len(self) / images) / 100
            going_on = (
                f", or set data.reading.bad_files={share:g} to continue without them" if share <= MOST else ""
            )
            raise InputError(
                f"{len(self)} of {images} images cannot be read, more than {100 * self.allowed:g}%: fix or "
                f"remove them (vitreous data check DATA --quarantine FOLDER){going_on}: {first}{more}"
            )

    def write(self, path: Path) -> None:
        """Write one line for each, name and reason, for the run's bad_files.txt; nothing if there are
        none."""
        lines = [f"{name}\t{reason}\n" for name, reason in self]
        for begin, notes in ((DAMAGED, self.damaged), (LOST, self.lost)):
            lines += [f"{name}\t{begin}{what}\n" for name, what in sorted(notes.items())]
        if lines:
            write_text(path, "".join(lines))


class BatchRows(NamedTuple):
    """One batch of all processes. mine: the part of it that belongs to this process."""

    epoch: int
    step: int
    indices: Indices
    copies: Indices
    mine: slice


class Sampler:
    """The batches of each epoch, which all processes share; without a last one that is not full, but for
    `exact`.

    Args:
        order: of the samples in an epoch, by the epoch's number; the same in every process.
        count: samples in an epoch.
        batch_size: rows of a whole batch, a multiple of `world_size`.
        exact: for evaluation, in one process: every sample comes exactly once, and none is replaced.

    Raises:
        InputError: there are fewer samples than one batch needs.
    """

    def __init__(
        self,
        order: Callable[[int], Order],
        count: int,
        *,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        exact: bool = False,
    ) -> None:
        if count < batch_size and not exact:
            raise InputError(
                f"a batch of {batch_size} is more than the {count} training samples: set "
                f"training.batch_size to at most {max(count // world_size, 1) * world_size}"
            )
        self.order, self.count, self.batch_size, self.exact = order, count, batch_size, exact
        share = batch_size // world_size
        self.mine = slice(rank * share, (rank + 1) * share)
        self.steps_per_epoch = -(-count // batch_size) if exact else count // batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[BatchRows]:
        """Yield the batches of an epoch from step `start` on."""
        order = self.order(number)
        for step in range(start, self.steps_per_epoch):
            rows = slice(step * self.batch_size, (step + 1) * self.batch_size)
            indices = order.indices[rows]
            copies = np.zeros_like(indices) if order.copies is None else order.copies[rows]
            yield BatchRows(number, step, indices, copies, self.mine)


class BatchLoader(Generic[BatchT]):
    """Batches on the CPU: images as bytes, nothing moved to a device.

    Batch `step` of an epoch depends on (seed, epoch, step) alone, so that `epoch(number, start=step)`
    continues exactly where another run stopped, without reading what came before. What belongs to one sample
    depends on (seed, epoch, index) and not on the number of processes.

    A training sample that cannot be read is replaced by the next good one of its batch; too many of them are
    an error. In evaluation (`Sampler.exact`) it is left out. Both are recorded in `bad`.

    Args:
        sampler: which samples each batch has.
        read_sample: returns the sample of (index, generator). Raises BadImage.
        collate: returns the batch of (samples, their indices, the whole batch's rows).
        workers: threads that read; 0: the caller's. Nothing is copied for them.
        processes: whether they are processes instead, which make whole batches: for small images and many
            operations on each, whose Python code threads cannot run at the same time.
        seed: of the samples' generators; None where `read_sample` needs no generator (it is given None).
        bad: where samples that cannot be read are recorded.
        in_memory: whether everything is in memory, where threads would only slow down.
    """

    def __init__(
        self,
        sampler: Sampler,
        read_sample: Callable[[int, np.random.Generator | None], object],
        collate: Callable[[Sequence[Any], Indices, BatchRows], BatchT],
        workers: int = 0,
        *,
        processes: bool = False,
        seed: int | None = None,
        bad: BadFiles | None = None,
        in_memory: bool = False,
    ) -> None:
        self.sampler, self.read_sample, self.collate, self.workers = sampler, read_sample, collate, workers
        self.seed, self.in_memory = seed, in_memory
        self.processes = processes and workers > 0 and not in_memory
        self.bad = BadFiles() if bad is None else bad
        self.steps_per_epoch = sampler.steps_per_epoch

    def epoch(self, number: int, start: int = 0) -> Generator[BatchT]:
        """Yield this process's rows of the batches of an epoch from step `start` on. Raises InputError: too
        many of the training samples cannot be read."""
        with pool(0 if self.in_memory else self.workers) as executor:
            steps = self.sampler.epoch(number, start)
            if self.processes:
                made = map_in_order(self.worker_processes, in_worker, steps, ahead=self.workers + AHEAD)
                for batch, bad in made:
                    self.bad.merge(bad)
                    if bad.reasons and not self.sampler.exact:
                        self.bad.check(self.sampler.count)
                    if batch is not None:
                        yield batch
                return
            with pool(0 if executor is None else ASSEMBLERS) as assemblers:
                if assemblers is None:
                    batches: Iterable[BatchT | None] = map(self.batch, steps)
                else:
                    make = partial(self.batch, executor=executor)
                    batches = map_in_order(assemblers, make, steps, ahead=AHEAD)
                for batch in batches:
                    if batch is not None:
                        yield batch

    @cached_property
    def worker_processes(self) -> Executor:
        """Processes that make batches, from the first epoch on; they end with this loader."""
        executor = forked(self.workers, self.batch_and_bad)
        weakref.finalize(self, executor.shutdown, wait=False, cancel_futures=True)
        return executor

    def batch_and_bad(self, rows: BatchRows) -> tuple[BatchT | None, BadFiles]:
        """Return a batch, and what could not be read or is damaged, in this process up to now."""
        return self.batch(rows), self.bad

    def batch(self, rows: BatchRows, executor: Executor | None = None) -> BatchT | None:
        """Return one batch; None if nothing of it can be read in evaluation."""
        indices = rows.indices[rows.mine]
        samples = self.read(rows.epoch, indices, rows.copies[rows.mine], executor)
        good = np.ones(len(samples), dtype=bool)
        for place, sample in enumerate(samples):
            self.bad.note(sample)
            good[place] = not isinstance(sample, BadImage)
        places = np.flatnonzero(good)
        # The next good image takes the place of a bad one; after the last comes the first.
        if not self.sampler.exact:
            self.bad.check(self.sampler.count)
            if not len(places):
                raise InputError(
                    "not a single image of a batch can be read: list the bad ones with `vitreous data check`"
                )
            places = places[np.searchsorted(places, np.arange(len(good))) % len(places)]
        if not len(places):
            return None
        return self.collate([samples[place] for place in places], indices[places], rows)

    def read(self, epoch: int, indices: Indices, copies: Indices, executor: Executor | None) -> list[object]:
        """Return a sample, or BadImage, for each index: several at a time where there are threads."""

        def some(rows: list[tuple[int, int]]) -> list[object]:
            return [self.sample(epoch, index, copy) for index, copy in rows]

        rows = list(zip(indices.tolist(), copies.tolist(), strict=True))
        if executor is None:
            return some(rows)
        parts = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
        return list(chain.from_iterable(executor.map(some, parts)))

    def sample(self, epoch: int, index: int, copy: int) -> object:
        """Return one sample, or what was wrong with it: an exception would end the reading of the others."""
        rng = None if self.seed is None else numpy_generator(self.seed, "sample", epoch, index, copy)
        try:
            return self.read_sample(index, rng)
        except BadImage as bad:
            return bad


class DevicePrefetcher(Generic[BatchT]):
    """The batches of a loader, on a device and transformed. Iterating gives one epoch, as for evaluation.

    On a CUDA device a batch is pinned by a thread, copied and transformed on a stream of its own while the
    model computes the batch before it. Elsewhere a batch is transformed when it is asked for.

    Args:
        loader: yields NamedTuples on the CPU; what is not a tensor in them stays there.
        transform: changes a batch, given (batch, epoch, step).
    """

    def __init__(
        self, loader: BatchLoader[BatchT], transform: Transform[BatchT], device: str | torch.device
    ) -> None:
        self.loader, self.device = loader, torch.device(device)
        self.transform = transform.to(self.device) if isinstance(transform, torch.nn.Module) else transform
        self.steps_per_epoch = loader.steps_per_epoch
        self.bad = loader.bad  # the samples that could not be read

    def __iter__(self) -> Iterator[BatchT]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Generator[BatchT]:
        """Yield the batches of an epoch from step `start` on. Raises InputError: too many of the training
        samples cannot be read."""
        with closing(self.loader.epoch(number, start)) as batches:
            if self.device.type == "cuda":
                yield from self.ahead_on_stream(number, enumerate(batches, start))
            else:
                for step, batch in enumerate(batches, start):
                    yield self.transformed(batch, number, step)

    def ahead_on_stream(self, epoch: int, steps: Iterable[tuple[int, BatchT]]) -> Iterator[BatchT]:
        """Yield each batch when the copy of the next one has been issued."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        waiting: tuple[BatchT, torch.cuda.Event] | None = None
        with pool(1) as thread:
            assert thread is not None
            for step, batch in map_in_order(thread, pinned, steps, ahead=1):
                with torch.cuda.stream(stream):
                    batch = self.transformed(batch, epoch, step)
                    ready = stream.record_event()
                if waiting is not None:
                    yield self.received(*waiting)
                waiting = batch, ready
            if waiting is not None:
                yield self.received(*waiting)

    def received(self, batch: BatchT, ready: torch.cuda.Event) -> BatchT:
        """Return a batch that the current stream may use, and whose memory stays until that is done."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(ready)
        for each in batch:
            if isinstance(each, Tensor) and each.is_cuda:
                each.record_stream(stream)
        return batch

    def transformed(self, batch: BatchT, epoch: int, step: int) -> BatchT:
        """Return a batch on the device, and what the transform makes of it."""
        batch = with_tensors(batch, lambda each: each.to(self.device, non_blocking=True))
        return self.transform(batch, epoch, step)


def with_tensors(batch: BatchT, change: Callable[[Tensor], Tensor]) -> BatchT:
    """Return a NamedTuple with its tensors changed."""
    return type(batch)(*(change(each) if isinstance(each, Tensor) else each for each in batch))


def pinned(numbered: tuple[int, BatchT]) -> tuple[int, BatchT]:
    """Return (step, batch) with tensors in page-locked memory, from which copies are asynchronous."""
    step, batch = numbered
    return step, with_tensors(batch, Tensor.pin_memory)
