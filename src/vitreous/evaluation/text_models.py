"""Models that write text, with the tokenizer that they were trained with: images or texts in, texts out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from vitreous.checkpoints import load
from vitreous.checkpoints.native import read_tokenizer
from vitreous.data.text.batches import padded
from vitreous.data.text.tokenizer import END, Tokenizer, tokenizer_from_json, up_to_end
from vitreous.errors import InputError
from vitreous.models.captioner import Captioner
from vitreous.models.decoding import beam_search, greedy
from vitreous.models.sequence_config import DecoderConfig
from vitreous.models.transformer import Transformer

IMAGE_BATCH, TEXT_BATCH = 64, 128  # images and texts decoded together


class ReadText(NamedTuple):
    """The text of an image, its log probability divided by a power of its length, and the tokens that were
    written, with the start mark and the end mark, if it was reached."""

    text: str
    score: float
    ids: list[int]


class Translation(NamedTuple):
    """What a text became. `score` is its log probability divided by a power of its length, None if greedy;
    `ids` are the tokens that were written, with the start mark and the end mark, if it was reached."""

    text: str
    score: float | None
    ids: list[int]


def check_vocabulary_of(tokenizer: Tokenizer, decoder: DecoderConfig) -> None:
    """Raise InputError where the tokenizer has tokens that the model does not know."""
    if len(tokenizer) > decoder.vocabulary:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens, the model knows {decoder.vocabulary}: they do not "
            "belong together"
        )


class Reader:
    """Writes the text of images, many at a time.

    Attributes:
        model: the captioner.
        tokenizer: the one that it was trained with.
    """

    def __init__(self, model: Captioner, tokenizer: Tokenizer) -> None:
        check_vocabulary_of(tokenizer, model.config.decoder)
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, path: Path) -> Reader:
        """Load a captioner from a run directory or its `model/`.

        Raises:
            InputError: it is another model, or it is damaged.
        """
        model = load(path, kind=Captioner)
        return cls(model, tokenizer_from_json(read_tokenizer(path), where=str(path)))

    @torch.inference_mode()
    def read(
        self, images: Sequence[Image.Image], *, beams: int = 4, batch_size: int = IMAGE_BATCH
    ) -> list[ReadText]:
        """Return the text of each image, in order."""
        results: list[ReadText] = []
        for start in range(0, len(images), batch_size):
            results += self.read_batch(
                self.model.preprocessing(images[start : start + batch_size]), beams=beams
            )
        return results

    @torch.inference_mode()
    def read_batch(self, images: Tensor, *, beams: int = 4) -> list[ReadText]:
        """Return the text of each image of a preprocessed batch (B, C, H, W)."""
        found = beam_search(
            self.model.text,
            self.model.encode(images.to(self.model.text.tokens.weight.device)),
            max_length=self.model.config.decoder.max_length,
            beams=beams,
        )
        best = zip(found.ids[:, 0].tolist(), found.scores[:, 0].tolist(), strict=True)
        return [ReadText(self.tokenizer.decode(row), score, up_to_end(row)) for row, score in best]


class Translator:
    """Translates texts with a beam (or greedily), many at a time.

    Attributes:
        model: the Transformer.
        tokenizer: the one that it was trained with.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        check_vocabulary_of(tokenizer, model.config)
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, path: Path) -> Translator:
        """Load a translator from a run directory or its `model/`.

        Raises:
            InputError: it is another model, or it is damaged.
        """
        model = load(path, kind=Transformer)
        if not isinstance(model, Transformer):
            raise InputError(f"{path} holds a {type(model).__name__}, which does not translate: use predict")
        return cls(model, tokenizer_from_json(read_tokenizer(path), where=str(path)))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a source text.

        Raises:
            InputError: it is empty, or longer than the model can read.
        """
        if not text.strip():
            raise InputError("there is no text to translate in an empty line: write some")
        ids = [*self.tokenizer.encode(text.strip()), END]
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
    ) -> list[Translation]:
        """Return a translation of each text, in order. One beam decodes greedily.

        Args:
            max_length: tokens that a translation may have; by default 50 more than its source (section 6.1),
                and never more than the model can write.
        """
        rows = [self.encode(text) for text in texts]
        by_length = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        results: dict[int, Translation] = {}
        for start in range(0, len(rows), batch_size):
            some = by_length[start : start + batch_size]
            source = padded([rows[row] for row in some]).to(self.model.text.tokens.weight.device)
            limit = min(max_length or source.shape[1] + 50, self.model.config.max_length)
            results |= zip(some, self.decode(source, beams, length_penalty, limit), strict=True)
        return [results[row] for row in range(len(rows))]

    @torch.inference_mode()
    def decode(self, source: Tensor, beams: int, length_penalty: float, limit: int) -> list[Translation]:
        """Return the translations of one padded batch (B, S)."""
        memory = self.model.encode(source)
        if beams == 1:
            ids = greedy(self.model.text, memory, max_length=limit)
            return [Translation(self.tokenizer.decode(row), None, up_to_end(row)) for row in ids.tolist()]
        found = beam_search(
            self.model.text, memory, max_length=limit, beams=beams, length_penalty=length_penalty
        )
        best = zip(found.ids[:, 0].tolist(), found.scores[:, 0].tolist(), strict=True)
        return [Translation(self.tokenizer.decode(row), score, up_to_end(row)) for row, score in best]
