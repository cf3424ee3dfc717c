"""Pages in two languages: catalogs with the same keys and values, and no English left on a Korean page."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jinja2 import meta

import vitreous as vt
from vitreous.data.checks import OF_PAIRS
from vitreous.data.findings import finding
from vitreous.data.image_samples import target_in_words
from vitreous.errors import InputError
from vitreous.languages import (
    LANGUAGES,
    catalog,
    environment,
    language_of_locale,
    percent,
    phrase,
    speaking,
    terminal,
)
from vitreous.models.config import ViTConfig
from vitreous.models.description import describe, stage_words
from vitreous.models.names import config_of

SOURCE = Path(vt.__file__).parent
ROOT = Path(__file__).parents[1]
# One Korean word for each term, anywhere: what the glossary forbids, with what to write instead.
FORBIDDEN = {
    "데이터 세트": "데이터셋",
    "코드 베이스": "구현체",
    "쌍선형": "이중선형",
    "쌍삼차": "바이큐빅",
    "그레디언트": "기울기",
    "밸류": "값",
    "교차 어텐션": "크로스 어텐션",
    "입력을 보는 어텐션": "크로스 어텐션",
    "잔차 가지": "잔차 분기",
    "탐욕": "그리디",
    "정칙화": "규제",
    "정규화(regularization)": "규제(regularization)",
    "정규화**, regularization": "규제(regularization)",
    "규제(normalization)": "정규화(normalization)",
    "그래디언트": "기울기",
    "그레이디언트 누적": "기울기 누적",
    "따로 떼어 둔": "테스트용으로 분리한",
    "헤드 하나의 너비": "헤드 차원",
    "행렬곱": "행렬 곱",
    "추가 기능의": "애드온의",
    "보고서": "리포트",
    "표준편차": "표준 편차",
    "신뢰구간": "신뢰 구간",
    "마이크로배치": "마이크로 배치",
    "데이터 셋": "데이터셋",
    "검증 셋": "검증 세트",
    "테스트 셋": "테스트 세트",
    "라벨": "레이블",
    "훈련": "학습",
    "사전학습": "사전 학습",
    "전이학습": "전이 학습",
    "파인 튜닝": "미세 조정",
    "과대적합": "과적합",
    "학습율": "학습률",
    "배치 사이즈": "배치 크기",
    "가중치 감소": "가중치 감쇠",
    "데이터 증대": "데이터 증강",
    "귀납 편향": "귀납적 편향",
    "자기 주의": "셀프 어텐션",
    "자기 어텐션": "셀프 어텐션",
    "셀프어텐션": "셀프 어텐션",
    "멀티헤드": "멀티 헤드",
    "다중 헤드": "멀티 헤드",
    "클래스토큰": "클래스 토큰",
    "위치 부호화": "위치 인코딩",
    "부호기": "인코더",
    "복호기": "디코더",
    "체크 포인트": "체크포인트",
    "커맨드": "명령줄",
    "에포크": "에폭",
    "컨볼루션": "합성곱",
    "피처 맵": "특징 맵",
    "레이어 정규화": "LayerNorm",
    "오차 행렬": "혼동 행렬",
    "지식증류": "지식 증류",
    "초매개변수": "하이퍼파라미터",
    "하이퍼 파라미터": "하이퍼파라미터",
    "고정 특징": "고정된 특징",
    "고정한 특징": "고정된 특징",
    "기준 성능": "기준 모델",
    "기준선": "기준 모델",
    "마스크 패치 예측": "마스킹된 패치 예측",
}
# In catalogs, where the word can only mean this.
FORBIDDEN_IN_CATALOGS = FORBIDDEN | {
    "사진": "이미지",
    "너비": "임베딩 차원",
    "형태": "shape",
    "기계": "서버",
    "레이블링": "레이블",
}


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, entry in tree.items():
        if isinstance(entry, dict):
            yield from leaves(entry, f"{prefix}{name}.")
        else:
            yield prefix + name, entry


TEXTS = {language: dict(leaves(catalog(language))) for language in LANGUAGES}


def test_both_languages_have_the_same_keys_and_values() -> None:
    assert TEXTS["en"].keys() == TEXTS["ko"].keys()
    parse = environment().parse
    for path, english in TEXTS["en"].items():
        korean = TEXTS["ko"][path]
        asked = [meta.find_undeclared_variables(parse(text)) for text in (english, korean)]
        assert asked[1] <= asked[0], path  # plurals need a number that Korean does not
        in_scripts = [set(re.findall(r"(?<!{){(\w+)}(?!})", text)) for text in (english, korean)]
        assert in_scripts[0] == in_scripts[1], path


def test_every_text_is_translated() -> None:
    same = {
        path
        for path, text in TEXTS["en"].items()
        if text == TEXTS["ko"][path] and re.search("[a-z]{3}", text)
    }
    values = {path for path in same if path.startswith("facts.values.") or path.endswith(".name")}
    terms = {"learn.words.layer_norm", "learn.panels.norm.title"}
    assert same == values | terms


def test_korean_texts_use_the_terms_of_the_glossary() -> None:
    printed = dict(leaves(terminal.terminal_catalog("ko")))
    found = {f"{path}: {word}" for path, text in printed.items() for word in FORBIDDEN if word in text}
    found |= {
        f"{path}: {word}"
        for path, text in TEXTS["ko"].items()
        for word in FORBIDDEN_IN_CATALOGS
        if word in text
    }
    assert found == set(), FORBIDDEN_IN_CATALOGS
    texts = TEXTS["ko"] | printed
    spaced = {path for path, text in texts.items() if re.search(r"(\d|}}) %(?!})", text)}
    assert spaced == set(), "Korean has no space before the percent sign"


def test_korean_pages_lessons_and_figures_use_the_terms_of_the_glossary() -> None:
    folder = ROOT / "docs" / "ko"
    paths = [*folder.rglob("*.md"), *folder.rglob("*.ipynb"), *(ROOT / "docs" / "figures").glob("*-ko.svg")]
    paths += (ROOT / "benchmarks" / "results").rglob("*.ko.md")
    assert len(paths) > 60
    paths.append(ROOT / "README.ko.md")
    texts = {path.relative_to(ROOT): text_of(path) for path in paths}
    left = {f"{path}: {word}" for path, text in texts.items() for word in FORBIDDEN if word in text}
    assert left == set(), f"write instead: {FORBIDDEN}"
    spaced = {f"{path}: {found[0]}" for path, text in texts.items() if (found := re.search(r"\d %", text))}
    assert spaced == set(), "Korean has no space before the percent sign"


def text_of(path: Path) -> str:
    """Return the text of a file with single spaces; of a notebook all that it shows."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        shown = [output for cell in cells for output in cell.get("outputs", ())]
        printed = [
            each for output in shown for each in (output.get("text", ()), *output.get("data", {}).values())
        ]
        text = "\n".join("".join(each) for each in (*(cell["source"] for cell in cells), *printed))
        drawings = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", text)
        text += "".join(base64.b64decode(each).decode("utf-8") for each in drawings)
    return " ".join(text.split())


