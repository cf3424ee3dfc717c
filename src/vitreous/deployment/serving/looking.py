"""What a Vision Transformer looks at, asked over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.deployment.serving.endpoints import Answer, Endpoint, Question
from vitreous.deployment.serving.pixels import heat_png, rounded
from vitreous.errors import InputError, nearest
from vitreous.inspection.attention_metrics import (
    flow,
    readout_attention,
    readout_name,
    readout_of,
    rollout,
    to_grid,
)
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import data_uri, rgb
from vitreous.inspection.relevance import relevance
from vitreous.models.config import Config
from vitreous.models.vit import ViT

# What attention over an image has in common, whatever kind of model looks.
Seen = Annotated[bool, Field(description="add the image as the model sees it, as a data URI")]
Heat = Annotated[Literal["json", "png"], Field(description="png: heat over the image; of one image")]


class Look(Config):
    """Which attention."""

    kind: Annotated[
        Literal["rollout", "attention", "evidence"],
        Field(
            description="rollout of all layers (arXiv 2005.00928), attention of one layer, or evidence for a "
            "class (arXiv 2103.15679)"
        ),
    ] = "rollout"
    layer: Annotated[
        int | None, Field(ge=1, description="for kind=attention, from 1; by default the last")
    ] = None
    head: Annotated[int, Field(ge=0, description="for kind=attention, from 1; 0 is the mean of all")] = 0
    label: Annotated[str | None, Field(description="for kind=evidence; by default the model's answer")] = None
    seen: Seen = False
    format: Heat = "json"


class LookAnswer(BaseModel):
    path: str
    kind: str
    of: str = Field(description="whose attention it is, or the label that evidence is for")
    grid: tuple[int, int] = Field(description="rows and columns of patches")
    values: list[list[float]] = Field(description="a weight for each patch, row by row")
    seen: str | None = Field(default=None, description="the image as the model sees it")


def look_endpoint(model: ViT, device: torch.device) -> Endpoint:
    """POST /v1/attention. One image at a time: maps are large, and each may be asked for differently."""
    return Endpoint(
        name="attention",
        takes="images",
        key="attention",
        summary="Where the model looks: rollout, attention of a layer, or evidence for a class",
        parameters=Look,
        item=LookAnswer,
        answer=partial(look_at_each, model, device),
        together=False,
    )


def layers_and_heads(model: ViT) -> dict[str, int]:
    """What can be looked at, for GET /v1/model."""
    return {"layers": model.config.depth, "heads": model.config.heads}


def look_at_each(model: ViT, device: torch.device, questions: Sequence[Question]) -> list[Answer]:
    return [look_at(model, device, question) for question in questions]


def look_at(model: ViT, device: torch.device, question: Question) -> Answer:
    """The map of one image; as a PNG, or as numbers."""
    wanted: Look = question.parameters
    images = model.preprocessing.normalize(question.what[None].to(device))
    of = readout_name(model.config)
    match wanted.kind:
        case "rollout":
            values = rolled_out(model, images)
        case "attention":
            values = attended(model, images, wanted)
        case "evidence":
            number = class_number(model, wanted.label)
            values, of = evidence(model, images, number)
    if wanted.format == "png":
        return heat_png(question.what, values)
    return {
        "path": question.name,
        "kind": wanted.kind,
        "of": of,
        "grid": list(model.config.grid),
        "values": rounded(values),
        **({"seen": data_uri(rgb(question.what))} if wanted.seen else {}),
    }


@torch.inference_mode()
def rolled_out(model: ViT, images: Float[Tensor, "1 C H W"]) -> Float[Tensor, "rows columns"]:
    """What arrives through all layers at the tokens that the head reads."""
    weights = readout_of(model, images)
    with capture_attention(model, reduce=lambda maps: flow(maps.float()).cpu()) as attention:
        model(images)
    through = torch.einsum("bt,bts->bs", weights, rollout(attention.maps))
    return to_grid(through, model.config)[0]


@torch.inference_mode()
def attended(model: ViT, images: Float[Tensor, "1 C H W"], wanted: Look) -> Float[Tensor, "rows columns"]:
    """What the tokens that the head reads attend to in one layer."""
    weights = readout_of(model, images)
    with capture_attention(
        model, reduce=lambda maps: readout_attention(maps.float(), weights).cpu()
    ) as attention:
        model(images)
    layer = wanted.layer or len(attention.maps)
    if layer > len(attention.maps):
        raise InputError(f"layer {layer} is not there: the model has {len(attention.maps)}")
    heads = attention.maps[layer - 1][0]
    if wanted.head > len(heads):
        raise InputError(f"head {wanted.head} is not there: layer {layer} has {len(heads)}")
    return to_grid(heads[wanted.head - 1] if wanted.head else heads.mean(dim=0), model.config)


def evidence(
    model: ViT, images: Float[Tensor, "1 C H W"], number: int | None
) -> tuple[Float[Tensor, "rows columns"], str]:
    """Which patches speak for a class, or for the model's answer; and its label."""
    if number is None:
        with torch.inference_mode():
            number = int(model(images).argmax(dim=-1))
    found = relevance(model, images.clone(), torch.tensor([number]))
    return found.patches[0].cpu(), labels_of(model)[number]


def class_number(model: ViT, label: str | None) -> int | None:
    """The class called `label`. Raises InputError: there is none, or the model has no classes."""
    if label is None:
        return None
    labels = labels_of(model)
    if label not in labels:
        raise InputError(f"the model has no class {label!r}: {nearest(label, labels)}")
    return labels.index(label)


def labels_of(model: ViT) -> list[str]:
    if model.config.num_classes is None:
        raise InputError("the model has no classes, so relevance maps do not exist")
    return list(model.labels or [str(number) for number in range(model.config.num_classes)])
