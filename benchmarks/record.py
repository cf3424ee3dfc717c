"""What every benchmark writes: its numbers as JSON, beside the date, the machine and the versions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def write_results(
    numbers: Mapping[str, Any],
    out: Path | None,
    *,
    machine: str = "",
    packages: Sequence[str] = (),
    shown: bool = True,
) -> None:
    """Write the numbers of a benchmark to a file, and print them, each time as a whole.

    Args:
        out: the file; None: none.
        machine: what is to be known of it besides its processor: "one thread".
        packages: whose versions matter, besides PyTorch and vitreous.
        shown: whether they are printed, too.
    """
    parts = [platform.machine(), f"{os.cpu_count()} cores", *filter(None, [machine])]
    versions = {name: installed_version(name) for name in ("torch", "vitreous", *packages)}
    facts = {"date": date.today().isoformat(), "machine": ", ".join(parts), "versions": versions}
    # The facts come first, and are not those of a file that is continued.
    text = json.dumps({**facts, **numbers, **facts}, indent=1, ensure_ascii=False)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(f"{text}\n", encoding="utf-8")
    if shown:
        print(text)


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
