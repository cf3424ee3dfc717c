"""The decoder of a masked autoencoder: the module, and its weights in published files, in and out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format
from vitreous.checkpoints.formats.huggingface import huggingface_rows
from vitreous.checkpoints.formats.huggingface_families import VIT
from vitreous.checkpoints.formats.huggingface_writing import common
from vitreous.checkpoints.formats.timm import TIMM_VIT, timm_rows
from vitreous.checkpoints.source import CONFIG, File, Source
from vitreous.checkpoints.weights import (
    WeightRow,
    converted,
    load_weights,
    of_model,
    read_rows,
    stored_weights,
    write_weight_rows,
)
from vitreous.errors import InputError
from vitreous.layers.embedding import sincos_of_mae
from vitreous.layers.initialization import init_weights
from vitreous.models import parts
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from vitreous.models.vit import ViT
from vitreous.rng import torch_generator
from vitreous.tasks.pretraining.masking import Masking, take_tokens
from vitreous.tasks.pretraining.rules import MAEConfig


class MAEDecoder(nn.Module):
    """From the encoded visible tokens to the pixels of every patch."""

    positions: Tensor

    def __init__(self, encoder: ViTConfig, config: MAEConfig, outputs: int, *, seed: int) -> None:
        super().__init__()
        vit = ViTConfig(
            image_size=encoder.image_size,
            patch_size=encoder.patch_size,
            edge=encoder.edge,
            num_classes=None,
            width=config.decoder_width,
            depth=config.decoder_depth,
            heads=config.decoder_heads,
            mlp_dim=config.decoder_mlp_dim,
            norm_eps=encoder.norm_eps,
        )
        self.prefix, self.grid = encoder.num_prefix_tokens, vit.grid
        self.embedding = nn.Linear(encoder.width, vit.width)
        rng = torch_generator(seed, "mae decoder")
        self.mask = nn.Parameter(torch.empty(vit.width).normal_(std=0.02, generator=rng))
        # The positions are stored in files, since published weights bring their own.
        self.register_buffer("positions", None)
        self.compute_buffers(torch.get_default_device())
        self.blocks = parts.build_blocks(vit)
        self.norm = parts.build_norm(vit)
        self.prediction = nn.Linear(vit.width, outputs)
        for part in (self.embedding, self.blocks, self.prediction):
            init_weights(part, rng)

    def compute_buffers(self, device: torch.device) -> None:
        width = self.embedding.out_features
        with device:
            self.positions = torch.cat([torch.zeros(self.prefix, width), sincos_of_mae(self.grid, width)])

    def forward(self, tokens: Float[Tensor, "B S D"], masking: Masking) -> Float[Tensor, "B N patch_dim"]:
        z = self.embedding(tokens)
        prefix, visible = z[:, : self.prefix], z[:, self.prefix :]
        gaps = self.mask.expand(z.shape[0], masking.order.shape[1] - masking.visible, -1)
        patches = take_tokens(torch.cat([visible, gaps], dim=1), masking.order.argsort(dim=1))
        z = torch.cat([prefix, patches], dim=1) + self.positions
        for block in self.blocks:
            z = block(z)
        return self.prediction(self.norm(z)[:, self.prefix :])


def decoder_for(encoder: ViTConfig) -> MAEConfig:
    """Return the paper's decoder for encoders of its sizes; for narrower ones two layers of about their
    width, of which half would be too little."""
    if encoder.width >= 768:
        return MAEConfig()
    heads = encoder.heads
    width = 4 * heads * max(encoder.width // (4 * heads), 1)
    return MAEConfig(decoder_width=width, decoder_depth=2, decoder_heads=heads, decoder_mlp_dim=2 * width)


# What the authors' files do not tell: ours, what config.json of transformers calls it, its default.
SETTINGS = (
    ("mask_ratio", "mask_ratio", 0.75),
    ("normalize_pixels", "norm_pix_loss", False),
    ("decoder_heads", "decoder_num_attention_heads", 16),
)
# The preprocessing of the authors' code, as timm's config.json would say it.
LOOK = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "interpolation": "bicubic", "crop_pct": 0.875}
NAMES = {"embedding": "decoder_embed", "norm": "decoder_norm", "prediction": "decoder_pred"}
# Of a layer: in the authors' files, in those that transformers published, and as its release 5 writes them.
AUTHORS = "decoder_blocks.{}."
LAYERS = (AUTHORS, "decoder_layers.{}.", "decoder_encoder.layer.{}.")


LIMITS = PLAIN_VIT | {"num_classes": (None,)}


def published_tensors(
    model: ViT, decoder: MAEDecoder, sizes: MAEConfig, *, authors: bool
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return an MAE under the names of the authors' code, or of transformers with its config.json. Raises
    InputError: their code has no such MAE; the part is named."""
    named = "facebookresearch/mae" if authors else "transformers' ViTMAE"
    config, weights = held_by_format(model, named, LIMITS | ({} if authors else {"norm_eps": None}))
    if len({*config.image_size}) > 1 or len({*config.patch_size}) > 1:
        raise InputError(f"{named} cannot hold images or patches that are not square: save mae.encoder")
    if authors and sizes.decoder_mlp_dim * config.width != config.mlp_dim * sizes.decoder_width:
        raise InputError(f"{named} has one MLP ratio for encoder and decoder: use format='huggingface'")
    written = write_weight_rows(decoder_rows(LAYERS[not authors]), stored_weights(decoder))
    written["decoder_pos_embed"] = decoder.positions[None]
    if authors:
        return write_weight_rows(timm_rows(config), weights) | written, {}
    encoder = write_weight_rows(huggingface_rows(config, VIT), weights)
    tensors = {f"vit.{name}": tensor for name, tensor in encoder.items()}
    tensors |= {f"decoder.{name}": tensor for name, tensor in written.items()}
    described = {
        "model_type": "vit_mae",
        "architectures": ["ViTMAEForPreTraining"],
        "intermediate_size": config.mlp_dim,
        "decoder_hidden_size": sizes.decoder_width,
        "decoder_num_hidden_layers": sizes.decoder_depth,
        "decoder_intermediate_size": sizes.decoder_mlp_dim,
        **{theirs: getattr(sizes, ours) for ours, theirs, _ in SETTINGS},
    }
    return tensors, common(config) | described


