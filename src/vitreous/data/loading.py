"""Batches for every task, in training and in evaluation: read by threads, deterministic in (seed, epoch,
step)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from vitreous.data.dataset import BadFiles, BadImage, Indices
from vitreous.data.sampling import Rows, Sampler
from vitreous.errors import InputError
from vitreous.rng import numpy_generator

AHEAD = 3  # batches in the making while the model works
CHUNK = 8  # samples that a thread takes at a time
ASSEMBLERS = 2  # threads that put batches together, so that one's decoding fills the other's gaps

BatchT = TypeVar("BatchT")
T = TypeVar("T")
R = TypeVar("R")


class BatchLoader(Generic[BatchT]):
    """Batches on the CPU: images as bytes, nothing moved to a device.

    Batch `step` of an epoch depends on (seed, epoch, step) alone, so that `epoch(number, start=step)`
    continues exactly where another run stopped, without reading what came before. What belongs to one sample
    depends on (seed, epoch, index) and not on the number of processes.

    A training sample that cannot be read is replaced by the next good one of its batch; over 1 % of them are
    an error. In evaluation (`Sampler.exact`) it is left out. Both are recorded in `bad`.

    Args:
        sampler: which samples each batch has.
        read_sample: returns the sample of (index, generator). Raises BadImage.
        collate: returns the batch of (samples, their indices, the whole batch's rows).
        workers: threads that read; 0: the caller's. Nothing is copied for them.
        seed: of the samples' generators; None where `read_sample` needs no generator (it is given None).
        bad: where samples that cannot be read are recorded.
        prepare: is called with (bad, the threads) before the first batch, and returns whether everything is
            then in memory, where threads would only slow down.
    """

    def __init__(
        self,
        sampler: Sampler,
        read_sample: Callable[[int, Any], Any],
        collate: Callable[[Sequence[Any], Indices, Rows], BatchT],
        workers: int = 0,
        *,
        seed: int | None = None,
        bad: BadFiles | None = None,
        prepare: Callable[[BadFiles, Executor | None], bool] | None = None,
    ) -> None:
        self.sampler, self.read_sample, self.collate, self.workers = sampler, read_sample, collate, workers
        self.seed, self.prepare = seed, prepare
        self.bad = BadFiles() if bad is None else bad

    @property
    def steps_per_epoch(self) -> int:
        return self.sampler.steps_per_epoch

    def epoch(self, number: int, start: int = 0) -> Generator[BatchT]:
        """Yield this process's rows of the batches of an epoch from step `start` on.

        Raises:
            InputError: over 1 % of the training samples cannot be read.
        """
        with pool(self.workers) as executor:
            in_memory = self.prepare is not None and self.prepare(self.bad, executor)
            steps = self.sampler.epoch(number, start)
            with pool(0 if executor is None or in_memory else ASSEMBLERS) as assemblers:
                if assemblers is None:
                    batches: Iterable[BatchT | None] = map(self.batch, steps)
                else:
                    make = partial(self.batch, executor=executor)
                    batches = in_order(assemblers, make, steps, ahead=AHEAD)
                yield from (batch for batch in batches if batch is not None)

    def batch(self, rows: Rows, executor: Executor | None = None) -> BatchT | None:
        """Return one batch; None if nothing of it can be read in evaluation."""
        indices = rows.indices[rows.mine]
        samples = self.read(rows.epoch, indices, rows.copies[rows.mine], executor)
        good = np.array([not isinstance(sample, BadImage) for sample in samples], dtype=bool)
        for sample in samples:
            if isinstance(sample, BadImage):
                self.bad.add(sample)
        if self.sampler.exact:
            places = np.flatnonzero(good)
        else:
            self.bad.check(self.sampler.count)
            places = stand_ins(good)
        if not len(places):
            return None
        return self.collate([samples[place] for place in places], indices[places], rows)

    def read(self, epoch: int, indices: Indices, copies: Indices, executor: Executor | None) -> list[Any]:
        """Return a sample, or BadImage, for each index: several at a time where there are threads."""
        rows = list(zip(indices.tolist(), copies.tolist(), strict=True))
        if executor is None:
            return [self.sample(epoch, *row) for row in rows]
        parts = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
        read = executor.map(lambda part: [self.sample(epoch, *row) for row in part], parts)
        return [sample for part in read for sample in part]

    def sample(self, epoch: int, index: int, copy: int) -> Any:
        """Return one sample, or what was wrong with it: an exception would end the reading of the others."""
        rng = None if self.seed is None else numpy_generator(self.seed, "sample", epoch, index, copy)
        try:
            return self.read_sample(index, rng)
        except BadImage as bad:
            return bad


def stand_ins(good: NDArray[np.bool_]) -> Indices:
    """Return for each place of a batch itself if it is good, or the next good one; after the last, the
    first."""
    places = np.flatnonzero(good)
    if not len(places):
        raise InputError("no image of a whole batch can be read: see the list with `vitreous data check`")
    return places[np.searchsorted(places, np.arange(len(good))) % len(places)]


def worker_count(asked: int | None) -> int:
    """Return the number of threads asked for; None: one for each core that this process may use.

    Threads do what worker processes would, without a copy of the dataset in each: Pillow, libjpeg-turbo and
    torch release the interpreter's lock while they work.

    Raises:
        InputError: the number is negative.
    """
    if asked is not None and asked < 0:
        raise InputError(
            f"the number of workers is {asked}: pass 0 or more, or leave it out for one per core"
        )
    if asked is not None:
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool(threads: int) -> AbstractContextManager[Executor | None]:
    """Return threads that end with the context; None for 0."""
    if not threads:
        return nullcontext()
    return ThreadPoolExecutor(threads, thread_name_prefix="vitreous-data", initializer=one_core)


def one_core() -> None:
    """Keep torch from starting threads of its own inside each of ours, where they would compete for the
    cores."""
    torch.set_num_threads(1)


def in_order(
    executor: Executor, function: Callable[[T], R], items: Iterable[T], *, ahead: int
) -> Iterator[R]:
    """Yield function(item) for each item, in order. At most `ahead` are started early, so that memory stays
    bounded; they are canceled when the caller stops."""
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
