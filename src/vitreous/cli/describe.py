"""`vitreous describe MODEL`."""

from __future__ import annotations

from vitreous.cli.options import (
    ConfigFile,
    ImageSize,
    Json,
    Settings,
    parse_settings,
    parse_size,
    print_json,
)


def describe(
    model: str,
    /,
    *,
    image_size: ImageSize = None,
    settings: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Print every stage of the forward pass of a model: shape, parameters, operations, equation, and memory.

    Parameters
    ----------
    model
        A name such as ViT-B/16 or R50+ViT-B/16, a checkpoint of any format, or a run directory.
    """
    import vitreous as vt

    description = vt.describe(
        model, image_size=parse_size(image_size), settings=parse_settings(settings), config=config
    )
    if json:
        print_json({"model": model, **description.to_json()})
    else:
        print(f"{model}: the forward pass of one image\n\n{description}")
