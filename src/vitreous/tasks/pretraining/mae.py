"""Masked autoencoders (He et al., arXiv 2111.06377).

Three quarters of the patches are removed; the encoder sees the rest and nothing else. A small decoder gets
the encoded patches with a [mask] token in each gap, all with fixed sin-cos positions, and predicts the pixels
of the removed patches, each patch normalized by its own mean and standard deviation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from vitreous.checkpoints.files import Tensors
from vitreous.checkpoints.formats.huggingface import family_rows
from vitreous.checkpoints.formats.huggingface_families import VIT
from vitreous.checkpoints.loading import open_path
from vitreous.checkpoints.weights import of_model, read_rows, same
from vitreous.errors import InputError
from vitreous.layers.initialization import init_weights
from vitreous.models import parts
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Positive, Probability
from vitreous.models.names import Model
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
        self.prefix = encoder.num_prefix_tokens
        self.embedding = nn.Linear(encoder.width, vit.width)
        rng = torch_generator(seed, "mae decoder")
        self.mask = nn.Parameter(torch.empty(vit.width).normal_(std=0.02, generator=rng))
        table = torch.cat([torch.zeros(self.prefix, vit.width), sincos_of_mae(vit.grid, vit.width)])
        self.register_buffer("positions", table)  # stored in files: published weights bring their own
        self.blocks = parts.build_blocks(vit)
        self.norm = parts.build_norm(vit)
        self.prediction = nn.Linear(vit.width, outputs)
        for part in (self.embedding, self.blocks, self.prediction):
            init_weights(part, rng)

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
    the attention would not know which patches were removed."""

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
    1/10000 (those of `layers.positions.sincos_2d` end at it)."""
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


# Ours: theirs.
SETTINGS = {
    "mask_ratio": "mask_ratio",
    "normalize_pixels": "norm_pix_loss",
    "decoder_width": "decoder_hidden_size",
    "decoder_depth": "decoder_num_hidden_layers",
    "decoder_heads": "decoder_num_attention_heads",
    "decoder_mlp_dim": "decoder_intermediate_size",
}
NAMES = {"embedding": "decoder_embed", "norm": "decoder_norm", "prediction": "decoder_pred"}


def published_decoder(init: str) -> tuple[MAEConfig, Tensors] | None:
    """Return the objective's settings and the decoder's weights, by their own names, of a published MAE; None
    where a checkpoint is another model, or an encoder alone."""
    source = open_path(init)
    weights = source.below("decoder.").tensors
    if source.config.get("model_type") != "vit_mae" or not len(weights):
        return None
    settings = {ours: source.config[theirs] for ours, theirs in SETTINGS.items()}
    return MAEConfig(**settings), weights


def load_decoder(mae: MAE, init: str) -> None:
    """Copy the decoder of a published MAE, where `init` is one and has a decoder of the same sizes."""
    found = published_decoder(init)
    if found is None or found[0].decoder_depth != mae.config.decoder_depth:
        return
    theirs = found[1]
    newer = any(name.startswith("decoder_encoder.") for name in theirs)  # as transformers 5 writes it
    layer = "decoder_encoder.layer.{}." if newer else "decoder_layers.{}."
    family = VIT._replace(names=NAMES, layer=layer)
    tokens = [same("mask", "mask_token"), same("positions", "decoder_pos_embed")]
    own = mae.decoder.state_dict()
    rows = of_model([*tokens, *family_rows(family, swiglu=False)], own)
    state = read_rows(rows, theirs, where=init)
    state |= {"mask": state["mask"].flatten(), "positions": state["positions"].squeeze(0)}
    if state["positions"].shape != own["positions"].shape:  # another image size
        state["positions"] = own["positions"]
    if all(state[name].shape == tensor.shape for name, tensor in own.items()):
        mae.decoder.load_state_dict(state)
