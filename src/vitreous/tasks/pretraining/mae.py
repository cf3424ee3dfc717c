"""Masked autoencoders (He et al., arXiv 2111.06377).

Three quarters of the patches are removed; the encoder sees the rest and nothing else. A small decoder gets
the encoded patches with a [mask] token in each gap, all with fixed sin-cos positions, and predicts the pixels
of the removed patches, each patch normalized by its own mean and standard deviation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.formats.huggingface import family_rows
from vitreous.checkpoints.formats.huggingface_families import VIT
from vitreous.checkpoints.formats.timm_layers import FUSED
from vitreous.checkpoints.loading import Checkpoint, load_image_model, open_checkpoint
from vitreous.checkpoints.weights import Row, converted, load_weights, of_model, pairs, read_rows, stored
from vitreous.errors import InputError
from vitreous.layers.initialization import init_weights
from vitreous.models import parts
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Positive, Probability
from vitreous.models.names import Model, build
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from vitreous.rng import torch_generator
from vitreous.tasks.pretraining.masking import MaskedPrediction, Reconstruction, put, take


class MAEConfig(Config):
    """Defaults are the paper's for ViT-B/16; `decoder_for` gives small encoders small decoders."""

    mask_ratio: Probability = Field(default=0.75, description="share of the patches that is hidden")
    normalize_pixels: bool = Field(default=True, description="predict pixels normalized patch by patch")
    decoder_width: Positive = Field(
        default=512, multiple_of=4, description="embedding dimension of the decoder"
    )
    decoder_depth: Positive = Field(default=8, description="layers of the decoder")
    decoder_heads: Positive = Field(default=16, description="attention heads of the decoder")
    decoder_mlp_dim: Positive = Field(default=2048, description="hidden numbers of the decoder's MLPs")


class Masking(NamedTuple):
    """Where patches went: the visible ones first, each group by ascending noise.

    order: the patch at each place of the shuffled sequence.
    visible: how many of them the encoder sees.
    """

    order: Int[Tensor, "B N"]
    visible: int

    @property
    def removed(self) -> Int[Tensor, "B M"]:
        """Indices of the patches that the encoder does not see."""
        return self.order[:, self.visible :]


