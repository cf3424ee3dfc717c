"""What the README says of a page is on its screen when it opens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
READMES = {"README.md": ("draw a digit", "choose an image"), "README.ko.md": ("숫자를 그리", "이미지를 넣")}


def promised(name: str) -> tuple[str, list[str]]:
    """Return the README's sentence on `vitreous learn`, and the commands below it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.search(r"^([^\n]*)\n+```sh\n(vitreous learn.*?)```", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[1], [line.partition("#")[0].strip() for line in found[2].splitlines()]


@pytest.mark.parametrize("name", READMES)
def test_a_digit_is_drawn_and_an_image_is_chosen(
    name: str, browser: Any, folder: Path, tmp_path: Path
) -> None:
    """The commands as printed. The page without a run has a pad, on which strokes change the answer; that of
    a run has its own images."""
    sentence, commands = promised(name)
    assert all(words in sentence for words in READMES[name])
    (tmp_path / "photos").symlink_to(folder / "photos")
    for command in commands:
        words = [sys.executable, "-m", *command.split()]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    drawn = browser.new_page()
    drawn.goto((tmp_path / "learn.html").as_uri())
    before = drawn.evaluate("() => Array.from(trace.logits)")
    pad = drawn.locator("#stage-pad").bounding_box()
    drawn.mouse.move(pad["x"] + pad["width"] / 2, pad["y"] + pad["height"] / 5)
    drawn.mouse.down()
    drawn.mouse.move(pad["x"] + pad["width"] / 2, pad["y"] + 4 * pad["height"] / 5, steps=8)
    drawn.mouse.up()
    drawn.wait_for_function("before => Array.from(trace.logits).some((x, i) => x != before[i])", arg=before)
    drawn.close()
    own = browser.new_page()
    own.goto((tmp_path / "runs" / "vit" / "learn.html").as_uri())
    assert own.locator("#stage-samples button").count() > 0
    assert {"apples", "pears"} <= set(own.evaluate("() => DATA.labels"))
    own.close()
