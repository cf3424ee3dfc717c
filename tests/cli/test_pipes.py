"""A pipe in the place of a file that a command reads: refused or left aside, never waited for."""

import os
import shutil

import pytest

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes"),
]

# {} is the pipe.
FILES = {
    "a configuration": "train photos --epochs 1 --config {}",
    "images to leave out": "train photos --epochs 1 --exclude {}",
    "a checkpoint": "describe {}.pth",
    "weights to begin with": "train photos --epochs 1 --init {}.safetensors",
    "an exported model": "predict {}.onnx photo.jpg",
    "a manifest": "train {}.csv",
    "a table": "train {}.parquet",
    "a shard": "train {}.tar",
    "an image": "predict runs/mine {}.png",
}
COMMANDS = (
    "describe {}",
    "predict {} photo.jpg",
    "evaluate {} photos",
    "doctor {}",
    "compare {} runs/other --data photos",
)


@pytest.mark.parametrize("line", FILES)
def test_a_pipe_is_no_file(line, command, tmp_path):
    for ending in ("", ".pth", ".safetensors", ".onnx", ".csv", ".parquet", ".tar", ".png"):
        os.mkfifo(tmp_path / f"pipe{ending}")
    done = command(*FILES[line].format(tmp_path / "pipe").split())
    assert done.code in (1, 2)
    assert "pipe" in done.err
    assert "bug in vitreous" not in done.err


def test_every_file_of_a_run_may_be_one(command, workplace, tmp_path):
    shutil.copytree(workplace / "runs" / "mine", tmp_path / "whole")
    files = [
        path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file()
    ]
    assert len(files) > 2
    for number, file in enumerate(files):
        run = tmp_path / f"run{number}"
        shutil.copytree(tmp_path / "whole", run)
        (run / file).unlink()
        os.mkfifo(run / file)
        for line in COMMANDS:
            done = command(*line.format(run).split())
            assert done.code in (0, 1, 2), (file, line)
            assert "bug in vitreous" not in done.err, (file, line, done.err)
