"""The explorer of all predictions: what Python puts into the page, and what a browser does."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.browsers import box_of

import vitreous as vt
from answered import answered
from vitreous.data.dataset import ArrayImages, ImageDataset
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.result import Answers
from vitreous.inspection import run_figures
from vitreous.inspection.page import Exhibit
from vitreous.inspection.run_figures import LIMITS, predictions_figure
from vitreous.inspection.run_report import write_run_report
from vitreous.models.model import build_model
from vitreous.models.stored import BadImage, ImageLike

CLASSES = ("cat", "dog", "<b>owl</b>")


class Made(ArrayImages):
    """Gray levels; one image is broken."""

    def __init__(self, count: int, side: int = 16) -> None:
        pixels = np.zeros((count, side, side, 3), dtype=np.uint8) + np.arange(count)[
            :, None, None, None
        ].astype(np.uint8)
        super().__init__(pixels, np.arange(count) % 3, CLASSES, name="made")

    def held(self, index: int) -> ImageLike:
        if index == 4:
            raise BadImage(self.name(index), "gone")
        return super().held(index)


def tiny(**fields: Any) -> Any:
    torch.manual_seed(0)
    config = vt.ViTConfig(
        image_size=16, patch_size=4, width=16, depth=2, heads=2, mlp_dim=24, num_classes=3, **fields
    )
    model = build_model(config, preprocessing=vt.Preprocessing(size=(16, 16)), labels=CLASSES).eval()
    torch.nn.init.normal_(model.head.weight)
    return model


def evaluated(count: int, *, right: bool = False) -> Any:
    """Every fifth answer is wrong, unless all are `right`, with falling confidence."""
    targets = np.arange(count) % 3
    said = np.where((np.arange(count) % 5 == 0) & (not right), (targets + 1) % 3, targets)
    sure = np.linspace(0.9, 0.5, count)[:, None]
    probabilities = np.where(np.eye(3)[said] > 0, sure, (1 - sure) / 2)
    return ClassificationEvaluation(
        names=[f"folder/{i}.jpg" for i in range(count)],
        indices=np.arange(count),
        classes=CLASSES,
        **answered(probabilities, targets),
        failed={},
        seconds=1.0,
    )


def figure_of(
    count: int = 30, found: Any = None, model: vt.ViT | None = None, **more: Any
) -> tuple[Exhibit, dict[str, Any]]:
    model, found = model or tiny(), found or evaluated(count)
    figure = predictions_figure(
        {"run": found.answers()},
        found.names,
        Made(count),
        found.indices,
        model.preprocessing,
        attending=model,
        **more,
    )
    data = re.search(r'<script type="application/json">(.*?)</script>', str(figure.html), re.DOTALL)
    assert data
    return figure, json.loads(data[1], parse_constant=pytest.fail)  # JSON.parse knows no NaN


def diverged(count: int) -> Any:
    """Of every third image the outputs are not finite."""
    found = evaluated(count)
    for values in (found.confidence, found.true_probability):
        values[::3] = np.nan
    return found


def sheet(data: dict[str, Any], number: int = 0) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data["sheets"][number].split(",")[1]))))


def test_the_page_has_every_image_with_its_answer() -> None:
    figure, data = figure_of()
    assert figure.script == "predictions"
    assert "<b>owl" not in figure.html
    assert data["classes"] == list(CLASSES)
    assert data["true"] == (np.arange(30) % 3).tolist()
    model = data["models"][0]
    assert model["given"][5] == 0
    assert [i for i, right in enumerate(model["right"]) if not right] == list(range(0, 30, 5))
    assert model["confidence"][0] == 0.9
    assert model["loss"][1] == pytest.approx(-np.log(evaluated(30).probabilities[1].max()), rel=1e-3)
    assert data["size"] == [16, 16]
    pixels = sheet(data)
    assert pixels.shape == (16, 30 * 16, 3), "without loss, each at its place"
    assert [int(pixels[0, 16 * i, 0]) for i in (0, 1, 3, 5, 29)] == [0, 1, 3, 5, 29]
    assert pixels[0, 16 * 4, 0] == 128, "gray where it cannot be read"


def test_what_is_not_finite_is_null() -> None:
    model = figure_of(found=diverged(30))[1]["models"][0]
    for values in (model["loss"], model["confidence"]):
        assert [i for i, value in enumerate(values) if value is None] == list(range(0, 30, 3))


def test_layers_that_never_learned_have_no_attention_to_show() -> None:
    model = tiny(layer_scale=1e-4)
    figure, data = figure_of(model=model)
    assert (data["attention"], data["grid"]) == ({}, None)
    assert "last layer attends" not in figure.html
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("gamma"):
                weight.add_(1e-4)
    assert figure_of(model=model)[1]["attention"]


def test_attention_of_the_images_with_the_largest_losses() -> None:
    model = tiny()
    _, data = figure_of(limits=LIMITS._replace(attended=9))
    loss = np.array(data["models"][0]["loss"])
    assert set(data["attention"]) == {str(i) for i in np.argsort(-loss, kind="stable")[:9]}
    with vt.capture_attention(model) as attention:
        model(model.preprocessing([Made(30).image(0)]))
    wanted = attention.maps[-1].mean(dim=1)[0, 0, 1:]
    wanted = (wanted / max(wanted.max(), 4 * wanted.mean()) * 255).round().numpy()
    assert np.abs(np.frombuffer(base64.b64decode(data["attention"]["0"]), np.uint8) - wanted).max() <= 1
    assert len(figure_of(limits=LIMITS._replace(work=1))[1]["attention"]) == 8, (
        "of a large model of a few images"
    )


def test_many_images_are_small_and_on_several_sheets() -> None:
    limits = LIMITS._replace(bytes=6_000, images=1100, tried=20)
    noise = np.random.default_rng(0).integers(0, 255, (1200, 24, 24, 3), dtype=np.uint8)
    images: ImageDataset = ArrayImages(noise, np.zeros(1200, int), ("a",), name="noise")
    answers = Answers((), [0.0] * 1200, [1.0] * 1200, np.arange(1200.0), loss_name="absolute_error")
    names = [str(i) for i in range(1200)]
    figure = predictions_figure(
        {"run": answers}, names, images, range(1200), vt.Preprocessing(size=(24, 16)), limits=limits
    )
    data = json.loads(re.search(r"json\">(.*?)</script>", str(figure.html), re.DOTALL)[1])  # type: ignore[index]
    assert data["names"] == names[100:], "those with the largest losses, in the order of the data"
    assert [len(data["sheets"]), data["size"]] == [2, [16, 11]]
    assert sheet(data).shape == (25 * 16, 40 * 11, 3)
    assert sheet(data, 1).shape == (3 * 16, 40 * 11, 3)
    assert "The 1,100 of 1,200 evaluated images with the largest loss" in figure.caption


def test_small_sizes_keep_the_shape() -> None:
    assert run_figures.small_size((224, 112), 96) == (96, 48)
    assert run_figures.small_size((8, 8), 96) == (8, 8)
    assert list(run_figures.thumbnail_sizes(8)) == [(8, None), (8, 80), (8, 50), (8, 25)]
    assert next(run_figures.thumbnail_sizes(224)) == (96, 80)


# --- in a browser ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    (run / "config.toml").write_text("")
    figure, _ = figure_of(200)
    return write_run_report(run, tiny(), [figure], evaluation=evaluated(200))


@pytest.mark.slow
def test_choosing_sorting_paging_and_export(browser: Any, page: Path) -> None:
    tab = browser.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri(), timeout=1_000_000)
    count, thumbs = tab.locator('[data-part="count"]'), tab.locator(".thumbs figure")
    assert count.inner_text() == "40 images, page 1 of 1"
    assert "true cat" in thumbs.first.inner_text(), "the most confident mistake first"
    assert "✗ predicted dog (90.0%)" in thumbs.first.inner_text()
    assert thumbs.first.locator("canvas").get_attribute("aria-label") == "true cat; ✗ predicted dog (90.0%)"
    tab.locator('[data-part="pattern"]').select_option("")
    assert count.inner_text() == "200 images, page 1 of 4"
    tab.locator('[data-part="after"]').click()
    assert count.inner_text() == "200 images, page 2 of 4"
    tab.locator('[data-part="sort"]').select_option("low-loss")
    assert "0.jpg" not in thumbs.first.inner_text().split("/")[-1]
    box = box_of(tab, '[data-part="matrix"]')
    place = {"x": box["width"] * 0.5, "y": box["height"] * 0.17}  # true cat, predicted dog
    tab.locator('[data-part="matrix"]').click(position=place)
    wrong = sum(i % 5 == 0 and i % 3 == 0 for i in range(200))
    assert count.inner_text() == f"{wrong} images, page 1 of 1"
    assert tab.locator('[data-part="cell"]').inner_text() == f"true cat, predicted dog: {wrong} images"
    with tab.expect_download() as download:
        tab.locator('[data-part="export"]').click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert len(rows) == wrong
    assert set(rows[0]) == {"image", "true", "predicted", "probability", "loss"}
    assert {(row["true"], row["predicted"]) for row in rows} == {("cat", "dog")}
    tab.locator('[data-part="matrix"]').press("Enter")
    assert count.inner_text().startswith("200 images"), "the same cell again shows all"
    tab.locator('[data-part="matrix"]').press("ArrowRight")
    tab.locator('[data-part="matrix"]').press("Enter")
    assert tab.locator('[data-part="given"]').input_value() == "2", "by the keyboard"
    tab.locator('[data-part="pairs"] button').first.click()
    tab.locator('[data-part="name"]').fill("folder/15.jpg")
    assert count.inner_text().startswith("1 images") or count.inner_text().startswith("0 images")
    assert errors == []
    tab.close()


@pytest.mark.slow
def test_a_model_that_diverged(browser: Any, tmp_path: Path) -> None:
    """Images without a loss are there, and the last in every order."""
    (tmp_path / "config.toml").write_text("")
    figure, _ = figure_of(30, found=diverged(30))
    page = write_run_report(tmp_path, tiny(), [figure], evaluation=diverged(30))
    tab = browser.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri(), timeout=1_000_000)
    tab.locator('[data-part="pattern"]').select_option("")
    for order in ("loss", "low-loss", "confidence", "low-confidence"):
        tab.locator('[data-part="sort"]').select_option(order)
        captions = tab.locator(".thumbs figure").all_inner_texts()
        assert ["(–)" in caption for caption in captions] == [False] * 20 + [True] * 10
    with tab.expect_download() as download:
        tab.locator('[data-part="export"]').click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert [row["loss"] == "" for row in rows] == [False] * 20 + [True] * 10
    assert errors == []
    tab.close()


@pytest.mark.slow
def test_a_model_without_an_error_has_no_list_of_confusions(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    for right, shown in ((True, 0), (False, 1)):
        found = evaluated(30, right=right)
        page = write_run_report(tmp_path, tiny(), [figure_of(30, found=found)[0]], evaluation=found)
        tab = browser.new_page()
        tab.goto(page.as_uri(), timeout=1_000_000)
        assert tab.get_by_text("Most frequent confusions:").locator("visible=true").count() == shown
        tab.close()


@pytest.mark.slow
def test_the_matrix_is_as_deep_as_its_counts(browser: Any, tmp_path: Path) -> None:
    """Of a class with more images than others, too, whatever is drawn before it."""
    classes = [f"c{number}" for number in range(40)]
    targets = np.array([0, *[39] * 20, *[2] * 9])
    answers = (
        evaluated(30)
        .answers()
        ._replace(
            classes=classes, true=targets.tolist(), given=[1, *[39] * 20, *[3] * 9], right=targets == 39
        )
    )
    figure = predictions_figure(
        {"run": answers}, [f"{i}.jpg" for i in range(30)], Made(30), np.arange(30), tiny().preprocessing
    )
    (tmp_path / "config.toml").write_text("")
    page = write_run_report(tmp_path, tiny(), [figure], evaluation=evaluated(30))
    tab = browser.new_page()
    tab.goto(page.as_uri(), timeout=1_000_000)
    alpha = """() => {
      const canvas = document.querySelector('[data-part="matrix"]'), middle = canvas.width * 39.5 / 40;
      return canvas.getContext("2d").getImageData(middle, middle, 1, 1).data[3];
    }"""
    assert tab.evaluate(alpha) == 255
    tab.close()


@pytest.mark.slow
def test_attention_appears_under_the_pointer_and_with_the_focus(browser: Any, page: Path) -> None:
    tab = browser.new_page()
    tab.goto(page.as_uri(), timeout=1_000_000)
    first = tab.locator(".thumbs figure").first
    tab.wait_for_timeout(500)
    pixels = "(figure) => figure.querySelector('canvas').toDataURL()"
    plain = first.evaluate(pixels)
    first.hover()
    tab.wait_for_timeout(300)
    seen = first.evaluate(pixels)
    assert seen != plain
    tab.mouse.move(0, 0)
    tab.wait_for_timeout(300)
    assert first.evaluate(pixels) == plain
    first.focus()
    tab.wait_for_timeout(300)
    assert first.evaluate(pixels) == seen
    tab.close()
