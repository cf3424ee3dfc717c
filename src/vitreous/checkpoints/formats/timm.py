"""timm: VisionTransformer, DeiT (distilled), hybrids (a ResNetV2 before the patches), Beit and Eva (EVA,
EVA-02, Perception Encoder, the ViTs with rotary positions), as a folder (model.safetensors and config.json)
or a state dict; and its names of encoder layers, which other codebases share. Norms are on the tokens
(`norm`) or after the pooling (`fc_norm`); registers and the class token have position rows unless
`no_embed_class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from vitreous.checkpoints.format import (
    GATED,
    Family,
    ShapeFields,
    Spec,
    activation_of,
    as_pair,
    asked_image_size,
    assumed_preprocessing,
    configured,
    grid_of,
    image_size_of,
    part_kind,
    shape_fields,
)
from vitreous.checkpoints.formats import timm_naflex
from vitreous.checkpoints.formats.branches import Branches, as_one_branch, with_parts_apart
from vitreous.checkpoints.formats.relative_bias import (
    BEIT_ARGUMENTS,
    BEIT_BIAS,
    BEIT_SHARED_BIAS,
    bias_fields,
    bias_rows,
)
from vitreous.checkpoints.formats.timm_facts import description_of, timm_facts
from vitreous.checkpoints.source import CONFIG, Source, Statements, number_of
from vitreous.checkpoints.weights import WeightRow, pairs, same
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

# The names of the layers, which other codebases share. Both sides call them blocks.N.
TIMM_VIT = Family(
    names={
        "stem.projection": "patch_embed.proj",
        "embedding_norm": "norm_pre",
        "norm": "norm",
        "head": "head",
        "head.classes": "head",
        "head.distillation": "head_dist",
    },
    layer="blocks.{}.",
    layer_names={
        "attention_norm": "norm1",
        "attention.sub_norm": "attn.norm",
        "attention.out": "attn.proj",
        "attention.query_norm": "attn.q_norm",
        "attention.key_norm": "attn.k_norm",
        "mlp_norm": "norm2",
        "mlp.sub_norm": "mlp.norm",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("attn.qkv.",),
    gates=("mlp.fc1",),
    scales=("ls1.gamma", "ls2.gamma"),
    tokens={"class_token": "cls_token", "distillation_token": "dist_token", "registers": "reg_token"},
)
# Of Beit, whose keys have no bias.
BEIT_VIT = TIMM_VIT._replace(biases=("attn.q_bias", None, "attn.v_bias"), scales=("gamma_1", "gamma_2"))
APART = ("attn.q_proj.", "attn.k_proj.", "attn.v_proj.")


def family_of(source: Source) -> Family:
    """Return the names that a file has."""
    first = {name.removeprefix("blocks.0.") for name in source.tensors if name.startswith("blocks.0.")}
    family = TIMM_VIT
    if "attn.q_proj.weight" in first:
        biases = tuple(f"{part}bias" if f"{part}bias" in first else None for part in APART)
        family = family._replace(attention=APART, biases=biases)
    elif "attn.q_bias" in first:
        family = family._replace(biases=BEIT_VIT.biases)
    if "mlp.fc1_g.weight" in first:
        family = family._replace(gates=("mlp.fc1_g", "mlp.fc1_x"))
    if "attn.proj.bias" not in first:
        family = family._replace(plain=False)
    if "gamma_1" in first:
        family = family._replace(scales=BEIT_VIT.scales)
    return family


ATTENTION_POOL = {
    "attention.query": "q",
    "attention.key_value": "kv",
    "attention.out": "proj",
    "norm": "norm",
    "mlp.expand": "mlp.fc1",
    "mlp.contract": "mlp.fc2",
}
# The pooling of ours: theirs, and whether it sees the prefix tokens, too.
POOLS = {
    "class": ("token", False),
    "class+distillation": ("token", False),
    "mean": ("avg", False),
    "mean-all": ("avg", True),
    "max": ("max", False),
    "mean+max": ("avgmax", False),
    "attention": ("map", False),
    "attention-all": ("map", True),
}
ATTENTIONS = Branches(
    "blocks.{}.attns.{}.",
    norm="norm",
    wide="attn.qkv",
    back="attn.proj",
    one=("blocks.{}.norm1", "blocks.{}.attn.qkv", "blocks.{}.attn.proj"),
    stacked=3,
    scale="ls.gamma",
)
MLPS = Branches(
    "blocks.{}.ffns.{}.",
    norm="norm",
    wide="mlp.fc1",
    back="mlp.fc2",
    one=("blocks.{}.norm2", "blocks.{}.mlp.fc1", "blocks.{}.mlp.fc2"),
    stacked=1,
    scale="ls.gamma",
)
# Arguments of VisionTransformer that the weights show, that `timm_facts` has, or that change nothing in use.
VISION_TRANSFORMER_ARGUMENTS = (
    *("img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth", "num_heads"),
    *("mlp_ratio", "qkv_bias", "qk_norm", "proj_bias", "init_values", "class_token", "no_embed_class"),
    *("reg_tokens", "pre_norm", "final_norm", "fc_norm", "pool_include_prefix", "act_layer", "weight_init"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
    *("dynamic_img_size", "strict_img_size", "fix_init", "use_post_norm"),
)
# Eva's arguments beside those that it shares with VisionTransformer.
EVA_ARGUMENTS = (
    *("use_rot_pos_emb", "use_abs_pos_emb", "rope_type", "rope_temperature", "rope_grid_offset"),
    *("rope_grid_indexing", "rope_rotate_half", "rope_shift_coords", "rope_jitter_coords"),
    *("rope_rescale_coords", "ref_feat_shape", "attn_type", "qkv_fused", "swiglu_mlp", "swiglu_align_to"),
    *("scale_mlp", "scale_attn_inner", "num_reg_tokens", "use_post_norm", "use_pre_transformer_norm"),
    *("use_post_transformer_norm", "use_fc_norm", "attn_pool_num_heads", "attn_pool_mlp_ratio"),
    *("dynamic_img_pad", "head_init_scale"),
)
# What Eva's rotary arguments are where neither config.json nor the architecture says.
DEFAULTS = {"rope_type": "cat", "rope_temperature": 10000.0, "rope_grid_indexing": "ij"}
# What EVA-02's own code calls what timm calls otherwise.
EVA_NAMES = {
    r"\.attn\.inner_attn_ln\.": ".attn.norm.",
    r"\.mlp\.ffn_ln\.": ".mlp.norm.",
    r"\.mlp\.w12\.": ".mlp.fc1.",
    r"\.mlp\.w1\.": ".mlp.fc1_g.",
    r"\.mlp\.w2\.": ".mlp.fc1_x.",
    r"\.mlp\.w3\.": ".mlp.fc2.",
}
APART_BIASES = {r"\.attn\.([qv])_bias": r".attn.\1_proj.bias"}
# The architectures of the image towers of EVA-02-CLIP, by width.
EVA_CLIP = {768: "eva02_base_patch16_clip_224.merged2b", 1024: "eva02_large_patch14_clip_224.merged2b"}
CROP_MODES = {"center": "crop", "squash": "squash", "border": "fit"}  # theirs: ours


def read_timm(source: Source, family: str = "timm's ViT", **images: Any) -> Spec:
    """Return the specification of a model under timm's names.

    Args:
        family, images: what it is used with, where nothing is said of its images.
    """
    branches = 1
    if "blocks.0.mlp.w3.weight" in source.tensors:
        source = under_timm_names(source)
    if "blocks.0.in_proj.weight" in source.tensors:
        source = with_parts_apart(source)
    if any(name.startswith(("blocks.0.attns.", "blocks.0.ffns.")) for name in source.tensors):
        source, branches = as_one_branch(source, (ATTENTIONS, MLPS))
    source.prefix("a timm checkpoint", ("",), "patch_embed.proj.weight", timm_naflex.PROJECTION)
    naflex = timm_naflex.PROJECTION in source.tensors
    # timm resamples positions and patches of these models without antialiasing, linearly
    linear = any(each in source.facts.name for each in ("flexi", "radio")) and not naflex
    interpolation, patches = ("timm-npz", "flexivit") if linear else (None, None)
    known = checked_arguments(source, naflex=naflex)
    if naflex:
        interpolation = timm_naflex.interpolation_of(known, source.where)
        source = timm_naflex.as_vision_transformer(source, known)
    fields, embedded = timm_fields(source, known)
    config = configured(ViTConfig, source, fields)
    if branches > 1:  # each with so many heads
        wide = {"heads": branches * config.heads, "head_dim": config.resolved_head_dim}
        config = ViTConfig.checked(config.model_dump(), wide)
    rows = timm_rows(config, embedded=embedded, family=family_of(source))
    if config.position.kind == "relative-bias":
        interpolation = "beit"
    look = timm_preprocessing(source, config, family, images)
    size = timm_naflex.used_size(source, config, sizes_of(source, known)) if naflex else None
    return Spec(
        source,
        config,
        rows,
        look,
        source.facts.labels,
        interpolation=interpolation,
        patch_interpolation=patches,
        used_size=size,
    )


def under_timm_names(source: Source) -> Source:
    """Put a checkpoint of EVA-02's own code under timm's names, without the angles that it stores. The rotary
    positions of EVA-02-CLIP, which no weight shows, are those of timm's architecture of the same width."""
    names = EVA_NAMES | (APART_BIASES if "blocks.0.attn.q_proj.weight" in source.tensors else {})
    named = source.under(names).renamed(lambda name: None if "rope.freqs_" in name else name)
    width = source.size("patch_embed.proj.weight", 0, ndim=4)
    if source.facts.name or width not in EVA_CLIP or not source.inside.endswith("visual."):
        return named
    source.assumed.append(f"rotary positions and heads of timm's {EVA_CLIP[width]}")
    return replace(named, facts=timm_facts({CONFIG: description_of(EVA_CLIP[width])}, named))


