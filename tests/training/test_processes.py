"""Two and three processes over gloo: what they agree on, and how equal a resumed run is."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vitreous.data.image_samples import Batch
from vitreous.models.names import create
from vitreous.tasks.pretraining.task import build_objective
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.objectives import softmax_loss
from vitreous.training.settings import configure
from vitreous.training.step import LossOf, TrainStep, default_generators

pytestmark = pytest.mark.slow  # it starts many processes

# Imports once, then forks the processes of each group.
DRIVER = """
import json, os, sys, time, traceback, warnings
from pathlib import Path
import torch
import torch.distributed as dist
import torch._dynamo, torch.distributed.checkpoint, torch.distributed.fsdp  # once, not in each process
torch.set_num_threads(1)
from vitreous.data.config import DataConfig
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
from vitreous.training import checkpointer as checkpoints
from vitreous.training.callbacks import Callback
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig
from vitreous.training.distributed import World
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.distributed import shards_for
from vitreous.training.machine import numerics
from vitreous.training.settings import configure
from vitreous.training import trainer as training_loop
from vitreous.training.step import LossOf, TrainStep, data_parallel, skips_on_device
from vitreous.training.trainer import Trainer

plain, folder = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
splits = open_data("digits", DataConfig(test_fraction=0.85))
CPU = torch.device("cpu")

class Late(TrainStep):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.late = skips_on_device(self.learner)
        assert self.late

class Stop(Callback):
    def __init__(self, step):
        self.step = step
    def on_step_end(self, trainer):
        if trainer.learner.step == self.step:
            trainer.stop()

class Clock:
    # Seconds that only the batches of its own process move on: 4 s each.
    now = 0.0
    def __call__(self):
        return self.now
    def around(self, objective):
        def timed(model, batch, generator):
            self.now += 4.0
            return objective(model, batch, generator)
        return timed

def train(world, name, *, objective=None, callbacks=(), damaged=False, clock=time.perf_counter, data=None,
          **training):
    config = configure(plain, {"training": training})
    meta = config.training.machine_config.shard and world.rank > 0  # as a run does
    with torch.device("meta" if meta else "cpu"):
        model = starting_model(config, splits.train.classes)
    learner = Learner.begin(model, config.training, shards_for(model, config.training, world, CPU))
    checkpointer = Checkpointer(folder / f"{name}-{world.size}")
    sha256_of = checkpoints.sha256_of
    if damaged:
        checkpoints.sha256_of = lambda path: "wrong" if "step-000000010" in str(path) else sha256_of(path)
    with warnings.catch_warnings(action="ignore"):
        checkpointer.restore(learner, world)
    checkpoints.sha256_of = sha256_of
    resumed = learner.step
    loader = image_loader(splits.train, preprocessing=config.prepared, augmentation=config.augmentation,
                         batch_size=world.share(config.training.batch_size), seed=config.seed,
                         rank=world.rank, world_size=world.size, config=data,
                         workers=data.read.workers if data else 0)
    rows = []
    with numerics(CPU, "fp32", deterministic=config.training.machine_config.deterministic):
        objective = objective or classification(config.training)
        loss = data_parallel(LossOf(learner.model, objective), learner.shards, config.training, world)
        step = TrainStep(learner, loss, config.training, seed=config.seed, world=world)
        Trainer(step, loader, checkpointer=checkpointer, callbacks=[*callbacks, Rows(rows)],
                clock=clock).fit()
    whole = learner.full_model(learner.model)
    weights = {name: p.flatten().tolist() for name, p in whole.named_parameters()}
    return {"step": learner.step, "skipped": learner.skipped, "resumed": resumed, "rows": rows,
            "weights": weights}

class Rows(Callback):
    def __init__(self, rows):
        self.rows = rows
    def on_log(self, trainer, row):
        self.rows.append([row["step"], row.get("loss")])

KINDS = {"ddp": {"deterministic": True}, "fsdp": {"deterministic": True, "shard": True},
         "default-fsdp": {"shard": True}}

def deterministic(world, names):
    for name in names:
        kind = {"machine": KINDS[name], "optimizer": {"clip_norm": 0.1}}
        yield f"{name}-whole", train(world, f"{name}-whole", **kind)
        train(world, f"{name}-half", callbacks=[Stop(7)], **kind)
        yield f"{name}-resumed", train(world, f"{name}-half", **kind)

def broken(world, step_of_nan, rank):
    calls = []
    def objective(model, batch, generator):
        loss, measures = classification(plain.training)(model, batch, generator)
        calls.append(0)
        last = world.rank == rank and len(calls) == step_of_nan
        return (loss * float("nan") if last else loss), measures
    return objective

