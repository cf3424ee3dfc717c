"""Attention of a translator, as one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.addons.text.batches import padded_ids
from vitreous.addons.text.models import Translator
from vitreous.addons.text.text_pairs import Pair
from vitreous.addons.text.tokenizer import BYTES, END, START, Tokenizer
from vitreous.addons.text.transformer import Transformer
from vitreous.data.findings import Finding
from vitreous.errors import InputError
from vitreous.inspection.capture import CapturedAttention, capture_attention
from vitreous.inspection.model_report import InspectionRequest
from vitreous.inspection.page import HTML, Exhibit, Inspection, exhibit, save_arrays, templates_of, write_page
from vitreous.inspection.run_figures import curves_figure, results_table
from vitreous.inspection.run_report import report_head
from vitreous.languages import phrase
from vitreous.layers.attention import CrossAttention

if TYPE_CHECKING:
    from vitreous.addons.text.evaluation import TranslationEvaluation

MOST_TEXTS = 12  # wrong ones that are shown
SHORT = 80  # characters: a page holds the maps of every head
INSPECTED = 4  # held-out pairs that `vitreous inspect` shows
LONGEST = 4  # bytes of a character in UTF-8
FOLLOWING = "⋯"  # a character's bytes after its first
MARKS = {START: "⟨start⟩", END: "⟨end⟩"}

LayerAttention = Float[Tensor, "L K T S"]


class SequenceAttention(NamedTuple):
    """The maps of one source and what was written for it; rows are queries and sum to one.

    Attributes:
        encoder: of every source token to every source token, (layers, heads, S, S).
        decoder: of every written token to the tokens before it, (layers, heads, T, T).
        cross: of every written token to the source, (layers, heads, T, S). Row t is the step that wrote token
            t, for which tokens 0 ... t - 1 were read.
    """

    encoder: LayerAttention
    decoder: LayerAttention
    cross: LayerAttention


@torch.no_grad()
def text_attention(model: Transformer, source: Tensor, written: Int[Tensor, "1 T"]) -> SequenceAttention:
    """Return the attention while `written` (with start and end mark) is generated for one source (1, ...).

    One forward pass over the whole text, as in training: its maps equal those of generating step by step.
    """
    decoder = model.text.decoder
    with (
        capture_attention(model.encoder) as reading,
        capture_attention(decoder) as writing,
        capture_attention(decoder, kind=CrossAttention) as cross,
    ):
        model(source, written[:, :-1])
    return SequenceAttention(of_one(reading), of_one(writing), of_one(cross))


def of_one(attention: CapturedAttention[Tensor]) -> Float[Tensor, "L K T T"]:
    """Return the maps of the first of a batch, layer by layer."""
    return torch.stack([layer[0].cpu() for layer in attention.maps])


def write_translation_report(
    translator: Translator,
    sources: Sequence[str],
    folder: Path,
    run: Path,
    evaluation: TranslationEvaluation | None = None,
    findings: Sequence[Finding] = (),
) -> Inspection:
    """Translate, and write a page of what every head attends to, and of the learning curves of the run; and
    the maps of each source i as encoder_i, decoder_i and cross_i.

    Args:
        evaluation: of the report of a training.
        findings: of `vitreous doctor`.
    """
    examples: list[dict[str, Any]] = []
    arrays = dict[str, NDArray[np.float32]]()
    model, device = translator.model, translator.device
    for number, (source, found) in enumerate(zip(sources, translator.translate(sources), strict=True)):
        text, _, written = found
        read = translator.encode(source)
        maps = text_attention(model, padded_ids([read]).to(device), padded_ids([written]).to(device))
        numbers = {}
        for kind, each in maps._asdict().items():
            arrays[f"{kind}_{number}"] = each.numpy()
            numbers[kind] = each.double().numpy().round(3).tolist()
        labels = (token_labels(translator.tokenizer, ids) for ids in (read, written))
        examples.append({"source": source, "text": text, "maps": numbers})
        examples[-1] |= zip(("read", "written"), labels, strict=True)
    curves = curves_figure(run, "text")
    parts = [curves] if isinstance(curves, Exhibit) else []  # a folder without a run has none
    head: dict[str, object] = {
        "evaluation": None,
        "comparisons": [],
        "notice": "",
        "commands": {},
        "facts": {},
        "kind": "sequence",
        "configuration": None,
    }
    if evaluation:
        head = {**report_head(run, model, evaluation, (), findings=findings, command="translate train")}
        head["kind"] = evaluation.task
        parts = [results_table(evaluation), *parts]
        if mistakes := evaluation.mistakes:
            rows = []  # wrong texts, aligned with the right ones
            for source, wanted, text in mistakes[:MOST_TEXTS]:
                rows.append((source, text_differences(wanted, text)))
            shown, count = HTML.differences(rows), evaluation.count
            wrong = exhibit("wrong-texts", shown, shown=len(rows), wrong=len(mistakes), count=count)
            parts = [wrong, *parts]
    folder.mkdir(parents=True, exist_ok=True)
    saved = save_arrays(arrays, folder / "attention.npz")
    page = write_page(
        folder / "report.html",
        templates_of("vitreous.addons.text").get_template("sequence.html.j2"),
        title=phrase("titles.sequence", name=run.name),
        name=run.name,
        lead=phrase("models.translator", c=model.config),
        examples=examples,
        parts=parts,
        **head,
    )
    texts = [{key: example[key] for key in ("source", "text")} for example in examples]
    return Inspection(page, saved, (), {"written": texts})


def few_sources(pairs: Sequence[Pair]) -> list[str]:
    """Return the sources of a few pairs, spread over all; short ones where there are some."""
    sources = [pair.source for pair in pairs]
    few = [source for source in sources if len(source) <= SHORT] or sources
    return few[:: max(len(few) // INSPECTED, 1)][:INSPECTED]


def inspect_translator(
    answerer: Any, examples: Sequence[Any], folder: Path, request: InspectionRequest
) -> Inspection:
    """Write the page of `vitreous inspect` on texts, or on some of the held-out pairs. Raises InputError: a
    model that is given without its tokenizer."""
    if isinstance(answerer, nn.Module):
        kind = type(answerer).__name__
        raise InputError(f"a {kind} has no tokenizer for its text: pass the run, or its model folder")
    sources = few_sources(examples) if isinstance(examples[0], Pair) else examples
    return write_translation_report(answerer, sources, folder, Path(request.name))


def text_differences(wanted: str, text: str) -> list[tuple[str, str]]:
    """Return the parts of a text as ("kept", ...), ("missing", ...) and ("added", ...)."""
    first, second = (re.findall(r"\S+\s*|\s+", each) for each in (wanted, text))
    parts = []
    for kind, low, high, start, end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        missing, added = "".join(first[low:high]), "".join(second[start:end])
        if kind == "equal":
            parts.append(("kept", missing))
        else:
            parts += [(name, each) for name, each in (("missing", missing), ("added", added)) if each]
    return parts


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
