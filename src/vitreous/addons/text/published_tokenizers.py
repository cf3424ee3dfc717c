"""The tokenizers of published models that write text: Marian's two SentencePiece models with one vocabulary,
and TrOCR's. Of SentencePiece's files the few fields that are needed are read."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.addons.text.config import DecoderConfig
from vitreous.addons.text.tokenizer import tokenizers_library
from vitreous.checkpoints.download import local_copy
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.source import whole_number_of
from vitreous.errors import InputError
from vitreous.outside import parse_place, read_regular

FILES = ("*.spm", "*.bpe.model", "vocab.json", "merges.txt", "tokenizer.json")
LANGUAGE = re.compile(r"(>>.+?<<)(.*)", re.S)  # a target language, at the beginning of a source text
UNIGRAM, UNKNOWN = 1, 2  # numbers of SentencePiece: a kind of model, and a kind of piece


class PublishedTokenizer:
    """Text to token ids and back, of a model that was trained elsewhere.

    Args:
        names: each token as it looks, by its id.
        encode: from a text to ids; None where a model only writes.
        decode: from ids without marks to a text.
        config: says which ids are marks.
    """

    def __init__(
        self,
        names: dict[int, str],
        *,
        encode: Callable[[str], list[int]] | None,
        decode: Callable[[list[int]], str],
        config: DecoderConfig,
    ) -> None:
        self.names, self.to_ids, self.to_text = names, encode, decode
        self.pad, self.end, self.marks = config.pad, config.end, {config.pad, config.start, config.end}

    def __len__(self) -> int:
        return max(self.names) + 1

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without marks at its ends."""
        if self.to_ids is None:
            raise InputError("this model writes text and reads none: its tokenizer only decodes")
        return self.to_ids(text)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the end mark, which may begin them too; other marks are left out."""
        kept: list[int] = []
        for place, token in enumerate(ids):
            if token == self.end and place:
                break
            if token not in self.marks:
                kept.append(int(token))
        return self.to_text(kept)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each token as it looks."""
        return [self.names.get(int(token), f"#{int(token)}") for token in ids]


def published_tokenizer(source: str, config: DecoderConfig) -> PublishedTokenizer:
    """Return the tokenizer beside a checkpoint of Marian or TrOCR.

    Args:
        source: a folder, a file in it, or `hf:org/name`.

    Raises:
        InputError: its files are missing, damaged, or of another kind.
    """
    place = local_copy(parse_place(source), FILES)
    folder = place if place.is_dir() else place.parent
    if (folder / "source.spm").is_file() and (folder / "vocab.json").is_file():
        return marian_tokenizer(folder, config)
    if (folder / "tokenizer.json").is_file():
        return fast_tokenizer(folder / "tokenizer.json", config)
    if (folder / "merges.txt").is_file() and (folder / "vocab.json").is_file():
        return byte_level_tokenizer(folder, config)
    if found := sorted(folder.glob("*.bpe.model")):
        return fairseq_tokenizer(found[0], config)
    raise InputError(
        f"{source} has no tokenizer next to its weights: source.spm and vocab.json (Marian), tokenizer.json, "
        "vocab.json and merges.txt, or sentencepiece.bpe.model (TrOCR)"
    )


def vocabulary_in(path: Path) -> dict[str, int]:
    """Return the number of each piece of text. Raises InputError: the file holds something else."""
    pieces: dict[str, int] = {}
    for piece, number in read_json(path).items():
        pieces[piece] = whole_number_of(number, f"{path}: the number of {piece!r}", least=0)
    return pieces


