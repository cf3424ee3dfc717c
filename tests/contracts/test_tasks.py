"""Every row of the table of tasks goes through the commands that are for it, with pages in both languages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import torch

import vitreous as vt
from vitreous.api.options import EvaluateOptions, InspectOptions, PredictOptions
from vitreous.extensions import OutputKind, TaskRow, tasks
from vitreous.languages import LANGUAGES, catalog
from vitreous.models.model import as_probabilities
from vitreous.tasks import task_named
from vitreous.tasks.task import Task
from vitreous.training.options import options_of


class Tiny(NamedTuple):
    """How a task is trained in two steps: its data, and options; which commands refuse its models, in a
    sentence; and what its pages are drawn for, where that is no image."""

    data: str
    options: tuple[str, ...]
    refused: tuple[str, ...] = ()
    text: tuple[str, ...] = ()


def settings(**values: object) -> tuple[str, ...]:
    given: list[str] = []
    for name, value in values.items():
        given += ["--set", f"{name.replace('__', '.')}={value}"]
    return tuple(given)


STEPS = settings(training__length="2 steps", training__batch_size=8)
SMALL = settings(model__width=16, model__depth=1, model__heads=2, model__mlp_dim=16)
ON_IMAGES = (*STEPS, *SMALL, "--image-size", "16", *settings(model__patch_size=8, model__stem__kind="patch"))
SCRATCH = (*ON_IMAGES, "--init", "none")
MASKS = (*STEPS, *SMALL, "--image-size", "16", *settings(model__decoder="linear"))
PAIRS = ("--steps", "2", "--batch-size", "8")
PAIRS += settings(model__width=64, model__depth=1, model__encoder_depth=1, tokenizer__vocabulary=300)
NO_ANSWERS = ("evaluate", "predict", "learn")  # of an encoder
NO_IMAGES = ("export", "predict", "embed", "convert", "learn", "describe")
TRAINED = {
    "classification": Tiny("photos", SCRATCH),
    "multilabel": Tiny("several.csv", (*SCRATCH, *settings(data__form__label_separator=";"))),
    "regression": Tiny("numbers.csv", SCRATCH, refused=("learn",)),
    **dict.fromkeys(("masked-patch", "mae", "contrastive"), Tiny("photos", ON_IMAGES, NO_ANSWERS)),
    "dino": Tiny("photos", (*ON_IMAGES, *settings(pretraining__dino__prototypes=16)), NO_ANSWERS),
    "distillation": Tiny(
        "photos", (*ON_IMAGES, *settings(pretraining__distillation__teacher="teacher")), NO_ANSWERS
    ),
    "segmentation": Tiny("pixels", MASKS, refused=("learn",)),
    "translation": Tiny("pairs.tsv", PAIRS, NO_IMAGES, text=("word 1",)),
}
# How a run is trained by each command, and what its task is named by.
COMMANDS = {"train": ("--task",), "pretrain": ("--objective",), "translate train": ()}
# Where a command that fails on a run is to be edited, when it is not the task.
SHOWN_BY = {
    "inspect": "its `inspect` and `panels`",
    "export": "`outputs` of its row in src/vitreous/extensions.py, or src/vitreous/deployment/export.py",
    "convert": "src/vitreous/checkpoints/saving.py",
    "learn": "src/vitreous/addons/learn_page/page.py",
    "describe": "src/vitreous/inspection/",
}


def file_of(row: TaskRow) -> str:
    """Return the file of a task."""
    return f"src/{row.module.replace('.', '/')}.py"


def test_every_task_is_trained_here() -> None:
    edited = "TRAINED of tests/contracts/test_tasks.py, or TASKS of src/vitreous/extensions.py"
    assert {*TRAINED} == {*tasks()}, f"-> edit {edited}"


@pytest.mark.parametrize("name", tasks())
def test_a_row_says_of_a_task_what_the_task_says_of_itself(name: str, edit: Any) -> None:
    row = tasks()[name]
    with edit(f"`DEFINED`, `name` or `config` of {file_of(row)}, or the row in src/vitreous/extensions.py"):
        task = task_named(name)
        assert isinstance(task, Task)
        assert task.config.command == row.command
        assert name in (get_args(task.config.model_fields["task"].annotation) or (name,))
        assert row.outputs in get_args(OutputKind)
    if row.outputs == "own":
        with edit(f"`options` of {file_of(row)}: outputs of its own have no mean over views"):
            assert not any("tta" in options for options in task.info.options.values())
    for language in LANGUAGES:
        with edit(f"`panels` of {file_of(row)}, or [panels] of src/vitreous/languages/{language}.toml"):
            assert task.info.panels in catalog(language)["panels"]
    for asked, options in task.info.options.items():
        assert options, asked


@pytest.mark.parametrize(
    ("command", "declared"),
    [("predict", PredictOptions), ("evaluate", EvaluateOptions), ("inspect", InspectOptions)],
)
def test_what_only_some_tasks_have_is_understood_by_one(command: str, declared: type) -> None:
    """Such as the file of settings, which `predict` has and every task refused."""
    asked = {name for name, option in options_of(declared).items() if option.of}
    known = set[str]().union(*(task_named(name).info.options.get(command, ()) for name in tasks()))
    assert asked <= known


def check_meaning(model: Any, outputs: OutputKind, image: str, answer: dict[str, Any]) -> None:
    """Compare an answer with what everything that has no task reads from the outputs of a model."""
    with torch.inference_mode():
        found = model.eval()(model.preprocessing([image]))
    if outputs == "number":
        assert answer["value"] == pytest.approx(found.item(), rel=1e-4)
    else:
        probability = as_probabilities(found, outputs).max().item()
        assert answer["top"][0]["probability"] == pytest.approx(probability, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_task_goes_through_every_command(
    name: str,
    photos: Path,
    tmp_path: Path,
    vitreous: Callable[..., dict[str, Any]],
    edit: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(photos)
    row, tiny, run = tasks()[name], TRAINED[name], tmp_path / "run"
    named = [*COMMANDS[row.command], name] if COMMANDS[row.command] else []
    file = file_of(row)
    with edit(f"{file}, or what its messages and pages ask of the catalogs"):
        found = vitreous(
            *(*row.command.split(), tiny.data, *named, *tiny.options, "--out", run, "--language", "ko")
        )
        assert found["task"] == name
    assert 'lang="ko"' in (run / "report.html").read_text("utf-8")
    assert (run / "README.md").is_file()
    if row.command == "train":  # what the report advises is not refused
        advised = "<span>serve</span>" in (run / "report.html").read_text("utf-8")
        assert advised is (row.outputs != "own")

    def shown(*words: object) -> dict[str, Any]:
        """Run a command on what was trained, or see it refused."""
        asked = str(words[0])
        with edit(f"{file}, or {SHOWN_BY.get(asked, 'that of the traceback')}"):
            return vitreous(*words, refused=asked in tiny.refused)

    image, program = "photos/dark/0.png", tmp_path / "m.onnx"
    for language in LANGUAGES:
        shown("inspect", run, *tiny.text, "--out", tmp_path / language, "--language", language)
        shown("learn", run, "--out", tmp_path / f"{language}.html", "--language", language)
    shown("doctor", run)
    shown("evaluate", run)
    shown("describe", run)
    shown("embed", run, image, "--out", tmp_path / "features.npz")
    shown("convert", run, tmp_path / "converted")
    shown("export", run, "--out", program)
    programs = () if row.outputs == "own" else (program,)  # whose outputs predict can read
    for model in (run, tmp_path / "converted", *programs):
        answers = shown("predict", model, image)
        assert "predict" in tiny.refused or answers["predictions"][0]["path"].endswith("0.png")
    if row.outputs != "own":
        with edit(f"`outputs` of the row of {name} in src/vitreous/extensions.py: what the model gives"):
            check_meaning(vt.load(run), row.outputs, image, shown("predict", run, image)["predictions"][0])
    if "describe" not in tiny.refused:
        with edit("src/vitreous/inspection/drawing.py"):
            assert "<svg" in vt.draw(str(run)).svg