class Decoder(nn.Module):
    """From the encoded visible tokens to the pixels of every patch."""

    positions: Tensor

    def __init__(self, encoder: ViTConfig, config: MAEConfig, outputs: int, *, seed: int = 0) -> None:
        super().__init__()
        vit = ViTConfig(
            image_size=encoder.image_size,
            patch_size=encoder.patch_size,
            pad=encoder.pad,
            drop_remainder=encoder.drop_remainder,
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
        self.register_buffer("positions", None)  # stored in files: published weights bring their own
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
        patches = take(torch.cat([visible, gaps], dim=1), masking.order.argsort(dim=1))
        z = torch.cat([prefix, patches], dim=1) + self.positions
        for block in self.blocks:
            z = block(z)
        return self.prediction(self.norm(z)[:, self.prefix :])


class MAE(MaskedPrediction):
    """The objective around `model`, which must have its positions at the stem: those of every layer or inside
    the attention would not know which patches were removed.

        mae = vt.load("hf:facebook/vit-mae-base", kind=vt.MAE)
        masked, reconstructed = mae.reconstruct(images, torch.Generator().manual_seed(0))
    """

    def __init__(self, model: Model, config: MAEConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(model)
        self.config = config or MAEConfig()
        position = self.model.config.position
        rotary = self.model.config.resolved_rotary
        if position.where != "stem" or position.kind in ("relative", "relative-bias") or rotary:
            raise InputError(
                f"MAE removes tokens, and {position.kind} positions ({position.where}) count all of them: "
                "use learned or sincos-2d positions at the stem, or another --objective"
            )
        self.decoder = Decoder(self.model.config, self.config, self.patch_dim, seed=seed)

    @classmethod
    def load(cls, source: Checkpoint, **options: Any) -> MAE:
        """Load a published MAE with its decoder: ViTMAEForPreTraining of transformers, or a state dict of the
        authors' own code.

        Args:
            options: as of `vitreous.load`; and fields of `MAEConfig`, over what the checkpoint says.

        Raises:
            InputError: as of `vitreous.load`; or there is no decoder.
        """
        settings = {name: options.pop(name) for name in MAEConfig.model_fields if name in options}
        opened, facts = open_checkpoint(source)
        found = published_decoder(opened, **settings)
        if found is None:
            raise InputError(f"{opened.where} holds no decoder of an MAE: load it without kind=")
        encoder = load_image_model(found.encoder, **{**facts, **options})
        with torch.device("meta"):
            mae = cls(encoder, found.config)
        found.give(mae, device=options.get("device"), dtype=options.get("dtype"))
        return mae.eval()

    def draw(self, batch: int, generator: torch.Generator) -> Float[Tensor, "B N"]:
        """Noise that decides which patches stay: those with the lowest."""
        return torch.rand(batch, self.num_patches, generator=generator)

    def mask(self, noise: Float[Tensor, "B N"]) -> Masking:
        """The order by noise; the first (1 - mask_ratio) N patches are visible."""
        return Masking(noise.argsort(dim=1), int(noise.shape[1] * (1 - self.config.mask_ratio)))

    def encode(self, images: Float[Tensor, "B C H W"], masking: Masking) -> Float[Tensor, "B S D"]:
        """Prefix and visible patches after the encoder, in the shuffled order. All patches are embedded, so
        that each has its position, and the visible ones are picked before the first layer."""
        hidden = torch.zeros_like(masking.order, dtype=torch.bool).scatter(1, masking.removed, True)
        z = self.model.add_positions(self.model.prepend_tokens(self.embed_patches(images, hidden)))
        count = self.model.config.num_prefix_tokens
        prefix, patches = z[:, :count], z[:, count:]
        visible = take(patches, masking.order[:, : masking.visible])
        return self.model.norm(self.model.encode(torch.cat([prefix, visible], dim=1)))

    def predict(self, images: Float[Tensor, "B C H W"], masking: Masking) -> Float[Tensor, "B N patch_dim"]:
        """Pixels of every patch, (row, column, channel) in each; normalized if the target is."""
        return self.decoder(self.encode(images, masking), masking)

    def forward(
        self, images: Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        masking = self.mask(self.draw(images.shape[0], generator).to(images.device))
        return self.loss(images, self.predict(images, masking), masking), {}

    def loss(
        self, images: Float[Tensor, "B C H W"], predicted: Float[Tensor, "B N patch_dim"], masking: Masking
    ) -> Float[Tensor, ""]:
        """Mean squared error over the removed patches alone."""
        return (take(predicted, masking.removed) - self.targets(images, masking)).square().mean()

    def targets(self, images: Float[Tensor, "B C H W"], masking: Masking) -> Float[Tensor, "B M patch_dim"]:
        """Return the pixels of the removed patches, normalized if the configuration says so."""
        target = self.patches(images)
        if self.config.normalize_pixels:
            mean, std = statistics(target)
            target = (target - mean) / std
        return take(target, masking.removed)

    @torch.no_grad()
    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        masking = self.mask(self.draw(images.shape[0], generator).to(images.device))
        return self.targets(images, masking).flatten(0, 1).var(dim=0, correction=0).mean()

    @torch.no_grad()
    def reconstruct(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Reconstruction:
        """Removed patches in gray, and filled in. Where pixels were normalized, each patch gets the mean and
        standard deviation of the true one back, as the paper's figures do."""
        masking = self.mask(self.draw(images.shape[0], generator).to(images.device))
        predicted, patches = self.predict(images, masking), self.patches(images)
        if self.config.normalize_pixels:
            mean, std = statistics(patches)
            predicted = predicted * std + mean
        predicted = take(predicted, masking.removed)
        masked = put(patches, masking.removed, torch.zeros_like(predicted))
        return self.reconstruction(masked, put(patches, masking.removed, predicted))


def statistics(
    patches: Float[Tensor, "B N patch_dim"],
) -> tuple[Float[Tensor, "B N 1"], Float[Tensor, "B N 1"]]:
    """Mean and standard deviation of each patch: unbiased variance plus 1e-6, as in the authors' code."""
    variance = patches.var(dim=-1, keepdim=True)
    return patches.mean(dim=-1, keepdim=True), (variance + 1e-6).sqrt()


def sincos_of_mae(grid: tuple[int, int], width: int) -> Float[Tensor, "N D"]:
    """MAE's positions: [sin x, cos x, sin y, cos y] with frequencies 10000^(-4i/D), which stop short of
    1/10000 (those of `layers.embedding.sincos_2d` end at it)."""
    quarter = width // 4
    omega = 10_000.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    y, x = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    x_angle, y_angle = x.reshape(-1, 1) * omega, y.reshape(-1, 1) * omega
    return torch.cat([x_angle.sin(), x_angle.cos(), y_angle.sin(), y_angle.cos()], dim=-1).float()


def decoder_for(encoder: ViTConfig) -> MAEConfig:
    """The paper's decoder for encoders of its sizes; for narrower ones a decoder of two layers of about their
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


class PublishedDecoder(NamedTuple):
    """The decoder of a published MAE: its weights under their own names, and what is known of it."""

    source: Source
    rows: list[Row]
    config: MAEConfig
    encoder: Source  # the rest of the file

    def fits(self, mae: MAE) -> bool:
        """Whether a decoder has the same sizes."""
        outputs = self.source.size("decoder_pred.weight", 0, ndim=2)
        sizes = {name for name in MAEConfig.model_fields if name.startswith("decoder_")}
        same = all(getattr(self.config, name) == getattr(mae.config, name) for name in sizes)
        return same and outputs == mae.patch_dim

    def give(self, mae: MAE, **options: Any) -> None:
        """Give the decoder of `mae` these weights, and the positions where they are of as many patches."""
        where, table = f"the decoder of {self.source.where}", "decoder_pos_embed"
        rows = of_model(self.rows, stored(mae.decoder))
        weights = read_rows(rows, self.source.tensors, where=where, ignored=[table])
        load_weights(mae.decoder, weights, where=where, **options)
        if self.source.shape(table)[-2:] == tuple(mae.decoder.positions.shape):
            positions = self.source.tensors[table].squeeze(0)
            mae.decoder.positions = positions.to(mae.decoder.positions, copy=True)


def published_decoder(source: Source, **settings: Any) -> PublishedDecoder | None:
    """Find the decoder of a published MAE; None where a checkpoint is another model, or an encoder alone.

    Args:
        settings: fields of `MAEConfig`, over what the checkpoint says.
    """
    last = "decoder_embed.weight"
    prefix = next((name.removesuffix(last) for name in source.tensors if name.endswith(last)), None)
    parts = f"{prefix}decoder_", f"{prefix}mask_token"
    decoder = source.renamed(lambda name: name.removeprefix(prefix or "") if name.startswith(parts) else None)
    names = [name for name in LAYERS if any(each.startswith(name.format(0)) for each in decoder.tensors)]
    if prefix is None or not names:
        return None
    family, layer = VIT._replace(names=NAMES, layer=names[0]), "blocks.{}.mlp.expand.weight"
    rows = family_rows(family, swiglu=False)
    if names[0] == AUTHORS:
        rows = [row._replace(theirs=tuple(f"decoder_{name}" for name in row.theirs)) for row in FUSED.rows()]
        rows += pairs(NAMES)
    hidden = next(row.theirs[0] for row in rows if row.ours == (layer,))
    found = {
        "decoder_width": decoder.size(last, 0, ndim=2),
        "decoder_depth": decoder.count(hidden),
        "decoder_mlp_dim": decoder.size(hidden.format(0), 0, ndim=2),
        **{ours: source.config.get(theirs, default) for ours, theirs, default in SETTINGS},
    }
    encoder = source.renamed(lambda name: None if name.startswith(parts) else name)
    if names[0] == AUTHORS:
        encoder = replace(encoder, config={"pretrained_cfg": LOOK})
    open_questions = [ours for ours, _, _ in SETTINGS if ours not in settings]
    if source.config.get("model_type") != "vit_mae" and open_questions:
        encoder.assumed.append(", ".join(f"{name}={found[name]}" for name in open_questions))
    token = converted("mask", "mask_token", Tensor.flatten, lambda mask: mask[None, None])
    return PublishedDecoder(decoder, [token, *rows], build(MAEConfig, found, settings), encoder)
