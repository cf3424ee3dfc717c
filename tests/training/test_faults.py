"""Several processes when one of them dies, hangs or is slow: what they say, and what is left of the run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from vitreous.errors import InputError
from vitreous.training import distributed
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.distributed import World, call_the_roll, naming_the_lost

DRIVER = """
import os, signal, sys, time
import torch
torch.set_num_threads(1)
from vitreous.cli import run
from vitreous.errors import InputError
from vitreous.training import callbacks, checkpointer, trainer
from vitreous.training.trainer import Trainer

fault, culprit, *arguments = sys.argv[1:]
mine = int(os.environ["RANK"]) == int(culprit) and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

def die():
    os.kill(os.getpid(), signal.SIGKILL)

take, save = Trainer.row_is_due, checkpointer.Checkpointer.complete
def row_is_due(self):
    time.sleep(0.02)
    if mine and self.learner.step == 12:
        if fault == "die in the step":
            die()
        if fault == "stop alone":
            raise InputError("this process has a fault of its own")
        time.sleep({"hang": 1000, "slow": 30}.get(fault, 0))
    return take(self)
Trainer.row_is_due = row_is_due

def complete(self, step, *rest):
    if mine and step >= 12 and fault == "die in a save":
        die()
    return save(self, step, *rest)
checkpointer.Checkpointer.complete = complete

flush = checkpointer.flush
def full(path):
    if mine and fault == "full disk" and "step-00000002" in str(path):
        raise OSError(28, "No space left on device")
    flush(path)
checkpointer.flush = full

write = callbacks.MetricsFile.on_log
def on_log(self, trainer, row):
    if mine and row["step"] >= 12 and fault == "die in validation":
        die()
    write(self, trainer, row)
callbacks.MetricsFile.on_log = on_log

code = run(arguments)
if mine and fault == "stop alone":
    time.sleep(1000)  # its script goes on
sys.exit(code)
"""

SETTINGS = {
    "training.batch_size": 48,
    "training.length": "40 steps",
    "training.records.save_every": 0,
    "training.machine.timeout": 0.5,
    "training.records.log_every": 3,
    "training.machine.evaluation_batch_size": 64,
}


def launch(folder: Path, processes: int, fault: str, culprit: int, *more: str, restarts: int = 0) -> Any:
    """Start a training of several processes, of which one has a fault."""
    (folder / "driver.py").write_text(DRIVER)
    given = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    arguments = ["train", *(more or ("digits", "--out", "run", *given))]
    nproc = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *nproc, "driver.py", fault, str(culprit), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=(folder / "stderr.txt").open("w"),
    )


def sentences(folder: Path) -> list[str]:
    """What vitreous itself has said on stderr."""
    text = (folder / "stderr.txt").read_text()
    return [line for line in text.splitlines() if line.startswith("vitreous: ")]


def resume(folder: Path, processes: int = 2) -> None:
    """Resume the run; it ends."""
    process = launch(folder, processes, "none", 0, "--resume", "run")
    assert process.wait(timeout=600) == 0, (folder / "stderr.txt").read_text()
    assert Checkpointer(folder / "run" / "checkpoints").steps()[-1] == 40
    assert (folder / "run" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "processes", "culprit", "said"),
    [
        ("die in the step", 3, 1, "process 1 of 3 ended or does not answer"),
        ("die in the step", 2, 0, "process 0 of 2 ended or does not answer"),
        ("die in a save", 3, 0, "process 0 of 3 ended or does not answer"),
        ("die in validation", 2, 0, "process 0 of 2 ended or does not answer"),
        ("stop alone", 3, 1, r"process 1 of 3 ended or does not answer: .* at step 1\d"),
        ("stop alone", 2, 0, r"process 0 of 2 ended or does not answer: .* at step 1\d"),
        ("hang", 3, 2, r"process 2 of 3 ended or does not answer: training stopped at step 1\d;"),
        ("full disk", 3, 0, r"cannot save the checkpoint of step \d+ in .* \(No space left on device\)"),
    ],
)
def test_a_fault_ends_the_run_with_a_sentence_and_nothing_saved_is_lost(
    fault: str, processes: int, culprit: int, said: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    assert launch(tmp_path, processes, fault, culprit).wait(timeout=600) != 0
    assert time.monotonic() - began < 600  # two minutes on a machine that does nothing else
    found = sentences(tmp_path)
    assert any(re.search(said, line) for line in found), (tmp_path / "stderr.txt").read_text()
    assert any("resume with vitreous train --resume" in line for line in found)
    assert Checkpointer(tmp_path / "run" / "checkpoints").steps()[-1] == 10
    resume(tmp_path, processes - 1)  # one process fewer


@pytest.mark.slow
def test_a_slow_process_is_waited_for(tmp_path: Path) -> None:
    """Less than the run's patience, which is half a minute more than the sleep."""
    process = launch(
        tmp_path,
        2,
        "slow",
        1,
        "digits",
        "--out",
        "run",
        "--set",
        "training.length=40 steps",
        "--set",
        "training.batch_size=48",
        "--set",
        "training.machine.timeout=5",
    )
    assert process.wait(timeout=600) == 0, (tmp_path / "stderr.txt").read_text()


