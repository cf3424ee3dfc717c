"""`vitreous serve --workers`: processes that share a socket, weights and counters, and are replaced."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest
import torch

import vitreous as vt
from vitreous.checkpoints import save
from vitreous.cli import run
from vitreous.deployment.serving.guard import SHARED, WorkerProcesses
from vitreous.deployment.serving.workers import WEIGHTS, Worker, Workers, share_weights, supervise
from vitreous.errors import InputError

from .conftest import form, image, make_vit


def test_weights_are_mapped_from_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEIGHTS, str(tmp_path))
    first, second, images = make_vit(), make_vit(), torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        expected = first(images)
        second.head.weight.zero_()
    for model in (first, second):
        share_weights(model, 0)
    with torch.no_grad():
        assert torch.equal(first(images), expected)
        assert torch.equal(second(images), expected)
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert len([line for line in maps if line.endswith("/0.pt")]) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["0.pt"]


def test_processes_are_measured_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, str(tmp_path))
    for process in (os.getpid(), os.getppid(), 2**22 + 1):  # the last one is not there
        (tmp_path / f"gauge_livesum_{process}.db").touch()
    found = {metric.name: metric.samples[0].value for metric in WorkerProcesses().collect()}
    assert found["process_open_fds"] > len(os.listdir("/proc/self/fd")) - 3
    assert 0 < found["process_start_time_seconds"] < time.time()


@pytest.mark.parametrize(("arguments", "words"), [(["--workers", "0"], "--workers 0 is too low")])
def test_what_cannot_be(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "ViT-Ti/16", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        ({}, {}, "there is no model to serve"),
        ({"a b": "ViT-Ti/16", "a-b": "ViT-Ti/16"}, {}, "'a b' and 'a-b' would both be at /models/a-b"),
        ({"고양이": "ViT-Ti/16", "개": "ViT-Ti/16"}, {}, "would both be at /models/model"),
        (torch.nn.Linear(2, 2), {}, "type Linear is not served from memory"),
        ("ViT-Ti/16", {"metrics_port": 70000, "workers": 1}, "--metrics-port 70000 is not a port"),
    ],
)
def test_models_and_ports_that_cannot_be(models: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        vt.serve(models, port=0, **options)


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next server in this process would look for the weights of this one."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv(WEIGHTS, raising=False)
    monkeypatch.setattr(Workers, "start", Scripted.start)
    monkeypatch.setattr(Workers, "outcomes", [False], raising=False)
    with socket.socket() as opened, pytest.raises(InputError, match="cannot be opened"):
        supervise(lambda opened, ready: None, opened, 2, ready=lambda about: None)
    assert not {"OMP_NUM_THREADS", WEIGHTS} & os.environ.keys()


class Scripted(Workers):
    """Workers whose processes are not started: each start takes the next of `outcomes`."""

    def __init__(self, count: int, *outcomes: bool) -> None:
        self.outcomes = list(outcomes)
        super().__init__(lambda opened, ready: None, socket.socket(), count)

    def start(self, count: int) -> list[tuple[Worker, dict[str, Any]]]:
        if not self.outcomes.pop(0):
            raise InputError("it cannot be opened")
        if not self.outcomes:
            self.asked.append(signal.SIGTERM)
        return [(self.made(), {}) for _ in range(count)]

    def made(self) -> Worker:
        sentinel, says = Pipe()
        facts = {"sentinel": sentinel, "pid": 1, "exitcode": -9}
        process: Any = SimpleNamespace(is_alive=lambda: True, terminate=lambda: None, **facts)
        return Worker(process, says)


@pytest.mark.slow
def test_after_a_failed_reload_the_weights_of_before_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEIGHTS, "")
    workers = Scripted(2, True, True, False, True, False, True)
    workers.start_all()
    folder = os.environ[WEIGHTS]
    for _ in range(2):  # of the first process, and of the others
        with pytest.raises(InputError, match="cannot be opened"):
            workers.start_all()
        gc.collect()
        assert os.environ[WEIGHTS] == folder
        assert Path(folder).is_dir()
    workers.opened.close()


def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEIGHTS, "")
    monkeypatch.setenv(SHARED, str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    workers = Scripted(2, True, True, False, False, True)
    workers.start_all()
    died: Any = workers.now[0]
    died.process.is_alive = lambda: False
    watching = threading.Thread(target=workers.watch, daemon=True)
    watching.start()
    watching.join(10)
    workers.asked.append(signal.SIGTERM)  # ends a watch that does not try again
    assert workers.outcomes == []
    assert len(workers.now) == 2
    workers.opened.close()


class Started(NamedTuple):
    process: subprocess.Popen[str]
    url: str

    def workers(self) -> set[int]:
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", "spawn_main"], capture_output=True
        )
        return set(map(int, found.stdout.split()))


@contextmanager
def started(model: Path, *options: str) -> Iterator[Started]:
    command = [sys.executable, "-m", "vitreous", "serve", str(model), "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        try:
            yield Started(process, json.loads(line)["url"])
        finally:
            process.terminate()


def wait_until(condition: Any) -> None:
    until = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
def test_reloads_and_deaths_lose_no_request_of_others(tmp_path: Path) -> None:
    """Four clients ask without a pause while the models are loaded again twice; each request has a
    connection of its own, and is never repeated."""
    model = make_vit()
    save(model, tmp_path / "tiny")
    wrong: list[str] = []
    labels: list[str] = []
    ended = threading.Event()

    def client() -> None:
        while not ended.is_set():
            try:
                answer = httpx.post(server.url + "/v1/predict", timeout=300, **form(("x.png", image())))
                labels.append(answer.json()["predictions"][0]["label"])
            except Exception as error:
                wrong.append(repr(error))

    with started(tmp_path / "tiny", "--workers", "2") as server:
        clients = [threading.Thread(target=client, daemon=True) for _ in range(4)]
        for each in clients:
            each.start()
        before = server.workers()
        assert len(before) == 2
        model.labels = [f"new {name}" for name in model.labels or ()]
        save(model, tmp_path / "next")
        os.rename(tmp_path / "tiny", tmp_path / "old")
        os.rename(tmp_path / "next", tmp_path / "tiny")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: labels and labels[-1].startswith("new") and not server.workers() & before)
        (tmp_path / "tiny" / "config.json").write_text("{}")  # a model that cannot be opened changes nothing
        now = server.workers()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.workers() - now)
        wait_until(lambda: server.workers() == now)
        count = len(labels)
        wait_until(lambda: len(labels) > count + 50)
        assert wrong == []
        (tmp_path / "tiny" / "config.json").write_bytes((tmp_path / "old" / "config.json").read_bytes())
        killed = min(server.workers())
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len(server.workers()) == 2 and killed not in server.workers())
        assert len(wrong) <= len(clients), "those that were being answered"
        ended.set()
        for each in clients:
            each.join()
        lines = httpx.get(server.url + "/metrics", timeout=100).text.splitlines()
        counted = sum(float(line.split()[-1]) for line in lines if line.startswith("vitreous_requests_total"))
        assert counted >= len(labels), "those of processes that have ended count, too"
        server.process.terminate()
        assert server.process.wait(200) == 0
    assert server.workers() == set()


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    save(make_vit(), tmp_path / "tiny")
    with started(tmp_path / "tiny", "--workers", "2") as server:
        workers = server.workers()
        server.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in workers))


@pytest.mark.slow
def test_a_model_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    save(make_vit(), tmp_path / "tiny")
    (tmp_path / "tiny" / "model.safetensors").write_bytes(b"zz")
    command = [
        sys.executable,
        "-m",
        "vitreous",
        "serve",
        str(tmp_path / "tiny"),
        "--port",
        "0",
        "--workers",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.startswith("vitreous: ")
    assert done.stderr.count("\n") == 1
