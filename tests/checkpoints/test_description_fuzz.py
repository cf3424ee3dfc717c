"""One field of a description changed, the model made and saved by the peer itself, loaded here and compared:
the outputs are the peer's, or the file is refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vitreous as vt

pytestmark = [pytest.mark.slow, pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
# Of transformers: the classes, and fields that a case begins with.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT": ("ViTModel", {}),
    "ViT, a classifier": ("ViTForImageClassification", {"num_labels": 5}),
    "DeiT": ("DeiTForImageClassificationWithTeacher", {"num_labels": 5}),
    "ViTMSN": ("ViTMSNModel", {}),
    "I-JEPA": ("IJepaModel", {}),
    "Dinov2": ("Dinov2Model", {}),
    "Dinov2, a classifier": ("Dinov2ForImageClassification", {"num_labels": 5}),
    "Dinov2 with registers": ("Dinov2WithRegistersModel", {}),
    "Dinov2, SwiGLU": ("Dinov2Model", {"use_swiglu_ffn": True}),
    "DINOv3": ("DINOv3ViTModel", {"num_register_tokens": 2}),
    "DINOv3, gated": ("DINOv3ViTModel", {"use_gated_mlp": True}),
    "BEiT": ("BeitForImageClassification", {"num_labels": 5, "use_relative_position_bias": True}),
    "data2vec": ("Data2VecVisionModel", {"use_shared_relative_position_bias": True}),
    "CLIP": ("CLIPVisionModelWithProjection", {"projection_dim": 16}),
    "SigLIP": ("SiglipVisionModel", {}),
    "AIMv2": ("Aimv2VisionModel", {"use_head": False}),
    "MLCD": ("MLCDVisionModel", {}),
    "InternVL": ("InternVLVisionModel", {}),
}
ACTIVATIONS = ("gelu", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu", "gelu_10")
# Values for fields by name; other fields by their type.
VALUES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ACTIVATIONS,
    "num_attention_heads": (2, 8),
    "num_hidden_layers": (1, 3),
    "hidden_size": (48,),
    "image_size": (48, [32, 48]),
    "patch_size": (16,),
    "num_channels": (1, 4),
    "norm_type": ("rms_norm",),
    "rope_theta": (10.0,),
    "rope_parameters": ({"rope_theta": 50.0},),
    "problem_type": ("regression", "multi_label_classification"),
}
OUTPUTS = ("logits", "image_embeds", "last_hidden_state")


@torch.no_grad()
def drawn(model: torch.nn.Module) -> torch.nn.Module:
    """Weights of a trained model's size, none of them zero."""
    rng = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        ones = weight.ndim == 1 and bool((weight == 1).all())
        weight.copy_(torch.randn(weight.shape, generator=rng) * 0.15 + float(ones))
    return model.eval()


