"""How many threads compute: by durations that a test winds, never by those of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig
from vitreous.training.distributed import World
from vitreous.training.machine import Threads, threads_for
from vitreous.training.objectives import classification
from vitreous.training.step import Measured

from .conftest import Fit

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


class Machine:
    """Its clocks: how long a step takes with so many threads, and of how many processors it gets the time."""

    def __init__(self, one: float, two: float, processors: float) -> None:
        self.step_seconds = {1: one, 2: two}
        self.processors, self.now, self.told = processors, 0.0, list[str]()
        self.counts: list[int] = []
        self.threads = Threads(self.told.append, clock=lambda: self.now, used=lambda: self.now * processors)

    def compute(self) -> None:
        self.counts.append(torch.get_num_threads())
        self.now += self.step_seconds[torch.get_num_threads()]

    def take(self, steps: int) -> None:
        for _ in range(steps):
            with self.threads.step():
                self.compute()


@pytest.mark.parametrize(("one", "chosen"), [(0.1, 1), (0.79, 1), (0.81, 2), (2.0, 2)])
def test_one_thread_must_be_faster_by_a_margin(one: float, chosen: int) -> None:
    busy = Machine(one=one, two=1.0, processors=1.0)
    with busy.threads:
        busy.take(8)
    assert busy.counts[-3:] == [chosen] * 3


def test_one_thread_computes_where_several_wait_for_each_other() -> None:
    busy = Machine(one=1.0, two=5.0, processors=0.8)
    with busy.threads:
        busy.take(8)
    assert busy.counts == [2, 2, 1, 2, 1, 1, 1, 1]
    assert busy.told == [
        "computing with one thread, 5.0 times as fast as with 2 here: other programs use the cores"
    ]
    assert torch.get_num_threads() == 2  # what the caller had
    with busy.threads:  # other steps of the same work
        busy.take(1)
    assert (busy.counts[-1], torch.get_num_threads()) == (1, 2)


def test_several_threads_stay_where_one_is_hardly_faster() -> None:
    busy = Machine(one=0.9, two=1.0, processors=1.0)
    with busy.threads:
        busy.take(8)
    assert busy.counts == [2, 2, 1, 2, 1, 2, 2, 2]
    assert busy.told == []


def test_an_idle_machine_takes_no_step_with_one_thread() -> None:
    idle = Machine(one=2.0, two=1.0, processors=1.9)
    with idle.threads:
        idle.take(8)
    assert set(idle.counts) == {2}


def test_the_number_that_a_user_sets_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert threads_for(CPU).tries
    assert not threads_for(CPU, fixed=True).tries
    assert not threads_for(CPU, world=World(0, 2)).tries
    assert not threads_for(torch.device("cuda")).tries
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not threads_for(CPU).tries


@pytest.mark.slow
def test_a_training_goes_on_with_the_threads_that_it_had(
    trained: Fit, tiny: RunConfig, tmp_path: Path
) -> None:
    """Its last bits depend on their number."""
    busy = Machine(one=1.0, two=5.0, processors=0.8)
    loss = classification(tiny.training)

    def timed(model: nn.Module, batch: Any, generator: torch.Generator) -> Measured:
        busy.compute()
        return loss(model, batch, generator)

    checkpoints = Checkpointer(tmp_path / "checkpoints")
    trained({}, objective=timed, threads=busy.threads, checkpointer=checkpoints)
    assert busy.counts[:5] == [2, 2, 1, 2, 1]
    assert set(busy.counts[5:]) == {1}

    longer = {"training": {"length": "3 epochs"}}
    later = Machine(one=9.0, two=1.0, processors=0.8)
    busy.counts.clear()
    trained(longer, objective=timed, threads=later.threads, resume=tmp_path / "checkpoints")
    assert set(busy.counts) == {1}


@pytest.mark.parametrize(("own", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_the_command_sleep_while_they_wait(own: str | None, found: str, tmp_path: Path) -> None:
    """OpenMP reads it once, when PyTorch is imported: it is set before that, unless the user has set it."""
    watch = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print('torch', os.environ.get('OMP_WAIT_POLICY'))\n"
        "            sys.exit()\n"
        "sys.meta_path.insert(0, Watch())\n"
        "sys.argv = ['vitreous', 'describe', 'ViT-Ti/16']\n"
        "from vitreous.__main__ import main\n"
        "main()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if own:
        environment["OMP_WAIT_POLICY"] = own
    done = subprocess.run(
        [sys.executable, "-c", watch],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("torch ")] == [f"torch {found}"]
