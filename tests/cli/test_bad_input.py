"""What the user did wrong is one sentence on stderr that says what to do; the exit code is 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]

WRONG = {
    "unknown command": (["evaluat", "runs/mine"], "did you mean 'evaluate'"),
    "unknown option": (["describe", "ViT-B/16", "--jsn"], "--json"),
    "another program's option": (["train", "--lr", "3"], "did you mean --set training.peak_lr=1e-3?"),
    "another program's setting": (["train", "--set", "training.lr=3"], "did you mean 'training.peak_lr'"),
    "a list that is given twice": (
        ["train", "--set", "training.freeze=stem", "--set", "training.freeze=blocks.0"],
        "training.freeze is given twice",
    ),
    "a device that is not here": (
        ["train", "--device", "mps"],
        "--device mps: only cpu and cuda are supported",
    ),
    "an endless training": (["train", "--epochs", "inf"], "--epochs 'inf' is not a finite number"),
    "no seed": (["data", "pack", "photos", "packed", "--seed", "-1"], "--seed -1 is too low"),
    "no seed of shots": (["probe", "runs/mine", "--seed", "-1"], "--seed -1 is too low"),
    "no quality": (["data", "pack", "photos", "packed", "--quality", "0"], "from 1 to 95"),
    "a long path": (["evaluate", "runs/mine", "x" * 5000], "a path is too long: xxx"),
    "a long name": (["train", "photos", "--out", "x" * 300], "a path is too long: xxx"),
    "an enormous image": (["describe", "ViT-B/16", "--image-size", "1000000000"], "16384"),
    "no argument": (["describe"], "MODEL"),
    "an argument too many": (["describe", "ViT-B/16", "more"], "unexpected 'more': vitreous describe --help"),
    "unknown model size": (["describe", "ViT-Q/16"], "known are"),
    "misspelled model": (["describe", "VIT-B16"], "ViT-B/16"),
    "size no multiple of the patch": (["describe", "ViT-B/16", "--image-size", "222"], "use 224"),
    "no size": (["describe", "ViT-B/16", "--image-size", "2o"], "384x512"),
    "unknown setting": (["describe", "ViT-B/16", "--set", "model.widht=3"], "did you mean 'width'"),
    "setting without value": (["describe", "ViT-B/16", "--set", "model.width"], "--set training.peak_lr"),
    "setting of another command": (["describe", "ViT-B/16", "--set", "seed=1"], "write --set model.heads"),
    "value that does not fit": (["describe", "ViT-B/16", "--set", "model.heads=5"], "multiple of 5 heads"),
    "value of another kind": (["describe", "ViT-B/16", "--set", "model.depth=deep"], "model.depth"),
    "no such config file": (["describe", "ViT-B/16", "--config", "gone.toml"], "gone.toml"),
    "no such data": (["train", "nowhere/"], "nowhere"),
    "folder without class folders": (["train", "photos/3"], "class"),
    "one class only": (["train", "single"], "single class"),
    "class without an image": (["train", "hollow"], "hollow/empty"),
    "run that exists": (["train", "--out", "runs/mine"], "already exists"),
    "unknown recipe": (["train", "--recipe", "digit"], "digits"),
    "unknown device": (["train", "--device", "gpu"], "cuda"),
    "no such run to resume": (["train", "--resume", "runs/gone"], "runs/gone"),
    "one run to compare": (["compare", "runs/mine"], "needs two or more different runs"),
    "a run and itself": (["compare", "runs/mine", "./runs/mine"], "needs two or more different runs"),
    "no run to compare": (["compare", "runs/mine", "photos"], "photos is not a run directory"),
    "a page that exists": (["compare", "runs/mine", "runs/other", "--out", "photo.jpg"], "already exists"),
    "no such run": (["evaluate", "runs/gone"], "runs/gone"),
    "name without weights": (["evaluate", "ViT-Ti/16", "photos"], "without weights"),
    "checkpoint without data": (["evaluate", "runs/mine/model"], "name the data"),
    "other classes": (["evaluate", "runs/mine", "strange"], "does not know 'cat'"),
    "no image": (["predict", "runs/mine"], "no image to classify"),
    "no such image": (["predict", "runs/mine", "gone.png"], "gone.png"),
    "no label wanted": (["predict", "runs/mine", "photo.jpg", "--top", "0"], "use 1 or more"),
    "no shots": (["probe", "runs/mine", "digits", "--shots", "0"], "at least 1"),
    "too many shots": (["probe", "runs/mine", "photos", "--shots", "50"], "fewer shots"),
    "unknown study": (["study", "position"], "positions"),
    "no seeds": (["study", "head", "--seeds", "0"], "use 1 or more"),
    "empty batches": (["evaluate", "runs/mine", "--batch-size", "0"], "--batch-size 0 is too low"),
    "batches of less than nothing": (
        ["predict", "runs/mine", "photo.jpg", "--batch-size", "-1"],
        "--batch-size -1 is too low",
    ),
    "an empty step": (["train", "photos", "--batch-size", "0"], "batch_size"),
    "an empty step without labels": (
        ["pretrain", "photos", "--batch-size", "0"],
        "--batch-size 0 is too low",
    ),
    "less than no threads": (["evaluate", "runs/mine", "--workers", "-1"], "--workers -1 is too low"),
    "less than no threads to probe": (["probe", "runs/mine", "--workers", "-1"], "--workers -1 is too low"),
    "another recipe than none": (["recipe", "--diff", "deit"], "vitreous recipe NAME --diff deit"),
    "odd size on the command line": (
        ["describe", "ViT-B/16", "--image-size", "222"],
        "the setting model.edge=pad",
    ),
    "data of a variable that is not set": (["train", ""], "is a variable not set?"),
    "held-out data of a variable that is not set": (
        ["evaluate", "runs/mine", ""],
        "is empty: is a variable not set",
    ),
    "pairs of a variable that is not set": (["translate", "train", ""], "is a variable not set?"),
    "images of a variable that is not set": (["pretrain", ""], "is a variable not set?"),
    "checkpoint of a variable that is not set": (["train", "photos", "--init", ""], "--init is empty"),
    "recipe of a variable that is not set": (["train", "photos", "--recipe", ""], "--recipe is empty"),
    "seed that is not whole": (["train", "photos", "--seed", "1.5"], "--seed '1.5' is not a whole number"),
    "checkpoint cut short": (["predict", "cut", "photo.jpg"], "cut"),
}


@pytest.fixture(autouse=True)
def _wrong_places(workplace: Path) -> None:
    """Folders that are no data, and a run whose weights end too early."""
    if (workplace / "single").exists():
        return
    photo = (workplace / "photo.jpg").read_bytes()
    for name in ("single/only/1.jpg", "hollow/full/1.jpg", "strange/cat/1.jpg", "strange/dog/1.jpg"):
        (workplace / name).parent.mkdir(parents=True, exist_ok=True)
        (workplace / name).write_bytes(photo)
    (workplace / "hollow" / "empty").mkdir()
    cut = workplace / "cut"
    cut.mkdir()
    whole = workplace / "runs" / "mine" / "model"
    (cut / "config.json").write_bytes((whole / "config.json").read_bytes())
    (cut / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:-500])


@pytest.mark.parametrize("case", WRONG)
def test_one_sentence_and_exit_code_two(case: str, command: Call) -> None:
    arguments, part = WRONG[case]
    code, out, err = command(*arguments)
    assert code == 2, err
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("vitreous: ")
    assert part in err
    assert "Traceback" not in err


def test_a_torn_image_is_named_and_the_others_are_classified(command: Call, tmp_path: Path) -> None:
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8 and no more")
    code, out, err = command("predict", "runs/mine", "photo.jpg", tmp_path / "torn.jpg")
    assert code == 1
    assert out.startswith("photo.jpg  ")
    assert err.count("\n") == 1
    assert "torn.jpg" in err


HOSTILE = "\x1b]0;owned\x07\x9b31m"


def test_names_of_files_do_not_command_the_terminal(workplace: Path, command: Call) -> None:
    folder = workplace / f"hostile{HOSTILE}"
    folder.mkdir()
    (workplace / "photo.jpg").read_bytes()
    (folder / "good.jpg").write_bytes((workplace / "photo.jpg").read_bytes())
    (folder / "bad.jpg").write_bytes(b"no image")
    for arguments in (["predict", "runs/mine", folder], ["predict", "runs/mine", folder, "--json"]):
        code, out, err = command(*arguments)
        assert code == 1
        assert "u001b]0;owned" in out
        assert "u001b]0;owned" in err
        assert not {"\x1b", "\x07", "\x9b"} & {*out, *err}
    code, out, err = command("predict", f"runs/{HOSTILE}", "photo.jpg")
    assert (code, out) == (2, "")
    assert "\x1b" not in err
    assert json.loads(command("predict", "runs/mine", folder, "--json").out)["predictions"][0]["path"].count(
        "\x9b"
    )
