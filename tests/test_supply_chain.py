"""What is installed and published: locked versions with hashes, workflows that name what there is."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
BUILDS = {"torch", "torchvision"}  # constraints.txt pins the pair: each has builds with hashes of their own
TRACKED = {".ci", ".github", "benchmarks", "docs", "examples", "requirements", "src", "tests"}  # folders
MOST_BYTES = 1_000_000  # of a file
MOST_OF_THE_WEIGHTS = 12_000_000  # of weights that come with the package
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def asked_for(extras: list[str]) -> list[Requirement]:
    """The requirements of the package with these extras, and with those that they name."""
    found: list[Requirement] = []
    for text in [*PROJECT["dependencies"], *(each for extra in extras for each in EXTRAS[extra])]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            found += asked_for(sorted(requirement.extras))
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize(("name", "extras"), [("serve", ["serve", "data"]), ("dev", ["dev", "slow", "docs"])])
def test_the_lock_has_what_the_project_asks_for(name: str, extras: list[str]) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    versions: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==([^ \\]+)", text, re.MULTILINE):
        versions.setdefault(canonicalize_name(package), []).append(version)
    for requirement in asked_for(extras):
        if requirement.name in BUILDS:
            continue
        locked = versions.get(canonicalize_name(requirement.name), [])
        assert locked, f"{requirement} is not in requirements/{name}.txt: make lock"
        assert all(map(requirement.specifier.contains, locked)), f"{requirement} has {locked}: make lock"
    entries = re.split(r"\n(?=[\w.-]+==)", text)[1:]
    assert len(entries) == sum(map(len, versions.values()))
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_builds_of_pytorch_have_one_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert {line.partition("==")[0] for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)} == BUILDS


def test_what_workflows_install_is_pinned() -> None:
    """Also the tools of a step, which run beside a release's files and before they are attested."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        assert "pipx" not in text
        for line in re.findall(r"pip install.*", text):
            assert "--require-hashes" in line, f"{path.name}: {line}"
    for name, tool in (("sbom", "cyclonedx-bom"), ("pip", "pip")):
        tools = (ROOT / "requirements" / f"{name}.txt").read_text()
        entries = re.split(r"\n(?=[\w.-]+==)", tools)[1:]
        assert tool in {entry.partition("==")[0] for entry in entries}
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    _, _, locked = (ROOT / "Makefile").read_text().partition("\nlocked:\n")
    first, _, _ = locked.partition("torch")
    assert "--require-hashes -r requirements/pip.txt" in first
    assert "--upgrade" not in first


def test_workflows_call_what_there_is() -> None:
    targets = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {path.stem for path in workflows} == {"docs", "nightly", "release", "test"}
    for path in workflows:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"], f"{path.name}: what a token may do is said"
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"]
            for step in job["steps"]:
                for target in re.findall(r"\bmake ([\w./-]+)", step.get("run", "")):
                    assert target in targets, f"{path.name}: make {target}"
                for file in re.findall(r"(?:tests|requirements)/[\w./-]+", step.get("run", "")):
                    assert (ROOT / file).exists(), f"{path.name}: {file}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_nothing_that_a_command_wrote_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(name) for name in listed.stdout.split("\0") if name]
    assert len(paths) > 500
    assert {path.parts[0] for path in paths if len(path.parts) > 1} == TRACKED
    sizes = {str(path): (ROOT / path).stat().st_size for path in paths if (ROOT / path).is_file()}
    weights = [name for name in sizes if name.startswith("src/") and name.endswith(".safetensors")]
    most = dict.fromkeys(sizes, MOST_BYTES) | dict.fromkeys(weights, MOST_OF_THE_WEIGHTS)
    assert {name: size for name, size in sizes.items() if size > most[name]} == {}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_nothing_of_the_package_is_ignored() -> None:
    """What .gitignore names is not linted, and is not in the wheel."""
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = "\0".join(str(path.relative_to(ROOT)) for path in files)
    command = ["git", "check-ignore", "--no-index", "-z", "--stdin"]
    found = subprocess.run(command, cwd=ROOT, input=names, capture_output=True, text=True, check=False)
    assert len(files) > 200
    assert found.returncode == 1, found.stdout  # 1: it ignores none of them


def test_actions_are_pinned_by_digest() -> None:
    """A tag of an action can be moved to other code, which runs with the right to publish."""
    used = [
        (path.name, line.strip())
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*-?\s*uses:", line)
    ]
    assert used
    pinned = re.compile(r"(- )?uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")
    assert [each for each in used if not pinned.fullmatch(each[1])] == []
