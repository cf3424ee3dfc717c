"""Every model of transformers that sees images by a plain Vision Transformer, in every published form; and
models that are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

import transformers_forms

pytestmark = [pytest.mark.slow, pytest.mark.peers]


@pytest.fixture(autouse=True)
def _transformers(timm: Any) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize("model_type", transformers_forms.PLAIN)
def test_every_published_form_of_a_plain_vision_transformer_is_read(model_type: str) -> None:
    found = list(transformers_forms.outcomes(model_type))
    assert found
    assert [each for each in found if each.result != "equal"] == []


@pytest.mark.parametrize("model_type", transformers_forms.OTHERS)
def test_what_is_something_else_is_refused_by_its_name(model_type: str) -> None:
    found = list(transformers_forms.outcomes(model_type))
    assert found
    for each in found:
        assert (each.result, "of transformers" in each.detail) == ("refused", True), each


@pytest.mark.parametrize("model_type", transformers_forms.OTHERS)
def test_naming_the_format_does_not_read_something_else(model_type: str) -> None:
    found = list(transformers_forms.outcomes(model_type, format="huggingface"))
    assert {each.result for each in found} == {"refused"}, found


def test_two_towers_that_fit_are_asked_for() -> None:
    found = list(transformers_forms.outcomes("video_llava"))
    assert found
    assert all("pass key= with one of" in each.detail for each in found)
