"""Whole masked autoencoders, decoder and all, from Hugging Face's `ViTMAEForPreTraining`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from vitreous.checkpoints import load
from vitreous.errors import InputError
from vitreous.models.vit import ViT
from vitreous.tasks.pretraining.mae import MAE, MAEConfig

# Ours: theirs, both without "decoder.".
NAMES = {
    "embedding": "decoder_embed",
    "norm": "decoder_norm",
    "prediction": "decoder_pred",
}
BLOCK_NAMES = {
    "attention.out": "attention.output.dense",
    "attention_norm": "layernorm_before",
    "mlp_norm": "layernorm_after",
    "mlp.expand": "intermediate.dense",
    "mlp.contract": "output.dense",
}
# Published files name the layers in the first way, transformers 5 writes them in the second.
LAYER_PREFIXES = ("decoder_layers.", "decoder_encoder.layer.")


def load_mae(folder: str | Path) -> MAE:
    """The objective with the encoder and the decoder of a saved `ViTMAEForPreTraining`.

    Raises:
        InputError: the folder holds an encoder alone, or no ViTMAE at all.
    """
    folder = Path(folder)
    encoder = load(str(folder))
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if settings.get("model_type") != "vit_mae" or not isinstance(encoder, ViT):
        raise InputError(f"{folder} is no ViTMAE: its config.json says {settings.get('model_type')!r}")
    mae = MAE(
        encoder,
        MAEConfig(
            mask_ratio=settings["mask_ratio"],
            normalize_pixels=settings["norm_pix_loss"],
            decoder_width=settings["decoder_hidden_size"],
            decoder_depth=settings["decoder_num_hidden_layers"],
            decoder_heads=settings["decoder_num_attention_heads"],
            decoder_mlp_dim=settings["decoder_intermediate_size"],
        ),
    )
    file = load_file(folder / "model.safetensors")
    theirs = {key.removeprefix("decoder."): file[key] for key in file if key.startswith("decoder.")}
    if not theirs:
        raise InputError(f"{folder} holds the encoder alone: load it with vitreous.load")
    mae.decoder.load_state_dict(decoder_state(theirs, depth=mae.config.decoder_depth))
    return mae.eval()


def decoder_state(theirs: dict[str, Tensor], *, depth: int) -> dict[str, Tensor]:
    """Our decoder's tensors from theirs: q, k and v packed into one matrix, the rest renamed."""
    ours = {"mask": theirs["mask_token"].flatten(), "positions": theirs["decoder_pos_embed"].squeeze(0)}
    prefix = next(each for each in LAYER_PREFIXES if any(key.startswith(each) for key in theirs))
    for kind in ("weight", "bias"):
        for our, their in NAMES.items():
            ours[f"{our}.{kind}"] = theirs[f"{their}.{kind}"]
        for layer in range(depth):
            source = f"{prefix}{layer}."
            parts = [
                theirs[f"{source}attention.attention.{part}.{kind}"] for part in ("query", "key", "value")
            ]
            ours[f"blocks.{layer}.attention.qkv.{kind}"] = torch.cat(parts)
            for our, their in BLOCK_NAMES.items():
                ours[f"blocks.{layer}.{our}.{kind}"] = theirs[f"{source}{their}.{kind}"]
    return ours
