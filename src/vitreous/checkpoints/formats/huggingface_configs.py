"""What transformers' config.json means: the defaults of each class of configurations, in a table that comes
with the package; where the description of an image tower is inside that of a larger model; and which of its
fields change what is computed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypedDict

from vitreous.checkpoints.source import CONFIG, Documents, Facts, File, Source, Statements
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.errors import InputError

# Fields that the readers take, and those whose meaning the names and shapes of the weights show.
READ = (
    *("num_attention_heads", "hidden_act", "layer_norm_eps", "rms_norm_eps", "image_size", "patch_size"),
    *("num_channels", "pooler_act", "rope_theta", "rope_parameters", "use_mean_pooling", "num_patches"),
    *(
        "max_img_size",
        "norm_mean",
        "norm_std",
        "num_cls_tokens",
        "num_registers",
        "patch_dim",
        "summary_idxs",
    ),
)
SHOWN = (
    *("hidden_size", "num_hidden_layers", "intermediate_size", "mlp_ratio", "qkv_bias", "query_bias"),
    *("key_bias", "value_bias", "attention_bias", "use_qk_norm", "norm_type", "num_register_tokens"),
    *("layerscale_value", "layer_scale_init_value", "use_swiglu_ffn", "use_gated_mlp", "projection_dim"),
    *("pooler_output_size", "use_mask_token", "mask_token", "use_absolute_position_embeddings"),
    *("use_relative_position_bias", "use_shared_relative_position_bias", "vision_use_head", "use_head"),
    *("is_native", "mlp_bias", "proj_bias", "embed_dim"),
)
# Fields of training, of parts after the tower, and of backbones, which choose among its layers.
IRRELEVANT = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "projection_dropout"),
    *("hidden_dropout", "hidden_dropout_rate", "dropout", "drop_path_rate", "initializer_range"),
    *("initializer_factor", "encoder_stride", "vocab_size", "pos_embed_shift", "pos_embed_jitter"),
    *("pos_embed_rescale", "decoder_num_attention_heads", "decoder_hidden_size", "decoder_num_hidden_layers"),
    *("decoder_intermediate_size", "mask_ratio", "norm_pix_loss", "apply_layernorm", "reshape_hidden_states"),
    *("stage_names", "out_features", "out_indices", "pool_scales", "use_auxiliary_head", "add_fpn"),
    *("auxiliary_loss_weight", "auxiliary_channels", "auxiliary_num_convs", "auxiliary_concat_input"),
    *("semantic_loss_ignore_index", "semantic_classifier_dropout", "backbone_out_indices", "readout_type"),
    *("reassemble_factors", "neck_hidden_sizes", "fusion_hidden_size", "head_in_index", "add_projection"),
    *("use_batch_norm_in_fusion_residual", "use_bias_in_fusion_residual", "backbone_featmap_shape"),
    *("neck_ignore_stages", "depth", "num_image_tokens", "hidden_stride", "num_visual_indicator_tokens"),
    *("tokenize_function", "video_temporal_patch_size", "video_patch_dim", "image_token_id", "feature_layer"),
)
# Fields of every configuration, of parts of the library and not of the model.
OF_THE_LIBRARY = (
    *(
        "architectures",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "license",
        "model_type",
        "dtype",
    ),
    *("torch_dtype", "transformers_version", "auto_map", "return_dict", "output_attentions", "use_cache"),
    *("output_hidden_states", "torchscript", "use_bfloat16", "finetuning_task", "chunk_size_feed_forward"),
    *("is_encoder_decoder", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("attn_implementation", "gradient_checkpointing", "name_or_path"),
)
# The entries of a larger model's config.json that may describe its image tower.
TOWERS = ("vlm_config", "vision_config", "backbone_config", "image_config", "encoder")


OF_THE_WHOLE = ("architectures", "id2label", "label2id", "problem_type", "license")
# Of the code beside the files of OpenGVLab/InternViT-*.
INTERNVIT: dict[str, object] = {
    "num_attention_heads": 25,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 224,
}


class Registry(TypedDict):
    """What transformers' own classes say.

    Attributes:
        configs: by model_type the fields with their defaults.
        processors: the same of image processors.
        usual: by model_type its image processor.
    """

    configs: dict[str, dict[str, object]]
    processors: dict[str, dict[str, object]]
    usual: dict[str, str]


@cache
def registry() -> Registry:
    """Return the table that comes with the package, and InternViT's own code."""
    table: Registry = json.loads(Path(__file__).with_name("huggingface_configs.json").read_bytes())
    table["configs"]["intern_vit_6b"] = INTERNVIT
    return table


