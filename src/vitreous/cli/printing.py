"""How results are printed: one JSON object, or plain text in columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitreous.errors import printable
from vitreous.results import percent, text_table

if TYPE_CHECKING:
    from vitreous.data.findings import Finding
    from vitreous.data.image_list import Failure
    from vitreous.evaluation.result import Evaluation

SHOWN = 5  # images that a finding names; --json gives more


def print_json(result: Mapping[str, Any]) -> None:
    """Print the one JSON object of a command. Numbers that are not finite become null."""
    from pydantic_core import to_json

    text = to_json(result, inf_nan_mode="null").decode()
    encoding = sys.stdout.encoding or "utf-8"  # a text in memory has none
    if not encoding.lower().startswith("utf"):
        text = json.dumps(json.loads(text))  # other characters as JSON escapes them
    print(text, flush=True)


def print_failed(failed: Iterable[Failure]) -> int:
    """Print a line on stderr for each image that could not be read. The exit code: 1 if there are any."""
    code = 0
    for each in failed:
        print(printable(f"vitreous: {each.path}: {each.reason}"), file=sys.stderr)
        code = 1
    return code


def print_findings(findings: Iterable[Finding]) -> None:
    """Print what is wrong with data or a run, how to fix it, and a few of the images concerned."""
    for finding in findings:
        print(f"{finding.severity}: {finding.problem}\n    fix: {finding.fix}")
        for image in finding.images[:SHOWN]:
            print(f"    {finding_subject(image)}")
        if finding.found > SHOWN and len(finding.images) > SHOWN:
            print(f"    ... {finding.found - SHOWN} more")


def finding_subject(image: object) -> str:
    """Return an image, a pair of them, or an image and what is wrong, as one line."""
    if isinstance(image, dict):
        return ": ".join(map(str, image.values()))
    return " = ".join(image) if isinstance(image, tuple) else str(image)


def print_metrics(evaluation: Evaluation, baselines: Sequence[Mapping[str, Any]] = ()) -> None:
    """Print the metrics of held-out examples, and what simpler methods get."""
    rows = []
    for metric in evaluation.metrics.values():
        low, high = (metric.text(each) for each in metric.interval or (float("nan"),) * 2)
        rows.append((metric.label, metric.text(), f"{low} to {high}" if metric.interval else ""))
    for each in baselines:
        low, high = each["interval"]
        rows.append((each["name"], percent(each["accuracy"]), f"{percent(low)} to {percent(high)}"))
    print_table((f"held-out {evaluation.of}: {evaluation.count}", "value", "95 % interval"), rows)


def print_names(lines: Mapping[str, str]) -> None:
    """Print names, each with a line about it."""
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:{width}}  {line}")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table: its first `words` columns are words, to the left, the others numbers, to the right."""
    print(text_table(headers, rows, words=words))
