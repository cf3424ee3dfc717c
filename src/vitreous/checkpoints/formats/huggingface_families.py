"""The layouts of transformers' Vision Transformers: what each family calls its parts."""

from __future__ import annotations

import re
from typing import NamedTuple


class Family(NamedTuple):
    """What tells one family's layout from another's."""

    names: dict[str, str]  # of parts
    layer: str
    layer_names: dict[str, str]
    attention: tuple[str, ...]  # q, k, v; or all in one
    tokens: dict[str, str]
    positions: str
    eps: float  # where config.json does not tell, as the next three
    activation: str = "gelu"
    heads: int = 12
    image_size: int = 224
    token_axes: int = 3
    table_axes: int = 3
    scales: tuple[str, str] = ("layer_scale1.lambda1", "layer_scale2.lambda1")  # of the two branches
    key_bias: bool = True
    gates: tuple[str, str] = ("mlp.weights_in", "mlp.weights_out")  # of SwiGLU


VIT = Family(
    names={
        "stem.projection": "embeddings.patch_embeddings.projection",
        "norm": "layernorm",
        "representation.linear": "pooler.dense",
        "head": "classifier",
        "head.classes": "cls_classifier",
        "head.distillation": "distillation_classifier",
    },
    layer="encoder.layer.{}.",
    layer_names={
        "attention_norm": "layernorm_before",
        "attention.out": "attention.output.dense",
        "mlp_norm": "layernorm_after",
        "mlp.expand": "intermediate.dense",
        "mlp.contract": "output.dense",
    },
    attention=("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    # the registers of DeiT without its second head: its distillation token, which is not read
    tokens={
        "class_token": "embeddings.cls_token",
        "distillation_token": "embeddings.distillation_token",
        "registers": "embeddings.distillation_token",
    },
    positions="embeddings.position_embeddings",
    eps=1e-12,
)
DINOV2 = VIT._replace(
    layer_names=VIT.layer_names
    | {"attention_norm": "norm1", "mlp_norm": "norm2", "mlp.expand": "mlp.fc1", "mlp.contract": "mlp.fc2"},
    tokens=VIT.tokens | {"registers": "embeddings.register_tokens"},
    eps=1e-6,
)
BEIT = VIT._replace(
    names=VIT.names | {"pool.norm": "pooler.layernorm"},
    scales=("lambda_1", "lambda_2"),
    key_bias=False,
)
# Tables of relative positions: of a layer, and of all.
BIAS = "encoder.layer.{}.attention.attention.relative_position_bias.relative_position_bias_table"
SHARED_BIAS = "encoder.relative_position_bias.relative_position_bias_table"
INTERNVL = BEIT._replace(
    layer_names={
        "attention_norm": "layernorm_before",
        "attention.out": "attention.projection_layer",
        "attention.query_norm.norm": "attention.q_norm",
        "attention.key_norm.norm": "attention.k_norm",
        "mlp_norm": "layernorm_after",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    heads=16,
    key_bias=True,
    eps=1e-6,
)
TIPS = DINOV2._replace(
    names={"stem.projection": "patch_embed.proj", "norm": "norm"},
    layer="blocks.{}.",
    layer_names={
        "attention_norm": "norm1",
        "attention.out": "attn.proj",
        "mlp_norm": "norm2",
        "mlp.expand": "mlp.c_fc",
        "mlp.contract": "mlp.c_proj",
    },
    attention=("attn.qkv",),
    tokens={"class_token": "cls_token", "registers": "register_tokens"},
    positions="pos_embed",
    scales=("ls1.gamma", "ls2.gamma"),
    gates=("mlp.w12", "mlp.w3"),
)
CLIP = Family(
    names={
        "stem.projection": "embeddings.patch_embedding",
        "embedding_norm": "pre_layrnorm",
        "norm": "post_layernorm",
        "head": "visual_projection",
    },
    layer="encoder.layers.{}.",
    layer_names={
        "attention_norm": "layer_norm1",
        "attention.out": "self_attn.out_proj",
        "mlp_norm": "layer_norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    tokens={"class_token": "embeddings.class_embedding"},
    positions="embeddings.position_embedding.weight",
    eps=1e-5,
    activation="quick_gelu",
    token_axes=1,
    table_axes=2,
)
MLCD = CLIP._replace(activation="gelu", heads=16, image_size=336)
CLASS_ANGLES = "class_pos_emb"
# The code beside the files of OpenGVLab/InternViT-*.
INTERNVIT = CLIP._replace(
    names={"stem.projection": "embeddings.patch_embedding"},
    layer_names={
        "attention_norm": "norm1",
        "attention.query_norm.norm": "attn.q_norm",
        "attention.key_norm.norm": "attn.k_norm",
        "attention.out": "attn.proj",
        "mlp_norm": "norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("attn.qkv",),
    positions="embeddings.position_embedding",
    heads=25,
    eps=1e-6,
    activation="gelu",
    token_axes=3,
    table_axes=3,
    scales=("ls1", "ls2"),
)
SIGLIP = CLIP._replace(
    names=CLIP.names
    | {
        "head": "classifier",
        "pool.attention.out": "head.attention.out_proj",
        "pool.norm": "head.layernorm",
        "pool.mlp.expand": "head.mlp.fc1",
        "pool.mlp.contract": "head.mlp.fc2",
    },
    eps=1e-6,
    activation="gelu_pytorch_tanh",
)

# The names that transformers 5 has in memory, of ViT, DeiT and DINOv2: those that every release writes.
MEMORY_NAMES = {
    r"^layers\.": "encoder.layer.",
    r"(\.attention)\.q_proj\.": r"\1.attention.query.",
    r"(\.attention)\.k_proj\.": r"\1.attention.key.",
    r"(\.attention)\.v_proj\.": r"\1.attention.value.",
    r"(\.attention)\.o_proj\.": r"\1.output.dense.",
}


def published_name(name: str) -> str:
    """The name that a weight has in files."""
    if name.startswith("layers."):  # those of DINOv2 are the same in both
        name = name.replace(".mlp.fc1.", ".intermediate.dense.").replace(".mlp.fc2.", ".output.dense.")
    for ours, theirs in MEMORY_NAMES.items():
        name = re.sub(ours, theirs, name)
    return name
