"""What tests of pages in a browser share."""

from __future__ import annotations

from typing import Any


def box_of(page: Any, selector: str) -> dict[str, float]:
    """Where the first element that matches `selector` stands in the window: x, y, width and height in pixels.

    It is measured in the same step in which it is found. `Locator.bounding_box` takes two, and returns None
    where the page replaces the element between them, as pages do that draw again at the next frame.
    """
    page.wait_for_selector(selector)
    box: dict[str, float] = page.evaluate(
        "(selector) => document.querySelector(selector).getBoundingClientRect().toJSON()", selector
    )
    return box
