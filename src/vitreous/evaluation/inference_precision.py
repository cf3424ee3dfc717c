"""In which precision a model answers: in bf16 where that is faster, and the answers are those in fp32."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import ImageList
from vitreous.evaluation.outputs import compute_outputs
from vitreous.extensions import outputs_of
from vitreous.languages.terminal import said
from vitreous.models.bit import BiT
from vitreous.models.model import Runnable
from vitreous.models.vit import ViT
from vitreous.outside import read_text
from vitreous.training.machine import (
    WIDE,
    Precision,
    answering_precision,
    computing,
    pick_precision,
    weights_type,
)

AGREEMENT = 0.995  # of top-1 answers with those in fp32: less, and a precision is not chosen
MEASURED = 128  # images
ANGLE = 2.0  # degrees between the features of an image in two precisions
WORTH = 512  # images: of fewer, comparing two precisions takes longer than the faster one saves
AGREED = "precision.json"  # beside the weights


def automatic_precision(
    model: Runnable,
    images: ImageDataset | None,
    wanted: str,
    device: torch.device,
    *,
    folder: Path | None = None,
    workers: int = 0,
    say: Callable[[str], None] = lambda sentence: None,
) -> Precision:
    """Return the precision of inference. "auto" is bf16 where the device gains from it, and its top-1 answers
    agree with those in fp32 for `AGREEMENT` of the images; the features of a model without a head are no
    answer, and must have the same direction, within `ANGLE`.

    Args:
        images: to compare on, the first time; None: bf16 only if it was compared before.
        folder: of the weights, beside which the comparison is stored.
        say: is called with a sentence about it.
    """
    if wanted != "auto" or weights_type(model) != torch.float32:
        return answering_precision(wanted, device, model)
    if not isinstance(model, ViT | BiT) or outputs_of(model) == "number":
        return "fp32"
    record = None if folder is None else folder / AGREED
    known: dict[str, Any] = {}
    if record is not None:
        with suppress(OSError, ValueError):
            known = json.loads(read_text(record))
    few = images is None or len(images) < WORTH
    # A few images without a comparison need no answer to what is faster, which itself takes a while.
    unknown = few and not known
    if unknown or pick_precision("auto", device, getattr(model.config, "width", WIDE)) == "fp32":
        return "fp32"
    weights = sum(float(each.detach().double().sum()) for each in model.parameters())  # differ by training
    here = {"device": str(device), "torch": torch.__version__, "weights": f"{weights:.12g}"}
    features = model.config.num_classes is None
    if features:
        here["compared by"] = "angle"
    if not here.items() <= known.items():
        if images is None or few:
            return "fp32"
        agreed, count = count_agreeing(model, images, device, workers)
        known = {**here, "agreed": agreed, "images": count}
        if record is not None:
            with suppress(OSError):
                record.write_text(json.dumps(known, indent=1), encoding="utf-8")
    chosen: Precision = "bf16" if known["agreed"] >= AGREEMENT * known["images"] else "fp32"
    seen = {"precision": chosen, "agreed": known["agreed"], "count": known["images"]}
    if features:
        say(
            said(
                "computing in {precision}: bf16 gives the same features as fp32, within {angle:g} degrees, "
                "for {agreed} of {count} calibration images",
                angle=ANGLE,
                **seen,
            )
        )
    else:
        say(
            said(
                "computing in {precision}: bf16 gives the same answer as fp32 for {agreed} of {count} "
                "calibration images",
                **seen,
            )
        )
    return chosen


def count_agreeing(
    model: Runnable, images: ImageDataset, device: torch.device, workers: int
) -> tuple[int, int]:
    """Return for how many images, and of how many, the answers in bf16 are those in fp32."""
    some = ImageList([image for _, image in images.readable(images.sample(MEASURED))])
    answers = []
    for precision in ("fp32", "bf16"):
        with computing(precision, device):
            found = compute_outputs(model, some, device=device, batch_size=16, workers=workers).values
        answers.append(found.flatten(1).double())
    exact, rounded = answers
    if model.config.num_classes is None:
        mean = exact.mean(dim=0)  # which all images have in common, and which would hide the angles
        cosine = nn.functional.cosine_similarity(exact - mean, rounded - mean, dim=1)
        return int((cosine >= math.cos(math.radians(ANGLE))).sum()), len(some)
    return int((exact.argmax(dim=1) == rounded.argmax(dim=1)).sum()), len(some)
