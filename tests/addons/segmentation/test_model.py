"""The Segmenter: its decoder against the paper's equations, its shapes, its way to disk and back."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

import vitreous as vt
from vitreous.addons.segmentation.model import Segmenter, SegmenterConfig, argmax_at_size
from vitreous.checkpoints.resizing import with_head
from vitreous.errors import InputError
from vitreous.models.description import describe

SMALL = {
    "image_size": (16, 24), "channels": 1, "patch_size": 8, "num_classes": 5, "width": 12, "depth": 2,
    "heads": 2, "mlp_dim": 16,
}  # fmt: skip


def segmenter(**changes) -> Segmenter:
    torch.manual_seed(0)
    return Segmenter(SegmenterConfig(**SMALL | changes)).eval()


def layer(z, block):
    """A pre-norm layer of 2010.11929 (Eq. 2, 3, 5-8), head by head, from its matrices alone."""

    def norm(x, module):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True) + module.eps).sqrt() * module.weight + module.bias

    attention, width = block.attention, z.shape[-1]
    y = norm(z, block.attention_norm)
    size = width // attention.heads
    outs = []
    for head in range(attention.heads):
        q, k, v = (
            y @ attention.qkv.weight[part * width :][head * size : (head + 1) * size].T
            + attention.qkv.bias[part * width :][head * size : (head + 1) * size]
            for part in range(3)
        )
        outs.append(torch.softmax(q @ k.T / size**0.5, dim=-1) @ v)
    z = z + torch.cat(outs, dim=-1) @ attention.out.weight.T + attention.out.bias
    y = norm(z, block.mlp_norm)
    hidden = torch.nn.functional.gelu(y @ block.mlp.expand.weight.T + block.mlp.expand.bias)
    return z + hidden @ block.mlp.contract.weight.T + block.mlp.contract.bias, norm


def test_the_mask_transformer_computes_the_papers_equations():
    """2105.05633, section 3.2: [cls; z_L W] through M layers; masks are the scalar product of the patch and
    class embeddings of length one, mapped first and normalized over the classes behind, as the authors do."""
    model = segmenter(decoder_depth=2)
    head = model.head
    torch.nn.init.normal_(head.mask_norm.weight)
    torch.nn.init.normal_(head.mask_norm.bias)
    tokens = model.tokens(torch.randn(1, 1, 16, 24))[0]
    patches = tokens[1:]  # without the class token
    with torch.no_grad():
        z = torch.cat([head.classes, patches @ head.project.weight.T + head.project.bias])
        for block in head.blocks:
            z, norm = layer(z, block)
        z = norm(z, head.norm)
        classes, cells = z[:5] @ head.class_map.weight.T, z[5:] @ head.patch_map.weight.T
        masks = torch.zeros(6, 5)
        for patch in range(6):
            for number in range(5):
                masks[patch, number] = (
                    cells[patch] @ classes[number] / cells[patch].norm() / classes[number].norm()
                )
        wanted = norm(masks, head.mask_norm).T.reshape(5, 2, 3)
    found = head(patches[None])[0]
    assert found.shape == (5, 2, 3)
    assert torch.allclose(found, wanted, atol=2e-6)


def test_the_class_token_and_registers_are_not_decoded():
    model = segmenter(registers=2, decoder="linear")
    images = torch.randn(2, 1, 16, 24)
    patches = model.tokens(images)[:, 3:]
    wanted = model.head.linear(patches).transpose(1, 2).reshape(2, 5, 2, 3)
    assert torch.allclose(model.masks(images), wanted)


@pytest.mark.parametrize("decoder", ["linear", "mask-transformer"])
@pytest.mark.parametrize(("cells", "maps"), [(1, (2, 3)), (4, (8, 12)), (8, (16, 24))])
def test_logits_have_the_images_size(decoder, cells, maps):
    model = segmenter(decoder=decoder, cells=cells)
    images = torch.randn(2, 1, 16, 24)
    assert model.masks(images).shape == (2, 5, *maps)
    assert model(images).shape == (2, 5, 16, 24)


def test_cells_lie_where_they_belong():
    """A cell's logits come from its own patch, row by row."""
    model = segmenter(decoder="linear", cells=2)
    patches = torch.randn(1, 6, 12)
    maps = model.head(patches)[0]
    logits = model.head.linear(patches)[0].view(6, 2, 2, 5)
    assert torch.equal(maps[:, 2:4, 4:6], logits[5].permute(2, 0, 1))  # the last patch: row 1, column 2


