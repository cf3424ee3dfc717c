"""The last line of defense: whatever the system, a stream, a path or a library refuses, each command ends in
one sentence and its exit code, never with a traceback or a hang."""

import contextlib
import io
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import vitreous as vt
from vitreous.cli import COMMANDS, run
from vitreous.errors import InputError

ERRORS = {
    "permission": (
        PermissionError(13, "Permission denied", "/a/b"),
        2,
        "cannot use /a/b (Permission denied)",
    ),
    "input and output": (OSError(5, "Input/output error"), 2, "the system refuses (Input/output error)"),
    "gone": (FileNotFoundError(2, "No such file or directory", "/x"), 2, "cannot use /x"),
    "not a folder": (NotADirectoryError(20, "Not a directory", "/x/y"), 2, "Not a directory"),
    "a null byte": (ValueError("embedded null byte"), 2, "a path contains a null byte"),
    "no temporary files": (
        FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"),
        2,
        "set TMPDIR to one that is",
    ),
    "a long path": (OSError(36, "File name too long", "x" * 5000), 2, "a path is too long"),
    "not UTF-8": (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), 2, "not UTF-8"),
    "a lone surrogate": (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), 2, "not UTF-8"),
    "deep": (RecursionError("maximum recursion depth exceeded"), 2, "nested too deeply"),
    "memory": (MemoryError(), 2, "there is not enough memory"),
    "of PyTorch": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        2,
        "there is not enough",
    ),
    "a library": (
        IndexError("list index\nout of range"),
        1,
        "unexpected IndexError: list index out of range",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_command_ends_in_one_sentence(case, failing, monkeypatch, capsys, tmp_path):
    error, code, sentence = ERRORS[case]
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    assert run([failing(error)]) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("vitreous: ")
    assert found.err.count("\n") == 1
    assert sentence in found.err


UNUSABLE = [
    "~nosuchuser/x",
    "~nosuchuser/x.csv",
    "~nosuchuser/x.png",
    "hf:",
    "\udcff\udcfe",
    "x" * 5000,
    "a\0b",
    "",
]


def command_with(command, subject):
    """A command whose first argument is `subject`."""
    words = command.split()
    if command in ("pretrain", "train"):
        return [*words, subject]
    if command == "inspect":
        return [*words, subject]
    return [
        *words,
        subject,
        *(["y"] if command in ("data pack", "convert", "probe", "predict", "embed") else []),
    ]


@pytest.mark.parametrize("subject", UNUSABLE, ids=range(len(UNUSABLE)))
def test_paths_that_cannot_be_are_one_sentence(subject, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if command in (
            "cache",
            "list-models",
            "recipe",
            "study",
            "serve",
            "translate",
            "compare",
            "bench",
            "optimize",
        ):
            continue
        code = run(command_with(command, subject))
        found = capsys.readouterr()
        assert code == 2, (command, found.err[-500:])
        last = found.err.strip().splitlines()[-1]
        assert last.startswith("vitreous: ")
        assert "Traceback" not in found.err
        assert "defect" not in last, (command, last)
    assert not list(tmp_path.iterdir())


EMPTY = [
    ["predict", "vitreous:small", "photos", "--out", ""],
    ["predict", "", "photos"],
    ["embed", "vitreous:small", "photos", "--out="],
    ["convert", "vitreous:small", ""],
    ["describe", ""],
]


@pytest.mark.parametrize("words", EMPTY)
def test_an_empty_argument_is_not_the_current_folder(words, capsys, tmp_path, monkeypatch, workplace):
    """Where that has a model and images: `predict "$MODEL" photos --out "$OUT"` without such variables."""
    shutil.copytree(workplace / "runs" / "mine" / "model", tmp_path, dirs_exist_ok=True)
    shutil.copytree(workplace / "photos", tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert run(words) == 2
    assert "is empty: is a variable not set?" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(InputError, match="is empty: is a variable not set"):
        vt.load("")


def call(*arguments, timeout=100, **options):
    """Run `vitreous` in a process of its own."""
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "vitreous", *arguments], timeout=timeout, env=environment, **options
    )


@pytest.mark.slow
def test_stdout_that_is_full_or_closed_or_not_read():
    with open("/dev/full", "w") as full:
        found = call("list-models", stdout=full, stderr=subprocess.PIPE, text=True)
    assert found.returncode == 2
    assert "No space left" in found.stderr
    assert found.stderr.count("\n") == 1
    shell = f"{sys.executable} -m vitreous list-models"
    closed = subprocess.run(["sh", "-c", f"{shell} >&-"], stderr=subprocess.PIPE, text=True, timeout=100)
    assert (closed.returncode, closed.stderr.count("\n")) == (2, 1)
    assert "stdout is closed" in closed.stderr
    silent = subprocess.run(["sh", "-c", f"{shell} 2>&- <&- | wc -l"], stdout=subprocess.PIPE, timeout=100)
    assert int(silent.stdout) > 10
    unread = subprocess.run(
        ["bash", "-c", f"{shell.replace('list-models', 'train --help')} | true; echo ${{PIPESTATUS[0]}}"],
        stdout=subprocess.PIPE,
        timeout=100,
    )
    assert int(unread.stdout) in (0, 141)


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "1", "2", "-5", "x", ""])
def test_help_in_any_width(columns):
    found = call("train", "--help", env={"COLUMNS": columns}, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0
    assert "Train or fine-tune" in found.stdout


LOCALES = [
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "cp949"},
    {"PYTHONIOENCODING": "latin-1:strict"},
]


