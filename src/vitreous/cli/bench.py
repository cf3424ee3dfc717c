"""`vitreous bench`."""

from __future__ import annotations

import sys
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import DeviceOptions, Int, Json
from vitreous.cli.printing import print_json, print_table


def bench(
    *,
    model: str = "ViT-Ti/16",
    batch_size: Annotated[Int, Parameter(help="images in one call")] = 16,
    train: Annotated[bool, Parameter(help="time a training step (AdamW) instead of inference")] = False,
    compile: Annotated[bool, Parameter(help="through torch.compile, all of them")] = False,
    peers: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    rounds: Annotated[Int, Parameter(help="calls of each")] = 10,
    json: Json = False,
    **options: Unpack[DeviceOptions],
) -> None:
    """How fast a ViT is here, side by side with the peers that are installed.

    Parameters
    ----------
    model
        A name: ViT-Ti/16, ViT-B/16, ...
    peers
        timm, huggingface, torchvision, vit-pytorch; by default those that can be imported.
    """
    print(f"vitreous: {rounds} rounds of {batch_size} images ...", file=sys.stderr)
    found = vt.benchmark(
        model, batch_size=batch_size, train=train, compile=compile, peers=peers, rounds=rounds, **options
    )
    if json:
        print_json({"model": model, **found.to_json()})
        return
    rows = [
        [each.name, each.version, f"{each.images_per_second:.1f}", f"{each.ratio:.2f}"]
        for each in found.contenders
    ]
    print_table(["", "version", "images/s", "times vitreous"], rows, words=2)
    for name, reason in found.absent.items():
        print(f"vitreous: without {name}: {reason}", file=sys.stderr)
