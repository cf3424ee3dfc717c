"""The time of a command: one clock, from its beginning to its report."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SLOWEST = 10.0  # times the processor time: what else waits is not known to go on


@dataclass(frozen=True)
class Clock:
    """When a command began, and how much processor time its process had used until then."""

    began: float = field(default_factory=time.perf_counter)
    used: float = field(default_factory=time.process_time)

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