def scenarios(world):
    if world.size == 1:
        yield from deterministic(world, ["ddp"])
        return
    yield "whole", train(world, "whole")
    for name, processes in (("threads", False), ("readers", True)):
        data = DataConfig(reading={"in_memory": False, "workers": 2, "processes": processes})
        yield name, train(world, name, data=data)
    yield "stopped", train(world, "half", callbacks=[Stop(7)] if world.rank == 1 else [])
    yield "resumed", train(world, "half")
    clock = Clock()
    short = {"length": f"{0.5 if world.rank == 0 else 9.0} minutes"}  # the first process knows the time
    yield "timed", train(world, "timed", objective=clock.around(classification(plain.training)), clock=clock,
                         **short)
    for step in (9, 11):
        yield f"nan{step}", train(world, f"nan{step}", objective=broken(world, step, world.size - 1))
    yield from deterministic(world, ["ddp", "fsdp"] if world.size == 2 else ["ddp", "default-fsdp"])
    if world.size == 2:
        for name, step in (("at-once", TrainStep), ("late", Late)):
            training_loop.TrainStep = step
            yield name, train(world, name, objective=broken(world, 9, 0),
                              machine={"shard": True})
        training_loop.TrainStep = TrainStep
    train(world, "damaged", callbacks=[Stop(10)])
    yield "damaged", train(world, "damaged", damaged=world.rank == 1)

for size in (1, 2, 3):
    children = []
    for rank in range(size):
        if pid := os.fork():
            children.append(pid)
            continue
        try:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store{size}", rank=rank,
                                    world_size=size)
            world = World(rank, size)
            (folder / f"{size}-{rank}.json").write_text(json.dumps(dict(scenarios(world))))
            dist.barrier()
            code = 0
        except BaseException:
            traceback.print_exc()
            code = 1
        os._exit(code)
    if any(os.waitpid(pid, 0)[1] for pid in children):
        sys.exit(1)
"""

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Found]]:
    """What each process of the groups of 1, 2 and 3 found."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "processes"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:  # the workers of the tests share what was found
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            run_groups(folder)
            (folder / "done").touch()
    return {
        size: [json.loads((folder / f"{size}-{rank}.json").read_text()) for rank in range(size)]
        for size in (1, 2, 3)
    }


