"""One pass that gathers everything: the same as the parts by themselves, in batches, with bounded memory."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.inspection import measures
from vitreous.inspection.explorer import (
    IMAGE_BYTES,
    PAGE_CHARACTERS,
    coarse_grid,
    coarsen,
    fitting_factor,
    pack_rows,
    store_for_page,
    store_maps,
    tokens_at,
)
from vitreous.inspection.measures import (
    PreparedImages,
    attention_distance,
    flow,
    head_entropy,
    layer_features,
    readout_attention,
    readout_of,
    rollout,
    survey,
    to_grid,
)
from vitreous.inspection.relevance import relevances
from vitreous.models.names import config_of

from .conftest import images_for, noisy

TINY: dict[str, Any] = {
    "image_size": (24, 20),
    "patch_size": (8, 4),
    "width": 16,
    "depth": 3,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 4,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "class token": {},
    "mean, registers": {"pooling": "mean", "class_token": False, "registers": 2},
    "attention pooling": {"pooling": "attention", "class_token": False, "registers": 1},
    "rotary, post-norm": {"position": {"kind": "rotary-2d"}, "norm": "post"},
}


def model_of(**changes: Any) -> vt.ViT:
    return noisy(std=0.3, **{**TINY, **changes})


@pytest.mark.parametrize("kind", VARIANTS)
def test_a_survey_is_the_sum_of_its_parts(kind: str) -> None:
    model = model_of(**VARIANTS[kind])
    config, images = model.config, images_for(model, 3)
    seen = survey(model, images, patch=(1, 2))
    with vt.capture_attention(model) as attention, torch.no_grad():
        logits = model(images)
    maps = attention.maps
    weights, token = readout_of(model, images), config.num_prefix_tokens + 1 * 5 + 2
    for layer, each in enumerate(maps):
        torch.testing.assert_close(
            seen.distance[:, layer], attention_distance(each, grid=(3, 5), patch=(8, 4))
        )
        torch.testing.assert_close(seen.entropy[:, layer], head_entropy(each))
        torch.testing.assert_close(seen.reading[:, layer], readout_attention(each, weights))
        torch.testing.assert_close(seen.asked[:, layer], each[:, :, token].mean(1))
    whole = torch.einsum("bt,bts->bs", weights, rollout([flow(each) for each in maps]))
    torch.testing.assert_close(seen.rollout, to_grid(whole, config))
    assert seen.lens is not None
    torch.testing.assert_close(seen.lens.classes[:, 0], logits.argmax(-1))
    torch.testing.assert_close(seen.lens.probabilities[:, -1, 0], logits.softmax(-1).amax(-1))
    assert seen.lens.agrees[:, -1].all()
    torch.testing.assert_close(seen.patches, model.tokens(images)[:, config.num_prefix_tokens :].detach())


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    images = images_for(model, 5)
    together = survey(model, images, patch=(0, 0))
    monkeypatch.setattr(measures, "MAP_BYTES", 1)  # one image at a time
    done: list[tuple[int, int]] = []
    one_by_one = survey(
        model, images, patch=(0, 0), close=2, progress=lambda n, total: done.append((n, total))
    )
    assert done == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    torch.testing.assert_close(one_by_one.reading, together.reading[:2])
    torch.testing.assert_close(one_by_one.patches, together.patches[:2])
    assert len(one_by_one.rollout) == 5
    torch.testing.assert_close(one_by_one.rollout, together.rollout)
    torch.testing.assert_close(one_by_one.features, together.features)
    torch.testing.assert_close(layer_features(model, images), together.features)
    photos = [Image.new("RGB", (20, 30), (40 * number, 0, 90)) for number in range(5)]
    prepared = PreparedImages(model.preprocessing, photos)
    whole = model.preprocessing(photos)
    assert len(prepared) == 5
    assert torch.equal(prepared[1:4], whole[1:4])
    torch.testing.assert_close(layer_features(model, prepared), layer_features(model, whole))


def test_a_batch_of_a_large_model_is_small() -> None:
    """ViT-L/16 at 384: the maps of one layer and one image are 21 MB; of B/16 at 224, 1.9 MB."""
    assert measures.batch_size(config_of("ViT-L/16", image_size=384)) == 1
    assert measures.batch_size(config_of("ViT-B/16")) == 18
    assert measures.batch_size(config_of("ViT-H/14", image_size=1036)) == 1


def test_a_model_without_classes_has_no_lens() -> None:
    model = model_of(num_classes=None)
    assert survey(model, images_for(model, 1), patch=(0, 0)).lens is None


def test_relevance_of_one_class_for_all_images() -> None:
    model = model_of()
    evidence = relevances(model, images_for(model, 2), 3)
    assert evidence.patches.shape == (2, 3, 5)
    assert evidence.heads.shape == (2, 3, 2)


# --- maps that travel in a page ----------------------------------------------------------------------------


def unpack(packed: str, *shape: int) -> np.ndarray:
    """Return packed rows as the page's script reads them, to within 1/510 of the maximum of each."""
    raw, entries = gzip.decompress(base64.b64decode(packed)), int(np.prod(shape))
    shares = np.frombuffer(raw, np.uint8, count=entries).reshape(shape)
    largest = np.frombuffer(raw, "<f4", offset=entries).reshape(*shape[:-1], 1)
    return (shares / np.float32(255) * largest).astype(np.float32)


