"""The code in the page is the program that a reader can read: kernel.js holds kernel.wat, compiled."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import pytest
from tests.addons.learn_page.programs import FOLDER

NAMES = 0  # A section of names is for debuggers; wabt writes none.


def sections(code: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the content of each section of a WebAssembly module (its specification, 5.5.2)."""
    assert code[:8] == b"\0asm\1\0\0\0"
    place = 8
    while place < len(code):
        kind = code[place]
        place += 1
        size = shift = 0
        while code[place] >= 128:  # LEB128: 7 bits in each byte, the last one below 128
            size |= (code[place] - 128) << shift
            shift += 7
            place += 1
        size |= code[place] << shift
        place += 1
        yield kind, code[place : place + size]
        place += size


@pytest.mark.slow
def test_the_kernel_of_the_page_is_its_source_compiled() -> None:
    from wasmtime import wat2wasm

    compiled = bytes(wat2wasm((FOLDER / "kernel.wat").read_text("utf-8")))
    program = (FOLDER / "kernel.js").read_text("utf-8")
    constant = re.search(r"const KERNEL =\n(.*?);", program, re.DOTALL)
    assert constant is not None
    kept = base64.b64decode("".join(re.findall(r'"([^"]*)"', constant[1])))
    assert list(sections(kept)) == [section for section in sections(compiled) if section[0] != NAMES]
