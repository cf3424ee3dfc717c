"""torchrun begins the processes again when one of them dies, and the run goes on by itself."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from vitreous.data.dataset import Splits
from vitreous.errors import InputError
from vitreous.tasks import task_named, training_run
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.callbacks import read_metrics
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig
from vitreous.training.distributed import first_value, shared_name
from vitreous.training.machine import ON_CPU
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure, to_toml


@pytest.mark.slow
@pytest.mark.clock
@pytest.mark.parametrize("shard", [False, True])
def test_a_killed_worker_is_begun_again_and_the_run_goes_on(
    tiny: RunConfig, splits: Splits, tmp_path: Path, shard: bool
) -> None:
    """Without --out: the restarted command finds the directory that it began.

    Without dropout and noise, which each process samples.
    """
    config = configure(
        tiny,
        {"model": {"dropout": 0.0, "drop_path": 0.0}, "augmentation": {"noise": 0.0}},
        {"data": {"test_fraction": 0.85}},
        {
            "training": {
                "length": "400 steps",
                "records": {"log_every": 7, "save_every": 0},
                "machine": {"shard": shard},
            }
        },
    )
    (tmp_path / "tiny.toml").write_text(to_toml(config))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2")
    process = subprocess.Popen(
        [sys.executable, *launcher, "-m", "vitreous", "train", "--config", "tiny.toml"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "stderr.txt").open("w"),
    )
    try:
        while newest(tmp_path) < 30:
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.01)
        worker = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1]
        os.kill(int(worker), signal.SIGKILL)
        assert newest(tmp_path) < 400
        assert process.wait() == 0, (tmp_path / "stderr.txt").read_text()
    finally:
        process.terminate()
    (path,) = (tmp_path / "runs").iterdir()
    whole = RunDirectory.create(tmp_path / "whole", config)
    fit(plan_of_run(whole, splits))
    rows, expected = (read_metrics(run / "metrics.jsonl") for run in (path, whole.path))
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    losses = [row["loss"] for row in expected]
    assert [row["loss"] for row in rows] == pytest.approx(losses, abs=2e-3)  # rounding grows over 400 steps


def agents(
    config: RunConfig, folder: Path, nodes: str, outs: dict[str, str]
) -> list[subprocess.Popen[bytes]]:
    """Begin torchrun on some machines, which stand in different folders; the first one has the store."""
    (folder / "tiny.toml").write_text(to_toml(config))
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    launcher = (
        "-m",
        "torch.distributed.run",
        "--nnodes",
        nodes,
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "3",
    )
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "test")
    begun = []
    for name, out in outs.items():
        (folder / name).mkdir()
        host = ("--rdzv-conf", f"is_host={name == next(iter(outs))},last_call_timeout=5")
        command = (sys.executable, *launcher, *rendezvous, *host, "-m", "vitreous", "train")
        begun.append(
            subprocess.Popen(
                [*command, "--config", str(folder / "tiny.toml"), "--out", out],
                cwd=folder / name,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"{name}.txt").open("w"),
            )
        )
    return begun


@pytest.mark.slow
@pytest.mark.clock
@pytest.mark.parametrize("shared", [True, False])
def test_two_machines_train_together_in_a_folder_that_both_see(
    tiny: RunConfig, tmp_path: Path, shared: bool
) -> None:
    # Of /proc/self/cwd each process sees another: what one writes is not where the other looks.
    outs = {
        name: str(tmp_path / "run") if shared else f"/proc/self/cwd/runs/{name}" for name in ("here", "there")
    }
    begun = agents(configure(tiny, {"training": {"length": "6 steps"}}), tmp_path, "2", outs)
    codes = [agent.wait(timeout=1000) for agent in begun]
    said = "".join((tmp_path / f"{name}.txt").read_text() for name in outs)
    if shared:
        assert codes == [0, 0], said
        assert (tmp_path / "run" / "report.html").exists()
    else:
        assert all(codes)
        assert re.search("this machine does not see .*/runs/(here|there), where the first process", said)


@pytest.mark.slow
@pytest.mark.clock
@pytest.mark.parametrize("shard", [False, True])
def test_a_run_goes_on_without_a_machine_that_has_gone(tiny: RunConfig, tmp_path: Path, shard: bool) -> None:
    """With fewer processes, from the newest checkpoint; nothing that was saved is taken again."""
    training = {
        "length": "600 steps",
        "records": {"log_every": 1, "save_every": 0},
        "machine": {"shard": shard},
    }
    config = configure(tiny, {"training": training}, {"data": {"test_fraction": 0.85}})
    run = tmp_path / "runs" / "one"
    here, there = agents(config, tmp_path, "1:2", dict.fromkeys(("here", "there"), str(run)))
    try:
        while newest(tmp_path) < 30:
            assert here.poll() is None, (tmp_path / "here.txt").read_text()
            time.sleep(0.01)
        workers = Path(f"/proc/{there.pid}/task/{there.pid}/children").read_text().split()
        saved = newest(tmp_path)
        for process in (there.pid, *map(int, workers)):
            os.kill(process, signal.SIGKILL)
        assert here.wait(timeout=1000) == 0, (tmp_path / "here.txt").read_text()
    finally:
        for agent in (here, there):
            agent.kill()
    assert re.search("process [01] of 2 ended or does not answer", (tmp_path / "here.txt").read_text())
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 601))
    assert newest(tmp_path) == 600 > saved
    assert (run / "report.html").exists()


def newest(folder: Path) -> int:
    """The newest state of the only run."""
    return max(
        (step for path in folder.glob("runs/*/checkpoints") for step in Checkpointer(path).steps()),
        default=-1,
    )


def test_without_torchrun_everything_is_said_for_the_first_time() -> None:
    assert first_value("run", "one") == ("one", False)
    assert first_value("run", "two") == ("two", False)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store that torchrun keeps for its processes, and where they find it."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(server.port))
    yield
    del server


@pytest.mark.usefixtures("launcher")
def test_processes_that_come_later_take_what_the_first_ones_chose() -> None:
    """Also where torchrun does not count it as a restart: when another machine comes or goes."""
    assert first_value("run", "runs/a b") == ("runs/a b", False)
    assert first_value("run", "runs/other") == ("runs/a b", True)
    assert first_value("run", "runs/a b") == ("runs/a b", True)  # as with --out


@pytest.mark.usefixtures("launcher")
def test_each_run_of_a_script_is_its_own_also_in_processes_that_come_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def begun() -> list[RunDirectory]:
        monkeypatch.setattr(training_run, "BEGUN", itertools.count())  # as another process has it
        plan = task_named("classification").plan("digits", {})
        outs = tmp_path / "one", tmp_path / "two"
        return [training_run.with_run(plan, {}, ON_CPU, out=out).made for out in outs]

    first, later = begun(), begun()
    assert [run.path.name for run in first] == [run.path.name for run in later] == ["one", "two"]
    assert ([run.new for run in first], [run.new for run in later]) == ([True] * 2, [False] * 2)


def test_processes_meet_where_none_were_before_them() -> None:
    """Whatever their machines count, in any order, also after some of which one never came."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def met(*ranks: int, seconds: float = 60.0) -> list[str]:
        def one(rank: int) -> str:
            return shared_name(TCPStore("127.0.0.1", server.port, is_master=False), rank, 3, seconds)

        with ThreadPoolExecutor() as threads:
            return [*threads.map(one, ranks)]

    names = [*met(0, 1, 2), *met(2, 1, 0)]
    with pytest.raises(InputError, match=r"not all of the 3 processes joined within 0\.005 minutes"):
        met(1, 0, seconds=0.3)
    names += met(1, 2, 0)
    assert [names.count(name) for name in dict.fromkeys(names)] == [3, 3, 3]
