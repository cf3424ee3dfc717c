"""Ctrl-C and SIGTERM: the running step is finished, the state saved, then the run ends."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):
    """Training was asked to stop. The state is saved; `step` is its step."""

    def __init__(self, step: int) -> None:
        super().__init__(f"interrupted at step {step}")
        self.step = step


class StopRequest:
    """While this context is open, the first Ctrl-C or SIGTERM sets `made`; the second stops at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.made = False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self.before = {number: signal.signal(number, self.note) for number in self.SIGNALS}
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.made:
            raise KeyboardInterrupt
        self.made = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
