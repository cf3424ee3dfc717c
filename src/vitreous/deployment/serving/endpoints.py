"""What a served model can be asked: the addresses below /v1, parameters, the form of answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

from vitreous.errors import InputError, nearest
from vitreous.models.config import Config
from vitreous.models.settings import explain

MOST_BEAMS = 16


class Limits(NamedTuple):
    """How much a request may bring.

    body: bytes. images: or texts. pixels: of one image. characters: of one text. seconds: until the whole
    body is there.
    """

    body: int = 32 * 2**20
    images: int = 64
    pixels: int = 64_000_000
    characters: int = 20_000
    seconds: float = 120.0


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

    @abstractmethod
    def decode(self, data: bytes, name: str) -> Any:
        """One image or text (UTF-8), ready to be asked about. Raises BadImage or InputError."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What GET /v1/model says."""

    @abstractmethod
    def sample(self) -> bytes:
        """Something to ask about, to warm up."""


class NoParameters(Config):
    """Nothing can be chosen."""


class Beams(Config):
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS, description="of the search; 1 is greedy")] = 4


class LayerAndHead(Config):
    """Which attention map."""

    layer: Annotated[int | None, Field(ge=1, description="from 1; by default the last")] = None
    head: Annotated[int, Field(ge=0, description="from 1; 0 is the mean of all")] = 0


def selected_map(layers: Sequence[Tensor], wanted: LayerAndHead) -> Tensor:
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
    """The parameters of a request.

    Raises:
        InputError: an unknown name, or a value that does not do.
    """
    known = list(kind.model_fields)
    for name in given:
        if name not in known:
            end = nearest(name, known) if known else "there are none here"
            raise InputError(f"unknown parameter {name!r}: {end}")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(explain(error, "parameter").removeprefix("parameter.")) from None
