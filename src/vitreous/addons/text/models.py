"""A translator with the tokenizer that it was trained with: texts in, texts out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.addons.text.batches import padded
from vitreous.addons.text.beam_search import beam_search, greedy
from vitreous.addons.text.published_tokenizers import PublishedTokenizer
from vitreous.addons.text.tokenizer import Tokenizer, tokenizer_from_json
from vitreous.addons.text.transformer import Transformer
from vitreous.checkpoints.files import model_folder, read_json
from vitreous.checkpoints.loading import load
from vitreous.checkpoints.native import is_native
from vitreous.checkpoints.native_writing import fingerprint
from vitreous.errors import InputError
from vitreous.outside import local_path, read_text

TEXT_BATCH = 128  # texts decoded together


class WrittenText(NamedTuple):
    """A text that a model wrote.

    Attributes:
        score: its log probability divided by a power of its length; None if it was decoded greedily.
        ids: its tokens, with the start mark, and the end mark if it was reached.
    """

    text: str
    score: float | None
    ids: list[int]


class Translator:
    """Translates texts with a beam (or greedily), many at a time.

    Args:
        model: that reads one language and writes another.
        tokenizer: of both.

    Raises:
        InputError: the tokenizer has tokens that the model does not know.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer | PublishedTokenizer) -> None:
        self.model: Transformer = model
        self.tokenizer: Any = tokenizer  # of two kinds, alike
        vocabulary = model.text.config.vocabulary
        if len(tokenizer) > vocabulary:
            raise InputError(
                f"the tokenizer has {len(tokenizer)} tokens, the model knows {vocabulary}: they do not "
                "belong together"
            )

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Translator:
        """Load a model from a run directory or its `model/`, or a published Marian: a folder with its
        tokenizer's files, or `hf:org/name`.

        Args:
            options: `device` and `dtype`, as of `vitreous.load`.

        Raises:
            InputError: it is another model, or it is damaged.
        """
        model: Any = load(path, **options)
        if not isinstance(model, Transformer):
            raise InputError(f"{path} holds a {type(model).__name__}, where a Transformer is needed")
        return cls.of(model)

    @classmethod
    def of(cls, model: Any) -> Translator:
        """Take the tokenizer beside the file that `model` was loaded from. Raises InputError: it was not
        loaded from a file, or there is no tokenizer."""
        if model.origin is None:
            raise InputError(
                f"the {type(model).__name__} was not loaded from a file, so its tokenizer is not known: pass "
                "vitreous.Translator(model, tokenizer)"
            )
        path = str(local_path(model.origin.source))
        if not is_native(path):
            return cls(model, PublishedTokenizer(path, model.text.config))
        return cls(model, tokenizer_from_json(read_tokenizer(path), where=path))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.text.tokens.weight.device

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a source text. Raises InputError: it is empty, or longer than the model can
        read."""
        if not text.strip():
            raise InputError("an empty line has no text to translate: leave it out")
        ids = [*self.tokenizer.encode(text.strip()), self.tokenizer.end]
        if len(ids) > self.model.config.max_length:
            raise InputError(
                f"the text {text[:40]!r}... has {len(ids)} tokens, and the model reads "
                f"{self.model.config.max_length}: translate it sentence by sentence"
            )
        return ids

    def translate(
        self,
        texts: Sequence[str],
        *,
        beams: int = 4,
        length_penalty: float = 0.6,
        max_length: int | None = None,
        batch_size: int = TEXT_BATCH,
    ) -> list[WrittenText]:
        """Return a translation of each text, in order. One beam decodes greedily. max_length: tokens that a
        translation may have; by default 50 more than its source (section 6.1), and never more than the model
        can write."""
        rows = [self.encode(text) for text in texts]
        by_length = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        results: dict[int, WrittenText] = {}
        for start in range(0, len(rows), batch_size):
            some = by_length[start : start + batch_size]
            source = padded([rows[row] for row in some], self.tokenizer.pad).to(self.device)
            limit = min(max_length or source.shape[1] + 50, self.model.config.max_length)
            results |= zip(some, self.decode(source, beams, length_penalty, limit), strict=True)
        return [results[row] for row in range(len(rows))]

    @torch.inference_mode()
    def decode(self, source: Tensor, beams: int, length_penalty: float, limit: int) -> list[WrittenText]:
        """Return the translations of one padded batch (B, S)."""
        memory, text = self.model.encode(source), self.model.text
        scores: list[float | None] = [None] * len(source)
        if beams > 1:
            found = beam_search(text, memory, max_length=limit, beams=beams, length_penalty=length_penalty)
            ids, scores = found.ids[:, 0], found.scores[:, 0].tolist()
        else:
            ids = greedy(text, memory, max_length=limit)
        written, end = [], self.tokenizer.end
        for row, score in zip(ids.tolist(), scores, strict=True):
            # The first token may be a start mark of the end mark's number; padding follows the end mark.
            length = row.index(end, 1) + 1 if end in row[1:] else len(row)
            written.append(WrittenText(self.tokenizer.decode(row), score, row[:length]))
        return written


def read_tokenizer(folder: str | Path) -> str:
    """Read the tokenizer of a native model that writes text, in the format of the tokenizers library. Raises
    InputError: it is missing or damaged, or not the one that the model was trained with."""
    folder = model_folder(Path(folder))
    described = read_json(folder / "config.json")
    if described.get("format") != "vitreous":
        raise InputError(
            f"{folder} is a model of another library, whose tokenizer is not supported: tokenize with that "
            "library, and pass the ids to the model that vitreous.load returns"
        )
    path = folder / "tokenizer.json"
    try:
        tokenizer = read_text(path)
    except OSError as error:
        raise InputError(
            f"cannot read the tokenizer {path}: {error.strerror}; the model needs it: put it back"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"the tokenizer {path} is damaged: it is not UTF-8 text") from None
    if fingerprint(tokenizer) != described.get("tokenizer"):
        raise InputError(
            f"{path} is not the tokenizer that this model was trained with, so its tokens would mean other "
            "words: put the original tokenizer.json back"
        )
    return tokenizer


def check_tokenizer(answerer: object) -> None:
    """Raise InputError for a model that is given without its tokenizer."""
    if isinstance(answerer, nn.Module):
        kind = type(answerer).__name__
        raise InputError(f"a {kind} has no tokenizer for its text: give the run, or its model folder")
