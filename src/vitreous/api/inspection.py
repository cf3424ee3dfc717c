"""`vitreous.inspect` and `attribute`: what a model attends to, as a page and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vitreous.api.arguments import (
    changed_fields,
    is_fresh,
    model_fields,
    model_name,
    path_of_run,
    progress_bar,
    settings_tree,
)
from vitreous.api.model_source import computation, is_runnable, resolve_model
from vitreous.api.options import AttributeOptions, InspectOptions
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, ImageDataset
from vitreous.data.image_list import Failure, image_list
from vitreous.data.image_samples import image_rows
from vitreous.data.sources import open_data
from vitreous.deployment.programs import check_weights
from vitreous.errors import InputError, LazyModule, require_packages, writing_to
from vitreous.extensions import kind_of
from vitreous.languages import phrase, speaking, words
from vitreous.models.model import modes_restored
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage, ImageLike
from vitreous.models.vit import ViT
from vitreous.results import Result
from vitreous.tasks.answerer import task_of, task_or_classification
from vitreous.tasks.task import AnyTask, check_options, module_of
from vitreous.training.machine import answering_precision, computing, pick_device, weights_type
from vitreous.training.options import ModelLike, with_options
from vitreous.training.run import default_run_path

if TYPE_CHECKING:
    from vitreous.inspection import attributions as methods
    from vitreous.inspection import live, model_report
    from vitreous.inspection.page import Inspection
else:  # they import matplotlib, which is not installed everywhere
    methods = LazyModule("vitreous.inspection.attributions")
    live = LazyModule("vitreous.inspection.live")
    model_report = LazyModule("vitreous.inspection.model_report")

ASKED = 64  # images whose answers decide which are shown first


@dataclass(frozen=True)
class Attributions(Result):
    """The patches to which several methods attribute a class.

    Attributes:
        paths: the path of each image, in the order given; `image[3]` for an image that was given in memory.
        classes: the class that is explained for each image; None for images that could not be read, for
            which all numbers are NaN.
        maps: the non-negative map (images, rows, columns) of each method.
        correlation: for each method and image, the rank correlation with the map of a model with randomized
            weights. A value near 1 means that the map shows the image, not what the model has learned.
        total, difference: the sum of the integrated gradients, and what it should be: the difference between
            the logits of the image and of an image of the mean color.
        failed: images that could not be read, and why.
        damaged: images that are incomplete, and what is missing.
    """

    paths: tuple[str, ...]
    classes: tuple[str | None, ...]
    maps: dict[str, NDArray[np.float32]]
    correlation: dict[str, NDArray[np.float32]]
    total: NDArray[np.float32]
    difference: NDArray[np.float32]
    failed: tuple[Failure, ...] = ()
    damaged: tuple[Failure, ...] = ()

    def to_json(self) -> dict[str, object]:
        failed, damaged = map(asdict, self.failed), map(asdict, self.damaged)
        return {"images": self.table(), "failed": list(failed), "damaged": list(damaged)}

    def table(self) -> list[dict[str, object]]:
        """Return one row for each image: its class, and the rank correlation of each method."""
        rows: list[dict[str, object]] = []
        for number, (path, label) in enumerate(zip(self.paths, self.classes, strict=True)):
            row: dict[str, object] = {"path": path, "class": label}
            for name, values in self.correlation.items():
                row[name] = round(float(values[number]), 4)
            row["total"] = round(float(self.total[number]), 4)
            row["difference"] = round(float(self.difference[number]), 4)
            rows.append(row)
        return rows


class ShownExamples(NamedTuple):
    """Named images (or texts) for a report, a sentence about where they are from, those that could not be
    read or are damaged, and the true class of each image where it is known (a name that is not a class means
    nothing)."""

    examples: list[Any]
    about: str = ""
    failed: tuple[Failure, ...] = ()
    damaged: tuple[Failure, ...] = ()
    labels: tuple[str, ...] = ()


@with_options(InspectOptions)
def inspect(model: ModelLike, images: object = None, **options: Unpack[InspectOptions]) -> Inspection:
    """Draw the figures for a model: an interactive page, figures as PNG and SVG, and the numbers as arrays.

    Example:
        >>> found = vt.inspect("runs/photos", "photo.jpg", out="looked", progress=False)
        >>> found.report.name
        'report.html'

    Args:
        model: a run, a checkpoint in any format, a model name, or a model: of vitreous, timm, transformers,
            torchvision, or your own Vision Transformer. A module is not changed.
        images: one or more paths, PIL images, arrays or tensors, or other inputs that the task takes; by
            default held-out images of the run, or handwritten digits for any other model.
        options: of `InspectOptions`.

    Raises:
        InputError: the model, an image or the class does not exist; an option does not apply to the model; or
            the folder is not empty or cannot be written.
    """
    require_packages("matplotlib", extra="train", what="inspect")
    model, here, compare = path_of_run(model), pick_device(options["device"]), options["compare"]
    tree = settings_tree(options["settings"], options["config"])
    fields = model_fields(tree, options["image_size"])
    if named := isinstance(model, str | Path):
        refuse_preprocessing(options["preprocessing"])
    answerer = model if named else open_to_inspect(model, options["preprocessing"], fields)
    check_weights(answerer, "inspect")
    task = task_or_classification(answerer)
    given = {name: options.get(name) for name in ("label", "patch", "compare", "attributions")}
    check_options(task, "inspect", **given, image_size=options["image_size"], settings=tree)
    if named:
        answerer = task.open(str(model), **fields)
        task = task_of(answerer) or task
    other = None if compare is None else open_to_inspect(compare, None, {})
    # A module of another library is measured as it is, and stays where it is.
    for each in (answerer, other):
        if each is not None and not isinstance(each, live.LiveViT):
            module_of(each).to(here)
    folder = Path(options["out"]) if options["out"] else default_folder(model)
    with (
        modes_restored(model, compare),
        computing(answering_precision(options["precision"], here), here),
        writing_to(folder),
        speaking(options["language"]),
        progress_bar("inspecting", options["progress"]) as advance,
    ):
        shown = examples_to_show(task, model, answerer, images)
        about = shown.about
        if isinstance(answerer, live.LiveViT):  # a module of another library, which is measured itself
            kind = type(answerer.module).__name__
            about = f"{about} {phrase('inspection.as-it-is', name=kind, p=answerer.preprocessing)}".strip()
        request = model_report.InspectionRequest(
            name=model_name(model),
            about=about,
            fresh=is_fresh(model),
            label=options["label"],
            patch=options["patch"],
            other=other,
            other_name="" if compare is None else model_name(compare),
            labels=shown.labels,
            attributions=options["attributions"],
            progress=advance,
        )
        found = model_report.write_inspection(answerer, shown.examples, folder, request)
    return replace(found, failed=shown.failed, damaged=shown.damaged)


@with_options(AttributeOptions)
def attribute(model: ModelLike, images: object, **options: Unpack[AttributeOptions]) -> Attributions:
    """Attribute a class to patches by rollout, relevance, attention gradient and integrated gradients, with
    a sanity check on randomized weights.

    Example:
        >>> found = vt.attribute("runs/photos", "photo.jpg", progress=False)
        >>> sorted(found.maps)
        ['attention-gradient', 'integrated-gradients', 'relevance', 'rollout']
        >>> found.maps["rollout"].shape  # images, rows and columns of patches
        (1, 4, 4)

    Args:
        model: a run, a checkpoint in any format, a model name, or a Vision Transformer of any library.
        images: one or more paths, PIL images, arrays or tensors.
        options: of `AttributeOptions`.

    Raises:
        InputError: the model, an image or the class does not exist, or the model has no attention or no
            classes.
    """
    if options["steps"] < 1:
        raise InputError("steps count from 1: integrated gradients need at least one")
    opened = open_to_inspect(path_of_run(model), options["preprocessing"], changed_fields(options))
    if not isinstance(opened, ViT) or opened.config.num_classes is None:
        raise InputError(
            f"{model_name(model)} is not a Vision Transformer with classes, which attribution needs"
        )
    if not isinstance(opened, live.LiveViT):
        opened.to(pick_device(options["device"]))
    names: list[str] = []
    read: list[int] = []  # the rows of images that can be read
    prepared: list[torch.Tensor] = []
    failed: list[Failure] = []
    damaged: list[Failure] = []
    for rows in image_rows(opened, image_list(images), **computation(options["device"], None, None)):
        read += [len(names) + place for place in rows.readable]
        failed += [Failure(rows.names[place], reason) for place, reason in rows.failed.items()]
        damaged += [Failure(rows.names[place], reason) for place, reason in rows.damaged.items()]
        names += rows.names
        if rows.readable:
            prepared.append(rows.images)
    if not prepared:
        raise InputError(f"no image could be read ({failed[0].path}: {failed[0].reason})")
    labels = opened.labels or [str(number) for number in range(opened.config.num_classes)]
    batch = torch.cat(prepared)
    wanted = None
    if options["label"] is not None:
        wanted = torch.full((len(batch),), model_report.class_number(labels, options["label"]))
    with modes_restored(model), progress_bar("attributing", options["progress"]) as advance:
        found = methods.attribute_batch(
            opened.eval(), batch, wanted, steps=options["steps"], seed=options["seed"], progress=advance
        )

    def in_rows(values: torch.Tensor) -> NDArray[np.float32]:
        """Return a value for each row, NaN of an image that cannot be read."""
        whole = np.full((len(names), *values.shape[1:]), np.nan, np.float32)
        whole[read] = values.numpy()
        return whole

    classes: list[str | None] = [None] * len(names)
    for row, number in zip(read, found.classes.tolist(), strict=True):
        classes[row] = labels[number]
    return Attributions(
        tuple(names),
        tuple(classes),
        {name: in_rows(values) for name, values in found.maps.items()},
        {name: in_rows(values) for name, values in found.correlation.items()},
        in_rows(found.total),
        in_rows(found.difference),
        tuple(failed),
        tuple(damaged),
    )


def open_to_inspect(model: ModelLike, preprocessing: Preprocessing | None, fields: dict[str, object]) -> Any:
    """Return the model that MODEL means, in half precision a copy in float32; a module of another library
    may stay as it is. Raises InputError if `resolve_model` does, or if
    `preprocessing` is given for a model that has its own."""
    if isinstance(model, nn.Module) and not is_runnable(model) and not fields:
        return live.live_model(model, preprocessing)
    refuse_preprocessing(preprocessing)
    opened = resolve_model(model, **fields)
    if weights_type(opened).itemsize < 4:
        opened = deepcopy(opened)
        getattr(opened, "model", opened).float()
    return opened


def refuse_preprocessing(preprocessing: Preprocessing | None) -> None:
    if preprocessing is not None:
        raise InputError(
            "preprocessing= is for modules of other libraries: this model has its own, set by vitreous.load"
        )


def default_folder(model: ModelLike) -> Path:
    """Return a new folder in inspection/ for MODEL."""
    return default_run_path(model_name(model), root=Path("inspection"))


def examples_to_show(task: AnyTask, model: ModelLike, answerer: Any, given: Any) -> ShownExamples:
    """Return the images (or texts) that are named; without any, held-out ones of the run, or handwritten
    digits. Raises InputError: not one image can be read."""
    about = ""
    failed: list[Failure] = []
    damaged: list[Failure] = []
    found: Any
    # The command line gives a folder as a list of one path.
    if isinstance(given, list | tuple) and len(given) == 1:
        given = given[0]
    if given is not None:
        kind = kind_of(module_of(answerer).config)
        if kind and not kind.sees:
            return ShownExamples([given] if isinstance(given, str) else list(given))
        found = image_list(given)
        rows: Sequence[int] = range(len(found))
        if isinstance(given, str | Path) and Path(given).is_dir():
            rows = across_folders([Path(found.name(row)).parent.name for row in rows])
    else:
        found, about = held_out_examples(task, model, answerer)
        # Of texts, the page shows some.
        if not isinstance(found, ImageDataset):
            return ShownExamples(found)
        rows = found.sample(task.info.inspected)
    read, labels = [], []
    for row in rows:
        try:
            (image := found.opened(row)).check()
        except BadImage as error:
            failed.append(Failure(error.name, error.reason))
        else:
            if image.damage:
                damaged.append(Failure(image.name, image.damage))
            read.append((found.again(row), Path(found.name(row)).name))
            # An image in a folder that is named like a class is one of that class.
            if given is not None:
                labels.append(Path(found.name(row)).parent.name)
            elif task.name == "classification" and isinstance(found.targets, ClassTargets):
                labels.append(found.label(row))
    if not read:
        raise InputError(f"no image could be read ({failed[0].path}: {failed[0].reason})")
    if isinstance(given, str | Path) and task.name == "classification":
        order = right_and_wrong(answerer, [image for image, _ in read[:ASKED]], labels[:ASKED])
        order += range(len(order), len(read))
        read, labels = [read[row] for row in order], [labels[row] for row in order]
    return ShownExamples(read, about, tuple(failed), tuple(damaged), tuple(labels))


def across_folders(folders: Sequence[str]) -> list[int]:
    """Return the numbers of images in an order that takes one of each folder, then another of each."""
    groups: dict[str, list[int]] = {}
    for row, folder in enumerate(folders):
        groups.setdefault(folder, []).append(row)
    return by_turns(*groups.values())


def by_turns(*groups: Sequence[int]) -> list[int]:
    """Return one number of each group, then another of each."""
    order: list[int] = []
    for turn in zip_longest(*groups):
        order += [row for row in turn if row is not None]
    return order


def right_and_wrong(answerer: Any, images: Sequence[ImageLike], labels: Sequence[str]) -> list[int]:
    """Return the numbers of images in an order that takes one that is classified correctly and one that is
    not by turns; as they are where their folders are not the model's classes."""
    known = getattr(answerer, "labels", None)
    if not known or not set(labels) <= set(known):
        return list(range(len(images)))
    device = next(answerer.parameters()).device
    answers: list[int] = []
    with torch.inference_mode():
        for first in range(0, len(images), 16):
            batch = answerer.preprocessing(images[first : first + 16]).to(device)
            answers += answerer(batch).argmax(dim=1).tolist()
    right: list[int] = []
    wrong: list[int] = []
    for row, (answer, label) in enumerate(zip(answers, labels, strict=True)):
        (right if known[answer] == label else wrong).append(row)
    return by_turns(right, wrong)


def held_out_examples(task: AnyTask, model: ModelLike, answerer: object) -> tuple[Any, str]:
    """Return what is shown of a model where nothing is named, held-out examples of its run or handwritten
    digits, and a sentence about them."""
    name = model_name(model)
    if not (Path(name) / "config.toml").is_file():
        return open_data("digits", DataConfig()).test, phrase("inspection.digits")
    held = task.open_held_out(name, answerer, None, {})
    about = phrase("inspection.held-out", source=held.source, part=words("inspection.parts")[held.part])
    return held.examples, about
