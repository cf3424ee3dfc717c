"""Steps whose outcome is asked for one step late, as on a GPU, give what they give at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vitreous.addons.self_supervision.dino import DINO, DINOConfig
from vitreous.addons.self_supervision.tasks import of_views
from vitreous.addons.self_supervision.views import Views
from vitreous.data.image_samples import Batch
from vitreous.models.vit import ViT
from vitreous.rng import torch_seed
from vitreous.training.callbacks import Callback, MetricsFile, TensorBoard, read_metrics
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification, softmax_loss
from vitreous.training.settings import configure
from vitreous.training.step import LossOf, TrainStep, read_later, skips_on_device
from vitreous.training.trainer import PATIENCE, NotFinite, Trainer

from .conftest import Fit, weights


class Late(TrainStep):
    """On a CPU, too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.late = skips_on_device(self.learner)
        assert self.late


class Broken:
    """A loss that is not a number at some steps, which the generator of the step tells."""

    def __init__(self, steps: set[int] | range, times: int = 10_000) -> None:
        self.seeds, self.times = {torch_seed(0, "objective", 0, step) for step in steps}, times

    def __call__(
        self, model: nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        loss = softmax_loss(model(batch.images), batch.targets, 0.0)
        if generator.initial_seed() in self.seeds and self.times:
            self.times -= 1
            loss = loss * float("nan")
        return loss, {"shown": loss.detach()}


class Rows(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> None:
        self.rows.append({name: row[name] for name in ("step", "loss", "shown", "lr", "skipped")})


@pytest.fixture
def both(trained: Fit) -> Any:
    """What training gives at once, and late; every number that was written, and every saved weight."""

    def run(settings: dict[str, Any], broken: Any, folder: Path) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for name, step in (("at once", TrainStep), ("late", Late)):
            rows, states = Rows(), Checkpointer(folder / name)
            learner: Any = None
            try:
                learner = trained(
                    settings, objective=broken(), checkpointer=states, callbacks=[rows], step=step
                )
                ended = (learner.skipped, learner.setbacks, learner.lr_factor)
            except NotFinite as error:
                ended = (str(error),)
            newest = states.newest()
            assert newest
            facts = {name: fact for name, fact in newest.facts.items() if name not in ("seconds", "sha256")}
            found.append((rows.rows, ended, states.steps(), facts, newest.tensors, learner))
        return found

    return run


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert one[:4] == other[:4]
    assert one[4].keys() == other[4].keys()
    assert all(torch.equal(one[4][name], other[4][name]) for name in one[4])


@pytest.mark.parametrize(
    ("save_every", "sam_radius"), [(0, 0.05), pytest.param(1e9, None, marks=pytest.mark.slow)]
)
def test_bad_steps_are_left_out(
    both: Any, save_every: float, sam_radius: float | None, tmp_path: Path
) -> None:
    optimizer = {"sam_radius": sam_radius}
    training = {
        "length": "14 steps",
        "optimizer": optimizer,
        "records": {"log_every": 4, "save_every": save_every},
    }
    at_once, late = both({"training": training}, lambda: Broken({0, 3, 4, 9, 12}), tmp_path)
    same(at_once, late)
    assert at_once[1] == (5, 0, 1.0)
    one, other = weights(at_once[5]), weights(late[5])
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.filterwarnings("ignore:the loss is not finite")
def test_training_goes_back_to_the_same_state(both: Any, tmp_path: Path) -> None:
    training = {"length": "16 steps", "records": {"log_every": 1000, "save_every": 1e9}}
    # The state of step 0 is the newest one: all of it is done again.
    at_once, late = both(
        {"training": training}, lambda: Broken(range(3, 3 + PATIENCE), times=PATIENCE), tmp_path
    )
    same(at_once, late)
    assert at_once[1] == (PATIENCE, 1, 0.5)


@pytest.mark.filterwarnings("ignore:the loss is not finite")
def test_metrics_have_no_rows_of_steps_that_were_undone(trained: Fit, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    file, events = tmp_path / "metrics.jsonl", tmp_path / "events"
    broken = Broken(range(3, 3 + PATIENCE), times=PATIENCE)
    trained(
        {"training": {"length": "10 steps", "records": {"log_every": 2, "save_every": 1e9}}},
        objective=broken,
        checkpointer=Checkpointer(tmp_path / "states"),
        callbacks=[MetricsFile(file, step=0), TensorBoard(events, step=0)],
    )
    steps = [row["step"] for row in read_metrics(file)]
    assert steps == sorted(set(steps))
    assert steps[-1] == 10
    seen = EventAccumulator(str(events), size_guidance={"scalars": 0, "histograms": 0}).Reload()
    assert [each.step for each in seen.Scalars("loss")] == steps
    assert [each.step for each in seen.Histograms("weights/head.weight")] == steps


@pytest.mark.filterwarnings("ignore:the loss is not finite")
def test_training_stops_at_the_same_step(both: Any, tmp_path: Path) -> None:
    training = {"length": "40 steps", "records": {"log_every": 1000, "save_every": 1e9}}
    at_once, late = both({"training": training}, lambda: Broken(range(4, 40)), tmp_path)
    same(at_once, late)
    assert at_once[1][0].startswith("the loss is not finite since step 5, at learning rate factor 0.25")


@pytest.mark.filterwarnings("ignore:the loss is not finite")
def test_speed_is_measured_from_where_training_went_back_to(trained: Fit, tmp_path: Path) -> None:
    speeds: list[float] = []

    class Speeds(Callback):
        def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> None:
            speeds.append(row["images_per_second"])

    broken = Broken(range(3, 3 + PATIENCE), times=PATIENCE)
    settings = {"training": {"length": "9 steps", "records": {"log_every": 1, "save_every": 1e9}}}
    trained(settings, objective=broken, checkpointer=Checkpointer(tmp_path), callbacks=[Speeds()])
    assert min(speeds) > 0


def test_which_optimizers_leave_out_a_step_by_themselves(tiny: RunConfig) -> None:
    def learner(kind: str) -> Learner:
        config = configure(tiny, {"training": {"optimizer": {"kind": kind}, "ema": None}})
        return Learner.begin(starting_model(config, [str(n) for n in range(10)]), config.training)

    able = {kind: skips_on_device(learner(kind)) for kind in ("adamw", "sgd", "muon", "adafactor")}
    assert able == {"adamw": True, "sgd": True, "muon": False, "adafactor": False}


@pytest.fixture
def dino(tiny: RunConfig) -> DINO:
    model = starting_model(configure(tiny, {"model": {"num_classes": None}}), ())
    assert isinstance(model, ViT)
    return DINO(model, DINOConfig(prototypes=8, head_hidden=8, head_bottleneck=8), steps=8)


def views() -> Views:
    return Views(torch.rand(4, 2, 1, 8, 8), torch.rand(4, 8, 1, 4, 4))


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_step_of_dino_that_is_skipped_changes_nothing(tiny: RunConfig, dino: DINO, kind: str) -> None:
    """Neither the student nor its teacher, the center or the count of steps, in the first step or later,
    though the teacher's outputs are no numbers; the steps between change all of it."""
    config = configure(tiny, {"training": {"optimizer": {"kind": kind}}}).training
    learner = Learner.begin(dino, config)
    step = Late(learner, LossOf(dino, of_views), config, seed=0)
    for broken in (True, False, True, False):
        before = {name: tensor.clone() for name, tensor in dino.state_dict().items()}
        step(Views(*(each * torch.nan if broken else each for each in views())))
        after = dino.state_dict()
        changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
        needed = {"step", "center", "head.mlp.0.weight", "teacher_head.mlp.0.weight"}
        assert not changed if broken else changed >= needed
    step.outcome()
    assert (learner.skipped, dino.step) == (2, 2)


@pytest.mark.slow  # which checks no shapes: their checks are no part of a graph
def test_a_step_of_dino_is_one_graph(tiny: RunConfig, dino: DINO) -> None:
    """Which compiles as a whole, once: with the prototypes frozen, and when they learn."""
    learner = Learner.begin(dino, tiny.training)
    step = TrainStep(learner, LossOf(dino, of_views), tiny.training, seed=0)
    graphs: list[object] = []

    def noted(graph: torch.fx.GraphModule, inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    step.loss.compile(backend=noted, fullgraph=True, dynamic=False)
    for _ in range(3):
        step(views())
    assert len(graphs) == 1


def test_a_flag_on_its_way() -> None:
    assert read_later(torch.tensor(True))() is True
    assert read_later(torch.tensor(False))() is False


def test_what_follows_a_step_is_no_waiting_for_data(trained: Fit) -> None:
    """On a CPU the averaging of the weights is done before the next batch is asked for."""
    now, written = [0.0], list[float]()

    class Slow(TrainStep):
        def outcome(self) -> bool | None:
            if self.pending:
                now[0] += 0.2
            return super().outcome()

    class Waiting(Rows):
        def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> None:
            written.append(row["waiting"])

    trained(
        {"training": {"length": "6 steps", "records": {"log_every": 3}}},
        callbacks=[Waiting()],
        clock=lambda: now[0],
        step=Slow,
    )
    assert now[0] == pytest.approx(6 * 0.2)
    assert written == [0.0, 0.0]


class Asked(TorchDispatchMode):
    """Notes what would make Python wait for a GPU: reading a number from it, and shapes that depend on it."""

    WAITING = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        if name.startswith(self.WAITING):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


OPTIMIZERS = ({}, {"sam_radius": 0.05}, {"clip_norm": None}, {"kind": "sgd"})


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "dino"])
def test_nothing_in_a_step_waits_for_the_device(tiny: RunConfig, dino: DINO, optimizer: Any) -> None:
    settings = {"machine": {"grad_accum_steps": 2}, "optimizer": {} if optimizer == "dino" else optimizer}
    config = configure(tiny, {"training": settings})
    model, objective = starting_model(config, [str(n) for n in range(10)]), classification(config.training)
    batch: Any = Batch(torch.rand(8, 1, 8, 8), torch.arange(8), torch.arange(8))
    if optimizer == "dino":
        model, objective, batch = dino, of_views, views()
    learner, loss = Learner.begin(model, config.training), LossOf(model, objective)
    step = Late(learner, loss, config.training, seed=0)
    with Asked() as asked:
        for _ in range(2):
            step.prepare(batch)
            step.take()
    assert asked.found == []
    with asked:
        step.outcome()
    assert asked.found == ["_local_scalar_dense"]  # one step late, when it is there
