"""Parity with Hugging Face's ViTMAEForPreTraining: encoder, decoder, mask, loss."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt
from vitreous.layers.embedding import sincos_of_mae, to_patches
from vitreous.tasks import task_named

TOLERANCE = 2e-5


@pytest.mark.parametrize("name", ["hf_mae", "hf_mae_normpix"])
@torch.no_grad()
def test_every_stage_equals_the_peer(golden, name):
    folder, _, expected = case = golden(name)
    images = case.array("input")
    mae = vt.MAE.load(folder)
    assert not mae.training

    masking = mae.mask(case.array("noise"))
    assert torch.equal(masking.order.argsort(dim=1), expected["ids_restore"])
    removed = torch.zeros(expected["mask"].shape).scatter(1, masking.removed, 1.0)
    assert torch.equal(removed, expected["mask"])
    assert torch.equal(to_patches(images, mae.model.config.patch_size), expected["patchify"])

    tokens = mae.encode(images, masking)
    assert (tokens - expected["encoder_last_hidden_state"]).abs().max() < TOLERANCE
    predicted = mae.decoder(tokens, masking)
    assert (predicted - expected["logits"]).abs().max() < TOLERANCE
    loss = mae.loss(images, predicted, masking)
    assert loss.item() == pytest.approx(expected["loss"].item(), abs=TOLERANCE)


def test_our_fixed_positions_are_those_of_the_file(golden):
    mae = vt.MAE.load(golden("hf_mae").folder)
    assert torch.equal(mae.decoder.positions[0], torch.zeros(24))
    assert torch.allclose(mae.decoder.positions[1:], sincos_of_mae((4, 4), 24), atol=1e-6)


def test_layer_names_of_published_files(golden, tmp_path):
    folder = golden("hf_mae").folder
    shutil.copy(folder / "config.json", tmp_path)
    weights = load_file(folder / "model.safetensors")
    renamed = {key.replace("decoder_encoder.layer.", "decoder_layers."): weights[key] for key in weights}
    assert renamed.keys() != weights.keys()
    save_file(renamed, tmp_path / "model.safetensors")
    ours, theirs = (vt.MAE.load(each).state_dict() for each in (tmp_path, folder))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_an_encoder_alone_has_no_decoder(golden, tmp_path):
    folder = golden("hf_mae").folder
    shutil.copy(folder / "config.json", tmp_path)
    weights = load_file(folder / "model.safetensors")
    encoder = {key: tensor for key, tensor in weights.items() if not key.startswith("decoder.")}
    save_file(encoder, tmp_path / "model.safetensors")
    for each in (tmp_path, golden("hf_vit").folder):
        with pytest.raises(vt.InputError, match="contains no MAE decoder: load it with vitreous"):
            vt.MAE.load(each)
    assert vt.load(tmp_path).config == vt.load(folder).config


def test_pretraining_continues_with_the_published_decoder(golden):
    task, folder = task_named("mae"), str(golden("hf_mae").folder)
    small = {"training": {"batch_size": 8}}
    planned = task.plan("digits", small, init=folder)
    assert planned.config.pretraining.mae.decoder_width == 24
    mae = task.build(planned.config, planned.data, steps=1)
    published = vt.MAE.load(folder, mask_ratio=0.5)
    assert published.config.mask_ratio == 0.5
    assert all(torch.equal(w, published.decoder.state_dict()[k]) for k, w in mae.decoder.state_dict().items())
    assert mae.decoder.mask.requires_grad
    own = task.plan("digits", {**small, "pretraining": {"mae": {"decoder_width": 16}}}, init=folder).config
    fresh = task.build(own, planned.data, steps=1)
    assert fresh.decoder.embedding.weight.shape == (16, 32), "a decoder of the user's own sizes is new"