def checked_arguments(source: Source, *, naflex: bool) -> Statements:
    """Return the arguments of timm's VisionTransformer that no weight shows. Raises InputError: one of those
    that config.json states is not supported."""
    known = source.facts.model
    allowed = (
        *VISION_TRANSFORMER_ARGUMENTS,
        *(EVA_ARGUMENTS if "use_rot_pos_emb" in known else BEIT_ARGUMENTS),
    )
    allowed = timm_naflex.ARGUMENTS if naflex else allowed
    patches = timm_naflex.PROJECTION if naflex else "patch_embed.proj.weight"
    width, stated = source.shape(patches)[0], known.get("embed_dim")
    heads_given = "num_heads" in source.facts.arguments or "heads" in source.answers
    if stated not in (None, width) and not heads_given:
        raise InputError(
            f"{source.where}: its weights have a width of {width}, but it is described as "
            f"{source.facts.name or 'a model'}, whose width is {stated}: name its actual architecture, "
            "or pass heads="
        )
    for key in sorted(source.facts.arguments):
        if known.get(key) and key not in allowed:
            raise InputError(
                f"{source.where}: {key}={known[key]!r} of config.json's model_args is not supported"
            )
    return known


def timm_fields(source: Source, known: Mapping[str, object]) -> tuple[dict[str, object], bool]:
    """Return the configuration, and whether the prefix tokens have rows among the positions.

    Args:
        known: as `checked_arguments` returns it.
    """
    tensors = source.tensors
    names = family_of(source)
    tables = BEIT_SHARED_BIAS in tensors or BEIT_BIAS.format(0) in tensors
    if not known and not tables:
        check_not_eva(source, named=(names.scales, names.biases) != (TIMM_VIT.scales, TIMM_VIT.biases))
    shapes = shape_fields(source, names.rows())
    (p, q), channels, stride = shapes["patch_size"], shapes["channels"], 1
    stem: Mapping[str, object] = {"kind": "patch", "bias": "patch_embed.proj.bias" in tensors}
    if "patch_embed.norm.weight" in tensors:
        stem = {**stem, "form": "linear", "norm_after": True}
    if any(f"{root}.conv.weight" in tensors for root in RESNET_ROOTS):
        stem, channels, stride = resnet_stem(source)
    patch = (stride * p, stride * q)
    fields: dict[str, object] = {**shapes, "stem": stem, "channels": channels, "patch_size": patch}
    class_token, distilled = "cls_token" in tensors, "dist_token" in tensors
    registers = source.size_if_there("reg_token", 1, ndim=3) or 0
    prefix = int(class_token) + int(distilled) + registers
    sizes = sizes_of(source, known)
    biased = bias_fields(source, patch, BEIT_BIAS, BEIT_SHARED_BIAS, described=sizes) if tables else None
    size: object
    if biased:
        size, embedded = biased["image_size"], "pos_embed" in tensors
        biased["position"]["absolute"] = embedded
    else:
        size, embedded = size_and_rows(source, known, patch, prefix, stride)
    if type(known.get("num_heads")) is int:
        fields["heads"] = known["num_heads"]
    rotary = rotary_fields(source, known) if known.get("use_rot_pos_emb") else None
    if biased:
        fields["position"] = biased["position"]
    elif "pos_embed" in tensors:
        fields["position"] = {"kind": "learned", "rotary": rotary}
    else:
        fields["position"] = {"kind": "rotary-2d", "rotary": rotary or {}}
    inner_norms = {"attention": "blocks.0.attn.norm.weight", "mlp": "blocks.0.mlp.norm.weight"}
    clip = bool(shapes["extra_norms"])
    inner = [place for place, name in inner_norms.items() if name in tensors]
    last_norms = {"tokens": "norm.weight", "pooled": "fc_norm.weight"}
    pooling = timm_pooling(source, known, distilled=distilled)
    fields |= {
        "image_size": size,
        "norm_kind": "layer" if "blocks.0.norm1.bias" in tensors else "rms",
        "norm": "post-branch" if known.get("use_post_norm") else "pre",
        "qkv_bias": any(f"blocks.0.{each}" in tensors for each in names.biases or ("attn.qkv.bias",)),
        "extra_norms": (*shapes["extra_norms"], *inner),
        "class_token": class_token,
        "registers": registers,
        "final_norm": next((where for where, name in last_norms.items() if name in tensors), "none"),
        "pooling": pooling,
    }
    if pooling.startswith("attention"):
        hidden = source.size("attn_pool.mlp.fc1.weight", 0, ndim=2)
        fields["pooling"] = {
            "kind": pooling,
            "heads": known.get("attn_pool_num_heads"),
            "mlp_dim": None if hidden == shapes["mlp_dim"] else hidden,
        }
    if shapes["mlp"] == "gelu":
        fields["mlp"] = activation_of(source, "act_layer", known.get("act_layer", "gelu"))
    elif "act_layer" in source.facts.arguments and known["act_layer"]:  # Eva's is fixed, and has none
        fields["mlp"] = GATED[activation_of(source, "act_layer", known["act_layer"])]
    fields["norm_eps"] = known.get("norm_eps", 1e-5 if clip else 1e-6)
    if not known:
        assume(source, shapes, fields)
    return fields, embedded


