"""The API of a classifier: the answers are those of the command line, whatever comes beside them."""

from __future__ import annotations

import asyncio
import io
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import vitreous as vt
from vitreous.addons.serving.limits import Guard, ServerLimits
from vitreous.addons.serving.models import Classifier, ServedModel
from vitreous.inspection.measures import flow, rollout, survey, to_grid
from vitreous.inspection.relevance import relevance
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.preprocessing import Preprocessing

from .conftest import (
    CPU,
    HOW,
    app_of,
    error_of,
    form,
    get,
    image,
    make_classifier,
    make_vit,
    post,
    talk,
    with_answer,
)

SMALL = ServerLimits(body=50_000, images=4)


def numbers(prediction: dict[str, Any]) -> dict[str, float]:
    return {each["label"]: each["probability"] for each in prediction["top"]}


# --- answers -----------------------------------------------------------------------------------------------


def test_predictions_are_those_of_vitreous_predict(classifier: Classifier, tmp_path: Path) -> None:
    kinds = [("a.png", "PNG"), ("b.jpg", "JPEG"), ("c.webp", "WEBP")]
    files = [(name, image(seed, kind=kind)) for seed, (name, kind) in enumerate(kinds)]
    files.insert(1, ("torn.png", files[0][1][:200]))
    for name, data in files:
        (tmp_path / name).write_bytes(data)
    paths = [tmp_path / name for name, _ in files]
    predictions = vt.predict(classifier.model, paths, top=2, device="cpu")

    told = post(app_of(classifier), "/v1/predict?top=2", **form(*files)).json()
    assert list(told) == ["predictions", "failed", "damaged"]
    assert told["failed"] == [{"path": "torn.png", "reason": predictions.failed[str(paths[1])]}]
    assert told["damaged"] == []
    readable = [each for each in predictions if each.path not in predictions.failed]
    for found, expected in zip(told["predictions"], readable, strict=True):
        wanted = expected.to_json()
        assert list(found) == list(wanted)
        assert (found["path"], found["label"]) == (Path(wanted["path"]).name, wanted["label"])
        assert numbers(found) == pytest.approx(numbers(wanted), abs=1e-6)


def test_every_answer_says_that_its_image_is_damaged(classifier: Classifier) -> None:
    app, cut = app_of(classifier), image(3, (64, 64), kind="JPEG")[:-800]
    missing = "the file ends too early, and the missing rows are gray"
    for path, key in (("predict", "predictions"), ("embed", "features"), ("attention", "attention")):
        files = [("whole.png", image()), ("cut.jpg", cut)]
        told = post(app, f"/v1/{path}", **form(*files)).json()
        assert told["damaged"] == [{"path": "cut.jpg", "reason": missing}]
        assert [each.get("damaged") for each in told[key]] == [None, missing]
    answer = post(app, "/v1/attention?format=png", **form(("cut.jpg", cut)))
    assert answer.headers["Vitreous-Damaged"] == missing


def test_a_form_and_a_bare_body_say_the_same(classifier: Classifier) -> None:
    app, data = app_of(classifier), image(1)
    answers = [
        post(app, "/v1/predict", **form(("x", data)), data={"top": "1"}),
        post(app, "/v1/predict?top=1", content=data, headers={"content-type": "image/png"}),
    ]
    assert [each.status_code for each in answers] == [200] * 2
    tops = [each.json()["predictions"][0]["top"] for each in answers]
    assert tops[0] == tops[1]
    assert len(tops[0]) == 1
    assert [each.json()["predictions"][0]["path"] for each in answers] == ["x", "image"]


def test_company_does_not_change_an_answer(classifier: Classifier) -> None:
    data = image(3)
    alone = post(app_of(classifier), "/v1/predict?top=3", **form(("it", data))).json()["predictions"][0]

    async def crowd(client: httpx.AsyncClient) -> list[httpx.Response]:
        requests = [
            client.post(f"/v1/predict?top={1 + seed % 3}", **form(("other", image(seed))))
            for seed in range(9)
        ]
        return await asyncio.gather(*requests, client.post("/v1/predict?top=3", **form(("it", data))))

    app = app_of(classifier, limits=ServerLimits(max_wait=0.2))
    *others, last = talk(app, crowd)
    assert [len(each.json()["predictions"][0]["top"]) for each in others] == [1 + s % 3 for s in range(9)]
    assert numbers(last.json()["predictions"][0]) == pytest.approx(numbers(alone), abs=1e-6)
    sizes = app.state.server.metrics.registry.get_sample_value(
        "vitreous_batch_size_sum", {"endpoint": "/v1/predict"}
    )
    batches = app.state.server.metrics.registry.get_sample_value(
        "vitreous_batch_size_count", {"endpoint": "/v1/predict"}
    )
    assert sizes == 10
    assert batches < 10  # they were joined


