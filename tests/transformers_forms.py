"""Tiny models of transformers in every form in which their files are published, read by vitreous.

    python tests/transformers_forms.py [MODEL_TYPE...]

prints a table: model type, class, form, outcome. The forms come from transformers' own tables of what was
renamed: as a new model is saved, as `conversion_mapping.py` says that published files name their weights, as
they are named in memory, and with what `_keys_to_ignore_on_load_unexpected` and tied weights leave in files.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import vitreous as vt

# Model types whose images are seen by a plain Vision Transformer.
PLAIN = (
    *("vit", "deit", "vit_mae", "vit_msn", "ijepa", "dinov2", "dinov2_with_registers", "dinov3_vit", "beit"),
    *("data2vec-vision", "clip", "clip_vision_model", "metaclip_2", "altclip", "chinese_clip", "clipseg"),
    *("siglip", "siglip_vision_model", "mlcd_vision_model", "internvl", "internvl_vision", "dpt", "flava"),
    *(
        "depth_anything",
        "prompt_depth_anything",
        "blip",
        "blip-2",
        "instructblip",
        "instructblipvideo",
        "git",
    ),
    *("owlvit", "owlv2", "idefics", "idefics2", "idefics3", "smolvlm", "janus", "kosmos-2", "aria", "llava"),
    *("llava_next", "llava_next_video", "llava_onevision", "vipllava", "paligemma", "colpali", "gemma3"),
    *("shieldgemma2", "aya_vision", "cohere2_vision", "deepseek_vl", "tipsv2", "aimv2", "zoedepth"),
)
# Those that are something else, and are refused by their name.
OTHERS = (
    *("pixtral", "mistral3", "yolos", "vitdet", "vitmatte", "sam", "swin", "hiera", "videomae", "vivit"),
    *("timesformer", "levit", "vilt", "segformer", "mobilevit", "layoutlmv3", "mgp-str", "groupvit", "xclip"),
    *("qwen2_vl", "qwen2_5_vl", "mllama", "vitpose_backbone", "seggpt", "glpn", "focalnet", "eomt", "pixio"),
    *("kosmos-2.5", "got_ocr2", "vitpose", "phi4_multimodal"),
)
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "embed_dim", "encoder_hidden_size", "hidden_dim"), 32),
    **dict.fromkeys(("decoder_hidden_size", "output_dim", "vision_width", "text_width"), 32),
    **dict.fromkeys(("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "layers"), 2),
    **dict.fromkeys(("decoder_num_hidden_layers", "depth"), 2),
    **dict.fromkeys(("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_heads", "num_key_value_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "mlp_dim"), 64),
    **dict.fromkeys(("decoder_intermediate_size", "max_position_embeddings"), 64),
    **dict.fromkeys(("vocab_size",), 128),
    **dict.fromkeys(("num_queries", "num_query_tokens"), 4),
    **dict.fromkeys(("fusion_hidden_size", "moe_intermediate_size", "num_image_tokens"), 16),
    "image_size": 32,
    "patch_size": 8,
    "head_dim": 8,
    "projection_dim": 16,
    "num_local_experts": 2,
}
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "image_token_id", "image_token_index")
BACKBONES = ("stage_names", "out_features", "out_indices", "layer_types", "architectures")
DEPTH = {"neck_hidden_sizes": [8] * 4, "backbone_out_indices": [0, 0, 1, 1], "is_hybrid": False}
# What the fields above do not make small.
FIELDS: dict[str, dict[str, Any]] = {
    "janus": {
        "vq_config": {
            "base_channels": 32,
            "channel_multiplier": [1],
            "num_res_blocks": 1,
            "latent_channels": 8,
            "embed_dim": 8,
            "num_embeddings": 16,
        }
    },
    "vitpose_backbone": {"image_size": [32, 32], "patch_size": [8, 8]},
    "vitpose": {"backbone_config": {"image_size": [32, 32], "patch_size": [8, 8]}},
    "dpt": DEPTH,
    "beit": {"use_relative_position_bias": True},
    "data2vec-vision": {"use_relative_position_bias": True},
    "vit_mae": {"mask_ratio": 0.0},
    "aimv2": {"vision_config": {"use_head": False}},
}
AUTO = (
    *("MODEL", "MODEL_FOR_IMAGE_CLASSIFICATION", "MODEL_FOR_PRETRAINING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT"),
    *("MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION", "MODEL_FOR_DEPTH_ESTIMATION", "MODEL_FOR_BACKBONE"),
    *(
        "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION",
        "MODEL_FOR_OBJECT_DETECTION",
        "MODEL_FOR_MASKED_IMAGE_MODELING",
    ),
)


class Outcome(NamedTuple):
    kind: str  # the class of the model
    form: str
    result: str  # equal, refused, wrong
    detail: str


def shrunk(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration, and of those inside it, for a tiny model."""
    found = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            value = shrunk(value)
        elif name in SMALL and type(value) is int:
            value = SMALL[name]
        elif name in SMALL and isinstance(value, list | tuple):
            value = [SMALL[name]] * len(value)
        elif name in TOKENS and isinstance(value, int):
            value = min(value, 100)
        found[name] = value
    return {name: value for name, value in found.items() if name not in BACKBONES}


