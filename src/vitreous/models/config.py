"""The Vision Transformer's configuration: every choice of the paper and of the codebases that followed it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


def both_sides(size: Any) -> Any:
    """A single number is a square: 384 means (384, 384)."""
    return (size, size) if isinstance(size, int) and not isinstance(size, bool) else size


Sides = Annotated[tuple[Positive, Positive], BeforeValidator(both_sides)]  # (H, W) in pixels


class Config(BaseModel):
    """Frozen, and unknown keys are errors. Every configuration of the project is one of these."""

    model_config = ConfigDict(frozen=True, extra="forbid", kw_only=True)  # type: ignore[typeddict-unknown-key]

    @model_validator(mode="before")
    @classmethod
    def _none_is_a_choice(cls, fields: Any) -> Any:
        """None means "none" where a field has that choice: settings cannot tell them apart."""
        if not isinstance(fields, Mapping):
            return fields
        none = {name for name, value in fields.items() if value is None and name in cls.model_fields}
        words = {name: "none" for name in none if "none" in choices(cls.model_fields[name].annotation)}
        return {**fields, **words}


def choices(annotation: Any) -> set[Any]:
    """The values of the Literal types inside a type."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {choice for part in get_args(annotation) for choice in choices(part)}


class Origin(Config):
    """Where the weights of a model come from."""

    source: str  # the file, folder, address or name on the hub; or what kind of module it was
    format: str  # as `vitreous.list_formats` names it
    architecture: str | None = None  # its name in that format's code
    license: str | None = None  # as the file or the card beside it says
    assumed: tuple[str, ...] = ()  # what the file did not say and a reader had to assume


class PatchStemConfig(Config):
    """Patches of P x P pixels, projected linearly (Eq. 1)."""

    kind: Literal["patch"] = Field(default="patch", description="one linear map of each patch")
    bias: bool = Field(default=True, description="whether the projection adds a bias")
    form: Literal["convolution", "linear"] = Field(
        default="convolution", description="a convolution with stride P, or cut and multiply: the same map"
    )
    norm_before: bool = Field(default=False, description="LayerNorm on the flat patch (linear form)")
    norm_after: bool = Field(default=False, description="LayerNorm on the projected patch (linear form)")

    @model_validator(mode="after")
    def _norms_of_the_linear_form(self) -> PatchStemConfig:
        if self.form == "convolution" and (self.norm_before or self.norm_after):
            if "form" in self.model_fields_set:
                raise ValueError("norm_before and norm_after are for flat patches: set form to linear")
            object.__setattr__(self, "form", "linear")
        return self


class ConvolutionStemConfig(Config):
    """3x3 convolutions before the tokens (arXiv 2106.14881); the strides' product is the patch size."""

    kind: Literal["convolution"] = Field(
        default="convolution", description="a few convolutions before the tokens"
    )
    widths: tuple[Positive, ...] = Field(
        default=(48, 96, 192, 384), min_length=1, description="output channels of each convolution"
    )
    strides: tuple[Positive, ...] = Field(
        default=(2, 2, 2, 2), min_length=1, description="of each convolution"
    )
    norm: Literal["layer", "instance"] = Field(
        default="layer",
        description="over all channels together, or each by itself: blind to brightness and contrast",
    )

    @model_validator(mode="after")
    def _same_length(self) -> ConvolutionStemConfig:
        if len(self.widths) != len(self.strides):
            raise ValueError(
                f"{len(self.widths)} widths but {len(self.strides)} strides: give as many of each"
            )
        return self


class ResNetConfig(Config):
    """A ResNet with GroupNorm and weight standardization."""

    layers: tuple[Positive, ...] = Field(default=(3, 4, 6, 3), description="bottleneck units in each stage")
    width_factor: float = Field(
        default=1.0, gt=0, description="times 64 channels in the root, 256 in stage 1"
    )
    standardization: Literal["std", "variance"] = Field(
        default="std", description="weights divided by std + eps (Google) or by sqrt(variance + eps) (timm)"
    )
    standardization_eps: float = Field(default=1e-5, description="added to the deviation or to the variance")
    norm_eps: float = Field(default=1e-6, description="GroupNorm: 1e-6 in Google's code, 1e-5 in timm's")

    @model_validator(mode="after")
    def _groups(self) -> ResNetConfig:
        """GroupNorm has 32 groups in the root and in each unit, whose middle has a quarter of its width."""
        if self.root_width % 32:
            factor = self.width_factor
            raise ValueError(
                f"width_factor {factor:g} is not a multiple of 0.5, which GroupNorm's 32 groups need"
            )
        for width in self.output_widths:
            if width % 128:
                raise ValueError(
                    f"a stage of {width} channels is not a multiple of 128, 4 times GroupNorm's 32 groups"
                )
        return self

    @property
    def root_width(self) -> int:
        """Output channels of the root."""
        return round(64 * self.width_factor)

    @property
    def output_widths(self) -> tuple[int, ...]:
        """Output channels of each stage."""
        return tuple(round(256 * 2**stage * self.width_factor) for stage in range(len(self.layers)))

    @property
    def stride(self) -> int:
        """Pixels from one cell of the feature map to the next: 4, doubled by each stage but the first."""
        return int(4 * 2 ** max(len(self.layers) - 1, 0))


