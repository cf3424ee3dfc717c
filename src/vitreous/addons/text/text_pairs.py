"""Parallel text: pairs of a text and its translation, from files, the Hub, numbers in words, or a grammar."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.held_out import name_hashes
from vitreous.errors import InputError, require_packages
from vitreous.outside import read_text, scheme_of

LARGEST = 999_999
MOST_HELD_OUT = 2000  # pairs: writing translations of them takes long

ENGLISH = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
GERMAN = (  # noqa: SIM905
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn"
).split()
GERMAN_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
KOREAN = "영일이삼사오육칠팔구"


def english(number: int) -> str:
    """Return a number in words: 345678 -> "three hundred forty-five thousand six hundred seventy-eight"."""
    if number >= 1000:
        return spaced(f"{english(number // 1000)} thousand", number % 1000, english)
    if number >= 100:
        return spaced(f"{ENGLISH[number // 100]} hundred", number % 100, english)
    if number >= 20:
        return ENGLISH_TENS[number // 10] + (f"-{ENGLISH[number % 10]}" if number % 10 else "")
    return ENGLISH[number]


def spaced(front: str, rest: int, words: Callable[[int], str]) -> str:
    return f"{front} {words(rest)}" if rest else front


def german(number: int) -> str:
    """Return a number in words: 345678 -> "dreihundertfünfundvierzigtausendsechshundertachtundsiebzig"."""
    words = german_part(number)
    return words + "s" if number % 100 == 1 else words  # a one that ends a number: eins


def german_part(number: int) -> str:
    """Return a number before something else, where one is "ein"."""
    if number >= 1000:
        return german_part(number // 1000) + "tausend" + (german_part(number % 1000) if number % 1000 else "")
    if number >= 100:
        return GERMAN[number // 100] + "hundert" + (german_part(number % 100) if number % 100 else "")
    if number >= 20:
        ones = f"{GERMAN[number % 10]}und" if number % 10 else ""
        return ones + GERMAN_TENS[number // 10]
    return GERMAN[number]


def korean(number: int) -> str:
    """Return a number in words: 345678 -> "삼십사만 오천육백칠십팔": groups of ten thousand; no "one" before
    ten, hundred, thousand."""
    if number >= 10_000:
        head = "만" if number // 10_000 == 1 else f"{korean(number // 10_000)}만"
        return spaced(head, number % 10_000, korean)
    if number == 0:
        return KOREAN[0]
    words = ""
    for unit, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = number // unit % 10
        if digit:
            words += (KOREAN[digit] if digit > 1 or unit == 1 else "") + name
    return words


LANGUAGES: dict[str, Callable[[int], str]] = {"ko": korean, "en": english, "de": german}


NUMBERS = "numbers"
SENTENCE = ("adjective", "noun", "place", "clause", "predicate", "join", "thing", "fate")  # of the grammar
KOREAN_SENTENCE = ("clause", "place", "adjective", "noun", "predicate", "thing", "fate")  # of the pronouns
KINDS = (
    "a TSV file of two columns, two text files SOURCE,TARGET of as many lines, hf:NAME, numbers, grammar, or "
    "pronouns"
)


class Pair(NamedTuple):
    """A text and its translation. Pairs of one `group` say the same: they are on one side of a split."""

    source: str
    target: str
    group: int


class Parallel(NamedTuple):
    """Pairs to learn from and pairs to test on, and how many were left out because a side was empty."""

    train: list[Pair]
    test: list[Pair]
    empty: int
    name: str


def open_parallel(spec: str, *, seed: int, test_fraction: float) -> Parallel:
    """Return the pairs that `spec` names, split by a hash of the source text, so that other pairs do not
    matter.

    Args:
        spec: a TSV file; two text files with a comma between; "hf:NAME" or "hf:NAME:CONFIGURATION";
            "numbers"; "grammar"; "pronouns".
        test_fraction: of the pairs; at least one, at most 2,000.

    Raises:
        InputError: nothing of these, a line without two columns, files of different length, or too few pairs.
    """
    rows = list(numbered_pairs(spec))
    pairs = [pair for pair in rows if pair.source and pair.target]
    groups = sorted({pair.group for pair in pairs})
    if len(groups) < 2:
        raise InputError(f"{spec} has {len(groups)} pairs with text on both sides: at least two are needed")
    names = [f"{pair.group}" if spec == NUMBERS else pair.source for pair in pairs]
    held = held_out_names(names, test_fraction, seed, most=MOST_HELD_OUT)
    held_out = {pair.group for pair, chosen in zip(pairs, held, strict=True) if chosen}
    return Parallel(
        train=[pair for pair in pairs if pair.group not in held_out],
        test=[pair for pair in pairs if pair.group in held_out],
        empty=len(rows) - len(pairs),
        name=Path(spec.split(",")[0]).stem if "/" in spec or "." in spec else spec,
    )


def held_out_names(names: Sequence[str], fraction: float, seed: int, *, most: int) -> NDArray[np.bool_]:
    """Return which examples are held out by the hashes of their names: `fraction` of them, halved until that
    is at most `most`; at least one, and never all. Examples of one name are in one part."""
    while fraction * len(names) > most:
        fraction /= 2
    hashes = name_hashes(names, f"test {seed}")
    held = (hashes < max(fraction, hashes.min() + 2.0**-53)) & (hashes < hashes.max())
    if not held.any():  # all have one name
        held[0] = True
    return held


def numbered_pairs(spec: str) -> Iterator[Pair]:
    """Yield every pair, its sides stripped, each its own group but for the numbers."""
    if spec in BUNDLED:
        yield from BUNDLED[spec]()
        return
    if scheme_of(spec) == "hf":
        rows: Iterable[tuple[str, str]] = hugging_face(spec.removeprefix("hf:"))
    elif "," in spec and not Path(spec).exists():
        rows = two_files([Path(part) for part in spec.split(",")])
    else:
        rows = tsv(Path(spec))
    for group, (source, target) in enumerate(rows):
        yield Pair(source.strip(), target.strip(), group)


def text_lines(path: Path) -> list[str]:
    """Return the lines of a text file, without their ends. Only line feeds end a line."""
    try:
        text = read_text(path, "utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; pass {KINDS}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def tsv(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines with source, tab, target; further columns are not read. An empty line is a
    pair without text."""
    for number, line in enumerate(text_lines(path), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) < 2:
            raise InputError(
                f"{path}, line {number}: no tab between source and target; write both in one line"
            )
        yield columns[0], columns[1]