def size_and_rows(
    source: Source, known: Mapping[str, Any], patch: tuple[int, int], prefix: int, stride: int
) -> tuple[object, bool]:
    """Return the image size, and whether the prefix tokens have rows among the positions; `stride` as in
    `image_size_of`."""
    sizes = sizes_of(source, known)
    if "pos_embed" not in source.tensors and known.get("use_rot_pos_emb"):
        given = (as_pair(size) for size in (source.specified.get("image_size"), *sizes))
        return next((size for size in given if size), None) or asked_image_size(source), False
    table = source.size("pos_embed", 1, ndim=3)
    rowless = known.get("no_embed_class", False if source.facts.name else None)
    counts = [table - prefix, table] if rowless is None else [table if rowless else table - prefix]
    size = image_size_of(source, patch, *counts, described=sizes, stride=stride)
    return size, prod(grid_of(size, patch, stride)) == table - prefix


def sizes_of(source: Source, known: Mapping[str, object]) -> list[object]:
    """Return the image sizes that its descriptions tell."""
    size = source.facts.images.get("input_size")
    size = size[1:] if isinstance(size, list) and len(size) == 3 else None
    return [known.get("img_size"), *source.facts.image_sizes, size, known.get("default_size")]


def rotary_fields(source: Source, known: Mapping[str, object]) -> dict[str, object]:
    """Return the rotary positions that Eva's arguments describe. Raises InputError: an unknown kind."""
    kind, temperature, indexing = (known.get(name, default) for name, default in DEFAULTS.items())
    offset = number_of(known.get("rope_grid_offset") or 0, f"{source.where}: rope_grid_offset")
    if kind not in ("cat", "dinov3", "mixed") or indexing not in ("ij", "xy"):
        raise InputError(f"{source.where}: rope_type={kind!r} of timm is not supported")
    fields: dict[str, object] = {
        "temperature": number_of(temperature, f"{source.where}: rope_temperature"),
        "pairs": "halves" if known.get("rope_rotate_half") else "interleaved",
        "axes": "yx" if indexing == "ij" else "xy",
    }
    if kind == "dinov3" and offset:
        raise InputError(
            f"{source.where}: rope_grid_offset={offset} with rope_type='dinov3' is not supported"
        )
    if kind == "dinov3":
        return fields | {"coordinates": "centered"}
    if kind == "mixed":
        return fields | {"kind": "mixed"}
    reference = as_pair(known.get("ref_feat_shape"))
    return fields | {"offset": offset, "reference": reference}