class ResNetStemConfig(ResNetConfig):
    """A ResNet's feature map instead of pixels: the hybrids of section 3.1. The patch then counts cells of
    the feature map times the ResNet's stride, so `patch_size` stays in pixels."""

    kind: Literal["resnet"] = Field(default="resnet", description="the feature map of a ResNet: a hybrid")
    layers: tuple[Positive, ...] = Field(
        default=(3, 4, 9), description="bottleneck units in each stage; empty: the root alone"
    )
    widths: tuple[Positive, ...] | None = Field(
        default=None, description="output channels of each stage; None: width_factor * 256, 512, 1024, 2048"
    )

    @property
    def output_widths(self) -> tuple[int, ...]:
        return self.widths or super().output_widths


def stem_of_known_kind(stem: Any) -> Any:
    """Refuse a stem without a kind in words that a user understands."""
    if isinstance(stem, Mapping) and stem.get("kind") not in ("patch", "convolution", "resnet"):
        raise ValueError("a stem needs its kind: set model.stem.kind to patch, convolution or resnet")
    return stem


Stem = Annotated[
    Annotated[PatchStemConfig | ConvolutionStemConfig | ResNetStemConfig, Field(discriminator="kind")],
    BeforeValidator(stem_of_known_kind),
]


class PositionConfig(Config):
    """How and where positions are encoded (appendix D.4)."""

    kind: Literal["none", "learned", "learned-2d", "sincos-2d", "relative", "relative-bias", "rotary-2d"] = (
        Field(
            default="learned",
            description="learned in 1-D (the paper) or 2-D, computed, relative, a bias per offset (BEiT), "
            "rotary, or none",
        )
    )
    where: Literal["stem", "every-layer", "every-layer-shared"] = Field(
        default="stem", description="relative and rotary positions live in the attention: of every layer"
    )
    temperature: float | None = Field(
        default=None, gt=0, description="longest wave; 10000 for sincos-2d, 100 for rotary-2d"
    )
    init_std: float = Field(default=0.02, ge=0, description="of learned tables, at initialization")

    @model_validator(mode="after")
    def _temperature_of_waves(self) -> PositionConfig:
        if self.temperature is not None and self.kind not in ("sincos-2d", "rotary-2d"):
            raise ValueError(
                f"temperature has no effect on {self.kind} positions: leave it out, or choose sincos-2d or "
                "rotary-2d"
            )
        return self