def two_files(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Line i of the first file and line i of the second."""
    if len(paths) != 2:
        raise InputError(f"{','.join(map(str, paths))}: {len(paths)} files were given; pass {KINDS}")
    source, target = text_lines(paths[0]), text_lines(paths[1])
    if len(source) != len(target):
        raise InputError(
            f"{paths[0]} has {len(source)} lines, but {paths[1]} has {len(target)}: pass files that match "
            "line by line"
        )
    yield from zip(source, target, strict=True)


def hugging_face(name: str) -> Iterator[tuple[str, str]]:
    """Yield the training split of a dataset whose rows are {"translation": {"de": ..., "en": ...}}, in that
    order."""
    require_packages("datasets", extra="data", what="hf:")
    from datasets import load_dataset

    path, _, configuration = name.partition(":")
    try:
        rows: Iterable[Any] = load_dataset(path, configuration or None, split="train")
    except Exception as error:
        raise InputError(f"cannot load hf:{name}: {' '.join(str(error).split())}") from None
    for row in rows:
        texts = row.get("translation")
        if not isinstance(texts, dict) or len(texts) != 2:
            raise InputError(
                f"hf:{name} has no column translation of two languages: its rows are {sorted(row)}"
            )
        source, target = texts.values()
        yield str(source or ""), str(target or "")


def number_pairs(count: int = 20_000) -> Iterator[Pair]:
    """Yield numbers in words in every direction between Korean, English and German. The source begins with
    the wanted language: "<de> 이십일" is "einundzwanzig". Few digits are as frequent as many."""
    rng = np.random.default_rng(2017)
    digits = rng.integers(1, len(str(LARGEST)) + 1, size=count)
    numbers = sorted({int(rng.integers(10 ** (d - 1) if d > 1 else 0, 10**d)) for d in digits})
    for number in numbers:
        words = {language: say(number) for language, say in LANGUAGES.items()}
        for source in words:
            for target in words:
                if source != target:
                    yield Pair(f"<{target}> {words[source]}", words[target], number)


@cache
def grammar_words(name: str = "grammar") -> dict[str, Any]:
    """Return the words of a grammar with their translations, by their places in a sentence."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


def sampled_sentence(choices: Mapping[str, str], rng: np.random.Generator) -> tuple[str, str]:
    """Return words of a grammar, and their translation."""
    source = list(choices)[int(rng.integers(len(choices)))]
    return source, choices[source]


def distinct(count: int, sentence: Callable[[], tuple[str, str]]) -> Iterator[Pair]:
    """Call until so many sources differ."""
    seen = set[str]()
    while len(seen) < count:
        source, target = (" ".join(text.replace(" ,", ",").split()) for text in sentence())
        if source not in seen:
            yield Pair(source, target, len(seen))
            seen.add(source)


def grammar_pairs(count: int = 8_000, *, seed: int = 2017) -> Iterator[Pair]:
    """Return English sentences and their translations: "the old law near the river is very old, but its end
    is known to all" is "das alte Gesetz am Fluss ist sehr alt, aber sein Ende ist allen bekannt"."""
    words, rng = grammar_words(), np.random.default_rng(seed)

    def sentence() -> tuple[str, str]:
        gender, owned = ("mfn"[int(rng.integers(3))] for _ in range(2))
        known = {**words, "noun": words["noun"][gender], "thing": words["thing"][owned]}
        adjective, noun, place, clause, predicate, join, thing, fate = (
            sampled_sentence(known[name], rng) for name in SENTENCE
        )
        article, relative = words["articles"][gender]
        pronoun = ("ihr" if gender == "f" else "sein") + ("e" if owned == "f" else "")
        return (
            f"the {adjective[0]} {noun[0]} {place[0]} {clause[0]} {predicate[0]}, "
            f"{join[0]} its {thing[0]} {fate[0]}",
            f"{article} {adjective[1]} {noun[1]} {place[1]}{clause[1].format(relative)} {predicate[1]}, "
            f"{join[1]} {pronoun} {thing[1]} {fate[1]}",
        )

    return distinct(count, sentence)


def pronoun_pairs(count: int = 8_000, *, seed: int = 2017) -> Iterator[Pair]:
    """Return Korean sentences and their translations: "작은 왕은 많은 것을 잃었지만 자신의 이름을 지킵니다"
    is "the small king lost many things, but protects his name"."""
    words, rng = grammar_words("pronouns"), np.random.default_rng(seed)

    def sentence() -> tuple[str, str]:
        pronoun = ("his", "her", "its")[int(rng.integers(3))]
        known = {**words, "noun": words["noun"][pronoun]}
        clause, place, adjective, noun, predicate, thing, fate = (
            sampled_sentence(known[name], rng) for name in KOREAN_SENTENCE
        )
        subject = f"the {adjective[1]} {noun[1]} {place[1]} {clause[1]}"
        return (
            f"{clause[0]} {place[0]} {adjective[0]} {noun[0]} {predicate[0]} 자신의 {thing[0]} {fate[0]}",
            f"{subject} {predicate[1]} {fate[1]} {pronoun} {thing[1]}",
        )

    return distinct(count, sentence)


# The texts that come with the package.
BUNDLED: dict[str, Callable[[], Iterator[Pair]]] = {
    NUMBERS: number_pairs,
    "grammar": grammar_pairs,
    "pronouns": pronoun_pairs,
}