def run_groups(folder: Path) -> None:
    tiny = {"width": 16, "depth": 2, "heads": 2, "mlp_dim": 16, "patch_size": 4, "num_classes": 10}
    config = configure(
        RunConfig(),
        {
            "model": {"image_size": 8, "channels": 1, "dropout": 0.1, "drop_path": 0.2, **tiny},
            "preprocessing": {"mean": [0.3], "std": [0.4]},
            "training": {
                "length": "15 steps",
                "batch_size": 18,
                "ema": {"decay": 0.9},
                "records": {"log_every": 11, "save_every": 0},
            },
        },
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, config.model_dump_json(), str(folder)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_a_resumed_run_is_equal(found: dict[int, list[Found]], size: int) -> None:
    """To the bit for two processes, up to the rounding of sums for more; with dropout."""
    whole, stopped, resumed = (found[size][0][name] for name in ("whole", "stopped", "resumed"))
    assert (stopped["step"], resumed["resumed"], resumed["step"]) == (10, 10, 15)  # agreed at step 10
    for name, weight in whole["weights"].items():
        if size == 2:
            assert resumed["weights"][name] == weight, name
        assert resumed["weights"][name] == pytest.approx(weight, abs=2e-5), name
    for other in found[size][1:]:
        assert other["resumed"]["weights"] == resumed["weights"]


@pytest.mark.parametrize("size", [2, 3])
def test_threads_and_processes_that_read_change_no_bit(found: dict[int, list[Found]], size: int) -> None:
    """Every process has two of them, which decode nothing into memory first."""
    for each in found[size]:
        for name in ("threads", "readers"):
            assert each[name]["weights"] == found[size][0]["whole"]["weights"], name
            assert each[name]["rows"] == each["whole"]["rows"]


@pytest.mark.parametrize("size", [2, 3])
def test_a_time_is_kept_by_all(found: dict[int, list[Found]], size: int) -> None:
    """30 s, of steps of 4 s, of which fewer would be taken than processes usually agree after."""
    assert [each["timed"]["step"] for each in found[size]] == [7] * size


@pytest.mark.parametrize(
    ("size", "kind"), [(1, "ddp"), (2, "ddp"), (2, "fsdp"), (3, "ddp"), (3, "default-fsdp")]
)
def test_deterministic_training_gives_the_same_bits(
    found: dict[int, list[Found]], size: int, kind: str
) -> None:
    """Once more until step 10, and resumed there; replicated (DDP) and sharded (FSDP2); with dropout and
    clipping. Shards need not be told to."""
    whole, resumed = (found[size][0][f"{kind}-{name}"] for name in ("whole", "resumed"))
    assert (resumed["resumed"], resumed["step"], whole["step"]) == (7 if size == 1 else 10, 15, 15)
    assert resumed["weights"] == whole["weights"]
    for other in found[size][1:]:
        assert other[f"{kind}-whole"]["weights"] == whole["weights"]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("step", [9, 11])
def test_a_gradient_that_is_not_finite_in_one_process_skips_the_step_in_all(
    found: dict[int, list[Found]], size: int, step: int
) -> None:
    """Also directly after a checkpoint, when the first process alone has sums."""
    for each in found[size]:
        assert (each[f"nan{step}"]["step"], each[f"nan{step}"]["skipped"]) == (15, 1)
        assert each[f"nan{step}"]["weights"] == found[size][0][f"nan{step}"]["weights"]
        assert [row[0] for row in each[f"nan{step}"]["rows"]] == [11, 14, 15]


def test_shards_skip_a_step_late_as_at_once(found: dict[int, list[Found]]) -> None:
    """As on a GPU, which is not waited for."""
    for each in found[2]:
        assert (each["late"]["step"], each["late"]["skipped"]) == (15, 1)
        assert each["late"]["weights"] == found[2][0]["at-once"]["weights"]


@pytest.mark.parametrize("size", [2, 3])
def test_all_resume_from_the_newest_checkpoint_that_all_can_read(
    found: dict[int, list[Found]], size: int
) -> None:
    assert {each["damaged"]["resumed"] for each in found[size]} == {0}
    assert {each["damaged"]["step"] for each in found[size]} == {15}


def losses(model: nn.Module, objective: Any, batch: Batch) -> list[float]:
    """The loss of the first step for two seeds and two ranks, and again for the first of them."""
    state, found = torch.get_rng_state(), []
    for seed, rank in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0)):
        learner = Learner.begin(model, TrainingConfig())
        loss = LossOf(learner.model, objective)
        step = TrainStep(learner, loss, TrainingConfig(), seed=seed, world=World(rank=rank))
        step.prepare(batch)
        found.append(float(step.measured[0][1]["loss"]))
    assert torch.equal(torch.get_rng_state(), state), "the user's generator was touched"
    return found


SMALL: dict[str, Any] = {"image_size": 16, "width": 16, "depth": 2, "heads": 2, "mlp_dim": 16}
BATCH = Batch(torch.rand(8, 3, 16, 16), torch.arange(8) % 4, torch.arange(8))


@pytest.mark.parametrize("part", ["dropout", "drop_path"])
def test_seeds_and_ranks_draw_different_masks(part: str) -> None:
    model = create("ViT-Ti/4", **SMALL, num_classes=4, **{part: 0.5})
    nn.init.normal_(model.head.weight)  # type: ignore[arg-type]

    def objective(model: nn.Module, batch: Batch, generator: torch.Generator) -> Any:
        return softmax_loss(model(batch.images), batch.targets, 0.0), {}

    *different, again = losses(model, objective, BATCH)
    assert len(set(different)) == 4
    assert again == different[0]


@pytest.mark.parametrize(("device", "index"), [("cuda:1", 1), ("cuda", 0)])
def test_the_gpu_that_trains_has_its_own_generator_seeded(
    monkeypatch: pytest.MonkeyPatch, device: str, index: int
) -> None:
    """And given back; the other GPU's is left alone. Generators of the CPU stand in for them."""
    gpus, given_back, fork = [torch.Generator().manual_seed(n) for n in (7, 8)], [], torch.random.fork_rng
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(gpus))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: given_back.extend(devices) or fork([]))
    with default_generators(torch.device(device), 5):
        assert [gpu.initial_seed() for gpu in gpus] == [5 if n == index else 7 + n for n in range(2)]
        assert torch.initial_seed() == 5
    assert given_back == [index]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["masked-patch", "mae", "dino", "contrastive"])
def test_seeds_and_ranks_pre_train_with_different_masks(name: Any) -> None:
    small = {"dino": {"prototypes": 8, "head_hidden": 8, "head_bottleneck": 8}}
    objective = build_objective(create("ViT-Ti/4", **SMALL), name, small.get(name), steps=10)
    *different, again = losses(
        objective, lambda model, batch, generator: model(batch.images, generator), BATCH
    )
    assert len(set(different)) == 4
    if name != "dino":  # its center has moved
        assert again == different[0]
