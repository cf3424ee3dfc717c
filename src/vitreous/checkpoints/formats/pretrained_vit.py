"""State dicts of the paper's models, read under transformers' names: lukemelas/PyTorch-Pretrained-ViT and
jeonsworld/ViT-pytorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from vitreous.checkpoints.format import Format, Spec
from vitreous.checkpoints.formats.huggingface import read_huggingface
from vitreous.checkpoints.formats.huggingface_configs import transformers_facts
from vitreous.checkpoints.source import Source
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
JEONSWORLD_NAMES = {
    r"^transformer\.embeddings\.patch_embeddings\.": "embeddings.patch_embeddings.projection.",
    r"^transformer\.encoder\.encoder_norm\.": "layernorm.",
    r"^transformer\.": "",
    r"\.attn\.(query|key|value)\.": r".attention.attention.\1.",
    r"\.attn\.out\.": ".attention.output.dense.",
    r"\.attention_norm\.": ".layernorm_before.",
    r"\.ffn_norm\.": ".layernorm_after.",
    r"\.ffn\.fc1\.": ".intermediate.dense.",
    r"\.ffn\.fc2\.": ".output.dense.",
    r"^head\.": "classifier.",
}
DESCRIPTION = {"layer_norm_eps": 1e-6, "hidden_act": "gelu"}


def read_under_names(source: Source, names: Mapping[str, str]) -> Spec:
    """Read a checkpoint under other names. names: of theirs, as regular expressions, those of
    transformers."""
    if "pre_logits.weight" in source.tensors:
        raise InputError(
            f"{source.where}: the representation layer (load_repr_layer=True) of pytorch-pretrained-vit is "
            "before its last norm, and is not supported"
        )
    facts = replace(source.facts, model=source.facts.model.over(DESCRIPTION))
    return read_huggingface(replace(source.under(names), facts=facts))


PRETRAINED_VIT = Format(
    name="pytorch-pretrained-vit",
    about="lukemelas/PyTorch-Pretrained-ViT: a state dict",
    families=("ViT",),
    keys=(r"positional_embedding\.pos_embedding", r"transformer\.blocks\.0\.attn\.proj_q\.weight"),
    read=partial(read_under_names, names=NAMES),
    gather=transformers_facts,
    unsaid=("heads",),
    interpolation="google",
)
JEONSWORLD = Format(
    name="jeonsworld",
    about="jeonsworld/ViT-pytorch: a state dict",
    families=("ViT",),
    keys=(r"transformer\.embeddings\.cls_token", r"transformer\.encoder\.layer\.0\.attn\.query\.weight"),
    read=partial(read_under_names, names=JEONSWORLD_NAMES),
    gather=transformers_facts,
    unsaid=("heads",),
    interpolation="google",
    outer_names=("head.",),
)
