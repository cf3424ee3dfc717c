"""What a served model can be asked: addresses, parameters, images and the form of answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from pydantic import BaseModel, Field, ValidationError

from vitreous.data.decoding import BadImage, EncodedImage, load_pixels, open_image, plain_size
from vitreous.errors import InputError, LazyModule, nearest
from vitreous.inspection.images import enlarged, overlay, png, rgb
from vitreous.models.config_parts import Config
from vitreous.models.settings import explain

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")

MOST_BEAMS = 16
MOST_RATIO = 100  # of an image's longer side to its shorter one
MOST_RESIZED = 16_000_000  # pixels of an image when its shorter side has the model's size
SHOWN = 256  # pixels of an overlay's longer side, at least
DIGITS = 6  # significant ones of a weight: more than an eye or a plot can tell


class Limits(NamedTuple):
    """How much clients may bring, how long they may take, and how much is computed together.

    Attributes:
        body: bytes of a request.
        memory: bytes of all bodies that are held at once.
        images: or texts, of a request.
        pixels: of one image.
        characters: of one text.
        connections: at once.
        header_seconds: until a request's headers are there.
        stalled: seconds without a byte of a body that is not complete.
        seconds: until the whole body is there.
        deadline: seconds from the whole body to the answer.
        max_batch: the largest batch.
        max_wait: seconds that a question waits for others.
        queue: how many images or texts may be queued.
    """

    body: int = 32 * 2**20
    memory: int = 256 * 2**20
    images: int = 64
    pixels: int = 64_000_000
    characters: int = 20_000
    connections: int = 1000
    header_seconds: float = 10.0
    stalled: float = 10.0
    seconds: float = 120.0
    deadline: float = 60.0
    max_batch: int = 32
    max_wait: float = 0.005
    queue: int = 256


class Refused(Exception):
    """A request that cannot be answered: the status and one sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers


class Question(NamedTuple):
    """One image or text, what it is called, as the model's own `decode` made it, and how it is to be
    answered."""

    name: str
    what: Any
    parameters: Any


Answer = dict[str, Any] | bytes  # bytes: a PNG


class Endpoint(NamedTuple):
    """One address.

    Attributes:
        name: after /v1/.
        key: of the list of answers.
        summary: for the documentation.
        parameters: from the query, from fields of a form, or from beside the images or texts in JSON.
        item: the form of one answer.
        answer: from a batch of questions to their answers.
        together: whether questions are answered in batches; else one at a time, as attention is.
    """

    name: str
    key: str
    summary: str
    parameters: type[Config]
    item: type
    answer: Callable[[Sequence[Question]], list[Answer]]
    together: bool = True


