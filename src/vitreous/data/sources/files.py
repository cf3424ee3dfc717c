"""Images that are files, mostly below one folder, and their paths in little memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.dataset import BadImage
from vitreous.data.decoding import decode


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


class FileImages:
    """Files named in a table, read when asked for."""

    def __init__(self, root: Path, table: FileTable, targets: NDArray[Any], classes: tuple[str, ...]) -> None:
        self.root = str(root)
        self.table = table
        self.targets = targets
        self.classes = classes

    def __len__(self) -> int:
        return len(self.table)

    def name(self, index: int) -> str:
        return os.path.join(self.root, self.table[index])  # a manifest may have absolute paths

    def encoded(self, index: int) -> bytes:
        name = self.name(index)
        try:
            with open(name, "rb") as file:
                return file.read()
        except OSError as error:
            raise BadImage(name, error.strerror or str(error)) from error

    def image(self, index: int) -> Image.Image:
        return decode(self.encoded(index), self.name(index))