def test_features_are_what_the_head_sees(classifier: Classifier) -> None:
    told = post(app_of(classifier), "/v1/embed", **form(("x.png", image(2)))).json()
    with torch.no_grad():
        images = classifier.model.preprocessing([Image.open(io.BytesIO(image(2)))])
        expected = classifier.model.features(images)[0]
    # The loader resizes with torch, the preprocessing with Pillow: within 1 of 255.
    np.testing.assert_allclose(told["features"][0]["features"], expected.numpy(), atol=0.1)


def test_attention_is_what_the_reports_show(classifier: Classifier) -> None:
    app, request = app_of(classifier), form(("x.png", image(2)))
    images = classifier.model.preprocessing.normalize(classifier.prepare(image(2), "x")[0][None])
    seen = survey(classifier.model, images, patch=(0, 0))
    last, whole = to_grid(seen.reading[:, -1].mean(dim=1), classifier.model.config), seen.rollout
    told = post(app, "/v1/attention", **request).json()["attention"][0]
    assert (told["kind"], told["of"], told["grid"]) == ("rollout", "the class token", [4, 4])
    np.testing.assert_allclose(told["values"], whole[0].numpy(), rtol=1e-4)
    told = post(app, "/v1/attention?kind=attention", **request).json()["attention"][0]
    np.testing.assert_allclose(told["values"], last[0].numpy(), rtol=1e-4)
    one_head = post(app, "/v1/attention?kind=attention&layer=1&head=2", **request).json()["attention"][0]
    assert not np.allclose(one_head["values"], told["values"])
    told = post(app, "/v1/attention?kind=evidence&label=bee", **request).json()["attention"][0]
    assert told["of"] == "bee"
    expected = relevance(classifier.model, images.clone(), torch.tensor([1])).patches[0]
    np.testing.assert_allclose(told["values"], expected.numpy(), rtol=1e-3, atol=1e-9)


def test_attention_of_a_patch(classifier: Classifier) -> None:
    app, request = app_of(classifier), form(("x.png", image()))
    told = post(app, "/v1/attention?kind=attention&layer=1&head=2&patch=2x3", **request).json()["attention"][
        0
    ]
    assert told["of"] == "the patch in row 2, column 3"
    model = classifier.model
    pixels, _ = classifier.prepare(image(), "x.png")
    with vt.capture_attention(model) as attention, torch.no_grad():
        model(model.preprocessing.normalize(pixels[None]))
    token = model.config.num_prefix_tokens + 6
    expected = to_grid(attention.maps[0][0, 1, token], model.config)
    torch.testing.assert_close(torch.tensor(told["values"]), expected, rtol=1e-4, atol=1e-6)
    told = post(app, "/v1/attention?patch=2x3", **request).json()["attention"][0]
    through = rollout([flow(maps) for maps in attention.maps])[0, token]
    torch.testing.assert_close(
        torch.tensor(told["values"]), to_grid(through, model.config), rtol=1e-4, atol=1e-6
    )


def test_attention_as_an_image(classifier: Classifier) -> None:
    answer = post(app_of(classifier), "/v1/attention?format=png", **form(("x.png", image())))
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (512, 512)


def test_a_model_without_a_head_or_without_attention_offers_what_it_can() -> None:
    bare = ServedModel(make_vit(classes=None), CPU, **HOW)
    assert [each.name for each in bare.endpoints] == ["embed", "attention"]
    config = BiTConfig(layers=(1,), width_factor=1, image_size=(16, 16), num_classes=3)
    convolutional = BiT(config, preprocessing=Preprocessing(size=(16, 16))).eval()
    served = Classifier(convolutional, CPU, **HOW)
    assert [each.name for each in served.endpoints] == ["predict", "embed"]
    app = app_of(bare)
    refusal = post(app, "/v1/predict", **form(("x.png", image())))
    assert refusal.status_code == 404
    assert "POST /v1/embed" in error_of(refusal)
    sentence = error_of(post(app, "/v1/attention?kind=evidence", **form(("x.png", image()))))
    assert "no classes" in sentence


