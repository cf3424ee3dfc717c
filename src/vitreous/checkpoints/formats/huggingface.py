"""Hugging Face transformers: ViT, DeiT, Dinov2 (with registers), the encoder of ViTMAE, and the image towers
of CLIP and SigLIP. What a state dict does not tell (heads, activation, LayerNorm eps) stands in config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isqrt

from torch import Tensor

from vitreous.checkpoints.format import (
    POSITIONED,
    Spec,
    activation_of,
    as_pair,
    asked_image_size,
    configured,
    image_size_of,
    kernel_of,
    shape_fields,
)
from vitreous.checkpoints.formats import huggingface_families as families
from vitreous.checkpoints.formats.dinov3 import is_dinov3_vit, read_dinov3_vit
from vitreous.checkpoints.formats.huggingface_configs import check_fields
from vitreous.checkpoints.formats.huggingface_preprocessing import (
    cropped_size,
    labels_of,
    preprocessing_of,
    task_of,
)
from vitreous.checkpoints.formats.relative_bias import bias_fields, bias_rows
from vitreous.checkpoints.source import Source, Statements, whole_number_of
from vitreous.checkpoints.weights import (
    WeightRow,
    converted,
    no_head_bias,
    query_and_key_value,
    same,
)
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig

UNUSED = ("mask_token", "embeddings.mask_token", "embeddings.position_ids")

OUR_ANGLES = "blocks.0.attention.position.class_angles"


def read_huggingface(source: Source) -> Spec:
    if is_dinov3_vit(source):
        return read_dinov3_vit(source)
    known = (families.VIT, families.CLIP, families.TIPS)
    patches = [f"{family.names['stem.projection']}.weight" for family in known]
    if not any(name in source.tensors for name in patches):  # recognized by its description: a larger model
        inner: list[str] = []
        for name in source.tensors:
            inner += [name.removesuffix(each) for each in patches if name.endswith(f".{each}")]
        source = source.below(inner[0]) if len(inner) == 1 else source
    source.prefix("a transformers checkpoint of a ViT", ("",), *patches)
    source = with_names_of_families(source)
    check_fields(source)
    if naflex := "siglip2" in source.facts.name:
        source = of_one_size(source)
    family = family_of(source)
    classifier = family is families.CLIP and "classifier.weight" in source.tensors
    if classifier:  # on the mean of the patches, before the last norm
        family = families.CLIP_CLASSIFIER
    fields = huggingface_fields(source, family)
    if classifier:
        fields |= {"pooling": "mean", "final_norm": "none"}
    config = configured(ViTConfig, source, fields)
    unused = [name for name in UNUSED if name in source.tensors]
    if classifier:
        unused += [name for name in source.tensors if name.startswith("post_layernorm.")]
    if family is families.SIGLIP and config.pooling.kind == "mean":
        # SiglipForImageClassification does not use its pooling head
        unused += [name for name in source.tensors if name.startswith("head.")]
    return Spec(
        source,
        config,
        huggingface_rows(config, family),
        preprocessing_of(source, config),
        labels_of(source, config.num_classes),
        tuple(unused),
        None if family is families.CLIP else task_of(source),
        interpolation="flexivit" if naflex else interpolation_of(family, config),
        used_size=used_size(source, family, config),
    )


def with_names_of_families(source: Source) -> Source:
    """Return a checkpoint with the names that the tables of families have, whichever release or class of
    transformers wrote it. Raises InputError: it is of a model in memory, of another form."""
    if "encoder.layer.0.layernorm_before.weight" in source.left_out:
        # transformers 5 writes the layers of a ViTMSN outside of the prefix vit. that the rest has
        layers = {n: entry for n, entry in source.left_out.items() if n.startswith("encoder.layer.")}
        rest = {n: entry for n, entry in source.left_out.items() if n not in layers}
        source = replace(source, tensors=source.tensors | layers, left_out=rest)
    internvl = families.INTERNVL.layer.format(0) + "attention.projection_layer.weight" in source.tensors
    if "embeddings.patch_embeddings.projection.weight" in source.tensors and not internvl:
        source = source.renamed(families.published_name)
    if "encoder.layer.0.mlp.gate_proj.weight" in source.tensors:
        raise InputError(
            f"{source.where}: the halves of the SwiGLU are separate, as transformers 5 holds them in memory: "
            "save the model with save_pretrained, or pass the model itself to vt.load"
        )
    if "classifier.weight" in source.tensors:  # which no classifier of transformers puts on the pooler
        source = source.without(name for name in source.tensors if name.startswith("pooler.dense."))
    if "embeddings.class_embedding" in source.tensors:  # OWL-ViT and AltCLIP, as CLIP
        names = {r"^encoder\.layer\.": "encoder.layers.", r"pre_layernorm\.": "pre_layrnorm."}
        source = source.under(names)
    return source


def interpolation_of(family: families.Family, config: ViTConfig) -> str | None:
    """Return how a family resamples its positions, where it is not as the others do."""
    if family is families.TIPS:
        return "flexivit"
    if config.position.kind == "relative-bias":
        return "timm-npz"
    return "timm" if family is families.DINOV2 and config.registers else None


def used_size(source: Source, family: families.Family, config: ViTConfig) -> tuple[int, int] | None:
    """Return the size of the images that a Dinov2 is used with: what its preprocessing makes, for which its
    own code resamples the positions without a word; None where that is the size of the positions."""
    size = cropped_size(source) if family is families.DINOV2 else None
    fits = size and not any(side % patch for side, patch in zip(size, config.patch_size, strict=True))
    if not fits or size == config.image_size or "image_size" in source.specified:
        return None
    source.assumed.append(
        f"images of {size}, as preprocessor_config.json makes them, for positions of {config.image_size}"
    )
    return size


def of_one_size(source: Source) -> Source:
    """Return a SigLIP 2 for images of any shape (NaFlex) as a SigLIP for those that its table of positions
    fits: its flat patches (rows, columns, channels) as a convolution. Other sizes are resampled afterwards,
    as its own code does."""
    patches, positions = "embeddings.patch_embedding.weight", "embeddings.position_embedding.weight"
    if len(source.shape(patches)) == 4:
        return source
    channels = whole_number_of(source.facts.model.get("num_channels", 3), f"{source.where}: num_channels")
    patch, side = isqrt(source.size(patches, 1, ndim=2) // channels), isqrt(source.positions(positions))
    if channels * patch**2 != source.size(patches, 1, ndim=2) or side**2 != source.positions(positions):
        raise InputError(f"{source.where}: its patches or its table of positions are not square")
    if "image_size" not in source.specified:
        source.assumed.append(
            f"images of {side * patch}x{side * patch}, one size for all (or pass image_size=)"
        )
    kernel = kernel_of(source.tensors[patches], channels, (patch, patch))
    # the table is square, whatever size is asked for
    answers = {name: value for name, value in source.answers.items() if name != "image_size"}
    model = Statements({**source.facts.model, "image_size": side * patch}, source.where)
    return replace(
        source,
        tensors=source.tensors | {patches: kernel},
        facts=replace(source.facts, model=model),
        answers=answers,
    )


def family_of(source: Source) -> families.Family:
    """Return the family, from the names of the weights."""
    if families.CLASS_ANGLES in source.tensors:
        return families.MLCD
    if families.INTERNVIT.layer.format(0) + "attn.qkv.weight" in source.tensors:
        return families.INTERNVIT
    if families.BLIP.layer.format(0) + "self_attn.qkv.weight" in source.tensors:
        return families.BLIP
    if families.JANUS.layer.format(0) + "self_attn.projection_layer.weight" in source.tensors:
        return families.JANUS
    if "embeddings.patch_embedding.weight" in source.tensors:
        return families.CLIP if "embeddings.class_embedding" in source.tensors else families.SIGLIP
    if "patch_embed.proj.weight" in source.tensors:
        return families.TIPS
    if "encoder.layer.0.attention.projection_layer.weight" in source.tensors:
        return families.INTERNVL
    if any(name.endswith((".lambda_1", "relative_position_bias_table")) for name in source.tensors):
        return families.BEIT
    return families.DINOV2 if "encoder.layer.0.norm1.weight" in source.tensors else families.VIT


def huggingface_fields(source: Source, family: families.Family) -> dict[str, object]:
    """Return the configuration from shapes and config.json."""
    tensors, described = source.tensors, source.facts.model
    layer = family.layer.format(0)
    shown = family.rows(gated=any(f"{layer}{each}.weight" in tensors for each in family.gates))
    if family is families.CLIP:
        shown.append(same("head.weight", "visual_projection.weight"))
    shapes = shape_fields(source, shown)
    mlp, qk_norm = shapes["mlp"], shapes["qk_norm"]
    activation = described.get("hidden_act", family.activation)
    if (
        family in (families.CLIP, families.CLIP_CLASSIFIER)
        and "hidden_act" not in described
        and "mlp" not in source.specified
    ):
        raise InputError(
            f"{source.where}: a state dict of a CLIP does not store its activation: pass mlp='quick_gelu' "
            "for OpenAI's models, mlp='gelu' for most others, or keep its config.json next to it"
        )
    if mlp == "gelu":
        mlp = activation_of(source, "hidden_act", activation)
    if shapes["representation_size"] and described.get("pooler_act", "tanh") != "tanh":
        raise InputError(
            f"{source.where}: a pooler with {described['pooler_act']!r} is not supported, only tanh"
        )
    class_token, second = (name in tensors for name in map(family.tokens.get, POSITIONED))
    distilled = "distillation_classifier.weight" in tensors
    more = family.tokens.get("registers", "")
    registers = 0 if "distillation" in more else source.size_if_there(more, 1, ndim=3) or 0
    norm_kind = "layer" if f"{layer}{family.layer_names['attention_norm']}.bias" in tensors else "rms"
    if f"{layer}{family.layer_names.get('attention.query_norm.norm')}.weight" in tensors:
        qk_norm = "layer"
    rms = norm_kind == "rms"
    if (rms and "layernorm.bias" in tensors) or (qk_norm == "layer" and not rms):
        raise InputError(f"{source.where}: RMSNorm together with LayerNorm is not supported")
    fields = {
        **shapes,
        **positions_of(source, family, shapes["patch_size"], class_token + second),
        "mlp": mlp,
        "qk_norm": qk_norm,
        "norm_eps": described.get("layer_norm_eps", family.eps),
        "stem": {"kind": "patch", "bias": f"{family.names['stem.projection']}.bias" in tensors},
        "norm_kind": norm_kind,
        "qkv_bias": f"{layer}{family.attention[0]}bias" in tensors,
        "class_token": class_token,
        "registers": registers + (second and not distilled),
        "pooling": pooling_of(source, family, shapes["width"], distilled=distilled),
    }
    if type(heads := described.get("num_attention_heads")) is int:
        fields["heads"] = heads
    if family is families.BLIP:  # its last norm is on the tokens, and again on the class token
        fields["final_norm"] = "both"
    if family is families.INTERNVL:
        fields["pooling"] = "mean" if described.get("use_mean_pooling", True) else "class"
    if family in (families.BEIT, families.INTERNVL, families.INTERNVIT):
        norms = {"tokens": "layernorm.weight", "pooled": "pooler.layernorm.weight"}
        fields["final_norm"] = next((where for where, name in norms.items() if name in tensors), "none")
    if open_questions := {"layer_norm_eps", "hidden_act"} - described.keys():
        usual = {"layer_norm_eps": f"LayerNorm eps {family.eps}", "hidden_act": mlp}
        stated = " and ".join(usual[name] for name in sorted(open_questions, reverse=True))
        source.assumed.append(f"{stated}, since no config.json was read")
    return fields


def positions_of(
    source: Source, family: families.Family, patch: tuple[int, int], tokens: int
) -> Mapping[str, object]:
    """Return the positions and the image size that they tell.

    Args:
        tokens: before the patches, that have a position.
    """
    size = source.facts.model.get("image_size")
    if family is families.MLCD:
        wished = as_pair(source.specified.get("image_size")) or size
        theta = source.facts.model.part("rope_parameters").get("rope_theta")
        rotary = {"temperature": theta or 10_000.0, "pairs": "halves", "axes": "yx", "class_angles": True}
        return {
            "image_size": wished if as_pair(size) else asked_image_size(source),
            "position": {"kind": "rotary-2d", "shared": True, "rotary": rotary},
        }
    if family is not families.BEIT:
        positions = source.positions(family.positions) - tokens
        return {"image_size": image_size_of(source, patch, positions, described=[size])}
    biased = bias_fields(source, patch, families.BIAS, families.SHARED_BIAS, described=[size])
    if biased is None and family.positions in source.tensors:
        return positions_of(source, families.VIT, patch, tokens)
    if biased is None:
        return {"image_size": size, "position": {"kind": "none"}}
    rows, columns = (side // p for side, p in zip(biased["image_size"], patch, strict=True))
    if rows != columns:
        raise InputError(
            f"{source.where}: transformers' tables of relative positions are supported for square images only"
        )
    biased["position"]["absolute"] = family.positions in source.tensors
    return biased


def pooling_of(source: Source, family: families.Family, width: int, *, distilled: bool) -> str:
    if distilled:
        return "class+distillation"
    classifier = "classifier.weight" in source.tensors
    if family is families.SIGLIP:
        return "attention" if "head.probe" in source.tensors and not classifier else "mean"
    # Dinov2ForImageClassification sees the class token and the mean of the patches.
    wide = classifier and source.size("classifier.weight", 1, ndim=2) == 2 * width
    if family.tokens["class_token"] not in source.tensors or "pooler.layernorm.weight" in source.tensors:
        return "mean"  # I-JEPA, BEiT
    return "class+mean" if wide else "class"


def huggingface_rows(config: ViTConfig, family: families.Family) -> list[WeightRow]:
    rows = [
        *family.table(config),
        same("pool.probe", "head.probe"),
        converted(OUR_ANGLES, families.CLASS_ANGLES, Tensor.flatten, lambda angles: angles[None]),
        *query_and_key_value("pool.attention", "head.attention"),
    ]
    if family is families.BLIP:
        for kind in ("weight", "bias"):  # one norm, used twice
            ours, theirs = (f"norm.{kind}", f"pool.norm.{kind}"), (f"post_layernorm.{kind}",)
            rows.append(WeightRow(ours, theirs, lambda t: (t, t), lambda t, _: (t,)))
    if config.position.kind == "relative-bias":
        rows += bias_rows(config, families.BIAS, families.SHARED_BIAS)
    if family is families.CLIP:
        rows.append(same("head.weight", "visual_projection.weight"))
        rows += [] if config.num_classes is None else [no_head_bias(config.num_classes)]
    return rows
