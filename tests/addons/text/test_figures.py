"""Attention over words."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitreous.addons.text.evaluation import TranslationEvaluation
from vitreous.addons.text.figures import (
    spell_bytes,
    text_attention,
    token_labels,
    write_translation_report,
)
from vitreous.addons.text.models import Translator
from vitreous.addons.text.task import RECIPES, TranslationConfig
from vitreous.addons.text.text_pairs import number_pairs
from vitreous.addons.text.tokenizer import Tokenizer
from vitreous.data.findings import Finding
from vitreous.evaluation.scores import Interval
from vitreous.inspection.capture import capture_attention
from vitreous.tasks import task_named
from vitreous.tasks.recipe_choice import packaged_config


def fresh_model(config: Any) -> Any:
    return task_named(config.task).build(config, None, steps=1)


@pytest.fixture(scope="module")
def translator():
    texts = [text for pair in list(number_pairs(50)) for text in (pair.source, pair.target)]
    config = packaged_config(TranslationConfig, RECIPES / "numbers.toml", {"model": {"depth": 3}})
    model = fresh_model(config).eval()
    return Translator(model, Tokenizer.train(texts, 380))


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
    written = write_translation_report(translator, ["<de> one"], tmp_path, tmp_path, evaluation, found)
    page = written.report.read_text()
    assert '<span class="figure">50.0%</span>' in page
    assert "of 2 held-out texts were translated exactly as in the data" in page
    assert "<strong>Warning:</strong> training waited for data 50.0% of the time. Use fewer" in page
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


def test_the_page_of_a_run_shows_how_it_learned(translator, tmp_path):
    rows = [
        {"step": n, "epoch": float(n), "loss": 3 / n, "accuracy": n / 5, "lr": 0.1, "skipped": 0}
        for n in (1, 2)
    ]
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = write_translation_report(translator, ["<de> one"], run, run)
    other = write_translation_report(translator, ["<de> one"], tmp_path / "elsewhere", run)
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
