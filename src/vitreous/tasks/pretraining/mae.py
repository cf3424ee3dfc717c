"""Masked autoencoders (He et al., arXiv 2111.06377).

Three quarters of the patches are removed; the encoder sees the rest and nothing else. A small decoder gets
the encoded patches with a [mask] token in each gap, all with fixed sin-cos positions, and predicts the pixels
of the removed patches, each patch normalized by its own mean and standard deviation.
"""

from __future__ import annotations

import logging
from copy import deepcopy
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.checkpoints.canonicalize import without_parts
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.formats.huggingface_preprocessing import preprocessor_config
from vitreous.checkpoints.loading import Checkpoint, load_image_model, open_checkpoint
from vitreous.checkpoints.model_card import check_license, write_card
from vitreous.checkpoints.native import write_json
from vitreous.checkpoints.saving import OVERWRITE, check_equal, no_warnings, replacing
from vitreous.checkpoints.torch_files import write_state_dict, write_torch
from vitreous.data.batch_augmentation import on_device
from vitreous.errors import InputError, Param, check_free
from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.rng import torch_generator
from vitreous.tasks.pretraining.mae_decoder import SETTINGS, MAEDecoder, published_decoder, published_tensors
from vitreous.tasks.pretraining.masking import (
    MaskedPrediction,
    Masking,
    Reconstruction,
    put_tokens,
    statistics,
    take_tokens,
)
from vitreous.tasks.pretraining.rules import MAEConfig

log = logging.getLogger(__name__)


