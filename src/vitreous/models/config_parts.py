"""What every configuration is; and the parts of a Vision Transformer's that have choices of their own: stem,
positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from vitreous.errors import InputError
from vitreous.models.settings import check_names, explain

Positive = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


def both_sides(size: object) -> object:
    """Return the height and the width: a single number is a square, 384 means (384, 384)."""
    return (size, size) if isinstance(size, int) and not isinstance(size, bool) else size


Side = Annotated[int, Field(gt=0, le=16_384)]
Sides = Annotated[tuple[Side, Side], BeforeValidator(both_sides)]  # (H, W) in pixels


def none_in_words(value: object) -> object:
    """Return "none" for None where a field has that choice: settings cannot tell them apart."""
    return "none" if value is None else value


T = TypeVar("T")
ConfigT = TypeVar("ConfigT", bound="Config")
OrNone = Annotated[T, BeforeValidator(none_in_words)]


def setting(default: T, description: str, **limits: Any) -> T:
    """Return the field of a configuration. limits: of its values, as pydantic's `Field` has them."""
    field: T = Field(default=default, description=description, **limits)
    return field


def alternative_types(annotation: object) -> set[object]:
    """Return the types among the alternatives of an annotation; of a Literal those of its values."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return {type(each) for each in inner}
    return {annotation}.union(*map(alternative_types, inner)) if inner else {annotation}


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
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Add what each field is to the docstring."""
        doc, fields = cls.__dict__.get("__doc__"), cls.__pydantic_fields__
        rows = [f"    {name}: {field.description}" for name, field in fields.items() if field.description]
        if doc and rows:
            cls.__doc__ = "\n".join([cleandoc(doc), "", "Args:", *rows])

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_not_truth_values(cls, given: object) -> object:
        """Refuse true and false where a number belongs, which they would count as."""
        for name, value in given.items() if isinstance(given, Mapping) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field and bool not in alternative_types(field.annotation):
                raise ValueError(f"{name} is {str(value).lower()}, which is not an allowed value")
        return given

    @classmethod
    def checked(cls: type[ConfigT], fields: Mapping[str, object], overrides: Mapping[str, object]) -> ConfigT:
        """Return a validated configuration: `fields`, and what a user set over them. Raises InputError: one
        sentence that says what does not fit."""
        try:
            if overrides:
                check_names(overrides, cls)
            return cls(**{**fields, **overrides})
        except ValidationError as error:
            raise InputError(explain(error, "model", cls)) from None


class StemConfig(Config):
    """What turns pixels into tokens. A stem says here everything that other parts of the package ask of it.

    Attributes:
        title: what is before the projection, in each language of the pages; None where nothing is. Each stem
            says it.
    """

    title: ClassVar[Mapping[str, str] | None]

    @property
    def resizes(self) -> bool:
        """Whether `projection`, its last layer, is all of it that has the size of a patch, and nothing but a
        matrix on patches of cells: it can then be resampled for patches of another size."""
        return False

    @property
    def cell(self) -> int:
        """Pixels from one cell, which patches are made of, to the next: more than 1 of a feature map."""
        return 1

    def contradictions(self, patch: tuple[int, int], width: int) -> Iterator[str]:
        """Yield a sentence for each reason why the stem cannot make tokens of this width of such patches."""
        if any(side % self.cell for side in patch):
            yield (
                f"patch size {patch[0]}x{patch[1]} is not a multiple of the stem's stride {self.cell}, the "
                "pixels of one cell of its feature map"
            )


