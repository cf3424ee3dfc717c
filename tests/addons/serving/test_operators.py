"""What operators expect: health, the Open Inference Protocol, logs, metrics, several models, encryption."""

from __future__ import annotations

import base64
import json
import logging
import re
import ssl
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from vitreous.addons.serving.endpoints import Limits
from vitreous.addons.serving.images import Classifier, ImageSegmenter
from vitreous.addons.serving.writing import ImageReader, TextTranslator

from vitreous.addons.serving.app import Hosted, build_app
from vitreous.checkpoints import save
from vitreous.cli import run

from .conftest import ABOUT, THREAD, app_of, error_of, form, get, image, make_vit, post, talk


def head(app: Any, path: str) -> httpx.Response:
    return talk(app, lambda client: client.head(path))


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/metrics", "/v1/model", "/docs", "/v2/health/ready"]
)
def test_head_is_get_without_a_body(classifier: Classifier, path: str) -> None:
    app = app_of(classifier)
    found = get(app, path)
    assert found.status_code == 200
    if not path.startswith("/v2"):
        assert head(app, path).status_code == 200


def test_a_full_server_is_not_ready(classifier: Classifier) -> None:
    app = app_of(classifier, limits=Limits(queue=1))

    async def ask(client: httpx.AsyncClient) -> list[int]:
        codes = [(await client.get("/readyz")).status_code]
        with app.state.server.room.admit(1):
            codes += [
                (await client.get(path)).status_code for path in ("/readyz", "/v2/health/ready", "/healthz")
            ]
        return codes

    assert talk(app, ask) == [200, 503, 503, 200]


def test_embed_gives_features(classifier: Classifier) -> None:
    told = post(app_of(classifier), "/v1/embed", **form(("x.png", image()))).json()
    assert len(told["features"][0]["features"]) == classifier.model.config.width


# --- Open Inference Protocol -------------------------------------------------------------------------------


def base64_of(*files: bytes) -> list[str]:
    return [base64.b64encode(each).decode() for each in files]


def infer(app: Any, inputs: dict[str, Any], **more: Any) -> httpx.Response:
    given = {"name": "images", "datatype": "BYTES", **inputs}
    return post(app, "/v2/models/tiny/infer", json={"inputs": [given], **more})


def test_the_protocol_describes_server_and_model(classifier: Classifier) -> None:
    app = app_of(classifier)
    assert get(app, "/v2").json()["name"] == "vitreous"
    assert get(app, "/v2/health/live").json() == {"live": True}
    assert get(app, "/v2/models/tiny/ready").json() == {"ready": True}
    told = get(app, "/v2/models/tiny").json()
    assert told["inputs"] == [{"name": "images", "datatype": "BYTES", "shape": [-1]}]
    types = {each["name"]: (each["datatype"], each["shape"]) for each in told["outputs"]}
    assert types == {
        "label": ("BYTES", [-1]),
        "probability": ("FP32", [-1]),
        "probabilities": ("FP32", [-1, -1]),
    }
    assert get(app, "/v2/models/other").status_code == 404


def test_tensors_are_the_answers_of_predict(classifier: Classifier) -> None:
    app, files = app_of(classifier), [image(1), image(2)]
    told = infer(app, {"shape": [2], "data": base64_of(*files)}, id="42").json()
    assert (told["id"], told["model_name"]) == ("42", "tiny")
    tensors = {each["name"]: each for each in told["outputs"]}
    assert tensors["probabilities"]["shape"] == [2, 3]
    expected = post(app, "/v1/predict?top=3", **form(("a", files[0]), ("b", files[1]))).json()["predictions"]
    for row, each in enumerate(expected):
        assert tensors["label"]["data"][row] == each["label"]
        found = tensors["probabilities"]["data"][3 * row : 3 * row + 3]
        by_label = {choice["label"]: choice["probability"] for choice in each["top"]}
        assert found == pytest.approx([by_label[name] for name in ("ant", "bee", "cat")], abs=1e-6)


