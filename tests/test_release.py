"""The release workflow, run dry: from a tag to the package, the site and the container."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WORKFLOWS = ROOT / ".github" / "workflows"
JOBS: dict[str, Any] = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]


BASH = ("bash", "-euo", "pipefail", "-c")
NOTES = "The release, with its section of the changelog"


def step(job: str, name: str) -> str:
    """The command of a step of the workflow."""
    (found,) = (each["run"] for each in JOBS[job]["steps"] if each.get("name") == name)
    return str(found)


def test_a_tag_is_released_if_it_is_the_version() -> None:
    """The step itself, with the tag in its environment."""
    command = step("build", "The tag is the version")
    for tag, right in ((f"v{VERSION}", True), ("v0.0.1", False), (VERSION.replace(".", "x"), False)):
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
        assert (done.returncode == 0) == right, tag


def test_the_changelog_has_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## {re.escape(VERSION)} - \d{{4}}", text, re.MULTILINE)


def test_a_pre_release_has_all_of_its_changes_in_its_section() -> None:
    """What comes after 1.0.0rc1 and before 1.0 is a change of 1.0: nothing waits under "Unreleased"."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    waiting = re.search(r"^## Unreleased\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    if Version(VERSION).is_prerelease:
        assert waiting is None or not waiting[1].strip()


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("1.0.0rc1", "--prerelease"),
        ("1.1.0a2", "--prerelease"),
        ("1.1.0b1", "--prerelease"),
        ("1.0.0", "--latest"),
    ],
)
def test_a_release_has_the_notes_of_its_version(version: str, kind: str, tmp_path: Path) -> None:
    """The step itself, with a `gh` that keeps what it was called with."""
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n\n- Later.\n\n"
        f"## {version} - 2026-12-01\n\n- What is new: [how](docs/en/start.md).\n\n"
        "### Training\n\n- Faster.\n\n## 0.1.0\n\nFirst version.\n"
    )
    (tmp_path / "gh").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > called\n')
    (tmp_path / "gh").chmod(0o755)
    assert write_notes(version, tmp_path) == 0
    called = (tmp_path / "called").read_text().splitlines()
    assert called[:3] == ["release", "create", f"v{version}"]
    assert {"--prerelease", "--latest"} & {*called} == {kind}
    assert called[called.index("--notes-file") + 1] == "notes.md"
    assert (tmp_path / "notes.md").read_text().strip() == (
        f"- What is new: [how](https://github.com/owner/vitreous/blob/v{version}/docs/en/start.md).\n\n"
        "### Training\n\n- Faster."
    )


def test_no_release_is_made_of_a_version_without_notes(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0\n\nFirst version.\n")
    assert write_notes("1.0.0", tmp_path) == 1


@pytest.mark.slow
def test_the_bill_of_materials_is_what_is_attested(tmp_path: Path) -> None:
    """The step itself. attest-sbom knows CycloneDX by the first three keys, and fails at any other file."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    command = step("build", "Software bill of materials")
    clean = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")
    }
    subprocess.run([*BASH, command], cwd=tmp_path, env=clean, check=True)
    bill = json.loads((tmp_path / "vitreous.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["specVersion"]
    assert bill["serialNumber"].startswith("urn:uuid:")
    assert bill["metadata"]["component"]["version"] == VERSION
    listed = {each["name"] for each in bill["components"]}
    assert {"torch", "fastapi", "pillow"} <= listed


def test_a_container_is_built_with_the_shipped_encoder_and_pushed(tmp_path: Path) -> None:
    """The step itself, with a `docker` that keeps what it was called with."""
    encoder = Path("src/vitreous/checkpoints/encoders/small")
    shutil.copytree(ROOT / encoder, tmp_path / encoder)
    docker = '#!/bin/sh\necho "$*" >> called\nif [ "$1" = login ]; then cat > /dev/null; fi\n'
    (tmp_path / "docker").write_text(docker)
    (tmp_path / "docker").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GITHUB_REF_NAME": f"v{VERSION}",
        "GITHUB_ACTOR": "owner",
        "GH_TOKEN": "secret",
        "IMAGE": "ghcr.io/Owner/vitreous",  # a registry has no capitals
    }
    command = step("container", "A server of the encoder that ships with the package")
    subprocess.run([*BASH, command], cwd=tmp_path, env=environment, check=True)
    image = f"ghcr.io/owner/vitreous:{VERSION}"
    assert (tmp_path / "called").read_text().splitlines() == [
        f"build -f examples/deploy/Dockerfile --build-arg RUN=model -t {image} .",
        "login ghcr.io -u owner --password-stdin",
        f"push {image}",
    ]
    assert (tmp_path / "model" / "config.json").is_file()


def write_notes(version: str, folder: Path) -> int:
    """Run the step of the workflow that releases with notes, and return its exit status."""
    script = step("notes", "The release, with its section of the changelog")
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "GITHUB_REF_NAME": f"v{version}",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "owner/vitreous",
    }
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment).returncode


def test_the_site_has_one_address() -> None:
    """The package index, the pages of `learn`, the site's own pages and the lessons link to the same one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.py")]
    texts += [path for kind in ("md", "ipynb") for path in (ROOT / "docs").rglob(f"*.{kind}")]
    found = {
        address
        for path in texts
        for address in re.findall(r"https://vitreous\.[\w.-]*\w", path.read_text("utf-8"))
    }
    assert found == {project["urls"]["Documentation"]}


def test_each_replacement_in_the_page_of_the_package_index_finds_its_place() -> None:
    """The wheel's page is README with these; where README is reworded, one would be lost unnoticed."""
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
    text = (ROOT / "README.md").read_text("utf-8")
    for each in hooks["fancy-pypi-readme"]["substitutions"]:
        text, count = re.subn(each["pattern"], each["replacement"], text)
        assert count, each["pattern"]
    assert "pip install 'vitreous[train,export]'" in text
    assert [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")] == []


def test_each_step_of_a_release_finds_what_it_reads() -> None:
    text = (WORKFLOWS / "release.yml").read_text()
    for path in (*re.findall(r"\b(?:examples|requirements|tests|src)/[\w./-]+", text), ".ci/run"):
        assert (ROOT / path).exists(), path
    order = {
        "publish": ["build"],
        "container": ["publish"],
        "site": ["publish"],
        "notes": ["publish", "site"],
    }
    for job, needs in order.items():
        given = JOBS[job]["needs"]
        assert ([given] if isinstance(given, str) else given) == needs
    uploaded = {
        each["with"]["name"]
        for job in JOBS.values()
        for each in job["steps"]
        if "name" in each.get("with", {})
    }
    assert {"dist", "sbom", "site"} <= uploaded


def test_what_a_release_installs_is_locked_and_from_one_index() -> None:
    """Two indexes at once let anybody who takes a name on the one replace a package of the other."""
    for path in WORKFLOWS.glob("*.yml"):
        text = path.read_text()
        assert "EXTRA_INDEX" not in text
        assert "--extra-index-url" not in text
        for job in yaml.safe_load(text)["jobs"].values():
            commands = [each.get("run", "") for each in job["steps"]]
            ours = [n for n, each in enumerate(commands) if re.search(r"\bmake |\.ci/run|\.venv/bin", each)]
            if ours:
                assert commands[ours[0]] == "make locked", f"{path.name}: {commands[ours[0]]}"
    build = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]["commands"]
    assert build[:2] == ["make locked", "make docs"]
    locked = re.search(r"^locked:\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert locked
    assert "--require-hashes" in locked[1]
    assert "--extra-index-url" not in locked[1]