def config_of(model_type: str) -> Any:
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    fields = shrunk(kind().to_dict())
    for name, value in FIELDS.get(model_type, {}).items():
        fields[name] = fields[name] | value if isinstance(value, dict) else value
    return kind.from_dict(fields)


def classes_of(model_type: str) -> dict[str, Any]:
    """The classes of a model type that see images, by their names."""
    import transformers
    from transformers.models.auto import modeling_auto

    named: list[str] = []
    for table in AUTO:
        found = getattr(modeling_auto, f"{table}_MAPPING_NAMES").get(model_type) or ()
        named += [found] if isinstance(found, str) else found
    if not named:  # of a tower alone
        kind = transformers.CONFIG_MAPPING[model_type]
        module = importlib.import_module(kind.__module__.replace("configuration_", "modeling_"))
        named = [
            name
            for name, each in vars(module).items()
            if inspect.isclass(each)
            and getattr(each, "config_class", None) is kind
            and not name.endswith("PreTrainedModel")
        ]
    return {name: getattr(transformers, name) for name in dict.fromkeys(named) if hasattr(transformers, name)}


@torch.no_grad()
def drawn(model: Any) -> Any:
    rng = torch.Generator().manual_seed(0)
    for name, each in model.named_parameters():
        one = each.ndim == 1 and "norm" in name and name.endswith("weight")
        each.copy_(0.15 * torch.randn(each.shape, generator=rng) + one)
    return model.eval()


def forms(model: Any, folder: Path) -> Iterator[tuple[str, Path]]:
    """The folders in which a model may lie, by the name of the form."""
    from transformers.conversion_mapping import get_model_conversion_mapping

    fresh, published, memory, left = (folder / name for name in ("fresh", "published", "memory", "left over"))
    model.save_pretrained(fresh)
    yield fresh.name, fresh
    names = {tuple(load_file(fresh / "model.safetensors"))}
    model._weight_conversions = get_model_conversion_mapping(model, add_legacy=False)
    model.save_pretrained(published)
    del model._weight_conversions
    model.save_pretrained(memory, save_original_format=False)
    for each in (published, memory):
        state = load_file(each / "model.safetensors")
        if tuple(state) not in names:
            names.add(tuple(state))
            yield each.name, each
    state = load_file(published / "model.safetensors")
    buffers = dict(leftovers(model, state))
    if buffers:
        model.config.save_pretrained(left)
        save_file(state | buffers, left / "model.safetensors", metadata={"format": "pt"})
        yield left.name, left


