"""The image tower of a CLIP under the names of OpenAI's code and of open_clip: `visual.*` of a state dict or
of OpenAI's archives. Its projection, which maps an image among texts, is the head.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format, without_patch_bias
from vitreous.checkpoints.format import (
    Family,
    Format,
    Spec,
    as_pair,
    assumed_preprocessing,
    configured,
    image_size_of,
    shape_fields,
)
from vitreous.checkpoints.source import (
    OPEN_CLIP_CONFIG,
    Documents,
    Facts,
    Source,
    Statements,
    whole_number_of,
)
from vitreous.checkpoints.torch_files import write_state_dict
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.checkpoints.weights import WeightRow, converted, no_head_bias, write_weight_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing

TOWER = "visual."
FAMILY = Family(
    names={
        "stem.projection": f"{TOWER}conv1",
        "embedding_norm": f"{TOWER}ln_pre",
        "norm": f"{TOWER}ln_post",
        "pool.norm": f"{TOWER}ln_post",
    },
    layer=f"{TOWER}transformer.resblocks.{{}}.",
    layer_names={
        "attention_norm": "ln_1",
        "attention.out": "attn.out_proj",
        "mlp_norm": "ln_2",
        "mlp.expand": "mlp.c_fc",
        "mlp.contract": "mlp.c_proj",
    },
    attention=("attn.in_proj_",),
    scales=("ls_1.gamma", "ls_2.gamma"),
    tokens={"class_token": f"{TOWER}class_embedding"},
    positions=f"{TOWER}positional_embedding",
    token_axes=1,
    table_axes=2,
    limits=PLAIN_VIT
    | {
        "channels": (3,),
        "mlp": ("quick_gelu", "gelu"),
        "norm_eps": (1e-5,),
        "extra_norms": ((), ("tokens",)),
        "edge": ("refuse", "drop"),
        "pooling.kind": ("class", "mean"),
        "final_norm": ("tokens", "pooled"),
    },
)
# Numbers beside the weights of OpenAI's archives, which only they have.
ARCHIVE = ("input_resolution", "context_length", "vocab_size")
# What open_clip's towers can have besides, by its name in a state dict or among the arguments of the tower.
UNKNOWN_WEIGHTS = {
    "visual.layer1.": "a ResNet instead of a ViT",
    "visual.attn_pool.": "attention pooling of several queries (CoCa)",
    "visual.transformer.resblocks.0.attn.ln_": "norms inside the attention",
    "visual.transformer.resblocks.0.ln_attn.": "norms inside the attention",
}
# Arguments of the tower that are read, or that the weights show, or that change nothing in use.
ARGUMENTS = (
    *("image_size", "head_width", "pool_type", "final_ln_after_pool", "norm_kwargs", "act_kwargs", "layers"),
    *("width", "mlp_ratio", "patch_size", "ls_init_value", "no_ln_pre", "pos_embed_type", "patch_dropout"),
    *("attn_pooler_queries", "attn_pooler_heads", "output_tokens"),
)


POOLINGS = {"tok": "class", "avg": "mean"}
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# Of open_clip's PreprocessCfg.
IMAGES = {
    "size": None,
    "mean": list(CLIP_MEAN),
    "std": list(CLIP_STD),
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def open_clip_facts(documents: Documents, source: Source) -> Facts:
    """Return what open_clip_config.json says of the tower that sees images, and whether QuickGELU is that of
    the whole. Raises InputError: it describes no tower."""
    plain = plain_facts(documents, source)
    if OPEN_CLIP_CONFIG not in documents:
        return plain
    described = documents[OPEN_CLIP_CONFIG]
    model = described.get("model_cfg", {})
    if not (isinstance(model, dict) and isinstance(model.get("vision_cfg", {}), dict)):
        raise InputError(
            f"{source.where}: {OPEN_CLIP_CONFIG} is not understood: it has no model_cfg with a vision_cfg"
        )
    tower = {"quick_gelu": bool(model.get("quick_gelu")), **model.get("vision_cfg", {})}
    look = Statements(described, source.where).part("preprocess_cfg")
    stated = {name: look[name] for name in IMAGES if look.get(name) is not None}
    return replace(
        plain,
        name=str(tower.get("timm_model_name") or "clip"),
        model=Statements(tower, source.where),
        images=Statements({**IMAGES, **stated}, source.where),
    )


def open_clip_rows(config: ViTConfig) -> list[WeightRow]:
    rows = FAMILY.table(config)
    if config.num_classes is None:
        return rows
    head = converted("head.weight", f"{TOWER}proj", lambda t: t.T, lambda t: t.T.contiguous())
    return [*rows, head, no_head_bias(config.num_classes)]


def read_open_clip(source: Source) -> Spec:
    archive = all(name in source.tensors for name in ARCHIVE)
    for name, part in UNKNOWN_WEIGHTS.items():
        if any(each.startswith(name) for each in source.tensors):
            raise InputError(f"{source.where}: this CLIP has a part that is not supported: {part}")
    source = source.renamed(lambda name: name if name.startswith(TOWER) else None)
    vision = source.facts.model
    for name, value in vision.items():
        if value and name not in (*ARGUMENTS, "quick_gelu") and not name.startswith("timm_"):
            raise InputError(f"{source.where}: {name}={value!r} of open_clip is not supported")
    norm = vision.part("norm_kwargs")
    if norm.keys() - {"eps"}:
        raise InputError(f"{source.where}: norm_kwargs={dict(norm)!r} of open_clip is not supported")
    shapes = shape_fields(source, FAMILY.rows())
    positions = source.positions(f"{TOWER}positional_embedding") - 1
    pool = str(vision.get("pool_type", "tok"))
    if pool not in POOLINGS:
        raise InputError(f"{source.where}: pool_type={pool!r} of open_clip is not supported")
    fields = {
        **shapes,
        "image_size": image_size_of(
            source, shapes["patch_size"], positions, described=[vision.get("image_size")]
        ),
        "stem": {"kind": "patch", "bias": False},
        "norm_eps": norm.get("eps", 1e-5),
        "mlp": activation(source, archive=archive),
        "num_classes": source.size_if_there(f"{TOWER}proj", 1, ndim=2),
        "pooling": POOLINGS[pool],
        "final_norm": "pooled" if vision.get("final_ln_after_pool") else "tokens",
    }
    if vision or archive:
        width = whole_number_of(vision.get("head_width", 64), f"{source.where}: head_width")
        fields["heads"] = shapes["width"] // width
    config = configured(ViTConfig, source, fields)
    return Spec(source, config, open_clip_rows(config), preprocessing(source, config), task=None)


def activation(source: Source, *, archive: bool) -> str:
    """Return QuickGELU in OpenAI's models, and in those of open_clip that say so. Raises InputError: nothing
    says it."""
    if source.facts.model:
        kwargs = dict(source.facts.model.part("act_kwargs"))
        if source.facts.model["quick_gelu"] and not kwargs:
            return "quick_gelu"
        if kwargs not in ({}, {"approximate": "none"}, {"approximate": "tanh"}):
            raise InputError(f"{source.where}: act_kwargs={kwargs!r} of open_clip is not supported")
        return "gelu_tanh" if kwargs.get("approximate") == "tanh" else "gelu"
    if archive:
        return "quick_gelu"
    if "mlp" not in source.specified:
        raise InputError(
            f"{source.where}: a state dict of a CLIP does not store its activation: pass mlp='quick_gelu' "
            "for OpenAI's models, mlp='gelu' for most others, or keep its open_clip_config.json next to it"
        )
    return str(source.specified["mlp"])


def preprocessing(source: Source, config: ViTConfig) -> Preprocessing:
    """Return what open_clip_config.json says; without it, as both codebases do unless another is given."""
    look = source.facts.images
    if not look:
        return assumed_preprocessing(source, config, "CLIP", mean=CLIP_MEAN, std=CLIP_STD)
    modes = {"shortest": "crop", "squash": "squash", "longest": "fit"}
    size = as_pair(look.get("size"))
    if size not in (None, config.image_size):
        source.assumed.append(f"images of {config.image_size}, not the {size} of preprocess_cfg")
    try:
        return Preprocessing(
            size=config.image_size,
            channels=config.channels,
            resize=modes[look["resize_mode"]],
            interpolation=look["interpolation"],
            mean=tuple(look["mean"]),
            std=tuple(look["std"]),
        )
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{source.where}: preprocess_cfg of open_clip_config.json is not understood"
        ) from None


def write_open_clip(model: Model, path: Path) -> None:
    config, weights = held_by_format(model, "open-clip", FAMILY.limits, keep=("layer_scale",))
    config, weights = without_patch_bias(config, weights)
    if config.num_classes is None:
        raise InputError("open-clip cannot hold a model without a head: its towers end in a projection")
    write_state_dict(write_weight_rows(open_clip_rows(config), weights), path)


OPEN_CLIP = Format(
    name="open-clip",
    about="the image tower of OpenAI's CLIP and of open_clip: a state dict or OpenAI's archive",
    families=("CLIP",),
    keys=(r"visual\.conv1\.weight",),
    read=read_open_clip,
    gather=open_clip_facts,
    write=write_open_clip,
    limits=FAMILY.limits,
    suffixes=(".pt", ".pth", ".safetensors"),
    unsaid=("heads", "image_size", "mlp", "pooling", "final_norm"),
    typical={"norm_eps": 1e-5, "extra_norms": ("tokens",)},
    without=(r"head\.bias$",),
)
