"""Under a Korean locale, help, errors of the command line and progress are Korean: nothing is missing in the
catalog, and nothing is left over."""

from __future__ import annotations

import ast
import os
import re
import string
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

import vitreous
from vitreous.cli import ADDED, COMMANDS, CORE, app, run
from vitreous.extensions import ADDONS, addons, tasks
from vitreous.languages import speaking, unreadable_reason
from vitreous.languages.terminal import meaning_of, terminal_catalog
from vitreous.training.recipes import executed

PACKAGE = Path(vitreous.__file__).parent
KOREAN = terminal_catalog("ko")
HANGUL = re.compile("[가-힣]")
# What a translation keeps: options, numbers, names of files and of forms.
KEPT = re.compile(
    r"--[a-z-]+|\d+(?:\.\d+)?|\.[a-z]+\d?\b|[a-z0-9]+:[A-Z]+|[A-Z]+=[A-Z]+|hf:[a-z/]+", re.ASCII
)


def arguments_of(command: str) -> list[Any]:
    found: Any = app
    for each in command.split():
        found = found[each]
    return [argument for argument in found.assemble_argument_collection() if argument.show]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_korean_sentence_that_says_the_same(command: str) -> None:
    assert HANGUL.search(KOREAN["commands"][command]["summary"])
    for argument in arguments_of(command):
        english = argument.parameter.help
        korean = meaning_of(command, argument.names, english, "ko")
        # Lists of names, such as those of precisions, have little to translate.
        assert HANGUL.search(korean), f"{command} {argument.name}: {korean}"
        assert {*KEPT.findall(english)} <= {*KEPT.findall(korean)}, f"{command} {argument.name}: {korean}"


def test_no_sentence_about_an_option_is_left_over() -> None:
    assert KOREAN["commands"].keys() == COMMANDS.keys()
    shared = set()
    for command, sentences in KOREAN["commands"].items():
        names = {name for argument in arguments_of(command) for name in argument.names}
        assert sentences.keys() - {"summary"} <= names, command
        shared |= names - sentences.keys()
    assert KOREAN["options"].keys() <= shared
    of_data = {name for name, task in tasks().items() if task.data_help}
    assert KOREAN["data"].keys() == of_data


def test_each_file_is_about_the_commands_of_its_folder() -> None:
    for name in ADDONS:
        file = PACKAGE / "addons" / name / "commands.ko.toml"
        words = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
        assert words.get("commands", {}).keys() == addons()[name].commands.keys()
    core = tomllib.loads((PACKAGE / "languages" / "commands.ko.toml").read_text("utf-8"))
    assert core["commands"].keys() == CORE.keys()
    assert not core["commands"].keys() & ADDED.keys()


def literals(function: str) -> set[str]:
    """The first arguments of all calls of a function in the package."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if f"{function}(" not in (text := path.read_text("utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                (first, *_) = node.args
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


def test_every_sentence_of_the_program_is_in_the_catalog_and_no_other() -> None:
    assert literals("said") | literals("CallError") == KOREAN["sentences"].keys()
    for english, korean in KOREAN["sentences"].items():
        latin = re.search("[a-z]", re.sub(r"{[^}]*}", "", korean))
        assert HANGUL.search(korean) or not latin, english
        assert fields(korean) == fields(english), english


def test_every_reason_of_a_recipe_is_in_the_catalog_and_no_other() -> None:
    recipes = executed()
    found = {row["why"] for row in (*recipes["settings"], *recipes["rows"]) if row["why"]}
    assert found == KOREAN["reasons"].keys()
    assert {row["quantity"] for row in recipes["rows"]} <= KOREAN["words"].keys()


def test_words_of_results_are_those_of_the_program() -> None:
    """`word` takes literals, and names that the program has as data: parts, severities, units."""
    assert literals("word") <= KOREAN["words"].keys()


def fields(sentence: str) -> list[tuple[str | None, str | None, str | None]]:
    return sorted({each[1:] for each in string.Formatter().parse(sentence) if each[1]})  # type: ignore[type-var]


def in_korean(*arguments: str, columns: int = 80, flags: tuple[str, ...] = ()) -> tuple[int, str, str]:
    environment = {**os.environ, "LC_ALL": "ko_KR.UTF-8", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    call = [sys.executable, *flags, "-m", "vitreous", *arguments]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, encoding="utf-8")
    return done.returncode, done.stdout, done.stderr


# One process for all commands: the language is that of the locale with which it starts.
ALL = """
from vitreous.cli import COMMANDS, run
for command in ["", "data", *COMMANDS]:
    print("\\f", end="")
    run([*command.split(), "--help"])
