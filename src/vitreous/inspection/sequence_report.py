"""Attention over words as one page: lines and a matrix for every head; attention over an image, letter by
letter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from PIL import Image

from vitreous import __version__
from vitreous.data.text.batches import padded
from vitreous.data.text.tokenizer import BYTES, END, START, Tokenizer
from vitreous.inspection.arrays import save_arrays
from vitreous.inspection.images import enlarged, overlay, rgb
from vitreous.inspection.page import Exhibit, image_row, write_page
from vitreous.inspection.sequence_attention import SequenceAttention, look
from vitreous.inspection.training_figures import curves_figure
from vitreous.training.journal import read_metrics
from vitreous.training.sequence.reader import Reader
from vitreous.training.sequence.translator import Translator

SHOWN = 320  # pixels of an image's longer side in the page, at least
LONGEST = 4  # bytes of a letter in UTF-8
FOLLOWING = "⋯"  # a letter's bytes behind its first
MARKS = {START: "⟨start⟩", END: "⟨end⟩"}
CURVES = (
    "Loss: the mean cross-entropy of a token; where targets are smoothed it does not reach 0. Tokens right: "
    "given all that stands before each, so more than of whole texts. A loss that still falls at the end asks "
    "for more steps."
)
PANELS = {"loss": "Loss", "accuracy": "Tokens right", "lr": "Learning rate"}
LETTERS = (
    "Where the decoder looks while it writes each letter: the attention over the image's patches, mean of "
    "the heads of the last layer. Bright is much."
)


class SequenceReport(NamedTuple):
    """What was written.

    Attributes:
        report: the page.
        arrays: encoder_i, decoder_i and cross_i, the maps of text i, (layers, heads, queries, keys).
        texts: what the model wrote for each source.
    """

    report: Path
    arrays: Path
    texts: list[str]


def write_translation_report(
    translator: Translator, sources: Sequence[str], folder: Path, *, name: str, run: Path | None = None
) -> SequenceReport:
    """Translate, and show what every head looked at on the way, and how it learned.

    Args:
        run: whose numbers are drawn; the folder itself if not given.
    """
    translations = translator.translate(sources)
    examples: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True)):
        read = translator.encode(source)
        written = translation.ids
        device = translator.model.text.tokens.weight.device
        maps = look(translator.model, padded([read]).to(device), padded([written]).to(device))
        arrays |= named(maps, number)
        examples.append(
            {
                "source": source,
                "text": translation.text,
                "read": words(translator.tokenizer, read),
                "written": words(translator.tokenizer, written),
                "maps": {kind: rounded(value) for kind, value in maps._asdict().items()},
            }
        )
    return written_out(
        folder,
        arrays,
        [each.text for each in translations],
        name=name,
        lead=about(translator),
        examples=json.dumps(examples, ensure_ascii=False).replace("</", "<\\/"),
        exhibits=curves(run or folder),
    )


def write_reading_report(
    reader: Reader,
    images: Sequence[tuple[Image.Image, str]],
    folder: Path,
    *,
    name: str,
    run: Path | None = None,
) -> SequenceReport:
    """Read images (each with its name), and show where every letter was read, and how it learned.

    Args:
        run: whose numbers are drawn; the folder itself if not given.
    """
    found = reader.read([image for image, _ in images])
    exhibits: list[Exhibit] = []
    arrays: dict[str, np.ndarray] = {}
    for number, ((image, called), (text, _, written)) in enumerate(zip(images, found, strict=True)):
        batch = reader.model.preprocessing([image]).to(reader.model.text.tokens.weight.device)
        maps = look(reader.model, batch, padded([written]).to(batch.device))
        arrays |= named(maps, number)
        exhibits.append(letters(reader, batch[0], maps, written, title=f"{called}: {text}", number=number))
    return written_out(
        folder,
        arrays,
        [each.text for each in found],
        name=name,
        lead=about_reader(reader),
        examples="",
        exhibits=[*curves(run or folder), *exhibits],
    )


def curves(run: Path) -> list[Exhibit]:
    """How a run learned; nothing where there are no numbers."""
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "epoch" in row]
    drawn = curves_figure(rows, shown=PANELS, caption=CURVES)
    return [drawn] if isinstance(drawn, Exhibit) else []


def letters(
    reader: Reader,
    image: torch.Tensor,
    maps: SequenceAttention,
    written: Sequence[int],
    *,
    title: str,
    number: int,
) -> Exhibit:
    """The image, and once more for each letter with its attention laid over it."""
    config = reader.model.config.encoder
    shown = enlarged(rgb(reader.model.preprocessing.denormalize(image).cpu()), SHOWN)
    heads = maps.cross[-1].mean(dim=0)[:, config.num_prefix_tokens :]
    images = [(shown, "the image")]
    labels = words(reader.tokenizer, written[1:])
    for label, weights in zip(labels, heads, strict=True):
        images.append((overlay(shown, weights.reshape(config.grid)), label))
    return Exhibit(f"image-{number}", title, LETTERS, image_row(images))


def words(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Tokens as they are shown; the space in front of a word as "▁", a letter that is written in bytes at
    the first of them."""
    pieces = spelled(tokenizer.pieces(ids))
    return [MARKS.get(token, piece) for token, piece in zip(ids, pieces, strict=True)]


def spelled(pieces: Sequence[str]) -> list[str]:
    """Bytes as the letters that they spell; those that spell none that can be seen stay bytes."""
    shown = list(pieces)
    for start, piece in enumerate(pieces):
        for end in range(start + 1, min(start + LONGEST, len(pieces)) + 1):
            if piece not in BYTES or pieces[end - 1] not in BYTES:
                break
            with suppress(UnicodeDecodeError):
                letter = bytes(BYTES.index(each) for each in pieces[start:end]).decode()
                if len(letter) == 1 and letter.isprintable():
                    shown[start:end] = [letter, *[FOLLOWING] * (end - start - 1)]
    return shown


def rounded(maps: torch.Tensor) -> Any:
    """Three decimals are more than an eye can tell."""
    return np.round(maps.numpy().astype(float), 3).tolist()


def named(maps: SequenceAttention, number: int) -> dict[str, np.ndarray]:
    return {f"{kind}_{number}": value.numpy() for kind, value in maps._asdict().items()}


def about(translator: Translator) -> str:
    config = translator.model.config
    return (
        f"An encoder of {config.encoder_depth} and a decoder of {config.depth} layers, {config.heads} heads, "
        f"width {config.width}, {config.vocabulary} tokens (arXiv 1706.03762)."
    )


def about_reader(reader: Reader) -> str:
    encoder, decoder = reader.model.config.encoder, reader.model.config.decoder
    return (
        f"A Vision Transformer of {encoder.depth} layers that sees {encoder.grid[0]}x{encoder.grid[1]} "
        f"patches, and a decoder of {decoder.depth} layers, {decoder.heads} heads, that writes what it reads."
    )


def written_out(
    folder: Path,
    arrays: dict[str, np.ndarray],
    texts: list[str],
    *,
    name: str,
    lead: str,
    examples: str,
    exhibits: list[Exhibit],
) -> SequenceReport:
    """The page, and the numbers beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = save_arrays(arrays, folder / "attention.npz")
    report = write_page(
        folder / "report.html",
        "sequence.html.j2",
        title=f"What {name} looks at",
        name=name,
        lead=lead,
        examples=Markup(examples),
        exhibits=exhibits,
        version=__version__,
    )
    return SequenceReport(report, numbers, texts)