class PatchStemConfig(StemConfig):
    """Patches of P x P pixels, projected linearly (Eq. 1)."""

    kind: Literal["patch"] = setting("patch", "a linear projection of each patch")
    bias: bool = setting(True, "whether the projection adds a bias")
    form: Literal["convolution", "linear"] = setting(
        "convolution",
        "computed by a convolution with stride P, or by splitting the image and multiplying; both "
        "give the same result",
    )
    norm_before: bool = setting(False, "LayerNorm on the flattened patch (only in the linear form)")
    norm_after: bool = setting(False, "LayerNorm on the projected patch (only in the linear form)")
    title = None

    @property
    def resizes(self) -> bool:
        return not self.norm_before

    @model_validator(mode="after")
    def _norms_of_the_linear_form(self) -> PatchStemConfig:
        if self.form == "convolution" and (self.norm_before or self.norm_after):
            if "form" in self.model_fields_set:
                raise ValueError("norm_before and norm_after are for flat patches: set form to linear")
            object.__setattr__(self, "form", "linear")
        return self


class ConvolutionStemConfig(StemConfig):
    """3x3 convolutions before the tokens (arXiv 2106.14881); the strides' product is the patch size."""

    kind: Literal["convolution"] = setting("convolution", "a few convolutions before the tokens")
    widths: tuple[Positive, ...] = setting(
        (48, 96, 192, 384), "number of channels of each convolution", min_length=1
    )
    strides: tuple[Positive, ...] = setting((2, 2, 2, 2), "stride of each convolution", min_length=1)
    norm: Literal["layer", "instance"] = setting(
        "layer",
        "normalization over all channels together, or over each channel separately, which ignores "
        "brightness and contrast",
    )
    title = {"en": "convolutions", "ko": "합성곱"}

    @model_validator(mode="after")
    def _same_length(self) -> ConvolutionStemConfig:
        if len(self.widths) != len(self.strides):
            raise ValueError(
                f"{len(self.widths)} widths but {len(self.strides)} strides: give the same number of each"
            )
        return self

    def contradictions(self, patch: tuple[int, int], width: int) -> Iterator[str]:
        if {*patch} != {math.prod(self.strides)}:
            yield (
                f"the convolution stem's strides multiply to {math.prod(self.strides)}, the patch size is "
                f"{patch[0]}x{patch[1]}: they must be equal"
            )


class ResNetConfig(Config):
    """A ResNet with GroupNorm and weight standardization."""

    layers: tuple[Positive, ...] = setting((3, 4, 6, 3), "number of bottleneck units in each stage")
    width_factor: float = setting(
        1.0,
        "factor of the widths: the root has 64 channels times this factor, and stage 1 has 256 times "
        "this factor",
        gt=0,
    )
    standardization: Literal["std", "variance"] = setting(
        "std", "whether weights are divided by std + eps (Google) or by sqrt(variance + eps) (timm)"
    )
    standardization_eps: float = setting(1e-5, "constant added to the standard deviation or to the variance")
    norm_eps: float = setting(1e-6, "epsilon of GroupNorm: 1e-6 in Google's code, 1e-5 in timm's")

    @model_validator(mode="after")
    def _groups(self) -> ResNetConfig:
        """Check the widths: GroupNorm has 32 groups in the root and in each unit, whose middle has a quarter
        of its width."""
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


class ResNetStemConfig(StemConfig, ResNetConfig):
    """A ResNet's feature map instead of pixels: the hybrids of section 3.1. The patch then counts cells of
    the feature map times the ResNet's stride, so `patch_size` stays in pixels."""

    kind: Literal["resnet"] = setting("resnet", "the feature map of a ResNet: a hybrid")
    layers: tuple[Positive, ...] = setting(
        (3, 4, 9), "number of bottleneck units in each stage; empty: only the root"
    )
    widths: tuple[Positive, ...] | None = setting(
        None, "number of output channels of each stage; None: width_factor times 256, 512, 1024 and 2048"
    )
    title = {"en": "a ResNet", "ko": "ResNet"}

    @property
    def resizes(self) -> bool:
        return True

    @property
    def output_widths(self) -> tuple[int, ...]:
        return self.widths or super().output_widths

    @property
    def cell(self) -> int:
        return self.stride


# Of each stage of EfficientNet-Lite0: blocks, kernel, stride of the first block, how many times wider a block
# is inside, output channels (efficientnet_lite_builder.py of TensorFlow's TPU models).
LITE0_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
LITE0_BLOCKS = sum(stage[0] for stage in LITE0_STAGES)
LITE0_LAST_WIDTH = 1280  # channels of the 1x1 convolution after the last block