def test_binary_elements_are_read(classifier: Classifier) -> None:
    """As tritonclient sends them."""
    app, files = app_of(classifier), [image(1), image(2)]
    data = b"".join(struct.pack("<I", len(each)) + each for each in files)
    parameters = {"binary_data_size": len(data)}
    given = {"name": "images", "datatype": "BYTES", "shape": [2, 1], "parameters": parameters}
    text = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    told = post(app, "/v2/models/tiny/infer", content=text + data, headers=headers)
    plain = infer(app, {"shape": [2], "data": base64_of(*files)})
    for ours, theirs in zip(told.json()["outputs"], plain.json()["outputs"], strict=True):
        close = pytest.approx(theirs["data"], abs=1e-6) if theirs["datatype"] == "FP32" else theirs["data"]
        assert ours == {**theirs, "data": close}
    endless = {"inference-header-content-length": "0" * 5000}
    assert post(app, "/v2/models/tiny/infer", content=text, headers=endless).status_code == 400
    torn = post(app, "/v2/models/tiny/infer", content=text + data[:-1], headers=headers)
    assert torn.status_code == 400
    assert "end within an element" in error_of(torn)


@pytest.mark.parametrize(
    ("inputs", "status", "words"),
    [
        ({"shape": [1], "data": ["aGk="]}, 422, "images[0]: no image of a known format"),
        ({"shape": [2], "data": ["aGk="]}, 400, "not of shape [2]"),
        ({"shape": [0], "data": []}, 400, "not of shape [0]"),
        ({"shape": [1], "data": [1]}, 400, "BYTES are strings"),
        ({"shape": [1], "data": ["%"]}, 400, "not base64"),
        ({"shape": [1], "data": ["aGk="], "name": "pixels"}, 400, "no input 'pixels'"),
        ({"shape": [1], "data": ["aGk="], "datatype": "FP32"}, 400, "datatype"),
        ({"shape": [65], "data": ["aGk="] * 65}, 413, "65 images"),
    ],
)
def test_what_the_protocol_refuses(
    classifier: Classifier, inputs: dict[str, Any], status: int, words: str
) -> None:
    answer = infer(app_of(classifier), inputs)
    assert answer.status_code == status
    assert words in error_of(answer)


def test_tensors_of_other_tasks(
    reader: ImageReader, translator: TextTranslator, segmenter: ImageSegmenter, regressor: Classifier
) -> None:
    for served, names in (
        (reader, {"text", "score"}),
        (segmenter, {"size", "shares", "mask"}),
        (regressor, {"value"}),
    ):
        app = app_of(served)
        told = infer(app, {"shape": [1], "data": base64_of(image())}).json()
        assert {each["name"] for each in told["outputs"]} == names
    body = {
        "inputs": [{"name": "texts", "datatype": "BYTES", "shape": [2], "data": ["<de> one", "<de> two"]}]
    }
    told = post(app_of(translator), "/v2/models/tiny/infer", json={**body, "parameters": {"beams": 1}}).json()
    assert [each["shape"] for each in told["outputs"]] == [[2], [2]]


# --- logs and metrics --------------------------------------------------------------------------------------


def test_each_request_is_a_line_of_json(classifier: Classifier, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="vitreous.access"):
        told = post(
            app_of(classifier), "/v1/predict", **form(("x.png", image())), headers={"x-request-id": "mine-7"}
        )
    assert told.headers["x-request-id"] == "mine-7"
    (record,) = (record for record in caplog.records if record.name == "vitreous.access")
    line = json.loads(record.getMessage())
    assert (line["id"], line["method"], line["path"], line["status"]) == (
        "mine-7",
        "POST",
        "/v1/predict",
        200,
    )
    assert line["received"] > 1000
    assert line["sent"] == len(told.content)
    other = get(app_of(classifier), "/healthz")
    assert re.fullmatch("[0-9a-f]{32}", other.headers["x-request-id"])
    forged = talk(app_of(classifier), lambda client: client.get("/healthz", headers={"x-request-id": "a b"}))
    assert re.fullmatch("[0-9a-f]{32}", forged.headers["x-request-id"])


