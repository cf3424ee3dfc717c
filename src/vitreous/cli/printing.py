"""How results are printed: one JSON object, or plain text in columns."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitreous.errors import printable
from vitreous.languages import named_text, phrase, unreadable_reason
from vitreous.languages.terminal import said, word
from vitreous.results import text_table, text_width

if TYPE_CHECKING:
    from vitreous.data.findings import Finding
    from vitreous.data.image_list import Failure
    from vitreous.evaluation.result import Evaluation

SHOWN = 5  # images that a finding names; --json gives more


def print_json(result: Mapping[str, object]) -> None:
    """Print the one JSON object of a command. Numbers that are not finite become null."""
    from pydantic_core import to_json

    text = to_json(result, inf_nan_mode="null").decode()
    encoding = sys.stdout.encoding or "utf-8"  # a text in memory has none
    if not encoding.lower().startswith("utf"):
        text = json.dumps(json.loads(text))  # other characters as JSON escapes them
    print(text, flush=True)


def print_wrong(
    failed: Mapping[str, str] | Sequence[Failure], damaged: Mapping[str, str] | Sequence[Failure] = ()
) -> int:
    """Print on stderr which images could not be read, or lack a part: of each reason a few of them, and how
    many more. The exit code: 1 if any could not be read."""
    of_reason = defaultdict[str, list[str]](list)
    for wrong in (failed, damaged):
        named = wrong if isinstance(wrong, Mapping) else {each.path: each.reason for each in wrong}
        for path, reason in named.items():
            of_reason[reason].append(path)
    for reason, paths in of_reason.items():
        lines = paths[:SHOWN]
        if len(paths) > SHOWN:
            lines.append(said("... {count} more", count=len(paths) - SHOWN))
        for line in lines:
            print(printable(f"vitreous: {line}: {unreadable_reason(reason)}"), file=sys.stderr)
    return 1 if failed else 0


def print_findings(findings: Iterable[Finding]) -> None:
    """Print what is wrong with data or a run, how to fix it, and a few of the images concerned."""
    for finding in findings:
        print(f"{word(finding.severity)}: {finding.problem}\n    {word('fix')}: {finding.fix}")
        for image in finding.images[:SHOWN]:
            print(f"    {finding_subject(image)}")
        if finding.found > SHOWN and len(finding.images) > SHOWN:
            print(f"    {said('... {count} more', count=finding.found - SHOWN)}")


def finding_subject(image: object) -> str:
    """Return an image, a pair of them, or an image and what is wrong, as one line."""
    if isinstance(image, dict):
        return ": ".join(unreadable_reason(str(part)) for part in image.values())
    return " = ".join(image) if isinstance(image, tuple) else str(image)


def print_metrics(evaluation: Evaluation, baselines: Sequence[Mapping[str, Any]] = ()) -> None:
    """Print the metrics of held-out examples, and what simpler methods get."""
    rows = []
    for name, metric in evaluation.metrics.items():
        interval = ""
        if metric.interval:
            low, high = map(metric.text, metric.interval)
            interval = said("{low} to {high}", low=low, high=high)
        rows.append((named_text(f"metrics.{name}", metric.label), metric.text(), interval))
    first = next(iter(evaluation.metrics.values()))
    for each in baselines:
        low, high = map(first.text, each["interval"])
        interval = said("{low} to {high}", low=low, high=high)
        rows.append((phrase(f"baselines.{each['name']}"), first.text(each["accuracy"]), interval))
    title = said("held-out {of}: {count}", of=word(evaluation.of), count=evaluation.count)
    print_table((title, word("value"), said("95% interval")), rows)


def print_named(name: str, value: object) -> None:
    """Print a value after its name, such as where the report is."""
    shown = word(name)
    print(f"{shown}{' ' * max(8 - text_width(shown), 1)}{value}")


def print_names(lines: Mapping[str, str]) -> None:
    """Print names, each with a line about it."""
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:{width}}  {line}")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table: its first `words` columns are words, to the left, the others numbers, to the right."""
    print(text_table(headers, rows, words=words))
