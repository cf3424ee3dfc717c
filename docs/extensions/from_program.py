"""Parts of pages, generated from the program: commands, configurations, recipes, models, docstrings."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import vitreous
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.cli import COMMANDS, app
from vitreous.extensions import tasks
from vitreous.languages.terminal import meaning_of, summary_of
from vitreous.models.bit import BiTConfig
from vitreous.models.config_parts import Config
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.rules import find_recipe, recipe_names
from vitreous.training.config import RunConfig
from vitreous.training.options import ImageOptions

ZOO = (
    *("ViT-Ti/16", "ViT-S/16", "ViT-S/32", "ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14"),
    *("R26+ViT-S/32", "R50+ViT-B/16", "R50+ViT-L/32", "BiT-R50x1", "BiT-R101x3", "Seg-S-Mask/16"),
)
HEADS = {
    "en": {
        "commands": ("Option", "Value", "Default", "Meaning"),
        "fields": ("Field", "Type", "Default", "Meaning"),
        "zoo": ("Name", "Image", "Parameters (M)", "GMACs", "Weights in fp32 (MB)"),
        "parameters": ("Parameter", "Default", "Meaning"),
        "answer": ("Answer", "Type", "Meaning"),
        "refusals": ("Status", "Reason"),
        "formats": ("Format", "What it is", "Written as", "What you must specify"),
        "families": ("Family", "Format", "Read: difference", "Written: difference", "Written file opened by"),
        "task-options": ("Option of `train`", "yes", "no"),
        "task-configurations": (
            "Command",
            "Task",
            "Configuration",
            "Model",
            "Additional fields",
            "Missing fields",
        ),
    },
    "ko": {
        "commands": ("옵션", "값", "기본값", "설명"),
        "fields": ("필드", "타입", "기본값", "설명"),
        "zoo": ("이름", "이미지", "파라미터(백만)", "GMACs", "fp32 가중치(MB)"),
        "parameters": ("매개변수", "기본값", "설명"),
        "answer": ("응답", "타입", "설명"),
        "refusals": ("상태 코드", "이유"),
        "formats": ("형식", "내용", "저장하는 것", "직접 지정할 것"),
        "families": ("계열", "형식", "읽기: 차이", "쓰기: 차이", "쓴 파일을 연 코드"),
        "task-options": ("`train`의 옵션", "가능", "불가"),
        "task-configurations": ("명령", "태스크", "설정 클래스", "모델", "고유한 필드", "없는 필드"),
    },
}


class Generated(SphinxDirective):  # type: ignore[misc]
    """A directive whose tables have headings in the language of the page."""

    def heads(self, kind: str) -> tuple[str, ...]:
        return HEADS[self.config.language][kind]


class CommandReference(Generated):
    """A section for each command: its usage, a table of its options with an anchor each, its examples."""

    def run(self) -> list[nodes.Node]:
        return [self.of_command(name.split()) for name in COMMANDS]

    def of_command(self, call: list[str]) -> nodes.section:
        command = app
        for word in call:
            command = command[word]
        title, name, language = " ".join(("vitreous", *call)), " ".join(call), self.config.language
        parts: list[nodes.Node] = [paragraph(summary_of(name, COMMANDS[name].summary, language))]
        rows = []
        if command.default_command:
            for argument in command.assemble_argument_collection(parse_docstring=True):
                if argument.show:
                    anchor = nodes.make_id(f"{title} {argument.name}")
                    names = list(dict.fromkeys((*argument.names, *argument.negatives)))
                    default = argument.field_info.default
                    known = default not in (argument.field_info.empty, None, False, ())
                    rows.append(
                        [
                            nodes.paragraph("", "", *literals(names, anchor)),
                            paragraph(f"`{type_name(argument.hint).removesuffix(' | None')}`"),
                            paragraph(f"`{default}`" if known else ""),
                            paragraph(
                                meaning_of(name, argument.names, argument.parameter.help or "", language)
                            ),
                        ]
                    )
        if rows:
            parts.append(table(self.heads("commands"), rows))
        lines = "\n".join(COMMANDS[name].examples)
        parts.append(nodes.literal_block(lines, lines, language="sh"))
        return section(title, parts)


class ConfigReference(Generated):
    """Every field of every configuration, by the name that `--set` takes, with a table for each class."""

    def run(self) -> list[nodes.Node]:
        return [self.of_class(each) for each in configurations()]

    def of_class(self, kind: type[BaseModel]) -> nodes.section:
        parts = list(about_class(inspect.getdoc(kind) or ""))
        rows = []
        for name, field in kind.model_fields.items():
            anchor = nodes.make_id(f"{kind.__name__} {name}")
            rows.append(
                [
                    nodes.paragraph("", "", *literals([name], anchor)),
                    paragraph(f"`{type_name(field.annotation)}`"),
                    paragraph(f"`{shown(field)}`"),
                    paragraph(meaning(field)),
                ]
            )
        if rows:
            parts.append(table(self.heads("fields"), rows))
        return section(kind.__name__, parts)


def about_class(text: str) -> Iterator[nodes.Node]:
    """A docstring's paragraphs and its example; fields have a table of their own."""
    for block in text.split("\n\n"):
        if block.startswith("Example:\n"):
            code = textwrap.dedent(block.partition("\n")[2])
            yield nodes.literal_block(code, code, language="pycon")
        elif block.strip() and not block.startswith("Args:"):
            yield paragraph(block)


