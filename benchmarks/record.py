"""What every benchmark writes: its numbers as JSON, beside where they come from: date, machine, versions,
commit, command and seeds. `claims.py` prints no number without them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def write_results(
    numbers: Mapping[str, Any],
    out: Path | None,
    *,
    machine: str = "",
    packages: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    shown: bool = True,
) -> None:
    """Write the numbers of a benchmark to a file, and print them, each time as a whole.

    Args:
        out: the file; None: none.
        machine: what is to be known of it besides its processor: "one thread".
        packages: whose versions matter, besides PyTorch and vitreous.
        seeds: of what is drawn at random; None: those among the numbers, or there are none.
        shown: whether they are printed, too.
    """
    facts = facts_of(machine, packages)
    if seeds is not None:
        facts["seeds"] = list(seeds)
    elif "seeds" not in numbers:
        facts["seeds"] = "none: nothing is drawn"
    # The facts come first, and are not those of a file that is continued.
    text = json.dumps({**facts, **numbers, **facts}, indent=1, ensure_ascii=False)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(f"{text}\n", encoding="utf-8")
    if shown:
        print(text)


def facts_of(machine: str = "", packages: Sequence[str] = ()) -> dict[str, Any]:
    """Where numbers of now come from; arguments as of `write_results`."""
    parts = [platform.machine(), f"{os.cpu_count()} cores", *filter(None, [machine])]
    return {
        "date": date.today().isoformat(),
        "machine": ", ".join(parts),
        "versions": {name: installed_version(name) for name in ("torch", "vitreous", *packages)},
        "commit": present_commit(),
        "command": shlex.join(["python", *sys.argv]),
    }


def data_check(data: object, settings: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """What `vitreous data check` says of images that are learned from and tested on: sentences by severity.
    Files keep it under `data_check`, by the way to the numbers that stand on these images; `claims.py` prints
    none with an error."""
    import vitreous as vt

    found: dict[str, list[str]] = {"error": [], "warning": [], "note": []}
    for each in vt.check_data(data, settings=settings).findings:
        found[each.severity].append(f"{each.kind}: {each.problem}")
    return found


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git(*words: str) -> str:
    """The answer of git in this clone. Raises CalledProcessError: there is none."""
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def present_commit() -> str | None:
    """The commit that is checked out, with a + where files of the package or of benchmarks are changed; None
    outside a clone."""
    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def commit_of(path: Path) -> str:
    """The commit that a file was changed in last. Raises ValueError: its present content is in none, so that
    nothing can be drawn after it."""
    name = str(path.resolve().relative_to(ROOT))
    found = git("log", "-1", "--format=%H", "--", name)
    if not found or git("status", "--porcelain", "--", name):
        raise ValueError(f"{name} has to be committed before anything is drawn from its commit")
    return found


def fresh_seeds(commit: str, count: int, purpose: str = "") -> list[int]:
    """Seeds that cannot be chosen: from the hash of a commit that was made before."""
    found = []
    for number in range(count):
        key = f"{commit} {purpose} {number}".encode()
        found.append(int.from_bytes(hashlib.blake2b(key, digest_size=4).digest()))
    return found
