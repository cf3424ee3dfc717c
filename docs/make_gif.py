"""The animation of the README in each language: a hand draws a digit on the page of `vitreous learn`, and
shows what the model on photographs looks at.

python docs/make_gif.py    # writes docs/learn.gif and docs/learn.ko.gif; needs playwright and a Chromium
                           # (CHROMIUM=/path/to/it) with a Korean font
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

GIFS = {"en": Path(__file__).with_name("learn.gif"), "ko": Path(__file__).with_name("learn.ko.gif")}
PREVIEW = Path(__file__).with_name("learn.png")  # what a link to the site shows
SIZE = {"width": 1280, "height": 760}
SHRUNK = (896, 532)
COLORS = 128
# Two strokes of a hand that draws a four, in parts of the drawing area.
STROKES = (
    ((0.58, 0.12), (0.48, 0.28), (0.37, 0.44), (0.26, 0.60), (0.42, 0.61), (0.58, 0.61), (0.76, 0.60)),
    ((0.60, 0.38), (0.59, 0.55), (0.59, 0.72), (0.58, 0.90)),
)
LOOKED_AT = ((1, 1), (4, 2), (3, 4))  # columns and rows of patches of the photograph
STEPS = {
    2: (0.2, 0.45, 0.7, 1.0),
    3: (0.4, 0.7, 1.0),
    6: (0.4, 0.7, 1.0),
    8: (0.3, 0.6, 1.0),
    10: (0.5, 0.7, 1.0),
}
# A hand that points, where the mouse is: a screenshot has no pointer.
HAND = """() => {
  const hand = document.createElement("div");
  hand.innerHTML = `<svg width="44" height="52" viewBox="0 0 22 26"><path d="M7 2.2c1.1 0 1.9.8 1.9 1.9v7l.5
    -.1V9.6c0-1 .8-1.7 1.7-1.7s1.7.7 1.7 1.7v1.1c.2-.8.9-1.4 1.7-1.4 1 0 1.7.8 1.7 1.7v1c.3-.5.8-.8 1.4-.8.9 0
    1.6.7 1.6 1.6v4.6c0 4-2.6 6.5-6.3 6.5-3.2 0-4.7-1.2-6.2-3.6L2.3 15c-.5-.9-.3-1.8.4-2.3.8-.5 1.7-.3 2.3.4
    l.1.2V4.1C5.1 3 5.9 2.2 7 2.2z" fill="#fff" stroke="#1c2429" stroke-width="1.3"/></svg>`;
  hand.style.cssText = "position:fixed;z-index:99;pointer-events:none;left:-99px;top:0;margin:-5px 0 0 -14px";
  document.body.append(hand);
  addEventListener("pointermove", (event) => {
    hand.style.left = `${event.clientX}px`;
    hand.style.top = `${event.clientY}px`;
  }, true);
}"""
Frame = tuple[bytes, int]  # a screenshot, and the milliseconds for which it is shown


def shot(tab: Any, milliseconds: int) -> Frame:
    tab.wait_for_timeout(120)
    return tab.screenshot(), milliseconds


def drawing(tab: Any) -> Iterator[Frame]:
    """A digit is drawn, and the answer changes under the pen."""
    tab.click("#stage-clear")
    yield shot(tab, 500)
    box = tab.locator("#stage-pad").bounding_box()
    for stroke in STROKES:
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        tab.mouse.move(*places[0])
        tab.mouse.down()
        for place in places[1:]:
            tab.mouse.move(*place, steps=3)
            yield shot(tab, 140)
        tab.mouse.up()
    yield shot(tab, 1200)


def looking(tab: Any) -> Iterator[Frame]:
    """A photograph: what patches attend to, a finger that covers some, and the story."""
    tab.mouse.move(120, 300)
    yield shot(tab, 900)
    box = tab.locator("#sight-canvas").bounding_box()

    def to(column: int, row: int) -> None:
        tab.mouse.move(
            box["x"] + (column + 0.5) * box["width"] / 7, box["y"] + (row + 0.5) * box["height"] / 7
        )

    for column, row in LOOKED_AT:
        to(column, row)
        yield shot(tab, 750)
    tab.click("#touch-cover")
    for row in range(1, 6):
        for column in range(1, 6) if row % 2 else range(5, 0, -1):
            to(column, row)
            if (column, row) == (1, 1):
                tab.mouse.down()
        yield shot(tab, 260)
    tab.mouse.up()
    yield shot(tab, 1200)
    tab.click("#uncover")
    tab.click("#touch-look")
    tab.mouse.move(2, 2)
    for step, moments in STEPS.items():
        tab.evaluate("(step) => update({ step })", step)
        tab.wait_for_function("(step) => story.shown === STORY[step - 1].id", arg=step)
        for at in moments:
            tab.evaluate(
                "(at) => { cancelAnimationFrame(story.frame); story.frame = 0; moment(story.c, at); }", at
            )
            yield shot(tab, 1700 if at == 1 else 220)


def animation(browser: Any, language: str) -> tuple[list[Image.Image], list[int]]:
    """Return the images of the animation in a language, and the milliseconds for which each is shown."""
    images, times = [], []
    with TemporaryDirectory() as folder:
        for model, frames in {"digits": drawing, "photo": looking}.items():
            page = vt.learn(model, out=Path(folder) / f"{model}.html", language=language).page
            tab = browser.new_page(viewport=SIZE, color_scheme="light")
            tab.set_default_timeout(300_000)
            tab.goto(page.as_uri() + f"#lang={language}")
            tab.wait_for_timeout(1000)
            if (model, language) == ("photo", "en"):
                PREVIEW.write_bytes(tab.screenshot(clip={"x": 0, "y": 0, "width": 1280, "height": 672}))
            tab.evaluate(HAND)
            for png, milliseconds in frames(tab):
                image = Image.open(io.BytesIO(png)).convert("RGB")
                images.append(image.resize(SHRUNK, Image.Resampling.LANCZOS))
                times.append(milliseconds)
            tab.close()
    return images, times


def write_gif(path: Path, images: list[Image.Image], times: list[int]) -> None:
    # One palette for all: what does not change between two images is then equal in both, and is stored once.
    sheet = Image.new("RGB", (SHRUNK[0], SHRUNK[1] * len(images)))
    for index, image in enumerate(images):
        sheet.paste(image, (0, SHRUNK[1] * index))
    palette = sheet.quantize(COLORS, method=Image.Quantize.FASTOCTREE)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0, optimize=True)
    print(path, f"{path.stat().st_size / 1e6:.2f} MB, {len(images)} images, {sum(times) / 1000:.0f} s")


def main() -> None:
    from playwright.sync_api import sync_playwright

    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for language, path in GIFS.items():
            write_gif(path, *animation(browser, language))
        browser.close()


if __name__ == "__main__":
    main()
