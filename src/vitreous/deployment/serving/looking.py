"""What a Vision Transformer looks at, asked over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.deployment.predictor import output_labels
from vitreous.deployment.serving.endpoints import Answer, LayerAndHead, Question, selected_map
from vitreous.deployment.serving.pixels import heat_png, rounded
from vitreous.errors import InputError, nearest
from vitreous.inspection.attention_metrics import (
    flow,
    readout_attention,
    readout_of,
    rollout,
    to_grid,
)
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import data_uri, rgb
from vitreous.inspection.relevance import relevance
from vitreous.languages import phrase
from vitreous.models.vit import ViT

# What attention over an image has in common, whatever kind of model looks.
Seen = Annotated[bool, Field(description="add the image as the model sees it, as a data URI")]
Heat = Annotated[Literal["json", "png"], Field(description="png: heat over the image; of one image")]


class Look(LayerAndHead):
    """Which attention; a layer and a head only of kind=attention."""

    kind: Annotated[
        Literal["rollout", "attention", "evidence"],
        Field(
            description="rollout of all layers (arXiv 2005.00928), attention of one layer, or evidence for a "
            "class (arXiv 2103.15679)"
        ),
    ] = "rollout"
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


def look_at(model: ViT, device: torch.device, questions: Sequence[Question]) -> list[Answer]:
    """The map of one image; as a PNG, or as numbers."""
    (question,) = questions
    wanted: Look = question.parameters
    images = model.preprocessing.normalize(question.what[None].to(device))
    of = phrase(f"readouts.{model.config.pooling}")
    match wanted.kind:
        case "rollout":
            values = rolled_out(model, images)
        case "attention":
            values = attended(model, images, wanted)
        case "evidence":
            values, of = evidence(model, images, wanted.label)
    if wanted.format == "png":
        return [heat_png(question.what, values)]
    found = {
        "path": question.name,
        "kind": wanted.kind,
        "of": of,
        "grid": list(model.config.grid),
        "values": rounded(values),
    }
    return [{**found, "seen": data_uri(rgb(question.what))} if wanted.seen else found]


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
    return to_grid(selected_map([maps[0] for maps in attention.maps], wanted), model.config)


def evidence(
    model: ViT, images: Float[Tensor, "1 C H W"], label: str | None
) -> tuple[Float[Tensor, "rows columns"], str]:
    """Which patches speak for a class, or for the model's answer; and its label.

    Raises:
        InputError: there is no such class, or the model has no classes.
    """
    labels = output_labels(model)
    if label is None:
        with torch.inference_mode():
            label = labels[int(model(images).argmax(dim=-1))]
    if label not in labels:
        raise InputError(f"the model has no class {label!r}: {nearest(label, labels)}")
    found = relevance(model, images.clone(), torch.tensor([labels.index(label)]))
    return found.patches[0].cpu(), label
