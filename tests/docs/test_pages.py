"""The documentation holds: what is printed runs as printed, files exist, both languages agree."""

from __future__ import annotations

import ast
import importlib.util
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

import vitreous
from environments import environment, extras_in, packages_in
from vitreous.cli import COMMANDS, app
from vitreous.extensions import ADDONS, tasks
from vitreous.tasks import task_named

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    str(path.relative_to(DOCS / "en").with_suffix(""))
    for ending in ("md", "ipynb")
    for path in (DOCS / "en").rglob(f"*.{ending}")
)
LESSONS = [page for page in PAGES if (DOCS / "en" / f"{page}.ipynb").exists()]
TEXTS = [page for page in PAGES if page not in LESSONS]
LANGUAGES = ("en", "ko")
README = "the README"
# A block after such a line is not run, for the reason given; everything else is.
NOT_RUN = re.compile(
    r"^(?:%|<!--) not run: ([\w\- ]+?)(?: -->)?\n+```(?:sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
REASONS = {
    "installs packages",
    "needs the network",
    "needs several machines",
    "needs a GPU",
    "needs Docker",
    "runs until Ctrl-C",
}

# Texts in the code of lessons that both languages have: an English sentence that is an example.
UNTRANSLATED = {
    "the small king that all people know lost many things, but protects",
    " his name",
    "making the registration or voting process more difficult",
}


@cache
def text_of(page: str, language: str = "en") -> str:
    path = DOCS / language / page
    if page == README:
        return (DOCS.parent / ("README.md" if language == "en" else "README.ko.md")).read_text(
            encoding="utf-8"
        )
    if (notebook := path.with_suffix(".ipynb")).exists():
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return path.with_suffix(".md").read_text(encoding="utf-8")


def blocks(page: str, language: str = "en", *, all_of_them: bool = True) -> list[tuple[str, str]]:
    text = text_of(page, language) if all_of_them else NOT_RUN.sub("", text_of(page, language))
    return re.findall(r"^```(sh|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    lines = (line for kind, text in blocks(page) if kind == "sh" for line in text.splitlines())
    return [line for line in lines if line.strip()]


def test_both_languages_have_the_same_pages() -> None:
    korean = {
        str(path.relative_to(DOCS / "ko").with_suffix(""))
        for ending in ("md", "ipynb")
        for path in (DOCS / "ko").rglob(f"*.{ending}")
    }
    assert korean == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_print_the_same_commands_and_programs(page: str) -> None:
    """Comments may be translated; what runs may not differ."""

    def code(language: str) -> list[str]:
        return [re.sub(r"\s*(?<!\S)#.*", "", text) for _, text in blocks(page, language)]

    assert code("ko") == code("en")


@pytest.mark.parametrize("page", PAGES)
def test_korean_pages_are_korean(page: str) -> None:
    """More Hangul than Latin letters, outside code, names and tables that are generated."""
    names = r"```.*?```|`[^`]*`|\${1,2}[^$]+\${1,2}|\([^()]*\)|<[^>]*>|https?:\S+"
    text = re.sub(names, "", text_of(page, "ko"), flags=re.DOTALL)
    hangul, latin = len(re.findall(r"[가-힣]", text)), len(re.findall(r"[A-Za-z]", text))
    assert hangul > latin, f"{hangul} syllables, {latin} letters"


# Three English words in a row, which no part of a name, a path or a number is.
ENGLISH = re.compile(r"(?<![\w./:'-])[A-Za-z]{2,}(?:,? +[A-Za-z]{2,}){2,}(?![\w./'-])")
# Lines that are code or commands, and what others say: PyTorch, Pillow, a translation into English, and the
# errors and warnings of the Python API, which are English.
NOT_TRANSLATED = re.compile(
    r"^\s*(?:vitreous|import|from|for|def) |\.mapInPandas\(|All keys matched successfully"
    r"|it is truncated: the file ends too early|the small king that all people know"
    r"|a state dict does not store|does not say, so it is assumed"
)


def english_lines(text: str) -> list[str]:
    """Return the lines with three English words in a row and no Hangul."""
    lines = [line for line in text.splitlines() if not re.search("[가-힣]", line)]
    return [line for line in lines if ENGLISH.search(line) and not NOT_TRANSLATED.search(line)]


@pytest.mark.parametrize("page", [README, *PAGES])
def test_what_is_printed_on_korean_pages_is_korean(page: str) -> None:
    """A Korean reader's terminal prints Korean: outputs are kept for each language."""
    printed = re.findall(r"^```text\n(.*?)^```", text_of(page, "ko"), re.DOTALL | re.MULTILINE)
    if page in LESSONS:
        lessons = lessons_module()
        printed += [lessons.printed(cell) for cell in lessons.code_cells(notebook_of(page, "ko"))]
    assert not [line for output in printed for line in english_lines(output)]


def test_an_english_line_is_found() -> None:
    found = ["query, key, value, each      (3, 5, 4)", "* onnx int8, 3 tokens merged at a time 82.22%"]
    assert english_lines("\n".join(found)) == found
    assert not english_lines(
        "stem.projection.weight\n에폭 3, one two three\nvitreous train a b c\nViT-B/16 ok"
    )


@pytest.mark.parametrize("page", [README, *PAGES])
def test_commands_exist_with_their_options(page: str) -> None:
    """Every option that a page names, in a block or in a sentence, is one of the command's help."""
    named = [line for line in commands(page) if line.startswith("vitreous ")]
    named += re.findall(r"`(vitreous [^`]*)`", " ".join(text_of(page).split()))
    for call in named:
        words = shlex.split(call.partition(" | ")[0].partition(" > ")[0], comments=True)
        if len(words) < 2 or words[1] == "COMMAND" or words[1].startswith("-"):
            continue
        assert words[1] in {name.split()[0] for name in COMMANDS}, call
        path = words[1:3] if words[1] == "data" or words[1:3] == ["translate", "train"] else words[1:2]
        if path[0] == "data" and len(path) > 1:
            assert " ".join(path) in COMMANDS, call
        for option in (
            word.partition("=")[0] for word in words if word.startswith("--") and word != "--help"
        ):
            assert option in help_of(tuple(path)), f"{page}: {call}"


@cache
def help_of(path: tuple[str, ...]) -> str:
    with (console := Console(width=200, force_terminal=False)).capture() as captured:
        app.help_print(list(path), console=console)
    return captured.get()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_points_to_exist(page: str, language: str) -> None:
    text = text_of(page, language)
    pointed = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text) + re.findall(r"<(\.\./[^>]+)>", text)
    pointed += re.findall(r"^```\{(?:literalinclude|include)\} (\S+)", text, re.MULTILINE)
    folder = (DOCS / language / page).parent
    assert not [path for path in pointed if not (folder / path).exists()]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_anchors_and_contents_of_a_page_exist(page: str, language: str) -> None:
    """What is after a # is a heading of the page before it; what a toctree lists is a page."""
    text, path = text_of(page, language), DOCS / language / page
    lost = []
    for target, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)#([^)\s]+)\)", text):
        other = (path.parent / target).resolve().relative_to(DOCS / language) if target else Path(page)
        if other.suffix != ".html" and anchor not in headings(str(other.with_suffix("")), language):
            lost.append(f"{target}#{anchor}")
    for listed in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        names = [line for line in listed.split() if not line.startswith(":") and not line.isdecimal()]
        lost += [name for name in names if not list(path.parent.glob(f"{name}.*"))]
    assert not lost


