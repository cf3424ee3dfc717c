"""What MODEL may be, and what is known of it before the first question."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from vitreous.addons.serving.endpoints import Question, parse
from vitreous.addons.serving.images import Classifier, ImageSegmenter
from vitreous.addons.serving.writing import ImageReader, TextTranslator
from vitreous.tasks.serving import examples_of, license, open_served

from vitreous.checkpoints import save
from vitreous.checkpoints.native import save_native
from vitreous.errors import InputError
from vitreous.tasks import task_named

from .conftest import CPU, image, make_vit


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save(make_vit(), tmp_path / "tiny")
    return tmp_path / "tiny"


def test_each_kind_is_found_by_its_content(
    tmp_path: Path, reader: ImageReader, translator: TextTranslator, segmenter: ImageSegmenter
) -> None:
    save_native(reader.model, tmp_path / "a", tokenizer=reader.reader.tokenizer.to_json())
    save_native(translator.model, tmp_path / "b", tokenizer=translator.translator.tokenizer.to_json())
    save(segmenter.model, tmp_path / "c")
    for name, task in (("a", "captioning"), ("b", "translation"), ("c", "segmentation")):
        opened = open_served(str(tmp_path / name), device=CPU)
        assert opened.served.task == task
        assert opened.about["name"] == name
    with pytest.raises(InputError, match="its image_size cannot be changed"):
        open_served(str(tmp_path / "a"), device=CPU, image_size=(8, 8))


def test_a_name_is_served_but_said_to_be_fresh() -> None:
    opened = open_served("ViT-Ti/16", device=CPU, image_size=(32, 32))
    assert (opened.about["trained"], opened.about["name"]) == (False, "ViT-Ti/16")
    assert opened.served.facts()["preprocessing"]["size"] == [32, 32]


def test_bf16_is_near_fp32(checkpoint: Path) -> None:
    answers = []
    for precision in ("fp32", "bf16"):
        served = open_served(str(checkpoint), device=CPU, precision=precision).served
        endpoint = next(each for each in served.endpoints if each.name == "embed")
        question = Question("x", served.decode(image(), "x"), parse({}, endpoint.parameters))
        answers.append(torch.tensor(endpoint.answer([question])[0]["features"]))
    full, half = answers
    error = ((half - full).norm() / full.norm()).item()
    assert 0 < error < 0.05


@pytest.mark.parametrize(
    ("card", "named"),
    [
        ("---\nlicense: apache-2.0\ntags: [x]\n---\n# A model\n", "apache-2.0"),
        ("# A model\n\n| License | `MIT` |\n", "MIT"),
        ("# A model\n\nWhoever reads this needs no license to smile.\n", None),
    ],
)
def test_the_license_is_what_the_card_names(checkpoint: Path, card: str, named: str | None) -> None:
    (checkpoint / "README.md").write_text(card)
    assert license(checkpoint) == named


def test_a_configuration_that_cannot_be_read_costs_the_examples_alone(checkpoint: Path) -> None:
    (checkpoint / "config.toml").write_text("source = 3\nstrange = true\n[model]\nwidth = 8\n")
    assert examples_of(str(checkpoint), task_named("classification")).images == ()


def test_weights_in_bf16_are_cast_once_and_answer_alike(classifier: Classifier) -> None:
    served = Classifier(copy.deepcopy(classifier.model), CPU, most_pixels=10_000)
    images = served.model.preprocessing.normalize(served.decode(image(), "x")[None])
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        expected = served.model(images).float().softmax(dim=-1)
    served.lower()
    assert served.answering.head.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
    assert {each.dtype for each in served.model.parameters()} == {torch.float32}  # attention looks at these
    question = Question("x", served.decode(image(), "x"), parse({"top": 3}, served.endpoints[0].parameters))
    (found,) = served.endpoints[0].answer([question])
    by_label = {each["label"]: each["probability"] for each in found["top"]}  # type: ignore[index]
    assert [by_label[label] for label in ("ant", "bee", "cat")] == pytest.approx(expected[0].tolist())
    (tensors,) = served.tensors.answer([question])
    assert tensors["probabilities"] == pytest.approx(expected[0].tolist())  # type: ignore[index]