class EfficientNetLiteStemConfig(StemConfig):
    """The feature maps of EfficientNet-Lite0 instead of pixels: a hybrid as in section 3.1. The patch counts
    cells of them times their stride, so `patch_size` stays in pixels."""

    kind: Literal["efficientnet-lite"] = setting(
        "efficientnet-lite", "the feature maps of EfficientNet-Lite0: a hybrid"
    )
    blocks: int = setting(
        11,
        "number of inverted residual blocks: 11 give 112 channels and cells of 16x16 pixels, all 16 "
        "give 320 channels and cells of 32x32 pixels",
        ge=1,
        le=LITE0_BLOCKS,
    )
    maps: Literal["last", "several"] = setting(
        "last",
        "which feature maps are used: that of the last block or, with all 16 blocks, the last maps "
        "of stages 4 to 7 and the map of 1280 channels after them, concatenated",
    )
    projection: bool = setting(
        True,
        "whether cells are projected to the embedding dimension; without the projection, the "
        "embedding dimension is their number of channels",
    )
    title = {"en": "an EfficientNet-Lite0", "ko": "EfficientNet-Lite0"}

    @property
    def resizes(self) -> bool:
        return self.projection

    @model_validator(mode="after")
    def _all_blocks_for_several_maps(self) -> EfficientNetLiteStemConfig:
        if self.maps == "several" and self.blocks != LITE0_BLOCKS:
            raise ValueError(f"maps=several needs all {LITE0_BLOCKS} blocks: set blocks to {LITE0_BLOCKS}")
        return self

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """(kernel, stride, expansion, channels) of each block."""
        found: list[tuple[int, int, int, int]] = []
        for count, kernel, stride, expansion, channels in LITE0_STAGES:
            found += [(kernel, stride if n == 0 else 1, expansion, channels) for n in range(count)]
        return tuple(found[: self.blocks])

    @property
    def taken(self) -> dict[int, int]:
        """The channels of each map whose cells become tokens, by the number of the map; that of the last
        convolution comes after those of the blocks."""
        if self.maps == "last":
            return {self.blocks - 1: self.shapes[-1][-1]}
        found, number = dict[int, int](), -1
        for stage, (count, *_, channels) in enumerate(LITE0_STAGES, start=1):
            number += count
            if stage >= 4:
                found[number] = channels
        return found | {LITE0_BLOCKS: LITE0_LAST_WIDTH}

    @property
    def channels(self) -> int:
        """Channels of a cell."""
        return sum(self.taken.values())

    @property
    def cell(self) -> int:
        return 2 * math.prod(stride for _, stride, _, _ in self.shapes)

    def contradictions(self, patch: tuple[int, int], width: int) -> Iterator[str]:
        yield from super().contradictions(patch, width)
        if self.projection:
            return
        if width != self.channels:
            yield (
                f"without a projection the width is that of the feature map: set width to {self.channels}, "
                f"not {width}, or stem.projection to true"
            )
        if {*patch} != {self.cell}:
            yield (
                f"without a projection a token is one cell of {self.cell}x{self.cell} pixels: set patch_size "
                f"to {self.cell}"
            )


def with_kind(part: str, default: str | None = None) -> BeforeValidator:
    """Accept a kind alone where a part has choices: "mean" means {"kind": "mean"}. A part without a kind is
    of the default kind, or is refused in words that a user understands."""

    def check(value: object) -> object:
        if value is None or isinstance(value, str):
            return {"kind": none_in_words(value)}
        if not isinstance(value, Mapping):
            return value
        kind = none_in_words(value.get("kind", default or ""))
        if not kind:
            raise ValueError(f"{part} needs a kind: set {part}.kind")
        return {**value, "kind": kind}

    return BeforeValidator(check)


