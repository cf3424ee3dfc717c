"""Test-time augmentation: the mean over views of an image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitreous.errors import InputError
from vitreous.evaluation.classification import evaluate_classification
from vitreous.evaluation.outputs import AveragedViews, tta_views
from vitreous.tasks.answerer import may_mirror, open_answerer


def test_the_views_of_an_image():
    images = torch.rand(2, 1, 16, 24)
    plain, mirrored = tta_views(images, mirrored=False), tta_views(images, mirrored=True)
    assert [each.shape for each in mirrored] == 10 * [images.shape]
    assert len(plain) == 5
    torch.testing.assert_close(plain[0], images)
    for one, other in zip(plain, mirrored[5:], strict=True):
        torch.testing.assert_close(one.flip(-1), other)
    # The upper left corner of an image that was enlarged begins as the image does, and shows less of it.
    torch.testing.assert_close(plain[1][..., 0, 0], images[..., 0, 0])
    assert not torch.equal(plain[1], plain[4])


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_answers_are_averaged(images, make_model, task):
    model = make_model().eval()
    model.task = task
    batch = model.preprocessing([images.image(row) for row in range(6)])
    averaged = AveragedViews(model, mirrored=True).eval()
    meaning = {
        "classification": lambda logits: logits.softmax(dim=-1),
        "multilabel": torch.sigmoid,
        "regression": lambda numbers: numbers,
    }[task]
    with torch.no_grad():
        expected = torch.stack([meaning(model(each)) for each in tta_views(batch, mirrored=True)]).mean(dim=0)
        np.testing.assert_allclose(meaning(averaged(batch)), expected, atol=1e-6)


def test_outputs_that_only_their_task_can_read_have_no_mean(make_model):
    """Logarithms of counts were averaged as if they were logits of classes: every image showed 1."""
    model = make_model()
    model.task = "counting"
    with pytest.raises(InputError, match="a model for counting cannot be averaged over views: leave out"):
        AveragedViews(model, mirrored=False)


def test_a_model_is_evaluated_with_it(images, make_model):
    plain = evaluate_classification(make_model(), images)
    averaged = evaluate_classification(AveragedViews(make_model(), mirrored=False), images)
    assert averaged.count == plain.count
    assert not np.allclose(averaged.probabilities, plain.probabilities)


def test_only_models_that_learned_from_mirror_images_see_them(tmp_path):
    for name, flip in (("letters", 0.0), ("photos", 0.5)):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text(
            f'task = "classification"\n[augmentation]\nflip = {flip}\n'
        )
    assert may_mirror(tmp_path / "photos")
    assert may_mirror(str(tmp_path / "photos" / "model"))
    assert not may_mirror(tmp_path / "letters")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text('{"model_type": "vit"}')
    assert may_mirror(tmp_path / "foreign")


def test_a_model_in_memory(make_model):
    task, answerer = open_answerer(make_model(), tta=True)
    assert task.name == "classification"
    assert isinstance(answerer, AveragedViews)
    assert not answerer.mirrored
