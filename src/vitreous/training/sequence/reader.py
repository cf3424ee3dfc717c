"""A trained captioner and its tokenizer: images in, texts out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image

from vitreous.checkpoints import load
from vitreous.checkpoints.native import read_tokenizer
from vitreous.data.text.tokenizer import Tokenizer, tokenizer_from_json, up_to_end
from vitreous.models.captioner import Captioner
from vitreous.models.decoding import beam_search
from vitreous.training.sequence.belonging import check_belong

BATCH = 64  # images read together


class ReadText(NamedTuple):
    """What stands in an image, its log probability divided by a power of its length, and the tokens that
    were written, with the start mark and the end mark, if it was reached."""

    text: str
    score: float
    ids: list[int]


class Reader:
    """Reads the text in images, many at a time.

    Attributes:
        model: the captioner.
        tokenizer: the one that it was trained with.
    """

    def __init__(self, model: Captioner, tokenizer: Tokenizer) -> None:
        check_belong(tokenizer, model.config.decoder)
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, path: Path) -> Reader:
        """From a run directory or its `model/`.

        Raises:
            InputError: it holds no reader, or it is damaged.
        """
        model = load(path, kind=Captioner)
        return cls(model, tokenizer_from_json(read_tokenizer(path), where=str(path)))

    @torch.inference_mode()
    def read(
        self, images: Sequence[Image.Image], *, beams: int = 4, batch_size: int = BATCH
    ) -> list[ReadText]:
        """The text of each image, in order."""
        device = self.model.text.tokens.weight.device
        results: list[ReadText] = []
        for start in range(0, len(images), batch_size):
            batch = self.model.preprocessing(images[start : start + batch_size]).to(device)
            found = beam_search(
                self.model.text,
                self.model.encode(batch),
                max_length=self.model.config.decoder.max_length,
                beams=beams,
            )
            best = zip(found.ids[:, 0].tolist(), found.scores[:, 0].tolist(), strict=True)
            results += [ReadText(self.tokenizer.decode(row), score, up_to_end(row)) for row, score in best]
        return results
