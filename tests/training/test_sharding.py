"""Weights in shards, by two processes over gloo: the same curve as one process, and states for any number."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from forked import run_group
from vitreous.data.dataset import Splits
from vitreous.errors import InputError
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.callbacks import read_metrics
from vitreous.training.config import MachineConfig, RunConfig
from vitreous.training.distributed import World, shards_for
from vitreous.training.initial_model import starting_model
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure, to_toml
from vitreous.whole_files import write_text

# One launch goes through several runs: RUN, or RUN@STEP where Ctrl-C comes at that step.
DRIVER = """
import os, resource, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.tasks.training_run import fit
from vitreous.tasks.training_run import plan_of_run
from vitreous.training.callbacks import Callback
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group
from vitreous.training.run import RunDirectory
from vitreous.training.trainer import Interrupted

class Strike(Callback):
    def on_step_end(self, trainer):
        if trainer.learner.step == stop:
            os.kill(os.getpid(), signal.SIGINT)

splits = open_data("digits", DataConfig(test_fraction=0.85))
with process_group(torch.device("cpu")) as (world, device):
    if "FULL_DISK" in os.environ and not world.first:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    for argument in sys.argv[1:]:
        folder, _, step = argument.partition("@")
        run, stop = RunDirectory.open(Path(folder)), int(step or -1)
        try:
            fit(plan_of_run(run, splits), Place(device, world), callbacks=[Strike()] if stop > 0 else [])
        except (InputError, Interrupted) as error:
            (run.path / f"error-{world.rank}.txt").write_text(str(error))
    torch.distributed.barrier()