def test_what_is_told_of_the_model(classifier: Classifier) -> None:
    app = app_of(classifier)
    told = get(app, "/v1/model").json()
    assert told["name"] == "tiny"
    assert told["labels"] == ["ant", "bee", "cat"]
    assert told["preprocessing"]["size"] == [16, 16]
    assert told["endpoints"] == ["/v1/predict", "/v1/embed", "/v1/attention"]
    assert get(app, "/healthz").json() == {"status": "ok"}
    home = get(app, "/")
    assert home.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in home.headers["content-security-policy"]


def test_counters(classifier: Classifier) -> None:
    app = app_of(classifier)
    post(app, "/v1/predict", **form(("x.png", image())))

    async def ask(client: httpx.AsyncClient) -> str:
        await client.get("/no/such/thing")
        return (await client.get("/metrics")).text

    text = talk(app_of(classifier), ask)
    assert 'vitreous_requests_total{endpoint="other",status="404"} 1.0' in text
    assert "vitreous_queue 0.0" in text
    assert "process_resident_memory_bytes" in text
    count = app.state.server.metrics.registry.get_sample_value(
        "vitreous_request_seconds_count", {"endpoint": "/v1/predict"}
    )
    assert count == 1


def test_openapi_says_what_can_be_asked(classifier: Classifier) -> None:
    told = get(app_of(classifier), "/openapi.json").json()
    predict = told["paths"]["/v1/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {"multipart/form-data", "image/*"}
    assert [each["name"] for each in predict["parameters"]] == ["top"]
    assert predict["parameters"][0]["schema"]["minimum"] == 1
    schema = told["components"]["schemas"]["PredictAnswers"]
    assert set(schema["properties"]) == {"predictions", "failed", "damaged"}
    for status in ("400", "408", "413", "415", "422", "503"):
        assert "ErrorResponse" in str(predict["responses"][status])
    assert "image/png" in told["paths"]["/v1/attention"]["post"]["responses"]["200"]["content"]


# --- refusals ----------------------------------------------------------------------------------------------

BOMB = Image.new("1", (5000, 5000))


def bomb() -> bytes:
    buffer = io.BytesIO()
    BOMB.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("path", "request_", "status", "words"),
    [
        ("", form(("notes.txt", b"hello")), 422, "notes.txt: not an image of a known format"),
        ("", form(("a", b"hello"), ("b", b"")), 422, "1 more cannot be answered either"),
        ("", form(("torn.png", image()[:300])), 422, "torn.png: "),
        ("", form(("empty.png", b"")), 422, "the file is empty"),
        ("", form(("bomb.png", bomb())), 422, "5000x5000 pixels exceed"),
        ("?tpo=3", form(("x.png", image())), 422, "unknown parameter 'tpo': did you mean 'top'?"),
        ("?top=0", form(("x.png", image())), 422, "top: "),
        ("?top=many", form(("x.png", image())), 422, "top: "),
        ("", {"data": {"top": "1"}}, 415, "application/x-www-form-urlencoded cannot be read"),
        ("", {"content": b"hello", "headers": {"content-type": "text/plain"}}, 415, "text/plain"),
        ("", {"content": image()}, 415, "unknown"),
        ("", {"content": b"", "headers": {"content-type": "image/png"}}, 400, "brings no images"),
        ("", {"json": {"images": ["aGk="]}}, 415, "application/json cannot be read"),
        ("", form(*[(str(n), image()) for n in range(5)]), 413, "may bring 4 images"),
        ("", form(("big.bmp", bytes(60_000))), 413, "the body exceeds the limit"),
        (
            "",
            {"content": b"--x\r\nbroken", "headers": {"content-type": "multipart/form-data; boundary=x"}},
            400,
            "",
        ),
        ("", {"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary"),
    ],
)
def test_refusals_are_one_sentence(
    classifier: Classifier, path: str, request_: dict[str, Any], status: int, words: str
) -> None:
    answer = post(app_of(classifier, limits=SMALL), "/v1/predict" + path, **request_)
    assert answer.status_code == status, answer.text
    assert words in error_of(answer)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("kind=attention&layer=9", "there is no layer 9: the model has 2"),
        ("kind=attention&head=9", "there is no head 9: layer 2 has 2"),
        ("kind=attention&patch=5x1", "there is no patch 5x1: the grid has 4 rows and 4 columns"),
        ("kind=evidence&patch=1x1", "patch has no effect with kind=evidence"),
        ("layer=99", "layer has no effect with kind=rollout: use kind=attention"),
        ("kind=evidence&head=1", "head has no effect with kind=evidence"),
        ("kind=attention&label=bee", "label has no effect with kind=attention: use kind=evidence"),
        ("kind=attention&patch=0x1", "patch"),
        ("kind=evidence&label=bea", "did you mean 'bee'"),
        ("kind=heat", "kind: "),
    ],
)
def test_what_cannot_be_looked_at(classifier: Classifier, query: str, words: str) -> None:
    answer = post(app_of(classifier), f"/v1/attention?{query}", **form(("x.png", image())))
    assert answer.status_code == 422
    assert words in error_of(answer)


def test_png_is_of_one_image(classifier: Classifier) -> None:
    two = form(("a.png", image()), ("b.png", image()))
    assert "send one" in error_of(post(app_of(classifier), "/v1/attention?format=png", **two))


def test_wrong_address_and_method(classifier: Classifier) -> None:
    app = app_of(classifier)
    assert get(app, "/v1/translate").status_code == 404
    answer = get(app, "/v1/predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "GET /v1/predict does not exist; available are POST /v1/predict" in error_of(answer)


def test_a_body_that_does_not_say_its_length_is_limited_too(classifier: Classifier) -> None:
    async def endless(client: httpx.AsyncClient) -> httpx.Response:
        async def chunks() -> Any:
            for _ in range(1000):
                yield bytes(1000)

        return await client.post("/v1/predict", content=chunks(), headers={"content-type": "image/png"})

    answer = talk(app_of(classifier, limits=SMALL), endless)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("image/png", b""),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="a"; filename="a.png"\r\n\r\n',
        ),
    ],
    ids=["image", "form"],
)
def test_a_body_that_drips_in_is_given_up(classifier: Classifier, kind: str, start: bytes) -> None:
    async def dripping(client: httpx.AsyncClient) -> httpx.Response:
        async def chunks() -> Any:
            yield start
            for byte in image()[:200]:
                yield bytes([byte])
                await asyncio.sleep(0.01)

        return await client.post("/v1/predict", content=chunks(), headers={"content-type": kind})

    answer = talk(app_of(classifier, limits=SMALL._replace(seconds=0.1)), dripping)
    assert answer.status_code == 408
    assert "did not arrive within 0.1 s" in error_of(answer)
    assert answer.headers["connection"] == "close"


def test_an_answer_may_take_longer_than_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    served, later, loops = make_classifier(), [0.0], list[asyncio.AbstractEventLoop]()
    answer = served.endpoints[0].answer

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def slow(questions: Any) -> Any:
        later[0] = 2000.0
        asyncio.run_coroutine_threadsafe(turns(), loops[0]).result()  # it sees how late it is
        return answer(questions)

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        loops.append(loop := asyncio.get_running_loop())
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + later[0])  # as if it had taken long
        return await client.post("/v1/predict", **form(("x.png", image())))

    app = app_of(with_answer(served, slow), limits=ServerLimits(seconds=1000, stalled=1000, deadline=10_000))
    assert talk(app, ask).status_code == 200
    assert later[0]


def test_a_full_server_says_when_to_come_again() -> None:
    gate, served = threading.Event(), make_classifier()
    answer = served.endpoints[0].answer

    def slow(questions: Any) -> Any:
        gate.wait(60)
        return answer(questions)

    app = app_of(with_answer(served, slow), limits=ServerLimits(queue=2, images=2))

    async def crowd(client: httpx.AsyncClient) -> list[httpx.Response]:
        request = form(("a.png", image(1)), ("b.png", image(2)))
        first = asyncio.create_task(client.post("/v1/predict", **request))
        while app.state.server.inside < 2 and not first.done():
            await asyncio.sleep(0.01)
        refused = await client.post("/v1/predict", **form(("c.png", image())))
        gate.set()
        answered = await first
        return [answered, refused, await client.post("/v1/predict", **form(("c.png", image())))]

    answered, refused, later = talk(app, crowd)
    assert (answered.status_code, refused.status_code, later.status_code) == (200, 503, 200)
    assert int(refused.headers["retry-after"]) >= 1
    assert "busy" in error_of(refused)


def test_a_queue_of_one_takes_one_image(classifier: Classifier) -> None:
    async def two(client: httpx.AsyncClient) -> list[httpx.Response]:
        both = await client.post("/v1/predict", **form(("a.png", image(1)), ("b.png", image(2))))
        return [both, await client.post("/v1/predict", **form(("a.png", image(1))))]

    refused, answered = talk(app_of(classifier, limits=ServerLimits(queue=1)), two)
    assert (refused.status_code, answered.status_code) == (413, 200)
    assert "1" in error_of(refused)


def test_what_a_stopping_server_cannot_finish_is_a_sentence() -> None:
    async def stopped() -> list[dict[str, Any]]:
        async def forever(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.Event().wait()

        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(dict(message))

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        guard = Guard(forever, limits=SMALL, hosts=None, token=None, observe=lambda *found: None)
        task = asyncio.create_task(
            guard({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)
        )
        await asyncio.sleep(0.01)
        task.cancel()
        await task
        return sent

    start, body = asyncio.run(stopped())
    assert start["status"] == 503
    assert b"the server stopped" in body["body"]


def test_an_unforeseen_failure_is_a_sentence_and_a_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken(questions: Any) -> Any:
        raise RuntimeError("a secret of the house")

    served = with_answer(make_classifier(), broken)
    answer = post(app_of(served), "/v1/predict", **form(("x.png", image())))
    assert answer.status_code == 500
    assert "secret" not in error_of(answer)
    assert "a secret of the house" in caplog.text


BODIES = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda cut, tail: image()[:cut] + tail, st.integers(0, 2000), st.binary(max_size=40)),
)
TYPES = st.sampled_from(
    [
        "image/png",
        "application/json",
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "",
        "a/b;;c=é",
    ]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bodies=st.lists(
        st.tuples(BODIES, TYPES, st.sampled_from(["predict", "attention", "embed"])),
        min_size=5,
        max_size=5,
    )
)
def test_hostile_bodies_never_break_the_server(
    classifier: Classifier, bodies: list[tuple[bytes, str, str]]
) -> None:
    async def all_of_them(client: httpx.AsyncClient) -> list[httpx.Response]:
        requests = [
            client.post(f"/v1/{name}", content=body, headers={"content-type": kind.encode("latin-1")})
            for body, kind, name in bodies
        ]
        return await asyncio.gather(*requests)

    for answer in talk(app_of(classifier, limits=SMALL), all_of_them):
        if answer.status_code != 200:  # an image whose end alone is torn away may be whole enough
            assert 400 <= answer.status_code < 500, answer.text
            error_of(answer)


def test_a_model_whose_answer_is_not_finite_gives_an_error_and_no_class() -> None:
    served = make_classifier()
    served.model.head.weight.data[0, 0] = float("nan")
    request = form(("x.png", image()))
    for path in ("predict", "attention?kind=evidence"):
        answer = post(app_of(served), f"/v1/{path}", **request)
        assert answer.status_code == 422, path
        assert re.search("NaN or infinite|not a finite number", error_of(answer)), path
    served.model.norm.weight.data[0] = float("nan")
    assert post(app_of(served), "/v1/embed", **request).status_code == 422
    with pytest.raises(vt.InputError, match=r"NaN or infinite|answer is not a finite"):
        served.warm_up()


def test_an_image_whose_pixels_are_not_numbers_gets_no_answer() -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(file, "TIFF")
    answer = post(app_of(make_classifier()), "/v1/predict", **form(("x.tif", file.getvalue())))
    assert answer.status_code in (400, 422)
    assert "not all numbers" in error_of(answer)
