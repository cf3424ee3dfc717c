"""Parity with Hugging Face's ViTMAEForPreTraining: encoder, decoder, mask, loss."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitreous.errors import InputError
from vitreous.layers.stems import to_patches
from vitreous.tasks.pretraining.mae import sincos_of_mae
from vitreous.tasks.pretraining.mae_weights import load_mae

TOLERANCE = 2e-5


@pytest.mark.parametrize("name", ["hf_mae", "hf_mae_normpix"])
@torch.no_grad()
def test_every_stage_equals_the_peer(golden, name):
    folder, _, expected = case = golden(name)
    images = case.array("input")
    mae = load_mae(folder)

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
    mae = load_mae(golden("hf_mae").folder)
    assert torch.equal(mae.decoder.positions[0], torch.zeros(24))
    assert torch.allclose(mae.decoder.positions[1:], sincos_of_mae((4, 4), 24), atol=1e-6)


def test_layer_names_of_published_files(golden, tmp_path):
    folder = golden("hf_mae").folder
    shutil.copy(folder / "config.json", tmp_path)
    weights = load_file(folder / "model.safetensors")
    renamed = {key.replace("decoder_encoder.layer.", "decoder_layers."): weights[key] for key in weights}
    assert renamed.keys() != weights.keys()
    save_file(renamed, tmp_path / "model.safetensors")
    ours, theirs = load_mae(tmp_path).state_dict(), load_mae(folder).state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_an_encoder_alone_has_no_decoder(golden, tmp_path):
    folder = golden("hf_mae").folder
    shutil.copy(folder / "config.json", tmp_path)
    weights = load_file(folder / "model.safetensors")
    encoder = {key: tensor for key, tensor in weights.items() if not key.startswith("decoder.")}
    save_file(encoder, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="the encoder alone"):
        load_mae(tmp_path)


def test_another_model_is_refused(golden):
    with pytest.raises(InputError, match="no ViTMAE"):
        load_mae(golden("hf_vit").folder)
