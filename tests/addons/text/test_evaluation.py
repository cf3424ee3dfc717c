"""Scores of translators and readers."""

import numpy as np
import pytest

from vitreous.addons.text.evaluation import (
    corpus_scores,
    edits,
    evaluate_translator,
)
from vitreous.addons.text.models import Translator, WrittenText
from vitreous.addons.text.text_pairs import Pair


class Parrot(Translator):
    """Stands for a translator: says the last word of the source."""

    def __init__(self):
        pass

    class model:
        class config:
            max_length = 10

    class tokenizer:
        encode = staticmethod(str.split)

    def translate(self, texts, *, beams, length_penalty, batch_size):
        return [WrittenText(text.split()[-1], 0.0, []) for text in texts]


def test_a_translator_is_judged():
    pairs = [Pair("say one", "one", 0), Pair("say two", "too", 1), Pair("word " * 20, "word", 2)]
    found = evaluate_translator(Parrot(), pairs).to_json()
    assert found["test_exact_match"] == pytest.approx(1 / 3)
    assert found["too_long"] == 1
    assert found["mistakes"][0] == {"source": "say two", "wanted": "too", "translated": "two"}
    assert found["mistakes"][1]["translated"] == ""
    low, high = found["test_exact_match_interval"]
    assert low < 1 / 3 < high


def test_a_part_of_the_pairs_can_be_asked_for():
    pairs = [Pair("say one", "one", 0), Pair("say two", "too", 1), Pair("say six", "six", 2)]
    part = evaluate_translator(Parrot(), pairs).subset(np.array([2, 0]))
    assert part.names == ["say six", "say one"]
    assert list(part.indices) == [2, 0]
    assert part.metrics["exact_match"].value == 1, "the mistake is not among them"


def test_bleu_and_chrf_are_sacrebleus():
    text = "the cat sat on the mat today"
    same = corpus_scores([text], [text])
    assert same["bleu_interval"] is same["chrf_interval"] is None, "one pair has none"
    assert same["bleu"] == pytest.approx(100)
    assert same["chrf"] == pytest.approx(100)
    assert "version" in same["signature"]
    alike = corpus_scores(["the cat sat on a mat today"], [text])
    assert 20 < alike["bleu"] < 80
    assert 50 < alike["chrf"] < 95
    right, wrong = [text] * 30, ["another thing entirely is here now"] * 30
    both = corpus_scores(right + wrong, [text] * 60)
    for name in ("bleu", "chrf"):
        low, high = both[f"{name}_interval"]
        assert low < both[name] < high
        assert 10 < high - low < 50, "half of 60 pairs are right"


@pytest.mark.parametrize(
    ("wanted", "text", "count"),
    [
        ("", "", 0),
        ("123", "123", 0),
        ("123", "", 3),
        ("", "12", 2),
        ("1234", "124", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_edits(wanted, text, count):
    assert edits(wanted, text) == count