def test_whatever_is_asked_for_is_in_the_catalog() -> None:
    known = {path for text in TEXTS["en"] for path in prefixes(text)}
    for file in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.j2")]:
        for path in re.findall(r"\b(?:phrase|words)\(f?\"([\w.-]+)\"[,)]", file.read_text(encoding="utf-8")):
            assert path in known, f"{file}: {path}"


def test_what_data_check_and_doctor_find_is_in_the_catalog() -> None:
    names = {path.removeprefix("findings.").rpartition(".")[0] for path in TEXTS["en"] if "findings." in path}
    text = "\n".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    asked = set(re.findall(r"\bfinding\(\s*\"([\w. -]+)\"", text))
    by_variable = {*OF_PAIRS, "empty", "forms", "system", "loose"}  # that no literal names
    by_variable |= {f"{kind} images" for kind in ("new", "added", "gone", "changed", "relabeled", "moved")}
    assert asked | by_variable == names


def prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ko_KR.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "ko_KR"}, "ko"),
        ({"LANG": "ko"}, "ko"),
        ({"LANG": "kok_IN"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({}, "en"),
    ],
)
def test_the_locale_chooses(variables: dict[str, str], language: str) -> None:
    assert language_of_locale(variables) == language


def test_an_unknown_language_is_refused() -> None:
    with (
        pytest.raises(InputError, match=r"`language` 'fr' is unknown: pages are in en or ko"),
        speaking("fr"),
    ):
        pass
    assert percent(0.5) == "50.0%"
    with speaking("ko"):
        assert percent(0.5) == "50.0%"
        assert phrase("images.answer", label="cat", probability=0.5) == "cat(50.0%)"


def visible(page: str) -> str:
    """Return what a reader may meet: text, labels and the words of scripts, without styles and programs."""
    for hidden in (r"<style>.*?</style>", r"<script>.*?</script>", r"<pre[ >].*?</pre>", r"data:[^\"]*"):
        page = re.sub(hidden, "", page, flags=re.DOTALL)
    return unescape(page.replace("\\u0027", "'"))


