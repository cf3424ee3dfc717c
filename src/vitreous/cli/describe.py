"""`vitreous describe MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitreous.cli.options import (
    ConfigFile,
    ImageSize,
    Json,
    Settings,
    parse_settings,
    parse_size,
    print_json,
)

if TYPE_CHECKING:
    from vitreous.models.description import Description


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
        show(model, description)


def show(name: str, description: Description) -> None:
    """Print the tables."""
    from vitreous.cli.tables import print_table, si, size

    memory, n, d = description.memory, *description.sequence
    print(f"{name}: the forward pass of one image\n")
    rows = [
        (
            stage.name if stage.times == 1 else f"  {stage.name}",
            stage.equation,
            stage.written_shape,
            "" if stage.times == 1 else f"x{stage.times}",
            f"{stage.parameters:,}" if stage.parameters else "",
            si(stage.macs) if stage.macs else "",
        )
        for stage in description.stages
    ]
    total = ("in all", "", "", "", f"{description.parameters:,}", si(description.macs))
    print_table(("stage", "in the paper", "shape", "layers", "parameters", "MACs"), [*rows, total], words=3)
    print(
        f"\n{si(description.parameters)} parameters, {si(description.macs)}MACs for one image, counted as "
        "fvcore does (five for\neach number of a normalization). Equations: arXiv 2010.11929, others named.\n"
    )
    print_table(
        ("memory, fp32, one image", "inference", "training"),
        [
            ("weights", size(memory.weights), size(memory.weights)),
            ("gradients", "", size(memory.gradients)),
            ("optimizer (AdamW)", "", size(memory.optimizer)),
            ("activations, for each image", size(memory.working), size(memory.activations)),
            ("in all", size(memory.inference), size(memory.training)),
        ],
    )
    print("Activations are measured on the meta device, with attention fused.\n")
    print_table(
        (f"a layer on n={n} tokens, d={d}", "formula", "work", "sequential", "longest path"),
        [
            (cost.layer, cost.formula, si(cost.work), f"{cost.sequential:,}", f"{cost.path:,}")
            for cost in description.layer_costs
        ],
        words=2,
    )
