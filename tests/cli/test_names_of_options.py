"""An error of the Python API names the parameter, and the command line the option."""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import vitreous as vt
from vitreous.cli import run
from vitreous.errors import InputError, Param

SOURCE = Path(vt.__file__).parent


def test_a_sentence_has_the_words_of_whoever_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    vt.save(vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=2), tmp_path / "m")
    with pytest.raises(vt.InputError, match=r"^`top` 0 gives no label"):
        vt.predict(tmp_path / "m", "photo.jpg", top=0)
    assert run(["predict", str(tmp_path / "m"), "photo.jpg", "--top", "0"]) == 2
    assert capsys.readouterr().err == "vitreous: --top 0 gives no label: use 1 or more\n"


def test_every_parameter_has_its_option(failing: Callable, capsys: pytest.CaptureFixture) -> None:
    named = [Param(name) for name in ("settings", "source_format", "batch_size")]
    error = InputError("{} model.heads=3 or {} timm: {} auto".format(*named))
    assert str(error) == "`settings` model.heads=3 or `source_format` timm: `batch_size` auto"
    assert str(InputError(f"within: {error}")) == f"within: {error}"
    assert run([failing(error)]) == 2
    assert capsys.readouterr().err == "vitreous: --set model.heads=3 or --from timm: --batch-size auto\n"


def test_what_a_user_has_written_stays_as_it_is(capsys: pytest.CaptureFixture) -> None:
    assert run(["describe", "my `cat` model.pth"]) == 2
    assert "my `cat` model.pth" in capsys.readouterr().err
    assert not Param.on_command_line


@cache
def input_errors() -> list[tuple[Path, ast.Call, str]]:
    """Each call of InputError in the package: its file, and the lines of its source."""
    found = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "InputError(" not in text:
            continue
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
                found.append((path, node, "\n".join(lines[node.lineno - 1 : node.end_lineno])))
    return found


def test_no_message_names_a_parameter_by_a_pattern() -> None:
    found = []
    for path, node, _ in input_errors():
        texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        found += [f"{path.name}: {text}" for text in texts if re.search("`[a-z_]+`", str(text))]
    assert found == []


def test_errors_outside_of_the_command_line_have_no_options() -> None:
    """But for whole commands: vitreous train --resume RUN, torchrun --nproc-per-node 2."""
    found = []
    for path, node, said in input_errors():
        if "cli" in path.parts or path.name == "command.py":
            continue
        whole = re.search(r"vitreous \S+|torchrun|nproc", said)
        if re.search(r"(?<![\w`-])--[a-z{]", said) and not whole:
            found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []
