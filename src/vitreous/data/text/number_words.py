"""Whole numbers in words, by rule: a small translation job that is real, with an exact answer to each
question.

English counts by thousands, Korean by ten thousands (345,678 is 34 times 10,000 and 5,678), German says ones
before tens and writes all of it as one word: a translator must take a number apart and put it together anew.
"""

from __future__ import annotations

from collections.abc import Callable

LARGEST = 999_999

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
    """345678 -> "three hundred forty-five thousand six hundred seventy-eight"."""
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
    """345678 -> "dreihundertfünfundvierzigtausendsechshundertachtundsiebzig"."""
    words = german_part(number)
    return words + "s" if number % 100 == 1 else words  # a one that ends a number: eins


def german_part(number: int) -> str:
    """A number in front of something else, where one is "ein"."""
    if number >= 1000:
        return german_part(number // 1000) + "tausend" + (german_part(number % 1000) if number % 1000 else "")
    if number >= 100:
        return GERMAN[number // 100] + "hundert" + (german_part(number % 100) if number % 100 else "")
    if number >= 20:
        ones = f"{GERMAN[number % 10]}und" if number % 10 else ""
        return ones + GERMAN_TENS[number // 10]
    return GERMAN[number]


def korean(number: int) -> str:
    """345678 -> "삼십사만 오천육백칠십팔": groups of ten thousand; no "one" before ten, hundred, thousand."""
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
