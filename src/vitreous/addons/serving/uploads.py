"""From a request's body to images with names, and the parameters that came with them."""

from __future__ import annotations

from typing import NamedTuple

from fastapi import Request
from starlette.exceptions import HTTPException

from vitreous.addons.serving.limits import Limits, Refused

FIELDS = 32  # of a form, beside its files


class Upload(NamedTuple):
    """An image's file, and what it is called in the answer."""

    name: str
    data: bytes


class Uploads(NamedTuple):
    """What a request brings: images, and the parameters in its query and in its form."""

    images: list[Upload]
    parameters: dict[str, str]


async def read_images(request: Request, limits: Limits) -> Uploads:
    """The images of a form, or the one that is the body itself. Raises Refused."""
    found = Uploads([], dict(request.query_params))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        await read_form(request, limits, found)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        if data := await request.body():
            found.images.append(Upload("image", data))
    else:
        wanted = "multipart/form-data (curl -F files=@photo.jpg), or one image as image/*"
        raise Refused(415, f"a body of type {kind or 'unknown'} cannot be read: send {wanted}")
    if not found.images:
        raise Refused(400, "the request brings no images: send at least one")
    return found


async def read_form(request: Request, limits: Limits, found: Uploads) -> None:
    """Every part with a file name is an image, whatever its field is called; the others are parameters."""
    form = request.form(max_files=limits.images, max_fields=FIELDS, max_part_size=limits.body)
    try:
        async with form as parts:
            for field, value in parts.multi_items():
                if isinstance(value, str):
                    found.parameters[field] = value
                else:
                    found.images.append(Upload(value.filename or field, await value.read()))
    except HTTPException as error:
        if "Too many files" in error.detail:
            raise Refused(413, f"a request may bring {limits.images} images, no more") from None
        raise Refused(400, f"the form cannot be read: {error.detail}") from None
