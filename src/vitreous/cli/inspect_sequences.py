"""`vitreous inspect RUN` for runs that write text: translators and readers of images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.cli.looking import writing_into
from vitreous.cli.options import print_json
from vitreous.cli.sequence_runs import Kind
from vitreous.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.data.dataset import ImageDataset
    from vitreous.data.text.parallel import Pair

UNASKED = 4  # held-out examples that are shown where none are named
SHORT = 80  # characters


def inspect_sequences(
    run: Path, kind: Kind, examples: tuple[str, ...], *, out: Path | None, device: str, json: bool
) -> int:
    """Write the page: attention over the words of texts, or over images."""
    from vitreous.inspection.sequence_report import write_reading_report, write_translation_report
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.reader import Reader
    from vitreous.training.sequence.translator import Translator

    folder = out or Path("inspection") / run.name
    if kind == "Transformer":
        translator = Translator.load(run)
        translator.model.to(pick_device(device))
        sources = list(examples) or unasked_texts(run)
        with writing_into(folder):
            report = write_translation_report(translator, sources, folder, name=run.name, run=run)
    else:
        reader = Reader.load(run)
        reader.model.to(pick_device(device))
        images = named_images(examples) if examples else unasked_images(run)
        sources = [name for _, name in images]
        with writing_into(folder):
            report = write_reading_report(reader, images, folder, name=run.name, run=run)
    if json:
        written = [
            {"source": source, "text": text} for source, text in zip(sources, report.texts, strict=True)
        ]
        print_json({"report": str(report.report), "arrays": str(report.arrays), "written": written})
    else:
        print(f"{report.report}\n{report.arrays.name} beside it")
    return 0


def unasked_texts(run: Path) -> list[str]:
    """Some held-out sources of the run."""
    from vitreous.data.text.parallel import open_parallel
    from vitreous.training.sequence.config import read_config

    config = read_config(run / "config.toml")
    data = open_parallel(config.source, seed=config.seed, test_fraction=config.test_fraction)
    return some_texts(data.test)


def some_texts(pairs: Sequence[Pair]) -> list[str]:
    """The sources of a few pairs, spread over all; short ones, since a page holds every head's maps."""
    sources = [pair.source for pair in pairs]
    few = [source for source in sources if len(source) <= SHORT] or sources
    return few[:: max(len(few) // UNASKED, 1)][:UNASKED]


def unasked_images(run: Path) -> list[tuple[Image.Image, str]]:
    """Some held-out images of the run."""
    from vitreous.data.text.captions import open_captions
    from vitreous.training.sequence.config import read_config

    config = read_config(run / "config.toml")
    data = open_captions(config.source, seed=config.seed, test_fraction=config.test_fraction)
    return some_images(data.test.images)


def some_images(images: ImageDataset) -> list[tuple[Image.Image, str]]:
    """The first images that can be read, with their names."""
    from vitreous.data.dataset import BadImage

    shown: list[tuple[Image.Image, str]] = []
    for row in range(len(images)):
        if len(shown) == UNASKED:
            break
        with suppress(BadImage):  # told when the held-out part was judged
            shown.append((images.image(row), Path(images.name(row)).name))
    return shown


def named_images(paths: tuple[str, ...]) -> list[tuple[Image.Image, str]]:
    """The images of files, folders and globs."""
    from vitreous.data.dataset import BadImage
    from vitreous.data.image_list import ImageList, find_images

    found, missing = find_images(paths)
    if missing:
        raise InputError(f"{missing[0].path}: {missing[0].reason}")
    files = ImageList(found)
    try:
        return [(files.image(row), Path(path).name) for row, path in enumerate(found)]
    except BadImage as bad:
        raise InputError(f"{bad.name} cannot be read: {bad.reason}") from None
