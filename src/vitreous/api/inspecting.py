"""`vitreous.inspect`: the figures of a model as a page, for every kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    is_fresh,
    model_fields,
    model_name,
    path_of_run,
    progress_bar,
    resolve_model,
    settings_tree,
)
from vitreous.data.image_list import Failure, image_list
from vitreous.errors import InputError, require_packages, writing_to
from vitreous.languages import phrase, speaking, words

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.inspection.page import Inspection
    from vitreous.tasks.task import Task

ENOUGH = 2  # times the model's size: larger images are reduced while they are decoded


class Shown(NamedTuple):
    """Named images (or texts) for a report, a sentence about where they are from, and those that could not be
    read."""

    examples: list[Any]
    about: str = ""
    failed: tuple[Failure, ...] = ()


def inspect(
    model: Any,
    images: Any = None,
    *,
    out: str | Path | None = None,
    label: str | None = None,
    patch: tuple[int, int] | None = None,
    compare: Any = None,
    image_size: ImageSize | None = None,
    device: str = "auto",
    precision: str = "fp32",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
    language: str | None = None,
) -> Inspection:
    """Write the figures of a model: one page to explore, figures as PNG and SVG, numbers as arrays.

    Args:
        model: a run, a checkpoint in any format, a model name, or a model.
        images: one or many paths, PIL images, arrays or tensors; texts for a translator; by default held-out
            images of the run, and handwritten digits for any other model.
        out: the folder to make; by default one in inspection/.
        label: the class to explain; by default the predicted class of each image.
        patch: (row, column) of the patch whose attention is drawn, from 0; by default the middle one.
        compare: another model, which is shown beside this one, and whose layers are compared.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.
        language: of the page, "en" or "ko"; by default that of the locale.

    Raises:
        InputError: no such model, image or class; an option that does not apply to the model; or a
            folder that is not empty or cannot be written.
    """
    require_packages("matplotlib", extra="train", what="inspect")
    from vitreous.deployment.engines import check_weights
    from vitreous.inspection.model_report import InspectionRequest
    from vitreous.tasks import task_named
    from vitreous.tasks.answering import task_of
    from vitreous.training.precision import answering_precision, computing, pick_device

    model, here = path_of_run(model), pick_device(device)
    tree = settings_tree(settings, config)
    fields = model_fields(tree, image_size)
    named = isinstance(model, str | Path)
    answerer = model if named else resolve_model(model, **fields)
    check_weights(answerer, "inspect")
    task = task_of(answerer) or task_named("classification")
    task.check_options("inspect", label=label, patch=patch, compare=compare, image_size=image_size, set=tree)
    if named:
        answerer = task.open(str(model), **fields)
        task = task_of(answerer) or task
    getattr(answerer, "model", answerer).to(here)
    other = None if compare is None else resolve_model(compare).to(here)
    folder = Path(out) if out else default_folder(model)
    with (
        computing(answering_precision(precision, here), here),
        writing_to(folder),
        speaking(language),
        progress_bar("inspecting", progress) as advance,
    ):
        shown = examples_to_show(task, model, answerer, images)
        request = InspectionRequest(
            name=model_name(model),
            about=shown.about,
            fresh=is_fresh(model),
            label=label,
            patch=patch,
            other=other,
            other_name="" if compare is None else model_name(compare),
            progress=advance,
        )
        found: Inspection = task.inspect(answerer, shown.examples, folder, request)
    return replace(found, failed=shown.failed)


def default_folder(model: Any) -> Path:
    """Return a new folder in inspection/ for MODEL."""
    from vitreous.training.run import default_path

    return default_path(model_name(model), root=Path("inspection"))


def examples_to_show(task: Task, model: Any, answerer: Any, given: Any) -> Shown:
    """Return the images (or texts) that are named; without any, held-out ones of the run, or handwritten
    digits.

    Raises:
        InputError: not one image can be read.
    """
    from vitreous.data.config import DataConfig
    from vitreous.data.decoding import BadImage
    from vitreous.data.sources import open_data

    about = ""
    failed: list[Failure] = []
    found: Any
    if given is not None:
        if task.takes == "texts":
            return Shown([given] if isinstance(given, str) else list(given))
        found, failed = image_list(given)
        rows: Sequence[int] = range(len(found))
    else:
        if (Path(model_name(model)) / "config.toml").is_file():
            source, part, held_out = task.held_out(model_name(model), answerer, None, {})
            found, about = (
                task.to_inspect(held_out),
                phrase("inspection.held-out", source=source, part=words("inspection.parts")[part]),
            )
            if task.takes == "texts":
                return Shown(found)
        else:
            found = open_data("digits", DataConfig()).test
            about = phrase("inspection.digits")
        rows = found.sample(task.inspected)
    size = getattr(answerer, "model", answerer).preprocessing.size
    read = []
    for row in rows:
        try:
            image = found.image(row)
        except BadImage as error:
            failed.append(Failure(error.name, error.reason))
        else:
            read.append((reduced(image, size), Path(found.name(row)).name))
    if not read:
        raise InputError(f"no image could be read ({failed[0].path}: {failed[0].reason})")
    return Shown(read, about, tuple(failed))


def reduced(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return an RGB or gray image at no more than some times `size`, (H, W), so that many photographs fit the
    memory; others as they are."""
    from PIL import ImageOps

    factor = min(image.height // (ENOUGH * size[0]), image.width // (ENOUGH * size[1]))
    if factor < 2 or image.mode not in ("L", "RGB"):
        return image
    return ImageOps.exif_transpose(image).reduce(factor)
