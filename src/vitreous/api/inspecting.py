"""`vitreous.inspect`: the figures of a model as a page, for every kind of model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    is_fresh,
    model_fields,
    model_name,
    progress_bar,
    resolve_model,
    settings_tree,
)
from vitreous.data.image_list import Failure, image_list
from vitreous.errors import InputError, require_packages
from vitreous.results import Result

if TYPE_CHECKING:
    from PIL import Image
    from torch import nn

    from vitreous.data.dataset import ImageDataset
    from vitreous.models.captioner import Captioner
    from vitreous.models.segmenter import Segmenter
    from vitreous.models.transformer import Transformer

SHOWN = {"classification": 24, "segmentation": 12, "captioning": 4, "translation": 4}  # where none are named
SHORT = 80  # characters of a text that is chosen; the page has every head's map
ENOUGH = 2  # times the model's size: larger images are reduced while they are decoded


@dataclass(frozen=True)
class Inspection(Result):
    """The page that `inspect` wrote, and the numbers in short.

    Attributes:
        report: the HTML page.
        arrays: the .npz file of the numbers.
        drawings: the figures as PNG and SVG files.
        summary: the numbers in short.
        failed: images that could not be read, and why.
        boxes: whether letters that no installed font has are boxes in the PNG figures.
    """

    report: Path
    arrays: Path
    drawings: tuple[Path, ...]
    summary: dict[str, Any]
    failed: tuple[Failure, ...] = ()
    boxes: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "report": str(self.report),
            "figures": [str(path) for path in self.drawings],
            "arrays": str(self.arrays),
            **self.summary,
            "failed": [asdict(each) for each in self.failed],
        }

    def _repr_html_(self) -> str:
        """Return the page itself, in a frame."""
        from html import escape

        page = escape(self.report.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="720" style="border: 0"></iframe>'


@dataclass(frozen=True)
class Shown:
    """Named images for a report, a sentence about where they are from, and those that could not be read."""

    images: list[tuple[Image.Image, str]]
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
) -> Inspection:
    """Write the figures of a model: one page to explore, figures as PNG and SVG, numbers as arrays.

    Args:
        model: a run, a checkpoint in any format, a model name, or a model.
        images: one or many paths, PIL images, arrays or tensors; texts for a translator; by default held-out
            images of the run, and handwritten digits for any other model.
        out: the folder to make; by default one in inspection/.
        label: the class to explain; by default the predicted class of each image.
        patch: (row, column) of the patch whose attention is drawn, from 0; by default the middle one.
        compare: another model, whose layers are compared with this one's.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model, image or class; an option that this kind of model does not have; or a
            folder that is not empty or cannot be written.
    """
    require_packages("matplotlib", extra="train", what="inspect")
    from vitreous.tasks.running import task_of
    from vitreous.training.device import pick_device
    from vitreous.training.precision import answering_precision, computing

    here = pick_device(device)
    tree = settings_tree(settings, config)
    fields = model_fields(tree, image_size)
    given = {"label": label, "patch": patch, "compare": compare, "image_size": image_size, "settings": tree}
    if (task := task_of(getattr(model, "path", model))) and task.name in ("captioning", "translation"):
        refuse_options("Captioner", given)
    opened = resolve_model(model, text=True, **fields).to(here)
    kind = type(opened).__name__
    refuse_options(kind, given)
    folder = Path(out) if out else default_folder(model)
    with (
        computing(answering_precision(precision, here), here),
        written_into(folder),
        progress_bar("inspecting", progress) as advance,
    ):
        if kind == "Transformer":
            return inspect_translator(model, opened, images, folder)
        if kind == "Captioner":
            return inspect_captioner(model, opened, images, folder)
        from vitreous.inspection.model_report import Question, write_model_report

        other = None if compare is None else resolve_model(compare).to(here)
        name = "" if compare is None else model_name(compare)
        question = Question(label=label, patch=patch, other=other, other_name=name)
        shown = images_to_show(model, opened, images)
        more: dict[str, Any] = {}
        about = shown.about
        if kind == "Segmenter":
            about = f"Below, the encoder of a segmenter. {about}".strip()
            more = segmenter_parts(opened, shown)
            opened = more.pop("encoder")
        elif is_fresh(model):
            about = f"Its weights are fresh: it has learned nothing yet. {about}"
        path = Path(model_name(model))
        report = write_model_report(
            opened,
            shown.images,
            folder,
            name=path.name if path.exists() else model_name(model),
            about_images=about,
            question=question,
            progress=advance,
            **more,
        )
    return Inspection(
        report.report,
        report.arrays,
        report.figures,
        dict(report.summary),
        shown.failed,
        report.boxes,
    )


def refuse_options(kind: str, given: dict[str, Any]) -> None:
    """Raise InputError for an option that a kind of model does not have."""
    kinds = {
        "Transformer": ("a model that writes text", tuple(given)),
        "Captioner": ("a model that writes text", tuple(given)),
        "Segmenter": ("a segmenter", ("label", "compare", "settings")),
        "BiT": ("a convolutional network, which has no attention", ("label", "patch", "compare")),
    }
    words, refused = kinds.get(kind, ("", ()))
    for name in refused:
        if given[name]:
            option = "set" if name == "settings" else name.replace("_", "-")
            raise InputError(f"--{option} does not go with {words}: leave it out")


def default_folder(model: Any) -> Path:
    """Return a new folder in inspection/ for MODEL."""
    from vitreous.training.run import default_path

    return default_path(model_name(model), root=Path("inspection"))


@contextmanager
def written_into(folder: Path) -> Iterator[None]:
    """Raise InputError where the folder cannot be written, or the disk is full."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write into {folder}: {reason}; choose another --out") from None


