"""Pre-training by two processes over gloo."""

import numpy as np
import pytest
import torch

import vitreous as vt
from forked import run_group
from vitreous.cli import run as command
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.tasks import task_named
from vitreous.tasks.training_run import fit, open_run, plan_of_run
from vitreous.training.run import RunDirectory

DRIVER = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.tasks.training_run import fit
from vitreous.tasks.training_run import open_run, plan_of_run
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group
from vitreous.training.run import RunDirectory

splits = open_data("digits", DataConfig(), "unlabeled")
with process_group(torch.device("cpu")) as (world, device):
    for folder in sys.argv[1:]:
        fit(plan_of_run(open_run(Path(folder)), splits), Place(device, world))
    torch.distributed.barrier()
"""


def launch(folder, *runs):
    """Two processes bring each of the runs to its end."""
    (folder / "driver.py").write_text(DRIVER)
    run_group(folder / "driver.py", *(run.path for run in runs))


def settings(machine, **training):
    """Attention pooling gets no gradient from a masked objective."""
    return {
        "model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16, "pooling": "attention"},
        "training": {
            "length": "12 steps",
            "batch_size": 32,
            "peak_lr": 1e-3,
            **training,
            "records": {"log_every": 4},
            "machine": {"evaluation_batch_size": 360, **machine},
        },
    }


@pytest.mark.slow
def test_parameters_without_a_gradient_keep_nobody_waiting(tmp_path):
    runs = {
        (objective, shard): RunDirectory.create(
            tmp_path / f"{objective}-{shard}",
            task_named(objective)
            .plan("digits", settings(machine={"shard": shard}, ema={"decay": 0.5}))
            .config,
        )
        for objective in ("masked-patch", "mae", "dino", "contrastive")
        for shard in (False, True)
    }
    launch(tmp_path, *runs.values())
    splits = open_data("digits", DataConfig(), "unlabeled")
    for (objective, shard), run in runs.items():
        alone = RunDirectory.create(tmp_path / f"{objective}-{shard}-1", run.config)
        fit(plan_of_run(alone, splits))
        rows, expected = run.metrics(), alone.metrics()
        assert [row["step"] for row in rows] == [row["step"] for row in expected]
        # Masks are drawn by each process, so the curves are alike and not the same.
        losses = [[row["loss"] for row in each] for each in (rows, expected)]
        assert np.allclose(*losses, rtol=0.1), (objective, shard)
        assert rows[-1]["validation_loss"] == pytest.approx(expected[-1]["validation_loss"], rel=0.05)
        assert losses[0] == pytest.approx([row["loss"] for row in runs[objective, False].metrics()], abs=1e-5)
        assert vt.load(run.path).config.pooling.kind == "attention"


@pytest.mark.slow
def test_dinos_teacher_goes_on_in_shards_and_without(tmp_path):
    """Its center and its count of steps lie whole in a state of shares."""
    runs = []
    for shard in (True, False):
        config = (
            task_named("dino").plan("digits", settings(machine={"shard": shard}, length="4 steps")).config
        )
        runs.append(RunDirectory.create(tmp_path / f"{shard}", config))
    launch(tmp_path, *runs)
    for run in runs:
        toml = run.path / "config.toml"
        toml.write_text(toml.read_text().replace('"4 steps"', '"8 steps"'))
    launch(tmp_path, *runs)
    shares, whole = (run.states.newest() for run in runs)
    assert shares.tensors.keys() == whole.tensors.keys()
    assert shares.tensors["model/step"] == 8
    assert not torch.equal(shares.tensors["model/center"], torch.zeros_like(shares.tensors["model/center"]))
    for name, tensor in whole.tensors.items():
        if name.startswith("model/"):
            torch.testing.assert_close(shares.tensors[name], tensor, rtol=0, atol=1e-4, msg=name)
    splits = open_data("digits", DataConfig(), "unlabeled")
    toml = runs[0].path / "config.toml"
    toml.write_text(toml.read_text().replace('"8 steps"', '"9 steps"'))
    alone = fit(plan_of_run(open_run(runs[0].path), splits))
    assert int(alone.model.step) == 9


def test_shards_without_processes_are_an_input_error(tmp_path, capsys):
    for name in ("pretrain", "train"):
        assert command([name, "digits", "--shard", "--out", str(tmp_path / name)]) == 2
        assert "--shard spreads the weights over processes, and there is only one" in capsys.readouterr().err
        assert not (tmp_path / name).exists()
