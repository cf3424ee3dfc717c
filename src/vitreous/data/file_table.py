"""The paths of very many files in little memory: packed bytes, not a Python string for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class FileTable:
    """Paths relative to a root, numbered from 0. Arrays, so that nothing is copied for threads or forks."""

    def __init__(self, names: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.names = names
        self.ends = ends

    @classmethod
    def of(cls, paths: Iterable[str]) -> FileTable:
        """From relative paths; bytes that are no UTF-8 (file systems allow them) survive."""
        parts = [path.encode("utf-8", "surrogateescape") for path in paths]
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return cls(np.frombuffer(b"".join(parts), dtype=np.uint8), np.cumsum(lengths))

    @classmethod
    def concatenate(cls, tables: Sequence[FileTable]) -> FileTable:
        """One table after the other."""
        starts = np.cumsum([0, *(len(table.names) for table in tables)])
        ends = [table.ends + start for table, start in zip(tables, starts, strict=False)]
        return cls(np.concatenate([table.names for table in tables]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return self.names[start : int(self.ends[index])].tobytes().decode("utf-8", "surrogateescape")

    @property
    def nbytes(self) -> int:
        return self.names.nbytes + self.ends.nbytes
