"""`vitreous.train_translator` and `translate`: the original Transformer (2017), on pairs of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from vitreous.addons.text.options import TranslateOptions, TranslatorOptions
from vitreous.api.arguments import check_batch_size, path_of_run
from vitreous.api.data_source import data_source
from vitreous.api.run import Run, check_one_length
from vitreous.api.training import settings_of, start_training
from vitreous.errors import InputError, Param
from vitreous.results import Result
from vitreous.tasks import task_named
from vitreous.training.options import with_options


@with_options(TranslatorOptions)
def train_translator(pairs: str | None = None, **options: Unpack[TranslatorOptions]) -> Run:
    """Train the original Transformer (2017) on pairs of texts; `translate` translates with it.

    Example:
        >>> run = vt.train_translator(steps=2, out="runs/new", progress=False)
        >>> found = vt.translate(run, ["twenty-one", "three"])

    Args:
        pairs: a TSV file, two text files separated by a comma, or hf:NAME; by default, numbers in words.
        options: of `TranslatorOptions`.

    Raises:
        InputError, Interrupted: see `train`.
    """
    check_beams(options["beams"])
    check_one_length(steps=options.get("steps"), epochs=options.get("epochs"))
    source = None if pairs is None else data_source(pairs)
    how = {"beams": options["beams"], "length_penalty": options["length_penalty"]}
    return start_training(task_named("translation"), source, settings_of(options), options, **how)


class TranslatedText(NamedTuple):
    """A text, its translation, and the log probability of the translation, divided by a power of its length.
    There is no score with one beam, or if there was nothing to translate."""

    source: str
    text: str
    score: float | None


@dataclass(frozen=True)
class Translations(Result):
    """The translations of texts, in order."""

    rows: tuple[TranslatedText, ...]

    def to_json(self) -> dict[str, object]:
        return {"translations": self.table()}

    def table(self) -> list[dict[str, object]]:
        """Return one row for each text."""
        return [each._asdict() for each in self.rows]

    def __iter__(self) -> Iterator[TranslatedText]:
        return iter(self.rows)


@with_options(TranslateOptions)
def translate(model: Any, texts: str | Sequence[str], **options: Unpack[TranslateOptions]) -> Translations:
    """Translate texts with a model that `train_translator` has trained.

    Example:
        >>> [each.source for each in vt.translate("runs/numbers", ["twenty-one", "three"])]  # and .text
        ['twenty-one', 'three']

    Args:
        model: a run, or the model in it; a published Marian model (a folder or hf:org/name); or such a model,
            already loaded.
        texts: one or more texts; an empty text stays empty.
        options: of `TranslateOptions`.

    Raises:
        InputError: the run does not exist, the model does not translate, there is no text, or a text is too
            long.
    """
    from vitreous.addons.text.models import Translator
    from vitreous.tasks.answerer import has_weights
    from vitreous.training.machine import computing, pick_device

    check_beams(options["beams"])
    check_batch_size(options["batch_size"])
    lines = [texts] if isinstance(texts, str) else list(texts)
    if not any(line.strip() for line in lines):
        raise InputError("there is no text to translate, neither on the command line nor on standard input")
    opened, here = path_of_run(model), pick_device(options["device"])
    if isinstance(opened, str | Path) and not has_weights(str(opened)):
        raise InputError(f"no such run: {opened}; to make one: vitreous translate train")
    translator = Translator.load(opened) if isinstance(opened, str | Path) else Translator.of(opened)
    translator.model.to(here)
    with computing(options["precision"], here):
        found = iter(
            translator.translate(
                [line for line in lines if line.strip()],
                beams=options["beams"],
                length_penalty=options["length_penalty"],
                batch_size=options["batch_size"],
            )
        )
    pairs = [(line, next(found) if line.strip() else None) for line in lines]
    return Translations(
        tuple(TranslatedText(line, each.text if each else "", each and each.score) for line, each in pairs)
    )


def check_beams(beams: int) -> None:
    """Raise InputError where a search would follow nothing."""
    if beams < 1:
        raise InputError(f"{Param('beams')} {beams}: at least one is needed")