def check_not_eva(source: Source, *, named: bool) -> None:
    """Refuse a state dict alone that is of an Eva, or of a Perception Encoder.

    Args:
        named: whether its encoder layers have names that VisionTransformer's have not.

    Raises:
        InputError: such a model has rotary positions, which no weight shows.
    """
    tensors = source.tensors
    inner = any(f"blocks.0.{each}.norm.weight" in tensors for each in ("attn", "mlp"))
    ended = "norm.weight" in tensors or "fc_norm.weight" in tensors
    encoder = "norm_pre.weight" in tensors and (not ended or "attn_pool.latent" in tensors)
    if named or inner or encoder or "pos_embed" not in tensors:
        raise InputError(
            f"{source.where}: a state dict of timm's Eva does not store its rotary positions: pass "
            "like='timm:NAME' with the architecture's name (such as timm:deit3_base_patch16_224)"
        )


def assume(source: Source, shapes: ShapeFields, fields: Mapping[str, object]) -> None:
    """Note what a state dict alone leaves open. Raises InputError: the activation of a CLIP, of which there
    are two kinds.

    Args:
        shapes: what the weights show; `fields`: all that is read.
    """
    if "tokens" in shapes["extra_norms"] and fields["mlp"] != "swiglu" and "mlp" not in source.specified:
        raise InputError(
            f"{source.where}: a state dict of a CLIP does not store its activation: pass mlp='gelu' or "
            "mlp='quick_gelu', or like='timm:NAME' with the architecture's name"
        )
    open_questions = [name for name in ("mlp", "norm_eps", "pooling") if name not in source.specified]
    if guessed := ", ".join(f"{name}={part_kind(fields[name])}" for name in open_questions):
        source.assumed.append(f"{guessed} (or pass like='timm:NAME' with the architecture's name)")


