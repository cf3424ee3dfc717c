"""Every row of the table of tasks goes through the commands that are for it, with pages in both languages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

import vitreous as vt
from vitreous.api.options import EvaluateOptions, InspectOptions, PredictOptions
from vitreous.extensions import Outputs, tasks
from vitreous.languages import LANGUAGES, catalog
from vitreous.tasks import task_named
from vitreous.tasks.task import Task
from vitreous.training.options import options_of


class Tiny(NamedTuple):
    """How a task is trained in two steps: its data, and options; and what it does besides."""

    data: str
    options: tuple[str, ...]
    answers: bool = True  # whether it evaluates, and predicts for images
    exports: bool = True


def settings(**values: object) -> tuple[str, ...]:
    given: list[str] = []
    for name, value in values.items():
        given += ["--set", f"{name.replace('__', '.')}={value}"]
    return tuple(given)


STEPS = settings(training__length="2 steps", training__batch_size=8)
SMALL = settings(model__width=16, model__depth=1, model__heads=2, model__mlp_dim=16)
ON_IMAGES = (*STEPS, *SMALL, "--image-size", "16", *settings(model__patch_size=8, model__stem__kind="patch"))
SCRATCH = (*ON_IMAGES, "--init", "none")
MASKS = (*STEPS, *SMALL, "--image-size", "16", *settings(model__decoder="mask-transformer"))
TRAINED = {
    "classification": Tiny("photos", SCRATCH),
    "multilabel": Tiny("several.csv", (*SCRATCH, *settings(data__form__label_separator=";"))),
    "regression": Tiny("numbers.csv", SCRATCH),
    **dict.fromkeys(("masked-patch", "mae", "contrastive"), Tiny("photos", ON_IMAGES, answers=False)),
    "dino": Tiny("photos", (*ON_IMAGES, *settings(pretraining__dino__prototypes=16)), answers=False),
    "segmentation": Tiny("pixels", MASKS, answers=False, exports=False),
}
# Tasks whose commands have other words: their own tests take them through.
ELSEWHERE = {
    "distillation": "pretraining/test_runs.py",
    "translation": "addons/text/test_translate.py",
}


def test_every_task_is_trained_here_or_elsewhere() -> None:
    assert {*TRAINED, *ELSEWHERE} == set(tasks()), "a new task has a row in TRAINED"
    for name, place in ELSEWHERE.items():
        assert name in (Path(__file__).parents[1] / place).read_text("utf-8")


@pytest.mark.parametrize("name", tasks())
def test_a_row_says_of_a_task_what_the_task_says_of_itself(name: str) -> None:
    row, task = tasks()[name], task_named(name)
    assert isinstance(task, Task)
    assert task.config.command == row.command
    assert row.outputs in get_args(Outputs)
    for language in LANGUAGES:
        assert task.info.panels in catalog(language)["panels"], f"{name}: [panels] of {language}.toml"
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


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_task_goes_through_every_command(
    name: str, photos: Path, tmp_path: Path, vitreous: Callable[..., dict[str, Any]], edit: Any
) -> None:
    row, tiny, run = tasks()[name], TRAINED[name], tmp_path / "run"

    option = {"train": "--task", "pretrain": "--objective"}[row.command]
    with edit(f"{row.module}, or what its messages and pages ask of the catalogs"):
        found = vitreous(
            *(row.command, photos / tiny.data, option, name, *tiny.options, "--out", run, "--language", "ko")
        )
    assert found["task"] == name
    assert 'lang="ko"' in (run / "report.html").read_text("utf-8")
    assert (run / "README.md").is_file()
    for language in LANGUAGES:
        vitreous("inspect", run, "--out", tmp_path / language, "--language", language)
    vitreous("doctor", run)
    image, program = photos / "photos" / "dark" / "0.png", tmp_path / "m.onnx"
    if tiny.exports:
        assert vitreous("export", run, "--out", program)["max_abs_difference"] <= 1e-4
    if tiny.answers:
        assert vitreous("evaluate", run)["metrics"]
        for model in (run, program):
            (answer,) = vitreous("predict", model, image)["predictions"]
            assert answer["path"].endswith("0.png")
    assert vt.describe(str(run)).stages
