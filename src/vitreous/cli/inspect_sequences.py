"""`vitreous inspect RUN` for runs that write text: translators and readers of pictures."""

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

    from vitreous.data.pictures import Pictures
    from vitreous.data.text.parallel import Pair

UNASKED = 4  # held-out examples that are shown where none are named
SHORT = 80  # characters


def inspect_sequences(
    run: Path, kind: Kind, examples: tuple[str, ...], *, out: Path | None, device: str, json: bool
) -> int:
    """Write the page: attention over the words of texts, or over pictures."""
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
        pictures = named_pictures(examples) if examples else unasked_pictures(run)
        sources = [name for _, name in pictures]
        with writing_into(folder):
            report = write_reading_report(reader, pictures, folder, name=run.name, run=run)
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


def unasked_pictures(run: Path) -> list[tuple[Image.Image, str]]:
    """Some held-out pictures of the run."""
    from vitreous.data.text.captions import open_captions
    from vitreous.training.sequence.config import read_config

    config = read_config(run / "config.toml")
    data = open_captions(config.source, seed=config.seed, test_fraction=config.test_fraction)
    return some_pictures(data.test.pictures)


def some_pictures(pictures: Pictures) -> list[tuple[Image.Image, str]]:
    """The first pictures that can be read, with their names."""
    from vitreous.data.pictures import BadPicture

    shown: list[tuple[Image.Image, str]] = []
    for row in range(len(pictures)):
        if len(shown) == UNASKED:
            break
        with suppress(BadPicture):  # told when the held-out part was judged
            shown.append((pictures.picture(row), Path(pictures.name(row)).name))
    return shown


def named_pictures(paths: tuple[str, ...]) -> list[tuple[Image.Image, str]]:
    """The pictures of files, folders and globs."""
    from vitreous.data.pictures import BadPicture
    from vitreous.deployment.predictor import Files, find_pictures

    found, missing = find_pictures(paths)
    if missing:
        raise InputError(f"{missing[0].path}: {missing[0].reason}")
    files = Files(found)
    try:
        return [(files.picture(row), Path(path).name) for row, path in enumerate(found)]
    except BadPicture as bad:
        raise InputError(f"{bad.name} cannot be read: {bad.reason}") from None
