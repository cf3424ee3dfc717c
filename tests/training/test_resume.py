"""Saved states: resuming is exact to the bit, and no crash can spoil the last good state."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import fsspec
import numpy as np
import pytest
import torch
from PIL import Image
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.state_dict_saver import save

from forked import run_group
from vitreous.data.dataset import Splits
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.callbacks import Callback
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RecordsConfig, RunConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Learner, State
from vitreous.training.machine import Place
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure
from vitreous.training.trainer import Interrupted, Trainer

from .conftest import Fit, weights


class StopAfter(Callback):
    """Asks for a stop, as Ctrl-C does, at one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_log(self, trainer: Trainer, row: dict[str, float]) -> None:
        if row["step"] == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_state_of_another_model_is_refused(trained: Fit, tmp_path: Path) -> None:
    states = Checkpointer(tmp_path)
    learner = trained({"training": {"length": "2 steps"}}, checkpointer=states)
    state = states.newest()
    assert state
    memory = {name: tensor for name, tensor in state.tensors.items() if name.endswith("/exp_avg")}
    name = max(memory, key=lambda name: len(memory[name]))
    swapped = {**state.tensors, name: state.tensors[name][:1]}
    with pytest.raises(InputError, match="does not fit the run's model"):
        learner.restore(State(swapped, state.facts))
    swapped = {**state.tensors, name: state.tensors[name][None]}
    with pytest.raises(InputError, match="does not fit the run's model"):
        learner.restore(State(swapped, state.facts))
    less = {name: tensor for name, tensor in state.tensors.items() if name != "model/norm.weight"}
    with pytest.raises(InputError, match=r"model/norm\.weight"):
        learner.restore(State(less, state.facts))
    learner.restore(state)


def assert_equal(one: Learner, other: Learner) -> None:
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert torch.equal(mine[name], theirs[name]), name


@pytest.mark.parametrize("kind", ["adamw", "sgd", "adafactor", "muon"])
def test_a_resumed_run_is_bit_equal_in_the_middle_of_an_epoch(
    trained: Fit, tmp_path: Path, kind: str
) -> None:
    """With dropout, stochastic depth, augmentation, Mixup and averaged weights; 8 steps make an epoch."""
    settings = {
        "training": {
            "length": "13 steps",
            "optimizer": {"kind": kind},
            "records": {"log_every": 1, "save_every": 1e9},
        }
    }
    never_stopped = trained(settings)
    with pytest.raises(Interrupted):
        trained(settings, checkpointer=Checkpointer(tmp_path), callbacks=[StopAfter(5)])
    with pytest.raises(Interrupted):
        trained(settings, resume=tmp_path, checkpointer=Checkpointer(tmp_path), callbacks=[StopAfter(11)])
    assert_equal(trained(settings, resume=tmp_path), never_stopped)


def test_files_decoded_by_threads_resume_bit_equal(tiny: RunConfig, tmp_path: Path) -> None:
    """JPEG files, RandomResizedCrop and RandAugment in two threads, stopped in the middle of an epoch."""
    random = np.random.default_rng(0)
    for number in range(40):
        (tmp_path / "photos" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / str(number % 2) / f"{number}.jpg")
    config = configure(
        tiny,
        {
            "source": str(tmp_path / "photos"),
            "model": {"channels": 3, "num_classes": 2},
            "preprocessing": {"mean": [0.5] * 3, "std": [0.5] * 3},
            "data": {"reading": {"workers": 2, "in_memory": False}},
            "augmentation": {
                "random_resized_crop": {},
                "policy": {},
                "flip": 0.5,
                "random_erasing": 0.3,
            },
            "training": {
                "length": "9 steps",
                "batch_size": 8,
                "records": {"log_every": 1, "save_every": 1e9},
            },
        },
    )
    splits = open_data(config.source, config.data)
    device = torch.device("cpu")
    whole = fit(
        plan_of_run(RunDirectory.create(tmp_path / "whole", config), splits, Place(device)), Place(device)
    ).model
    run = RunDirectory.create(tmp_path / "stopped", config)

    class Strike(Callback):
        def on_step_end(self, trainer: Trainer) -> None:
            if trainer.learner.step == 6:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        fit(plan_of_run(run, splits, Place(device)), Place(device), callbacks=[Strike()])
    assert run.states.steps() == [0, 6]
    again = fit(plan_of_run(RunDirectory.open(run.path), splits, Place(device)), Place(device)).model
    for (name, mine), theirs in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs), name