class ViTConfig(Config):
    """A Vision Transformer. Field names are the field's; letters of the paper in brackets."""

    image_size: Sides = Field(default=(224, 224), description="(H, W) in pixels")
    channels: Positive = Field(default=3, description="[C]")
    patch_size: Sides = Field(default=(16, 16), description="[P] rows and columns")
    pad: bool = Field(default=False, description="pad images with zeros to a multiple of the patch")
    drop_remainder: bool = Field(
        default=False, description="ignore pixels right and below that fill no patch, as a convolution does"
    )
    num_classes: Positive | None = Field(default=1000, description="None: no head, features come out")

    width: Positive = Field(default=768, description="[D]")
    depth: Positive = Field(default=12, description="[L] encoder layers")
    heads: Positive = Field(default=12, description="[k]")
    head_dim: Positive | None = Field(default=None, description="[D_h] None: width / heads")
    mlp_dim: Positive = Field(default=3072, description="hidden numbers of each MLP")

    stem: Stem = Field(
        default=PatchStemConfig(), description="what turns pixels into tokens: patch, convolution or resnet"
    )
    position: PositionConfig = PositionConfig()
    class_token: bool = Field(default=True, description="a learned token before the patches")
    distillation_token: bool = Field(default=False, description="DeiT's second token, with a second head")
    registers: int = Field(default=0, ge=0, description="tokens without position or meaning (2309.16588)")
    embedding_norm: bool = Field(default=False, description="LayerNorm on the tokens before layer 1 (CLIP)")
    pooling: Literal["class", "mean", "mean-all", "attention", "class+mean", "class+distillation"] = Field(
        default="class", description="what the head reads of the tokens"
    )

    norm: Literal["pre", "post"] = Field(default="pre", description="LayerNorm before or after each branch")
    norm_eps: float = Field(default=1e-6, gt=0, description="added to the variance in each LayerNorm")
    final_norm: Literal["tokens", "pooled", "none"] = Field(
        default="tokens", description="the last LayerNorm: on the tokens, on what was pooled, or not at all"
    )
    qkv_bias: bool = Field(default=True, description="whether q, k and v have a bias")
    qk_norm: bool = Field(default=False, description="LayerNorm on q and k of each head")
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu"] = Field(
        default="gelu", description="activation function of the MLP"
    )
    layer_scale: float | None = Field(default=None, description="initial value; None: no LayerScale")
    representation_size: Positive | None = Field(
        default=None, description="width of the tanh layer before the head, for pre-training (pre_logits)"
    )
    head_bias: bool = Field(default=True, description="whether the head has a bias")

    dropout: Probability = Field(default=0.0, description="of tokens, and of each branch's output")
    attention_dropout: Probability = Field(default=0.0, description="of the attention weights")
    drop_path: Probability = Field(
        default=0.0, description="stochastic depth of the last layer; linear in depth"
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
        if not self.drop_remainder:
            rows, columns = (-(-size // patch) for size, patch in sides)
        else:  # of cells of a ResNet's feature map, whose convolutions pad, where there is one
            stride = self.stem.stride if self.stem.kind == "resnet" else 1
            rows, columns = (-(-size // stride) // (patch // stride) for size, patch in sides)
        return rows, columns

    @property
    def resolved_head_dim(self) -> int:
        """D_h: the channels of one head."""
        return self.head_dim or self.width // self.heads

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
    """A sentence for each pair of values that do not fit together."""
    for size, patch in zip(config.image_size, config.patch_size, strict=True):
        if size % patch and not (config.pad or config.drop_remainder):
            near = -(-size // patch) * patch
            yield (
                f"image size {size} is not a multiple of patch size {patch}: use {near}, or pad=True "
                "(--set model.pad=true), or drop_remainder=True as other libraries do"
            )
        if size < patch and config.drop_remainder:
            yield f"image size {size} is less than one patch of {patch}: use at least {patch}"
    if config.pad and config.drop_remainder:
        yield "pad and drop_remainder exclude each other: choose one"
    stem, (rows, columns) = config.stem, config.patch_size
    if stem.kind == "convolution" and {rows, columns} != {math.prod(stem.strides)}:
        yield (
            f"the convolution stem's strides multiply to {math.prod(stem.strides)}, the patch size is "
            f"{rows}x{columns}: they must be equal"
        )
    if stem.kind == "resnet" and any(side % stem.stride for side in config.patch_size):
        yield (
            f"patch size {rows}x{columns} is not a multiple of the ResNet's stride {stem.stride}, the pixels "
            "of one cell of its feature map"
        )

    width, heads, head_dim = config.width, config.heads, config.resolved_head_dim
    if config.head_dim is None and width % heads:
        yield f"width {width} is not a multiple of {heads} heads: change one, or set head_dim"
    if config.position.kind == "sincos-2d" and width % 4:
        yield f"sincos-2d positions need a width that is a multiple of 4, not {width}"
    if config.position.kind == "learned-2d" and width < 2:
        yield "learned-2d positions need a width of at least 2"
    if config.position.kind == "rotary-2d" and head_dim % 4:
        yield f"rotary-2d positions need a head_dim that is a multiple of 4, not {head_dim}"

    pooling = config.pooling
    if pooling == "attention" and width % heads:
        yield f"attention pooling needs a width that is a multiple of the heads, not {width} for {heads}"
    if pooling in ("class", "class+mean", "class+distillation") and not config.class_token:
        yield f"pooling {pooling!r} needs class_token=True, or pool by 'mean' or 'attention'"
    if config.distillation_token != (pooling == "class+distillation"):
        yield "a distillation token and pooling 'class+distillation' come together or not at all"
    if pooling == "class+distillation" and config.final_norm == "pooled":
        yield "DeiT's two tokens are normalized before pooling: set final_norm='tokens'"
    if pooling == "class+distillation" and config.representation_size:
        yield "representation_size and a distillation token exclude each other"
