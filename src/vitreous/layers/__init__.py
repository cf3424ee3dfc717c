"""The parts of the Vision Transformer as `nn.Module`s: no files, no configuration, no device decisions.

Shapes are written with one letter each, here and everywhere: B batch, C channels, H W pixels, P patch,
N patches, T tokens (the paper's N' = N + 1), D width, K heads, L layers.
"""
