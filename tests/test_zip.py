"""The package can be imported from a zip file, as zipapp and Spark's --py-files do it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PROGRAM = """
import vitreous as vt
assert ".zip" in vt.__file__, vt.__file__
model = vt.create("ViT-Ti/16", image_size=32, num_classes=3, depth=1)
print(type(model).__name__, "predict" in dir(vt), vt.InputError.__module__)
import os
os.environ["LC_ALL"] = "ko_KR.UTF-8"
from vitreous.cli import run
print(run(["list-models", "--help"]))
"""


@pytest.mark.slow
def test_import_from_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / "vitreous.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in SOURCE.rglob("*"):
            if path.suffix in (".py", ".pyi", ".toml", ".json", ".j2", ".js", ".css"):
                file.write(path, path.relative_to(SOURCE))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    first, *shown, code = done.stdout.splitlines()
    assert first.split() == ["ViT", "True", "vitreous.errors"], done.stderr
    assert "모델 이름과 파라미터 수를 나열합니다." in shown
    assert code == "0"