def test_a_padded_image_keeps_its_size():
    assert segmenter(image_size=(13, 20), edge="pad")(torch.randn(1, 1, 13, 20)).shape == (1, 5, 13, 20)


@pytest.mark.parametrize("size", [(16, 24), (33, 47), (5, 9)])
def test_the_likeliest_class_is_that_of_all_maps_resized(size):
    logits = torch.randn(7, 16, 24)
    resized = torch.nn.functional.interpolate(logits[None], size=size, mode="bilinear")[0]
    assert torch.equal(argmax_at_size(logits, size).long(), resized.argmax(dim=0))


def test_it_goes_to_disk_and_back(tmp_path):
    model = segmenter(cells=2)
    model.labels = ["sky", "road", "car", "tree", "house"]
    vt.save(model, tmp_path / "model")
    again = vt.load(tmp_path / "model")
    images = torch.randn(2, 1, 16, 24)
    assert isinstance(again, Segmenter)
    assert again.labels == model.labels
    assert again.config == model.config
    assert torch.equal(again(images), model(images))
    larger = vt.load(tmp_path / "model", image_size=(32, 32))
    assert larger(torch.randn(1, 1, 32, 32)).shape == (1, 5, 32, 32)


def test_its_encoder_is_a_vit_of_the_same_weights(tmp_path):
    model = segmenter()
    images = torch.randn(2, 1, 16, 24)
    encoder = model.encoder
    assert type(encoder) is vt.ViT
    assert torch.equal(encoder.tokens(images), model.tokens(images))
    vt.save(encoder, tmp_path / "encoder")
    assert torch.equal(vt.load(tmp_path / "encoder").tokens(images), model.tokens(images))


def test_what_cannot_be_is_said(tmp_path):
    with pytest.raises(InputError, match="save its encoder"):
        vt.save(segmenter(), tmp_path / "model.npz", format="google")
    with pytest.raises(InputError, match="cannot be changed"):
        with_head(segmenter(), 3)
    for changes, said in (
        ({"cells": 9}, "cells is 9, but a patch has 8 pixels"),
        ({"num_classes": 300}, "255"),
        ({"pooling": "attention"}, "no token is pooled"),
        ({"representation_size": 8}, "no token is pooled"),
    ):
        with pytest.raises(ValidationError, match=said):
            SegmenterConfig(**SMALL | changes)


@pytest.mark.parametrize("decoder", ["linear", "mask-transformer"])
def test_every_weight_learns(decoder):
    """Nothing is left without a gradient: several processes would wait for it for ever."""
    model = segmenter(decoder=decoder, cells=2, registers=1)
    if decoder == "linear":
        torch.nn.init.normal_(model.head.linear.weight)
    model(torch.randn(2, 1, 16, 24)).square().sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize("decoder", ["linear", "mask-transformer"])
def test_the_journey_counts_every_parameter(decoder):
    model = segmenter(decoder=decoder)
    stages = describe(model.config).stages
    assert sum(stage.parameters for stage in stages) == sum(p.numel() for p in model.parameters())
    assert stages[-1].shape == (5, 16, 24)


def test_the_papers_names():
    """Seg-B-Mask/16: a ViT-B/16 (86 million weights at 512x512), two layers more, and three square maps."""
    from vitreous.models.names import config_of

    config = config_of("Seg-B-Mask/16", image_size=512)
    assert isinstance(config, SegmenterConfig)
    assert (config.decoder, config.decoder_depth, config.cells, config.num_classes) == (
        "mask-transformer",
        2,
        1,
        150,
    )
    assert config_of("Seg-Ti/16").decoder == "linear"
    with torch.device("meta"):
        model = vt.create("Seg-B-Mask/16", image_size=512)
    layer, square = 12 * 768**2 + 13 * 768, 768**2
    head = 2 * layer + (3 * square + 768) + 150 * 768 + 2 * 768 + 2 * 150
    assert sum(p.numel() for p in model.head.parameters()) == head
    with pytest.raises(InputError, match="unknown size"):
        config_of("Seg-Q/16")