@pytest.mark.slow
@pytest.mark.parametrize("environment", LOCALES, ids=range(len(LOCALES)))
def test_names_are_printed_in_any_encoding(tmp_path, environment):
    """A sentence and JSON about a folder that is not there, named in Hangul and with an emoji."""
    for name in ("고양이 사진", "cat 😀"):
        plain = call("data", "check", str(tmp_path / name), env=environment, capture_output=True)
        assert plain.returncode == 2
        assert b"Traceback" not in plain.stderr
        assert plain.stderr.count(b"\n") == 1
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="ascii")) as written:
        from vitreous.cli.printing import print_json

        print_json({"name": "고양이 😀"})
    assert b"\\uace0\\uc591\\uc774 \\ud83d\\ude00" in written.buffer.getvalue()


NUMBERS = [
    *(
        ["--batch-size", value]
        for value in ("1.5", "true", "nan", "9" * 25, "1_0", "٣", "0x10", "-1", "1e9", "")
    ),
    *(["--epochs", value] for value in ("nan", "inf", "1_0", "-1")),
    *(["--minutes", value] for value in ("nan", "inf", "-1", "0")),
    *(["--image-size", value] for value in ("nan", "²", "0", "9" * 30, "1x2x3", "-4", "")),
    *(["--set", value] for value in ("model.depth=1e9", "model.depth=true", "training.batch_size=true")),
    *(["--set", value] for value in ("training.peak_lr=nan", "training.peak_lr=true", "model.depth=nan")),
    ["--set", "a" + ".b" * 5000 + "=1"],
    ["--set", "x=" + "[" * 5000],
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("words", NUMBERS, ids=["".join(each)[:30] for each in NUMBERS])
def test_numbers_without_sense_are_refused(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "digits", "--out", "run", *words]) == 2
    found = capsys.readouterr().err
    assert "Traceback" not in found
    assert found.strip().splitlines()[-1].startswith("vitreous: ")
    assert "defect" not in found
    assert not Path("run").exists()


def test_a_library_says_nothing_of_its_cache(capsys):
    """Where the home cannot be written, matplotlib explains its own folder at each start."""
    run(["recipe", "nope"])
    logging.getLogger("matplotlib.font_manager").warning("Matplotlib created a temporary cache directory")
    assert "cache directory" not in capsys.readouterr().err


CONFIGS = {
    "[training]\nepochz = 2": "own.toml: unknown setting training.epochz",
    "[model]\ndepth = 'two'": "own.toml: model.depth",
    "foo = 1": "own.toml: unknown setting foo",
    "[training": "own.toml is not TOML",
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_setting_that_is_wrong_is_named_with_its_file(text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(text, encoding="utf-8")
    assert run(["train", "digits", "--out", "run", "--config", "own.toml"]) == 2
    assert CONFIGS[text] in capsys.readouterr().err
    assert run(["train", "digits", "--out", "run", "--config", "own.toml", "--set", "training.length=x"]) == 2
    assert "own.toml: training.length" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_current_folder_that_was_removed(tmp_path):
    shell = (
        f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m vitreous predict vitreous:small x.jpg"
    )
    found = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "vitreous: the current folder is no longer there: change to another one (cd)\n"


STOPPED = """
import runpy, sys
class Stop:
    def find_spec(self, name, path, target=None):
        if name == "cyclopts":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
runpy.run_module("vitreous", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_while_commands_are_imported():
    found = subprocess.run([sys.executable, "-c", STOPPED, "list-models"], capture_output=True, timeout=100)
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


LAUNCHERS = ("LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE")


@pytest.mark.parametrize("variable", LAUNCHERS)
@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 30, "1_0", " 2"])
def test_variables_of_a_launcher_are_numbers(variable, value, monkeypatch, command, tmp_path):
    monkeypatch.setenv(variable, value)
    if variable != "LOCAL_WORLD_SIZE":
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        monkeypatch.setenv({"RANK": "WORLD_SIZE", "WORLD_SIZE": "RANK"}[variable], "1")
    found = command("train", "photos", "--epochs", "1", "--out", str(tmp_path / "run"))
    assert found.code == 2
    assert found.err.strip().splitlines()[-1].startswith(f"vitreous: the environment variable {variable}")


@pytest.mark.slow
@pytest.mark.parametrize("value", ["nonsense", "tkagg", ""])
def test_figures_are_written_whatever_shows_them(value, tmp_path):
    """MPLBACKEND is of the user's notebooks."""
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    words = ("inspect", "vitreous:small", "a.png", "--out", "page")
    found = call(*words, env={"MPLBACKEND": value}, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
