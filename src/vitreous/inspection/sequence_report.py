"""Attention of models that write text, as one page: over words, or over an image token by token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from markupsafe import Markup
from PIL import Image
from torch import Tensor, nn

from vitreous.data.text.batches import padded
from vitreous.data.text.tokenizer import BYTES, END, START, Tokenizer
from vitreous.inspection import captions
from vitreous.inspection.evaluation_figures import curves_figure
from vitreous.inspection.images import enlarged, overlay, rgb
from vitreous.inspection.page import Exhibit, LeftOut, image_row, save_arrays, write_page
from vitreous.layers.attention import Attention, CrossAttention
from vitreous.models.captioner import Captioner
from vitreous.models.transformer import Transformer
from vitreous.training.callbacks import read_metrics

if TYPE_CHECKING:
    from vitreous.evaluation.text_models import Reader, Translator

SHOWN = 320  # pixels of an image's longer side in the page, at least
LONGEST = 4  # bytes of a character in UTF-8
FOLLOWING = "⋯"  # a character's bytes after its first
MARKS = {START: "⟨start⟩", END: "⟨end⟩"}
PANELS = {"loss": "Loss", "accuracy": "Token accuracy", "lr": "Learning rate"}

Maps = Float[Tensor, "L K T S"]


class SequenceAttention(NamedTuple):
    """The maps of one source and what was written for it; rows are queries and sum to one.

    Attributes:
        encoder: of every source token to every source token, (layers, heads, S, S).
        decoder: of every written token to the tokens before it, (layers, heads, T, T).
        cross: of every written token to the source, (layers, heads, T, S). Row t is the step that wrote token
            t, for which tokens 0 ... t - 1 were read.
    """

    encoder: Maps
    decoder: Maps
    cross: Maps


@torch.no_grad()
def text_attention(
    model: Transformer | Captioner, source: Tensor, written: Int[Tensor, "1 T"]
) -> SequenceAttention:
    """Return the attention while `written` (with start and end mark) is generated for one source (1, ...).

    One forward pass over the whole text, as in training: its maps equal those of generating step by step.
    """
    seen: dict[nn.Module, Tensor] = {}

    def record(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[module] = module.attention_weights(*args, **kwargs)[0]

    parts = [module for module in model.modules() if isinstance(module, Attention | CrossAttention)]
    hooks = [part.register_forward_pre_hook(record, with_kwargs=True) for part in parts]
    try:
        model(source, written[:, :-1])
    finally:
        for hook in hooks:
            hook.remove()
    decoder = model.text.decoder.blocks
    return SequenceAttention(
        encoder=stacked(seen, model.encoder.blocks, "attention"),
        decoder=stacked(seen, decoder, "attention"),
        cross=stacked(seen, decoder, "cross_attention"),
    )


def stacked(seen: dict[nn.Module, Tensor], blocks: Sequence[nn.Module] | nn.ModuleList, name: str) -> Maps:
    """Return the maps of one kind, the first layer first."""
    return torch.stack([seen[block.get_submodule(name)].cpu() for block in blocks])


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
    """Translate, and show what every head attends to, and the learning curves.

    Args:
        run: the directory of metrics.jsonl; `folder` if not given.
    """
    translations = translator.translate(sources)
    examples: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True)):
        read, written = translator.encode(source), translation.ids
        device = translator.model.text.tokens.weight.device
        maps = text_attention(translator.model, padded([read]).to(device), padded([written]).to(device))
        arrays |= attention_arrays(maps, number)
        examples.append(
            {
                "source": source,
                "text": translation.text,
                "read": token_labels(translator.tokenizer, read),
                "written": token_labels(translator.tokenizer, written),
                # Three decimals are enough for the eye.
                "maps": {
                    kind: value.double().numpy().round(3).tolist() for kind, value in maps._asdict().items()
                },
            }
        )
    config = translator.model.config
    return write_sequence_page(
        folder,
        arrays,
        [each.text for each in translations],
        name=name,
        lead=f"An encoder of {config.encoder_depth} and a decoder of {config.depth} layers, "
        f"{config.heads} heads, embedding dimension {config.width}, "
        f"vocabulary of {config.vocabulary} tokens (arXiv 1706.03762).",
        examples=json.dumps(examples, ensure_ascii=False).replace("</", "<\\/"),
        parts=[text_curves(run or folder)],
    )


def write_reading_report(
    reader: Reader,
    images: Sequence[tuple[Image.Image, str]],
    folder: Path,
    *,
    name: str,
    run: Path | None = None,
) -> SequenceReport:
    """Generate the text of images (each with its name), and show the attention of each token, and the
    learning curves.

    Args:
        run: the directory of metrics.jsonl; `folder` if not given.
    """
    found = reader.read([image for image, _ in images])
    parts: list[Exhibit | LeftOut] = [text_curves(run or folder)]
    arrays: dict[str, np.ndarray] = {}
    for number, ((image, called), (text, _, written)) in enumerate(zip(images, found, strict=True)):
        batch = reader.model.preprocessing([image]).to(reader.model.text.tokens.weight.device)
        maps = text_attention(reader.model, batch, padded([written]).to(batch.device))
        arrays |= attention_arrays(maps, number)
        parts.append(tokens_figure(reader, batch[0], maps, written, title=f"{called}: {text}", number=number))
    encoder, decoder = reader.model.config.encoder, reader.model.config.decoder
    return write_sequence_page(
        folder,
        arrays,
        [each.text for each in found],
        name=name,
        lead=f"A Vision Transformer of {encoder.depth} layers on {encoder.grid[0]}x{encoder.grid[1]} "
        f"patches, and a decoder of {decoder.depth} layers and {decoder.heads} heads that writes the text.",
        parts=parts,
    )


def text_curves(run: Path) -> Exhibit | LeftOut:
    """Plot the learning curves of a run."""
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "epoch" in row]
    return curves_figure(rows, shown=PANELS, caption=captions.TEXT_CURVES)


def tokens_figure(
    reader: Reader,
    image: Tensor,
    maps: SequenceAttention,
    written: Sequence[int],
    *,
    title: str,
    number: int,
) -> Exhibit:
    """Show the image, and once more for each written token with its attention as an overlay."""
    config = reader.model.config.encoder
    shown = enlarged(rgb(reader.model.preprocessing.denormalize(image).cpu()), SHOWN)
    weights = maps.cross[-1].mean(dim=0)[:, config.num_prefix_tokens :].reshape(-1, *config.grid)
    labels = token_labels(reader.tokenizer, written[1:])
    tiles = [(overlay(shown, each), label) for label, each in zip(labels, weights, strict=True)]
    return Exhibit(
        name=f"image-{number}",
        title=title,
        caption=captions.TOKENS,
        html=image_row([(shown, "the image"), *tiles]),
    )


def token_labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return tokens as they are shown: the space before a word as "▁", a character of several byte tokens at
    the first of them."""
    pieces = spell_bytes(tokenizer.pieces(ids))
    return [MARKS.get(token, piece) for token, piece in zip(ids, pieces, strict=True)]


def spell_bytes(pieces: Sequence[str]) -> list[str]:
    """Replace byte tokens by the characters that they encode; those without a printable one stay bytes."""
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


def attention_arrays(maps: SequenceAttention, number: int) -> dict[str, np.ndarray]:
    """Return the maps of text `number` by their names in the .npz file."""
    return {f"{kind}_{number}": value.numpy() for kind, value in maps._asdict().items()}


def write_sequence_page(
    folder: Path,
    arrays: dict[str, np.ndarray],
    texts: list[str],
    *,
    name: str,
    lead: str,
    parts: Sequence[Exhibit | LeftOut],
    examples: str = "",
) -> SequenceReport:
    """Write the page and the attention maps."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = save_arrays(arrays, folder / "attention.npz")
    report = write_page(
        folder / "report.html",
        "sequence.html.j2",
        title=f"Attention of {name}",
        name=name,
        lead=lead,
        examples=Markup(examples),
        parts=[part for part in parts if isinstance(part, Exhibit)],  # a folder without a run has no curves
    )
    return SequenceReport(report, numbers, texts)
