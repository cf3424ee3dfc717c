"""The wheel and the sdist: what is in them, and the wheel alone in a clean environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MOST_BYTES = 5_200_000  # of the wheel; 1.3 MB of it are the encoder, 2.2 MB the models of the learn page

SMOKE = """
import sys
import vitreous as vt
from importlib.util import find_spec
for name in ("matplotlib", "sklearn", "tensorboard", "scipy"):
    assert find_spec(name) is None, name
model = vt.create("ViT-Ti/16", num_classes=3, image_size=32)
vt.save(model, "saved", format="timm")
assert vt.load("saved").config == model.config
print(vt.__version__)
"""
COMMANDS = (
    ["describe", "ViT-B/16"],
    ["convert", "saved", "converted", "--format", "huggingface"],
    ["predict", "saved", "learn.png"],
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the sdist in the folder DIST, as a release has them; else built from the working tree."""
    if given := os.environ.get("DIST"):
        return ROOT / given
    pytest.importorskip("build", reason="build is not installed: make test-slow installs it")
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], out)
    return out


def run(command: list[str], folder: Path, code: int = 0) -> str:
    """What a command wrote, both streams; it has to end with `code`."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")  # make has it relative to ROOT
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_the_wheel_has_what_the_package_reads(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    held = set(ZipFile(wheel).namelist())
    files = [path for path in (ROOT / "src" / "vitreous").rglob("*") if path.is_file()]
    expected = {str(path.relative_to(ROOT / "src")) for path in files if "__pycache__" not in path.parts}
    assert "vitreous/py.typed" in expected
    assert any(name.endswith(".html.j2") for name in expected)
    assert expected <= held
    assert wheel.name == f"vitreous-{VERSION}-py3-none-any.whl"
    assert wheel.stat().st_size < MOST_BYTES


def test_the_page_on_the_package_index_has_links_that_lead_somewhere(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    text = ZipFile(wheel).read(f"vitreous-{VERSION}.dist-info/METADATA").decode()
    assert text.count("pip install 'vitreous[train,export]'") == 1
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []
    for page in re.findall(r"https://vitreous\.readthedocs\.io/([\w/-]+)\.html", " ".join(links)):
        assert any((ROOT / "docs" / f"{page}{ending}").exists() for ending in (".md", ".ipynb")), page


def test_the_metadata_is_of_a_version_that_can_be_uploaded(built: Path) -> None:
    """Twine 6, which gh-action-pypi-publish 1.12 has, refuses what is newer after everything was built."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = archive.extractfile(f"vitreous-{VERSION}/PKG-INFO")
        assert packed is not None
        texts = [packed.read(), ZipFile(wheel).read(f"vitreous-{VERSION}.dist-info/METADATA")]
    assert [text.partition(b"\n")[0] for text in texts] == [b"Metadata-Version: 2.4"] * 2


def test_the_sdist_has_no_test_data(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        top = {name.split("/")[1] for name in archive.getnames()}
    texts = {"README.md", "CHANGELOG.md", "LICENSE", "NOTICE"}
    assert top == {"src", "pyproject.toml", "PKG-INFO", ".gitignore", *texts}
    assert sdist.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_alone_in_a_clean_environment(version: str, built: Path, tmp_path: Path) -> None:
    """With each Python that is installed here; the release workflow installs all of them."""
    interpreter = shutil.which(f"python{version}")
    # A version manager has a name for each Python that it could install.
    if interpreter is None or subprocess.run([interpreter, "--version"], capture_output=True).returncode:
        pytest.skip(f"python{version} is not installed")
    (wheel,) = built.glob("*.whl")
    run([interpreter, "-m", "venv", str(tmp_path / "venv")], tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], tmp_path)
    run([python, "-m", "pip", "install", "--quiet", str(wheel)], tmp_path)
    (tmp_path / "learn.png").write_bytes((ROOT / "docs" / "learn.png").read_bytes())
    assert run([python, "-c", SMOKE], tmp_path).split()[-1] == VERSION
    vitreous = str(tmp_path / "venv" / "bin" / "vitreous")
    for words in COMMANDS:
        run([vitreous, *words], tmp_path)
    for words in (["train"], ["train", "photos"], ["inspect", "saved", "learn.png"]):
        said = run([vitreous, *words], tmp_path, code=2)
        assert said.count("\n") == 1, said
        assert "pip install 'vitreous[train]'" in said
    assert not (tmp_path / "runs").exists()
