"""A tiny AIMv2 under the names of Apple's own files, with the tokens that transformers computes.

    python tests/checkpoints/published_files.py

writes `data/published/`: the weights, and in a JSON the images and the tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "data" / "published"
SIZE, PATCH = 16, 8


def drawn(module: Any) -> Any:
    """The module with weights of which none is zero, but those that are frozen."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in (each for each in module.parameters() if each.requires_grad):
            one = 1.0 if each.ndim == 1 and each.min() == 1 else 0.0
            each.copy_(one + 0.3 * torch.randn(each.shape, generator=rng))
    return module.eval()


@torch.no_grad()
def main() -> None:
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
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, FOLDER / "aimv2_apple.safetensors")
    images = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1)).mul(255).round() / 255
    found = {"images": images.tolist(), "outputs": module(images).last_hidden_state.tolist()}
    (FOLDER / "aimv2_apple.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