"""


@pytest.mark.parametrize("columns", [80, 1])
def test_help_is_korean_in_the_width_of_the_terminal(columns: int) -> None:
    environment = {**os.environ, "LC_ALL": "ko_KR.UTF-8", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    program = ALL if columns > 1 else "from vitreous.cli import main; main(['predict', '--help'])"
    call = [sys.executable, "-OO", "-c", program]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    for page in done.stdout.split("\f"):
        assert not [word for word in KOREAN["words"] if " " in word and word in page]
        assert not re.search(r"Usage:|Examples:|Parameters|Arguments|Commands|\[(default|required)", page)
        for line in page.splitlines():
            inside = line.startswith(("│", "╭", "╰"))
            assert cell_len(line) == max(columns, 40) if inside else cell_len(line) <= max(columns, 40), line
    assert "사용법: vitreous" in done.stdout
    assert "[필수]" in done.stdout


ERRORS = {
    "a word that is not a command": (["trian"], "'train' 명령을 찾으시나요?"),
    "a command of a group": (["data", "chek"], "'check' 명령을 찾으시나요?"),
    "an option that is not there": (["train", "--epoch", "3"], "--epochs 옵션을 찾으시나요?"),
    "an option of another program": (["train", "--lr", "3"], "--set training.peak_lr=1e-3 옵션을"),
    "an argument too few": (["convert", "a"], "vitreous convert에는 DESTINATION 인자가 필요합니다"),
    "an argument too many": (["convert", "a", "b", "c"], "'c' 인자는 쓸 수 없습니다"),
    "no value": (["predict", "a", "--top"], "--top에는 값이 필요합니다"),
    "a value that is not a number": (["predict", "a", "b", "--top", "x"], "값이 정수가 아닙니다: 'x'"),
    "a value of a flag": (["train", "--json=3"], "--json에는 값을 쓰지 않습니다"),
    "a setting that is not one": (["train", "--set", "x"], "--set의 값이 설정이 아닙니다('x')"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_in_a_call_are_korean(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, sentence = ERRORS[name]
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    assert run(arguments) == 2
    assert sentence in capsys.readouterr().err
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert run(arguments) == 2
    assert not HANGUL.search(capsys.readouterr().err)


def test_progress_is_korean_and_json_stays_json(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    quick_figures: None,
) -> None:
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    call = ["train", "synthetic:80@16", "--init", "none", "--out", str(tmp_path / "run"), "--json"]
    assert run([*call, "--set", "training.length=2 steps"]) == 0
    out, err = capsys.readouterr()
    assert "레시피: " in err
    assert "스텝 2/2" in err
    assert out.startswith("{")


WORDS = re.compile(r"[a-z]{3,}[ ,:]+[a-z]{2,}")


def test_what_is_printed_goes_through_the_catalog() -> None:
    """No English sentence is printed as it is, neither as a result nor as a line of the progress."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if not re.search(r"\b(print|say|tell)\b", text := path.read_text("utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id not in ("print", "say", "tell"):
                continue
            for given in node.args:
                parts = given.values if isinstance(given, ast.JoinedStr) else [given]
                said = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
                found += [f"{path.name}: {part}" for part in said if WORDS.search(part)]
    assert not found


def test_why_an_image_cannot_be_read_is_korean() -> None:
    with speaking("ko"):
        assert unreadable_reason("not an image of a known format") == "이미지 형식을 알 수 없음"
        assert (
            unreadable_reason("20000x9000 pixels, more than 100000000")
            == "20000x9000픽셀: 100000000픽셀보다 큼"
        )
        assert unreadable_reason("what a library said of 3") == "what a library said of 3"
    with speaking("en"):
        assert unreadable_reason("the file is empty") == "the file is empty"


# Lines that hold names and numbers alone: rows of classes and of the confusion matrix, the table's rule.
NAMES_ALONE = re.compile(r"^(dark|light|apples)? *[-\d.% ~()|]*(dark|light)?[-\d.% ~()|dark light]*$")


@pytest.mark.slow
def test_a_whole_training_speaks_korean(tmp_path: Path) -> None:
    """The ladder, the reasons of the recipe, progress, findings and results: every line has Korean in it,
    but for names and numbers."""
    rng = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "photos" / ("dark", "light")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 90, (80, 120, 3)) + 160 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    (tmp_path / "photos" / "dark" / "broken.png").write_text("not an image")
    photos, run = str(tmp_path / "photos"), str(tmp_path / "run")
    commands = (
        ("train", photos, "--minutes", "0.05", "--out", run),
        ("evaluate", run),
        ("data", "check", photos),
        ("doctor", run),
        ("predict", run, photos + "/dark/0.png"),
    )
    english = []
    for command in commands:
        code, out, errors = in_korean(*command)
        assert code in (0, 1), errors
        lines = [line for line in (out + errors).splitlines() if line.strip()]
        assert lines
        english += [line for line in lines if not HANGUL.search(line) and not NAMES_ALONE.match(line)]
    english = [line for line in english if photos not in line]  # the answers of predict
    assert not english
