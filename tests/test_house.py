"""The house stands as docs/architecture.md says: floors, small rooms, a light front door."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vitreous"


def test_a_floor_imports_only_from_below() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_room_is_crowded() -> None:
    lines = {
        str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8").count("\n")
        for path in SOURCE.rglob("*.py")
    }
    assert {name: count for name, count in lines.items() if count > 400} == {}


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"]])
def test_help_does_not_wait_for_heavy_imports(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from vitreous.cli import run\n"
        f"assert run({words!r}) == 0\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'matplotlib', 'PIL', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, vitreous; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_resolve() -> None:
    import vitreous

    for name in vitreous.__all__:
        assert getattr(vitreous, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lood'"):
        _ = vitreous.lood
