"""SimMIM's loss is that of transformers' ViTForMaskedImageModeling: same weights, mask and images."""

from pathlib import Path

import pytest
import torch
from einops import rearrange

import vitreous as vt
from vitreous.layers.embedding import from_patches
from vitreous.tasks.pretraining.masking import SimMIM, SimMIMConfig


@pytest.mark.slow
@torch.no_grad()
def test_simmim(tiny, images, tmp_path: Path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    ours = SimMIM(tiny(), SimMIMConfig(unit=1)).eval()
    torch.nn.init.normal_(ours.model.prefix, std=0.5)
    vt.save(ours.model, tmp_path / "m", format="huggingface")
    theirs = transformers.ViTForMaskedImageModeling.from_pretrained(tmp_path / "m", encoder_stride=8).eval()
    torch.nn.init.normal_(theirs.vit.embeddings.mask_token)
    ours.mask.copy_(theirs.vit.embeddings.mask_token.flatten())
    # Their 1x1 convolution numbers its outputs (channel, row, column), as PixelShuffle wants them.
    weight, bias = theirs.decoder[0].weight.flatten(1), theirs.decoder[0].bias
    ours.prediction.weight.copy_(rearrange(weight, "(C p q) D -> (p q C) D", p=8, q=8))
    ours.prediction.bias.copy_(rearrange(bias, "(C p q) -> (p q C)", p=8, q=8))

    loss, _ = ours(images, torch.Generator().manual_seed(4))
    hidden = ours.draw(16, torch.Generator().manual_seed(4))
    wanted = theirs(pixel_values=images, bool_masked_pos=hidden.bool())

    painted = from_patches(ours.predict(images, hidden), (4, 4), (8, 8))
    torch.testing.assert_close(painted, wanted.reconstruction, atol=2e-5, rtol=0)
    assert loss.item() == pytest.approx(wanted.loss.item(), rel=1e-5)