def marian_tokenizer(folder: Path, config: DecoderConfig) -> PublishedTokenizer:
    """Return a tokenizer of Marian: SentencePiece cuts a text into pieces, and vocab.json numbers them, those
    of both languages."""
    separate = folder / "target_vocab.json"
    sources = vocabulary_in(folder / "vocab.json")
    targets = vocabulary_in(separate) if separate.is_file() else sources
    names = {number: piece for piece, number in targets.items()}
    model = read_sentencepiece(folder / "source.spm")
    library = tokenizers_library()
    inner = library.Tokenizer(
        library.models.Unigram([(piece.text, piece.score) for piece in model.pieces], unk_id=model.unknown)
    )
    normalizers = library.normalizers
    rules = [normalizers.Precompiled(model.characters)] if model.characters else []
    rules += [normalizers.Strip(), normalizers.Replace(library.Regex(" {2,}"), " ")]
    inner.normalizer = normalizers.Sequence(rules)
    inner.pre_tokenizer = library.pre_tokenizers.Metaspace()
    unknown = sources.get("<unk>", 1)

    def encode(text: str) -> list[int]:
        language = LANGUAGE.fullmatch(text)
        code, text = language.groups() if language else ("", text)
        pieces = [*([code] if code else []), *inner.encode(text, add_special_tokens=False).tokens]
        return [sources.get(piece, unknown) for piece in pieces]

    def decode(ids: list[int]) -> str:
        return "".join(names.get(token, "") for token in ids).replace("▁", " ").strip()

    return PublishedTokenizer(names, encode=encode, decode=decode, config=config)


def fast_tokenizer(path: Path, config: DecoderConfig) -> PublishedTokenizer:
    """Return a tokenizer of the tokenizers library, whole."""
    try:
        inner = tokenizers_library().Tokenizer.from_file(str(path))
    except Exception as error:
        # The library has no class of errors for damaged files.
        raise InputError(f"{path} is not a tokenizer of the tokenizers library: {error}") from None
    return of_library(inner, config)


def byte_level_tokenizer(folder: Path, config: DecoderConfig) -> PublishedTokenizer:
    """Return byte-pair encoding on bytes, as of GPT-2 and RoBERTa."""
    library = tokenizers_library()
    try:
        model = library.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as error:
        raise InputError(f"{folder}: vocab.json and merges.txt are not a tokenizer: {error}") from None
    inner = library.Tokenizer(model)
    inner.decoder = library.decoders.ByteLevel()
    return of_library(inner, config)


def of_library(inner: Any, config: DecoderConfig) -> PublishedTokenizer:
    names = {number: piece for piece, number in inner.get_vocab(with_added_tokens=True).items()}

    def decode(ids: list[int]) -> str:
        return str(inner.decode(ids, skip_special_tokens=True))

    return PublishedTokenizer(names, encode=None, decode=decode, config=config)


# What fairseq has before the pieces, in place of SentencePiece's own first three.
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


def fairseq_tokenizer(path: Path, config: DecoderConfig) -> PublishedTokenizer:
    """Return a SentencePiece model with fairseq's numbers, as of XLM-RoBERTa."""
    pieces = [*FAIRSEQ, *(piece.text for piece in read_sentencepiece(path).pieces[3:])]
    names = dict(enumerate(pieces))

    def decode(ids: list[int]) -> str:
        text = "".join(names.get(token, "") for token in ids if token >= len(FAIRSEQ))
        return text.replace("▁", " ").strip()

    return PublishedTokenizer(names, encode=None, decode=decode, config=config)


class TokenPiece(NamedTuple):
    text: str
    score: float
    kind: int


class SentencePiece(NamedTuple):
    """A SentencePiece model of the unigram kind: its pieces, the number of the one for what is unknown, and
    how characters are replaced first."""

    pieces: list[TokenPiece]
    unknown: int
    characters: bytes


def read_sentencepiece(path: Path) -> SentencePiece:
    """Read a message of protocol buffers. Raises InputError: it is damaged, or not of the unigram kind."""
    try:
        pieces, characters, kind = [], b"", UNIGRAM
        for number, value in message(read_regular(path)):
            if number == 1:
                found = dict(message(value))
                score = struct.unpack("<f", found[2])[0] if 2 in found else 0.0
                pieces.append(TokenPiece(found[1].decode(), score, found.get(3, 1)))
            elif number == 2:
                kind = dict(message(value)).get(3, UNIGRAM)
            elif number == 3:
                characters = dict(message(value)).get(2, b"")
        if kind == UNIGRAM:
            return SentencePiece(pieces, [piece.kind for piece in pieces].index(UNKNOWN), characters)
    except (OSError, LookupError, ValueError, TypeError, AttributeError, struct.error):
        raise InputError(f"{path} is not a SentencePiece model, or it is damaged") from None
    raise InputError(
        f"{path}: only unigram models of SentencePiece are supported, and this is of another kind"
    )


def message(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message of protocol buffers: their numbers, and whole numbers or bytes."""
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
