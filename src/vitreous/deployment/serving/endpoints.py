"""What a served model can be asked: the addresses below /v1, parameters, the form of answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, Field, ValidationError
from torch import nn

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
        takes: what is sent.
        key: under which the list of answers stands.
        summary: for the documentation.
        parameters: from the query, from fields of a form, or from beside the images or texts in JSON.
        item: the form of one answer.
        answer: from a batch of questions to their answers.
        together: whether questions of several requests are answered in one batch.
    """

    name: str
    takes: Literal["images", "texts"]
    key: str
    summary: str
    parameters: type[Config]
    item: type[BaseModel]
    answer: Callable[[Sequence[Question]], list[Answer]]
    together: bool = True


@runtime_checkable
class Served(Protocol):
    """A model that is served.

    Attributes:
        task: classification, reading, translation or segmentation.
        endpoints: what it can be asked.
        model: itself.
    """

    task: str
    endpoints: tuple[Endpoint, ...]

    @property
    def model(self) -> nn.Module: ...

    def decode(self, data: bytes, name: str) -> Any:
        """One image or text (UTF-8), ready to be asked about. Raises BadImage or InputError."""
        ...

    def facts(self) -> dict[str, Any]:
        """What GET /v1/model says."""
        ...

    def sample(self) -> bytes:
        """Something to ask about, to warm up."""
        ...


class NoParameters(Config):
    """Nothing can be chosen."""


class Beams(Config):
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS, description="of the search; 1 is greedy")] = 4


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
