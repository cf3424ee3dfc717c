"""Models that generate text, with the tokenizer that they were trained with: images or texts in, texts
out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from vitreous.addons.text.batches import padded_ids
from vitreous.addons.text.beam_search import beam_search, greedy
from vitreous.addons.text.published_tokenizers import PublishedTokenizer, published_tokenizer
from vitreous.addons.text.tokenizer import Tokenizer, tokenizer_from_json
from vitreous.addons.text.transformer import Captioner, Memory, Transformer
from vitreous.checkpoints.files import model_folder, read_json
from vitreous.checkpoints.loading import load
from vitreous.checkpoints.native import is_native, text_hash
from vitreous.errors import InputError
from vitreous.models.stored import ImageLike
from vitreous.outside import local_path, read_text

IMAGE_BATCH, TEXT_BATCH = 64, 128  # images and texts decoded together


class WrittenText(NamedTuple):
    """A text that a model has generated.

    Attributes:
        score: its log probability divided by a power of its length; None if it was decoded greedily.
        ids: its tokens, including the start token, and the end token if it was reached.
    """

    text: str
    score: float | None
    ids: list[int]


class TextModel:
    """A model that generates text, and the tokenizer that it was trained with.

    Raises:
        InputError: the tokenizer has tokens that the model does not know.
    """

    kind: ClassVar[type[Captioner] | type[Transformer]]  # the class of the model

    def __init__(self, model: Any, tokenizer: Tokenizer | PublishedTokenizer) -> None:
        self.model: Any = model
        self.tokenizer: Any = tokenizer  # of two kinds, alike
        vocabulary = model.text.config.vocabulary
        if len(tokenizer) > vocabulary:
            raise InputError(
                f"the tokenizer has {len(tokenizer)} tokens, but the model knows {vocabulary}: they do not "
                "belong together"
            )

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Load a model from a run directory or its `model/`; or a published Marian or TrOCR model: a folder
        with the tokenizer's files, or `hf:org/name`.

        Args:
            options: `device` and `dtype`, as in `vitreous.load`.

        Raises:
            InputError: it is another kind of model, or it is damaged.
        """
        model: Any = load(path, **options)
        if not isinstance(model, cls.kind):
            raise InputError(f"{path} holds a {type(model).__name__}, where a {cls.kind.__name__} is needed")
        return cls.of(model)

    @classmethod
    def of(cls, model: Any) -> Self:
        """Use the tokenizer next to the file that `model` was loaded from. Raises InputError: the model was
        not loaded from a file, or there is no tokenizer."""
        if model.origin is None:
            raise InputError(
                f"the {type(model).__name__} was not loaded from a file, so its tokenizer is not known: pass "
                f"vitreous.{cls.__name__}(model, tokenizer)"
            )
        path = str(local_path(model.origin.source))
        if not is_native(path):
            return cls(model, published_tokenizer(path, model.text.config))
        return cls(model, tokenizer_from_json(read_tokenizer(path), where=path))

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.text.tokens.weight.device

    def search(self, memory: Memory, **options: Any) -> list[WrittenText]:
        """Return the best text of a beam search for each encoded input of a batch."""
        found = beam_search(self.model.text, memory, **options)
        best = zip(found.ids[:, 0].tolist(), found.scores[:, 0].tolist(), strict=True)
        return [WrittenText(self.tokenizer.decode(row), score, self.written(row)) for row, score in best]

    def written(self, ids: list[int]) -> list[int]:
        """Return the generated ids without the padding after the end token; the first may be a start
        token."""
        end = self.tokenizer.end
        return ids[: ids.index(end, 1) + 1] if end in ids[1:] else ids


class Reader(TextModel):
    """A captioner, which reads the text in a batch of images.

    Example:
        >>> reader = vt.Reader.load("trocr")  # or hf:microsoft/trocr-small-printed
        >>> len(reader.read(["photo.jpg"]))
        1

    Args:
        model: the model that reads the images.
        tokenizer: the tokenizer of the texts that it writes.
    """

    kind = Captioner
    model: Captioner

    @torch.inference_mode()
    def read(
        self, images: Sequence[ImageLike], *, beams: int = 4, batch_size: int = IMAGE_BATCH
    ) -> list[WrittenText]:
        """Return the text of each image, in order."""
        results: list[WrittenText] = []
        longest = self.model.config.decoder.max_length
        for start in range(0, len(images), batch_size):
            batch = self.model.preprocessing(images[start : start + batch_size])
            results += self.search(
                self.model.encode(batch.to(self.device)), max_length=longest, beams=beams, length_offset=0
            )
        return results


class Translator(TextModel):
    """A translator, which translates a batch of texts with beam search or greedily.

    Example:
        >>> translator = vt.Translator.load("runs/numbers")
        >>> len(translator.translate(["twenty-one", "three"]))
        2

    Args:
        model: the model that reads one language and writes another.
        tokenizer: the tokenizer of both languages.
    """

    kind = Transformer
    model: Transformer

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
        """Return a translation of each text, in order. One beam means greedy decoding. max_length: maximum
        number of tokens of a translation; by default 50 more than its source (section 6.1), and never more
        than the model can generate."""
        rows = [self.encode(text) for text in texts]
        by_length = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        results: dict[int, WrittenText] = {}
        for start in range(0, len(rows), batch_size):
            some = by_length[start : start + batch_size]
            source = padded_ids([rows[row] for row in some], self.tokenizer.pad).to(self.device)
            limit = min(max_length or source.shape[1] + 50, self.model.config.max_length)
            results |= zip(some, self.decode(source, beams, length_penalty, limit), strict=True)
        return [results[row] for row in range(len(rows))]

    @torch.inference_mode()
    def decode(self, source: Tensor, beams: int, length_penalty: float, limit: int) -> list[WrittenText]:
        """Return the translations of one padded batch (B, S)."""
        memory = self.model.encode(source)
        if beams > 1:
            return self.search(memory, max_length=limit, beams=beams, length_penalty=length_penalty)
        ids = greedy(self.model.text, memory, max_length=limit)
        return [WrittenText(self.tokenizer.decode(row), None, self.written(row)) for row in ids.tolist()]


def read_tokenizer(folder: str | Path) -> str:
    """Read the tokenizer of a native model that generates text, in the format of the tokenizers library.
    Raises
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
    if text_hash(tokenizer) != described.get("tokenizer"):
        raise InputError(
            f"{path} is not the tokenizer that this model was trained with, so its tokens would mean other "
            "words: put the original tokenizer.json back"
        )
    return tokenizer