class Snapshot(Learner):
    """A learner of one weight, whose values are its step."""

    def __init__(self, step: int, size: int = 300) -> None:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.full((size,), float(step)))
        super().__init__(model, [], step=step)

    def restore(self, state: State, *, first: bool = True) -> None:
        super().restore(state, first=first)
        assert state.tensors["model/w"][0] == self.step


def test_the_last_two_states_are_kept(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    for step in range(5):
        checkpointer.save(Snapshot(step))
    assert checkpointer.steps() == [3, 4]
    assert len(list(tmp_path.iterdir())) == 4
    newest = checkpointer.newest()
    assert newest is not None
    assert newest.facts == {**Snapshot(4).state().facts, "step": 4}


def test_what_a_training_warns_of_while_a_state_is_written_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes it, and PyTorch's own warnings there are left out."""
    writing, warned = threading.Event(), threading.Event()

    def slowly(*args: Any, **options: Any) -> object:
        writing.set()
        assert warned.wait(60)
        return save(*args, **options)

    monkeypatch.setattr(state_dict_saver, "save", slowly)
    checkpointer = Checkpointer(tmp_path)
    with warnings.catch_warnings(record=True, action="always") as heard:
        checkpointer.save(Snapshot(1), wait=False)
        assert writing.wait(60)
        warnings.warn("too few steps", stacklevel=1)
        warned.set()
        checkpointer.finish()
    assert [str(each.message) for each in heard] == ["too few steps"]
    assert checkpointer.steps() == [1]


def test_milestones_are_kept_besides_the_last_states(tmp_path: Path, trained: Fit) -> None:
    checkpointer = Checkpointer(tmp_path, keep_every=4)
    trained(
        {"training": {"length": "10 steps", "records": {"save_every": 1e9, "keep_every": 4}}},
        checkpointer=checkpointer,
    )
    assert checkpointer.steps() == [4, 8, 10]
    for step in range(11, 18):
        checkpointer.save(Snapshot(step))
    assert checkpointer.steps() == [4, 8, 12, 16, 17]


class Disk:
    """`before` is called with each file and folder that is to be flushed to the disk: it may wait or fail."""

    before: Callable[[Path], object] = staticmethod(lambda path: None)

    def is_full(self, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found, fsync = Disk(), os.fsync

    def flush(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:  # not while PyTorch writes
            found.before(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    return found


def test_files_and_folders_are_on_the_disk_before_a_checkpoint_exists(tmp_path: Path, disk: Disk) -> None:
    flushed: list[Path] = []
    disk.before = flushed.append
    Checkpointer(tmp_path).save(Snapshot(3))
    partial = tmp_path / "step-000000003.partial"
    tensors, folder, facts, outer = flushed
    assert (tensors.parent, folder, outer) == (partial, partial, tmp_path)
    assert ".json" in facts.name


def test_a_disk_that_is_full_when_it_is_flushed_is_an_input_error(tmp_path: Path, disk: Disk) -> None:
    disk.before = disk.is_full
    with pytest.raises(InputError, match=r"cannot save .*No space left.* there is no checkpoint yet"):
        Checkpointer(tmp_path).save(Snapshot(3))


class Lost(World):
    """The first of two processes, of which the other has died: every exchange fails, as gloo's do."""

    def broadcast(self, value: Any) -> Any:
        raise RuntimeError("Connection closed by peer")

    def new_group(self) -> World:
        return self


@pytest.mark.parametrize("wait", [True, False])
def test_a_checkpoint_is_complete_even_if_another_process_dies_while_it_is_written(
    tmp_path: Path, wait: bool
) -> None:
    checkpointer, world = Checkpointer(tmp_path), Lost(0, 2)
    with pytest.raises(RuntimeError, match="closed by peer"):  # noqa: PT012
        checkpointer.save(Snapshot(3), world, wait=wait)
        checkpointer.finish()
    assert Checkpointer(tmp_path).steps() == [3]


def damage(folder: Path, step: int, harm: str) -> None:
    facts = folder / f"step-{step:09d}.json"
    (tensors,) = (folder / f"step-{step:09d}.shards").iterdir()
    content = bytearray(tensors.read_bytes())
    match harm:
        case "cut":
            tensors.write_bytes(content[:-10])
        case "flipped":
            content[-1] ^= 1
            tensors.write_bytes(content)
        case "gone":
            tensors.unlink()
        case "no JSON":
            facts.write_text("{")
        case "empty JSON":
            facts.write_text("{}")
        case "a list":
            facts.write_text("[]")


@pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "no JSON", "empty JSON", "a list"])
def test_a_damaged_state_gives_way_to_the_one_before_it(tmp_path: Path, harm: str) -> None:
    for step in (7, 8):
        Checkpointer(tmp_path).save(Snapshot(step))
    damage(tmp_path, 8, harm)
    learner, checkpointer = Snapshot(0), Checkpointer(tmp_path)
    with pytest.warns(UserWarning, match=r"step-000000008 is damaged .*: training resumes from step 7"):
        assert checkpointer.restore(learner)
    assert learner.step == 7
    checkpointer.save(learner)  # it is saved already
    assert checkpointer.steps() == [7, 8]
    checkpointer.save(Snapshot(9))
    assert checkpointer.steps() == [7, 9]


def test_damaged_states_are_not_counted_among_those_that_are_kept(tmp_path: Path) -> None:
    for step in (23, 24):
        Checkpointer(tmp_path).save(Snapshot(step))
        damage(tmp_path, step, "flipped")
    checkpointer = Checkpointer(tmp_path)
    with pytest.warns(UserWarning, match="resumes from the beginning: no checkpoint is intact"):
        assert not checkpointer.restore(Snapshot(0))
    for step in (0, 5):
        checkpointer.save(Snapshot(step))
    assert checkpointer.steps() == [0, 5]


def test_a_state_that_cannot_be_removed_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a network's file system, where another machine has one of its files open."""
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(Snapshot(0))
    checkpointer.save(Snapshot(1))

    def busy(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(shutil, "rmtree", busy)
    # The thread that writes changes the filters of warnings, too.
    with pytest.warns(UserWarning, match=r"cannot remove an old .*Directory not empty"):  # noqa: PT031
        checkpointer.save(Snapshot(2), wait=False)
        checkpointer.finish()
    monkeypatch.undo()
    checkpointer.save(Snapshot(3))
    assert checkpointer.steps() == [2, 3]
    assert len(list(tmp_path.iterdir())) == 4


def test_no_state_at_all_is_a_beginning(tmp_path: Path) -> None:
    assert Checkpointer(tmp_path / "nothing").newest() is None
    (tmp_path / "step-abc.json").write_text("{}")
    assert Checkpointer(tmp_path).newest() is None


def test_a_full_disk_leaves_the_state_before_it(tmp_path: Path, full_disk: Any) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(Snapshot(1, size=10))
    wanted = r"cannot save the checkpoint of step 2 .*of step 1 is intact"
    with full_disk(100_000), pytest.raises(InputError, match=wanted):
        checkpointer.save(Snapshot(2, size=1_000_000))
    newest = checkpointer.newest()
    assert newest is not None
    assert newest.facts["step"] == 1
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".shards"]


def test_a_state_is_written_while_training_goes_on(trained: Fit, tmp_path: Path, disk: Disk) -> None:
    """It is the state of its step, though the weights have changed since."""
    learner, states, gate = (
        trained({"training": {"length": "2 steps"}}),
        Checkpointer(tmp_path),
        threading.Event(),
    )
    before = {name: weight.clone() for name, weight in weights(learner).items()}
    disk.before = lambda path: gate.wait(60)
    states.save(learner, wait=False)
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.zero_()
    assert states.steps() == []
    gate.set()
    states.finish()
    newest = states.newest()
    assert newest
    assert all(torch.equal(newest.tensors[name], weight) for name, weight in before.items())


def test_what_fails_meanwhile_is_raised_by_the_next_save(tmp_path: Path, disk: Disk) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(Snapshot(1))
    disk.before = disk.is_full
    checkpointer.save(Snapshot(2), wait=False)
    with pytest.raises(InputError, match=r"checkpoint of step 2 .*No space left.* of step 1 is intact"):
        checkpointer.save(Snapshot(3))
    disk.before = Disk.before
    checkpointer.save(Snapshot(3), wait=False)
    checkpointer.finish()
    assert checkpointer.steps() == [1, 3]


def test_what_cannot_be_written_at_all_is_not_waited_for(tmp_path: Path, disk: Disk) -> None:
    """As where memory is short: the error comes out, and the next wait ends."""

    def fail(path: Path) -> None:
        raise MemoryError

    states = Checkpointer(tmp_path)
    disk.before = fail
    with pytest.raises(MemoryError):
        states.save(Snapshot(1))
    states.finish()
    assert states.steps() == []


def test_training_waits_for_checkpoints_for_a_small_part_of_its_time(trained: Fit, tmp_path: Path) -> None:
    """By default; an interval that is set is kept."""
    found: dict[str, float] = {}

    class Look(Callback):
        def on_train_begin(self, trainer: Trainer) -> None:
            for name, seconds in (("quick", 0.1), ("slow", 6.0)):
                trainer.saving = seconds
                found[name] = trainer.save_interval()

        def on_train_end(self, trainer: Trainer) -> None:
            found["spent"] = trainer.saving

    clock = iter(range(0, 10**6, 4))
    around = {
        "checkpointer": Checkpointer(tmp_path),
        "callbacks": [Look()],
        "clock": lambda: float(next(clock)),
    }
    trained({"training": {"length": "1 steps", "records": {"save_every": None}}}, **around)
    assert found == {"quick": 60.0, "slow": 200.0, "spent": 4.0}  # 6 s of 200 are 3%
    trained({"training": {"length": "1 steps", "records": {"save_every": 7.0}}}, callbacks=[Look()])
    assert (found["quick"], found["slow"]) == (7.0, 7.0)


def test_checkpoints_are_copied_to_a_url(tmp_path: Path) -> None:
    """And removed there when they are here; a run that is fetched from there resumes."""
    run, url = tmp_path / "run", f"memory://bucket/{tmp_path.name}"
    run.mkdir()
    (run / "config.toml").write_text("seed = 1")
    states = Checkpointer(run / "checkpoints", upload=url)
    for step in range(4):
        states.save(Snapshot(step), wait=step == 3)
    system, root = fsspec.url_to_fs(url)
    there = {name.removeprefix(f"{root}/") for name in system.find(root)}
    here = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert there == here
    system.get(root, str(tmp_path / "back"), recursive=True)
    learner = Snapshot(0)
    assert Checkpointer(tmp_path / "back" / "checkpoints").restore(learner)
    assert learner.step == 3
    elsewhere = Checkpointer(tmp_path / "other", upload="nowhere://bucket")
    with pytest.warns(
        UserWarning, match="cannot copy the checkpoints to nowhere://bucket: Protocol not known"
    ):
        elsewhere.save(Snapshot(1))
    assert elsewhere.steps() == [1]


def test_states_hold_no_pickles(trained: Fit, tmp_path: Path) -> None:
    trained({"training": {"length": "1 steps"}}, checkpointer=Checkpointer(tmp_path))
    for path in tmp_path.rglob("*.*"):
        assert path.suffix in (".json", ".safetensors", ".shards")
        if path.suffix == ".json":
            assert isinstance(json.loads(path.read_text()), dict)


DRIVER = """
# Each life of the run is a fork, killed at a random moment.
import json, os, random, signal, sys, time
from pathlib import Path
from vitreous.data.config import DataConfig
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
from vitreous.training.config import RunConfig
from vitreous.training.learner import Learner
from vitreous.training.step import LossOf, TrainStep
from vitreous.training.trainer import Trainer
from vitreous.training.objectives import classification
from vitreous.training.initial_model import starting_model
from vitreous.training.checkpointer import Checkpointer

config, folder, kills = RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
splits = open_data("digits", DataConfig(test_fraction=0.85))
chance = random.Random(0)

def live():
    states = Checkpointer(folder)
    learner = Learner.begin(starting_model(config, splits.train.classes), config.training)
    states.restore(learner)
    loader = image_loader(splits.train, preprocessing=config.prepared, augmentation=config.augmentation,
                         batch_size=config.training.batch_size, seed=config.seed)
    loss = LossOf(learner.model, classification(config.training))
    step = TrainStep(learner, loss, config.training, seed=config.seed)
    Trainer(step, loader, checkpointer=states).fit()

def half_written():
    stems = [path.stem for path in folder.glob("step-*.json")]
    return any(path.is_dir() and path.stem not in stems for path in folder.glob("step-*"))

def newest():
    return max((int(path.stem[5:]) for path in folder.glob("step-*.json")), default=-1)

died = saving = 0
for life in range(kills):
    begun = newest()
    child = os.fork()
    if not child:
        live()
        os._exit(0)
    while newest() <= begun:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.2))
    while life % 2 and not half_written():
        pass  # every second time the blow falls when a save has begun
    os.kill(child, signal.SIGKILL)
    died += os.waitpid(child, 0)[1] == signal.SIGKILL
    saving += half_written()
(folder.parent / "died.json").write_text(json.dumps([died, saving]))
"""


def killed_again_and_again(trained: Fit, tiny: RunConfig, folder: Path, *, kills: int, steps: int) -> int:
    """SIGKILL at random moments, every second one while a state is saved. How many fell into a save."""
    training = {"length": f"{steps} steps", "records": RecordsConfig(save_every=0)}
    config = tiny.model_copy(update={"training": tiny.training.model_copy(update=training)})
    script, states = folder / "driver.py", folder / "states"
    script.write_text(DRIVER)
    run_group(script, config.model_dump_json(), states, str(kills), processes=1)
    died, saving = json.loads((folder / "died.json").read_text())
    assert died == kills, "the run ended before it was killed: make it longer"
    assert_equal(trained({"training": training}, resume=states), trained({"training": training}))
    return saving


@pytest.mark.slow
def test_kill_nine_at_random_moments(trained: Fit, tiny: RunConfig, tmp_path: Path) -> None:
    killed_again_and_again(trained, tiny, tmp_path, kills=2, steps=120)


@pytest.mark.slow
def test_kill_nine_at_thirty_random_moments(trained: Fit, tiny: RunConfig, tmp_path: Path) -> None:
    assert killed_again_and_again(trained, tiny, tmp_path, kills=30, steps=2500) > 3


def test_a_lock_is_of_the_file_that_others_see(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training may end, and remove the file, while others wait for its lock."""
    run = RunDirectory.create(tmp_path / "run", tiny)
    lock, ended = fcntl.flock, []

    def flock(file: IO[str], how: int) -> None:
        if not ended:
            ended.append((run.path / ".lock").unlink())
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with run.locked(), pytest.raises(InputError, match="is training in"), run.locked():
        pass

    monkeypatch.undo()
    with (run.path / ".lock").open("a+") as held:  # by one that has not written its name yet
        lock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"^another process is training in"), run.locked():
            pass


def test_a_run_is_trained_by_one_process_at_a_time(tiny: RunConfig, splits: Splits, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", configure(tiny, {"training": {"length": "2 steps"}}))
    run.path.joinpath(".lock").write_text("process 4 on nowhere")  # it was killed
    config = (run.path / "config.toml").read_text()
    for begin in (lambda: fit(plan_of_run(run, splits)), lambda: run.extended(World(), "9 epochs")):
        with run.locked(), pytest.raises(InputError, match=rf"^process {os.getpid()} on \S+ is training in"):
            begin()
    assert (run.path / "config.toml").read_text() == config
    assert fit(plan_of_run(run, splits)).model.labels == list(splits.train.classes)
