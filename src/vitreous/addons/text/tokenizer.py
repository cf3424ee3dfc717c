"""Text as numbers: byte-pair encoding (arXiv 1508.07909) by the tokenizers library, with bytes to fall back
on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import normalize

from vitreous.errors import InputError, require_packages

PAD, START, END = 0, 1, 2
SPECIAL = ("<pad>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
SMALLEST = len(SPECIAL) + len(BYTES)


class Tokenizer:
    """Text to token ids and back. What the training text never showed is spelled out in UTF-8 bytes, so every
    text can be written. Unicode is brought to its composed form (NFC) first.

    Texts that look like special tokens are text: nothing that a user types becomes one.
    """

    pad, end = PAD, END

    def __init__(self, vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]) -> None:
        library = tokenizers_library()
        model = library.models.BPE(vocab=vocabulary, merges=list(merges), byte_fallback=True)
        self.inner = library.Tokenizer(model)
        self.inner.normalizer = library.normalizers.NFC()
        self.inner.pre_tokenizer = library.pre_tokenizers.Metaspace()
        decoders = library.decoders  # bytes to characters, "▁" to spaces, but for the first
        self.inner.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """Make tokens of the most frequent pairs of `texts`, until there are `vocabulary` tokens (or no pair
        is left). Of more characters than it has room for, the rarest are written in bytes. Raises InputError:
        the vocabulary has no room for the bytes."""
        if vocabulary <= SMALLEST:
            raise InputError(
                f"a vocabulary of {vocabulary} leaves no room beyond the {SMALLEST} tokens for bytes and "
                f"marks: set tokenizer.vocabulary to {2 * SMALLEST} or more"
            )
        library = tokenizers_library()
        learner = library.Tokenizer(library.models.BPE())
        learner.normalizer = library.normalizers.NFC()
        learner.pre_tokenizer = library.pre_tokenizers.Metaspace()
        texts, room, options = list(texts), vocabulary - SMALLEST, dict[str, Any]()
        counts = Counter("▁")
        for text in texts:
            counts.update(normalize("NFC", text).replace(" ", "▁"))
        # The library would take all of them, or any of equally rare ones.
        if len(counts) > room:
            common = sorted(counts, key=lambda character: (-counts[character], character))[:room]
            options = {"initial_alphabet": common, "limit_alphabet": room}
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=[*SPECIAL, *BYTES], show_progress=False, **options
        )
        learner.train_from_iterator(texts, trainer)
        model = json.loads(learner.to_str())["model"]
        return cls(model["vocab"], [tuple(merge) for merge in model["merges"]])

    def to_json(self) -> str:
        """Return the tokenizer in the tokenizers library's own format."""
        return str(self.inner.to_str(pretty=False))

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without marks at its ends."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the end mark; other marks are left out."""
        kept = []
        for token in ids:
            if token == END:
                break
            if token not in (PAD, START):
                kept.append(int(token))
        return str(self.inner.decode(kept, skip_special_tokens=False))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each token as it looks, for images of attention: "▁" where a word begins; "#5" of no
        token."""
        return [self.inner.id_to_token(int(token)) or f"#{int(token)}" for token in ids]


def tokenizer_from_json(text: str, *, where: str) -> Tokenizer:
    """Return the tokenizer that `Tokenizer.to_json` described. Raises InputError: `text` describes none."""
    try:
        model = json.loads(text)["model"]
        return Tokenizer(model["vocab"], [tuple(merge) for merge in model["merges"]])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{where} is not a byte-pair tokenizer: it is damaged or of another kind") from None


def tokenizers_library() -> Any:
    """Return the library, which only text needs."""
    require_packages("tokenizers", extra="text", what="text")
    import tokenizers
    import tokenizers.decoders
    import tokenizers.models
    import tokenizers.normalizers
    import tokenizers.pre_tokenizers
    import tokenizers.trainers

    return tokenizers
