"""`vitreous embed MODEL IMAGE...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import (
    BatchSize,
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Precision,
    Settings,
    Workers,
    parse_settings,
    parse_size,
    print_json,
    tell_failed,
)


def embed(
    model: str,
    /,
    *images: str,
    out: Annotated[Path, Parameter(help="the file: .npz, or .parquet")] = Path("features.npz"),
    image_size: ImageSize = None,
    batch_size: BatchSize = 64,
    workers: Workers = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> int:
    """Write the features of images to a file: what the head of the model sees.

    Parameters
    ----------
    model
        A run directory, a checkpoint of any format, hf:org/name, or a model name (fresh weights).
    images
        Files, folders, globs.
    """
    import vitreous as vt
    from vitreous.api.features import check_features_file

    check_features_file(out)
    features = vt.embed(
        model,
        list(images),
        image_size=parse_size(image_size),
        batch_size=batch_size,
        workers=workers,
        device=device,
        precision=precision,
        settings=parse_settings(set),
        config=config,
    )
    path = features.save(out)
    if json:
        result = {"model": model, "path": str(path), **features.to_json()}
        del result["paths"]  # they are in the file
        print_json(result)
    else:
        count, width = features.values.shape
        print(f"{path}: {count} images, {width} features of each")
    return tell_failed(features.failed)
