"""With how many threads PyTorch computes on a CPU: one for each core, or one alone where other programs use
the cores and several threads would mostly wait for each other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from vitreous.languages.terminal import said
from vitreous.training.distributed import ALONE, World

# One thread is taken where its steps take less than this part of the time: the last bits of a result depend
# on the number of threads, so that a small gain is not worth it.
MARGIN = 0.8
# Processors, of whose time a step with several threads must have had less for one thread to be tried: on an
# idle machine that step would only be slow.
CROWDED = 1.5
ROUNDS = 2  # steps that are timed with several threads and with one, in turns
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # in which a user says how many


class Threads:
    """The threads that compute steps of about equal length. Within `with threads:` each step is computed in
    `with threads.step():`, and afterwards PyTorch has as many threads as before.

    The first step is not timed, since it allocates memory. Where the second had less than 1.5 processors, the
    next steps have one thread and several in turns, and all later ones what was faster.

    Args:
        tell: called with a sentence where one thread is taken.
        tries: whether one thread is tried where there are several.
        clock, used: return seconds since any moment, and those of processors that this process has used.

    Attributes:
        chosen: 1, or None for as many as there are.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = lambda sentence: None,
        *,
        tries: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        self.tell, self.tries, self.clock, self.used = tell, tries, clock, used
        self.chosen: int | None = None
        self.several = torch.get_num_threads()
        self.steps = 0
        self.seconds = {1: 0.0, self.several: 0.0}

    def keep(self, chosen: int | None) -> None:
        """Compute as an earlier session of a training did, so that it goes on to the same bits."""
        self.tries, self.chosen = False, chosen

    def __enter__(self) -> None:
        self.several = torch.get_num_threads()
        self.tries &= self.several > 1
        torch.set_num_threads(self.chosen or self.several)

    def __exit__(self, *exception: object) -> None:
        torch.set_num_threads(self.several)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Compute a step within this context."""
        if not self.tries:
            yield
            return
        threads = 1 if self.steps and self.steps % 2 == 0 else self.several
        torch.set_num_threads(threads)
        began, used = self.clock(), self.used()
        yield
        seconds, used = self.clock() - began, self.used() - used
        if self.steps:
            self.seconds[threads] = self.seconds.get(threads, 0.0) + seconds
        self.steps += 1
        if self.steps == 2 and used > CROWDED * seconds:
            self.tries = False
        elif self.steps > 2 * ROUNDS:
            self.choose()

    def choose(self) -> None:
        """Take one thread where it was faster."""
        self.tries = False
        several, one = self.seconds[self.several], self.seconds[1]
        if one < MARGIN * several:
            self.chosen = 1
            self.tell(
                said(
                    "computing with one thread, {factor:.1f} times as fast as with {count} here: other "
                    "programs use the cores",
                    factor=several / max(one, 1e-9),
                    count=self.several,
                )
            )
        torch.set_num_threads(self.chosen or self.several)


def threads_for(
    device: torch.device,
    tell: Callable[[str], object] = lambda sentence: None,
    *,
    world: World = ALONE,
    fixed: bool = False,
) -> Threads:
    """Return the threads of a computation: one thread is tried on a CPU, by a process that is alone, where
    the user has set no number.

    Args:
        fixed: whether the number must not depend on time.
    """
    free = device.type == "cpu" and world.size == 1 and not fixed
    return Threads(tell, tries=free and not any(os.environ.get(name) for name in VARIABLES))
