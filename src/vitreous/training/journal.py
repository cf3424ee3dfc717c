"""A run's numbers over time: metrics.jsonl, and TensorBoard's event file beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vitreous.training.state import write_text

Row = Mapping[str, float | int]


@runtime_checkable
class Tracker(Protocol):
    """Somewhere that numbers are sent to."""

    def write(self, row: Row) -> None: ...
    def close(self) -> None: ...


class MetricsFile:
    """metrics.jsonl: one JSON object for each entry, with `step` and `epoch` in each."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Lines behind `step` are dropped: a run that goes on writes them again."""
        self.path = path
        kept = [row for row in read_metrics(path) if row["step"] <= step]
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))

    def write(self, row: Row) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """Every line is on its way to the disk already."""


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


class TensorBoard:
    """Scalars in TensorBoard's own format, without importing TensorFlow."""

    def __init__(self, folder: Path, *, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary = Event, Summary
        self.writer = EventFileWriter(str(folder))
        if step:  # TensorBoard then forgets what an earlier session wrote behind this step
            log = SessionLog(status=SessionLog.START)
            self.writer.add_event(Event(wall_time=time.time(), step=step + 1, session_log=log))

    def write(self, row: Row) -> None:
        values = [
            self.summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "step"
        ]
        self.writer.add_event(
            self.event(wall_time=time.time(), step=int(row["step"]), summary=self.summary(value=values))
        )

    def close(self) -> None:
        self.writer.close()
