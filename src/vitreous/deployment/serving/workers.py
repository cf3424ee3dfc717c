"""Several processes that serve at one address. They share its socket, and the weights on a CPU; one that dies
is started again, and on SIGHUP others take their place, once those have answered what they accepted."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from prometheus_client.multiprocess import mark_process_dead
from torch import nn

from vitreous.checkpoints.whole_files import whole
from vitreous.data.workers import worker_count
from vitreous.deployment.serving.guard import SHARED
from vitreous.deployment.serving.running import PATIENCE
from vitreous.errors import InputError

log = logging.getLogger(__name__)
WEIGHTS = "VITREOUS_SHARED_WEIGHTS"  # the folder of several processes for their weights
GRACE = 10  # seconds beyond `PATIENCE` for a process to end
LOOK = 0.2  # seconds between two looks at processes and signals

About = dict[str, Any]
Serve = Callable[[socket.socket, Callable[[About], None]], None]


class Stopped(Exception):
    """SIGTERM came."""


class Worker(NamedTuple):
    """A process that serves, and what it says: what it serves, once it does, or why it cannot."""

    process: BaseProcess
    says: Connection

    def stop(self) -> None:
        """Ask it to answer what it has accepted, and to end."""
        self.process.terminate()


class Workers:
    """The processes that serve.

    Args:
        serve: runs in each of them, given the socket and what to call with what is served.
        count: how many.
    """

    def __init__(self, serve: Serve, opened: socket.socket, count: int) -> None:
        self.serve, self.opened, self.count = serve, opened, count
        self.now: list[Worker] = []
        self.leaving: list[Worker] = []
        self.asked: list[int] = []  # signals
        self.weights = TemporaryDirectory(prefix="vitreous-weights-")

    def start(self, count: int) -> list[tuple[Worker, About]]:
        """Start processes and wait until they serve. Raises InputError where one cannot."""
        context = get_context("spawn")
        made = []
        for _ in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=work, args=(self.serve, self.opened, theirs))
            process.start()
            theirs.close()
            made.append(Worker(process, mine))
        try:
            return [(each, self.hear(each)) for each in made]
        except BaseException:
            for each in made:
                each.stop()
            self.leaving += made
            raise

    def start_all(self) -> About:
        """Start all processes again. The first one opens the models; the others take its weights."""
        weights = TemporaryDirectory(prefix="vitreous-weights-")
        os.environ[WEIGHTS] = weights.name
        started: list[tuple[Worker, About]] = []
        try:
            started += self.start(1)
            started += self.start(self.count - 1)
        except BaseException:
            os.environ[WEIGHTS] = self.weights.name  # what runs is kept, and started again with its weights
            self.leaving += [worker for worker, _ in started]
            for worker, _ in started:
                worker.stop()
            raise
        self.leaving += self.now
        for worker in self.now:
            worker.stop()
        self.now, about = [worker for worker, _ in started], started[0][1]
        self.weights.cleanup()  # of those before; who has mapped them keeps them
        self.weights = weights
        return about

    def hear(self, worker: Worker) -> About:
        """Wait for what a new process says."""
        while not worker.says.poll(LOOK):
            if signal.SIGTERM in self.asked:
                raise Stopped
        try:
            said = worker.says.recv()
        except EOFError:
            raise InputError("a process of the server ended before it answered; the log says why") from None
        if isinstance(said, str):
            raise InputError(said)
        about: About = said
        return about

    def watch(self) -> None:
        """Keep the processes going, until SIGTERM."""
        while signal.SIGTERM not in self.asked:
            connection.wait([each.process.sentinel for each in self.now], LOOK)
            self.bury()
            for each in [each for each in self.now if not each.process.is_alive()]:
                log.error("process %d of the server ended (%s)", each.process.pid, each.process.exitcode)
                self.now.remove(each)
                self.leaving.append(each)
            try:
                if signal.SIGHUP in self.asked:
                    self.asked.remove(signal.SIGHUP)
                    self.start_all()
                    log.warning("the models are loaded again")
                elif missing := self.count - len(self.now):  # those that could not be started before, too
                    time.sleep(1)
                    self.now += [worker for worker, _ in self.start(missing)]
            except InputError as error:
                log.error("%s; what runs is kept", error)
            except Stopped:
                return

    def bury(self) -> None:
        """Forget those that have ended."""
        for each in [each for each in self.leaving if not each.process.is_alive()]:
            self.leaving.remove(each)
            each.says.close()
            mark_process_dead(each.process.pid, os.environ[SHARED])  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Let all answer what they have accepted."""
        self.leaving += self.now
        self.now = []
        for each in self.leaving:
            each.stop()
        until = time.monotonic() + PATIENCE + GRACE
        for each in self.leaving:
            each.process.join(max(until - time.monotonic(), 0))
            each.process.kill()
        self.weights.cleanup()


def supervise(serve: Serve, opened: socket.socket, count: int, *, ready: Callable[[About], None]) -> None:
    """Serve by several processes, until SIGTERM or Ctrl-C. SIGHUP loads the models again.

    Args:
        serve: can be pickled.
        ready: called with what is served, once all processes do.

    Raises:
        InputError: what cannot be served.
    """
    environment = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", WEIGHTS)}
    os.environ.setdefault("OMP_NUM_THREADS", str(max(worker_count(None) // count, 1)))
    workers = Workers(serve, opened, count)
    before = {
        number: signal.signal(number, lambda number, frame: workers.asked.append(number))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        ready(workers.start_all())
        workers.watch()
    except Stopped:
        pass
    finally:
        workers.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
        for name, value in environment.items():  # as it was, for what this process does next
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


@contextmanager
def shared_counters() -> Iterator[None]:
    """A folder in which processes share their counters. It has to be there before they import the library."""
    with TemporaryDirectory(prefix="vitreous-metrics-") as folder:
        os.environ[SHARED] = folder
        try:
            yield
        finally:
            del os.environ[SHARED]


def work(serve: Serve, opened: socket.socket, says: Connection) -> None:
    """Serve in a process of its own. It ends like on SIGTERM when the one that started it is gone."""
    os.setpgid(0, 0)  # else Ctrl-C comes from the terminal as well

    def follow() -> None:
        try:
            says.recv()
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGTERM)

    def ready(about: About) -> None:
        says.send(about)
        threading.Thread(target=follow, daemon=True).start()

    try:
        serve(opened, ready)
    except InputError as error:
        says.send(str(error))


def share_weights(model: nn.Module, number: int) -> None:
    """Let a model on a CPU use the weights that another process has written, mapped into memory once for all;
    or write them. Nothing is done outside of such processes."""
    if WEIGHTS not in os.environ:
        return
    path = Path(os.environ[WEIGHTS]) / f"{number}.pt"
    if not path.exists():
        with whole(path) as partial:
            torch.save(model.state_dict(), partial)
    model.load_state_dict(torch.load(path, mmap=True, weights_only=True), assign=True)
