"""From a request's body to images or texts with names, and the parameters that came with them."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from vitreous.deployment.serving.endpoints import Limits, Refused
from vitreous.models.settings import explain

FIELDS = 32  # of a form, beside its files
MOST_PARTS = 100_000  # of JSON: each takes a hundred bytes and more once it is parsed
Body = TypeVar("Body", bound=BaseModel)


class Upload(NamedTuple):
    """An image's file, or a text in UTF-8, and what it is called in the answer."""

    name: str
    data: bytes


class Asked(NamedTuple):
    """What a body held."""

    uploads: list[Upload]
    parameters: dict[str, Any]


# What OpenAPI says of a file in JSON.
BASE64: dict[str, Any] = {"type": "string", "minLength": 1, "contentEncoding": "base64"}


class NamedImage(BaseModel):
    """An image in JSON."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="what it is called in the answer, as `path`")
    data: str = Field(description="the file's bytes in base64", json_schema_extra=BASE64)


ImageSchema = WithJsonSchema({"anyOf": [BASE64, NamedImage.model_json_schema()]})


class ImageBody(BaseModel):
    """Images as JSON. Parameters may stand beside them."""

    model_config = ConfigDict(extra="allow")
    images: Annotated[
        list[Annotated[str | NamedImage, ImageSchema]],
        Field(min_length=1, description="files in base64, or data URIs"),
    ]


class TextBody(BaseModel):
    """Texts as JSON. Parameters may stand beside them."""

    model_config = ConfigDict(extra="allow")
    texts: Annotated[list[str], Field(min_length=1)]


async def read_images(request: Request, limits: Limits) -> Asked:
    """The images of a form, of JSON, or the one that is the body itself. Raises Refused."""
    kind = media_type(request)
    if kind == "multipart/form-data":
        asked = await read_form(request, limits)
    elif kind == "application/json":
        asked = await asyncio.to_thread(images_of, await request.body(), limits)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        data = await request.body()
        asked = Asked([Upload("image", data)] if data else [], {})
    else:
        raise wrong_type(kind, "multipart/form-data (curl -F files=@photo.jpg), application/json or image/*")
    if not asked.uploads:
        raise Refused(400, "the request brings no images: send at least one")
    check_count(len(asked.uploads), limits, "images")
    return asked


async def read_texts(request: Request, limits: Limits) -> Asked:
    """The texts of a JSON body. Raises Refused."""
    if (kind := media_type(request)) != "application/json":
        raise wrong_type(kind, 'application/json such as {"texts": ["a line"]}')
    return await asyncio.to_thread(texts_of, await request.body(), limits)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wrong_type(kind: str, wanted: str) -> Refused:
    return Refused(415, f"a body of type {kind or 'unknown'} cannot be read: send {wanted}")


def check_count(count: int, limits: Limits, what: str) -> None:
    """Raises Refused for more images or texts than a request may bring."""
    if count > limits.images:
        raise Refused(413, f"{count} {what} are over the {limits.images} allowed in a request")


async def read_form(request: Request, limits: Limits) -> Asked:
    """Every part with a file name is an image, whatever its field is called; the others are parameters."""
    uploads: list[Upload] = []
    parameters: dict[str, Any] = {}
    form = request.form(max_files=limits.images, max_fields=FIELDS, max_part_size=limits.body)
    try:
        async with form as parts:
            for field, value in parts.multi_items():
                if isinstance(value, str):
                    parameters[field] = value
                else:
                    uploads.append(Upload(value.filename or field, await value.read()))
    except HTTPException as error:
        if "Too many files" in error.detail:
            raise Refused(413, f"a request may bring {limits.images} images, no more") from None
        raise Refused(400, f"the form cannot be read: {error.detail}") from None
    return Asked(uploads, parameters)


def parse_object(data: bytes) -> dict[str, Any]:
    """The object of a JSON body, whose size is bounded before anything is made of it. Raises Refused."""
    if sum(data.count(mark) for mark in b",[{") > MOST_PARTS:
        raise Refused(413, f"the JSON has more than {MOST_PARTS} parts: send less at once")
    try:
        content = from_json(data, allow_inf_nan=False)
    except ValueError:
        raise Refused(400, "the body is not JSON, although its content type says so") from None
    if not isinstance(content, dict):
        raise Refused(400, "the body is JSON, but not an object: write {...}")
    return content


def validated(data: bytes, kind: type[Body], key: str, limits: Limits) -> Body:
    """The object of a JSON body with a list of images or texts. Raises Refused."""
    content = parse_object(data)
    if isinstance(content.get(key), list):  # else a mistake is found in each of them
        check_count(len(content[key]), limits, key)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise Refused(400, explain(error, "body")) from None


def texts_of(data: bytes, limits: Limits) -> Asked:
    """The texts of a JSON body."""
    body = validated(data, TextBody, "texts", limits)
    for text in body.texts:
        if len(text) > limits.characters:
            raise Refused(413, f"a text of {len(text)} characters is over the {limits.characters} allowed")
    return Asked(
        [Upload(text, text.encode("utf-8", "replace")) for text in body.texts], body.model_extra or {}
    )


def images_of(data: bytes, limits: Limits) -> Asked:
    """The images of a JSON body, decoded from base64."""
    body = validated(data, ImageBody, "images", limits)
    uploads = []
    for number, each in enumerate(body.images):
        name, text = (f"images[{number}]", each) if isinstance(each, str) else (each.name, each.data)
        uploads.append(Upload(name, from_base64(text, name)))
    return Asked(uploads, body.model_extra or {})


def from_base64(text: str, name: str) -> bytes:
    """The bytes of base64, or of a data URI. Raises Refused."""
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, f"{name} is not base64: encode the file's bytes") from None