def meaning(field: FieldInfo) -> str:
    """What a field says of itself; or the first sentence of the configuration that it holds."""
    if field.description:
        return field.description
    kind = field.annotation
    about = (kind.__doc__ or "") if isinstance(kind, type) and issubclass(kind, BaseModel) else ""
    return re.split(r"(?<=[^.]\.)\s", " ".join(about.split()))[0]


def configurations() -> list[type[BaseModel]]:
    """Return every configuration that a run or a model can have, those of runs first."""
    found: dict[type[BaseModel], None] = {}

    def add(kind: type[BaseModel]) -> None:
        if kind in found:
            return
        found[kind] = None
        for field in kind.model_fields.values():
            for part in classes_in(field.annotation):
                add(part)

    for name in tasks():
        add(task_named(name).config)
    for kind in (BiTConfig, vitreous.Preprocessing, vitreous.SegmenterConfig, vitreous.TransformerConfig):
        add(kind)
    return list(found)


def classes_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, Config | BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from classes_in(part)


class TaskOptions(Generated):
    """The options of `train` that some tasks do not understand."""

    def run(self) -> list[nodes.Node]:
        option, yes, no = self.heads("task-options")
        trained = [task for task in map(task_named, tasks()) if task.config.command == "train"]
        known = {task.name: task.info.options.get("train", frozenset()) for task in trained}
        alike: dict[tuple[str, ...], list[str]] = {}  # options by what the tasks say
        for name in (*ImageOptions.__annotations__, "recipe", "batch_size auto"):
            cells = tuple(yes if name in known[task.name] else no for task in trained)
            alike.setdefault(cells, []).append(f"`--{name.replace('_', '-')}`")
        rows = [[", ".join(names), *cells] for cells, names in alike.items() if no in cells]
        heads = (option, *(f"`{task.name}`" for task in trained))
        return [table(heads, [list(map(paragraph, row)) for row in rows])]


class TaskConfigurations(Generated):
    """What the configuration of each task has and a classifier's has not, and the reverse."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for task in map(task_named, tasks()):
            fields, usual = task.config.model_fields, RunConfig.model_fields
            own = ", ".join(
                f"`{path}`" for name in fields if name not in usual for path in groups(name, fields)
            )
            without = ", ".join(f"`{name}`" for name in usual if name not in fields)
            model = f"`{type_name(fields['model'].annotation)}`"
            cells = (
                f"`vitreous {task.config.command}`",
                f"`{task.name}`",
                f"`{task.config.__name__}`",
                model,
                own,
                without,
            )
            rows.append(list(map(paragraph, cells)))
        return [table(self.heads("task-configurations"), rows)]


def groups(name: str, fields: Mapping[str, FieldInfo]) -> list[str]:
    """The path of a field; of one that holds nothing but configurations, theirs."""
    inner = getattr(fields[name].annotation, "model_fields", {})
    if inner and all(hasattr(each.annotation, "model_fields") for each in inner.values()):
        return [f"{name}.{part}" for part in inner]
    return [name]


class ModelZoo(Generated):
    """What the published sizes cost, as `vitreous describe` measures it."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for name in ZOO:
            found = vitreous.describe(name)
            size = found.stages[0].shape[-2:]
            cells = (
                f"`{name}`",
                f"{size[0]} x {size[1]}",
                f"{found.parameters / 1e6:.1f}",
                f"{found.macs / 1e9:.1f}",
                f"{4 * found.parameters / 1e6:.0f}",
            )
            rows.append([paragraph(cell) for cell in cells])
        return [table(self.heads("zoo"), rows)]


