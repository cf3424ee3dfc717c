"""Names, comments and messages use the field's standard terms, in American spelling.

Some words of earlier versions are still there. `ALLOWED` counts them for each top-level package. A count only
falls: when you replace words, lower the number.
"""

import re
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "vitreous"

# What not to write, and what to write.
REPLACED = {
    r"pictures?": "image",
    r"behind": "after",
    r"anew": "again",
    r"mend(s|ed|ing)?": "fix",
    r"whoever": "the user, the caller",
    r"(no|some|every)body": "none, the user",
    r"likeliest": "most probable",
    r"judged?": "evaluate",
    r"told": "given, specified",
    # "is no file" for "is not a file"; "there is no file" and "is no longer" are English
    r"(?<!there )(is|are) no(?= )(?! (longer|more|better|less|worse|larger|smaller|need|one)\b)": "is not a",
    r"\w*(colour|grey|behaviour|neighbour|favour)\w*": "color, gray, behavior",
    r"\w*(optim|normal|initial|regular|general|visual|recogn|summar|organ|quant)is[ei]\w*": "-ize",
    r"\w*(centre|licence|modelling|labelled|travelled)\w*": "center, license, modeling, labeled",
}
FORBIDDEN = re.compile(
    rf"(?<![^\W_])({'|'.join(f'(?:{each})' for each in REPLACED)})(?![^\W_])", re.IGNORECASE
)

ALLOWED: dict[str, int] = {"cli": 16, "data": 7, "evaluation": 12, "models": 9, "tasks": 23, "training": 14}


def found() -> dict[str, list[str]]:
    """Each top-level package's places, as "file:line: word"."""
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in FORBIDDEN.finditer(line):
                places.setdefault(name.parts[0], []).append(f"{name}:{number}: {match.group().strip()}")
    return places


def test_words_are_the_standard_terms() -> None:
    over = {name: places for name, places in found().items() if len(places) > ALLOWED.get(name, 0)}
    assert over == {}, f"write instead: {REPLACED}"


def test_the_words_are_found() -> None:
    sentences = ["a Picture", "is no file", "what the user was told", "grey_shade", "initialise(x)", "mended"]
    assert all(FORBIDDEN.search(each) for each in sentences)
    english = ["there is no file", "is no longer", "amend", "recommend", "progressive", "initialize"]
    assert not any(FORBIDDEN.search(each) for each in english)


if __name__ == "__main__":  # the table, and the most frequent words
    words = Counter(place.rsplit(": ", 1)[1].lower() for places in found().values() for place in places)
    print({name: len(places) for name, places in sorted(found().items())}, words.most_common(), sep="\n")
