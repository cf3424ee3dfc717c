"""`vitreous.learn`: a page in which a small model runs, and shows each of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    is_fresh,
    model_fields,
    model_name,
    path_of_run,
    resolve_model,
    settings_tree,
)
from vitreous.data.image_list import image_list
from vitreous.errors import InputError, require_packages, writing_to
from vitreous.languages import speaking

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.inspection.learn_page import LearnPage


def learn(
    model: Any = None,
    images: Any = None,
    *,
    out: str | Path | None = None,
    language: str | None = None,
    image_size: ImageSize | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
) -> LearnPage:
    """Write one offline HTML page that runs a model in the browser and shows every tensor on the way.

    Args:
        model: a run, a checkpoint in any format, a model name, or a model; by default the newest run in
            runs/. Of a model with more than 5 million parameters the page has recorded tensors instead.
        images: one or many paths, PIL images, arrays or tensors to try; by default held-out images of the
            run, and handwritten digits for any other model.
        out: the HTML file; by default learn.html in the directory of the run, or in a new folder in
            inspection/ for any other model.
        language: in which the page opens, "en" or "ko"; by default that of the locale. It has both.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model or image, no run, or a model that the page cannot run.
    """
    require_packages("jinja2", "matplotlib", extra="train", what="learn")
    from vitreous.api.inspecting import default_folder
    from vitreous.inspection.learn_page import write_learn_page

    model = newest_run() if model is None else path_of_run(model)
    fields = model_fields(settings_tree(settings, config), image_size)
    opened = resolve_model(model, **fields)
    run = Path(model_name(model))
    page = (run if (run / "config.toml").is_file() else default_folder(model)) / "learn.html"
    page = Path(out) if out else page
    with speaking(language), writing_to(page):
        return write_learn_page(
            page,
            opened,
            samples_of(model, opened, images),
            name=run.name,
            trained=not is_fresh(model),
        )


def newest_run(folder: Path = Path("runs")) -> Path:
    """Return the run that has finished last.

    Raises:
        InputError: there is none.
    """
    finished = sorted(folder.glob("*/model/config.json"), key=lambda path: path.stat().st_mtime)
    if not finished:
        raise InputError(
            f"there is no finished run in {folder}/: train one with vitreous train, or name a MODEL"
        )
    return finished[-1].parent.parent


def samples_of(model: Any, opened: Any, images: Any, most: int = 10) -> list[tuple[Image.Image, str]]:
    """Return images to try, with their labels: one of each class where there are as many classes.

    Raises:
        InputError: not one image can be read.
    """
    from vitreous.data.config import DataConfig
    from vitreous.data.decoding import BadImage
    from vitreous.data.sources import open_data
    from vitreous.inspection.run_report import label_of
    from vitreous.tasks import task_named
    from vitreous.tasks.answering import task_of

    found: Any
    if images is not None:
        found, failed = image_list(images)
        rows = list(range(min(most, len(found))))
        names = [Path(found.name(row)).stem for row in rows]
        reason = f"{failed[0].path}: {failed[0].reason}" if failed else "there are none"
    else:
        if (Path(model_name(model)) / "config.toml").is_file():
            task = task_of(model) or task_named("classification")
            found = task.held_out(model_name(model), opened, None, {}).examples
        else:
            found = open_data("digits", DataConfig()).test
        rows = first_of_each_class(found, most)
        names = [label_of(found, row) for row in rows]
        reason = "none could be decoded"
    samples = []
    for row, name in zip(rows, names, strict=True):
        try:
            samples.append((found.image(row), name))
        except BadImage as error:
            reason = f"{error.name}: {error.reason}"
    if not samples:
        raise InputError(f"no image could be read ({reason})")
    return samples


def first_of_each_class(found: Any, most: int) -> list[int]:
    """Return the numbers of up to `most` images: the first of each class, or evenly spread ones."""
    if found.targets.ndim == 1 and len(found.classes) >= most:
        present = np.unique(found.targets)[:most]
        return [int(np.flatnonzero(found.targets == number)[0]) for number in present]
    return list(found.sample(most))