def leftovers(model: Any, state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Buffers that older releases stored, and the second names of tied weights."""
    for name in state:
        if name.endswith("relative_position_bias_table"):
            yield name.replace("bias_table", "index"), torch.zeros(17, 17, dtype=torch.long)
        if name.endswith("embeddings.position_embedding.weight"):
            yield name.replace("position_embedding.weight", "position_ids"), torch.arange(16)[None]
    for second, first in (getattr(model, "all_tied_weights_keys", None) or {}).items():
        if first in state and second not in state:
            yield second, state[first].clone()


def images_for(model: Any) -> Tensor:
    size = 32
    for name in (None, "vision_config", "image_config", "backbone_config", "encoder"):
        part = getattr(model.config, name, None) if name else model.config
        size = getattr(part, "image_size", None) or size
    sides = (size, size) if isinstance(size, int) else size
    return torch.randn(2, 3, *sides, generator=torch.Generator().manual_seed(1))


def tensors_in(name: str, output: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an output of transformers, by their names."""
    if isinstance(output, Tensor):
        yield name, output
    for key, value in output.items() if hasattr(output, "items") else ():
        several = value if isinstance(value, tuple | list) else [value]
        for number, each in enumerate(several):
            if isinstance(each, Tensor):
                yield f"{name}{key}{number or ''}", each


def outputs_of(model: Any, images: Tensor) -> dict[str, Tensor]:
    """What a model, and each part of it that sees images alone, makes of them."""
    found: dict[str, Tensor] = {}
    for name, part in model.named_modules():
        calls = [getattr(part, "get_image_features", None)]
        options: dict[str, Any] = {}
        known = inspect.signature(part.forward).parameters
        if "pixel_values" in known:
            calls.append(part)
        if "patch_attention_mask" in known and hasattr(part, "config"):
            side = getattr(part.config, "patch_size", 8)
            sides = [n // side for n in images.shape[2:]]
            options["patch_attention_mask"] = torch.ones(len(images), *sides, dtype=torch.bool)
        if "noise" in known:  # by which a masked autoencoder orders patches
            options["noise"] = torch.arange(16.0).expand(2, -1)
        for call in filter(None, calls):
            for given in ({"output_hidden_states": True}, {}) if not options else (options,):
                try:
                    output = call(pixel_values=images, **given)
                except Exception:  # a part that needs more than images
                    continue
                found |= dict(tensors_in(f"{name}:", output))
    return found


def equal(one: Tensor, other: Tensor) -> bool:
    limit = 2e-5 * max(1.0, other.abs().max().item())
    return one.shape == other.shape and (one - other).abs().max().item() < limit


def compared(model: vt.ViT, images: Tensor, theirs: dict[str, Tensor]) -> str:
    """The output of the peer that is equal to one of the model: its logits where it has a head, otherwise
    features, tokens before or after the last norm, or a map of them; empty where none is."""
    features = {"output": model(images)}
    if model.config.num_classes is None:
        tokens = {"tokens": model.tokens(images)}
        tokens["last"] = model.intermediates(images, layers=[model.config.depth])[0]
        rows, columns = model.config.grid
        patches = {f"{name} of patches": each[:, -rows * columns :] for name, each in tokens.items()}
        maps = {f"{name}, a map": each.mT.unflatten(2, (rows, columns)) for name, each in patches.items()}
        features |= tokens | patches | maps
    for ours, one in features.items():
        for name, other in theirs.items():
            if equal(one, other):
                return f"{ours} = {name}"
    return ""


@torch.no_grad()
def outcomes(model_type: str, **options: Any) -> Iterator[Outcome]:
    """What is read of every class and form of a model type, with these options of `load`."""
    for name, kind in classes_of(model_type).items():
        try:
            with torch.device("meta"):
                size = sum(each.numel() for each in kind(config_of(model_type)).parameters())
            model = drawn(kind(config_of(model_type))) if size < 10**7 else None
        except (TypeError, ValueError, RuntimeError):
            model = None  # it asks for more than these fields
        if model is None:
            continue
        images = images_for(model)
        theirs = outputs_of(model, images)
        with tempfile.TemporaryDirectory() as folder:
            for form, path in forms(model, Path(folder)):
                try:
                    found: Any = vt.load(path, **options)
                except vt.InputError as error:
                    yield Outcome(name, form, "refused", str(error).replace(folder, ""))
                    continue
                hit = compared(found, images, theirs)
                yield Outcome(name, form, "equal" if hit else "wrong", hit)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent / "checkpoints"))
    from timm_registry import import_timm

    import_timm()  # transformers asks for its torchvision
    logging.disable(logging.WARNING)
    for model_type in sys.argv[1:] or (*PLAIN, *OTHERS):
        for each in outcomes(model_type):
            print(model_type, *each, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