def timm_pooling(source: Source, known: Mapping[str, object], *, distilled: bool) -> str:
    """Return the pooling: as config.json says, or as the weights suggest."""
    attention, class_token = "attn_pool.latent" in source.tensors, "cls_token" in source.tensors
    average = not class_token or "fc_norm.weight" in source.tensors
    pool = known.get("global_pool", "map" if attention else "avg" if average else "token")
    if pool == "" and "head.weight" in source.tensors and "pooling" not in source.specified:
        raise InputError(
            f"{source.where}: global_pool='' of config.json gives logits of every token, which are not known "
            "here: pass pooling='class' or pooling='mean' for those of an image"
        )
    if pool == "":  # every token, of which the user says what is made
        pool = "map" if attention else "avg" if average else "token"
        if "pooling" not in source.specified:
            source.assumed.append(
                f"pooling={'mean' if average else 'class'}, where global_pool='' gives every token (or pass "
                "pooling=; model.tokens gives them here)"
            )
    if distilled and pool == "token":
        return "class+distillation"
    eva = "use_rot_pos_emb" in known  # whose attention pooling sees all tokens
    every = bool(known.get("pool_include_prefix") or (eva and attention)) and pool != "token"
    every = every and (class_token or "reg_token" in source.tensors)
    found = next((ours for ours, theirs in POOLS.items() if theirs == (pool, every)), None)
    if found is None or attention != (pool == "map"):
        raise InputError(f"{source.where}: global_pool={pool!r} is not supported for these weights")
    return found