Stem = Annotated[
    Annotated[
        PatchStemConfig | ConvolutionStemConfig | ResNetStemConfig | EfficientNetLiteStemConfig,
        Field(discriminator="kind"),
    ],
    with_kind("model.stem"),
]


def kinds_of(part: object) -> str:
    """Return the kinds of a part that has choices, such as `Stem`, in words."""
    *others, last = (each.model_fields["kind"].default for each in get_args(get_args(part)[0]))
    return f"{', '.join(others)} or {last}"


class AxialRotaryConfig(Config):
    """Rotary positions whose pairs of channels have one axis each (arXiv 2104.09864)."""

    kind: Literal["axial"] = setting("axial", "each pair of channels encodes one axis")
    temperature: float | None = setting(None, "longest wavelength; None: 100, or as given by `periods`", gt=0)
    periods: tuple[Annotated[float, Field(gt=0)], ...] | None = setting(
        None, "wavelengths of one axis, instead of a temperature", min_length=1
    )
    pairs: Literal["interleaved", "halves"] = setting(
        "interleaved", "which channels form a pair: neighboring ones, or i and i + D_h / 2"
    )
    axes: Literal["xy", "yx"] = setting("xy", "the axis that the first half of the pairs encodes")
    coordinates: Literal["index", "centered", "centered-min", "centered-max"] = setting(
        "index",
        "how positions are numbered: 0, 1, 2 ..., or centers from -1 to 1, scaled on each axis "
        "separately, or by the shorter or longer axis",
    )
    offset: float = setting(0.0, "number added to each index")
    reference: tuple[Positive, Positive] | None = setting(
        None, "the grid (rows, columns) used in pre-training, to which indices are scaled"
    )
    class_angles: bool = setting(
        False, "whether the class token is rotated by learned angles, which all layers share (MLCD)"
    )
    register_temperature: float | None = setting(
        None,
        "longest wavelength for the registers, which have their own square grid (ViT-5); None: "
        "registers are not rotated",
        gt=0,
    )

    @model_validator(mode="after")
    def _with_effect(self) -> AxialRotaryConfig:
        if self.periods is not None and self.temperature is not None:
            raise ValueError("periods and temperature cannot be combined: set one of them")
        if self.coordinates != "index" and (self.offset or self.reference):
            raise ValueError("offset and reference are for coordinates='index': leave them out")
        return self


class MixedRotaryConfig(Config):
    """Rotary positions whose pairs of channels have both axes, with learned frequencies (2403.13298)."""

    kind: Literal["mixed"] = setting(
        "mixed", "each pair of channels encodes both axes, with learned frequencies"
    )
    temperature: float = setting(10.0, "longest wavelength at initialization", gt=0)
    pairs: Literal["interleaved", "halves"] = setting(
        "interleaved", "which channels form a pair: neighboring ones, or i and i + D_h / 2"
    )
    axes: Literal["xy", "yx"] = setting("xy", "the axis that the first frequencies encode")
    offset: float = setting(0.0, "number added to each index")


Rotary = Annotated[
    Annotated[AxialRotaryConfig | MixedRotaryConfig, Field(discriminator="kind")],
    with_kind("model.position.rotary", "axial"),
]


class NoPositionConfig(Config):
    """No positions: the encoder sees a set of patches."""

    kind: Literal["none"] = setting("none", "no position embeddings")
    at_stem: ClassVar[bool] = True
    shared: ClassVar[bool] = False
    absolute: ClassVar[bool] = False
    rotary: ClassVar[None] = None


class AddedPositionConfig(Config):
    """Positions that are added to the tokens (Eq. 1), at the stem or in every layer (appendix D.4)."""

    kind: str
    where: Literal["stem", "every-layer", "every-layer-shared"] = setting(
        "stem",
        "where position embeddings are added: once, or in every layer, from a separate table for "
        "each layer or from a shared one",
    )
    rotary: Rotary | None = setting(None, "rotary position embeddings in addition to the ones that are added")
    absolute: ClassVar[bool] = False  # beside relative ones

    @property
    def at_stem(self) -> bool:
        return self.where == "stem"

    @property
    def shared(self) -> bool:
        return self.where == "every-layer-shared"


