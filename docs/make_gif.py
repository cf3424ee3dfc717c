"""The animation of the README: the first screen of `vitreous learn`, and the model that the page trains.

python docs/make_gif.py    # writes docs/learn.gif; needs playwright and a Chromium (CHROMIUM=/path/to/it)
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

import vitreous as vt

GIF = Path(__file__).with_name("learn.gif")
PREVIEW = Path(__file__).with_name("learn.png")  # what a link to the site shows
SIZE = {"width": 1280, "height": 760}
SHRUNK = (896, 532)
STEPS = 300  # of the training that is shown


def frames(tab: Any) -> Iterator[tuple[bytes, int]]:
    """Screenshots, and how long each is shown, in milliseconds."""

    def shot(milliseconds: int) -> tuple[bytes, int]:
        tab.wait_for_timeout(300)
        return tab.screenshot(), milliseconds

    for depth in range(5):  # the answer forms, layer by layer
        tab.evaluate(f"() => update({{ depth: {depth}, layer: {max(0, depth - 1)} }})")
        yield shot(650)
    box = tab.locator("#sight-canvas").bounding_box()
    for column, row in ((0, 0), (1, 1), (2, 1), (2, 2), (1, 3)):  # what patches attend to
        tab.mouse.move(
            box["x"] + (column + 0.5) * box["width"] / 4, box["y"] + (row + 0.5) * box["height"] / 4
        )
        yield shot(550)
    tab.mouse.move(2, 2)
    tab.click("#stage-head-2")
    yield shot(700)
    tab.click("#stage-head-2")
    tab.check("#stage-positions")
    yield shot(900)
    tab.check("#stage-shuffled")
    yield shot(900)
    tab.uncheck("#stage-positions")
    tab.uncheck("#stage-shuffled")
    tab.click("#train-open")
    tab.select_option("#practice-total", str(STEPS))
    tab.evaluate("() => byId('training').scrollIntoView({ behavior: 'instant' })")
    tab.click("#practice-run")
    for step in range(2, STEPS + 1, 24):
        tab.wait_for_function(f"() => practice.steps >= {step}")
        yield shot(260)
    tab.wait_for_function(f"() => practice.steps >= {STEPS}")
    yield shot(1800)


def main() -> None:
    from playwright.sync_api import sync_playwright

    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        page = vt.learn(out=Path(folder) / "learn.html", language="en").page
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE, color_scheme="light")
        tab.set_default_timeout(300_000)
        tab.goto(page.as_uri())
        tab.wait_for_timeout(500)
        PREVIEW.write_bytes(tab.screenshot(clip={"x": 0, "y": 0, "width": 1280, "height": 672}))
        images, times = [], []
        for png, milliseconds in frames(tab):
            image = Image.open(io.BytesIO(png)).convert("RGB").resize(SHRUNK, Image.Resampling.LANCZOS)
            images.append(image.quantize(160, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
            times.append(milliseconds)
        browser.close()
    images[0].save(GIF, save_all=True, append_images=images[1:], duration=times, loop=0, optimize=True)
    print(GIF, f"{GIF.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