def test_the_process_is_measured(classifier: Classifier) -> None:
    text = get(app_of(classifier), "/metrics").text
    assert "process_resident_memory_bytes" in text
    assert "process_open_fds" in text


# --- several models ----------------------------------------------------------------------------------------


def test_several_models_have_addresses_of_their_own(
    classifier: Classifier, translator: TextTranslator
) -> None:
    hosted = [
        Hosted("ants", classifier, ABOUT, "<p>one</p>"),
        Hosted("words", translator, ABOUT, "<p>two</p>"),
    ]
    app = build_app(hosted, model_thread=THREAD)
    assert post(app, "/models/ants/v1/predict", **form(("x.png", image()))).status_code == 200
    translated = post(app, "/models/words/v1/translate", json={"texts": ["<de> one"]})
    assert translated.status_code == 200, translated.text
    assert get(app, "/models/words/v1/model").json()["task"] == "translation"
    assert get(app, "/models/ants/").text == "<p>one</p>"
    assert 'href="models/ants/"' in get(app, "/").text
    assert get(app, "/v2/models/words").json()["inputs"][0]["name"] == "texts"
    refused = post(app, "/v1/predict", **form(("x.png", image())))
    assert refused.status_code == 404
    assert "POST /models/ants/v1/predict" in error_of(refused)
    paths = get(app, "/openapi.json").json()["paths"]
    assert {"/models/ants/v1/predict", "/models/words/v1/translate", "/v2/models/{name}/infer"} <= set(paths)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([], "say what to serve"),
        (["one", "two"], "say what to serve"),
        (["a=one", "two"], "say what to serve"),
        (["a=one", "a=two"], "a names two models"),
        (["a b=one"], "say what to serve"),
    ],
)
def test_names_of_several_models(models: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", *models]) == 2
    assert words in capsys.readouterr().err


def test_the_documentation_loads_nothing_from_elsewhere(classifier: Classifier) -> None:
    page = get(app_of(classifier), "/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "POST /v1/predict" in page.text
    assert "how many of the most probable labels" in page.text
    assert "<code>predictions[].top[].probability</code></th><td>number</td>" in page.text
    assert '<nav class="contents"' in page.text
    assert not re.search(r"(src|href)=\"https?:", page.text)


# --- a process ---------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path] | None:
    """A certificate of localhost and its key, where openssl can make one."""
    names = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(names[0]), "-keyout", str(names[1])]
    try:
        subprocess.run([*command, *extra], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return names


@pytest.mark.slow
def test_two_models_with_encryption_a_token_and_a_log(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save(make_vit(), tmp_path / "one")
    save(make_vit(), tmp_path / "two")
    (tmp_path / "token").write_text("0123456789abcdef\n")
    files = certificate(tmp_path)
    assert files, "openssl made no certificate"
    command = [sys.executable, "-m", "vitreous", "serve", f"a={tmp_path / 'one'}", f"b={tmp_path / 'two'}"]
    options = [
        "--port",
        "0",
        "--json",
        "--access-log",
        "--token-file",
        str(tmp_path / "token"),
        "--metrics-port",
        "0",
    ]
    options += ["--tls-cert", str(files[0]), "--tls-key", str(files[1])]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        url = json.loads(process.stdout.readline())["url"]
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(files[0]))
        with httpx.Client(base_url=url, verify=trusted, timeout=1000) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v2").status_code == 401
            good = {"authorization": "Bearer 0123456789abcdef"}
            assert client.get("/v2/models/b", headers=good).json()["name"] == "b"
            assert client.get("/metrics", headers=good).status_code == 404
        process.terminate()
        assert process.wait(timeout=1000) == 0
        lines = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    assert [line["status"] for line in lines] == [200, 401, 200, 404]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-cert", "c.pem"], "--tls-cert and --tls-key go together"),
        (["--token-file", "none"], "cannot read --token-file none"),
        (["--deadline", "0"], "--deadline 0 is too low"),
    ],
)
def test_options_of_the_server_that_do_not_do(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "ViT-Ti/16", "--port", "0", *options]) == 2
    assert words in capsys.readouterr().err
