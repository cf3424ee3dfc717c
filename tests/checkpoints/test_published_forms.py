"""Checkpoints in the forms in which they were published, made with the peers' own classes: names of older
releases, buffers that were saved, towers of larger models, heads beside an encoder. Each gives what its peer
gives."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt

pytestmark = [pytest.mark.slow, pytest.mark.peers]
S = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
T = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 50,
    "max_position_embeddings": 20,
}
X = torch.randn(2, 3, 32, 32)
tf: Any = None


@pytest.fixture(scope="module", autouse=True)
def _peers(timm: Any) -> None:
    global tf
    tf = pytest.importorskip("transformers")


INDEX = "attention.attention.relative_position_bias.relative_position_index"


def rnd(m):
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.randn_like(p) * 0.15 + (1.0 if p.ndim == 1 and p.min() == 1 else 0))
    return m.eval()


CASES: dict[str, Callable[[], Any]] = {}


def case(f):
    CASES[f.__name__] = f
    return f


def save(m, ren=None, more=None, cfg=None):
    d = tempfile.mkdtemp()
    m.save_pretrained(d)
    p = d + "/model.safetensors"
    s = load_file(p)
    if ren:
        s = {ren(k): v for k, v in s.items()}
    if more:
        s |= more
    save_file({k: v.contiguous() for k, v in s.items()}, p, metadata={"format": "pt"})
    if cfg:
        c = json.loads(Path(d, "config.json").read_text())
        cfg(c)
        Path(d, "config.json").write_text(json.dumps(c))
    return d


def logits(o):
    for n in ("logits", "image_embeds", "pooler_output"):
        if getattr(o, n, None) is not None:
            return getattr(o, n)


@case
def beit_index():
    m = rnd(tf.BeitForImageClassification(tf.BeitConfig(**S, use_relative_position_bias=True, num_labels=5)))
    more = {f"beit.encoder.layer.{i}.{INDEX}": torch.zeros(17, 17, dtype=torch.long) for i in range(2)}
    return save(m, more=more), {}, lambda v: (v(X), m(X).logits)


@case
def beit_pt_shared():
    m = rnd(
        tf.BeitForMaskedImageModeling(
            tf.BeitConfig(**S, use_shared_relative_position_bias=True, use_mask_token=True)
        )
    )
    more = {
        "beit.encoder.relative_position_bias.relative_position_index": torch.zeros(17, 17, dtype=torch.long)
    }
    return save(m, more=more), {}, lambda v: (v.tokens(X), m.beit(X).last_hidden_state)


@case
def data2vec_index():
    m = rnd(
        tf.Data2VecVisionForImageClassification(
            tf.Data2VecVisionConfig(**S, use_relative_position_bias=True, num_labels=5)
        )
    )
    more = {
        f"data2vec_vision.encoder.layer.{i}.{INDEX}": torch.zeros(17, 17, dtype=torch.long) for i in range(2)
    }
    return save(m, more=more), {}, lambda v: (v(X), m(X).logits)


@case
def llava4():
    c = tf.LlavaConfig(
        vision_config=tf.CLIPVisionConfig(**S, projection_dim=32),
        text_config=tf.LlamaConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, vocab_size=50
        ),
    )
    m = rnd(tf.LlavaForConditionalGeneration(c))
    d = save(m)
    s = load_file(d + "/model.safetensors")
    out = {}
    for k, v in s.items():
        k = (
            k.replace("model.vision_tower.", "vision_tower.vision_model.")
            if "vision_model" not in k
            else k.replace("model.vision_tower.", "vision_tower.")
        )
        k = (
            k.replace("model.language_model.", "language_model.model.")
            .replace("model.multi_modal", "multi_modal")
            .replace("lm_head", "language_model.lm_head")
        )
        out[k] = v.contiguous()
    save_file(out, d + "/model.safetensors", metadata={"format": "pt"})
    return d, {}, lambda v: (v.intermediates(X, layers=[2])[0], m.model.vision_tower(X).last_hidden_state)


@case
def paligemma4():
    c = tf.PaliGemmaConfig(
        vision_config=tf.SiglipVisionConfig(**S, vision_use_head=False),
        text_config=tf.GemmaConfig(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=8,
            intermediate_size=64,
            vocab_size=50,
        ),
    )
    m = rnd(tf.PaliGemmaForConditionalGeneration(c))
    d = save(m)
    s = load_file(d + "/model.safetensors")
    out = {}
    for k, v in s.items():
        k = (
            k.replace("model.vision_tower.", "vision_tower.vision_model.")
            if "vision_model" not in k
            else k.replace("model.vision_tower.", "vision_tower.")
        )
        out[
            k.replace("model.language_model.", "language_model.model.").replace(
                "model.multi_modal", "multi_modal"
            )
        ] = v.contiguous()
    save_file(out, d + "/model.safetensors", metadata={"format": "pt"})
    return d, {}, lambda v: (v.tokens(X), m.model.vision_tower(X).last_hidden_state)


@case
def dpt():
    m = rnd(
        tf.DPTForDepthEstimation(
            tf.DPTConfig(
                **S,
                backbone_out_indices=[0, 0, 1, 1],
                neck_hidden_sizes=[8, 8, 8, 8],
                fusion_hidden_size=8,
                is_hybrid=False,
            )
        )
    )
    return (
        save(m),
        {},
        lambda v: (v.intermediates(X, layers=[2])[0], m.dpt(X, output_hidden_states=True).hidden_states[-1]),
    )


@case
def altclip():
    m = rnd(
        tf.AltCLIPModel(
            tf.AltCLIPConfig(
                vision_config=dict(**S, projection_dim=16),
                text_config={
                    "hidden_size": 32,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 4,
                    "intermediate_size": 64,
                    "vocab_size": 50,
                    "max_position_embeddings": 20,
                    "project_dim": 32,
                },
                projection_dim=16,
            )
        )
    )
    o = m.get_image_features(X)
    o = getattr(o, "pooler_output", o)
    return save(m), {}, lambda v: (v(X), o)


@case
def clip_classifier():
    m = rnd(
        tf.CLIPForImageClassification(tf.CLIPConfig(vision_config=dict(**S, projection_dim=16), num_labels=5))
    )
    return save(m), {}, lambda v: (v(X), m(X).logits)


@case
def blip():
    m = rnd(
        tf.BlipModel(
            tf.BlipConfig(
                vision_config=dict(**S), text_config=dict(**T, encoder_hidden_size=32), projection_dim=16
            )
        )
    )
    return save(m), {}, lambda v: (v.tokens(X), m.vision_model(X).last_hidden_state)


@case
def git():
    m = rnd(tf.GitForCausalLM(tf.GitConfig(vision_config=dict(**S), **T)))
    return save(m), {}, lambda v: (v.tokens(X), m.git.image_encoder(X).last_hidden_state)


@case
def owlvit():
    m = rnd(
        tf.OwlViTForObjectDetection(
            tf.OwlViTConfig(vision_config=dict(**S), text_config=dict(**T), projection_dim=16)
        )
    )
    return (
        save(m),
        {},
        lambda v: (v.intermediates(X, layers=[2])[0], m.owlvit.vision_model(X).last_hidden_state),
    )


@case
def flava():
    m = rnd(
        tf.FlavaModel(
            tf.FlavaConfig(
                image_config=dict(**S),
                text_config=dict(**T),
                multimodal_config={
                    "hidden_size": 32,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 4,
                    "intermediate_size": 64,
                },
                projection_dim=16,
            )
        )
    )
    return save(m), {}, lambda v: (v.tokens(X), m.image_model(X).last_hidden_state)


@case
def vtde_vit():
    v = rnd(tf.ViTModel(tf.ViTConfig(**S)))
    t = rnd(tf.BertModel(tf.BertConfig(**T)))
    m = rnd(tf.VisionTextDualEncoderModel(vision_model=v, text_model=t))
    o = m.get_image_features(X)
    o = getattr(o, "pooler_output", o)
    return save(m), {}, lambda w: (w(X), o)


@case
def depth_anything():
    b = tf.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        out_indices=[0, 1, 2],
        apply_layernorm=True,
        reshape_hidden_states=False,
    )
    m = rnd(
        tf.DepthAnythingForDepthEstimation(
            tf.DepthAnythingConfig(
                backbone_config=b,
                reassemble_hidden_size=32,
                neck_hidden_sizes=[8, 8, 8],
                reassemble_factors=[2, 1, 0.5],
                fusion_hidden_size=8,
            )
        )
    )
    return save(m), {}, lambda w: (w.tokens(X), m.backbone(X).feature_maps[-1])


@case
def clipseg():
    m = rnd(
        tf.CLIPSegModel(tf.CLIPSegConfig(vision_config=dict(**S), text_config=dict(**T), projection_dim=16))
    )
    o = m.get_image_features(X)
    o = getattr(o, "pooler_output", o)
    return save(m), {}, lambda w: (w(X), o)


@case
def siglip_classifier():
    m = rnd(
        tf.SiglipForImageClassification(
            tf.SiglipConfig(vision_config=dict(**S), text_config=dict(**T), num_labels=5)
        )
    )
    return save(m), {}, lambda w: (w(X), m(X).logits)


@case
def dinov2_reg_cls():
    m = rnd(
        tf.Dinov2WithRegistersForImageClassification(
            tf.Dinov2WithRegistersConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                image_size=32,
                patch_size=8,
                num_labels=5,
            )
        )
    )
    return save(m), {}, lambda w: (w(X), m(X).logits)


@case
def vit_hf_custom_head():
    m = rnd(tf.ViTModel(tf.ViTConfig(**S), add_pooling_layer=False))
    d = save(m)
    s = load_file(d + "/model.safetensors")
    f = torch.nn.Linear(32, 7)
    save_file(
        {**{f"vit.{k}": v for k, v in s.items()}, "fc.weight": f.weight.data, "fc.bias": f.bias.data},
        d + "/model.safetensors",
    )
    return d, {}, lambda w: (w(X), f(m(X).last_hidden_state[:, 0]))


@case
def dinov2_own_teacher():
    m = rnd(
        tf.Dinov2Model(
            tf.Dinov2Config(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
            )
        )
    )
    d = save(m)
    v = vt.load(d)
    vt.save(v, d + "/b.pth", format="dinov2")
    s = torch.load(d + "/b.pth")
    t = {f"backbone.{k}": x for k, x in s.items()} | {
        "dino_head.mlp.0.weight": torch.randn(8, 32),
        "dino_head.last_layer.weight_v": torch.randn(9, 8),
        "ibot_head.mlp.0.weight": torch.randn(8, 32),
    }
    torch.save({"teacher": t}, d + "/t.pth")
    return d + "/t.pth", {"heads": 4}, lambda w: (w.tokens(X), m(X).last_hidden_state)


@case
def dinov2_own_lc():
    m = rnd(
        tf.Dinov2Model(
            tf.Dinov2Config(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
            )
        )
    )
    d = save(m)
    v = vt.load(d)
    vt.save(v, d + "/b.pth", format="dinov2")
    s = torch.load(d + "/b.pth")
    f = torch.nn.Linear(64, 7)
    torch.save(
        {f"backbone.{k}": x for k, x in s.items()}
        | {"linear_head.weight": f.weight.data, "linear_head.bias": f.bias.data},
        d + "/t.pth",
    )
    h = m(X).last_hidden_state
    e = f(torch.cat([h[:, 0], h[:, 1:].mean(1)], 1))
    return d + "/t.pth", {"heads": 4}, lambda w: (w(X), e)


@case
def ijepa_own():
    m = rnd(tf.IJepaModel(tf.IJepaConfig(**S, layer_norm_eps=1e-6)))
    d = save(m)
    v = vt.load(d)
    vt.save(v, d + "/b.pth", format="timm")
    s = torch.load(d + "/b.pth")
    pre = {f"module.{k}": x for k, x in s.items()}
    pred = {
        "module.predictor_embed.weight": torch.randn(16, 32),
        "module.predictor_blocks.0.norm1.weight": torch.randn(16),
    }
    torch.save(
        {
            "encoder": {k: x + 1 for k, x in pre.items()},
            "predictor": pred,
            "target_encoder": pre,
            "opt": {"state": {0: {"exp_avg": torch.zeros(3, 3)}}},
            "epoch": 3,
        },
        d + "/t.pth",
    )
    return d + "/t.pth", {"heads": 4}, lambda w: (w.tokens(X), m(X).last_hidden_state)


@case
def openclip_trunk():
    timm = pytest.importorskip("timm")
    m = rnd(
        timm.create_model(
            "vit_base_patch16_siglip_224",
            img_size=32,
            patch_size=8,
            embed_dim=32,
            depth=2,
            num_heads=4,
            num_classes=0,
        )
    )
    d = tempfile.mkdtemp()
    s = {f"visual.trunk.{k}": x for k, x in m.state_dict().items()} | {
        "logit_scale": torch.ones(1),
        "text.transformer.resblocks.0.attn.in_proj_weight": torch.randn(9, 3),
        "text.token_embedding.weight": torch.randn(9, 3),
    }
    save_file(s, d + "/open_clip_model.safetensors")
    text = json.dumps(
        {
            "model_cfg": {
                "embed_dim": 32,
                "vision_cfg": {
                    "image_size": 32,
                    "timm_model_name": "vit_base_patch16_siglip_224",
                    "timm_model_pretrained": False,
                    "timm_pool": "map",
                    "timm_proj": "none",
                },
                "text_cfg": {},
            },
            "preprocess_cfg": {
                "mean": [0.5] * 3,
                "std": [0.5] * 3,
                "interpolation": "bicubic",
                "resize_mode": "squash",
            },
        }
    )
    Path(d, "open_clip_config.json").write_text(text)
    return d, {"heads": 4}, lambda w: (w(X), m(X))


@case
def timm_seq_head():
    timm = pytest.importorskip("timm")
    m = rnd(
        timm.create_model(
            "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4
        )
    )
    m.head = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(32, 7))
    m.eval()
    return m, {}, lambda w: (w(X), m(X))


@case
def perception_encoder():
    return metas_perception_encoder("vit_pe_core_base_patch16_224", "visual.", num_classes=7)


@case
def perception_encoder_spatial():
    return metas_perception_encoder("vit_pe_spatial_tiny_patch16_512", "", num_classes=0)


@case
def perception_encoder_lang():
    return metas_perception_encoder("vit_pe_lang_large_patch14_448", "visual.", num_classes=0)


@case
def perception_encoder_without_class_token():
    return metas_perception_encoder("vit_pe_spatial_gigantic_patch14_448", "", num_classes=0)


def metas_perception_encoder(architecture, tower, num_classes):
    timm = pytest.importorskip("timm")
    size = 64 if "16" in architecture else 56
    m = rnd(timm.create_model(architecture, depth=2, img_size=size, num_classes=num_classes))
    pooled = m.attn_pool is not None
    if num_classes:
        m.head.bias.data.zero_()  # theirs is a projection
    state = m.state_dict()
    names = {
        "patch_embed.proj": "conv1",
        "pos_embed": "positional_embedding",
        "blocks.": "transformer.resblocks.",
        "norm_pre": "ln_pre",
        "norm1": "ln_1",
        "norm2": "ln_2",
        "gamma_1": "ls_1.gamma",
        "gamma_2": "ls_2.gamma",
        "attn.qkv.": "attn.in_proj_",
        "attn.proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
        "attn_pool.latent": "attn_pool.probe",
        "attn_pool.proj": "attn_pool.attn.out_proj",
        "attn_pool.norm": "attn_pool.layernorm",
        "cls_token": "class_embedding",
    }
    found = (
        {"logit_scale": torch.ones(()), "transformer.resblocks.0.ln_1.weight": torch.ones(3)} if tower else {}
    )
    for kind in ("weight", "bias") if pooled else ():
        packed = [state.pop(f"attn_pool.{part}.{kind}") for part in ("q", "kv")]
        found[f"visual.attn_pool.attn.in_proj_{kind}"] = torch.cat(packed)
    for name, tensor in state.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        name = f"ln_post.{name.removeprefix('norm.')}" if name.startswith("norm.") else name
        tensor = tensor.flatten() if name == "class_embedding" else tensor
        tensor = tensor[0] if name == "positional_embedding" else tensor
        if name == "head.weight":
            name, tensor = "proj", tensor.T
        if name != "head.bias":
            found[f"{tower}{name}"] = tensor
    images = torch.randn(2, 3, size, size)
    if pooled:
        return found, {}, lambda w: (w(images), m(images))
    return found, {}, lambda w: (w.tokens(images), m.forward_features(images))


@case
def sentence_transformers():
    sizes = {"vision_config": tf.CLIPVisionConfig(**S), "text_config": T, "projection_dim": 16}
    m = rnd(tf.CLIPModel(tf.CLIPConfig(**sizes)))
    d = tempfile.mkdtemp()
    m.save_pretrained(d + "/0_CLIPModel")
    Path(d, "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "0_CLIPModel"}]))
    return d, {}, lambda v: (v(X), m.get_image_features(X).pooler_output)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_published_form_gives_what_its_peer_gives(name: str) -> None:
    source, told, compare = CASES[name]()
    ours, theirs = compare(vt.load(source, **told))
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 3e-5 * max(1.0, theirs.abs().max().item())
