"""Environments that have what `pip install 'vitreous[EXTRA]'` brings and nothing else.

Nothing is downloaded: an environment links to what is installed here of the packages that the extras ask for,
and of those that they ask for in turn, in place of installing it a second time.
"""

from __future__ import annotations

import json
import re
import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Of the tree that is tested: where it is installed for editing, what was noted then may be older.
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
KERNEL = Requirement("ipykernel")  # what Jupyter brings to its programs


def installed(requirement: Requirement) -> Distribution | None:
    try:
        return distribution(requirement.name)
    except PackageNotFoundError:  # of another system, or what no requirement of ours is
        return None


def needed(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """Return the packages that requirements bring, by name, without vitreous itself."""
    found: dict[str, Distribution] = {}
    waiting = list(wanted)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        package = installed(requirement)
        if package is None or (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        if name == "vitreous":
            waiting += map(Requirement, REQUIRED)
            waiting += [Requirement(text) for extra in requirement.extras for text in EXTRAS[extra]]
            continue
        found[name] = package
        for text in package.requires or ():
            asked = Requirement(text)
            extras = requirement.extras or {""}
            if asked.marker is None or any(asked.marker.evaluate({"extra": each}) for each in extras):
                waiting.append(asked)
    return found


def environment(folder: Path, extras: Iterable[str], others: Iterable[str] = ()) -> Path:
    """Make an environment of vitreous with extras, and of other packages. Return its Python, beside which is
    `vitreous`."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    wanted = Requirement(f"vitreous[{','.join(sorted(extras))}]")
    for package in needed([wanted, KERNEL, *map(Requirement, others)]).values():
        for file in package.files or ():
            if file.parts[0] not in ("..", "__pycache__") and not (packages / file.parts[0]).exists():
                (packages / file.parts[0]).symlink_to(Path(str(package.locate_file(file.parts[0]))))
        for each in package.entry_points.select(group="console_scripts"):
            called = f"import sys; from {each.module} import {each.attr}; sys.exit({each.attr}())"
            script(folder / "bin" / each.name, f'exec "{folder}/bin/python" -c "{called}" "$@"')
    (facts,) = {
        file.parts[0] for file in distribution("vitreous").files or () if "dist-info" in file.parts[0]
    }
    (packages / facts).symlink_to(Path(str(distribution("vitreous").locate_file(facts))))
    (packages / "vitreous.pth").write_text(f"{SOURCE}\n", encoding="utf-8")
    python = folder / "bin" / "python"
    script(folder / "bin" / "vitreous", f'exec "{python}" -m vitreous "$@"')
    return python


def script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def kernel(folder: Path, python: Path, name: str) -> None:
    """Write the description of a Jupyter kernel that is run by `python`, below a folder of JUPYTER_PATH."""
    described = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
    }
    (folder / "kernels" / name).mkdir(parents=True)
    (folder / "kernels" / name / "kernel.json").write_text(json.dumps(described), encoding="utf-8")


def packages_in(text: str) -> set[str]:
    """Return what else a text tells its readers to install."""
    lines = re.findall(r"pip install ([^\n`&|#]*)", text)
    words = {word.strip("'\"") for line in lines for word in line.split() if not word.startswith("-")}
    names = {word for word in words if re.fullmatch(r"[a-z][\w-]*(\[[\w,]+\])?", word)}
    return {name for name in names if not name.startswith("vitreous")}


def extras_in(text: str) -> set[str]:
    """Return the extras of vitreous that a text tells its readers to install."""
    named = re.findall(r"(?:vitreous|\.)\[([a-z,]+)\]", text)
    return {extra for group in named for extra in group.split(",")}
