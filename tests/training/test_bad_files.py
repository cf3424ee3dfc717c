"""Images that cannot be read, of all processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from forked import run_group
from vitreous.data.loading import BadFiles
from vitreous.errors import InputError
from vitreous.models.stored import BadImage
from vitreous.training.config import RunConfig
from vitreous.training.distributed import BadFileSync, World
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure

# Each process says which images it could not read itself, before it hears of the others'.
DRIVER = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from vitreous.data.loading import BadFiles
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.training.machine import Place
from vitreous.training.distributed import BadFileSync
from vitreous.tasks.training_run import fit
from vitreous.tasks.training_run import plan_of_run
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group
from vitreous.training.run import RunDirectory

exchange = BadFileSync.exchange

def told(together):
    (path / f"own-{world.rank}.txt").write_text("\\n".join(sorted(together.bad.reasons)))
    exchange(together)

BadFileSync.exchange = told
with process_group(torch.device("cpu")) as (world, device):
    for argument in sys.argv[1:]:
        path = Path(argument)
        run = RunDirectory.open(path)
        try:
            fit(plan_of_run(run, open_data(run.config.source, run.config.data)), Place(device, world))
        except InputError as error:
            (path / f"error-{world.rank}.txt").write_text(str(error))
    torch.distributed.barrier()
"""


def photos(folder: Path, *, torn: int) -> Path:
    """400 images to learn from, some of them no images, and 10 to judge by."""
    for number in range(410):
        part, label = "train" if number < 400 else "test", "ab"[number % 2]
        file = folder / part / label / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        if number < torn:
            file.write_bytes(b"no image")
        else:
            Image.new("L", (8, 8), number % 256).save(file)
    return folder


@pytest.mark.slow
def test_the_list_has_those_of_every_process_and_all_of_them_count(tiny: RunConfig, tmp_path: Path) -> None:
    few, many = (
        configure(
            tiny,
            {
                "seed": 8,  # the order in which each process has half of them
                "source": str(photos(tmp_path / f"{torn}", torn=torn)),
                "model": {"num_classes": 2},
                "data": {"reading": {"in_memory": False, "workers": 0}, "validation_fraction": 0},
                "training": {"length": "1 epochs", "batch_size": 40, "records": {"save_every": 1e9}},
            },
        )
        for torn in (4, 6)
    )
    complete, stopped = (
        RunDirectory.create(tmp_path / "few", few),
        RunDirectory.create(tmp_path / "many", many),
    )
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    run_group(script, complete.path, stopped.path)
    for run, count in ((complete, 4), (stopped, 6)):
        listed = (run.path / "bad_files.txt").read_text().splitlines()
        assert [Path(line.split("\t")[0]).name for line in sorted(listed)] == [
            f"{number:03}.png" for number in (*range(0, count, 2), *range(1, count, 2))
        ]
        assert not list(run.path.glob("bad_files-*"))
    assert not list(complete.path.glob("error-*"))
    for rank in (0, 1):  # neither had too many of its own
        assert len((stopped.path / f"own-{rank}.txt").read_text().splitlines()) == 3
        assert (stopped.path / f"error-{rank}.txt").read_text().startswith("6 of 400 images cannot be read")


def test_a_process_that_stops_alone_keeps_its_own_list(tmp_path: Path) -> None:
    bad = BadFiles()
    second = BadFileSync(bad, 100, World(rank=1, size=2))
    second.write(tmp_path)
    assert not list(tmp_path.iterdir())
    bad.add(BadImage("a.png", "empty"))
    second.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bad_files-1.txt"]


def test_one_process_alone_knows_all() -> None:
    bad = BadFiles()
    together = BadFileSync(bad, 100, World())
    bad.add(BadImage("a.png", "empty"))
    assert together.pending
    together.exchange()
    assert not together.pending
    for number in range(3):
        bad.add(BadImage(f"{number}.png", "empty"))
    assert together.pending
    with pytest.raises(InputError, match="4 of 100 images"):
        together.exchange()