def timm_preprocessing(
    source: Source, config: ViTConfig, family: str, usual: Mapping[str, Any]
) -> Preprocessing:
    """Return what is said of its images, each field by itself; of none as those of a family are."""
    described = source.facts.images
    if "mean" not in described and source.facts.size and not usual:  # of a name that is not timm's
        family = "DeiT, DINO and MAE"
        usual = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "crop_fraction": 0.875}
    if "mean" not in described:
        return assumed_preprocessing(source, config, family, **(usual or {"crop_fraction": 0.9}))
    fraction = described["crop_pct"]
    if isinstance(fraction, int | float) and fraction > 1:
        raise InputError(
            f"{source.where}: crop_pct={fraction} of pretrained_cfg is not supported: a crop can be no "
            "larger than the image (crop_pct=1)"
        )
    if described["crop_mode"] == "border" and fraction != 1:
        source.assumed.append(f"the whole image within borders, not the crop_pct={fraction} of it")
    try:
        return Preprocessing(
            size=config.image_size,
            channels=config.channels,
            resize=CROP_MODES.get(described["crop_mode"], "crop"),
            crop_fraction=fraction,
            interpolation=described["interpolation"],
            mean=tuple(described["mean"]),
            std=tuple(described["std"]),
        )
    except (ValueError, TypeError):
        raise InputError(f"{source.where}: pretrained_cfg of config.json is not understood") from None


def timm_rows(config: ViTConfig, *, embedded: bool = True, family: Family = TIMM_VIT) -> list[WeightRow]:
    """Return the whole table.

    Args:
        embedded: the class token (and the registers) have rows among the positions.
        family: how the encoder layers are named.
    """
    attention_pool = "pool.pool." if config.final_norm == "pooled" else "pool."
    rows = family._replace(positioned=None if embedded else ()).table(config)
    if config.stem.kind == "patch" and config.stem.norm_after:
        rows += pairs({"stem.norm_after": "patch_embed.norm"})
    if config.position.kind == "relative-bias":
        rows += bias_rows(config, BEIT_BIAS, BEIT_SHARED_BIAS)
    if config.rotary is not None and config.rotary.kind == "mixed":
        rows.append(frequencies_row(config.depth))
    if config.stem.kind == "resnet":
        rows += hybrid_rows(config.stem.layers)
    if config.final_norm == "pooled":
        rows += pairs({"pool.norm": "fc_norm"})
    if config.pooling.kind.startswith("attention"):
        rows += [
            same(f"{attention_pool}probe", "attn_pool.latent"),
            *pairs(ATTENTION_POOL, attention_pool, "attn_pool."),
        ]
    return rows


def frequencies_row(depth: int) -> WeightRow:
    """Return the learned frequencies of all layers, which timm keeps in one tensor (2, L, K, D_h / 2)."""

    def write(*layers: Tensor) -> tuple[Tensor, ...]:
        return (torch.stack(layers, dim=1),)

    ours = tuple(f"blocks.{layer}.attention.position.frequencies" for layer in range(depth))
    return WeightRow(ours, ("rope.freqs",), lambda t: tuple(t.unbind(1)), write)


# The ResNetV2 of a hybrid.
RESNET_NAMES = {name: name for name in ("conv1", "conv2", "conv3", "norm1", "norm2", "norm3")} | {
    "shortcut.0": "downsample.conv",
    "shortcut.1": "downsample.norm",
}
# Its root; a ResNet that is its root alone has no `stem` in the name.
RESNET_ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def resnet_root(layers: tuple[int, ...]) -> str:
    return RESNET_ROOTS[0] if layers else RESNET_ROOTS[1]


def hybrid_rows(layers: tuple[int, ...]) -> list[WeightRow]:
    """Return the table of a ResNet with so many units in each stage."""
    root, units = resnet_root(layers), "patch_embed.backbone.stages.{}.blocks.{}."
    return [
        *pairs({"root": f"{root}.conv", "root_norm": f"{root}.norm"}, "stem.backbone."),
        *pairs(RESNET_NAMES, "stem.backbone.stages.{}.{}.", units),
    ]


def resnet_stem(source: Source) -> tuple[Mapping[str, object], int, int]:
    """Return the ResNetV2 of a hybrid, the channels of its images, and its stride in pixels."""
    stages = "patch_embed.backbone.stages.{}.blocks.{}.conv3.weight"
    layers = source.units(stages, first=0)
    root, channels = (source.size(f"{resnet_root(layers)}.conv.weight", axis, ndim=4) for axis in (0, 1))
    stem = {
        "kind": "resnet",
        "layers": layers,
        "widths": tuple(source.size(stages.format(i, 0), 0, ndim=4) for i in range(len(layers))),
        "width_factor": root / 64,
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }
    return stem, channels, 4 * 2 ** max(len(layers) - 1, 0)
