"""Threads that decode. Pillow, libjpeg-turbo and torch let go of the interpreter's lock while they work, so
that threads do what worker processes would, without a copy of the data set in each."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch

from vitreous.errors import InputError

T = TypeVar("T")
R = TypeVar("R")


def worker_count(asked: int | None) -> int:
    """As many as asked for, or one per core that this process may use.

    Raises:
        InputError: less than none is asked for.
    """
    if asked is not None and asked < 0:
        raise InputError(f"{asked} workers cannot be: ask for 1 or more, or leave it out for one per core")
    if asked is not None:
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool(threads: int) -> AbstractContextManager[Executor | None]:
    """Threads that end with the context; none for 0."""
    if not threads:
        return nullcontext()
    return ThreadPoolExecutor(threads, thread_name_prefix="vitreous-data", initializer=one_core)


def one_core() -> None:
    """torch's own threads inside each of ours would fight for the cores. Counts for this thread alone."""
    torch.set_num_threads(1)


def in_order(
    executor: Executor, function: Callable[[T], R], items: Iterable[T], *, ahead: int
) -> Iterator[R]:
    """function(item) for each item, in order, a few in the making. Not more than `ahead` are begun early, so
    that memory stays bounded; those are called off when the caller stops."""
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
