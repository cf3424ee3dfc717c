"""The time of a command: one clock, from its beginning to its report."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

SLOWEST = 10.0  # times the processor time: what else waits is not known to go on


@dataclass(frozen=True)
class Clock:
    """When a command began, and how much processor time its process had used until then.

    Attributes:
        command: of the command that this process was started for; None where Python calls a function.
    """

    command: ClassVar[Clock | None] = None

    began: float = field(default_factory=time.perf_counter)
    used: float = field(default_factory=time.process_time)

    @classmethod
    def of_process(cls) -> Clock:
        """Return the clock of this process: on a busy machine with cold caches its imports take 20 s. Where
        the system does not say when it was started, it begins with its processor time."""
        began = time.perf_counter() - time.process_time()
        with suppress(OSError, ValueError, IndexError, AttributeError):  # Linux says it
            after_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")  # after the machine was
            began = min(began, time.perf_counter() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started))
        return cls(began, 0.0)

    @classmethod
    def of_call(cls) -> Clock:
        """Return the clock of the command that this process was started for, or else one from now on."""
        return cls.command or cls()

    @classmethod
    def after(cls, seconds: float) -> Clock:
        """Return the clock of a command that had taken so many seconds when it was interrupted."""
        return cls(time.perf_counter() - seconds, time.process_time() - seconds)

    @property
    def seconds(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self.began

    @property
    def slowness(self) -> float:
        """How much longer the command has taken than its processor time: more than 1 on a busy machine."""
        return min(max(self.seconds / max(time.process_time() - self.used, 0.1), 1.0), SLOWEST)
