"""What is not as it was in version 0.1 stands in the changelog, and what to write instead exists; the names
of the settings are those of a kept list, which `python tests/stability/test_changes.py` writes again.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from vitreous.extensions import tasks
from vitreous.models.settings import parse_value, set_leaf
from vitreous.tasks import task_named
from vitreous.training.config import RunConfig
from vitreous.training.settings import configure

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).parent / "0.1" / "settings.txt"  # of a training on images, as 0.1 had them
KEPT = Path(__file__).with_name("settings.txt")


def classes_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from classes_in(part)


def settings_of(config: type[BaseModel], group: str = "") -> Iterator[str]:
    for name, field in config.model_fields.items():
        yield group + name
        for part in classes_in(field.annotation):
            yield from settings_of(part, f"{group}{name}.")


def listing() -> list[str]:
    """Each setting of a configuration file, and the tasks that have it."""
    of_tasks = {name: set(settings_of(task_named(name).config)) for name in tasks()}
    found = []
    for setting in sorted(set().union(*of_tasks.values())):
        lacking = [task for task, settings in of_tasks.items() if setting not in settings]
        having = [task for task in of_tasks if task not in lacking]
        of_most = f"all but {', '.join(lacking)}" if lacking else "all"
        found.append(f"{setting}: {of_most if len(lacking) < len(having) else ', '.join(having)}")
    return found


def test_settings_are_those_that_were_declared() -> None:
    kept = KEPT.read_text(encoding="utf-8").splitlines()
    assert listing() == kept, "-> run `python tests/stability/test_changes.py` if the change is meant"


def table() -> tuple[str, str]:
    """The two columns of the tables of "What breaks, and what to write instead"."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| 0\.1 \| 1\.0 \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [row.strip("| ").split(" | ") for table in tables for row in table.splitlines()]
    return "\n".join(old for old, _ in cells), "\n".join(new for _, new in cells)


def test_each_setting_of_the_first_version_is_one_or_is_in_the_table_of_changes() -> None:
    now, (old, _) = set(settings_of(RunConfig)), table()
    gone = [name for name in SETTINGS.read_text(encoding="utf-8").split() if name not in now]
    groups = {name for name in gone if any(other.startswith(f"{name}.") for other in gone)}
    inside = {name for name in gone if any(name.startswith(f"{group}.") for group in groups)}
    assert [name for name in gone if name not in inside and f"`{name}" not in old] == []


def test_what_the_table_of_changes_says_to_write_exists() -> None:
    now, (_, new) = set(settings_of(RunConfig)), table()
    named = re.findall(r"`((?:training|data|model|augmentation|evaluation|preprocessing)\.[\w.]+)", new)
    assert len(named) > 20
    assert [name for name in named if name not in now] == []


def test_each_value_that_the_table_of_changes_writes_is_understood() -> None:
    """As `--set` takes it; a value after "or" belongs to the name before it."""
    written = re.findall(r"`([a-z]+\.[\w.]+)=([^`]+)`((?:(?:,| or) `[^`=.]+`)*)", table()[1])
    assert len(written) > 15
    for name, value, others in written:
        for each in (value, *re.findall(r"`([^`]+)`", others)):
            tree: dict[str, object] = {}
            set_leaf(tree, name, parse_value(each))
            configure(RunConfig(), tree)


if __name__ == "__main__":
    KEPT.write_text("\n".join(listing()) + "\n", encoding="utf-8")