def defaults() -> Mapping[str, dict[str, object]]:
    """Return the fields of each model_type that is known here, with transformers' defaults."""
    return registry()["configs"]


def towers(config: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield the descriptions that may be of the image tower, the innermost first."""
    for name in TOWERS:
        if isinstance(inner := config.get(name), dict):
            yield from towers(inner)
            yield inner


def model_type_of(config: Mapping[str, object]) -> str:
    """Return the model_type of the image tower in a description; where it is not stated, that of the larger
    model with the ending that towers have."""
    inner = next(towers(config), None)
    outer = str(config.get("model_type", ""))
    stated = outer if inner is None else inner.get("model_type")
    # Files of transformers 4 state the one of the whole in the tower.
    if stated:
        return str(stated) if stated in defaults() else with_ending(str(stated))
    return with_ending(outer)


def with_ending(kind: str) -> str:
    """Return the model_type of the tower of a larger model, which is that with an ending."""
    endings = (f"{kind}_{ending}" for ending in ("vision_model", "image_model", "vision"))
    return next((name for name in endings if name in defaults()), kind)


CONVOLUTIONS = "convolutions instead of attention"
# Of transformers' other models of images: the part that is not supported, and their model_types.
UNKNOWN_PARTS = {
    "rotary positions of another kind": ("pixtral", "llama4_vision_model", "qwen2_vl_vision"),
    "detection tokens": ("yolos",),
    "windowed attention": (
        *("vitdet", "sam", "sam_vision_model", "sam_hq", "swin", "swinv2", "maskformer-swin", "donut-swin"),
        *("got_ocr2_vision", "qwen2_5_vl_vision"),
    ),
    CONVOLUTIONS: (
        *("convnext", "convnextv2", "dinov3_convnext", "resnet", "regnet", "efficientnet"),
        *("bit", "mobilenet_v1", "mobilenet_v2"),
    ),
    "tubes of several images": ("videomae", "vjepa2", "timesformer", "vivit", "xclip_vision_model"),
    "patches with borders around the image (padding)": ("vitpose", "vitpose_backbone"),
    "layers that pool their tokens": ("hiera", "mvit"),
    "a pyramid of maps": ("segformer", "glpn", "pvt", "pvt_v2", "focalnet", "poolformer"),
    "convolutions between its layers": ("levit", "mobilevit", "mobilevitv2", "cvt", "efficientformer"),
    "one encoder of text and images": ("vilt", "layoutlmv2", "layoutlmv3", "bridgetower"),
    "tokens of groups": ("groupvit_vision_model",),
    "tiles of one image with gated layers": ("mllama_vision_model",),
    "positions of rows and columns": ("pix2struct_vision_model", "kosmos_2_5_vision_model"),
    "queries among the tokens": ("eomt", "eomt_dinov3", "mgp-str"),
    "several class tokens": ("pixio",),
    "a prompt of images": ("seggpt",),
    "crops of one image with fractional positions": ("phi4_multimodal_vision",),
    "patches of a spectrogram": ("audio-spectrogram-transformer",),
    "attention over channels and windows (DaViT)": ("florence_vision", "florence2", "davit"),
    "rotary positions in addition to interpolated ones, and patches in time": (
        *("glm4v_vision", "glm4v", "glm4v_moe_vision", "glm4v_moe"),
    ),
}


# Models of another kind that are known, too.
OTHERS = ("timm_wrapper", "marian", "vision-encoder-decoder")


def check_family(file: File, known: bool) -> None:
    """Refuse a model of transformers that has a part which is not supported, by its name.

    Args:
        known: whether it must be one of those that are known.
    """
    for described in (file.description, *towers(file.description)):
        for part, kinds in UNKNOWN_PARTS.items():
            if (kind := described.get("model_type")) in kinds:
                what = (
                    "is not a Vision Transformer"
                    if part is CONVOLUTIONS
                    else "has a part that is not supported"
                )
                raise InputError(f"{file.where}: {kind} of transformers {what}: {part}")
    if any("architecture" in tower for tower in towers(file.description)):
        return  # timm's, inside
    kind = model_type_of(file.description)
    if known and kind and kind not in defaults() and file.description.get("model_type") not in OTHERS:
        raise InputError(
            f"{file.where}: {kind} of transformers is not among the supported models; if it is "
            "one of them under another name, pass format='huggingface'"
        )


def with_dicts(config: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Return a config.json whose towers are as transformers makes them where it has a `vision_config_dict`,
    of releases before 4.27, beside `vision_config`: the first wins, with the defaults of its class for what
    it leaves out. And where the two disagree, a sentence."""
    found, conflicts = dict(config), []
    for name in TOWERS:
        stated = config.get(f"{name}_dict")
        if not isinstance(stated, dict):
            continue
        other = config.get(name)
        other = other if isinstance(other, dict) else {}
        kind = model_type_of({**config, name: {**other, **stated}})
        merged = {**other, **defaults().get(kind, {}), **stated}
        found[name] = merged
        for field, value in other.items():
            if field in defaults().get(kind, {}) and merged[field] != value:
                conflicts.append(
                    f"{field}={merged[field]!r} of {name}_dict is taken, as transformers does, not "
                    f"{field}={value!r} of {name}"
                )
    return found, conflicts


def transformers_facts(documents: Documents, source: Source) -> Facts:
    """Return what is said of the image tower, over the defaults of transformers' class, and of its images,
    over those of its image processor. Raises InputError: the processor, or a field of it, is not known
    here."""
    config, conflicts = with_dicts(documents.get(CONFIG, {}))
    kind, inner = model_type_of(config), next(towers(config), None)
    stated, whole = config if inner is None else inner, {} if inner is None else config
    if inner is not None:  # the labels, and the class, are of the whole
        stated = {name: value for name, value in inner.items() if name not in OF_THE_WHOLE}
    named = {"model_type": kind} if kind else {}
    model = {**whole, **defaults().get(kind, {}), **stated, **named}
    images, left_open = images_of(documents, kind, inside=inner is not None, where=source.where)
    plain = plain_facts(documents, source)
    return Facts(
        name=kind,
        model=Statements(model, source.where),
        arguments=frozenset(stated),
        images=Statements(images, source.where),
        fields={} if config else plain.fields,
        size=plain.size,
        image_sizes=() if config else plain.image_sizes,
        conflicts=tuple(conflicts),
        open=tuple(left_open),
    )


# The image processors that are known here go by the name of their class without its ending.
ENDING = re.compile("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$")
# Of a processor for the fields that change what is computed, the value that is known here.
ONLY = {
    **dict.fromkeys(("do_pad", "keep_aspect_ratio", "rescale_offset", "do_flip_channel_order"), False),
    **dict.fromkeys(("do_thumbnail", "do_align_long_axis", "do_image_splitting"), False),
    "crop_pct": None,
    "ensure_multiple_of": 1,
}


def images_of(
    documents: Documents, kind: str, *, inside: bool, where: str
) -> tuple[dict[str, object], list[str]]:
    """Return what preprocessor_config.json says (or that part of processor_config.json), with the defaults of
    its own class for what it leaves out; empty where there is none, or in a larger model where it is of a
    class that is not supported, of which there is a sentence then."""
    inner = documents.get("processor_config.json", {}).get("image_processor")
    stated = documents.get("preprocessor_config.json") or (inner if isinstance(inner, dict) else {})
    # null means no for a step, and the default for a number
    described = {name: value for name, value in stated.items() if value is not None or name.startswith("do_")}
    if not described:
        return {}, []
    named = described.get("image_processor_type", described.get("feature_extractor_type"))
    known, usual = registry()["processors"], registry()["usual"]
    name = ENDING.sub("", str(named)) if named else usual.get(kind, "ViT")
    if name not in known:
        if inside:
            return {}, [f"the preprocessing of its tower, as {named} is not supported"]
        raise InputError(
            f"{where}: the {named} of preprocessor_config.json is not supported, only "
            f"{', '.join(known)}: give the file one of them, or remove it"
        )
    complete = {**known[name], **described}
    for field, only in ONLY.items():
        if (complete.get(field, only) or None) != (only or None):
            raise InputError(
                f"{where}: {field}={complete[field]!r} of preprocessor_config.json is not supported, only "
                f"{only!r}"
            )
    return complete, []


def check_fields(source: Source) -> None:
    """Raise InputError where a field of config.json differs from its default, and is not supported; of a
    model_type that is not known, any field that no other has."""
    kind, model = source.facts.name, source.facts.model
    known = defaults().get(kind, {})
    for name, default in known.items():
        if name not in (*READ, *SHOWN) and model.get(name, default) != default:
            raise InputError(
                f"{source.where}: {name}={model[name]!r} of config.json is not supported, only {default!r}"
            )
    understood = (*READ, *SHOWN, *IRRELEVANT, *OF_THE_LIBRARY)
    for name in model if kind and not known else ():
        if (
            model[name]
            and name in source.facts.arguments
            and name not in understood
            and not name.startswith("_")
        ):
            raise InputError(
                f"{source.where}: {name}={model[name]!r} in the config.json of a {kind} is not supported: "
                "remove it there if it changes nothing of what the model computes"
            )