class MAE(MaskedPrediction):
    """A masked autoencoder around `model`, whose positions must be added at the stem: positions in every
    layer or inside attention would not account for the removed patches.

    Example:
        >>> encoder = vt.create("ViT-Ti/16", image_size=64, num_classes=None)
        >>> mae = vt.MAE(encoder)  # or vt.MAE.load("hf:facebook/vit-mae-base")
        >>> images = torch.randn(2, 3, 64, 64)
        >>> masked, reconstructed = mae.reconstruct(images, torch.Generator().manual_seed(0))
        >>> reconstructed.shape
        torch.Size([2, 3, 64, 64])

    Args:
        model: the encoder.
        config: the configuration of the mask and the decoder; by default the paper's.
        seed: random seed of the decoder's weights.
    """

    def __init__(self, model: Model, config: MAEConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(model)
        self.config = config or MAEConfig()
        position = self.model.config.position
        if not position.at_stem or position.rotary is not None:
            raise InputError(
                f"MAE removes tokens, but {position.kind} positions inside the layers need all of them: "
                f"use learned or sincos-2d positions at the stem, or another {Param('objective')}"
            )
        self.decoder = MAEDecoder(self.model.config, self.config, self.patch_dim, seed=seed)

    @classmethod
    def load(cls, source: Checkpoint, **options: object) -> MAE:
        """Load a published MAE with its decoder: ViTMAEForPreTraining of transformers, or a state dict of the
        authors' own code.

        Args:
            options: as of `vitreous.load`; and fields of `MAEConfig`, over what the checkpoint says.

        Raises:
            InputError: if `vitreous.load` raises it, or there is no decoder.
        """
        settings = {name: options.pop(name) for name in MAEConfig.model_fields if name in options}
        opened = open_checkpoint(source)
        found = published_decoder(opened, **settings)
        if found is None:
            raise InputError(f"{opened.where} contains no MAE decoder: load it with vitreous.load")
        encoder = load_image_model(found.encoder, **options)
        if found.left_open:
            log.warning("%s does not say, so it is assumed: %s", opened.where, "; ".join(found.left_open))
        with torch.device("meta"):
            mae = cls(encoder, found.config)
        found.give(mae.decoder, device=options.get("device"), dtype=options.get("dtype"))
        return mae.eval()

    @torch.no_grad()
    def save(
        self, path: str | Path, *, format: str = "timm", license: str | None = None, overwrite: bool = False
    ) -> float:
        """Write encoder and decoder, read them back, and compare their predictions; see `vitreous.save`.

        Args:
            path: a .pth of the authors' code, whose names are timm's, or a folder for format huggingface.

        Raises:
            InputError: if `vitreous.save` raises it, or their code has another decoder.
        """
        path, authors = Path(path), format == "timm"
        if format not in ("timm", "huggingface") or authors != (path.suffix in (".pth", ".pt")):
            raise InputError(
                "a whole MAE is saved with format='timm' as a .pth, or 'huggingface' as a folder"
            )
        check_license(license)
        if not overwrite:
            check_free(path, OVERWRITE)
        mae = deepcopy(self).to("cpu", torch.float32).eval()
        model = without_parts(mae.model, ("representation_size",), {})
        assert isinstance(model, ViT)  # as every encoder of a MaskedPrediction
        tensors, described = published_tensors(model, mae.decoder, mae.config, authors=authors)
        with replacing(path) as temporary:
            if authors:
                write_torch({"model": tensors}, temporary)
            else:
                temporary.mkdir()
                write_state_dict(tensors, temporary / "model.safetensors")
                write_json(described, temporary / "config.json")
                write_json(preprocessor_config(model.preprocessing), temporary / "preprocessor_config.json")
                write_card(model, temporary, checkpoint_formats()[format], path.resolve().name, license)
            known = {ours: getattr(mae.config, ours) for ours, _, _ in SETTINGS}
            with no_warnings():
                again = MAE.load(temporary, **({"heads": model.config.heads} | known if authors else {}))
            rng = torch_generator(0, "read back")
            images = torch.randn(2, model.config.channels, *model.config.image_size, generator=rng)
            masking = mae.mask(mae.draw(2, rng))
            return check_equal([mae.predict(images, masking)], [again.predict(images, masking)], format)

    def draw(self, batch: int, generator: torch.Generator) -> Float[Tensor, "B N"]:
        """Draw noise that decides which patches stay: those with the lowest."""
        return torch.rand(batch, self.num_patches, generator=generator)

    def mask(self, noise: Float[Tensor, "B N"]) -> Masking:
        """Return the order by noise; the first (1 - mask_ratio) N patches are visible."""
        return Masking(noise.argsort(dim=1), int(noise.shape[1] * (1 - self.config.mask_ratio)))

    def encode(self, images: Float[Tensor, "B C H W"], masking: Masking) -> Float[Tensor, "B S D"]:
        """Return the prefix and the visible patches after the encoder, in the shuffled order. All patches are
        embedded, so that each has its position, and the visible ones are picked before the first layer."""
        hidden = torch.zeros_like(masking.order, dtype=torch.bool).scatter(1, masking.removed, True)
        z = self.model.add_positions(self.model.prepend_tokens(self.embed_patches(images, hidden)))
        count = self.model.config.num_prefix_tokens
        prefix, patches = z[:, :count], z[:, count:]
        visible = take_tokens(patches, masking.order[:, : masking.visible])
        return self.model.norm(self.model.encode(torch.cat([prefix, visible], dim=1)))

    def predict(self, images: Float[Tensor, "B C H W"], masking: Masking) -> Float[Tensor, "B N patch_dim"]:
        """Return the pixels of every patch, (row, column, channel) in each; normalized if the target is."""
        return self.decoder(self.encode(images, masking), masking)

    def forward(
        self, images: Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        masking = self.mask(on_device(self.draw(images.shape[0], generator), images))
        return self.loss(images, self.predict(images, masking), masking), {}

    def loss(
        self, images: Float[Tensor, "B C H W"], predicted: Float[Tensor, "B N patch_dim"], masking: Masking
    ) -> Float[Tensor, ""]:
        """Return the mean squared error over the removed patches alone."""
        return (take_tokens(predicted, masking.removed) - self.targets(images, masking)).square().mean()

    def targets(self, images: Float[Tensor, "B C H W"], masking: Masking) -> Float[Tensor, "B M patch_dim"]:
        """Return the pixels of the removed patches, normalized if the configuration says so."""
        return take_tokens(self.every_target(images), masking.removed)

    def every_target(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N patch_dim"]:
        """Return the target of each patch."""
        target = self.pixel_targets(images)
        if self.config.normalize_pixels:
            mean, std = statistics(target)
            target = (target - mean) / std
        return target

    @property
    def last_layer(self) -> nn.Linear:
        return self.decoder.prediction

    def best_constant(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, " patch_dim"]:
        return self.every_target(images).mean(dim=(0, 1))

    @torch.no_grad()
    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        masking = self.mask(self.draw(images.shape[0], generator).to(images.device))
        return self.targets(images, masking).flatten(0, 1).var(dim=0, correction=0).mean()

    @torch.no_grad()
    def reconstruct(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Reconstruction:
        """Return removed patches in gray, and filled in. Where pixels were normalized, each patch gets the
        mean and standard deviation of the true one back, as the paper's figures do."""
        masking = self.mask(self.draw(images.shape[0], generator).to(images.device))
        predicted, patches = self.predict(images, masking), self.patches(images)
        if self.config.normalize_pixels:
            mean, std = statistics(self.pixel_targets(images))
            predicted = predicted * std + mean
        predicted = take_tokens(self.pixels_of(predicted, images), masking.removed)
        masked = put_tokens(patches, masking.removed, torch.zeros_like(predicted))
        return self.reconstruction(masked, put_tokens(patches, masking.removed, predicted))