def changes(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each field with each other value."""
    yield "", None
    for name, value in config.items():
        if name in VALUES:
            several: tuple[Any, ...] = VALUES[name]
        elif isinstance(value, bool):
            several = (not value,)
        elif isinstance(value, int):
            several = (value + 1, 2 * value)
        elif isinstance(value, float):
            several = (0.5, 1e-3)
        else:
            continue
        yield from ((name, other) for other in several if other != value)


def compared(folder: Path, images: Tensor, expected: dict[str, Tensor], told: dict[str, Any]) -> str:
    """What came of a folder: equal, refused, or a sentence about the difference."""
    try:
        model: Any = vt.load(folder, **told)
    except vt.InputError:
        return "refused"
    images = torch.nn.functional.interpolate(images, model.config.image_size)
    for name, theirs in expected.items():
        ours = model.tokens(images) if name == "last_hidden_state" else model(images)
        if ours.shape != theirs.shape:
            return f"{name} has shape {tuple(ours.shape)}, theirs {tuple(theirs.shape)}"
        difference = (ours - theirs).abs().max().item()
        if not difference <= 5e-5 * max(1.0, theirs.abs().max().item()):
            return f"{name} differs by {difference:.1e}"
    return "equal"


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_transformers(family: str, timm: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    name, given = FAMILIES[family]
    kind = getattr(transformers, name)
    sizes = {field: size for field, size in SIZES.items() if hasattr(kind.config_class(), field)}
    every = (
        transformers.PretrainedConfig().to_dict().keys() - VALUES.keys()
    )  # of the library, not of the model
    plain = {
        field: value
        for field, value in kind.config_class(**sizes | given).to_dict().items()
        if field not in every
    }
    found: dict[str, list[str]] = {}
    for number, (field, value) in enumerate(changes(plain)):
        folder = tmp_path / str(number)
        try:
            peer: Any = drawn(kind(kind.config_class(**sizes | given | ({field: value} if field else {}))))
            size = peer.config.image_size
            size = (size, size) if isinstance(size, int) else tuple(size)
            images = torch.randn(
                1, peer.config.num_channels, *size, generator=torch.Generator().manual_seed(1)
            )
            outputs = peer(images)
            peer.save_pretrained(folder)
        except Exception:
            continue  # the peer cannot have this
        expected = {each: outputs[each] for each in OUTPUTS if isinstance(outputs.get(each), Tensor)}
        if family == "MLCD":  # whose hidden state is before the last norm
            expected = {"pooler_output": outputs.pooler_output}
        if "logits" in expected or "image_embeds" in expected:
            expected.pop("last_hidden_state", None)
        found.setdefault(compared(folder, images, expected, {}), []).append(f"{field}={value!r}")
    assert found.pop("equal", [""])[0] == "=None", found
    found.pop("refused", None)
    assert not found, found


TIMM: dict[str, dict[str, Any]] = {
    "vit_base_patch16_224": {},
    "vit_base_patch16_clip_224": {},
    "vit_base_patch16_siglip_224": {},
    "vit_small_patch14_reg4_dinov2": {},
    "vit_base_patch16_dinov3": {},
    "aimv2_large_patch14_224": {},
    "beit_base_patch16_224": {},
    "eva02_tiny_patch14_224": {},
    "vit_pe_core_tiny_patch16_384": {},
    "vit_small_patch16_rope_224": {},
}
TIMM_SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 5}
TIMM_VALUES: dict[str, tuple[Any, ...]] = {
    "act_layer": ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu"),
    "global_pool": ("avg", "token", "map", "avgmax", ""),
    "num_heads": (2, 6),
    "img_size": ((32, 48), 48),
    "in_chans": (1,),
    "num_classes": (0,),
    "init_values": (0.1,),
    "reg_tokens": (2,),
    "num_reg_tokens": (2,),
    "rope_temperature": (50.0,),
    "rope_grid_offset": (0.5,),
    "rope_grid_indexing": ("xy", "ij"),
    "rope_type": ("cat", "dinov3", "mixed"),
    "ref_feat_shape": ((3, 3),),
    "norm_layer": (),
    **dict.fromkeys(
        ("qkv_bias", "qk_norm", "proj_bias", "class_token", "no_embed_class", "pre_norm", "final_norm"),
        (True, False),
    ),
    **dict.fromkeys(
        ("fc_norm", "pool_include_prefix", "use_rot_pos_emb", "use_abs_pos_emb", "swiglu_mlp", "scale_mlp"),
        (True, False),
    ),
    **dict.fromkeys(
        ("scale_attn_inner", "use_post_norm", "use_pre_transformer_norm", "use_post_transformer_norm"),
        (True, False),
    ),
    **dict.fromkeys(("use_fc_norm", "rope_rotate_half", "qkv_fused", "use_rel_pos_bias"), (True, False)),
    **dict.fromkeys(("use_shared_rel_pos_bias", "dynamic_img_size", "dynamic_img_pad"), (True, False)),
}


@pytest.mark.parametrize("architecture", TIMM)
@torch.no_grad()
def test_timm(architecture: str, timm: Any, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    cases = [("", None), *((name, value) for name, several in TIMM_VALUES.items() for value in several)]
    for number, (field, value) in enumerate(cases):
        args = TIMM_SIZES | TIMM[architecture] | ({field: value} if field else {})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                peer: Any = drawn(timm.create_model(architecture, **args))
            size = args["img_size"]
            size = (size, size) if isinstance(size, int) else size
            images = torch.randn(
                1, args.get("in_chans", 3), *size, generator=torch.Generator().manual_seed(1)
            )
            outputs = peer(images)
        except Exception:
            continue  # the peer cannot have this
        folder = tmp_path / str(number)
        timm.models.save_for_hf(peer, folder, safe_serialization=True, model_args=args)
        found.setdefault(compared(folder, images, {"output": outputs}, {}), []).append(f"{field}={value!r}")
    assert found.pop("equal", [""])[0] == "=None", found
    found.pop("refused", None)
    assert not found, found


OPEN_CLIP: dict[str, tuple[Any, ...]] = {
    "layers": (1,),
    "width": (64,),
    "head_width": (16,),
    "mlp_ratio": (2.0,),
    "patch_size": (16,),
    "image_size": (48, [32, 48]),
    "ls_init_value": (0.1,),
    "no_ln_pre": (True,),
    "pos_embed_type": ("sin_cos_2d",),
    "final_ln_after_pool": (True,),
    "pool_type": ("avg", "none"),
    "attentional_pool": (True,),
    "act_kwargs": ({"approximate": "tanh"},),
    "norm_kwargs": ({"eps": 1e-3},),
    "qk_norm": (True,),
    "scaled_cosine_attn": (True,),
    "scale_heads": (True,),
    "scale_attn_inner": (True,),
    "scale_attn": (True,),
    "scale_fc": (True,),
}


@torch.no_grad()
def test_open_clip(timm: Any, tmp_path: Path) -> None:
    open_clip = pytest.importorskip("open_clip")
    from safetensors.torch import save_file

    vision = {"layers": 2, "width": 32, "head_width": 8, "patch_size": 8, "image_size": 32}
    text = {"context_length": 5, "vocab_size": 9, "width": 16, "heads": 2, "layers": 1}
    found: dict[str, list[str]] = {}
    for number, (field, value) in enumerate(
        [("", None), *((name, value) for name, several in OPEN_CLIP.items() for value in several)]
    ):
        own = vision | ({field: value} if field else {})
        try:
            peer: Any = drawn(open_clip.CLIP(embed_dim=16, vision_cfg=own, text_cfg=text))
            size = own["image_size"]
            size = (size, size) if isinstance(size, int) else tuple(size)
            images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))
            output = peer.encode_image(images)
        except Exception:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        save_file(
            {k: v.contiguous() for k, v in peer.state_dict().items()}, folder / "open_clip_model.safetensors"
        )
        described = {"model_cfg": {"embed_dim": 16, "vision_cfg": own, "text_cfg": text}}
        (folder / "open_clip_config.json").write_text(json.dumps(described))
        found.setdefault(compared(folder, images, {"output": output}, {}), []).append(f"{field}={value!r}")
    assert found.pop("equal", [""])[0] == "=None", found
    found.pop("refused", None)
    assert not found, found
