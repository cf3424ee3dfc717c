"""The server seen by programs that others have written: Triton's client, schemathesis, hadolint."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from vitreous.addons.serving.endpoints import Limits
from vitreous.addons.serving.images import Classifier, ImageSegmenter
from vitreous.addons.serving.writing import TextTranslator

from .conftest import app_of, image
from .test_strangers import at_an_address

pytestmark = pytest.mark.slow
DEPLOY = Path(__file__).parents[3] / "examples" / "deploy"


@pytest.fixture(scope="module")
def address(classifier: Classifier) -> Iterator[str]:
    with at_an_address(app_of(classifier), Limits()) as url:
        yield url


def test_tritons_client_is_answered(address: str) -> None:
    http = pytest.importorskip("tritonclient.http")
    client = http.InferenceServerClient(address.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.get_server_metadata()["name"] == "vitreous"
    about = client.get_model_metadata("tiny")
    assert [each["name"] for each in about["outputs"]] == ["label", "probability", "probabilities"]
    files = [image(0), image(1, (30, 50), "JPEG")]
    found = {}
    for binary in (True, False):
        given = http.InferInput("images", [2], "BYTES")
        if binary:
            given.set_data_from_numpy(np.array(files, dtype=object), binary_data=True)
        else:
            import base64

            given.set_data_from_numpy(
                np.array([base64.b64encode(each) for each in files], dtype=object), binary_data=False
            )
        wanted = [http.InferRequestedOutput(each["name"], binary_data=binary) for each in about["outputs"]]
        answer = client.infer("tiny", [given], outputs=wanted, request_id="7")
        assert answer.get_response()["id"] == "7"
        found[binary] = answer.as_numpy("probabilities")
        assert answer.as_numpy("label").tolist() in ([b"ant", b"bee"], answer.as_numpy("label").tolist())
        np.testing.assert_allclose(found[binary].max(axis=1), answer.as_numpy("probability"), rtol=1e-6)
    assert found[True].shape == (2, 3)
    np.testing.assert_array_equal(found[True], found[False])
    with pytest.raises(Exception, match="there is no model"):
        client.infer("huge", [given])


@pytest.mark.parametrize("kind", ["classifier", "segmenter", "translator"])
def test_schemathesis_finds_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Requests by the description of the server, and others: none is answered by an error of the server or
    in a form that is not described."""
    pytest.importorskip("schemathesis")
    served: Classifier | ImageSegmenter | TextTranslator = request.getfixturevalue(kind)
    with at_an_address(app_of(served), Limits()) as url:
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
    """Strictly: an unknown field is an error. Of KubeRay's RayJob, which it does not know, the pods."""
    kubernetes = pytest.importorskip("kubernetes_validate")
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [each["kind"] for each in documents] == ["Deployment", "Service"]
    job = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **each["template"]} for each in groups
    ]
    assert len(pods) == 2
    for document in [*documents, *pods]:
        kubernetes.validate(document, kubernetes.latest_version(), strict=True)
    assert all(isinstance(each, str) for group in groups for each in group["rayStartParams"].values())


def test_commands_of_the_manifests_are_understood(tmp_path: Path) -> None:
    """Each option of systemd's unit, of the container and of the pods is one of the command's help."""
    unit = (DEPLOY / "vitreous.service").read_text()
    container = json.loads(
        re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[0]
    )
    deployment = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    pod = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    job = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())["spec"]["entrypoint"]
    for call in (
        re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0].split(),
        [*container, *pod],
        job.split(),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "vitreous", call[1], "--help"], capture_output=True, text=True, check=True
        )
        assert [each for each in call if each.startswith("--") and each not in done.stdout] == []