@pytest.mark.slow
def test_torchrun_begins_again_after_a_fault_and_the_run_goes_on(tmp_path: Path) -> None:
    assert launch(tmp_path, 2, "die in the step", 1, restarts=1).wait(timeout=600) == 0
    assert any("process 1 of 2 ended" in line for line in sentences(tmp_path))
    assert Checkpointer(tmp_path / "run" / "checkpoints").steps()[-1] == 40


@pytest.mark.slow
def test_preemption_saves_and_a_torn_state_gives_way(tmp_path: Path) -> None:
    """SIGTERM to torchrun, as a scheduler sends it; then the newest checkpoint is damaged."""
    process, folder = launch(tmp_path, 2, "none", 0), tmp_path / "run" / "checkpoints"
    while Checkpointer(folder).steps()[-1:] < [10]:
        assert process.poll() is None, (tmp_path / "stderr.txt").read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=600) != 0
    assert any("and a checkpoint is saved" in line for line in sentences(tmp_path))
    *_, before, newest = Checkpointer(folder).steps()
    assert before < newest < 40
    facts = folder / f"step-{newest:09d}.json"
    facts.write_text(facts.read_text()[:-9])
    resume(tmp_path)


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for processes that do not come, and this process keeps its handler of signals."""
    monkeypatch.setattr(distributed, "ROLL_CALL", 0.0)
    monkeypatch.setattr(distributed.signal, "signal", lambda *_: None)


@pytest.mark.usefixtures("_no_waiting")
def test_the_roll_tells_who_has_come() -> None:
    world = World(0, 3, HashStore())
    world.store.set("vitreous/lives/2", "")
    assert call_the_roll(world) == {0, 2}


@pytest.mark.usefixtures("_no_waiting")
def test_only_the_first_of_those_that_are_left_speaks() -> None:
    for rank, error in ((0, InputError), (2, SystemExit)):
        store = HashStore()
        for other in (0, 2):
            store.set(f"vitreous/lives/{other}", "")
        with (
            pytest.raises(error) as raised,
            naming_the_lost(World(rank, 3, store), lambda: "training stopped at step 7"),
        ):
            raise RuntimeError("Connection closed by peer")
        if rank == 0:
            said = "process 1 of 3 ended or does not answer: training stopped at step 7"
            assert str(raised.value) == said


@pytest.mark.usefixtures("_no_waiting")
def test_an_error_of_its_own_stays_what_it_is() -> None:
    with (
        pytest.raises(RuntimeError, match="shape"),
        naming_the_lost(World(0, 3, HashStore()), lambda: ""),
    ):
        raise RuntimeError("the shape is wrong")


# Imports once; each stage is a process of its own, which may take little more memory once the stage begins.
MEMORY = """
import os, resource, sys, traceback
import torch
torch.set_num_threads(1)
from vitreous.cli import run
from vitreous.tasks import classification
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.step import TrainStep

STAGES = {
    "data": (classification.Classification, "open_source"),
    "model": (classification.Classification, "build"),
    "step": (TrainStep, "prepare"),
    "checkpoint": (Checkpointer, "write"),
    "validation": (classification.Classification, "validation_scores"),
    "calibration": (classification.Classification, "calibrate"),
    "evaluation": (classification.Classification, "evaluate"),
    "report": (classification.Classification, "report"),
    "none": (classification.Classification, "report"),
}

def limit(stage):
    owner, name = STAGES[stage]
    before = getattr(owner, name)
    def limited(*given, **more):
        if stage != "none":
            size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 20), -1))
        return before(*given, **more)
    setattr(owner, name, limited)

for stage, run_folder, *arguments in [line.split() for line in sys.stdin]:
    if pid := os.fork():
        print(stage, run_folder, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    with open(run_folder + ".txt", "a") as file:
        os.dup2(file.fileno(), 2)
        os.dup2(file.fileno(), 1)
    code = 70
    try:
        limit(stage)
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)
"""


@pytest.mark.slow
def test_short_memory_is_one_sentence_at_every_stage(tmp_path: Path) -> None:
    """And nothing that was saved is lost: the run resumes when there is memory again."""
    training = ("training.records.save_every=0", "training.length=12steps", "data.validation_fraction=0.2")
    settings = ("model.width=192", "model.depth=3", *training)
    more = " ".join(f"--set {each}" for each in settings)
    stages = ("data", "model", "step", "checkpoint", "validation", "calibration", "evaluation", "report")
    data = "synthetic:400@32"
    lines = [
        f"{stage} {stage} train {data} --batch-size 64 --device cpu --out {stage} {more}" for stage in stages
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY],
        input="\n".join(lines),
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        capture_output=True,
        check=True,
    )
    said = {stage: (tmp_path / f"{stage}.txt").read_text() for stage in stages}
    codes = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines()}
    assert codes == dict.fromkeys(stages, "2"), said
    for stage, text in said.items():
        (sentence,) = [line for line in text.splitlines() if line.startswith("vitreous: ")]
        assert "there is not enough memory" in sentence, sentence
        assert "Traceback" not in text, stage
    begun = [stage for stage in stages if (tmp_path / stage / "config.toml").exists()]
    assert {"checkpoint", "validation", "calibration", "evaluation", "report"} <= set(begun)
