"""The gate of printed numbers: which file each number of README, of the documentation and of the headers of
recipes comes from, and whether it is what stands there.

    python benchmarks/claims.py             # faults, and how many numbers hold
    python benchmarks/claims.py --commands  # what makes each file again

claims.toml names for each page the numbers that were measured, by the line on which they stand, and those
that were not (levels of intervals, settings, numbers of papers). A page that prints another number is
refused, and so is a number whose file lacks its date, machine, versions, commit, command or seeds, names a
commit that is not in the history (one that was rebased is lost: measure on a commit that stays), or that
stands on images which are learned and tested at once: the file has what `vitreous data check` says of them,
by the way to the numbers, and one that has not is named in claims.toml with the reason.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DECLARED = Path(__file__).with_name("claims.toml")
FACTS = ("date", "machine", "versions", "commit", "command", "seeds")
SHARES = ("%", "points", "%p", "포인트")  # a hundred times what files have
UNITS = (*SHARES, "times", "배", "ms", "images/s", "이미지/s", "GiB")
NUMBER = re.compile(r"(?<![\w.,/-])(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w.]*\d)(?:\s?(" + "|".join(UNITS) + r"))?")
NOT_READ = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|<[^>]*>|arXiv:? ?[\d.]+|\b\d{4}\.\d{4,5}\b", re.DOTALL)


class Claim(NamedTuple):
    """A number as it is printed, and where it is kept.

    page: of the repository; its Korean page has the number, too. line: words of the line that it stands on.
    number: with its unit. file: below results/. value: the way into the file: keys, places in lists,
    `key=value&...` for the one item of a list that has them, `*key=value&...` for the mean of those that have
    them, `*` for the mean of all.
    """

    page: str
    line: str
    number: str
    file: str
    value: str
    scale: float | None = None

    def __str__(self) -> str:
        return f"{self.page}, {self.number} ({self.line})"


def declared() -> dict[str, Any]:
    return tomllib.loads(DECLARED.read_text(encoding="utf-8"))


def claims_of(tables: Mapping[str, Any]) -> Iterator[Claim]:
    for each in tables["claims"]:
        for number, value in each["numbers"].items():
            yield Claim(each["page"], each["line"], number, each["file"], value, each.get("scale"))


@cache
def kept(file: str) -> Any:
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def found(tree: Any, way: list[str]) -> float:
    """The number at the end of a way. Raises LookupError: it leads nowhere."""
    if not way:
        return float(tree)
    here, rest = way[0], way[1:]
    if here == "*":
        return fmean(found(each, rest) for each in (tree.values() if isinstance(tree, dict) else tree))
    if isinstance(tree, dict):
        return found(tree[here], rest)
    if "=" not in here:
        return found(tree[int(here)], rest)
    wanted = dict(each.split("=") for each in here.lstrip("*").split("&"))
    rows = [each for each in tree if all(str(each.get(key)) == value for key, value in wanted.items())]
    if not rows or (len(rows) > 1 and not here.startswith("*")):
        raise LookupError(f"{len(rows)} items have {here}")
    return fmean(found(each, rest) for each in rows)


def digits(number: str) -> str:
    """A number without its sign, its unit and commas."""
    return re.sub(r"[^\d.]", "", number.split()[0])


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def korean(page: str) -> str | None:
    """The Korean page of an English one."""
    if page == "README.md":
        return "README.ko.md"
    return page.replace("docs/en/", "docs/ko/") if page.startswith("docs/en/") else None


def numbers_in(text: str) -> set[str]:
    return {digits(number) for number in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)}


def printed(text: str, strict: bool) -> set[str]:
    """The numbers of a page that look measured: with decimals and a unit; `strict`: with either."""
    read = NOT_READ.sub(" ", text)
    numbers = set()
    for number, unit in NUMBER.findall(read):
        if (unit or "." in number) if strict else (unit in SHARES and "." in number):
            numbers.add(digits(number))
    return numbers


def fault_of(claim: Claim, contaminated: Mapping[str, str]) -> str | None:
    """What is wrong with a claim."""
    for prefix, why in contaminated.items():
        if f"{claim.file}: {claim.value}".startswith(prefix):
            return f"{claim}: {why}"
    lines = [line for line in text_of(claim.page).splitlines() if claim.line in line]
    if not any(digits(claim.number) in numbers_in(line) for line in lines):
        return f"{claim}: the page has no such line"
    other = korean(claim.page)
    if other and digits(claim.number) not in numbers_in(text_of(other)):
        return f"{claim}: not in {other}"
    content = kept(claim.file)
    if lacking := [fact for fact in FACTS if not content.get(fact)]:
        return f"{claim}: {claim.file} lacks {', '.join(lacking)}"
    try:
        value = found(content, claim.value.split("/"))
    except (LookupError, ValueError, TypeError) as error:
        return f"{claim}: {claim.file} has no {claim.value} ({error!r})"
    scale = claim.scale or (100 if claim.number.endswith(SHARES) else 1)
    decimals = len(digits(claim.number).partition(".")[2])
    exact = Decimal(f"{abs(value) * scale:.9f}")
    if str(exact.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)) != digits(claim.number):
        return f"{claim}: {claim.file} has {value * scale:.{decimals + 2}f}"
    return None


def fault_of_images(claim: Claim, unchecked: Mapping[str, str]) -> str | None:
    """What `vitreous data check` found wrong with the images of a claim, or that it was not asked."""
    checked = kept(claim.file).get("data_check", {})
    of_claim = [found for way, found in checked.items() if f"{claim.value}/".startswith(f"{way}/")]
    if errors := [error for found in of_claim for error in found["error"]]:
        return f"{claim}: data check of {claim.file}: {errors[0]}"
    if not of_claim and not excused(claim, unchecked):
        return f"{claim}: {claim.file} has no data check of {claim.value}, and claims.toml no reason"
    return None


def excused(claim: Claim, unchecked: Mapping[str, str]) -> list[str]:
    """The entries of `unchecked` that a claim falls under."""
    return [prefix for prefix in unchecked if f"{claim.file}: {claim.value}".startswith(prefix)]


def history() -> set[str] | None:
    """Return the commits that the one that is checked out stands on; None outside a whole clone."""
    answers = []
    for words in (("rev-parse", "--show-toplevel", "--is-shallow-repository"), ("rev-list", "HEAD")):
        try:
            done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        except OSError:
            # Git is not installed, as where an archive of the source is tested.
            return None
        if done.returncode:
            return None
        answers.append(done.stdout.split("\n"))
    (top, shallow, *_), commits = answers
    return None if shallow == "true" or Path(top) != ROOT.resolve() else set(commits)


def lost_commits() -> Iterator[str]:
    """Yield the files whose commit cannot be looked at."""
    if (commits := history()) is None:
        return
    for path in sorted(RESULTS.rglob("*.json")):
        name = str(path.relative_to(RESULTS))
        content = kept(name)
        commit = content.get("commit") if isinstance(content, dict) else None
        if commit and str(commit).rstrip("+") not in commits:
            yield f"{name}: its commit {commit[:8]} is not in the history"


def faults() -> list[str]:
    """Return what the gate refuses."""
    tables = declared()
    claims = list(claims_of(tables))
    wrong = [fault for each in claims if (fault := fault_of(each, tables["contaminated"]))]
    unchecked = tables["unchecked"]
    wrong += [fault for each in claims if (fault := fault_of_images(each, unchecked))]
    used = {prefix for each in claims for prefix in excused(each, unchecked)}
    wrong += [f"unchecked: no number stands on {prefix}" for prefix in unchecked if prefix not in used]
    pages = [
        "README.md",
        "CHANGELOG.md",
        *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs" / "en").rglob("*.md"))),
    ]
    recipes = ROOT / "src" / "vitreous" / "training" / "recipes"
    pages += [str(path.relative_to(ROOT)) for path in sorted(recipes.glob("*.toml"))]
    for page in pages:
        of_page = {digits(each.number) for each in claims if each.page == page}
        given = tables["given"].get(page, [])
        if given == "papers":
            continue
        given = {digits(each) for each in given}
        known, strict = of_page | given, bool(of_page)
        for name in filter(None, (page, korean(page))):
            text = text_of(name)
            if name == "CHANGELOG.md":  # of the versions whose numbers were kept
                text = text.partition("\n## 0.1.0")[0]
            if name.endswith(".toml"):  # its header alone
                text = "\n".join(line[1:] for line in text.splitlines() if line.startswith("#"))
            for number in sorted(printed(text, strict) - known):
                wrong.append(f"{name}, {number}: neither measured by a file nor given (claims.toml)")
        if unused := given - numbers_in(text_of(page)):
            wrong.append(f"{page}: given and not printed: {', '.join(sorted(unused))}")
    for file in sorted(RESULTS.glob("studies/*/results.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        if lacking := [fact for fact in FACTS if not content.get(fact)]:
            wrong.append(f"studies/{file.parent.name} lacks {', '.join(lacking)}")
    return wrong + list(lost_commits())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commands", action="store_true", help="what makes each file again")
    claims = list(claims_of(declared()))
    if parser.parse_args().commands:
        for file in sorted({each.file for each in claims}):
            print(f"{file:36} {kept(file)['command']}")
        return
    wrong = faults()
    print(*wrong, f"{len(claims)} numbers, {len(wrong)} faults", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
