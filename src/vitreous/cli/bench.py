"""`vitreous bench`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import Device, ImageSize, Json, Precision, print_json, resized
from vitreous.cli.tables import print_table
from vitreous.errors import InputError


def bench(
    *,
    model: str = "ViT-Ti/16",
    image_size: ImageSize = None,
    batch_size: Annotated[int, Parameter(help="images of a call")] = 16,
    train: Annotated[bool, Parameter(help="time a training step (AdamW) rather than the answer")] = False,
    compile: Annotated[bool, Parameter(help="through torch.compile, all of them")] = False,
    peers: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    rounds: Annotated[int, Parameter(help="calls of each")] = 10,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """How fast a ViT is here, side by side with the peers that are installed.

    Parameters
    ----------
    model
        A name: ViT-Ti/16, ViT-B/16, ...
    peers
        timm, huggingface, torchvision, vit-pytorch; by default those that can be imported.
    """
    if batch_size < 1 or rounds < 1:
        raise InputError("--batch-size and --rounds count from 1")
    from vitreous.deployment.bench import Way, compare
    from vitreous.models.changing import change
    from vitreous.models.config import ViTConfig
    from vitreous.models.names import config_of
    from vitreous.training.device import pick_device
    from vitreous.training.precision import answering_precision

    config = change(config_of(model), resized(image_size))
    if not isinstance(config, ViTConfig):
        raise InputError(f"{model} is no ViT, and the peers are: compare a name such as ViT-B/16")
    here = pick_device(device)
    way = Way(batch_size, rounds, train, answering_precision(precision, here), compile, here)
    print(f"vitreous: {rounds} rounds of {batch_size} images ...", file=sys.stderr)
    found = compare(config, way, peers)
    if json:
        print_json(
            {
                "model": model,
                "image_size": list(config.image_size),
                "batch_size": batch_size,
                "training": train,
                "precision": way.precision,
                "compiled": compile,
                "device": str(here),
                "contenders": [each._asdict() for each in found.contenders],
                "absent": found.absent,
            }
        )
        return
    rows = [
        [each.name, each.version, f"{each.images_per_second:.1f}", f"{each.ratio:.2f}"]
        for each in found.contenders
    ]
    print_table(["", "version", "images/s", "times vitreous"], rows, words=2)
    for name, reason in found.absent.items():
        print(f"vitreous: without {name}: {reason}", file=sys.stderr)
