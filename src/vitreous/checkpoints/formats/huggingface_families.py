"""The layouts of transformers' Vision Transformers: what each family calls its parts, and what a model can be
to be written as one of it."""

from __future__ import annotations

import re

from vitreous.checkpoints.canonicalize import PLAIN_VIT
from vitreous.checkpoints.format import POSITIONED, Family

EVERY = (
    PLAIN_VIT
    | dict.fromkeys(("norm_eps", "pooling.kind", "representation_size"))
    | {"edge": ("refuse", "drop"), "mlp": ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu")}
)
SCALED = ("layer_scale", "qkv_bias")
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
    attention=("attention.attention.query.", "attention.attention.key.", "attention.attention.value."),
    # the registers of DeiT without its second head: its distillation token, which is not read
    tokens={
        "class_token": "embeddings.cls_token",
        "distillation_token": "embeddings.distillation_token",
        "registers": "embeddings.distillation_token",
    },
    positions="embeddings.position_embeddings",
    eps=1e-12,
    gates=("mlp.weights_in",),
    after_gates="mlp.weights_out",
    scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
    limits=EVERY | {"extra_norms": ((), ("tokens",)), "pooling.kind": ("class", "class+distillation")},
)
IJEPA = VIT._replace(
    limits=EVERY | {"class_token": (False,), "pooling.kind": ("mean",), "representation_size": (None,)}
)
DINOV2 = VIT._replace(
    layer_names={
        **VIT.layer_names,
        "attention_norm": "norm1",
        "mlp_norm": "norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    tokens={**VIT.tokens, "registers": "embeddings.register_tokens"},
    positioned=POSITIONED,
    eps=1e-6,
    limits=EVERY
    | {"registers": None, "representation_size": (None,), "pooling.kind": ("class", "mean", "class+mean")},
    keep=SCALED,
    square=True,
)
KEYLESS = ("attention.attention.query.bias", None, "attention.attention.value.bias")
BEIT = VIT._replace(
    names={**VIT.names, "pool.norm": "pooler.layernorm"},
    scales=("lambda_1", "lambda_2"),
    biases=KEYLESS,
    limits=EVERY
    | {
        "position.kind": ("relative-bias",),
        **dict.fromkeys(("position.shared", "position.absolute")),
        "representation_size": (None,),
        "edge": ("refuse",),
        "pooling.kind": ("class", "mean"),
        "final_norm": ("tokens", "pooled"),
    },
    keep=("layer_scale",),
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
    attention=("attention.q_proj.", "attention.k_proj.", "attention.v_proj."),
    biases=None,
    eps=1e-6,
    limits=EVERY
    | {
        "norm_kind": None,
        "qk_norm": ("none", "layer"),
        "final_norm": ("none",),
        **dict.fromkeys(("num_classes", "representation_size"), (None,)),
        "pooling.kind": ("class", "mean"),
    },
    keep=SCALED,
    square=True,
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
    attention=("attn.qkv.",),
    tokens={"class_token": "cls_token", "registers": "register_tokens"},
    positions="pos_embed",
    scales=("ls1.gamma", "ls2.gamma"),
    gates=("mlp.w12",),
    after_gates="mlp.w3",
    limits={**DINOV2.limits, "num_classes": (None,), "pooling.kind": ("class",)},
)
CLIP = Family(
    names={
        "stem.projection": "embeddings.patch_embedding",
        "embedding_norm": "pre_layrnorm",
        "norm": "post_layernorm",
    },
    layer="encoder.layers.{}.",
    layer_names={
        "attention_norm": "layer_norm1",
        "attention.out": "self_attn.out_proj",
        "mlp_norm": "layer_norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."),
    tokens={"class_token": "embeddings.class_embedding"},
    positions="embeddings.position_embedding.weight",
    eps=1e-5,
    activation="quick_gelu",
    scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
    token_axes=1,
    table_axes=2,
    limits=EVERY
    | {"extra_norms": ((), ("tokens",)), "representation_size": (None,), "pooling.kind": ("class",)},
    keep=(),
    square=True,
)
# CLIPForImageClassification.
CLIP_CLASSIFIER = CLIP._replace(
    names={name: theirs for name, theirs in CLIP.names.items() if name != "norm"} | {"head": "classifier"}
)
BLIP = CLIP._replace(
    names={"stem.projection": "embeddings.patch_embedding"},
    layer_names={**CLIP.layer_names, "attention.out": "self_attn.projection"},
    attention=("self_attn.qkv.",),
    positions="embeddings.position_embedding",
    activation="gelu",
    token_axes=3,
    table_axes=3,
)
MLCD = CLIP._replace(
    activation="gelu",
    limits=EVERY
    | {
        "extra_norms": (("tokens",),),
        "position.kind": ("rotary-2d",),
        "position.shared": (True,),
        "position.rotary": None,
        "position.rotary.pairs": ("halves",),
        "position.rotary.axes": ("yx",),
        "position.rotary.class_angles": (True,),
        **dict.fromkeys(("position.rotary.periods", "position.rotary.reference"), (None,)),
        **dict.fromkeys(("num_classes", "representation_size"), (None,)),
        "position.rotary.coordinates": ("index",),
        "position.rotary.offset": (0.0,),
        "pooling.kind": ("class",),
    },
)
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
    attention=("attn.qkv.",),
    positions="embeddings.position_embedding",
    eps=1e-6,
    activation="gelu",
    token_axes=3,
    table_axes=3,
    scales=("ls1", "ls2"),
    limits={**INTERNVL.limits, "channels": (3,)},
    keep=SCALED,
)
SIGLIP = CLIP._replace(
    names={
        **CLIP.names,
        "head": "classifier",
        "pool.attention.out": "head.attention.out_proj",
        "pool.norm": "head.layernorm",
        "pool.mlp.expand": "head.mlp.fc1",
        "pool.mlp.contract": "head.mlp.fc2",
    },
    eps=1e-6,
    activation="gelu_pytorch_tanh",
    limits=EVERY | {"class_token": (False,), "representation_size": (None,), "num_classes": (None,)},
)
# The tower of Janus.
JANUS = SIGLIP._replace(
    layer_names={**SIGLIP.layer_names, "attention.out": "self_attn.projection_layer"}, activation="gelu"
)

# The names that transformers 5 has in memory, of ViT, DeiT and DINOv2: those that every release writes.
MEMORY_NAMES = {
    r"^layers\.": "encoder.layer.",
    r"(\.attention)\.q_proj\.": r"\1.attention.query.",
    r"(\.attention)\.k_proj\.": r"\1.attention.key.",
    r"(\.attention)\.v_proj\.": r"\1.attention.value.",
    r"(\.attention)\.o_proj\.": r"\1.output.dense.",
    r"(layer\.\d+)\.(relative_position_bias\.)": r"\1.attention.attention.\2",
}


def published_name(name: str) -> str:
    """Return the name that a weight has in files."""
    if name.startswith("layers."):  # those of DINOv2 are the same in both
        name = name.replace(".mlp.fc1.", ".intermediate.dense.").replace(".mlp.fc2.", ".output.dense.")
    for ours, theirs in MEMORY_NAMES.items():
        name = re.sub(ours, theirs, name)
    return name
