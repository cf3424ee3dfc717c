"""A segmenter behind HTTP: masks are those of `masks_of`, at the image's own size."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from vitreous.deployment.serving.images import ImageSegmenter
from vitreous.evaluation.segmentation import masks_of

from .conftest import app_of, error_of, form, get, image, post


def test_masks_are_those_of_the_predictor(segmenter: ImageSegmenter) -> None:
    files = [("a.png", image(0)), ("b.png", image(1, size=(20, 50)))]
    told = post(app_of(segmenter), "/v1/predict", **form(*files, ("torn.png", b"x"))).json()
    assert [each["path"] for each in told["failed"]] == ["torn.png"]
    for (name, data), found in zip(files, told["predictions"], strict=True):
        opened = Image.open(io.BytesIO(data))
        (expected,) = masks_of(segmenter.model, [opened])
        mask = Image.open(io.BytesIO(base64.b64decode(found["mask"].partition(",")[2])))
        assert mask.mode == "P"
        assert (found["path"], found["size"], mask.size) == (name, [opened.height, opened.width], opened.size)
        assert (np.asarray(mask) == expected).mean() > 0.999  # but for ties
        assert sum(found["shares"].values()) == pytest.approx(1)


def test_the_mask_alone(segmenter: ImageSegmenter) -> None:
    answer = post(app_of(segmenter), "/v1/predict?format=png", **form(("a.png", image())))
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (40, 30)


def test_what_is_told_of_the_model(segmenter: ImageSegmenter) -> None:
    told = get(app_of(segmenter), "/v1/model").json()
    assert (told["task"], told["labels"]) == ("segmentation", ["ground", "ant", "bee", "cat"])
    assert len(told["palette"]) == 4
    refusal = post(app_of(segmenter), "/v1/predict?top=1", **form(("a.png", image())))
    assert "unknown parameter 'top'" in error_of(refusal)
