"""Attention over words and over images that are read."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitreous.addons.text.digit_lines import compose
from vitreous.addons.text.evaluation import TranslationEvaluation
from vitreous.addons.text.figures import (
    Measured,
    spell_bytes,
    text_attention,
    token_labels,
    write_reading_report,
    write_translation_report,
)
from vitreous.addons.text.models import Reader, Translator
from vitreous.addons.text.task import RECIPES, CaptioningConfig, TranslationConfig
from vitreous.addons.text.text_pairs import number_pairs
from vitreous.addons.text.tokenizer import Tokenizer
from vitreous.data.config import DataConfig
from vitreous.data.findings import Finding
from vitreous.data.sources.small import open_digits
from vitreous.evaluation.scores import Interval
from vitreous.inspection.capture import capture_attention
from vitreous.tasks import task_named
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.training.settings import configure


def fresh_model(config: Any) -> Any:
    return task_named(config.task).build(config, None, steps=1)


@pytest.fixture(scope="module")
def translator():
    texts = [text for pair in list(number_pairs(50)) for text in (pair.source, pair.target)]
    config = packaged_config(TranslationConfig, RECIPES / "numbers.toml", {"model": {"depth": 3}})
    model = fresh_model(config).eval()
    return Translator(model, Tokenizer.train(texts, 380))


@pytest.fixture(scope="module")
def reader():
    tiny = {"encoder": {"depth": 1, "width": 32}, "decoder": {"depth": 2, "width": 32}}
    config = configure(packaged_config(CaptioningConfig, RECIPES / "digit-lines.toml"), {"model": tiny})
    return Reader(fresh_model(config).eval(), Tokenizer.train(["0123456789"], 270))


def test_maps_of_a_translation(translator):
    source, written = torch.tensor([[5, 9, 7, 2]]), torch.tensor([[1, 300, 301, 302, 303, 2]])
    maps = text_attention(translator.model, source, written)
    assert maps.encoder.shape == (2, 4, 4, 4)
    assert maps.decoder.shape == (3, 4, 5, 5)
    assert maps.cross.shape == (3, 4, 5, 4)
    for each in maps:
        torch.testing.assert_close(each.sum(dim=-1), torch.ones(each.shape[:-1]))
    assert (maps.decoder.triu(diagonal=1) == 0).all()


def test_maps_are_those_of_writing_step_by_step(translator):
    source, written = torch.tensor([[5, 9, 7, 2]]), torch.tensor([[1, 300, 301, 302, 2]])
    maps = text_attention(translator.model, source, written)
    text = translator.model.text
    with torch.no_grad():
        memory, past = translator.model.encode(source), text.no_past()
        for step in range(4):
            with capture_attention(text.decoder) as attention:
                text.step(written[:, step : step + 1], memory, past)
            for layer, seen in enumerate(attention.maps):
                row = maps.decoder[layer, :, step, : step + 1]
                torch.testing.assert_close(seen[0, :, 0], row, atol=1e-5, rtol=1e-5)


def test_a_page_of_translations(translator, tmp_path):
    texts = ["<de> twenty-one", "<ko> </script> & <b>"]
    report = write_translation_report(translator, texts, tmp_path, tmp_path)
    page = report.report.read_text()
    data = re.search(r'<script type="application/json" id="examples">(.*?)</script>', page, re.DOTALL)
    examples = json.loads(data[1])
    assert [each["source"] for each in examples] == texts
    assert "▁ marks the first" in page
    assert "".join(examples[0]["read"]) == "▁<de>▁twenty-one⟨end⟩"
    shape = np.array(examples[0]["maps"]["cross"]).shape
    assert shape == (3, 4, len(examples[0]["written"]) - 1, len(examples[0]["read"]))
    assert not re.search("https?:", page.replace("http://www.w3.org/2000/svg", ""))
    with np.load(report.arrays) as arrays:
        assert set(arrays) == {f"{kind}_{n}" for kind in ("encoder", "decoder", "cross") for n in (0, 1)}


def test_a_page_of_images_that_were_read(reader, tmp_path):
    _, _, digits = open_digits(DataConfig())
    images, _ = compose(digits, 2, np.random.default_rng(0))
    named = [(images.image(row), f"line {row}") for row in range(2)]
    report = write_reading_report(reader, named, tmp_path, tmp_path)
    page = report.report.read_text()
    written = [len(found.ids) - 1 for found in reader.read([image for image, _ in named])]
    found = re.search(r'<script type="application/json" id="player-data">(.*?)</script>', page, re.DOTALL)
    assert found
    player = json.loads(found[1])
    assert [len(each["tokens"]) for each in player["examples"]] == written
    raw = gzip.decompress(base64.b64decode(player["examples"][0]["maps"]))
    rows = player["layers"] * player["heads"] * written[0]
    assert len(raw) == rows * (np.prod(player["grid"]) + 4), "a byte for each patch, and a maximum"
    with np.load(report.arrays) as arrays:
        assert arrays["cross_0"].shape[-1] == 60
        largest = np.frombuffer(raw[-4 * rows :], "<f4")
        np.testing.assert_allclose(largest, arrays["cross_0"].max(axis=-1).ravel(), rtol=1e-5)


def test_the_report_of_a_training_opens_with_its_results(translator, tmp_path):
    evaluation = TranslationEvaluation(
        names=("a", "b"),
        wanted=("one two", "three four"),
        texts=("one two", "three for you"),
        failed={},
        seconds=1.0,
        too_long=0,
        bleu=50.0,
        chrf=60.0,
        signature="",
        bleu_interval=Interval(40.0, 61.0),
    )
    found = [Finding("loader.texts", {"share": 0.5}, severity="warning")]
    measured = Measured(evaluation, found)
    page = write_translation_report(translator, ["<de> one"], tmp_path, tmp_path, measured).report.read_text()
    assert '<span class="figure">50.0\u00a0%</span>' in page
    assert "of 2 held-out texts were translated exactly as in the data" in page
    assert "<strong>Warning:</strong> training waited for data 50.0\u00a0% of the time. Use fewer" in page
    assert f"<span>translate</span> <span>{tmp_path}</span>" in page
    assert "Training report, translation" in page
    assert re.search(r"<td>BLEU</td><td class=.number.>50</td><td class=.number.>40 … 61</td>", page)
    assert 'id="configuration"' not in page, "this folder has no config.toml"
    assert "three <del>four</del><ins>for you</ins>" in page
    inspected = write_translation_report(translator, ["<de> one"], tmp_path / "inspected", tmp_path)
    assert 'id="findings"' not in inspected.report.read_text()


def test_a_number_that_is_not_a_token_is_shown_as_one():
    tokenizer = Tokenizer.train(["one"], 263)
    assert tokenizer.pieces([9999]) == ["#9999"]


def test_letters_written_in_bytes_are_shown_as_letters():
    tokenizer = Tokenizer.train(["one"], 263)
    ids = tokenizer.encode("one 2é한")
    assert any(piece.startswith("<0x") for piece in tokenizer.pieces(ids))
    assert "".join(token_labels(tokenizer, ids)) == "▁one▁2é⋯한⋯⋯"
    assert spell_bytes(["<0x32>", "<0xED>", "a", "<0x0A>", "<0xC3>", "<0xA9>"]) == [
        "2", "<0xED>", "a", "<0x0A>", "é", "⋯",
    ]  # fmt: skip


def test_the_bundled_numbers_are_the_default():
    plan = task_named("translation").plan(None, {})
    config, data = plan.config, plan.data
    assert config.source == "numbers"
    assert len(data.test) > 1000


def test_the_page_of_a_run_shows_how_it_learned(translator, reader, tmp_path):
    rows = [
        {"step": n, "epoch": float(n), "loss": 3 / n, "accuracy": n / 5, "lr": 0.1, "skipped": 0}
        for n in (1, 2)
    ]
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_digits(DataConfig())[0].image(0)
    own = write_translation_report(translator, ["<de> one"], run, run)
    other = write_reading_report(reader, [(source, "0.png")], tmp_path / "elsewhere", run)
    without = write_translation_report(translator, ["<de> one"], tmp_path / "nothing", tmp_path / "no run")
    for report in (own, other):
        page = report.report.read_text()
        assert "Learning curves" in page
        assert "Token accuracy" in page
    assert "Learning curves" not in without.report.read_text()


def opened(browser: Any, page: Path) -> tuple[Any, list[str]]:
    problems: list[str] = []
    tab = browser.new_page(viewport={"width": 1000, "height": 900})
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(page.as_uri(), timeout=1_000_000)
    return tab, problems


def test_the_player_goes_through_the_tokens(reader, browser, tmp_path):
    _, _, digits = open_digits(DataConfig())
    images, _ = compose(digits, 2, np.random.default_rng(0))
    named = [(images.image(row), f"line {row}") for row in range(2)]
    report = write_reading_report(reader, named, tmp_path, tmp_path)
    written = [len(found.ids) - 1 for found in reader.read([image for image, _ in named])]
    page, problems = opened(browser, report.report)
    page.wait_for_selector(".player[data-drawn]")
    assert page.locator("#tokens button").count() == written[0]
    first = page.evaluate("document.getElementById('map').toDataURL()")
    page.focus("#tokens button")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"#step:has-text('Step 2 of {written[0]}')")
    assert page.evaluate("document.getElementById('map').toDataURL()") != first
    page.click("#steps button:first-child")
    page.wait_for_selector(f"#step:has-text('Step 1 of {written[0]}')")
    page.click("#sources button:nth-child(2)")
    page.wait_for_selector(f"#step:has-text('Step 1 of {written[1]}')")
    page.click("#steps button:nth-child(2)")  # plays
    page.wait_for_selector(f"#step:has-text('Step 2 of {written[1]}')")
    assert problems == []
    page.close()


def test_the_words_are_reached_by_keyboard(translator, browser, tmp_path):
    report = write_translation_report(translator, ["<de> one"], tmp_path, tmp_path)
    page, problems = opened(browser, report.report)
    assert page.inner_text("#step").startswith("Step "), "it opens with one word"
    assert page.locator("#controls [aria-pressed=true]").last.inner_text().isdigit(), "and with one head"
    assert page.locator("#lines text.dim").count() > 0, "the other rows are pale"
    page.focus("#lines")
    page.keyboard.press("Escape")
    assert page.inner_text("#step") == ""
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#step:has-text('Step 1 of')")
    assert problems == []
    page.close()
