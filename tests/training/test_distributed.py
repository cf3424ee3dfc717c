"""Two processes over gloo learn what one process with the same global batch learns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_array
from torch import nn

import vitreous as vt
from forked import run_group
from vitreous.data.config import DataConfig
from vitreous.data.dataset import LabelTargets, Splits
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.evaluation.calibration import calibrate_model
from vitreous.evaluation.classification import evaluate_classification
from vitreous.evaluation.outputs import MOST_KEPT
from vitreous.evaluation.probes import fewshot_measure, knn_measure
from vitreous.models.names import create
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.task import build_objective
from vitreous.tasks.training_run import fit, plan_of_run, with_run
from vitreous.training.callbacks import read_metrics
from vitreous.training.config import RunConfig
from vitreous.training.distributed import ALONE, World, process_group
from vitreous.training.machine import Place
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure

DRIVER = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.tasks.training_run import fit
from vitreous.tasks.training_run import plan_of_run
from vitreous.training.config import RunConfig
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group
from vitreous.training.run import RunDirectory

config = RunConfig.model_validate_json(Path(sys.argv[1]).read_text())
splits = open_data("digits", DataConfig(test_fraction=0.85))
with process_group(torch.device("cpu")) as (world, device):
    path = Path(sys.argv[2])
    run = RunDirectory.open(path) if "resume" in sys.argv else RunDirectory.shared(path, config, world)
    fit(plan_of_run(run, splits), Place(device, world))
"""


def train(processes: int, config: RunConfig, folder: Path, *, resume: bool = False) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl of a run with so many processes."""
    script, description = folder.parent / "driver.py", folder.parent / "config.json"
    script.write_text(DRIVER)
    description.write_text(config.model_dump_json())
    run_group(script, description, folder, *(["resume"] if resume else []), processes=processes)
    return read_metrics(folder / "metrics.jsonl")


@pytest.fixture
def config(tiny: RunConfig) -> RunConfig:
    """Without dropout and noise, which each process samples; the rest is sampled for the whole batch."""
    return configure(
        tiny,
        {
            "model": {"dropout": 0.0, "drop_path": 0.0},
            "augmentation": {"noise": 0.0},
            "training": {
                "length": "12 steps",
                "machine": {"grad_accum_steps": 2},
                "records": {"log_every": 1, "save_every": 1e9},
            },
        },
    )


BEGIN = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from vitreous.tasks import task_named
from vitreous.tasks.training_run import with_run
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group

found = []
with process_group(torch.device("cpu")) as (world, device):
    for number, settings in enumerate(({}, {"training": {"batch_size": 15}})):
        out = Path(sys.argv[1]) / f"run-{number}"
        source = "synthetic:151@16"
        plan = task_named("classification").plan(source, settings)
        started = with_run(plan, settings, Place(device, world), out=out)
        found.append((str(started.run.path), started.run.config.training.batch_size, list(started.reasons)))
    (Path(sys.argv[1]) / f"{world.rank}.json").write_text(json.dumps(found))
"""


