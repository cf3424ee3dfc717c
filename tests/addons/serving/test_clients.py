"""The server seen by programs that others have written: schemathesis, hadolint, Kubernetes' schemas; and the
model servers of the how-to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

import vitreous as vt
from vitreous.addons.serving.models import ServedModel
from vitreous.checkpoints.saving import save

from .conftest import app_of, at_an_address, image, make_vit

pytestmark = [pytest.mark.slow, pytest.mark.peers]
DEPLOY = Path(__file__).parents[3] / "examples" / "deploy"
SERVERS = DEPLOY.parent / "model_servers"


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_schemathesis_finds_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Requests by the description of the server, and others: none is answered by an error of the server or
    in a form that is not described."""
    pytest.importorskip("schemathesis")
    served: ServedModel = request.getfixturevalue(kind)
    with at_an_address(app_of(served)) as url:
        command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json"]
        # No schema can say that bytes are a JPEG, so that valid requests are refused for what they hold.
        options = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        options += ["--max-examples", "30", "--seed", "0", "--no-color"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert done.stdout == ""


def test_the_manifests_follow_the_schemas_of_kubernetes() -> None:
    """Strictly: an unknown field is an error."""
    kubernetes = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    job = yaml.safe_load((DEPLOY / "embed.yaml").read_text())
    assert [each["kind"] for each in (*documents, job)] == ["Deployment", "Service", "Job"]
    for document in (*documents, job):
        kubernetes.validate(document, kubernetes.latest_version(), strict=True)
    # The pods share the images as the processes of torchrun do: each knows its number and how many they are.
    own, count = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert (own["name"], count) == ("RANK", {"name": "WORLD_SIZE", "value": str(job["spec"]["completions"])})


def test_commands_of_the_manifests_are_understood(tmp_path: Path) -> None:
    """Each option of systemd's unit, of the container and of the pods is one of the command's help."""
    unit = (DEPLOY / "vitreous.service").read_text()
    container = json.loads(
        re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[0]
    )
    deployment = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    pod = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    job = yaml.safe_load((DEPLOY / "embed.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]
    for call in (
        re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0].split(),
        [*container, *pod],
        [*job["command"], *job["args"]],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "vitreous", call[1], "--help"], capture_output=True, text=True, check=True
        )
        assert [each for each in call if each.startswith("--") and each not in done.stdout] == []


def test_litserve_answers_as_predict_does(tmp_path: Path) -> None:
    pytest.importorskip("litserve")
    save(make_vit(), tmp_path / "model")
    (tmp_path / "x.png").write_bytes(image())
    vt.export(tmp_path / "model", tmp_path / "x.onnx", with_preprocessing=True, progress=False)
    (expected,) = vt.predict(tmp_path / "x.onnx", tmp_path / "x.png", progress=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(SERVERS / "litserve_server.py"), str(tmp_path / "x.onnx"), str(port)]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as process:
        try:
            until = time.monotonic() + 300
            while True:
                try:
                    files = {"content": ("x.png", image())}
                    answer = httpx.post(f"http://127.0.0.1:{port}/predict", files=files, timeout=100)
                    break
                except httpx.TransportError:
                    assert process.poll() is None
                    assert time.monotonic() < until
                    time.sleep(0.5)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
    assert answer.json()["label"] == expected.label
    assert answer.json()["probability"] == pytest.approx(expected.probability, abs=1e-6)


def test_triton_reads_the_configuration() -> None:
    protocol = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    text_format = pytest.importorskip("google.protobuf.text_format")
    text = (SERVERS / "triton" / "photos" / "config.pbtxt").read_text()
    found = text_format.Parse(text, protocol.ModelConfig())
    assert (found.name, found.backend, found.max_batch_size) == ("photos", "onnxruntime", 32)
