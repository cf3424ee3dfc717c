"""The tokenizer of a published Marian: two SentencePiece models with one vocabulary. Of SentencePiece's files
the few fields that are needed are read."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.addons.text.config import DecoderConfig
from vitreous.addons.text.tokenizer import tokenizers_library
from vitreous.checkpoints.download import local_copy
from vitreous.checkpoints.facts import whole_number_of
from vitreous.checkpoints.files import read_json
from vitreous.errors import InputError
from vitreous.outside import parse_place, read_regular

FILES = ("*.spm", "vocab.json", "target_vocab.json")
LANGUAGE = re.compile(r"(>>.+?<<)(.*)", re.S)  # a target language, at the beginning of a source text
UNIGRAM, UNKNOWN = 1, 2  # numbers of SentencePiece: a kind of model, and a kind of piece


class PublishedTokenizer:
    """Text to token ids and back, of a published Marian: SentencePiece cuts a text into pieces, which
    vocab.json numbers, those of both languages.

    Args:
        source: the checkpoint that it is beside: a folder, a file in it, or `hf:org/name`.
        config: says which ids are marks.

    Raises:
        InputError: its files are missing, damaged, or of another kind.
    """

    def __init__(self, source: str, config: DecoderConfig) -> None:
        place = local_copy(parse_place(source), FILES)
        folder = place if place.is_dir() else place.parent
        separate = folder / "target_vocab.json"
        if not (folder / "source.spm").is_file() or not (folder / "vocab.json").is_file():
            raise InputError(f"{source} has no tokenizer next to its weights: source.spm and vocab.json")
        self.numbers = vocabulary_in(folder / "vocab.json")
        targets = vocabulary_in(separate) if separate.is_file() else self.numbers
        self.names = {number: piece for piece, number in targets.items()}
        self.unknown = self.numbers.get("<unk>", 1)
        self.pad, self.end, self.marks = config.pad, config.end, {config.pad, config.start, config.end}

        model = read_sentencepiece(folder / "source.spm")
        library = tokenizers_library()
        pieces = [(piece.text, piece.score) for piece in model.pieces]
        self.cutting = library.Tokenizer(library.models.Unigram(pieces, unk_id=model.unknown))
        normalizers = library.normalizers
        rules = [normalizers.Precompiled(model.characters)] if model.characters else []
        rules += [normalizers.Strip(), normalizers.Replace(library.Regex(" {2,}"), " ")]
        self.cutting.normalizer = normalizers.Sequence(rules)
        self.cutting.pre_tokenizer = library.pre_tokenizers.Metaspace()

    def __len__(self) -> int:
        return max(self.names) + 1

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without marks at its ends."""
        language = LANGUAGE.fullmatch(text)
        code, text = language.groups() if language else ("", text)
        pieces = self.cutting.encode(text, add_special_tokens=False).tokens
        return [self.numbers.get(piece, self.unknown) for piece in [*([code] if code else []), *pieces]]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the end mark, which may begin them too; other marks are left out."""
        text = ""
        for place, token in enumerate(ids):
            if token == self.end and place:
                break
            if token not in self.marks:
                text += self.names.get(int(token), "")
        return text.replace("▁", " ").strip()

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each token as it looks."""
        return [self.names.get(int(token), f"#{int(token)}") for token in ids]


def vocabulary_in(path: Path) -> dict[str, int]:
    """The number of each piece of text. Raises InputError: the file holds something else."""
    pieces: dict[str, int] = {}
    for piece, number in read_json(path).items():
        pieces[piece] = whole_number_of(number, f"{path}: the number of {piece!r}", least=0)
    return pieces


class Piece(NamedTuple):
    text: str
    score: float
    kind: int


class SentencePiece(NamedTuple):
    """A SentencePiece model of the unigram kind: its pieces, and how characters are replaced first."""

    pieces: list[Piece]
    characters: bytes

    @property
    def unknown(self) -> int:
        return next(number for number, piece in enumerate(self.pieces) if piece.kind == UNKNOWN)


def read_sentencepiece(path: Path) -> SentencePiece:
    """Read a message of protocol buffers. Raises InputError: it is damaged, or not of the unigram kind."""
    try:
        pieces, characters, kind = [], b"", UNIGRAM
        for number, value in message(read_regular(path)):
            if number == 1:
                found = dict(message(value))
                score = struct.unpack("<f", found[2])[0] if 2 in found else 0.0
                pieces.append(Piece(found[1].decode(), score, found.get(3, 1)))
            elif number == 2:
                kind = dict(message(value)).get(3, UNIGRAM)
            elif number == 3:
                characters = dict(message(value)).get(2, b"")
        model = SentencePiece(pieces, characters)
        if kind == UNIGRAM and model.unknown >= 0:
            return model
    except (OSError, LookupError, ValueError, TypeError, AttributeError, StopIteration, struct.error):
        raise InputError(f"{path} is not a SentencePiece model, or it is damaged") from None
    raise InputError(
        f"{path}: only unigram models of SentencePiece are supported, and this is of another kind"
    )


def message(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protocol buffers: their numbers, and whole numbers or bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place, value, shift = place + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80 or shift > 63:
                return value

    while place < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else None)
        if length is None or place + length > len(data):
            raise ValueError("a field that does not end")
        yield key >> 3, data[place : place + length]
        place += length
