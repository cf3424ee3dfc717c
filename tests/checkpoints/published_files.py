"""Tiny files of codebases in the forms in which they publish them, with what the codebase computes.

    python tests/checkpoints/published_files.py [NAME...]

writes `data/published/`: for each form its weights, and in a JSON the images and the outputs. It needs
mmpretrain, mmsegmentation, monai, peft, pytorch_pretrained_vit, torchvision and transformers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "data" / "published"
SIZE, PATCH, WIDTH, HEADS, CLASSES = 16, 8, 16, 2, 3


def drawn(module: Any) -> Any:
    """The module with weights of which none is zero, but those that are frozen."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in (each for each in module.parameters() if each.requires_grad):
            one = 1.0 if each.ndim == 1 and each.min() == 1 else 0.0
            each.copy_(one + 0.3 * torch.randn(each.shape, generator=rng))
    return module.eval()


def pretrained_vit() -> tuple[Any, Any]:
    """lukemelas/PyTorch-Pretrained-ViT: logits."""
    from pytorch_pretrained_vit import ViT, model

    model.resize_positional_embedding = False  # a name that its code forgets to define
    sizes = {"patches": PATCH, "dim": WIDTH, "ff_dim": 24, "num_heads": HEADS, "num_layers": 2}
    module = drawn(ViT(None, **sizes, image_size=SIZE, num_classes=CLASSES))
    return module.state_dict(), module


def monai(*, proj_type: str, classification: bool) -> tuple[Any, Any]:
    """MONAI's ViT: tokens; or logits, which it gives through a Tanh."""
    from monai.networks.nets import ViT

    fields = {"proj_type": proj_type, "classification": classification, "num_classes": CLASSES}
    module = drawn(ViT(3, SIZE, PATCH, WIDTH, 24, 2, HEADS, spatial_dims=2, **fields))
    return module.state_dict(), lambda images: module(images)[0]


def aimv2() -> tuple[Any, Any]:
    """AIMv2 under the names of Apple's own files: tokens."""
    from timm_registry import import_torchvision

    import_torchvision()  # which transformers asks for
    import transformers

    config = transformers.Aimv2VisionConfig(
        hidden_size=128,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=1,
        image_size=SIZE,
        patch_size=PATCH,
        use_head=False,
    )
    module = drawn(transformers.Aimv2VisionModel(config))
    own = {
        "embeddings.patch_embed.": "preprocessor.patchifier.proj.",
        "embeddings.rms_norm.": "preprocessor.patchifier.norm.",
        "embeddings.position_embedding.weight": "preprocessor.pos_embed",
        "encoder.layers.": "trunk.blocks.",
        ".rms_norm1.": ".norm_1.",
        ".rms_norm2.": ".norm_2.",
        "attention.out_proj": "attn.proj",
        "ffn.gate_proj": "mlp.fc1",
        "ffn.up_proj": "mlp.fc3",
        "ffn.down_proj": "mlp.fc2",
    }
    state = {}
    for name, tensor in module.state_dict().items():
        for theirs, apples in own.items():
            name = name.replace(theirs, apples)
        name = f"trunk.post_trunk_norm.{name.removeprefix('rms_norm.')}" if name.startswith("rms_") else name
        state[name] = tensor[None] if name == "preprocessor.pos_embed" else tensor
    parts = [state.pop(f"trunk.blocks.0.attention.{each}_proj.weight") for each in "qkv"]
    state["trunk.blocks.0.attn.qkv.weight"] = torch.cat(parts)
    state = {name: tensor for name, tensor in state.items() if "position_ids" not in name}
    return state, lambda images: module(images).last_hidden_state


OPENMMLAB = {"embed_dims": WIDTH, "num_layers": 2, "num_heads": HEADS, "feedforward_channels": 24}
LOSS = {"type": "CrossEntropyLoss"}


def mmpretrain(backbone: str, head: str, hidden: int | None = None, **fields: Any) -> tuple[Any, Any]:
    """A classifier of mmpretrain, as its checkpoints name it: logits."""
    from mmpretrain.models import backbones, heads
    from mmpretrain.registry import MODELS

    if "CrossEntropyLoss" not in MODELS:
        MODELS.register_module("CrossEntropyLoss", module=torch.nn.CrossEntropyLoss)
    made = getattr(backbones, backbone)(arch=OPENMMLAB, img_size=SIZE, patch_size=PATCH, **fields)
    more = {"hidden_dim": hidden} if hidden else {}
    module = torch.nn.Module()
    module.backbone, module.head = made, getattr(heads, head)(CLASSES, WIDTH, loss=LOSS, **more)
    drawn(module)
    return module.state_dict(), lambda images: module.head(module.backbone(images))