"""

Config = dict[str, Any]


def launch(folder: Path, *arguments: str | Path, processes: int = 2, **environment: str) -> None:
    """Bring each of the runs to its end, or to where it is stopped."""
    (folder / "driver.py").write_text(DRIVER)
    run_group(folder / "driver.py", *arguments, processes=processes, environment=environment)


def curve(run: RunDirectory) -> list[float]:
    return [row["loss"] for row in read_metrics(run.path / "metrics.jsonl")]


@pytest.fixture
def config(tiny: RunConfig) -> RunConfig:
    """Without dropout and noise, which each process samples; the rest is sampled for the whole batch."""
    training = {
        "length": "8 steps",
        "machine": {"grad_accum_steps": 2},
        "peak_lr": 3e-3,
        "records": {"log_every": 1, "save_every": 1e9},
    }
    plain = {
        "model": {"dropout": 0.0, "drop_path": 0.0},
        "augmentation": {"noise": 0.0},
        "training": training,
    }
    return configure(tiny, plain, {"training": {"machine": {"shard": True}}})


def alone(config: RunConfig, splits: Splits, path: Path) -> RunDirectory:
    """What one process makes of it."""
    run = RunDirectory.create(path, config)
    fit(plan_of_run(run, splits))
    return run


def copied(run: RunDirectory, path: Path, *, shard: bool | int) -> RunDirectory:
    """The same run elsewhere, which goes on with shards or without."""
    shutil.copytree(run.path, path)
    config = configure(run.config, {"training": {"machine": {"shard": shard}}})
    write_text(path / "config.toml", to_toml(config))
    return RunDirectory.open(path)


VARIANTS: dict[str, Config] = {
    "adamw": {},
    "sgd": {"training": {"optimizer": {"kind": "sgd", "clip_norm": 0.1}}},
    "muon": {"training": {"optimizer": {"kind": "muon"}}},
    "sam": {"training": {"optimizer": {"sam_radius": 0.05}}},
    "checkpointed": {"training": {"machine": {"checkpointing": True}}},
    "lora": {"training": {"lora": {"rank": 2}}},
    "bf16": {"training": {"precision": "bf16"}},
    "compiled": {"training": {"machine": {"compile": True}}},
    "frozen": {"training": {"freeze": ["stem", "blocks.0"]}},
    "no position of the class token": {"training": {"freeze": ["position.prefix"]}},
    "attention pooling": {"model": {"pooling": "attention", "layer_scale": 0.1}},
    "no prefix tokens": {"model": {"pooling": "mean", "class_token": False}},
}


@pytest.mark.slow
def test_the_loss_curve_is_that_of_one_process(config: RunConfig, splits: Splits, tmp_path: Path) -> None:
    configs = {name: configure(config, variant) for name, variant in VARIANTS.items()}
    one = {name: alone(each, splits, tmp_path / f"{name}-1") for name, each in configs.items()}
    two = {name: RunDirectory.create(tmp_path / f"{name}-2", each) for name, each in configs.items()}
    launch(tmp_path, *(run.path for run in two.values()))
    for name in VARIANTS:
        tolerance = 3e-2 if name == "bf16" else 1e-5
        assert len(curve(two[name])) == 8
        assert curve(two[name]) == pytest.approx(curve(one[name]), abs=tolerance), name
        heads = [run.model().state_dict()["head.weight"] for run in (one[name], two[name])]
        assert heads[0].abs().max() > 0
        torch.testing.assert_close(heads[0], heads[1], rtol=0, atol=max(tolerance, 1e-4), msg=name)
        assert type(two[name].model()).__name__ == "ViT"


@pytest.mark.slow
def test_a_state_in_shards_goes_on_in_one_process(config: RunConfig, splits: Splits, tmp_path: Path) -> None:
    config = configure(config, {"training": {"length": "14 steps"}})
    whole = alone(config, splits, tmp_path / "whole")
    stopped = RunDirectory.create(tmp_path / "stopped", config)
    launch(tmp_path, f"{stopped.path}@10")
    assert stopped.states.steps() == [0, 10]
    shares = sorted(stopped.path.glob("checkpoints/step-000000010.shards/*"))
    assert [path.suffix for path in shares] == [".safetensors"] * 2
    torn = copied(stopped, tmp_path / "torn", shard=True)
    fit(plan_of_run(stopped, splits))
    assert curve(stopped) == pytest.approx(curve(whole), abs=1e-5)
    assert len(curve(stopped)) == 14

    share = torn.path / "checkpoints" / "step-000000010.shards" / shares[0].name
    share.write_bytes(share.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"step-000000010 is damaged \(the checksum of shard-"):
        newest = torn.states.newest()
    assert newest is not None
    assert newest.facts["step"] == 0


@pytest.mark.slow
def test_a_run_goes_on_in_any_number_of_processes_with_shards_or_without(
    config: RunConfig, splits: Splits, tmp_path: Path
) -> None:
    config = configure(config, {"training": {"length": "14 steps"}})
    whole = alone(config, splits, tmp_path / "whole")
    begun = {
        "shards": RunDirectory.create(tmp_path / "shards", config),
        "replicas": RunDirectory.create(
            tmp_path / "replicas", configure(config, {"training": {"machine": {"shard": False}}})
        ),
        "one": RunDirectory.create(tmp_path / "one", config),
    }
    launch(tmp_path, *(f"{begun[name].path}@10" for name in ("shards", "replicas")))
    launch(tmp_path, f"{begun['one'].path}@10", processes=1)
    resumed = [
        copied(run, tmp_path / f"{name}-{'shards' if shard else 'whole'}", shard=shard)
        for name, run in begun.items()
        for shard in (True, False)
    ]
    torn = copied(begun["shards"], tmp_path / "torn", shard=True)
    next(torn.path.glob("checkpoints/step-000000010.shards/*")).write_bytes(b"")
    launch(tmp_path, torn.path, *(run.path for run in resumed))
    launch(tmp_path, *(run.path for run in begun.values()), processes=1)
    for run in (*begun.values(), *resumed, torn):
        assert curve(run) == pytest.approx(curve(whole), abs=1e-5), run.path.name
        assert len(curve(run)) == 14, run.path.name


@pytest.mark.slow
def test_two_groups_of_two_each_share_a_copy(config: RunConfig, splits: Splits, tmp_path: Path) -> None:
    """The curve of one process, and states that go on in one process, in shards of all, and in groups."""
    config = configure(config, {"training": {"length": "14 steps", "machine": {"shard": 2}}})
    whole = alone(config, splits, tmp_path / "whole")
    sgd = configure(config, {"training": {"optimizer": {"kind": "sgd", "clip_norm": 0.1}}})
    one_sgd = alone(sgd, splits, tmp_path / "sgd-1")
    groups, four_sgd = (
        RunDirectory.create(tmp_path / name, each) for name, each in (("groups", config), ("sgd-4", sgd))
    )
    launch(tmp_path, f"{groups.path}@10", four_sgd.path, processes=4)
    assert curve(four_sgd) == pytest.approx(curve(one_sgd), abs=1e-5)
    assert len(curve(groups)) == 10
    shares = sum(path.stat().st_size for path in groups.path.glob("checkpoints/step-000000010.shards/*"))
    (state,) = (whole.states.folder / "step-000000014.shards").iterdir()
    assert shares < 1.5 * state.stat().st_size  # a copy is written once
    resumed = [copied(groups, tmp_path / name, shard=shard) for name, shard in (("a", 2), ("b", False))]
    all_of_two = copied(groups, tmp_path / "c", shard=True)
    launch(tmp_path, resumed[0].path, processes=4)
    launch(tmp_path, all_of_two.path, resumed[1].path)
    fit(plan_of_run(groups, splits))
    for run in (groups, *resumed, all_of_two):
        assert curve(run) == pytest.approx(curve(whole), abs=1e-5), run.path.name
        assert len(curve(run)) == 14, run.path.name


@pytest.mark.slow
def test_a_full_disk_of_one_process_stops_all_with_one_sentence(config: RunConfig, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", config)
    launch(tmp_path, run.path, FULL_DISK="1")
    for rank in (0, 1):
        message = (run.path / f"error-{rank}.txt").read_text()
        assert message.startswith("cannot save the checkpoint of step 0 in ")
        assert "process 1: " in message
        assert message.endswith(f"resume with vitreous train --resume {run.path}")
    assert run.states.steps() == []


@pytest.mark.slow
def test_kill_nine_while_shares_are_written(config: RunConfig, splits: Splits, tmp_path: Path) -> None:
    """Every process at once, as a power cut does."""
    config = configure(
        config, {"training": {"length": "200 steps", "records": {"log_every": 5, "save_every": 0}}}
    )
    run = RunDirectory.create(tmp_path / "run", config)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    chance, during = random.Random(0), 0
    for _ in range(4):
        begun = max(run.states.steps(), default=-1)
        process = subprocess.Popen(
            [*torchrun, str(script), str(run.path)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        while max(run.states.steps(), default=-1) <= begun or not half_written(run):
            assert process.poll() is None, "the run ended before it was killed"
        time.sleep(chance.uniform(0, 0.01))
        during += half_written(run)
        for pid in (*children(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert during
    assert max(run.states.steps()) < 200
    launch(tmp_path, run.path)
    whole = alone(config, splits, tmp_path / "whole")
    assert curve(run) == pytest.approx(curve(whole), abs=1e-4)


def half_written(run: RunDirectory) -> bool:
    """Whether there are shares that nothing vouches for yet."""
    return any(
        not path.with_suffix(".json").exists()
        for path in run.path.glob("checkpoints/step-*")
        if path.suffix in (".partial", ".shards")
    )


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_cannot_be_shared_is_an_input_error(config: RunConfig) -> None:
    world, device = World(rank=0, size=2), torch.device("cpu")
    model = starting_model(config, labels=())
    optimizer = config.training.optimizer.model_copy(update={"kind": "adafactor"})
    adafactor = config.training.model_copy(update={"optimizer": optimizer})
    with pytest.raises(InputError, match="Adafactor needs sums over rows and columns"):
        shards_for(model, adafactor, world, device)
    assert shards_for(model, config.training, World(), device) is None
    groups = config.training.model_copy(update={"machine": MachineConfig(shard=3)})
    with pytest.raises(InputError, match="4 processes cannot be divided into groups of 3"):
        shards_for(model, groups, World(rank=0, size=4), device)
    muon = config.training.optimizer.model_copy(update={"kind": "muon"})
    with pytest.raises(InputError, match="Muon orthogonalizes matrices"):
        shards_for(model, groups.model_copy(update={"optimizer": muon}), World(rank=0, size=6), device)