FOLDER = {"en": "a folder", "ko": "폴더"}


class CheckpointFormats(Generated):
    """Every format of checkpoints: what it is, how it is written, and what its files do not tell."""

    def run(self) -> list[nodes.Node]:
        rows = []
        for each in checkpoint_formats().values():
            folder = FOLDER[self.config.language]
            written = ", ".join(f"`{suffix}`" for suffix in each.suffixes) or folder
            asked = ", ".join(f"`{name}`" for name in dict.fromkeys((*each.unsaid, *each.bare_unsaid)))
            cells = (f"`{each.name}`", each.about, written if each.write else "–", asked or "–")
            rows.append([paragraph(cell) for cell in cells])
        return [table(self.heads("formats"), rows)]


class CheckpointFamilies(Generated):
    """Every family and format that is read, and how far each is from its own codebase."""

    def run(self) -> list[nodes.Node]:
        results = Path(__file__).parents[2] / "benchmarks" / "results" / "checkpoint_families.json"
        measured = json.loads(results.read_text("utf-8"))["families"]
        rows = []
        for family, formats in vitreous.list_families().items():
            for format, ways in formats.items():
                found = measured.get(family, {}).get(format, {})
                numbers = (found.get("in"), found.get("out"))
                shown = ("–" if value is None else f"{value:.0e}" if value else "0" for value in numbers)
                opened = found.get("by") or ("vitreous" if "out" in ways else "–")
                rows.append([paragraph(each) for each in (family, f"`{format}`", *shown, opened)])
        return [table(self.heads("families"), rows)]