def images_to_show(model: Any, opened: nn.Module, images: Any) -> Shown:
    """Return the images that are named; without any, held-out ones of the run, or handwritten digits."""
    if images is not None:
        listed, missing = image_list(images)
        return read_images(listed, range(len(listed)), opened, failed=missing)
    about = "No images were given: these are"
    run = Path(model_name(model))
    if (run / "config.toml").is_file():
        source, part, held_out = held_out_images(run, opened)
        return read_images(held_out, spread(held_out, opened), opened, f"{about} of {source}, {part}.")
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data

    digits = open_data("digits", DataConfig()).test
    assert digits is not None  # the digits always have a test part
    return read_images(digits, spread(digits, opened), opened, f"{about} handwritten digits.")


def held_out_images(run: Path, opened: nn.Module) -> tuple[str, str, Any]:
    """Return the data of a run, the name of its held-out part, and the images of it."""
    from vitreous.tasks.running import task_of_run

    return task_of_run(run).held_out(str(run), opened, None, {})


def spread(images: Any, opened: nn.Module) -> list[int]:
    """Return the indices of a few images, evenly spread."""
    count = SHOWN["segmentation" if type(opened).__name__ == "Segmenter" else "classification"]
    return list(range(0, len(images), max(len(images) // count, 1)))[:count]


def read_images(
    images: ImageDataset | Any,
    indices: Sequence[int],
    opened: nn.Module,
    about: str = "",
    failed: Sequence[Failure] = (),
) -> Shown:
    """Decode images, each reduced to what the model needs, so that many photographs fit the memory.

    Raises:
        InputError: not one image can be read.
    """
    from vitreous.data.dataset import BadImage

    preprocessing: Any = opened.preprocessing
    read, bad = [], list(failed)
    for index in indices:
        try:
            image = images.pair(index)[0] if hasattr(images, "pair") else images.image(index)
        except BadImage as error:
            bad.append(Failure(error.name, error.reason))
            continue
        read.append((reduced(image, preprocessing.size), Path(images.name(index)).name))
    if not read:
        raise InputError(f"no image could be read ({bad[0].path}: {bad[0].reason})")
    return Shown(read, about, tuple(bad))


def reduced(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return an RGB or gray image at no more than some times `size`, (H, W); others as they are."""
    from PIL import ImageOps

    factor = min(image.height // (ENOUGH * size[0]), image.width // (ENOUGH * size[1]))
    if factor < 2 or image.mode not in ("L", "RGB"):
        return image
    return ImageOps.exif_transpose(image).reduce(factor)


def segmenter_parts(segmenter: Segmenter, shown: Shown) -> dict[str, Any]:
    """Return what the report of a segmenter has beyond that of its encoder, and the encoder."""
    from vitreous.inspection.segmentation_figures import segmenter_figures

    return {
        "encoder": segmenter.encoder,
        "more": segmenter_figures(segmenter, shown.images),
        "classes": segmenter.config.num_classes,
    }


def inspect_translator(model: Any, opened: Transformer, texts: Any, folder: Path) -> Inspection:
    """Write the page of a translator: its attention over words."""
    from vitreous.evaluation.text_models import Translator
    from vitreous.inspection.sequence_report import write_translation_report
    from vitreous.tasks import task_named
    from vitreous.tasks.text.translation import short_sources

    run = run_of_text_model(model)
    translator = Translator.load(run)
    translator.model.to(next(opened.parameters()).device)
    if texts is None:
        texts = short_sources(task_named("translation").held_out(str(run), translator, None, {}).examples)
    sources = [texts] if isinstance(texts, str) else list(texts)
    report = write_translation_report(translator, sources, folder, name=run.name, run=run)
    return text_inspection(sources, report)


def inspect_captioner(model: Any, opened: Captioner, images: Any, folder: Path) -> Inspection:
    """Write the page of a model that reads images: its attention over the image, token by token."""
    from vitreous.evaluation.text_models import Reader
    from vitreous.inspection.sequence_report import write_reading_report
    from vitreous.tasks import task_named
    from vitreous.tasks.text.captioning import readable_images

    run = run_of_text_model(model)
    reader = Reader.load(run)
    reader.model.to(next(opened.parameters()).device)
    if images is None:
        captions = task_named("captioning").held_out(str(run), reader, None, {}).examples
        shown = Shown(readable_images(captions.images, SHOWN["captioning"]))
    else:
        listed, missing = image_list(images)
        shown = read_images(listed, range(len(listed)), opened, failed=missing)
    report = write_reading_report(reader, shown.images, folder, name=run.name, run=run)
    return text_inspection([name for _, name in shown.images], report, shown.failed)


def run_of_text_model(model: Any) -> Path:
    """Return the run directory of a model that writes text. Raises InputError for anything else."""
    path = Path(model_name(model))
    if not (path / "config.toml").is_file():
        raise InputError(f"{path} is not a run directory, and only runs have the tokenizer of their text")
    return path


def text_inspection(sources: Sequence[str], report: Any, failed: Sequence[Failure] = ()) -> Inspection:
    """Return the result for a model that writes text."""
    pairs = zip(sources, report.texts, strict=True)
    generated = [{"source": source, "text": text} for source, text in pairs]
    return Inspection(report.report, report.arrays, (), {"written": generated}, tuple(failed))
