"""How soon the pages of `vitreous learn` have an answer on the screen, what they ask for, how large they are.

    python benchmarks/first_screen.py [--repeats 5] [--out benchmarks/results]

Each opening is a new tab of Chromium without a network, at the size of a desktop and of a phone, at the
machine's speed and four times slower (Chromium's own throttling). Counted is the time from the beginning of
the navigation to the first frame in which the answer of the model stands: by then everything reacts, since
one script does both. Beside the time of the clock, which a busy machine makes longer, stands what the page's
main thread computed until then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from record import write_results

import vitreous as vt

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RESULT = "first_screen.json"
PAGES = {"digits": None, "photo": "photo", "emoji": "emoji"}
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
SLOWER = (1, 4)
# Notes the time of the first frame with an answer.
WATCH = """
const look = () => {
  const answer = document.getElementById("guess-now");
  if (answer && answer.textContent) window.answered = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def opening(browser: Browser, page: Path, size: tuple[int, int], slower: int) -> dict[str, float]:
    """Open a page once, and return its seconds, those its main thread computed, and what it asked for."""
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]})
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.context.set_offline(True)
    tab.add_init_script(WATCH)
    session = tab.context.new_cdp_session(tab)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(page.as_uri(), wait_until="commit")
    tab.wait_for_function("() => window.answered", timeout=120_000)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    found = {
        "seconds": tab.evaluate("() => window.answered") / 1000,
        "main_thread_seconds": metrics["TaskDuration"],
        "requests": sum(not url.startswith(("file:", "data:", "blob:")) for url in asked),
        "width": tab.evaluate("() => document.documentElement.scrollWidth"),
    }
    tab.close()
    return found


def measured(repeats: int) -> dict[str, Any]:
    """Open every page in every way, in turns, so that what else the machine does meets all of them."""
    from playwright.sync_api import sync_playwright  # of the slow tests: --help does without it

    found: dict[str, list[dict[str, float]]] = {}
    bytes_of = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as program:
        pages = {}
        for name, model in PAGES.items():
            pages[name] = Path(vt.learn(model, out=f"{folder}/{name}.html").page)
            bytes_of[name] = pages[name].stat().st_size
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = program.chromium.launch(executable_path=path, args=["--no-sandbox"])
        version = browser.version
        for _ in range(repeats):
            for name, page in pages.items():
                for size, measures in SIZES.items():
                    for slower in SLOWER:
                        way = f"{name}, {size}, {slower}x slower"
                        found.setdefault(way, []).append(opening(browser, page, measures, slower))
        browser.close()
    rows: dict[str, dict[str, Any]] = {}
    for way, openings in found.items():
        row: dict[str, Any] = {key: [each[key] for each in openings] for key in openings[0]}
        row["median_seconds"] = statistics.median(row["seconds"])
        row["median_main_thread_seconds"] = statistics.median(row["main_thread_seconds"])
        rows[way] = row
    return {"chromium": version, "bytes": bytes_of, "load": os.getloadavg()[0], "ways": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a folder for the results")
    given = parser.parse_args()
    found = measured(given.repeats)
    # A page has no other measure of how busy the machine was; seconds of the main thread hardly depend on it.
    found["note"] = f"the load of the machine was {found['load']:.0f} on {os.cpu_count()} cores"
    write_results(found, given.out and given.out / RESULT, packages=["playwright"])


if __name__ == "__main__":
    main()