class HttpReference(Generated):
    """A section for each address of a served classifier, from its OpenAPI description: parameters and the
    fields of the answer; and the statuses of refusals."""

    def run(self) -> list[nodes.Node]:
        described = openapi()
        operations = [
            (f"{method.upper()} {path}", operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
        ]
        refusals = next(each["responses"] for _, each in operations if "requestBody" in each)
        rows = [
            [paragraph(f"`{status}`"), paragraph(each["description"])]
            for status, each in refusals.items()
            if status != "200"
        ]
        sections = [self.of_operation(*each, described) for each in operations]
        return [*sections, table(self.heads("refusals"), rows)]

    def of_operation(self, title: str, operation: dict[str, Any], described: dict[str, Any]) -> nodes.section:
        parts: list[nodes.Node] = [paragraph(operation["summary"] + ".")]
        if "requestBody" in operation:
            kinds = ", ".join(f"`{kind}`" for kind in operation["requestBody"]["content"])
            parts.append(paragraph(kinds))
        if given := operation.get("parameters"):
            rows = [[f"`{each['name']}`", default_of(each["schema"]), each["description"]] for each in given]
            parts.append(table(self.heads("parameters"), [list(map(paragraph, row)) for row in rows]))
        content = operation["responses"]["200"].get("content", {}).get("application/json", {})
        if rows := list(answer_fields(described, content.get("schema", {}))):
            parts.append(table(self.heads("answer"), [list(map(paragraph, row)) for row in rows]))
        return section(title, parts)


def default_of(schema: dict[str, Any]) -> str:
    """A parameter's default, where it has one."""
    return "" if schema.get("default") is None else f"`{schema['default']}`"


def openapi() -> dict[str, Any]:
    """The OpenAPI description of a served classifier."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from vitreous.addons.serving.app import Loaded, Server, build_app
    from vitreous.addons.serving.limits import ServerLimits
    from vitreous.addons.serving.models import Classifier

    model = vitreous.create("ViT-Ti/16", num_classes=2, image_size=32)
    served = Classifier(model, torch.device("cpu"), precision="fp32", most_pixels=1)
    with ThreadPoolExecutor(1) as thread:
        server = Server(Loaded(served, {"name": "MODEL"}, ""), ServerLimits(), thread, thread)
        return build_app(server, hosts=None, token=None).openapi()


def answer_fields(described: dict[str, Any], part: dict[str, Any], name: str = "") -> Iterator[list[str]]:
    """The fields of a JSON answer, as a path, a type and a description; those of lists and objects below
    them."""
    if "$ref" in part:
        part = described["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    for each in part.get("anyOf", ()):
        if each.get("type") != "null":
            part = {**each, **part}
            break
    if name and "type" in part:
        yield [f"`{name}`", part["type"], part.get("description", "")]
    items = part.get("items")
    if isinstance(items, dict) and "$ref" in items:
        yield from list(answer_fields(described, items, name + "[]"))[1:]
    for key, inner in part.get("properties", {}).items():
        yield from answer_fields(described, inner, f"{name}.{key}".strip("."))


class Recipes(Generated):
    """A section for each recipe: the comment at the top of its file as prose, its command as a block."""

    def run(self) -> list[nodes.Node]:
        return [section(name, list(prose(find_recipe(name).text))) for name in recipe_names()]


def prose(text: str) -> Iterator[nodes.Node]:
    """A docstring's paragraphs, tables and indented blocks."""
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            code = "\n".join(line.strip() for line in lines)
            yield nodes.literal_block(code, code, language="sh" if code.startswith("vitreous") else "none")
        elif lines[0].startswith("|"):
            cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
            rows = [[paragraph(cell) for cell in row] for row in cells[1:] if set("".join(row)) - set("-: ")]
            yield table(tuple(cells[0]), rows)
        else:
            yield paragraph(block)


def type_name(hint: Any) -> str:
    """A type as a reader writes it: without modules, validators and typing's own words."""
    if get_args(hint) and getattr(hint, "__metadata__", None):
        return type_name(get_args(hint)[0])
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    text = re.sub(r"typing\.Annotated\[([\w.]+), [^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]", r"\1", text)
    text = re.sub(r"(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace("'", "").replace(", ", " | "), text)
    return (
        text.replace("Union[", "").replace("NoneType", "None").removesuffix("]") if "Union[" in text else text
    )


def shown(field: FieldInfo) -> str:
    """A field's default; of a part with fields of its own, its name."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return f"{type(value).__name__}()" if isinstance(value, BaseModel) else repr(value)


def paragraph(text: str) -> nodes.paragraph:
    """Plain text with `names`."""
    made = nodes.paragraph()
    for index, part in enumerate(re.split(r"`([^`]*)`", " ".join(text.split()))):
        if part:
            made += nodes.literal("", part) if index % 2 else nodes.Text(part)
    return made


def literals(names: list[str], anchor: str) -> list[nodes.Node]:
    """The names of an option or field, the first of them the target of `#anchor`."""
    made: list[nodes.Node] = []
    for name in names:
        if made:
            made.append(nodes.Text(" "))
        made.append(nodes.literal("", name, **({} if made else {"ids": [anchor]})))
    return made


def table(heads: tuple[str, ...], rows: list[list[nodes.Node]]) -> nodes.table:
    group = nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=1) for _ in heads]
    top, body = nodes.thead(), nodes.tbody()
    top += row([paragraph(head) for head in heads])
    body += [row(cells) for cells in rows]
    group += [top, body]
    return nodes.table("", group)


def row(cells: list[nodes.Node]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def section(title: str, parts: list[nodes.Node]) -> nodes.section:
    return nodes.section("", nodes.title("", title), *parts, ids=[nodes.make_id(title)], names=[title])


def docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """The project's docstrings are plain text with `names`: as reStructuredText, with blocks of code."""
    result: list[str] = []
    code = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        if line.strip() and not indented:
            code = False
        elif indented and number and not lines[number - 1].strip() and not code and not headed(lines, number):
            code = True
            result += ["::", ""]
        result.append(line if code else re.sub(r"`([^`]+)`", r"``\1``", line))
    lines[:] = result


def headed(lines: list[str], number: int) -> bool:
    """Whether an indented line belongs to a section such as `Args:`."""
    above = next(line for line in reversed(lines[:number]) if line.strip() and not line.startswith("    "))
    return above in ("Args:", "Raises:", "Returns:", "Attributes:")


def links(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Files of the repository have no place in the site: in what is included, their links become names."""
    content[0] = re.sub(r"\[(`?[^\]]+`?)\]\((?!https?:)[^)]*\)", r"\1", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-reference", CommandReference)
    app.add_directive("config-reference", ConfigReference)
    app.add_directive("task-options", TaskOptions)
    app.add_directive("task-configurations", TaskConfigurations)
    app.add_directive("model-zoo", ModelZoo)
    app.add_directive("checkpoint-families", CheckpointFamilies)
    app.add_directive("checkpoint-formats", CheckpointFormats)
    app.add_directive("recipes", Recipes)
    app.add_directive("http-reference", HttpReference)
    app.connect("autodoc-process-docstring", docstring, priority=400)
    app.connect("include-read", links)
    app.add_lexer("csv", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
