"""Damaged checkpoints of models that write text: one sentence that names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt

pytestmark = [pytest.mark.slow, pytest.mark.peers]  # writes its checkpoints with transformers

Damage = Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]


def marian(folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.MarianConfig(
        vocab_size=20, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=24,
        pad_token_id=1, eos_token_id=0, decoder_start_token_id=1, forced_eos_token_id=None,
    )  # fmt: skip
    transformers.MarianMTModel(config).save_pretrained(folder)


def trocr(folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    encoder = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    decoder = transformers.TrOCRConfig(
        vocab_size=20, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16,
        max_position_embeddings=24, cross_attention_hidden_size=16,
    )  # fmt: skip
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    both.decoder_start_token_id, both.pad_token_id, both.eos_token_id = 2, 1, 2
    transformers.VisionEncoderDecoderModel(both).save_pretrained(folder)


@pytest.fixture(scope="module", params=[marian, trocr], ids=["marian", "trocr"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    torch.manual_seed(0)
    request.param(folder)
    vt.load(folder)
    return folder


def of_decoder(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config.get("decoder", config)
    return found


def ending(tensors: dict[str, torch.Tensor], end: str) -> str:
    return next(name for name in tensors if name.endswith(end))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda c, t: t.pop(ending(t, "decoder.layers.0.fc1.weight")),
            "missing weights: .*layers.0.fc1.weight",
        ),
        (
            lambda c, t: t.pop(ending(t, "decoder.layers.0.encoder_attn.k_proj.bias")),
            "missing weights: .*k_proj",
        ),
        (lambda c, t: t.update({ending(t, "fc1.bias") + ".more": torch.zeros(2)}), "weights left over"),
        (lambda c, t: of_decoder(c).pop("d_model"), "config.json lacks 'd_model'"),
        (lambda c, t: of_decoder(c).update(d_model="wide"), "config.json: .*width"),
        (lambda c, t: of_decoder(c).update(activation_function="gelo"), "did you mean 'gelu'"),
    ],
    ids=["weight", "packed weight", "left over", "no width", "no number", "activation"],
)
def test_damage_is_named(whole: Path, tmp_path: Path, damage: Damage, words: str) -> None:
    config = json.loads((whole / "config.json").read_text())
    tensors = load_file(whole / "model.safetensors")
    damage(config, tensors)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(vt.InputError, match=words):
        vt.load(tmp_path)
