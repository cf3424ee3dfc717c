"""Threads and processes that work for others: in order, a few items ahead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from vitreous.errors import InputError, LazyModule, Param
from vitreous.outside import number_of_launcher

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")

QUEUED = 64  # items whose results wait for those before them
MANY = 64  # items, for which it pays to start processes
ORPHANED = 2.0  # seconds between looks whether the process that a worker works for is still there

T = TypeVar("T")
R = TypeVar("R")


def worker_count(asked: int | None) -> int:
    """Return the number of workers asked for; None: one for each core that this process may use. Raises
    InputError: the number is negative.

    By default they are threads, which do what processes would without a copy of the dataset in each: Pillow,
    libjpeg-turbo and torch release the interpreter's lock while they work.
    """
    if asked is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if asked < 0:
        raise InputError(
            f"the number of workers is {asked}: pass 0 or more, or leave it out for one per core"
        )
    return asked


def processes_here() -> int:
    """Return how many processes of torchrun share this machine."""
    return number_of_launcher("LOCAL_WORLD_SIZE", 1, low=1)


def loading_workers(asked: int | None) -> int:
    """Return the number of workers asked for; None: this process's share of the cores."""
    return max(worker_count(None) // processes_here(), 1) if asked is None else worker_count(asked)


def pool(threads: int) -> AbstractContextManager[Executor | None]:
    """Return threads that end with the context; None for 0."""
    if not threads:
        return nullcontext()
    torch.get_num_threads()  # a thread that torch has not counted cores for gets the number of `one_core`
    return ThreadPoolExecutor(threads, thread_name_prefix="vitreous-data", initializer=one_core)


def one_core() -> None:
    """Keep torch from starting threads inside each of ours, where they would compete for the cores."""
    if "torch" in sys.modules:
        torch.set_num_threads(1)


def in_threads(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    workers: int | None = None,
    initializer: Callable[[], None] | None = None,
) -> Iterator[R]:
    """Yield function(item) for each item, in order, computed by threads; a few are started early.
    initializer: is called in each thread; `one_core` where they compute with torch."""
    with ThreadPoolExecutor(worker_count(workers) or 1, initializer=initializer) as executor:
        yield from map_in_order(executor, function, items, ahead=QUEUED)


def in_processes(function: Callable[[T], R], items: Sequence[T], *, workers: int | None) -> Iterator[R]:
    """Yield function(item) for each item, in order: computed by processes where there are many, for what
    Python itself computes and threads could not share."""
    if len(items) < MANY or (count := worker_count(workers)) < 2:
        yield from in_threads(function, items, workers=workers)
        return
    with forked(count, function) as executor:
        yield from map_in_order(executor, in_worker, items, ahead=QUEUED)


def map_in_order(
    executor: Executor, function: Callable[[T], R], items: Iterable[T], *, ahead: int
) -> Iterator[R]:
    """Yield function(item) for each item, in order. At most `ahead` are started early, so that memory stays
    bounded; they are canceled when the caller stops. Raises InputError: a worker process ended."""
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            "a worker process that reads data died, perhaps for lack of memory: use fewer "
            f"({Param('workers')}), or threads (data.reading.processes=false)"
        ) from None
    finally:
        for future in pending:
            future.cancel()


work: Callable[[Any], Any]  # in a worker process: what it does


def forked(count: int, function: Callable[[T], R]) -> ProcessPoolExecutor:
    """Return processes in which `in_worker` is `function`, forked from this one so that they share its
    memory: an index or a cache of images is not copied. Raises InputError: this system has none."""
    if "fork" not in multiprocessing.get_all_start_methods():
        raise InputError(
            "worker processes need a system that can fork: set data.reading.processes=false, for threads"
        )
    functions = [function]
    executor = ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("fork"),
        initializer=begin_worker,
        initargs=(functions, os.getpid()),
    )
    # Python warns that there are threads, which a worker does not need.
    with warnings.catch_warnings(action="ignore"):
        executor.submit(os.getpid).result()  # all of them are forked now
    # The function is forgotten here, so that its object does not live longer for it.
    functions.clear()
    return executor


def begin_worker(functions: list[Callable[[Any], Any]], parent: int) -> None:
    """Prepare a worker process. It ends with the process that it works for, also where that is killed."""
    global work
    work = functions[0]
    one_core()
    # Ctrl-C reaches all processes, and the one that trains decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHANED)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def in_worker(item: object) -> Any:
    """Call the function of this worker process."""
    return work(item)