def mmseg() -> tuple[Any, Any]:
    """The backbone of a segmenter of mmseg: a map of features."""
    from mmseg.models.backbones import VisionTransformer

    sizes = {"img_size": SIZE, "patch_size": PATCH, "embed_dims": WIDTH, "num_layers": 2, "num_heads": HEADS}
    fields = {"mlp_ratio": 2, "norm_cfg": {"type": "LN", "eps": 1e-6}, "final_norm": True}
    module = VisionTransformer(**sizes, **fields)
    drawn(module)
    state = {f"backbone.{name}": tensor for name, tensor in module.state_dict().items()}
    state |= {
        "decode_head.conv_seg.weight": torch.ones(4, 8, 1, 1),
        "decode_head.conv_seg.bias": torch.ones(4),
    }
    return state, lambda images: module(images)[-1]


def adapter(folder: Path) -> Any:
    """A LoRA of PEFT beside its model, which has no head: logits of both, merged."""
    from timm_registry import import_torchvision

    import_torchvision()
    import peft
    import transformers

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    sizes |= {"intermediate_size": 24, "image_size": SIZE, "patch_size": PATCH}
    drawn(transformers.ViTModel(transformers.ViTConfig(**sizes))).save_pretrained(folder / "base")
    model = transformers.ViTForImageClassification.from_pretrained(folder / "base", num_labels=CLASSES)
    config = peft.LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["q_proj", "v_proj", "fc1", "projection"],
        modules_to_save=["classifier"],
        bias="lora_only",
        rank_pattern={"fc1": 2},
        alpha_pattern={"q_proj": 16},
        use_rslora=True,
    )
    tuned = drawn(peft.get_peft_model(model, config))
    tuned.save_pretrained(folder / "adapter")
    described = json.loads((folder / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    described["base_model_name_or_path"] = "../base"
    described["target_modules"].sort()
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(described, indent=1) + "\n")
    (folder / "adapter" / "README.md").unlink()
    merged = tuned.merge_and_unload()
    return lambda images: merged(images).logits


def jeonsworld() -> tuple[Any, Any]:
    """timm's ViT, which is the paper's, under the names of jeonsworld/ViT-pytorch: logits."""
    from timm_registry import import_timm

    sizes = {"img_size": SIZE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": 2, "num_heads": HEADS}
    module = drawn(import_timm().create_model("vit_tiny_patch16_224", **sizes, num_classes=CLASSES))
    names = {
        "cls_token": "transformer.embeddings.cls_token",
        "pos_embed": "transformer.embeddings.position_embeddings",
        "patch_embed.proj.": "transformer.embeddings.patch_embeddings.",
        "blocks.": "transformer.encoder.layer.",
        ".norm1.": ".attention_norm.",
        ".norm2.": ".ffn_norm.",
        ".attn.proj.": ".attn.out.",
        ".mlp.": ".ffn.",
    }
    state = {}
    for name, tensor in module.state_dict().items():
        for timms, theirs in names.items():
            name = name.replace(timms, theirs)
        name = f"transformer.encoder.encoder_{name}" if name.startswith("norm.") else name
        each = dict(zip(("query", "key", "value"), tensor.chunk(3), strict=False)) if ".qkv." in name else {}
        state |= {name.replace("qkv", part): rows for part, rows in each.items()} or {name: tensor}
    return state, module


FORMS = {
    "jeonsworld": jeonsworld,
    "mmpretrain_vit": lambda: mmpretrain("VisionTransformer", "VisionTransformerClsHead", 20),
    "mmpretrain_deit": lambda: mmpretrain("DistilledVisionTransformer", "DeiTClsHead"),
    "mmpretrain_mae": lambda: mmpretrain(
        "VisionTransformer", "LinearClsHead", out_type="avg_featmap", final_norm=False
    ),
    "mmpretrain_both_norms": lambda: mmpretrain("VisionTransformer", "LinearClsHead", out_type="avg_featmap"),
    "mmpretrain_swiglu": lambda: mmpretrain(
        "VisionTransformer",
        "LinearClsHead",
        layer_scale_init_value=0.1,
        layer_cfgs={"ffn_type": "swiglu_fused"},
    ),
    "mmpretrain_beit": lambda: mmpretrain(
        "BEiTViT", "LinearClsHead", out_type="avg_featmap", final_norm=False
    ),
    "mmseg": mmseg,
    "pretrained_vit": pretrained_vit,
    "monai_classifier": lambda: monai(proj_type="conv", classification=True),
    "monai_encoder": lambda: monai(proj_type="perceptron", classification=False),
    "aimv2_apple": aimv2,
}


@torch.no_grad()
def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    images = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1)).mul(255).round() / 255
    for name in sys.argv[1:] or (*FORMS, "lora"):
        if name == "lora":
            write_outputs(name, images, adapter(FOLDER / name))
            continue
        state, compute = FORMS[name]()
        save_file({key: tensor.contiguous() for key, tensor in state.items()}, FOLDER / f"{name}.safetensors")
        write_outputs(name, images, compute)


def write_outputs(name: str, images: torch.Tensor, compute: Any) -> None:
    found = {"images": images.tolist(), "outputs": compute(images).tolist()}
    (FOLDER / f"{name}.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
