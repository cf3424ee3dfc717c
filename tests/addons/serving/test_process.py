"""`vitreous serve` as a process of its own: it starts, answers, ends well."""

from __future__ import annotations

import io
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
from pathlib import Path

import httpx
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.checkpoints.saving import save
from vitreous.cli import run
from vitreous.errors import InputError

from .conftest import form, image, make_vit


def large() -> bytes:
    """Few bytes that are many pixels."""
    buffer = io.BytesIO()
    Image.new("RGB", (1500, 1000)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


LARGE, IMAGES = large(), 8
# A server that answers no image while there is a file.
GATED = """
import sys, time
from pathlib import Path
from vitreous.cli import main
from vitreous.addons.serving.models import Classifier

gate, predict = Path(sys.argv.pop(1)), Classifier.predict

def gated(self, questions):
    while gate.exists():
        time.sleep(0.01)
    return predict(self, questions)

Classifier.predict = gated
main()
"""


def takes_requests(url: str) -> bool:
    try:
        httpx.get(url + "/healthz", timeout=1000)
    except httpx.TransportError as error:
        return not isinstance(error, httpx.ConnectError)
    return True


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "tiny"
    save(make_vit(), path)
    return path


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_from_start_to_end(checkpoint: Path, how: signal.Signals, code: int, tmp_path: Path) -> None:
    gate = tmp_path / "closed"
    serve = ["serve", str(checkpoint), "--port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", GATED, str(gate), *serve],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What runs in the background may ignore Ctrl-C, and its child would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout
        assert process.stderr
        told = json.loads(process.stdout.readline())
        assert (told["task"], told["name"], told["trained"]) == ("classification", "tiny", True)
        assert httpx.get(told["url"] + "/healthz", timeout=1000).json() == {"status": "ok"}
        assert "<!doctype html>" in httpx.get(told["url"], timeout=1000).text
        gate.touch()
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(
                httpx.post(told["url"] + "/v1/predict", timeout=1000, **form(*[("x.png", LARGE)] * IMAGES))
            )
        )
        asking.start()
        with httpx.Client(base_url=told["url"], timeout=1000) as watcher:
            while f"vitreous_queue {IMAGES}.0" not in watcher.get("/metrics").text:
                assert asking.is_alive()
                time.sleep(0.02)
        process.send_signal(how)
        while takes_requests(told["url"]):
            time.sleep(0.02)
        gate.unlink()
        asking.join()
        assert process.wait(timeout=1000) == code
        assert process.stdout.read() == ""  # exactly one JSON object
        assert "Traceback" not in process.stderr.read()
    assert answers[0].status_code == 200, answers[0].text
    assert [each["path"] for each in answers[0].json()["predictions"]] == ["x.png"] * IMAGES


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "'nowhere' is not an existing file or folder"),
        (["{model}", "--port", "99999"], "is not a port"),
        (["{model}", "--host", "no.such.host.invalid"], "not an address of this machine"),
        (["{model}", "--port", "{taken}"], "is in use"),
        (["{model}", "--max-batch", "0"], "--max-batch 0 is not a number of 1 or more"),
        (["{model}", "--device", "tpu9"], "unknown device"),
        (["{model}", "--deadline", "nan"], "--deadline 'nan' is not a finite number"),
        (["{model}", "--max-wait", "nan"], "--max-wait 'nan' is not a finite number"),
        (["{model}", "--max-wait", "inf"], "--max-wait 'inf' is not a finite number"),
        (["{model}", "--token-file", "none"], "cannot read --token-file none"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        filled = [each.format(model=checkpoint, taken=port) for each in arguments]
        assert run(["serve", "--port", "0", *filled] if "--port" not in filled else ["serve", *filled]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_missing_extra_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"serving needs uvicorn: pip install 'vitreous\[serve\]'"):
        vt.serve("ViT-Ti/16")


def test_a_model_in_memory_is_refused() -> None:
    with pytest.raises(InputError, match="type Linear cannot be served from memory"):
        vt.serve(torch.nn.Linear(2, 2))


ENDED_ONCE_IT_ANSWERS = """
import os, signal, sys, threading, time
from pathlib import Path
from docstring_examples import what_differs, write_place

def end():
    while not (hasattr(sys.stdout, "getvalue") and "answers at" in sys.stdout.getvalue()):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

write_place(Path.cwd())
threading.Thread(target=end, daemon=True).start()
try:
    sys.exit(what_differs("serve") or None)  # "" would be a failure
except KeyboardInterrupt:
    sys.exit(0)
"""


@pytest.mark.slow
def test_the_example_of_a_server_does_what_it_says(tmp_path: Path) -> None:
    """With Ctrl-C, which ends it."""
    paths = os.pathsep.join((str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
    command = [sys.executable, "-c", ENDED_ONCE_IT_ANSWERS]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]


# --- loading the model again -------------------------------------------------------------------------------


@contextmanager
def started(model: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server's process and its address."""
    command = [sys.executable, "-m", "vitreous", "serve", str(model), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def replace_model(old: Path, model: vt.ViT) -> None:
    """Another model where the old one was, in one step."""
    save(model, old.with_name("next"))
    os.rename(old, old.with_name(f"before-{time.monotonic_ns()}"))
    os.rename(old.with_name("next"), old)


@pytest.mark.slow
@pytest.mark.clock
def test_loading_again_loses_no_request(tmp_path: Path) -> None:
    """Two clients ask without a pause while the model is loaded again, and while it cannot be; each request
    has a connection of its own, and is never repeated."""
    model, place = make_vit(), tmp_path / "tiny"
    save(model, place)
    wrong: list[str] = []
    labels: list[str] = []
    ended = threading.Event()

    def client(url: str) -> None:
        while not ended.is_set():
            try:
                answer = httpx.post(url + "/v1/predict", timeout=300, **form(("x.png", image())))
                labels.append(answer.json()["predictions"][0]["label"])
            except Exception as error:
                wrong.append(repr(error))

    def until(line: str) -> None:
        assert process.stderr
        found = ""
        while line not in found:
            found = process.stderr.readline()
            assert found, f"the server ended before {line!r}"

    with started(place) as (process, url):
        clients = [threading.Thread(target=client, args=(url,), daemon=True) for _ in range(2)]
        for each in clients:
            each.start()
        while not labels:
            time.sleep(0.01)
        model.labels = [f"new {name}" for name in model.labels or ()]
        replace_model(place, model)
        process.send_signal(signal.SIGHUP)
        until("the model has been reloaded")
        count = len(labels)
        while len(labels) < count + 5:
            time.sleep(0.01)
        assert labels[-1].startswith("new")
        (place / "config.json").write_text("{}")  # a model that cannot be opened changes nothing
        process.send_signal(signal.SIGHUP)
        until("the current model is kept")
        replace_model(place, make_vit(classes=None))  # nor does one with other addresses
        process.send_signal(signal.SIGHUP)
        until("the new model has different endpoints")
        count = len(labels)
        while len(labels) < count + 5:
            time.sleep(0.01)
        ended.set()
        for each in clients:
            each.join()
        process.terminate()
        assert process.wait(200) == 0
    assert wrong == []
    assert {label.startswith("new") for label in labels} == {True, False}
