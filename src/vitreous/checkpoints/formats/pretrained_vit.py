"""lukemelas/PyTorch-Pretrained-ViT: a state dict of the paper's models, read under transformers' names."""

from __future__ import annotations

import re
from dataclasses import replace

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import Converted, Format
from vitreous.checkpoints.formats.huggingface import read_huggingface
from vitreous.errors import InputError

NAMES = {
    r"^patch_embedding\.": "embeddings.patch_embeddings.projection.",
    r"^class_token$": "embeddings.cls_token",
    r"^positional_embedding\.pos_embedding$": "embeddings.position_embeddings",
    r"^transformer\.blocks\.": "encoder.layer.",
    r"\.attn\.proj_q\.": ".attention.attention.query.",
    r"\.attn\.proj_k\.": ".attention.attention.key.",
    r"\.attn\.proj_v\.": ".attention.attention.value.",
    r"(layer\.\d+)\.proj\.": r"\1.attention.output.dense.",
    r"\.norm1\.": ".layernorm_before.",
    r"\.norm2\.": ".layernorm_after.",
    r"\.pwff\.fc1\.": ".intermediate.dense.",
    r"\.pwff\.fc2\.": ".output.dense.",
    r"^norm\.": "layernorm.",
    r"^fc\.": "classifier.",
}
DESCRIPTION = {"layer_norm_eps": 1e-6, "hidden_act": "gelu"}


def read_pretrained_vit(source: Source) -> Converted:
    if "pre_logits.weight" in source.tensors:
        raise InputError(
            f"{source.where}: the representation layer (load_repr_layer=True) of pytorch-pretrained-vit is "
            "before its last norm, and not known here"
        )

    def rename(name: str) -> str:
        for theirs, ours in NAMES.items():
            name = re.sub(theirs, ours, name)
        return name

    renamed = replace(source.renamed(rename), config=DESCRIPTION | source.config)
    return read_huggingface(renamed)


PRETRAINED_VIT = Format(
    name="pytorch-pretrained-vit",
    about="lukemelas/PyTorch-Pretrained-ViT: a state dict",
    keys=(r"positional_embedding\.pos_embedding", r"transformer\.blocks\.0\.attn\.proj_q\.weight"),
    read=read_pretrained_vit,
    unsaid=("heads",),
    interpolation="google",
)
