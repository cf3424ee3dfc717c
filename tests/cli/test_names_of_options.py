"""An error of the Python API names the parameter, and the command line the option."""

import ast
import re
from pathlib import Path

import pytest

import vitreous as vt
from vitreous.cli import in_shell, run

SOURCE = Path(vt.__file__).parent


def test_a_sentence_has_the_words_of_whoever_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    vt.save(vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=2), tmp_path / "m")
    with pytest.raises(vt.InputError, match=r"^`top` 0 names no label"):
        vt.predict(tmp_path / "m", "photo.jpg", top=0)
    assert run(["predict", str(tmp_path / "m"), "photo.jpg", "--top", "0"]) == 2
    assert capsys.readouterr().err == "vitreous: --top 0 names no label: use 1 or more\n"


def test_every_parameter_has_its_option() -> None:
    sentence = "`settings` model.heads=3 or `source_format` timm: `batch_size` auto, `top`"
    assert in_shell(sentence) == "--set model.heads=3 or --from timm: --batch-size auto, --top"


def test_errors_outside_of_the_command_line_have_no_options() -> None:
    """But for whole commands: vitreous train --resume RUN, torchrun --nproc-per-node 2."""
    found = []
    for path in SOURCE.rglob("*.py"):
        if "cli" in path.parts or path.name == "command.py":
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError"):
                continue
            said = ast.get_source_segment(text, node) or ""
            whole = re.search(r"vitreous \S+|torchrun|nproc", said)
            if re.search(r"(?<![\w`-])--[a-z{]", said) and not whole:
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []
