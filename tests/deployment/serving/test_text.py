"""Readers and translators behind HTTP: the answers are those of the command line."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from vitreous.deployment.serving.endpoints import Question
from vitreous.deployment.serving.writing import ImageReader, TextTranslator, Translating

from .conftest import app_of, error_of, form, get, image, post

JSON = {"content-type": "application/json"}
TEXTS = ["<de> twenty-one", "<ko> eins", "<en> dreihundertzwanzig", "<de> two"]


def test_a_reader_reads_as_vitreous_predict_does(reader: ImageReader) -> None:
    files = [(f"{seed}.png", image(seed, size=(80, 12))) for seed in range(3)]
    expected = reader.reader.read([Image.open(io.BytesIO(data)) for _, data in files])
    told = post(app_of(reader), "/v1/predict", **form(*files, ("torn.png", files[0][1][:60]))).json()
    assert [each["path"] for each in told["failed"]] == ["torn.png"]
    for (name, _), found, text in zip(files, told["predictions"], expected, strict=True):
        assert (found["path"], found["text"]) == (name, text.text)
        assert found["score"] == pytest.approx(text.score, abs=1e-4)


def test_where_each_token_was_read(reader: ImageReader) -> None:
    app, request = app_of(reader), form(("x.png", image(size=(80, 12))))
    told = post(app, "/v1/attention?seen=true", **request).json()["attention"][0]
    rows, columns = told["grid"]
    values = np.array(told["values"])
    assert values.shape == (len(told["tokens"]), rows, columns)
    assert (values.sum(axis=(1, 2)) <= 1.0001).all()  # the rest goes to the class token
    assert told["seen"].startswith("data:image/png")
    drawn = post(app, "/v1/attention?format=png&token=1", **request)
    assert drawn.headers["content-type"] == "image/png"
    assert "were written" in error_of(post(app, "/v1/attention?format=png&token=99", **request))
    assert "layer 3 is not there: the model has 2" in error_of(post(app, "/v1/attention?layer=3", **request))


def test_a_translator_translates_as_vitreous_translate_does(translator: TextTranslator) -> None:
    expected = [translator.translator.translate([text])[0] for text in TEXTS]
    told = post(app_of(translator), "/v1/translate", json={"texts": TEXTS}).json()
    assert told["failed"] == []
    for source, found, wanted in zip(TEXTS, told["translations"], expected, strict=True):
        assert (found["source"], found["text"]) == (source, wanted.text)
        assert found["score"] == pytest.approx(wanted.score, abs=1e-4)
    greedy = post(app_of(translator), "/v1/translate", json={"texts": TEXTS[:1], "beams": 1}).json()
    assert greedy["translations"][0]["score"] is None


def test_a_strangers_long_text_changes_nothing(translator: TextTranslator) -> None:
    """How far a translation may grow depends on the longest source of its batch, so batches have one."""
    texts = ["<de> two", "<de> two hundred thousand three hundred twenty-one"]
    rows = [Question(text, translator.decode(text.encode(), text), Translating()) for text in texts]
    together, alone = translator.translate(rows)[0], translator.translate(rows[:1])[0]
    assert together["text"] == alone["text"]
    assert together["score"] == pytest.approx(alone["score"], abs=1e-4)


def test_which_token_looked_at_which(translator: TextTranslator) -> None:
    told = post(app_of(translator), "/v1/attention", json={"texts": TEXTS[:1]}).json()["attention"][0]
    assert "".join(told["read"]) == "▁<de>▁twenty-one⟨end⟩"
    values = np.array(told["values"])
    assert values.shape == (len(told["tokens"]), len(told["read"]))
    np.testing.assert_allclose(values.sum(axis=1), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        ({"json": {"texts": []}}, 400, "texts"),
        ({"json": {"texts": ["x"] * 99}}, 413, "99 texts are over the 64 allowed"),
        ({"json": {"texts": ["  "]}}, 422, "there is no text to translate"),
        ({"json": {"texts": ["eins " * 50]}}, 422, "translate it sentence by sentence"),
        ({"json": {"texts": ["x" * 30_000]}}, 413, "30000 characters"),
        ({"json": {"texts": ["x"], "beam": 2}}, 422, "did you mean 'beams'"),
        ({"json": {"texts": ["x"], "beams": 99}}, 422, "beams: "),
        ({"content": rb'{"texts": ["\ud800"]}', "headers": JSON}, 400, "is not JSON"),  # half a character
        ({"content": rb'{"texts": ["x"], "\ud800": 1}', "headers": JSON}, 400, "is not JSON"),
        ({"content": b"hello", "headers": {"content-type": "text/plain"}}, 415, "application/json"),
    ],
)
def test_refusals(translator: TextTranslator, request_: dict[str, object], status: int, words: str) -> None:
    answer = post(app_of(translator), "/v1/translate", **request_)
    assert answer.status_code == status, answer.text
    assert words in error_of(answer)


def test_an_empty_line_does_not_keep_the_others_waiting(translator: TextTranslator) -> None:
    told = post(app_of(translator), "/v1/translate", json={"texts": ["", "<de> two"]}).json()
    assert [each["source"] for each in told["translations"]] == ["<de> two"]
    assert "empty line" in told["failed"][0]["reason"]


def test_each_kind_says_what_it_offers(reader: ImageReader, translator: TextTranslator) -> None:
    assert get(app_of(reader), "/v1/model").json()["endpoints"] == ["/v1/predict", "/v1/attention"]
    told = get(app_of(translator), "/v1/model").json()
    assert (told["task"], told["endpoints"]) == ("translation", ["/v1/translate", "/v1/attention"])
    paths = get(app_of(translator), "/openapi.json").json()["paths"]
    assert set(paths["/v1/translate"]["post"]["requestBody"]["content"]) == {"application/json"}
    answer = post(app_of(translator), "/v1/predict", json={"texts": ["x"]})
    assert "POST /v1/translate" in error_of(answer)
