"""`vitreous bench`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import (
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Precision,
    Settings,
    parse_settings,
    parse_size,
    print_json,
)
from vitreous.cli.tables import print_table


def bench(
    *,
    model: str = "ViT-Ti/16",
    image_size: ImageSize = None,
    batch_size: Annotated[int, Parameter(help="images of a call")] = 16,
    train: Annotated[bool, Parameter(help="time a training step (AdamW) instead of inference")] = False,
    compile: Annotated[bool, Parameter(help="through torch.compile, all of them")] = False,
    peers: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    rounds: Annotated[int, Parameter(help="calls of each")] = 10,
    device: Device = "auto",
    precision: Precision = "fp32",
    settings: Settings = None,
    config: ConfigFile = None,
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
    import vitreous as vt

    print(f"vitreous: {rounds} rounds of {batch_size} images ...", file=sys.stderr)
    found = vt.benchmark(
        model,
        image_size=parse_size(image_size),
        batch_size=batch_size,
        train=train,
        compile=compile,
        peers=peers,
        rounds=rounds,
        device=device,
        precision=precision,
        settings=parse_settings(settings),
        config=config,
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
