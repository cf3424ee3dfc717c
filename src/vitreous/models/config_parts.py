"""What every configuration is; and the parts of a Vision Transformer's that have choices of their own: stem,
positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from vitreous.errors import InputError
from vitreous.models.settings import check_names, explain

Positive = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


def both_sides(size: Any) -> Any:
    """A single number is a square: 384 means (384, 384)."""
    return (size, size) if isinstance(size, int) and not isinstance(size, bool) else size


Side = Annotated[int, Field(gt=0, le=16_384)]
Sides = Annotated[tuple[Side, Side], BeforeValidator(both_sides)]  # (H, W) in pixels


def in_words(value: Any) -> Any:
    """None means "none" where a field has that choice: settings cannot tell them apart."""
    return "none" if value is None else value


T = TypeVar("T")
OrNone = Annotated[T, BeforeValidator(in_words)]


def setting(default: Any, description: str, **limits: Any) -> Any:
    """Return the field of a configuration. limits: of its values, as pydantic's `Field` has them."""
    return Field(default=default, description=description, **limits)


class Config(BaseModel):
    """Frozen, and unknown keys are errors. Every configuration of the project is one of these."""

    model_config = ConfigDict(  # type: ignore[typeddict-unknown-key]
        frozen=True,
        extra="forbid",
        kw_only=True,
        allow_inf_nan=False,
        defer_build=True,  # until its first use: most commands use few of them
    )

    @classmethod
    def checked(cls, fields: Mapping[str, Any], overrides: Mapping[str, Any]) -> Any:
        """A validated configuration: `fields`, and what a user set over them. Raises InputError: one sentence
        that says what does not fit."""
        try:
            if overrides:
                check_names(overrides, cls)
            return cls(**{**fields, **overrides})
        except ValidationError as error:
            raise InputError(explain(error, "model")) from None


class PatchStemConfig(Config):
    """Patches of P x P pixels, projected linearly (Eq. 1)."""

    kind: Literal["patch"] = setting("patch", "one linear map of each patch")
    bias: bool = setting(True, "whether the projection adds a bias")
    form: Literal["convolution", "linear"] = setting(
        "convolution", "a convolution with stride P, or cut and multiply: the same map"
    )
    norm_before: bool = setting(False, "LayerNorm on the flat patch (linear form)")
    norm_after: bool = setting(False, "LayerNorm on the projected patch (linear form)")

    @model_validator(mode="after")
    def _norms_of_the_linear_form(self) -> PatchStemConfig:
        if self.form == "convolution" and (self.norm_before or self.norm_after):
            if "form" in self.model_fields_set:
                raise ValueError("norm_before and norm_after are for flat patches: set form to linear")
            object.__setattr__(self, "form", "linear")
        return self


class ConvolutionStemConfig(Config):
    """3x3 convolutions before the tokens (arXiv 2106.14881); the strides' product is the patch size."""

    kind: Literal["convolution"] = setting("convolution", "a few convolutions before the tokens")
    widths: tuple[Positive, ...] = setting((48, 96, 192, 384), "channels of each convolution", min_length=1)
    strides: tuple[Positive, ...] = setting((2, 2, 2, 2), "of each convolution", min_length=1)
    norm: Literal["layer", "instance"] = setting(
        "layer", "over all channels together, or each by itself: blind to brightness and contrast"
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

    layers: tuple[Positive, ...] = setting((3, 4, 6, 3), "bottleneck units in each stage")
    width_factor: float = setting(1.0, "times 64 channels in the root, 256 in stage 1", gt=0)
    standardization: Literal["std", "variance"] = setting(
        "std", "weights divided by std + eps (Google) or by sqrt(variance + eps) (timm)"
    )
    standardization_eps: float = setting(1e-5, "added to the deviation or to the variance")
    norm_eps: float = setting(1e-6, "GroupNorm: 1e-6 in Google's code, 1e-5 in timm's")

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

    kind: Literal["resnet"] = setting("resnet", "the feature map of a ResNet: a hybrid")
    layers: tuple[Positive, ...] = setting((3, 4, 9), "bottleneck units in each stage; empty: the root alone")
    widths: tuple[Positive, ...] | None = setting(
        None, "output channels of each stage; None: width_factor * 256, 512, 1024, 2048"
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

    kind: OrNone[
        Literal["none", "learned", "learned-2d", "sincos-2d", "relative", "relative-bias", "rotary-2d"]
    ] = setting(
        "learned",
        "learned in 1-D (the paper) or 2-D, computed, relative, a bias per offset (BEiT), rotary alone, or "
        "none",
    )
    where: Literal["stem", "every-layer", "every-layer-shared"] = setting(
        "stem", "relative and rotary positions live in the attention: of every layer"
    )
    temperature: float | None = setting(None, "longest wave; 10000 for sincos-2d, 100 for rotary-2d", gt=0)
    init_std: float = setting(0.02, "of learned tables, at initialization", ge=0)

    @model_validator(mode="after")
    def _temperature_of_waves(self) -> PositionConfig:
        if self.temperature is not None and self.kind not in ("sincos-2d", "rotary-2d"):
            raise ValueError(
                f"temperature has no effect on {self.kind} positions: leave it out, or choose sincos-2d or "
                "rotary-2d"
            )
        return self


class RotaryConfig(Config):
    """How rotary positions turn queries and keys (arXiv 2104.09864), alone or beside added positions."""

    kind: Literal["axial", "mixed"] = setting(
        "axial", "each pair of channels has one axis, or both with learned frequencies (2403.13298)"
    )
    temperature: float | None = setting(None, "longest wave; None: 100, if mixed 10 at the start", gt=0)
    periods: tuple[Annotated[float, Field(gt=0)], ...] | None = setting(
        None, "wavelengths of one axis, instead of a temperature", min_length=1
    )
    pairs: Literal["interleaved", "halves"] = setting(
        "interleaved", "which channels are a pair: neighbors, or i and i + D_h / 2"
    )
    axes: Literal["xy", "yx"] = setting("xy", "the axis of the first half of the pairs")
    coordinates: Literal["index", "centered", "centered-min", "centered-max"] = setting(
        "index", "0, 1, 2 ..., or centers from -1 to 1, on each axis or by the shorter or longer one"
    )
    offset: float = setting(0.0, "added to an index")
    reference: tuple[Positive, Positive] | None = setting(
        None, "the grid (rows, columns) of pre-training that indices are scaled to"
    )

    class_angles: bool = setting(False, "the class token is rotated by learned angles, of all layers (MLCD)")

    @model_validator(mode="after")
    def _with_effect(self) -> RotaryConfig:
        if self.class_angles and self.kind == "mixed":
            raise ValueError("class_angles are for kind='axial': leave them out")
        if self.periods is not None and self.temperature is not None:
            raise ValueError("periods and temperature exclude each other: give one")
        if self.coordinates != "index" and (self.offset or self.reference):
            raise ValueError("offset and reference are for coordinates='index': leave them out")
        if self.kind == "mixed" and (self.periods or self.reference or self.coordinates != "index"):
            raise ValueError(
                "learned frequencies (kind='mixed') take indices as coordinates: leave out periods, "
                "reference and coordinates"
            )
        return self
