"""What processes that train together know of each other: which of them has died, and which one hangs.

A collective operation waits for all processes, so one that dies or hangs holds up all others, on GPUs in
silence. Here a thread in each process notes in torchrun's store that the process lives, at which step it is
and for how long its main thread has not moved, and ends the process when there is nothing to wait for.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import vitreous

BEAT = 1.0  # seconds between notes
SUSPICIOUS = 20.0  # seconds without a move of the main thread, after which the others are looked at
LOOK = 5.0  # seconds between looks
SILENT = 60.0  # seconds without a note, after which a process is taken for dead
NO_STORE = "the process that holds torchrun's store has ended"
LEFT = -1  # the beat of a process that has done its part
PACKAGE = str(Path(vitreous.__file__).parent)


class Note(NamedTuple):
    """What a process says of itself."""

    beat: int  # the number of the note
    progress: int  # twice the step that it is at, and one more while it computes a gradient
    idle: float  # seconds in which its main thread has not moved
    where: str  # the function of this package that it is in


class Watch:
    """Watches over the processes of a training, from a thread in each of them.

    Args:
        store: of torchrun; this thread's own connection.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.progress = 0  # as in `Note`
        self.patience = 600.0  # seconds in which no process moves, after which they hang
        self.advice: Callable[[], str] = str  # what to do after a failure, as the end of a sentence
        self.beat = 0
        self.position: tuple[Any, ...] = ()
        self.moved_at = time.monotonic()
        self.heard: dict[int, tuple[Note, float]] = {}  # the newest note of each process, since when
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self.note()
        self.thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        if error is None:  # the others need not wait for it
            self.store.set(f"vitreous/watch/{self.rank}", json.dumps(Note(LEFT, self.progress, 0.0, "")))

    def watch(self) -> None:
        """Note and look, until the training ends or fails."""
        looked_at = 0.0
        while not self.ended.wait(BEAT):
            try:
                idle = self.note()
                if idle < SUSPICIOUS or time.monotonic() - looked_at < LOOK:
                    continue
                looked_at = time.monotonic()
                found = self.problem(SILENT)
            except Exception:  # the store has gone, and with it torchrun or the first process
                found = self.rank, NO_STORE
            if found and not self.ended.is_set():
                self.fail(*found)

    def note(self) -> float:
        """Write this process's note. Return the seconds in which its main thread has not moved."""
        position, where = main_thread()
        now = time.monotonic()
        if (self.progress, *position) != self.position:
            self.position, self.moved_at = (self.progress, *position), now
        self.beat += 1
        note = Note(self.beat, self.progress, now - self.moved_at, where)
        self.store.set(f"vitreous/watch/{self.rank}", json.dumps(note))
        return note.idle

    def look(self) -> None:
        """Read the notes of all processes that have begun to write them."""
        now = time.monotonic()
        keys = {rank: f"vitreous/watch/{rank}" for rank in range(self.size)}
        known = {rank: key for rank, key in keys.items() if rank in self.heard or self.store.check([key])}
        for rank, text in zip(known, self.store.multi_get(list(known.values())), strict=True):
            note = Note(*json.loads(text))
            if rank not in self.heard or note.beat != self.heard[rank][0].beat:
                self.heard[rank] = note, now

    def problem(self, silent: float) -> tuple[int, str] | None:
        """Return the lowest process that lives, which reports, and a sentence about those that have been
        silent for so long, or about one that hangs; None where there is something to wait for."""
        self.look()
        now = time.monotonic()
        here = {rank: heard for rank, heard in self.heard.items() if heard[0].beat != LEFT}
        dead = [rank for rank, (_, since) in here.items() if now - since > silent and rank != self.rank]
        alive = {rank: note for rank, (note, _) in here.items() if rank not in dead}
        if dead:
            names = " and ".join(f"process {rank} of {self.size}" for rank in dead)
            step = self.heard[dead[0]][0].progress // 2
            return min(alive), f"{names} ended or does not answer, at step {step}"
        if min(note.idle for note in alive.values()) > self.patience:
            # The others wait for it in a collective operation.
            rank = min(alive, key=lambda rank: (alive[rank].progress, "distributed.py" in alive[rank].where))
            note = alive[rank]
            return min(alive), (
                f"no process has gone on for {self.patience / 60:g} minutes: process {rank} of {self.size} "
                f"hangs at step {note.progress // 2} in {note.where}"
            )
        return None

    def explain(self) -> str:
        """Return a sentence about the processes that this one has lost; empty where there are none, and for
        all but the first of those that are left, so that it is said once."""
        for _ in range(8):
            try:
                found = self.problem(3 * BEAT)
            except Exception:  # the store has gone
                found = self.rank, NO_STORE
            if found:
                reporter, sentence = found
                return self.in_words(sentence) if reporter == self.rank else ""
            time.sleep(BEAT)
        return ""

    def fail(self, reporter: int, found: str) -> None:
        """End this process, whose main thread cannot."""
        if reporter == self.rank:
            print(f"vitreous: {self.in_words(found)}", file=sys.stderr, flush=True)
        os._exit(1)

    def in_words(self, found: str) -> str:
        return f"{found}: training stopped; {self.advice()}"


def main_thread() -> tuple[tuple[int, ...], str]:
    """Return the main thread's frames, and the innermost one of this package in words."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    position, where = list[int](), ""
    while frame:
        position += [id(frame.f_code), frame.f_lasti]
        if not where and frame.f_code.co_filename.startswith(PACKAGE):
            file = Path(frame.f_code.co_filename).relative_to(PACKAGE)
            where = f"{frame.f_code.co_qualname} ({file.as_posix()}:{frame.f_lineno})"
        frame = frame.f_back
    return tuple(position), where
