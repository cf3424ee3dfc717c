"""`vitreous convert SRC DST`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import ImageSize, Json, Settings, parse_settings, parse_size, print_json


def convert(
    source: str,
    destination: Path,
    /,
    *,
    format: str | None = None,
    source_format: Annotated[str | None, Parameter(name="--from")] = None,
    drop: Annotated[list[str] | None, Parameter(name="--drop", negative=())] = None,
    image_size: ImageSize = None,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Write a model in another format, read it back, and compare what both make of the same images.

    Parameters
    ----------
    source
        A checkpoint of any format, a run directory, hf:org/name, an https: address, or a model name.
    destination
        A new folder (vitreous, timm, huggingface) or file (the others); nothing is overwritten.
    format
        vitreous, google, timm, huggingface, torchvision, vit-pytorch, frankzvit, dinov2 or bit. Left out:
        google for .npz, else vitreous.
    source_format
        The format of the source, where it is not to be detected.
    drop
        A part that the format cannot hold and that is left out: representation, head, norm_eps, mlp.
    """
    from vitreous.api.arguments import model_fields, settings_tree
    from vitreous.checkpoints import open_model, save
    from vitreous.checkpoints.saving import check_free
    from vitreous.training.run import check_finished

    overrides = model_fields(settings_tree(parse_settings(settings)), parse_size(image_size))
    check_free(destination, "nothing is overwritten")
    check_finished(Path(source))
    target = format or ("google" if destination.suffix == ".npz" else "vitreous")
    model = open_model(source, format=source_format, **overrides)
    difference = save(model, destination, format=target, drop=drop or ())
    if json:
        print_json(
            {
                "source": source,
                "path": str(destination),
                "format": target,
                "dropped": drop or [],
                "max_abs_difference": difference,
            }
        )
        return
    if drop:
        print(f"left out: {', '.join(drop)}; the comparison is with the model without it", file=sys.stderr)
    print(f"{destination} ({target}), largest difference {difference:.1e}")