class Served(ABC):
    """A model that is served.

    Attributes:
        task: the name of its task, of its part of the page, and of its words in the catalog.
        takes: what is sent.
        endpoints: what it can be asked; the first is the page's.
        model: itself.
    """

    task: ClassVar[str]
    takes: ClassVar[Literal["images", "texts"]]
    endpoints: tuple[Endpoint, ...]
    model: Any
    in_precision: Callable[[Callable[..., Any]], Callable[..., Any]] = staticmethod(lambda answer: answer)

    def lower(self) -> None:
        """Answer in bf16; attention, which is not answered in batches, stays in float32."""
        self.in_precision = torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16)
        self.endpoints = tuple(
            each._replace(answer=self.in_precision(each.answer)) if each.together else each
            for each in self.endpoints
        )

    @abstractmethod
    def open(self, data: bytes, name: str) -> Any:
        """One image, of which no pixel is decoded, or one text (UTF-8). Raises BadImage or InputError."""

    def cost(self, opened: Any) -> int:
        """What `prepare` has to decode, in pixels."""
        return 0

    def prepare(self, opened: Any) -> Any:
        """What was opened, ready to be asked about. Raises BadImage."""
        return opened

    def decode(self, data: bytes, name: str) -> Any:
        """One image or text, ready to be asked about. Raises BadImage or InputError."""
        return self.prepare(self.open(data, name))

    @property
    def tensors(self) -> Endpoint:
        """The endpoint whose answers the Open Inference Protocol gives as tensors."""
        return self.endpoints[0]

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What GET /v1/model says."""

    @abstractmethod
    def sample(self) -> bytes:
        """Something to ask about, to warm up."""


class ImageHeader(NamedTuple):
    """An image of which only the header has been read: a file's bytes or Pillow's image, its name, and its
    size (H, W) before it is rotated."""

    stored: bytes | Image.Image
    name: str
    size: tuple[int, int]


class ServedImages(Served):
    """A model of images.

    Args:
        most_pixels: of an image that is sent.
    """

    takes = "images"

    def __init__(self, model: Any, most_pixels: int) -> None:
        self.model = model
        self.most_pixels = most_pixels

    def open(self, data: bytes, name: str) -> ImageHeader:
        """An image whose header allows it. Raises BadImage."""
        preprocessing = self.model.preprocessing
        stored: bytes | Image.Image = data
        size = plain_size(data, preprocessing.channels)
        if size is None:
            stored = image = open_image(data, name)
            size = (image.height, image.width)
        height, width = size
        if height * width > self.most_pixels:
            raise BadImage(name, f"{width}x{height} pixels are over the {self.most_pixels} that are allowed")
        tall, wide = preprocessing.rescaled(size)
        if max(size) > MOST_RATIO * min(size) or tall * wide > MOST_RESIZED:
            raise BadImage(
                name, f"{width}x{height} pixels are too narrow: sides may differ {MOST_RATIO}-fold"
            )
        return ImageHeader(stored, name, size)

    def cost(self, opened: ImageHeader) -> int:
        return opened.size[0] * opened.size[1]

    def prepare(self, opened: ImageHeader) -> Any:
        """The image at its own size."""
        return load_pixels(self.encoded(opened).image, opened.name)

    def encoded(self, opened: ImageHeader) -> EncodedImage:
        """An image of which EXIF is read too, which may take its pixels. Raises BadImage."""
        return EncodedImage(opened.stored, opened.name, self.model.preprocessing.channels)

    def facts(self) -> dict[str, Any]:
        return {"preprocessing": self.model.preprocessing.model_dump(mode="json")}

    def sample(self) -> bytes:
        return png(np.zeros((*self.model.preprocessing.size, 3), dtype=np.uint8))


class NoParameters(Config):
    """Nothing can be chosen."""


class Beams(Config):
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS, description="of the search; 1 is greedy")] = 4


class LayerAndHead(Config):
    """Which attention map."""

    layer: Annotated[int | None, Field(ge=1, description="from 1; by default the last")] = None
    head: Annotated[int, Field(ge=0, description="from 1; 0 is the mean of all")] = 0


# What attention over an image has in common, whatever kind of model looks.
Seen = Annotated[bool, Field(description="add the image as the model sees it, as a data URI")]
Heat = Annotated[Literal["json", "png"], Field(description="png: heat over the image; of one image")]


def selected_map(layers: Sequence[torch.Tensor], wanted: LayerAndHead) -> torch.Tensor:
    """One layer's map of one head, or the mean of its heads.

    Args:
        layers: maps, the heads first.

    Raises:
        InputError: there are fewer layers or heads.
    """
    layer = wanted.layer or len(layers)
    if layer > len(layers):
        raise InputError(f"layer {layer} is not there: the model has {len(layers)}")
    heads = layers[layer - 1]
    if wanted.head > len(heads):
        raise InputError(f"head {wanted.head} is not there: layer {layer} has {len(heads)}")
    return heads[wanted.head - 1] if wanted.head else heads.mean(dim=0)


class Failed(BaseModel):
    """An image that could not be read, and why."""

    path: str
    reason: str


class Problem(BaseModel):
    """What every refusal looks like."""

    error: str = Field(description="one sentence: what is wrong, and what to do")


def parse(given: dict[str, Any], kind: type[Config]) -> Any:
    """The parameters of a request. Raises InputError: an unknown name, or a value that does not do."""
    known = list(kind.model_fields)
    for name in given:
        if name not in known:
            end = nearest(name, known) if known else "there are none here"
            raise InputError(f"unknown parameter {name!r}: {end}")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(explain(error, "parameter").removeprefix("parameter.")) from None


def heat_png(pixels: UInt8[torch.Tensor, "C H W"], values: Float[torch.Tensor, "rows columns"]) -> bytes:
    """A PNG of the image with heat over it, scaled to the map's largest value."""
    return png(overlay(enlarged(rgb(pixels), SHOWN), values.float().cpu()))


def rounded(values: torch.Tensor) -> Any:
    """A tensor as nested lists of numbers with few digits."""
    numbers = [float(f"{value:.{DIGITS}g}") for value in values.detach().float().flatten().tolist()]
    return np.array(numbers).reshape(tuple(values.shape)).tolist()