class PublishedDecoder(NamedTuple):
    """The decoder of a published MAE: its weights under their own names, and what is known of it."""

    source: Source
    rows: list[WeightRow]
    config: MAEConfig
    encoder: File  # the rest of the file
    left_open: tuple[str, ...] = ()  # what had to be assumed of the decoder

    def fits(self, decoder: MAEDecoder, config: MAEConfig) -> bool:
        """Return whether a decoder has the same sizes."""
        outputs = self.source.size("decoder_pred.weight", 0, ndim=2)
        sizes = {name for name in MAEConfig.model_fields if name.startswith("decoder_")}
        same = all(getattr(self.config, name) == getattr(config, name) for name in sizes)
        return same and outputs == decoder.prediction.out_features

    def give(self, decoder: MAEDecoder, **options: Any) -> None:
        """Give a decoder these weights, and the positions where they are of as many patches."""
        where, table = f"the decoder of {self.source.where}", "decoder_pos_embed"
        rows = of_model(self.rows, stored_weights(decoder))
        weights = read_rows(rows, self.source.tensors, where=where, ignored=[table])
        load_weights(decoder, weights, where=where, **options)
        if self.source.shape(table)[-2:] == tuple(decoder.positions.shape):
            positions = self.source.tensors[table].read().squeeze(0)
            decoder.positions = positions.to(decoder.positions, copy=True)


def published_decoder(file: File, **settings: object) -> PublishedDecoder | None:
    """Find the decoder of a published MAE; None where a checkpoint is another model, or an encoder alone.
    settings: fields of `MAEConfig`, over what the checkpoint says."""
    source, last = file.source(), "decoder_embed.weight"
    prefix = next((name.removesuffix(last) for name in source.tensors if name.endswith(last)), None)
    own = f"{prefix}decoder_", f"{prefix}mask_token"
    decoder = source.renamed(lambda name: name.removeprefix(prefix or "") if name.startswith(own) else None)
    names = [name for name in LAYERS if any(each.startswith(name.format(0)) for each in decoder.tensors)]
    if prefix is None or not names:
        return None
    rows, layer = decoder_rows(names[0]), "blocks.{}.mlp.expand.weight"
    hidden = next(row.theirs[0] for row in rows if row.ours == (layer,))
    found = {
        "decoder_width": decoder.size(last, 0, ndim=2),
        "decoder_depth": decoder.count(hidden),
        "decoder_mlp_dim": decoder.size(hidden.format(0), 0, ndim=2),
        **{ours: file.description.get(theirs, default) for ours, theirs, default in SETTINGS},
    }
    encoder = source.renamed(lambda name: None if name.startswith(own) else name)
    rest = replace(file, parts={"": encoder.tensors})
    if names[0] == AUTHORS:
        rest = replace(rest, documents={CONFIG: {"pretrained_cfg": LOOK}})
    open_questions = [ours for ours, _, _ in SETTINGS if ours not in settings]
    assumed: tuple[str, ...] = ()
    if file.description.get("model_type") != "vit_mae" and open_questions:
        assumed = (", ".join(f"{name}={found[name]}" for name in open_questions),)
    return PublishedDecoder(decoder, rows, MAEConfig.checked(found, settings), rest, assumed)


def decoder_rows(layer: str) -> list[WeightRow]:
    """Return the table of a decoder's weights, by the name of its layers."""
    rows = VIT._replace(names=NAMES, layer=layer).rows()
    if layer == AUTHORS:
        rows = TIMM_VIT._replace(names=NAMES, layer="decoder_blocks.{}.").rows()
    return [converted("mask", "mask_token", Tensor.flatten, lambda mask: mask[None, None]), *rows]
