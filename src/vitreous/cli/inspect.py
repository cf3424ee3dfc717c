"""`vitreous inspect MODEL [IMAGES...]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.looking import Shown, named_images, parse_patch, refuse, told, writing_into
from vitreous.cli.options import Device, ImageSize, Json, Settings, opening
from vitreous.errors import InputError, require_packages

UNASKED = 24  # images where none are named


def inspect(
    model: str,
    /,
    *images: str,
    out: Annotated[Path | None, Parameter(help="the folder to make, for the page and all else")] = None,
    label: Annotated[str | None, Parameter(help="the class to explain; else each image's answer")] = None,
    patch: Annotated[str | None, Parameter(help="the patch to follow, ROWxCOLUMN from 1: 3x5")] = None,
    compare: Annotated[str | None, Parameter(help="another model, to compare layers with")] = None,
    image_size: ImageSize = None,
    device: Device = "auto",
    set: Settings = None,
    json: Json = False,
) -> int:
    """The paper's figures for a model: one page to explore, figures as PNG and SVG, numbers as arrays.

    Parameters
    ----------
    model
        A run directory, a checkpoint in any format, or a model's name.
    images
        Files, folders, globs; by default held-out shown of the run, or handwritten digits. For a run of
        vitreous translate: texts.
    """
    require_packages("matplotlib", extra="train", what="inspect")
    from vitreous.cli.segmentation_runs import inspect_segmenter, is_segmenter
    from vitreous.cli.sequence_runs import kind_of_run

    if kind := kind_of_run(Path(model)):
        from vitreous.cli.inspect_sequences import inspect_sequences

        refuse(
            "a model that writes text",
            {
                "--label": label,
                "--patch": patch,
                "--compare": compare,
                "--image-size": image_size,
                "--set": set,
            },
        )
        return inspect_sequences(Path(model), kind, images, out=out, device=device, json=json)
    if is_segmenter(model):
        if label or compare:
            raise InputError(
                "--label and --compare are for models that name shown, not pixels: leave them out"
            )
        refuse("a segmenter", {"--set": set})
        return inspect_segmenter(
            model, images, out=out, patch=patch, image_size=image_size, device=device, json=json
        )
    from vitreous.checkpoints import open_model
    from vitreous.cli.progress import progress_bar
    from vitreous.inspection.close_look import Question
    from vitreous.inspection.model_report import write_model_report
    from vitreous.models.vit import ViT
    from vitreous.training.device import pick_device
    from vitreous.training.run import default_path

    followed = parse_patch(patch)
    opened = open_model(model, **opening(image_size, set)).to(pick_device(device))
    if not isinstance(opened, ViT):
        refuse(
            "a convolutional network, which has no attention",
            {"--label": label, "--patch": patch, "--compare": compare},
        )
    question = Question(
        label=label,
        patch=followed,
        other=None if compare is None else open_model(compare).to(pick_device(device)),
        other_name=compare or "",
    )
    shown, about, failed = named_images(images) if images else unasked_images(model)
    if not Path(model).exists() and ":" not in model:  # a name, not a place
        about = f"Its weights are fresh: it has learned nothing yet. {about}"
    folder = out or default_path(model, root=Path("inspection"))
    with writing_into(folder), progress_bar("looking") as progress:
        report = write_model_report(
            opened,
            shown,
            folder,
            name=Path(model).name if Path(model).exists() else model,
            about_images=about,
            question=question,
            progress=progress,
        )
    return told(report, failed, json=json)


def unasked_images(model: str) -> Shown:
    """Held-out images of a run; of the handwritten digits for any other model."""
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data
    from vitreous.evaluation.held_out import held_out
    from vitreous.inspection.training_report import spread

    if (Path(model) / "config.toml").is_file():
        source, part, images = held_out(model, None, {})
        about = f"No images were given: these are of {source}, {part}."
    else:
        splits = open_data("digits", DataConfig())
        assert splits.test is not None  # the digits always have one
        images, about = splits.test, "No images were given: these are handwritten digits."
    found, names = spread(images, UNASKED)
    return Shown(list(zip(found, names, strict=True)), about, [])
