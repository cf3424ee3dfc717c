"""Images that are files, mostly below one folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from vitreous.data.dataset import BadImage
from vitreous.data.decoding import decode
from vitreous.data.file_table import FileTable


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
