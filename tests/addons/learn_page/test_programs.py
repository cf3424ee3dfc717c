"""The programs of the page beside PyTorch, without a browser: gradients, AdamW, and shuffled patches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.addons.learn_page.programs import (
    TRAIN,
    WITHOUT_KERNEL,
    as_data,
    as_numbers,
    parameters,
    run_node,
    train_in_pytorch,
)
from tests.addons.learn_page.test_learn_page import CONVOLUTIONS, make_model

import vitreous as vt
from vitreous.addons.learn_page.page import DIGITS, in_8_bits, page_weights, practice_of, tensors_of
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.layers.embedding import from_patches, to_patches

KERNELS = {"in WebAssembly": "", "in JavaScript alone": WITHOUT_KERNEL}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"channels": 3, "patch_size": 4, "depth": 1, "head_dim": 6},
        {"stem": {"kind": "patch", "form": "linear"}, "image_size": (4, 6), "heads": 4},
    ],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_and_adamw_equal_pytorch(fields: dict[str, Any], kernel: str) -> None:
    """Of every parameter, within 1e-5; then three steps of AdamW; also where a browser has no SIMD."""
    torch.manual_seed(0)
    model = make_model(**fields)
    images = torch.randn(7, model.config.channels, *model.config.image_size)
    labels = [0, 1, 2, 3, 4, 0, 1]
    options = {"betas": [0.9, 0.98], "eps": 1e-3, "decay": 0.05}
    found = run_node(
        KERNELS[kernel] + TRAIN,
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
  const model = modelOf(data);
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


def test_digits_of_the_page_are_those_of_the_data_set() -> None:
    """What is trained on in the page is what PyTorch would read, pixel by pixel."""
    model = vt.load(DIGITS)
    practice = practice_of(model)
    digits = open_data("digits", DataConfig())
    assert practice
    assert digits.test is not None
    assert [len(practice[part]["labels"]) for part in ("train", "test")] == [1437, 360]
    factor, shift = (each.item() for each in model.preprocessing.factor_and_shift())
    program = """
      const practice = new Practice({ ...data, tensors: freshTensors(data.config), batch: 1 });
      const letters = (n) => data.test.pixels.slice(64 * n, 64 * n + 64);
      return [0, 7, 359].map((n) => Array.from(practice.image(letters(n)).data));
    """
    found = run_node(
        program, {"config": as_data(model)["config"], "factor": factor, "shift": shift, **practice}
    )
    expected = model.preprocessing([digits.test.image(n) for n in (0, 7, 359)])
    np.testing.assert_allclose(found, expected.flatten(1), atol=1e-6)
    assert practice["test"]["labels"] == "".join(map(str, digits.test.targets.strata()))


HYBRID = """
  const model = modelOf(data);
  const image = tensor(decoded(data.image), ...data.shape);
  const { patches, logits, maps } = model.run(image);
  return { patches: [...patches.data], logits: [...logits], maps: maps.map((map) => map.shape) };
"""


@pytest.mark.parametrize(
    ("side", "patch", "stem"),
    [
        (64, 16, {"blocks": 11}),
        ((48, 80), 16, {"blocks": 11}),
        ((45, 50), 16, {"blocks": 11}),  # an odd pixel at each stride
        (64, 32, {"blocks": 11}),  # a token of four cells
        (64, 32, {"blocks": 16, "maps": "several", "projection": False}),
    ],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_trained_convolutional_stem_equals_pytorch(
    side: Any, patch: int, stem: dict[str, Any], kernel: str
) -> None:
    """With the weights of EfficientNet-Lite0, whose BatchNorm is folded; padding is larger at the end."""
    trained = vt.load("vitreous:photos").stem.backbone.state_dict()
    width = {} if stem.get("projection", True) else {"width": vt.load("vitreous:photos").config.width}
    model = vt.create(
        "EfficientLite0+ViT-Ti/16",
        image_size=side,
        patch_size=patch,
        edge="pad",
        depth=1,
        heads=4,
        head_dim=8,
        mlp_dim=32,
        num_classes=3,
        stem={"kind": "efficientnet-lite", **stem},
        **({"width": 24} | width),
    ).eval()
    own = model.stem.backbone.state_dict()
    model.stem.backbone.load_state_dict({name: trained[name] for name in own})
    torch.nn.init.normal_(model.head.weight)
    torch.manual_seed(0)
    image = torch.rand(1, 3, *model.config.image_size) * 2 - 1
    data = {**as_data(model), "image": as_numbers(image), "shape": list(image.shape[1:])}
    found = run_node(KERNELS[kernel] + HYBRID, data)
    with torch.inference_mode():
        patches, logits = model.stem(model.whole_patches(image)), model(image)
    np.testing.assert_allclose(found["patches"], patches.flatten(), rtol=0, atol=1e-4)
    np.testing.assert_allclose(found["logits"], logits[0], rtol=0, atol=1e-4)
    assert [each[0] for each in found["maps"]][:4] == [16, 24, 40, 112]


EIGHT_BITS = """
  const { tensors, kernel } = modelOf(data);
  const found = Object.entries(tensors).map(([name, each]) => [name, [...each.data]]);
  return [Boolean(kernel), Object.fromEntries(found)];
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_in_8_bits_are_those_of_the_model(kernel: str) -> None:
    """To the last bit, also of rows whose numbers are not a multiple of four, and of those in 16 bits."""
    torch.manual_seed(2)
    model = make_model(width=18, heads=3, head_dim=5, mlp_dim=13, patch_size=4).half().float()
    in_8_bits(model)
    tensors = dict(tensors_of(model))
    data = {"config": as_data(model)["config"], "bits": 8, **page_weights(tensors, 8)}
    in_kernel, found = run_node(KERNELS[kernel] + EIGHT_BITS, data)
    assert in_kernel == (kernel == "in WebAssembly")
    assert {name for name, *_ in data["compact"]} >= {"blocks.0.mlp.expand.weight", "head.weight"}
    assert found.keys() == tensors.keys()
    for name, expected in tensors.items():
        np.testing.assert_array_equal(np.float32(found[name]), expected.detach().flatten(), err_msg=name)