def headings(page: str, language: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", text_of(page, language), flags=re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_settings_that_a_page_names_exist(page: str, language: str) -> None:
    text, configs = text_of(page, language), [task_named(name).config for name in tasks()]
    names = {name for config in configs for name in config.model_fields}
    written = r"((?:%s)(?:\.[a-z_0-9]+)+)"
    named = set(re.findall(rf"--set ['\"]?{written % '|'.join(names)}=", text))
    names &= {"data", "training", "augmentation", "evaluation", "regression", "pretraining"}  # no attributes
    named |= set(re.findall(rf"`{written % '|'.join(names)}[`=]", text))
    assert not [name for name in named if not is_setting(configs, name.split("."))]


def is_setting(configs: list[Any], path: list[str]) -> bool:
    """Whether one of the configurations has the field, in any of the kinds that a part of it can be."""
    fields = [config.model_fields[path[0]] for config in configs if path[0] in config.model_fields]
    inner = [part for each in fields for part in configurations_in(each.annotation)]
    return bool(fields) and (len(path) == 1 or is_setting(inner, path[1:]))


def configurations_in(annotation: Any) -> list[Any]:
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [found for part in get_args(annotation) for found in configurations_in(part)]


@pytest.mark.parametrize("page", [README, *PAGES])
def test_what_is_not_run_has_a_known_reason(page: str) -> None:
    for reason, _ in NOT_RUN.findall(text_of(page)):
        assert reason in REASONS, f"{page}: {reason!r}"


@pytest.mark.parametrize("lesson", LESSONS)
def test_lessons_are_stored_with_outputs_and_the_same_code(lesson: str) -> None:
    """Texts are in the lesson's language; the numbers that are printed are the same."""
    lessons = lessons_module()
    english, korean = (lessons.read(DOCS / language / f"{lesson}.ipynb") for language in LANGUAGES)
    assert lessons.same_code(english, korean)
    for one, other in zip(lessons.code_cells(english), lessons.code_cells(korean), strict=True):
        numbers = [sorted(re.findall(r"\d+(?:[.,]\d+)*", lessons.printed(cell))) for cell in (one, other)]
        assert numbers[0] == numbers[1], "".join(one["source"])
    assert any(lessons.printed(cell) for cell in lessons.code_cells(english))


@pytest.mark.parametrize("lesson", LESSONS)
def test_lessons_show_the_same_figures_in_both_languages(lesson: str) -> None:
    def kinds(language: str) -> list[list[str]]:
        cells = lessons_module().code_cells(notebook_of(lesson, language))
        data = [[each.get("data", {}) for each in cell["outputs"]] for cell in cells]
        return [sorted(kind for each in one for kind in each if kind.startswith("image/")) for one in data]

    assert kinds("en") == kinds("ko")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_cell_of_a_lesson_that_draws_is_stored_with_its_figure(lesson: str, language: str) -> None:
    """Two lessons had none in either language, since they were run where matplotlib draws to files."""
    for cell in lessons_module().code_cells(notebook_of(lesson, language)):
        if re.search(r"plt\.(subplots|figure|show)\(", source := "".join(cell["source"])):
            kinds = [kind for output in cell["outputs"] for kind in output.get("data", {})]
            assert any(kind.startswith("image/") for kind in kinds), source


def test_a_changed_program_is_not_taken_for_a_translation() -> None:
    lessons = lessons_module()

    def notebook(source: str) -> dict[str, Any]:
        return {"cells": [{"cell_type": "code", "metadata": {}, "source": source}]}

    one = notebook('print(f"loss {x:.1f}", kind="mean")  # of all')
    assert lessons.same_code(one, notebook('print(f"{x:.1f} 손실", kind="mean")  # 모두'))
    assert not lessons.same_code(one, notebook('print(f"{y:.1f} 손실", kind="mean")'))
    assert not lessons.same_code(one, notebook('print(f"{x:.2f} 손실", kind="mean")'))
    assert not lessons.same_code(one, notebook('print(f"{x:.1f} 손실", kind="sum")'))
    assert not lessons.same_code(one, {"cells": []})


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_opens_outside_the_site(lesson: str, language: str) -> None:
    """Jupyter and Colab know plain Markdown, have no files beside the notebook, and may lack vitreous."""
    notebook = lessons_module().read(DOCS / language / f"{lesson}.ipynb")
    markdown = ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "markdown"]
    assert not [text for text in markdown if re.search(r"^:::|^```\{|^%|!\[|<img", text, re.MULTILINE)]
    first = next("".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code")
    assert '%pip install -q "vitreous[' in first  # the released package
    assert any(
        re.search(r"<details>\n<summary>\w+</summary>\n\n[\s\S]+?\n\n</details>", text) for text in markdown
    ), "no exercise with its answer folded"


# Words that a reader who knows Python alone may not know, in the order of the lessons, English and Korean.
TERMS = {
    "vector": "벡터",
    "tensor": "텐서",
    "shape": "shape",
    "class": "클래스",
    "label": "레이블",
    "dot product": "내적",
    "matrix product": "행렬 곱",
    "weights": "가중치",
    "bias": "편향",
    "parameters": "파라미터",
    "linear layer": "선형 층",
    "logits": "로짓",
    "softmax": "소프트맥스",
    "loss": "손실",
    "cross-entropy": "교차 엔트로피",
    "derivative": "미분값",
    "gradient": "기울기",
    "backpropagation": "역전파",
    "gradient descent": "경사 하강법",
    "learning rate": "학습률",
    "warm-up": "워밍업",
    "schedule": "스케줄",
    "test set": "테스트 세트",
    "accuracy": "정확도",
    "activation": "활성화 함수",
    "hidden": "은닉",
    "MLP": "MLP",
    "optimizer": "옵티마이저",
    "weight decay": "가중치 감쇠",
    "overfitting": "과적합",
    "regularization": "규제",
    "data augmentation": "데이터 증강",
    "dropout": "드롭아웃",
    "batch": "배치",
    "epoch": "에폭",
    "validation set": "검증 세트",
    "inference": "추론",
    "feature": "특징",
    "representation": "표현",
    "pre-training": "사전 학습",
    "fine-tuning": "미세 조정",
    "patches": "패치",
    "self-attention": "셀프 어텐션",
    "head": "헤드",
    "channel": "채널",
    "convolution": "합성곱",
    "kernel": "커널",
    "stride": "스트라이드",
    "raster order": "래스터 순서",
    "embedding dimension": "임베딩 차원",
    "filter": "필터",
    "normalization": "정규화",
    "LayerNorm": "LayerNorm",
    "stem": "스템",
    "class token": "클래스 토큰",
    "position embedding": "위치 임베딩",
    "BatchNorm": "BatchNorm",
    "ResNet": "ResNet",
    "hybrid": "하이브리드",
    "transfer": "전이",
    "stochastic depth": "확률적 깊이",
    "query": "쿼리",
    "recurrent": "순환",
    "residual stream": "잔차 스트림",
    "pre-norm": "pre-norm",
    "post-norm": "post-norm",
    "LayerScale": "LayerScale",
    "encoder": "인코더",
    "inductive bias": "귀납적 편향",
    "locality": "지역성",
    "translation equivariance": "이동 등변성",
    "semi-supervised": "준지도 학습",
    "decoder": "디코더",
    "cross-attention": "크로스 어텐션",
    "RNN": "RNN",
    "LSTM": "LSTM",
    "GRU": "GRU",
    "gates": "게이트",
    "label smoothing": "레이블 스무딩",
    "beam search": "빔 서치",
    "self-supervision": "자기 지도 학습",
    "mask token": "마스크 토큰",
    "contrastive": "대조 학습",
    "few-shot": "퓨샷",
    "rollout": "롤아웃",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_term_is_explained_where_it_first_stands(language: str) -> None:
    """A lesson sets a term in bold or italics where it says what it means. No earlier paragraph has the term,
    apart from headings, code and formulas."""
    paragraphs = [
        (lesson, " ".join(paragraph.split()))
        for lesson in LESSONS
        for paragraph in re.split(r"\n\s*\n", text_of(lesson, language))
        if not paragraph.lstrip().startswith(("#", "```", "$$"))
    ]
    for english, korean in TERMS.items():
        term = re.escape(english if language == "en" else korean)
        # A Korean word may go on with a particle; no other word begins before the term.
        whole = rf"(?<![\w-]){term}(?:e?s)?(?!\w)" if language == "en" else rf"(?<![가-힣A-Za-z-]){term}"
        for lesson, paragraph in paragraphs:
            plain = re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", "", paragraph)
            if re.search(whole, plain, re.IGNORECASE):
                explained = re.search(rf"\*[^*]*{term}[^*]*\*", paragraph, re.IGNORECASE)
                assert explained, f"{lesson}: {english}: {paragraph[:120]}"
                break
        else:
            raise AssertionError(f"no lesson has {english}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_lessons_lead_into_the_live_page_at_their_tensor(language: str) -> None:
    """Lessons 1 to 8 and 11; the address names a panel that the page has, or a state."""
    panels = Path(vitreous.__file__).parent / "addons" / "learn_page" / "panels.js"
    known = set(re.findall(r'^    id: "(\w+)"', panels.read_text("utf-8"), re.MULTILINE))
    page = f"https://vitreous.readthedocs.io/{language}/vit-in-the-browser.html#"
    for lesson in LESSONS:
        linked = re.findall(re.escape(page) + r"([^)\s]+)\)", text_of(lesson, language))
        assert linked or lesson.split("/")[1][:2] in ("00", "09", "10"), lesson
        for address in linked:
            assert address in known or re.fullmatch(r"(s|d|t|x|r|how|train)=\d(&(s|d|t|x|r)=\d)*", address)


@pytest.mark.parametrize("lesson", LESSONS)
def test_what_a_korean_lesson_prints_and_draws_is_korean(lesson: str) -> None:
    """No sentence of the code, in a text or in a comment, is the English one."""
    english, korean = (sentences(notebook_of(lesson, language)) for language in LANGUAGES)
    assert not (english & korean) - UNTRANSLATED


def sentences(notebook: dict[str, Any]) -> set[str]:
    """Return the comments and texts in the code of a lesson that have two English words in a row."""
    found = set()
    for cell in lessons_module().code_cells(notebook):
        for token in tokenize.generate_tokens(io.StringIO("".join(cell["source"])).readline):
            words = re.sub(r"\{[^}]*\}", "", token.string).strip('f"')
            said = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and "\n" not in words)
            if said and re.search(r"[a-z]{3,}  ?[a-z]{2,}", words):
                found.add(words)
    return found


def notebook_of(lesson: str, language: str = "en") -> dict[str, Any]:
    notebook: dict[str, Any] = lessons_module().read(DOCS / language / f"{lesson}.ipynb")
    return notebook


def lessons_module() -> Any:
    spec = importlib.util.spec_from_file_location("lessons", DOCS / "lessons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("lesson", LESSONS)
def test_no_lesson_prints_an_error_of_rounding(lesson: str, language: str) -> None:
    """Each processor has another: 3.6e-07 on one is 4.8e-07 on the next."""
    lessons = lessons_module()
    for cell in lessons.code_cells(notebook_of(lesson, language)):
        assert not re.search(r"\d\.\d+e-(?:0[6-9]|1\d)", lessons.printed(cell)), "".join(cell["source"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_lessons_show_the_drawings_of_today(language: str) -> None:
    found = 0
    for lesson in LESSONS:
        for cell in lessons_module().code_cells(notebook_of(lesson, language)):
            if "vt.draw(" not in (source := "".join(cell["source"])):
                continue
            program = ast.parse(source)
            call = program.body.pop()
            assert isinstance(call, ast.Expr)
            names: dict[str, Any] = {}
            exec(compile(program, lesson, "exec"), names)
            drawing = eval(compile(ast.Expression(call.value), lesson, "eval"), names)
            (output,) = cell["outputs"]
            assert "".join(output["data"]["text/html"]) == drawing._repr_html_(), lesson
            found += 1
    assert found == 9, "lessons 1 to 9"


@pytest.mark.slow
def test_the_60_lines_of_lesson_7_take_the_weights_of_vit_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    """The block for readers who install vit-pytorch prints the difference that the lesson says: 0.0."""
    pytest.importorskip("vit_pytorch", reason="vit-pytorch: make test-slow installs it")
    lesson = "learn/07-whole-model"
    sources = ["".join(each["source"]) for each in lessons_module().code_cells(notebook_of(lesson))]
    last = next(number for number, source in enumerate(sources) if "small.load_state_dict" in source)
    ((_, block),) = blocks(lesson)
    names: dict[str, Any] = {}
    for source in (*sources[: last + 1], block):
        exec(source, names)
    assert capsys.readouterr().out.splitlines()[-1] == "0.0"
    assert "`0.0`" in text_of(lesson)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_column_of_a_table_has_a_name(language: str) -> None:
    """A screen reader reads it with each cell."""
    for page in TEXTS:
        lines = text_of(page, language).splitlines()
        for head, rule in itertools.pairwise(lines):
            if re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", rule):
                assert all(cell.strip() for cell in head.strip().strip("|").split("|")), f"{page}: {head}"


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", r"(\d+) formats; (\d+) more are read-only"),
        ("ko", r"(\d+)가지 형식 읽기·쓰기, (\d+)가지는 읽기만"),
    ],
)
def test_the_readme_counts_the_formats(language: str, said: str) -> None:
    """Those of other codebases."""
    formats = {name: about for name, about in vitreous.list_formats().items() if name != "vitreous"}
    read = sum(about.endswith("(only read)") for about in formats.values())
    counted = re.findall(said, text_of(README, language))
    assert counted == [(str(len(formats) - read), str(read))], "-> edit README.md and README.ko.md"


# What never ends by itself, unless it goes on in the background.
ENDLESS = re.compile(r"^(?:vitreous serve|python -m http\.server|tensorboard)\b[^&]*$", re.MULTILINE)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_block_that_is_run_waits_for_ever(language: str) -> None:
    for page in [README, *TEXTS]:
        for kind, text in blocks(page, language, all_of_them=False):
            assert kind != "sh" or not ENDLESS.search(text), f"{page}:\n{text}"


@pytest.fixture(scope="module")
def world(folder: Path) -> Path:
    """What the pages take for granted: photos/ with two classes, and runs/photos, trained on it."""
    train = [sys.executable, "-m", "vitreous", "train", "photos/", "--out", "runs/photos", "--epochs", "2"]
    subprocess.run(train, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", [README, *(page for page in TEXTS if blocks(page, all_of_them=False))])
def test_commands_and_programs_run_as_printed(page: str, world: Path, tmp_path: Path) -> None:
    """Each page on its own, in a folder with photos/ and runs/photos; its blocks one after the other. Their
    environment has the extra `train`, as the first page says, and what the page says to install."""
    here = tmp_path / "here"
    shutil.copytree(world, here)
    text = text_of(page)
    python = environment(tmp_path / "environment", {"train", *extras_in(text)}, packages_in(text))
    variables = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "VITREOUS_CACHE": str(tmp_path),
    }
    variables.pop("PYTHONPATH", None)
    if any("--out runs/photos\n" in text for _, text in blocks(page)):
        shutil.rmtree(here / "runs" / "photos")
    for kind, text in blocks(page, all_of_them=False):
        if text.startswith("make "):  # what it does is tested with the Makefile
            continue
        call = ["bash", "-e", "-c", text] if kind == "sh" else [str(python), "-c", text]
        done = subprocess.run(call, cwd=here, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{page}:\n{text}\n{done.stderr}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_architecture_is_that_of_the_tree(language: str) -> None:
    """Every file and folder that the page names exists; its tables have the layers and the add-ons."""
    text, package = text_of("explanation/architecture", language), DOCS.parent / "src" / "vitreous"
    names = set(re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?|\w+\.py)`", text))
    assert not [name for name in names if not ((package / name).exists() or (DOCS.parent / name).exists())]
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)?` \|", text, re.MULTILINE)
    assert rows == [*(layer.strip("()") for layer in layers), *rows[len(layers) :]]
    assert set(rows[len(layers) :]) == set(ADDONS)
