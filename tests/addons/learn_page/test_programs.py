"""The programs of the page beside PyTorch, without a browser: gradients, AdamW, and shuffled patches."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.addons.learn_page.programs import as_data, as_numbers, run_node
from tests.addons.learn_page.test_learn_page import CONVOLUTIONS, make_model

from vitreous.layers.embedding import from_patches, to_patches
from vitreous.models.vit import ViT

TRAIN = """
  const tensors = unpacked(data.index, decoded(data.weights));
  const trainer = new Trainer(data.config, tensors, data.labels.length);
  const images = data.images.map((each) => tensor(decoded(each), ...data.shape));
  const losses = [];
  let gradients = null;
  for (let step = 0; step < data.steps; step++) {
    losses.push(trainer.forward(images, data.labels).loss);
    trainer.backward();
    gradients ??= Object.fromEntries(Object.entries(trainer.gradients).map(([k, v]) => [k, Array.from(v)]));
    trainer.update(data.rate, data.options);
  }
  const after = Object.fromEntries(Object.entries(tensors).map(([k, v]) => [k, Array.from(v.data)]));
  return { losses, gradients, after };
"""


def parameters(model: ViT) -> dict[str, torch.nn.Parameter]:
    """The parameters by the names that they have in the page."""
    return {name.replace("position.table", "position.rows"): each for name, each in model.named_parameters()}


def train_in_pytorch(
    model: ViT, images: torch.Tensor, labels: list[int], steps: int, rate: float, options: dict[str, Any]
) -> tuple[list[float], dict[str, torch.Tensor], ViT]:
    """The losses of each step, the gradients of the first, and the model after the last; in float64."""
    model = copy.deepcopy(model).double().train()
    named = parameters(model)
    decayed = [each for name, each in named.items() if each.ndim > 1 and name.endswith("weight")]
    others = [each for each in named.values() if all(each is not one for one in decayed)]
    groups = [
        {"params": decayed, "weight_decay": options["decay"]},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=tuple(options["betas"]), eps=options["eps"])
    losses, first = [], {}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.double()), torch.tensor(labels))
        loss.backward()
        losses.append(loss.item())
        first = first or {name: each.grad.clone() for name, each in named.items() if each.grad is not None}
        optimizer.step()
    return losses, first, model


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"channels": 3, "patch_size": 4, "depth": 1, "head_dim": 6},
        {"stem": {"kind": "patch", "form": "linear"}, "image_size": (4, 6), "heads": 4},
    ],
)
def test_gradients_and_adamw_equal_pytorch(fields: dict[str, Any]) -> None:
    """Of every parameter, within 1e-5; then three steps of AdamW."""
    torch.manual_seed(0)
    model = make_model(**fields)
    images = torch.randn(7, model.config.channels, *model.config.image_size)
    labels = [0, 1, 2, 3, 4, 0, 1]
    options = {"betas": [0.9, 0.98], "eps": 1e-3, "decay": 0.05}
    found = run_node(
        TRAIN,
        {
            **as_data(model),
            "images": [as_numbers(each) for each in images],
            "shape": list(images.shape[1:]),
            "labels": labels,
            "steps": 3,
            "rate": 1e-2,
            "options": options,
        },
    )
    losses, gradients, after = train_in_pytorch(model, images, labels, 3, 1e-2, options)
    assert set(found["gradients"]) == set(gradients)
    assert sum(each.numel() for each in gradients.values()) == sum(map(len, found["gradients"].values()))
    for name, expected in gradients.items():
        assert name.endswith("qkv.bias") or expected.abs().max() > 1e-4, name
        np.testing.assert_allclose(
            found["gradients"][name], expected.flatten(), rtol=0, atol=1e-5, err_msg=name
        )
    np.testing.assert_allclose(found["losses"], losses, atol=1e-5)
    for name, each in parameters(after).items():
        np.testing.assert_allclose(
            found["after"][name], each.detach().flatten(), rtol=0, atol=1e-5, err_msg=name
        )


def test_only_the_models_that_it_can_train_are_trained() -> None:
    configs = [
        as_data(make_model(**fields))["config"]
        for fields in (
            {},
            {"stem": CONVOLUTIONS},
            {"registers": 1},
            {"mlp": "relu"},
            {"pooling": "mean"},
            {"layer_scale": 0.1},
            {"position": {"kind": "sincos-2d"}},
        )
    ]
    reasons = run_node("return data.map(untrainable);", configs)
    assert [each is None for each in reasons] == [True, *[False] * 6]


SHUFFLED = """
  const model = new ViT(data.config, unpacked(data.index, decoded(data.weights)));
  const image = tensor(decoded(data.image), ...data.shape);
  const run = (changes) => Array.from(model.run(image, changes).logits);
  const { order } = data;
  return [run({ order }), run({ order, withoutPositions: true }), run({ withoutPositions: true })];
"""


@pytest.mark.parametrize("stem", [{"kind": "patch"}, CONVOLUTIONS])
def test_shuffled_patches_are_what_pytorch_makes_of_the_shuffled_image(stem: dict[str, Any]) -> None:
    """And where the model cuts the image into patches, their order is all the same without positions; where
    convolutions read across them it is not."""
    torch.manual_seed(1)
    model = make_model(stem=stem)
    image, order = torch.randn(1, 1, 8, 8), torch.randperm(16)
    shuffled = from_patches(to_patches(image, (2, 2))[:, order], (4, 4), (2, 2))
    data = {**as_data(model), "image": as_numbers(image), "shape": [1, 8, 8], "order": order.tolist()}
    page = run_node(SHUFFLED, data)
    with torch.inference_mode():
        with_positions = model(shuffled)[0]
        model.position.table.zero_()
        without, plain = model(shuffled)[0], model(image)[0]
    for found, expected in zip(page, (with_positions, without, plain), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    change = (without - plain).abs().max()
    assert change < 1e-5 if stem["kind"] == "patch" else change > 0.1
    assert (with_positions - plain).abs().max() > 0.1
