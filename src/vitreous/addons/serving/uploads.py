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


async def read_images(request: Request, limits: Limits) -> tuple[list[Upload], dict[str, str]]:
    """What a request brings: images, those of a form (every part with a file name, whatever its field is
    called) or the one that is the body itself; and the parameters in its query and in the other parts. Raises
    Refused."""
    images: list[Upload] = []
    parameters = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = request.form(max_files=limits.images, max_fields=FIELDS, max_part_size=limits.body)
        try:
            async with form as parts:
                for field, value in parts.multi_items():
                    if isinstance(value, str):
                        parameters[field] = value
                    else:
                        images.append(Upload(value.filename or field, await value.read()))
        except HTTPException as error:
            if "Too many files" in error.detail:
                raise Refused(413, f"a request may bring {limits.images} images, no more") from None
            raise Refused(400, f"the form cannot be read: {error.detail}") from None
    elif kind.startswith("image/") or kind == "application/octet-stream":
        if data := await request.body():
            images.append(Upload("image", data))
    else:
        wanted = "multipart/form-data (curl -F files=@photo.jpg), or one image as image/*"
        raise Refused(415, f"a body of type {kind or 'unknown'} cannot be read: send {wanted}")
    if not images:
        raise Refused(400, "the request brings no images: send at least one")
    return images, parameters
