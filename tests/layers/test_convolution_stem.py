"""What the norm of the early convolutions takes away."""

from __future__ import annotations

import torch

from vitreous.layers.embedding import ConvolutionStem


def test_with_instance_norm_contrast_and_each_colors_strength_make_no_difference() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 1, 16, 16)
    stems = {
        norm: ConvolutionStem(1, 8, widths=(6, 8), strides=(2, 2), norm=norm)
        for norm in ("layer", "instance")
    }
    for stem in stems.values():
        torch.testing.assert_close(stem(3 * images), stem(images), atol=1e-4, rtol=1e-4)
    grown = stems["instance"]
    with torch.no_grad():
        before = grown(images)
        grown.convolutions[0].weight[0] *= 5  # one channel far louder than the others
    torch.testing.assert_close(grown(images), before, atol=1e-4, rtol=1e-4)
