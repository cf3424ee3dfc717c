"""The slow tests in turns: `pytest --shard 3/4` runs one of four shares of about equal time,
`--shard documents` what shows that lessons and the site are as they say, `--shard rest` what is in no turn.
`python tests/shards.py` prints how many turns there are, so that none takes much longer than TURN.

slow_seconds.json names the files in the turns and the seconds of each in one process. `--measure` writes
them: a file joins with a run of it in which nothing failed. A file is a unit, since its tests share runs and
pages that they have made; a long one is cut into parts. Two kinds of tests are in no turn, and run every
night: `peers` compares with packages that change by themselves, `clock` depends on how fast and how busy the
machine is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pytest

SECONDS = Path(__file__).with_name("slow_seconds.json")
PART = 240.0  # seconds; a file that takes longer is cut into several
TURN = 600.0  # seconds, with two processes
# What is slow and in no turn, and why; it runs every night with `--shard rest`.
LONG = "trains for minutes, or runs many programs one after the other"
LEFT_OUT = {
    "tests/addons/segmentation/test_commands.py": "one test trains for 13 minutes",
    "tests/docs/test_pages.py": LONG,
    "tests/test_benchmarks.py": LONG,
}
# They run whenever pages, templates or catalogs have changed.
DOCUMENTS = (
    "tests/docs/test_site.py",
    "tests/docs/test_lessons.py",
    "tests/addons/learn_page/test_learn_page.py",
    "tests/addons/serving/test_page.py",
    "tests/end_to_end/test_readme_screens.py",
)


def in_turns(item: pytest.Item) -> bool:
    """Whether a test is slow, and gives the same answer on each machine and on each day."""
    marks = {mark.name for mark in item.iter_markers()}
    return "slow" in marks and not marks & {"peers", "clock"}


def parts(files: Mapping[str, int], seconds: Mapping[str, float]) -> dict[tuple[str, int], float]:
    """Return the seconds of each part (file, number) of files, given as how many tests they have."""
    found: dict[tuple[str, int], float] = {}
    for file, tests in files.items():
        whole = seconds[file]
        pieces = min(tests, ceil(whole / PART))
        for piece in range(pieces):
            found[file, piece] = whole / pieces
    return found


def shares(seconds: Mapping[tuple[str, int], float], count: int) -> list[set[tuple[str, int]]]:
    """Deal parts into `count` shares of about equal time: the longest first, each to the share with least."""
    shares: list[set[tuple[str, int]]] = [set() for _ in range(count)]
    totals = [0.0] * count
    for part in sorted(seconds, key=lambda part: (-seconds[part], part)):
        least = totals.index(min(totals))
        shares[least].add(part)
        totals[least] += seconds[part]
    return shares


def turns(seconds: Mapping[str, float]) -> int:
    """Return the number of shares of which none takes much longer than TURN."""
    return ceil(sum(seconds.values()) / (2 * TURN))


def selected(shard: str, tests: Sequence[str], seconds: Mapping[str, float]) -> list[bool]:
    """Return for each test, given as the file that it is in, whether a shard runs it. Tests of a file follow
    each other."""
    if shard == "documents":
        return [file in DOCUMENTS for file in tests]
    if shard == "rest":
        return [file not in seconds for file in tests]
    number, _, count = shard.partition("/")
    counts = {file: tests.count(file) for file in dict.fromkeys(tests) if file in seconds}
    divided = parts(counts, seconds)
    share = shares(divided, int(count))[int(number) % int(count)]
    seen: dict[str, int] = {}
    chosen = []
    for file in tests:
        place = seen[file] = seen.get(file, -1) + 1
        pieces = sum(other == file for other, _ in divided)
        chosen.append(file in counts and (file, place * pieces // counts[file]) in share)
    return chosen


def select(shard: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave in `items` those of a shard."""
    known: dict[str, float] = json.loads(SECONDS.read_text("utf-8"))
    candidates = [item for item in items if in_turns(item)]
    chosen = selected(shard, [file_of(item) for item in candidates], known)
    kept = [item for item, wanted in zip(candidates, chosen, strict=True) if wanted]
    if shard == "rest":
        kept += [item for item in items if "slow" in item.keywords and not in_turns(item)]
    left = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = kept


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def measured(reports: Iterable[Any], known: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each file, with those of a run's reports in the place of what was known. A file
    of which a test failed is left as it was."""
    found: dict[str, float] = {}
    failed = set()
    for report in reports:
        file = report.nodeid.partition("::")[0]
        found[file] = found.get(file, 0.0) + report.duration
        if report.failed:
            failed.add(file)
    new = {file: round(took, 1) for file, took in found.items() if file not in failed}
    return dict(sorted({**known, **new}.items()))


def keep(reports: Iterable[Any]) -> None:
    """Write what a run took beside what is known of other files."""
    known = json.loads(SECONDS.read_text("utf-8"))
    SECONDS.write_text(json.dumps(measured(reports, known), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    print(turns(json.loads(SECONDS.read_text("utf-8"))))
