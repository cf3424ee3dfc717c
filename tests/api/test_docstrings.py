"""Every parameter of the public calls has its line; a parameter of many calls has the same one in each. Every
call has an example that runs."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitreous as vt
from docstring_examples import ELSEWHERE, SLOW, has_example, what_differs, write_place

# What a parameter of this name means wherever it has no meaning of its own.
SHARED = {
    "image_size": "input size of the model in pixels: 384, or (height, width); by default its own.",
    "batch_size": "number of images in a batch; by default 16 on a CPU, 64 on a GPU.",
    "workers": "number of threads that decode images; by default one per core.",
    "device": "auto, cpu, cuda, cuda:N or mps; auto is a GPU if there is one.",
    "precision": "fp32; bf16; auto: bf16 if it is faster and gives the same answers.",
    "progress": "show a progress bar on stderr.",
    "language": "language of the page: en or ko; by default that of the locale.",
}
OWN = {  # calls in which it has: what is trained, exported or changed, and what is not an image
    "image_size": {
        "create",
        "convert",
        "load",
        "pretrain",
        "resize",
        "train",
        "BiTConfig",
        "ViTConfig",
        "SegmenterConfig",
    },
    "batch_size": {"compare", "describe", "pretrain", "train", "train_translator", "translate"},
    "language": {"describe", "draw", "learn", "pretrain", "study", "train", "train_translator"},
    "device": {"load"},
    "precision": {"export", "inspect", "pretrain", "train", "train_translator"},
    "progress": {"doctor", "export", "learn", "optimize", "pretrain", "study", "train", "train_translator"},
}


def public_calls() -> Iterator[tuple[str, object]]:
    for name in vt.__all__:
        call = getattr(vt, name)
        if callable(call) and not (isinstance(call, type) and issubclass(call, Exception)):
            yield name, call


def lines(call: object) -> dict[str, str]:
    """Return what is said of each parameter."""
    found: dict[str, str] = {}
    names: list[str] = []
    text = inspect.getdoc(call) or ""
    for line in text.splitlines():
        if match := re.match(r" {4}(\w[\w, ]*): (.*)", line):
            names = re.split(", *", match[1])
            found |= dict.fromkeys(names, match[2])
        elif line.startswith(" " * 8):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def parameters(call: object) -> list[str]:
    various = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    try:
        signature = inspect.signature(call)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    return [each.name for each in signature.parameters.values() if each.kind not in various]


def test_every_parameter_has_its_line() -> None:
    missing = []
    for name, call in public_calls():
        said = lines(call)
        missing += [f"{name}({each})" for each in parameters(call) if each not in said]
    assert not missing


def test_a_parameter_of_many_calls_has_one_line() -> None:
    differing = []
    for name, call in public_calls():
        said = lines(call)
        for each in SHARED.keys() & set(parameters(call)):
            if name not in OWN.get(each, ()) and said[each] != SHARED[each]:
                differing.append(f"{name}({each}): {said[each]}")
    assert not differing


def test_every_call_has_an_example() -> None:
    assert [name for name, _ in public_calls() if not has_example(name)] == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "place"
    write_place(folder)
    return folder


@pytest.mark.parametrize("name", sorted({"InputError", *dict(public_calls())} - SLOW - ELSEWHERE))
def test_an_example_does_what_it_says(
    name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that train or export are run by test_functions.py, that of `serve` and that of `push_to_hub` by
    the tests of the server and of the hub."""
    shutil.copytree(place, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    assert what_differs(name) == ""
