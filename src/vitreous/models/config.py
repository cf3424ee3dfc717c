"""The Vision Transformer's configuration: every choice of the paper and of the codebases that followed it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from vitreous.models.config_parts import (
    AxialRotaryConfig,
    Config,
    DropPath,
    LearnedPositionConfig,
    MixedRotaryConfig,
    NormPlaces,
    OrNone,
    PatchStemConfig,
    Pooling,
    Position,
    Positive,
    Probability,
    Sides,
    Stem,
    TokenPoolingConfig,
    kinds_of,
    setting,
)


class Origin(Config):
    """Where the weights of a model come from."""

    source: str  # the file, folder, address or name on the hub; or what kind of module it was
    format: str  # as `vitreous.list_formats` names it
    architecture: str | None = None  # its name in that format's code
    license: str | None = None  # as the file or the card beside it says
    interpolation: str | None = None  # how that code resamples positions, by the name that `resize` knows
    assumed: tuple[str, ...] = ()  # what the file did not say and a reader had to assume


class ViTConfig(Config):
    """The configuration of a Vision Transformer. The paper's symbols are in brackets.

    Example:
        >>> config = vt.ViTConfig(image_size=(32, 32), patch_size=(8, 8), depth=2)
        >>> config.sequence_length  # a class token and 4 x 4 patches
        17
        >>> model = vt.create(config)
    """

    image_size: Sides = setting((224, 224), "image size (H, W) in pixels")
    channels: Positive = setting(3, "number of channels [C]")
    patch_size: Sides = setting((16, 16), "height and width of a patch in pixels [P]")
    edge: Literal["refuse", "pad", "drop"] = setting(
        "refuse",
        "what to do with pixels at the right and at the bottom that do not fill a patch: refuse the "
        "size, pad it with zeros to whole patches, or drop these pixels, as a convolution does",
    )
    num_classes: Positive | None = setting(
        1000, "number of classes; None: the model has no head and returns features"
    )

    width: Positive = setting(768, "embedding dimension [D]")
    depth: Annotated[int, Field(gt=0, le=4096)] = setting(12, "number of encoder layers [L]")
    heads: Positive = setting(12, "number of attention heads [k]")
    head_dim: Positive | None = setting(None, "head dimension [D_h]; None: width / heads")
    mlp_dim: Positive = setting(3072, "number of hidden units of each MLP")

    stem: Stem = setting(PatchStemConfig(), f"the part that turns pixels into tokens: {kinds_of(Stem)}")
    position: Position = setting(
        LearnedPositionConfig(),
        "kind of position embedding: learned, learned-2d, sincos-2d, relative, relative-bias, "
        "rotary-2d or none",
    )
    class_token: bool = setting(True, "whether a learned class token is placed before the patches")
    registers: int = setting(
        0, "number of registers: additional tokens that do not correspond to a patch (2309.16588)", ge=0
    )
    pooling: Pooling = setting(TokenPoolingConfig(), "what the head reads from the tokens")

    norm: Literal["pre", "post", "post-branch", "parallel"] = setting(
        "pre",
        "where LayerNorm is applied: before each branch, after the sum, to the branch's output, or "
        "before both branches, which read the same tokens (2302.05442)",
    )
    norm_kind: Literal["layer", "rms"] = setting(
        "layer", "LayerNorm, or RMSNorm, which has neither mean nor bias (1910.07467)"
    )
    norm_eps: float = setting(1e-6, "constant added to the variance in each LayerNorm", gt=0)
    final_norm: OrNone[Literal["tokens", "pooled", "both", "none"]] = setting(
        "tokens",
        "where the last LayerNorm is applied: to the tokens, after pooling, in both places, or nowhere",
    )
    qkv_bias: bool = setting(True, "whether q, k and v have a bias")
    extra_norms: NormPlaces = setting(
        (),
        "additional LayerNorms: on the tokens before layer 1 (CLIP), in the attention before its "
        "output projection, or in the MLP before its last matrix (2210.06423)",
    )
    qk_norm: OrNone[Literal["none", "head", "layer", "unit"]] = setting(
        "none",
        "normalization of queries and keys: separately for each head, over all heads of a layer "
        "(InternViT-6B), or to unit length, multiplied by a gain for each head and channel",
    )
    mlp: Literal[
        "gelu",
        "gelu_tanh",
        "quick_gelu",
        "relu",
        "silu",
        "swiglu",
        "geglu",
        "geglu_tanh",
        "quick_geglu",
        "reglu",
    ] = setting("gelu", "activation function of the MLP, or the kind of gated MLP (2002.05202)")
    layer_scale: float | None = setting(None, "initial value of LayerScale; None: no LayerScale")
    representation_size: Positive | None = setting(
        None, "width of the tanh layer before the head, for pre-training (pre_logits)"
    )

    dropout: Probability = setting(0.0, "dropout rate of the tokens and of each branch's output")
    attention_dropout: Probability = setting(0.0, "dropout rate of the attention weights")
    drop_path: DropPath = setting(
        (0.0, 0.0),
        "rates of stochastic depth in the first and the last layer, with a linear increase between "
        "them; one number: the rate in the last layer, increasing from 0",
    )

    if TYPE_CHECKING:  # a type checker does not know that one number is a square

        def __init__(
            self,
            *,
            image_size: int | tuple[int, int] = ...,
            patch_size: int | tuple[int, int] = ...,
            **fields: Any,
        ) -> None: ...

    @model_validator(mode="after")
    def _consistent(self) -> ViTConfig:
        for problem in contradictions(self):
            raise ValueError(problem)
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches; N is their product."""
        sides = zip(self.image_size, self.patch_size, strict=True)
        if self.edge != "drop":
            rows, columns = (-(-size // patch) for size, patch in sides)
        else:  # of cells of a network's feature map, whose convolutions pad, where there is one
            cell = self.stem.cell
            rows, columns = (-(-size // cell) // (patch // cell) for size, patch in sides)
        return rows, columns

    @property
    def resolved_head_dim(self) -> int:
        """D_h: the channels of one head."""
        return self.head_dim or self.width // self.heads

    @property
    def gated_mlp(self) -> bool:
        """Whether the MLP has a gate: SwiGLU and its relatives."""
        return self.mlp.endswith("glu") or self.mlp == "geglu_tanh"

    @property
    def rotary(self) -> AxialRotaryConfig | MixedRotaryConfig | None:
        """How queries and keys are rotated; None where they are not."""
        return self.position.rotary

    @property
    def distillation_token(self) -> bool:
        """Whether there is DeiT's second token, with a second head."""
        return self.pooling.kind == "class+distillation"

    @property
    def pooled_width(self) -> int:
        """Channels of what the pooling gives; of DeiT's two tokens, of each."""
        return 2 * self.width if self.pooling.kind == "class+mean" else self.width

    @property
    def feature_width(self) -> int:
        """Channels of `ViT.features`; of DeiT's two tokens, of each."""
        return self.representation_size or self.pooled_width

    @property
    def num_class_tokens(self) -> int:
        """Tokens before the patches that have a position: the class and the distillation token."""
        return int(self.class_token) + int(self.distillation_token)

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: class, distillation, registers."""
        return self.num_class_tokens + self.registers

    @property
    def sequence_length(self) -> int:
        """T: the length of the sequence."""
        return self.num_prefix_tokens + self.grid[0] * self.grid[1]


def contradictions(config: ViTConfig) -> Iterator[str]:
    """Yield a sentence for each pair of values that do not fit together."""
    for size, patch in zip(config.image_size, config.patch_size, strict=True):
        if size % patch and config.edge == "refuse":
            near = -(-size // patch) * patch
            yield (
                f"image size {size} is not a multiple of patch size {patch}: use {near}, or edge='pad' "
                "(the setting model.edge=pad), or edge='drop' as other libraries do"
            )
        if size < patch and config.edge == "drop":
            yield f"image size {size} is less than one patch of {patch}: use at least {patch}"
    yield from config.stem.contradictions(config.patch_size, config.width)

    width, heads = config.width, config.heads
    if config.head_dim is None and width % heads:
        yield f"width {width} is not a multiple of {heads} heads: change one, or set head_dim"
    if config.position.kind == "sincos-2d" and width % 4:
        yield f"sincos-2d positions need a width that is a multiple of 4, not {width}"
    if config.position.kind == "learned-2d" and width < 2:
        yield "learned-2d positions need a width of at least 2"
    yield from rotary_contradictions(config)

    pooling = config.pooling
    if pooling.kind in ("attention", "attention-all"):
        pool_heads = pooling.heads or heads
        if width % pool_heads:
            yield (
                "attention pooling needs a width that is a multiple of its heads, "
                f"not {width} for {pool_heads}"
            )
    elif pooling.kind in ("class", "class+mean", "class+distillation") and not config.class_token:
        yield f"pooling {pooling.kind!r} needs class_token=True, or pool by 'mean' or 'attention'"
    if config.distillation_token and config.final_norm in ("pooled", "both"):
        yield "DeiT's two tokens are normalized before pooling: set final_norm='tokens'"
    if config.distillation_token and config.representation_size:
        yield "representation_size cannot be combined with a distillation token"


def rotary_contradictions(config: ViTConfig) -> Iterator[str]:
    """Yield a sentence for each value that does not fit rotary positions."""
    rotary, head_dim = config.rotary, config.resolved_head_dim
    if rotary is None:
        return
    if head_dim % 4:
        yield f"rotary positions need a head_dim that is a multiple of 4, not {head_dim}"
    if rotary.kind == "mixed":
        return
    if rotary.class_angles and (not config.class_token or config.num_prefix_tokens > 1):
        yield "rotary.class_angles needs a class token and no other token before the patches"
    if rotary.class_angles and not config.position.shared:
        yield "rotary.class_angles apply to all layers: they need position.kind=rotary-2d and shared=True"
    if rotary.register_temperature and not config.registers == math.isqrt(config.registers) ** 2 > 0:
        yield (
            "rotary.register_temperature places the registers on a square: set registers to 1, 4, 9 ..., not "
            f"{config.registers}"
        )
    if rotary.periods is not None and len(rotary.periods) != head_dim // 4:
        count = len(rotary.periods)
        yield f"rotary.periods has {count} numbers, but a head of {head_dim} needs {head_dim // 4}"
