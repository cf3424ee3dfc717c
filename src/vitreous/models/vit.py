"""The Vision Transformer (arXiv 2010.11929, section 3.1).

z_0  = [x_class; x_p^1 E; ...; x_p^N E] + E_pos        (1)   embed
z'_l = MSA(LN(z_{l-1})) + z_{l-1}                      (2)   encode
z_l  = MLP(LN(z'_l)) + z'_l                            (3)   encode
y    = LN(z_L^0)                                       (4)   norm, pool
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.layers.block import LayerScale
from vitreous.layers.embedding import in_type_of, to_multiple
from vitreous.layers.initialization import GoogleInit, fresh_weights
from vitreous.models import parts
from vitreous.models.config import Origin, ViTConfig
from vitreous.models.preprocessing import Preprocessing, check_channels, layer_numbers

Images = Float[Tensor, "B C H W"]


class ViT(nn.Module):
    """A Vision Transformer built from a configuration; `vitreous.create` creates one from a name.

    Example:
        >>> model = vt.create("ViT-Ti/16", num_classes=10, image_size=32)
        >>> images = torch.randn(2, 3, 32, 32)
        >>> model(images).shape, model.features(images).shape
        (torch.Size([2, 10]), torch.Size([2, 192]))
        >>> model.tokens(images).shape  # a class token and 2 x 2 patches
        torch.Size([2, 5, 192])

    Attributes:
        config: the whole description of the function that the model computes.
        preprocessing: converts images to the input that the model expects.
        labels: the name of each class, or None if they are not known.
        task: what the outputs mean ("classification", "multilabel", "regression" ...) or what the weights
            were trained for ("mae" ...); None if it is not known.
        temperature: the temperature by which calibration has divided the head's logits; 1 without
            calibration.
        origin: where loaded weights come from.

    Args:
        seed: random seed of the weights; the other arguments are attributes.
    """

    def __init__(
        self,
        config: ViTConfig,
        *,
        preprocessing: Preprocessing | None = None,
        labels: Sequence[str] | None = None,
        task: str | None = None,
        temperature: float = 1.0,
        origin: Origin | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.preprocessing = preprocessing or Preprocessing(size=config.image_size, channels=config.channels)
        self.labels = None if labels is None else list(labels)
        self.task = task
        self.temperature, self.origin = temperature, origin

        with fresh_weights(self, seed):
            self.stem = parts.build_stem(config)
            # Class, distillation, register tokens: (num_prefix_tokens, D).
            prefix = torch.zeros(config.num_prefix_tokens, config.width)
            self.prefix = nn.Parameter(prefix) if config.num_prefix_tokens else None
            self.position = parts.stem_position(config) or nn.Identity()  # E_pos of Eq. 1
            self.embedding_norm = (
                parts.build_norm(config) if "tokens" in config.extra_norms else nn.Identity()
            )
            self.dropout = nn.Dropout(config.dropout)
            self.blocks = parts.build_blocks(config)
            self.norm = parts.build_norm(config) if config.final_norm in ("tokens", "both") else nn.Identity()
            self.pool = parts.build_pooling(config)
            self.representation = parts.build_representation(config)
            self.head = parts.build_head(config)

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        """The steps that `vitreous describe` lists, each with its equation."""
        count = self.config.num_prefix_tokens
        steps = {
            "position": ("positions", "+ E_pos, Eq. 1"),
            "embedding_norm": ("LayerNorm of the tokens", ""),
            "norm": ("LayerNorm", "LN, Eq. 4"),
            "representation": ("representation, tanh", "3.1"),
            "head": ("head", "3.1"),
        }
        if self.changes_edge:
            how = "padding" if self.config.edge == "pad" else "cropping"
            steps["whole_patches"] = (f"{how} to whole patches", "")
        if count:
            named = "class token" if count == 1 else f"{count} tokens"
            steps["prepend_tokens"] = (f"{named} prepended", "x_class, Eq. 1")
        if self.config.final_norm in ("pooled", "both"):
            steps["pool.norm"] = ("LayerNorm", "LN, Eq. 4")
        return steps

    def reset(self, init: GoogleInit) -> None:
        if self.prefix is not None:
            distillation = int(self.config.class_token) if self.config.distillation_token else None
            init.prefix(self.prefix, distillation=distillation)
        init.head(self.head)

    def embed(self, images: Images) -> Float[Tensor, "B T D"]:
        """Return z_0: patches projected, prefix tokens prepended, positions added (Eq. 1)."""
        return self.add_positions(self.prepend_tokens(self.stem(self.whole_patches(images))))

    def prepend_tokens(self, patches: Float[Tensor, "B N D"]) -> Float[Tensor, "B T D"]:
        """Prepend the class token and the other prefix tokens, where there are any."""
        if self.prefix is None:
            return patches
        return torch.cat([self.prefix.expand(patches.shape[0], -1, -1), patches], dim=1)

    def add_positions(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add positions; then LayerNorm and dropout where they are configured."""
        return self.dropout(self.embedding_norm(self.position(z)))

    def encode(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return z_L: every encoder layer (Eq. 2 and 3)."""
        for block in self.blocks:
            z = block(z)
        return z

    def tokens(self, images: Images) -> Float[Tensor, "B T D"]:
        """Return all tokens after the last layer and the final norm; patches follow `num_prefix_tokens`
        others."""
        return self.norm(self.encode(self.embed(images)))

    def intermediates(
        self, images: Images, layers: Sequence[int] | None = None, *, maps: bool = False, norm: bool = False
    ) -> list[Float[Tensor, "B T D"]] | list[Float[Tensor, "B D h w"]]:
        """Return the tokens after some layers.

            third, last = model.intermediates(images, layers=[3, -1])

        Args:
            layers: numbers from 1 to L, 0 for the embedded patches (z_0), or from the end: -1 is the last. By
                default every layer from 1.
            maps: return only the patches, as maps (B, D, rows, columns), instead of all tokens (B, T, D).
            norm: apply the final norm to each.

        Raises:
            InputError: a layer that does not exist, or images of another size.
        """
        numbers = layer_numbers(layers, len(self.blocks))
        z = self.embed(images)
        after = {0: z}
        for number, block in enumerate(self.blocks[: max(numbers, default=0)], start=1):
            z = after[number] = block(z)
        chosen = [self.norm(after[number]) if norm else after[number] for number in numbers]
        if not maps:
            return chosen
        prefix, grid = self.config.num_prefix_tokens, self.config.grid
        return [z[:, prefix:].transpose(1, 2).unflatten(2, grid) for z in chosen]

    def features(self, images: Images) -> Float[Tensor, "B *features"]:
        """Return the input of the head: y of Eq. 4, after the representation layer if there is one."""
        return self.representation(self.pool(self.tokens(images)))

    def forward(self, images: Images) -> Float[Tensor, "B *classes"]:
        """Return class logits, or the features if the model has no head."""
        return self.head(self.features(images))

    def whole_patches(self, images: Images) -> Float[Tensor, "B C H2 W2"]:
        """Pad or crop images to whole patches where the configuration says so, in the type of the weights.
        Raises InputError: images of another size or number of channels."""
        if tuple(images.shape[1:]) != (self.config.channels, *self.config.image_size):
            check_channels(images, self.config.channels)
            (height, width), (rows, columns) = images.shape[2:], self.config.image_size
            raise InputError(
                f"the images are {height}x{width}, but the model takes {rows}x{columns}: resize them with "
                "model."
                f"preprocessing, or the model with vitreous.resize(model, image_size=({height}, {width}))"
            )
        images = in_type_of(self, images)
        if not self.changes_edge:
            return images
        return to_multiple(images, self.config.patch_size, pad=self.config.edge == "pad")

    @property
    def has_untrained_layers(self) -> bool:
        """Whether its Transformer layers are as they were drawn, such as those after a trained stem whose
        features a classifier reads: what they attend to means nothing. Every LayerScale has its first value
        then, which one step of a training changes; a model that has learned without LayerScale is stored with
        ones."""
        scales = [part for part in self.blocks.modules() if isinstance(part, LayerScale)]
        return bool(scales) and all(
            each.initial != 1 and bool((each.gamma == torch.full_like(each.gamma, each.initial)).all())
            for each in scales
        )

    @property
    def changes_edge(self) -> bool:
        """Whether images are padded or cropped to whole patches; a hybrid's convolutions do the latter."""
        edge = self.config.edge
        return edge == "pad" or (edge == "drop" and self.config.stem.cell == 1)
