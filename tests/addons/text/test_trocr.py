"""TrOCR beside transformers' own model, where the golden cases say nothing: computed positions."""

from pathlib import Path

import pytest
import torch

import vitreous as vt


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize(("width", "heads"), [(16, 2), (15, 3)])
def test_sinusoidal_positions_are_those_of_transformers(width: int, heads: int, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    encoder = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    decoder = transformers.TrOCRConfig(
        vocab_size=20, d_model=width, decoder_layers=2, decoder_attention_heads=heads, decoder_ffn_dim=16,
        max_position_embeddings=24, use_learned_position_embeddings=False, layernorm_embedding=False,
        cross_attention_hidden_size=16, scale_embedding=True,
    )  # fmt: skip
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    both.decoder_start_token_id, both.pad_token_id, both.eos_token_id = 2, 1, 2
    peer = transformers.VisionEncoderDecoderModel(both).eval()
    peer.save_pretrained(tmp_path)
    model = vt.load(tmp_path)
    assert model.config.decoder.position == "sinusoidal-fairseq"
    images, ids = torch.randn(2, 3, 16, 16), torch.randint(3, 20, (2, 20))
    with torch.no_grad():
        expected = peer(pixel_values=images, decoder_input_ids=ids).logits
        torch.testing.assert_close(model(images, ids), expected, atol=2e-5, rtol=0)