def english_on(page: str) -> set[str]:
    """Return the English texts of the catalog, or their longer parts between values, that are on a page."""
    shown = visible(page)
    parts = {
        f"{path}: {part.strip()}"
        for path, text in TEXTS["en"].items()
        for part in re.split(r"{{.*?}}|{%.*?%}|{\w+}", text)
        if len(part.strip()) >= 12
    }
    return {part for part in parts if part.partition(": ")[2] in shown}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> vt.Run:
    out = tmp_path_factory.mktemp("korean") / "run"
    return vt.train(
        "synthetic:300@8", epochs=1, model="ViT-Ti/4", settings=SMALL, out=out, progress=False, language="ko"
    )


SMALL = {"model.width": 16, "model.heads": 2, "model.mlp_dim": 16, "model.depth": 2}


def test_the_example_of_a_finding_is_in_the_language_of_its_sentence() -> None:
    [found] = finding("broken", [("a.png", "b.png")])
    with speaking("ko"):
        assert "(예: a.png, b.png)" in found.sentence
        assert "such as" not in found.sentence
    with speaking("en"):
        assert "(such as a.png, b.png)" in found.sentence


def test_a_korean_report_has_no_english_words(run: vt.Run) -> None:
    assert run.report is not None
    page = run.report.read_text(encoding="utf-8")
    assert '<html lang="ko">' in page
    assert "학습 곡선" in page
    assert "95% 신뢰 구간" in page
    assert english_on(page) == set()


@pytest.mark.slow
def test_a_korean_inspection_has_no_english_words(run: vt.Run, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 8, 8), dtype=np.uint8)
    found = vt.inspect(run, pixels, out=tmp_path / "page", language="ko", progress=False)
    page = found.report.read_text(encoding="utf-8")
    assert '<html lang="ko">' in page
    assert "어텐션 탐색기" in page
    assert english_on(page) == set()
    reasons = [each["reason"] for each in found.to_json()["left_out"]]
    assert not re.search("[가-힣]", " ".join(reasons)), "JSON is for programs: it stays English"


@pytest.mark.slow
def test_a_korean_diagram_of_a_model_has_no_english_stages() -> None:
    shape: dict[str, Any] = {"image_size": 32, "patch_size": 8, "width": 16, "depth": 2, "heads": 2}
    models: list[dict[str, Any]] = [
        {"registers": 2, "image_size": 36, "edge": "drop"},
        {"class_token": False, "pooling": "mean", "image_size": 36, "edge": "pad"},
        {"patch_size": 16, "pooling": "mean-all", "stem": {"kind": "convolution", "widths": [8, 16, 16, 16]}},
    ]
    configs = [ViTConfig(**{**shape, **each, "mlp_dim": 24}) for each in models]
    configs += [config_of(name, image_size=64) for name in ("R26+ViT-B/32", "BiT-R50x1", "Seg-Ti-Mask/16")]
    described = [describe(config) for config in configs] + [vt.describe("transformer-base", language="en")]
    stages = [stage for each in described for stage in each.stages]
    with speaking("ko"):
        found = {stage_words(text) for stage in stages for text in (stage.name, stage.written_shape)}
        assert target_in_words(torch.tensor([0.7, 0.3]), ("a", "b")) == "a 70.0% + b 30.0%"
    english = {text for text in found if re.search("[a-z]{3}", text) and not re.search("[가-힣]", text)}
    assert english == {"LayerNorm", "GroupNorm"}
    assert "헤드 2개, 19x8" in found
    assert {stage_words(stage.written_shape) for stage in stages} == {stage.written_shape for stage in stages}


@pytest.mark.parametrize(
    "name",
    ["ViT-Ti/16", *(pytest.param(each, marks=pytest.mark.slow) for each in ("BiT-R50x1", "Seg-Ti-Mask/16"))],
)
def test_a_korean_description_and_drawing_have_no_english_words(name: str) -> None:
    """Names of layers, formulas and units apart, in every row and column."""
    english = re.compile(r"[a-z]{3,} [a-z]{2,}|\bEq\.|^\s*(?!resnet)[a-z]{3,}", re.MULTILINE)
    described = vt.describe(name, language="ko")
    assert not english.findall(str(described))
    assert described.stages[0].name == "image", "names are for programs"
    assert "title" not in described.table()[0]
    svg = vt.draw(name, language="ko").svg
    assert not english.findall("\n".join(re.findall(r"<text[^>]*>([^<]*)", svg)))


@pytest.mark.slow
def test_a_korean_study_has_no_english_words(tmp_path: Path) -> None:
    result = vt.study("complexity", quick=True, out=tmp_path / "study", language="ko")
    table = (tmp_path / "study" / "table.md").read_text(encoding="utf-8")
    assert "셀프 어텐션" in table
    assert "셀프 어텐션" in (tmp_path / "study" / "plot.svg").read_text(encoding="utf-8")
    assert english_on(table) == set()
    assert not re.search("[가-힣]", json.dumps(result.to_json(), ensure_ascii=False))