class LearnedPositionConfig(AddedPositionConfig):
    """A learned table: a row for each token (the paper), or the sum of one of rows and one of columns."""

    kind: Literal["learned", "learned-2d"] = setting(
        "learned", "learned position embeddings, in 1-D (as in the paper) or in 2-D"
    )
    init_std: float = setting(0.02, "standard deviation of the table at initialization", ge=0)


class SinCosPositionConfig(AddedPositionConfig):
    """Sines and cosines of rows and columns."""

    kind: Literal["sincos-2d"] = setting("sincos-2d", "computed from rows and columns")
    temperature: float = setting(10_000.0, "longest wavelength", gt=0)


class RelativePositionConfig(Config):
    """Positions inside the attention that depend on the offset of two tokens."""

    kind: Literal["relative", "relative-bias"] = setting(
        "relative", "a vector for each offset (appendix D.4), or a bias for each offset (BEiT)"
    )
    shared: bool = setting(False, "whether all layers share one table, instead of having one each")
    absolute: bool = setting(
        False, "whether a learned table of position embeddings is also added at the stem"
    )
    init_std: float = setting(0.02, "standard deviation of the table at initialization", ge=0)
    at_stem: ClassVar[bool] = False
    rotary: ClassVar[None] = None


class RotaryPositionConfig(Config):
    """Rotary positions alone."""

    kind: Literal["rotary-2d"] = setting("rotary-2d", "queries and keys are rotated")
    shared: bool = setting(False, "whether all layers share one set of angles, instead of having one each")
    rotary: Rotary = setting(AxialRotaryConfig(), "how queries and keys are rotated")
    at_stem: ClassVar[bool] = False
    absolute: ClassVar[bool] = False


Position = Annotated[
    Annotated[
        NoPositionConfig
        | LearnedPositionConfig
        | SinCosPositionConfig
        | RelativePositionConfig
        | RotaryPositionConfig,
        Field(discriminator="kind"),
    ],
    with_kind("model.position", "learned"),
]


class TokenPoolingConfig(Config):
    """The head reads a token, a mean of tokens, or both."""

    kind: Literal["class", "mean", "mean-all", "max", "mean+max", "class+mean", "class+distillation"] = (
        setting(
            "class",
            "what the head reads: the class token (Eq. 4), the mean of the patches or of all tokens, the "
            "maximum of each channel over the patches or its average with the mean, the class token and "
            "the mean together, or DeiT's class and distillation tokens, which have a head each",
        )
    )


class AttentionPoolingConfig(Config):
    """The head reads what a learned query finds among the patches or among all tokens (MAP)."""

    kind: Literal["attention", "attention-all"] = setting(
        "attention", "attention pooling of the patches, or of all tokens"
    )
    heads: Positive | None = setting(None, "number of heads; None: as many as in the encoder")
    mlp_dim: Positive | None = setting(
        None, "number of hidden units of the MLP; None: as many as in the encoder"
    )


Pooling = Annotated[
    Annotated[TokenPoolingConfig | AttentionPoolingConfig, Field(discriminator="kind")],
    with_kind("model.pooling"),
]


def ordered_norm_places(places: object) -> object:
    """Return the places where a norm can be, each once and in the order of the forward pass."""
    known = get_args(NormPlace)
    if not isinstance(places, list | tuple) or not set(places) <= set(known):
        return places
    return tuple(place for place in known if place in places)


NormPlace = Literal["tokens", "attention", "mlp"]
NormPlaces = Annotated[tuple[NormPlace, ...], BeforeValidator(ordered_norm_places)]


def from_zero(rates: object) -> object:
    """Return the rates of the first and the last layer: a single one is that of the last, and the first has
    0."""
    return (0.0, rates) if isinstance(rates, int | float) and not isinstance(rates, bool) else rates


DropPath = Annotated[tuple[Probability, Probability], BeforeValidator(from_zero)]
