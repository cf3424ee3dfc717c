"""MONAI's ViT of images (spatial_dims=2): a state dict, read under timm's names."""

from __future__ import annotations

import re
from dataclasses import replace

from vitreous.checkpoints.format import Format, Spec, flat_patch_size, given_number, kernel_of
from vitreous.checkpoints.formats.timm import read_timm
from vitreous.checkpoints.source import Source
from vitreous.errors import InputError

NAMES = {
    r"^patch_embedding\.patch_embeddings\.(1\.)?": "patch_embed.proj.",
    r"^patch_embedding\.position_embeddings$": "pos_embed",
    r"\.attn\.out_proj\.": ".attn.proj.",
    r"\.mlp\.linear([12])\.": r".mlp.fc\1.",
    r"^classification_head\.(0\.)?": "head.",
}
# Of releases before 1.5: layers of cross-attention that were made and not used.
UNUSED = re.compile(r"^blocks\.\d+\.(cross_attn|norm_cross_attn)\.")
PATCHES = "patch_embed.proj.weight"


def read_monai(source: Source) -> Spec:
    if any(name.startswith("classification_head.0.") for name in source.tensors):
        source.assumed.append("the head's logits, before the Tanh that MONAI's ViT puts on them")
    source = source.under(NAMES).renamed(lambda name: None if UNUSED.match(name) else name)
    axes = len(source.shape(PATCHES))
    if axes == 5:
        raise InputError(f"{source.where}: this ViT of MONAI takes volumes (spatial_dims=3), not images")
    if axes == 2:  # flat patches (row, column, channel)
        channels = given_number(source, "channels", 3)
        patch = flat_patch_size(source, source.shape(PATCHES)[1], channels)
        kernel = kernel_of(source.tensors[PATCHES], channels, patch)
        source = replace(source, tensors=source.tensors | {PATCHES: kernel})
    pooling = "class" if "cls_token" in source.tensors else "mean"
    stated = {"norm_eps": 1e-5, "mlp": "gelu", "pooling": pooling}
    return read_timm(source.stating(stated), "images in -1 ... 1", resize="squash")


MONAI = Format(
    name="monai",
    about="MONAI's ViT for images: a state dict",
    families=("ViT",),
    keys=(r"patch_embedding\.position_embeddings", r"blocks\.0\.attn\.out_proj\.weight"),
    read=read_monai,
    unsaid=("heads",),
)
