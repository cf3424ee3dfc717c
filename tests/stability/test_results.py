"""What commands print as JSON, a run directory and model/config.json hold, compared with a kept list.

Adding a key is a decision that a diff of results.json shows; removing or renaming one waits for the next
major version.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from workplaces import Outcome, write_run

KEPT = Path(__file__).with_name("results.json")
COMMANDS = {
    "train": (
        "train",
        "photos",
        "--init",
        "none",
        "--epochs",
        "1",
        "--image-size",
        "16",
        "--model",
        "ViT-Ti/8",
    ),
    "evaluate": ("evaluate", "runs/mine", "photos"),
    "predict": ("predict", "runs/mine", "photo.jpg"),
    "embed": ("embed", "runs/mine", "photo.jpg", "--out", "embeddings.npz"),
    "probe": ("probe", "runs/mine", "photos", "--shots", "1"),
    "describe": ("describe", "runs/mine"),
    "convert": ("convert", "runs/mine", "converted", "--format", "timm"),
    "doctor": ("doctor", "photos"),
    "data check": ("data", "check", "photos"),
    "data pack": ("data", "pack", "photos", "shards"),
    "list-models": ("list-models",),
    "pretrain": ("pretrain", "photos", "--epochs", "1", "--image-size", "16", "--model", "ViT-Ti/8"),
    "calibrate": ("calibrate", "runs/mine", "photos", "--out", "calibrated"),
    "compare": ("compare", "runs/mine", "runs/other"),
    "export": ("export", "runs/mine", "--out", "mine.safetensors"),
    "inspect": ("inspect", "runs/mine", "photo.jpg", "--out", "looked"),
    "optimize": ("optimize", "runs/shallow", "photos", "--engines", "eager"),
    "cache": ("cache",),
    "recipe": ("recipe", "from-scratch"),
    "learn": ("learn", "runs/shallow", "photo.jpg", "--out", "learn.html"),
    "study": ("study", "complexity", "--quick", "--seeds", "1", "--out", "study"),
    "translate": ("translate", "train", "pairs.tsv", "--steps", "1", "--out", "runs/translator"),
}
SIZE = ("--set", "model.width=24", "--set", "model.depth=1", "--set", "model.mlp_dim=24")
SLOW = ("optimize", "study")  # measure in processes of their own, or train several models
TRAINED = {"train": "runs/stable", "pretrain": "runs/encoder"}


def keys_of(value: Any) -> Any:
    """The keys of a JSON object and of what it holds; of a list those of its first item."""
    if isinstance(value, dict):
        return {key: keys_of(each) for key, each in sorted(value.items())}
    if isinstance(value, list) and value:
        return [keys_of(value[0])]
    return None


def differences(found: Any, kept: Any, place: str) -> list[str]:
    """Where the keys differ. An empty list says nothing about its items, so it agrees with any list."""
    if isinstance(found, dict) and isinstance(kept, dict):
        differing = [f"{place}/{key}" for key in sorted(found.keys() ^ kept.keys())]
        for key in found.keys() & kept.keys():
            differing += differences(found[key], kept[key], f"{place}/{key}")
        return differing
    if isinstance(found, list) and isinstance(kept, list) and place != "/run directory":
        return differences(found[0], kept[0], f"{place}[]")
    return [] if found is None or kept is None or found == kept else [place]


def listing(command: Callable[..., Outcome], names: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        words = COMMANDS[name]
        extra = (*SIZE, "--out", TRAINED[name]) if name in TRAINED else ()
        code, out, err = command(*words, *extra, "--json")
        assert code in (0, 1), err
        found[name] = keys_of(json.loads(out))
    if "train" not in found:
        return found
    run = Path(TRAINED["train"])
    files = sorted(path.name for path in run.iterdir() if not path.name.startswith("events."))
    found["run directory"] = files
    found["model/config.json"] = keys_of(
        json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))
    )
    return found


def check(found: dict[str, Any], names: Iterable[str]) -> None:
    """Compare with the kept list; with WRITE_STABLE=1 in the environment write a new one."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    if os.environ.get("WRITE_STABLE"):
        KEPT.write_text(json.dumps({**kept, **found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert found.keys() == set(names)
    assert differences(found, {name: kept[name] for name in names}, "") == []


def test_results_have_the_keys_that_were_declared(
    command: Callable[..., Outcome], workplace: Path, quick_figures: None
) -> None:
    write_run(workplace / "runs" / "shallow", depth=1)
    pairs = [f"{'a b c'[: 1 + 2 * (number % 3)]} {number}\t{number} x" for number in range(40)]
    (workplace / "pairs.tsv").write_text("\n".join(pairs), encoding="utf-8")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    check(listing(command, [name for name in COMMANDS if name not in SLOW]), kept.keys() - SLOW)


@pytest.mark.slow
def test_results_of_slow_commands_have_the_keys_that_were_declared(
    command: Callable[..., Outcome], workplace: Path
) -> None:
    write_run(workplace / "runs" / "shallow", depth=1)  # of one layer, in which no tokens can be merged
    check(listing(command, SLOW), SLOW)