@pytest.mark.slow
def test_processes_begin_one_run_with_a_batch_that_they_can_share(tmp_path: Path) -> None:
    (tmp_path / "begin.py").write_text(BEGIN)
    run_group(tmp_path / "begin.py", tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert [each[:2] for each in first] == [each[:2] for each in second]
    assert [size for _, size, _ in first] == [
        14,
        15,
    ]  # of 127 images; the user's is refused when it is divided
    assert "batch: 14 images, which 2 processes share equally" in first[0][2]


DECIDE = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from vitreous.evaluation import classical
from vitreous.tasks import task_named
from vitreous.tasks.training_run import with_run
from vitreous.tasks.trials import plan_by_trials
from vitreous.training.machine import Place
from vitreous.training.distributed import process_group
from vitreous.training.settings import to_toml

classical.COSTS, classical.GAMMAS = (10.0,), (2.0,)  # as conftest.py has it in the process of the tests
folder, settings = Path(sys.argv[1]), {"training": {"length": "2 steps", "batch_size": 6}}
with process_group(torch.device("cpu")) as (world, device):
    place = Place(device, world)
    plan = task_named("classification").plan(sys.argv[2], settings)
    plan = plan_by_trials(plan, settings, out=folder / "run", offline=True, tell=lambda _: None, place=place)
    plan = with_run(plan, settings, place)
    assert (plan.compared.table is not None) == world.first
    found = [plan.compared.training.name, str(plan.run.path.resolve()), to_toml(plan.config)]
    (folder / f"{world.rank}.json").write_text(json.dumps(found))
"""


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_train_what_the_first_one_decides(processes: int, tmp_path: Path) -> None:
    """By the same candidates as one process, in one run directory."""
    rng = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "data" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (
            rng.integers(0, 200, (28, 28)) + np.linspace(0, 55, 28)[None if number % 2 else slice(None), ...]
        )
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    (tmp_path / "decide.py").write_text(DECIDE)
    found: dict[int, list[list[str]]] = {}
    for count in (1, processes):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        run_group(tmp_path / "decide.py", folder, tmp_path / "data", processes=count)
        found[count] = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    [one] = found[1]
    first = found[processes][0]
    assert found[processes] == [first] * processes
    assert [first[0], first[2]] == [one[0], one[2]]
    tables = [json.loads((tmp_path / f"{count}" / "run" / "candidates.json").read_text()) for count in found]
    scores = [[(each["name"], each["score"], each["loss"]) for each in table] for table in tables]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_torchrun_answers_as_one_process_does(tmp_path: Path) -> None:
    """The candidates, the winner, and its evaluation."""
    results = []
    for processes in (1, 2):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        command = [*launch, str(processes)] if processes > 1 else [sys.executable]
        run = tmp_path / f"run-{processes}"
        options = [
            "--set",
            "training.length=2 steps",
            "--set",
            "training.batch_size=8",
            "--offline",
            "--json",
        ]
        command += ["-m", "vitreous", "train", "synthetic:160@28", "--out", str(run), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    one, two = results
    names = [[each["name"] for each in result["candidates"]] for result in results]
    assert names[0] == names[1]
    assert names[0][0] not in ("from scratch", "majority class")
    assert one["test_accuracy"] == two["test_accuracy"]


@pytest.mark.slow
def test_the_loss_curve_is_that_of_one_process(config: RunConfig, splits: Splits, tmp_path: Path) -> None:
    fit(plan_of_run(RunDirectory.create(tmp_path / "one", config), splits))
    one, two = read_metrics(tmp_path / "one" / "metrics.jsonl"), train(2, config, tmp_path / "two")
    assert len(one) == len(two) == 12
    for mine, theirs in zip(one, two, strict=True):
        assert abs(mine["loss"] - theirs["loss"]) < 1e-5
        assert mine["accuracy"] == pytest.approx(theirs["accuracy"])
    heads = [
        RunDirectory.open(tmp_path / name).model().state_dict()["head.weight"] for name in ("one", "two")
    ]
    torch.testing.assert_close(*heads, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """More processes than GPUs, and one GPU for all, are refused in words."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("LOCAL_RANK", "4" if device == "cuda" else "0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(InputError, match="has 4: use `device` cuda and --nproc-per-node 4"):
        process_group(torch.device(device)).__enter__()


def test_the_memory_of_a_model_in_shards_is_not_measured(tmp_path: Path) -> None:
    settings = {"training": {"machine": {"shard": True}}}
    plan = task_named("classification").plan("digits", settings)
    with pytest.raises(InputError, match="`batch_size` auto needs the whole model"):
        with_run(plan, settings, Place(world=World(0, 2)), out=tmp_path / "run", fit_memory=True)
    assert not (tmp_path / "run").exists()


EVALUATION = """
import sys
sys.path.insert(0, sys.argv[1])
from test_distributed import check_evaluation
check_evaluation()
"""


def check_evaluation() -> None:
    """In each of some processes: what all measure together is what one measures alone, to the bit, and each
    computes its share."""
    splits = open_data("digits", DataConfig(test_fraction=0.9, validation_fraction=0.3))
    held, small = splits.validation, {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    assert held is not None
    assert len(held) > 40
    torch.set_num_threads(1)
    model = create("ViT-Ti/4", image_size=8, channels=1, num_classes=10, seed=0, **small)
    nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    head = {name: weight.clone() for name, weight in model.head.state_dict().items()}  # type: ignore[operator]
    settings = {"dino": {"prototypes": 8, "head_hidden": 8, "head_bottleneck": 8}}
    computed: list[int] = []
    model.register_forward_hook(lambda _, inputs, __: computed.append(len(inputs[0])))

    def calibrated(**batching: Any) -> Any:
        model.head.load_state_dict(head)  # type: ignore[union-attr]
        model.temperature = 1.0
        found = calibrate_model(model, held, learned=splits.train, **batching)
        return [model.temperature, *(each.to_json() for each in found)]

    labels = (*held.classes, *(f"label {number}" for number in range(MOST_KEPT)))
    many, several = (
        create("ViT-Ti/4", image_size=8, channels=1, num_classes=len(labels), seed=0, **small),
        copy(held),
    )
    nn.init.normal_(many.head.weight, generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    shown = csr_array(np.eye(10, dtype=np.float32)[held.targets.strata()])
    many.labels, several.targets = labels, LabelTargets(shown, held.classes)

    def pretrained(name: Any) -> Callable[..., Any]:
        encoder = create("ViT-Ti/4", image_size=8, **small)
        objective = build_objective(encoder, name, settings.get(name), steps=10)
        return lambda **batching: task_named(name).evaluate(objective, held, **batching).to_json()

    handler = signal.getsignal(signal.SIGTERM)
    with process_group(torch.device("cpu")) as (world, _):
        for measure in (
            lambda **batching: evaluate_classification(model, held, **batching).to_json(),
            calibrated,
            lambda **batching: evaluate_classification(many, several, **batching).to_json(),
            lambda **batching: knn_measure(splits.train, held)(model, **batching),
            lambda **batching: fewshot_measure(splits)(model, **batching),
            pretrained("mae"),
            pretrained("dino"),
            pretrained("contrastive"),
        ):
            alone, together = (
                json.loads(json.dumps(measure(batch_size=4, world=each)), parse_float=str)
                for each in (ALONE, world)
            )
            if "validation_fewshot_1" in alone and not world.first:
                assert together == {}
                continue
            for each in (alone, together):
                for part in each if isinstance(each, list) else [each]:
                    if isinstance(part, dict):
                        part.pop("seconds", None)
            assert together == alone
            assert json.dumps(alone) != "{}"
        computed.clear()
        evaluate_classification(model, held, batch_size=4, world=world)
        assert sum(computed) <= len(held) // world.size + 4
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_all_processes_evaluate_together(processes: int, tmp_path: Path) -> None:
    script = tmp_path / "evaluate.py"
    script.write_text(EVALUATION)
    run_group(script, Path(__file__).parent, processes=processes)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(config: RunConfig, tmp_path: Path) -> None:
    whole = train(1, config, tmp_path / "whole")
    half = config.model_copy(update={"training": config.training.model_copy(update={"length": "5 steps"})})
    folder = tmp_path / "half"
    train(2, half, folder)
    text = (folder / "config.toml").read_text().replace('"5 steps"', '"12 steps"')
    (folder / "config.toml").write_text(text)
    resumed = train(1, config, folder, resume=True)
    assert [row["step"] for row in resumed] == list(range(1, 13))
    # The schedule of the first half knew of five steps only, so the curves part; every step was taken once.
    assert json.dumps(whole[0]["loss"])[:6] == json.dumps(resumed[0]["loss"])[:6]


def test_a_batch_that_cannot_be_shared_is_an_input_error() -> None:
    assert World(rank=1, size=4).share(32) == 8
    with pytest.raises(InputError, match="multiple of 3"):
        World(rank=0, size=3).share(32)


def test_one_process_alone_asks_nobody(splits: Splits) -> None:
    world = World()
    assert world.any((True, False)) == (True, False)
    assert world.broadcast("x") == "x"
    assert world.all_reduce_sum({"loss": torch.ones(())}, torch.device("cpu")) == {"loss": torch.ones(())}


@pytest.mark.slow
def test_a_run_of_two_processes_is_evaluated_by_both(tmp_path: Path) -> None:
    """As one process evaluates its model, calibrated."""
    settings = (
        "model.width=16",
        "model.depth=1",
        "model.heads=2",
        "model.mlp_dim=16",
        "training.length=30 steps",
    )
    asked = (*settings, "data.validation_fraction=0.2", "training.precision=fp32")
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "vitreous",
        "train",
        "digits",
        "--json",
    ]
    more = [word for each in asked for word in ("--set", each)]
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, *launcher, "--out", str(out), *more],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    told, found = json.loads(done.stdout), vt.evaluate(out, precision="fp32", progress=False)
    assert told["test_count"] == found.count > 300
    assert told["test_accuracy"] == found.accuracy
    assert told["test_calibration_error"] == pytest.approx(found.calibration.ece, abs=1e-6)
    assert told["test_uncalibrated_error"] == pytest.approx(found.uncalibrated_error, abs=1e-6)
    assert done.stderr.count("calibration: temperature") == 1
    command = [sys.executable, *launcher[:5], "-m", "vitreous", "evaluate", str(out), "--json"]
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["test_accuracy"] == found.accuracy
