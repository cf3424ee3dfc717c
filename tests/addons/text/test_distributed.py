"""Two processes over gloo that learn to write text: one process's curve, and states for any number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from forked import run_group
from vitreous.addons.text.task import RECIPES, TranslationConfig
from vitreous.addons.text.text_pairs import Parallel, number_pairs, open_parallel
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.training_run import fit, open_run, plan_of_run
from vitreous.training.callbacks import read_metrics
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure

# One launch goes through several runs: RUN, or RUN@STEP where Ctrl-C comes at that step.
DRIVER = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from test_distributed import data_of
from vitreous.training.callbacks import Callback
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group
from vitreous.tasks.training_run import fit
from vitreous.tasks.training_run import open_run, plan_of_run
from vitreous.training.trainer import Interrupted

class Strike(Callback):
    def on_step_end(self, trainer):
        if trainer.learner.step == stop:
            os.kill(os.getpid(), signal.SIGINT)

with process_group(torch.device("cpu")) as (world, device):
    for argument in sys.argv[2:]:
        folder, _, step = argument.partition("@")
        run, stop = open_run(Path(folder)), int(step or -1)
        callbacks, data = [Strike()] if stop > 0 else [], data_of(run.config)
        try:
            fit(plan_of_run(run, data), Place(device, world), callbacks=callbacks)
        except Interrupted:
            pass
    torch.distributed.barrier()
"""

TINY = {"width": 16, "heads": 2, "mlp_dim": 16, "depth": 1, "dropout": 0.0}
TRAINING = {
    "length": "8 steps",
    "batch_size": 16,
    "machine": {"grad_accum_steps": 2},
    "records": {"log_every": 1, "save_every": 1e9},
}
ALIKE = {
    "tokenizer": {"vocabulary": 300},
    # Adam makes whole steps of gradients that are zero but for rounding, the keys' biases, if eps lets it.
    "training": {**TRAINING, "schedule": {"warmup": 2}, "optimizer": {"eps": 1e-5}},
    "averaging": {"checkpoints": 2, "every": 3},
}


def translation(**training: Any) -> TranslationConfig:
    model = {"model": {**TINY, "encoder_depth": 1}}
    return configure(
        packaged_config(TranslationConfig, RECIPES / "numbers.toml"), ALIKE, model, {"training": training}
    )


def data_of(config: TranslationConfig) -> Any:
    """The data of the configurations of this file."""
    pairs = list(number_pairs(60))
    return Parallel(pairs[:180], pairs[180:200], 0, "numbers")


def launch(folder: Path, *arguments: str | Path, processes: int = 2) -> None:
    script = folder / "driver.py"
    script.write_text(DRIVER)
    run_group(script, Path(__file__).parent, *arguments, processes=processes)


def alone(config: TranslationConfig, path: Path) -> RunDirectory:
    """What one process makes of it."""
    run = RunDirectory.create(path, config)
    fit(plan_of_run(run, data_of(config)))
    return run


def curve(run: RunDirectory, name: str = "loss") -> list[float]:
    return [row[name] for row in read_metrics(run.path / "metrics.jsonl")]


def result(run: RunDirectory) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in vt.load(run.path).parameters()])


@pytest.mark.slow
def test_the_loss_curve_is_that_of_one_process(tmp_path: Path) -> None:
    """Weights whole and in shards, though the texts of one process are longer than those of the other."""
    configs = {"replicas": translation(), "shards": translation(machine={"shard": True})}
    one = {name: alone(config, tmp_path / f"{name}-1") for name, config in configs.items()}
    two = {name: RunDirectory.create(tmp_path / f"{name}-2", config) for name, config in configs.items()}
    launch(tmp_path, *(run.path for run in two.values()))
    for name in configs:
        assert len(curve(two[name])) == 8, name
        assert curve(two[name]) == pytest.approx(curve(one[name]), abs=1e-5), name
        assert curve(two[name], "accuracy") == pytest.approx(curve(one[name], "accuracy"), abs=1e-6), name
        torch.testing.assert_close(result(two[name]), result(one[name]), rtol=0, atol=1e-4, msg=name)
    assert curve(one["replicas"])[0] > curve(one["replicas"])[-1]


@pytest.mark.slow
def test_a_run_goes_on_in_any_number_of_processes(tmp_path: Path) -> None:
    config = translation(length="14 steps")
    whole = alone(config, tmp_path / "whole")
    begun = {
        "replicas": RunDirectory.create(tmp_path / "replicas", config),
        "shards": RunDirectory.create(
            tmp_path / "shards", translation(length="14 steps", machine={"shard": True})
        ),
        "one": RunDirectory.create(tmp_path / "one", config),
    }
    launch(tmp_path, *(f"{begun[name].path}@10" for name in ("replicas", "shards")))
    launch(tmp_path, f"{begun['one'].path}@10", processes=1)
    assert all(run.states.steps() == [0, 10] for run in begun.values())
    launch(tmp_path, begun["one"].path)
    launch(tmp_path, begun["replicas"].path, begun["shards"].path, processes=1)
    for name, run in begun.items():
        assert curve(run) == pytest.approx(curve(whole), abs=1e-5), name
        assert len(curve(run)) == 14, name
        torch.testing.assert_close(result(run), result(whole), rtol=0, atol=1e-4, msg=name)


@pytest.mark.slow
def test_the_command_in_two_processes(tmp_path: Path) -> None:
    """Only the first process writes and prints; whatever is held out is judged once."""
    pairs, run = tmp_path / "pairs.tsv", tmp_path / "run"
    pairs.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in number_pairs(40)))
    short = ("--steps", "4", "--set", "model.depth=1", "--out", run, "--batch-size", "16")
    told = json.loads(vitreous("translate", "train", pairs, *short, "--json"))
    assert told["test_count"] == held_out(open_run(run).config)
    assert told["run"] == str(run)
    assert curve(open_run(run), "step")[-1] == 4
    assert not list(run.glob("bad_files*"))


def held_out(config: TranslationConfig) -> int:
    return len(open_parallel(config.source, seed=config.seed, test_fraction=config.test_fraction).test)


def vitreous(*arguments: str | Path) -> str:
    """What the command prints in two processes."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "vitreous", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
