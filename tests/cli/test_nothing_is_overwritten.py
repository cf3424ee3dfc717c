"""Every command that writes, aimed at what is there already: it is refused, and what was there stays."""

import re
from pathlib import Path

import pytest
from PIL import Image

from vitreous.errors import InputError
from vitreous.training.config import RunConfig
from vitreous.training.run import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_figures")

OPTIONS = Path(__file__).with_name("options.txt")
WRITING = r"--(out|report|draw|quarantine|figure|save)$|(OUT|DESTINATION|TARGET)$"
# How each is called; {} is where it writes.
LINES = {
    "calibrate --out": "calibrate runs/mine photos --out {}",
    "compare --out": "compare runs/mine runs/other --data photos --out {}",
    "convert DESTINATION": "convert runs/mine {}",
    "data check --quarantine": "data check broken --quarantine {}",
    "data check --report": "data check photos --report {}",
    "data pack OUT": "data pack photos {}",
    "describe --draw": "describe runs/mine --draw {}",
    "embed --out": "embed runs/mine photos --out {}",
    "export --out": "export runs/mine --out {}",
    "inspect --out": "inspect runs/mine photo.jpg --out {}",
    "learn --out": "learn runs/mine --out {}",
    "predict --out": "predict runs/mine photos --out {}",
    "pretrain --out": "pretrain photos --epochs 1 --out {}",
    "study --out": "study patch-size --out {}",
    "train --out": "train photos --epochs 1 --out {}",
    "translate --out": "translate train pairs.tsv --steps 1 --out {}",
}
ADDS_TO_FOLDERS = ("embed --out", "predict --out")  # parts of answers, beside what is there
# The ending that a command asks for, where it asks for one.
ENDINGS = ("", ".csv", ".svg", ".html", ".onnx", ".npz", ".json")


def test_every_option_that_writes_is_tried():
    lines = OPTIONS.read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if re.search(WRITING, line)} == set(LINES)


@pytest.fixture
def there(workplace, tmp_path):
    """A file of each ending, a folder with such files, and links to both."""
    (workplace / "pairs.tsv").write_text("one\teins\ntwo\tzwei\n" * 8, encoding="utf-8")
    if not (workplace / "broken").exists():
        (workplace / "broken" / "3").mkdir(parents=True)
        Image.new("RGB", (20, 20)).save(workplace / "broken" / "3" / "1.png")
        (workplace / "broken" / "3" / "0.png").write_bytes(b"no image")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "3").mkdir()
    (tmp_path / "folder" / "3" / "0.png").write_text("kept", encoding="utf-8")
    for ending in ENDINGS:
        (tmp_path / f"file{ending}").write_text("kept", encoding="utf-8")
        (tmp_path / f"link{ending}").symlink_to(tmp_path / f"file{ending}")
        (tmp_path / "folder" / f"file{ending}").write_text("kept", encoding="utf-8")
    (tmp_path / "link-to-folder").symlink_to(tmp_path / "folder")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("line", LINES)
def test_what_is_there_stays(line, command, workplace, there):
    before, images = contents(there), contents(workplace / "broken")
    targets = [f"{name}{ending}" for name in ("file", "link") for ending in ENDINGS]
    for target in [*targets, "folder", "link-to-folder"]:
        done = command(*LINES[line].format(there / target).split())
        if "folder" in target and line in ADDS_TO_FOLDERS:
            assert contents(there).items() >= before.items(), target
            continue
        assert done.code in (1, 2), (target, done.out)
        assert re.search(r"vitreous: .", done.err), target
        assert contents(there) == before, target
    assert contents(workplace / "broken") == images


RACED = (
    *("calibrate --out", "compare --out", "convert DESTINATION", "data pack OUT", "describe --draw"),
    *("embed --out", "export --out", "inspect --out", "learn --out", "predict --out"),
)


# A page or a folder, whatever it is called.
ONE_KIND = ("calibrate --out", "compare --out", "inspect --out", "learn --out")


@pytest.fixture
def not_seen(tmp_path, monkeypatch):
    """Nothing of the folder of the test is there when a command looks, but what it has begun to write."""
    exists = Path.exists

    def seen(path):
        return exists(path) and (tmp_path not in path.parents or path.name.startswith("."))

    monkeypatch.setattr(Path, "exists", seen)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.slow if line.startswith(("export", "learn")) else ())
        for line in RACED
    ],
)
def test_what_another_process_writes_meanwhile_stays(line, command, workplace, tmp_path, not_seen):
    """Nothing is there when a command looks, and something when it has its answer."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("kept", encoding="utf-8")
    for name in ("file.csv", "file.svg", "file.npz", "file.pth", "file.onnx", "file.html"):
        (tmp_path / name).write_text("kept", encoding="utf-8")
    before = contents(tmp_path)
    refused = []
    files = ["file.html"] if line in ONE_KIND else [path.name for path in before if path.parent == tmp_path]
    for name in [*files, "folder"]:
        if name == "folder" and line in ADDS_TO_FOLDERS:
            continue
        done = command(*LINES[line].format(tmp_path / name).split())
        assert done.code == 2, (name, done.out)
        refused.append("another process has written" in done.err)
        assert contents(tmp_path) == before, name
    assert any(refused)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_of_two_trainings_one_makes_the_run(tmp_path, not_seen):
    """Both have seen that nothing is there."""
    config = RunConfig(source="digits")
    RunDirectory.create(tmp_path / "run", config)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="another process has written"):
        RunDirectory.create(tmp_path / "run", config)
    assert contents(tmp_path) == before


def test_a_page_without_a_name_replaces_nothing(command, workplace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "learn.html").write_text("kept", encoding="utf-8")
    done = command("learn")
    assert (done.code, (tmp_path / "learn.html").read_text(encoding="utf-8")) == (2, "kept")