def test_packed_rows_come_back_to_within_half_a_step() -> None:
    rows = torch.rand(2, 3, 7, generator=torch.Generator().manual_seed(0)).softmax(-1)
    back = unpack(pack_rows(rows), 2, 3, 7)
    steps = rows.amax(-1, keepdim=True).numpy() / 255
    assert (np.abs(back - rows.numpy()) <= steps / 2 + 1e-7).all()
    assert unpack(pack_rows(torch.zeros(1, 4)), 1, 4).tolist() == [[0, 0, 0, 0]]


def test_coarse_maps_by_hand() -> None:
    """A 1 x 3 grid, blocks of two: patches 0 and 1 become one, 2 stays; a class token in front."""
    config = vt.ViTConfig(**{**TINY, "image_size": (8, 12)})
    maps = torch.tensor(
        [
            [0.4, 0.3, 0.2, 0.1],
            [0.1, 0.5, 0.2, 0.2],
            [0.3, 0.1, 0.2, 0.4],
            [0.0, 0.0, 1.0, 0.0],
        ]
    )
    expected = torch.tensor([[0.4, 0.5, 0.1], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(coarsen(maps, config, 2), expected)
    assert coarse_grid(config, 2) == (1, 2)


def test_coarse_maps_of_a_grid_that_blocks_do_not_divide_still_sum_to_one() -> None:
    config = vt.ViTConfig(**TINY, registers=1)
    maps = torch.rand(2, config.sequence_length, config.sequence_length).softmax(-1)
    coarse = coarsen(maps, config, 2)
    assert coarse.shape == (2, 2 + 2 * 3, 2 + 2 * 3)
    torch.testing.assert_close(coarse.sum(-1), torch.ones(2, 8))
    torch.testing.assert_close(coarsen(maps, config, 1), maps)


def test_stored_maps_are_those_of_the_model() -> None:
    model = model_of()
    image = images_for(model, 1)
    with vt.capture_attention(model) as attention, torch.no_grad():
        model(image)
    maps = torch.cat(attention.maps).numpy()
    back = unpack(store_maps(model, image, 1), 3, 2, 16, 16)
    np.testing.assert_allclose(back, maps, atol=1 / 510)


def test_large_models_are_stored_on_a_coarser_grid() -> None:
    assert fitting_factor(config_of("ViT-B/16")) == 1
    large = config_of("ViT-L/16", image_size=384)
    factor = fitting_factor(large)
    assert factor == 2
    assert large.depth * large.heads * tokens_at(large, factor) ** 2 <= IMAGE_BYTES


def test_a_page_holds_the_maps_of_the_first_image_at_least() -> None:
    model = model_of()
    images = images_for(model, 3)
    assert len(store_for_page(model, images, 1, PAGE_CHARACTERS)) == 3
    assert len(store_for_page(model, images, 1, characters=1)) == 1
    assert PAGE_CHARACTERS < 12e6  # the page stays below 15 MB with its figures
