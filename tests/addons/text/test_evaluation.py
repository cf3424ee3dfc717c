"""Scores of translators and readers."""

import numpy as np
import pytest

from vitreous.addons.text.captions import Captions
from vitreous.addons.text.evaluation import (
    CaptioningEvaluation,
    corpus_scores,
    edits,
    evaluate_reader,
    evaluate_translator,
)
from vitreous.addons.text.models import Reader, Translator, WrittenText
from vitreous.addons.text.text_pairs import Pair
from vitreous.data.dataset import ArrayImages, ImageDataset
from vitreous.errors import InputError
from vitreous.models.stored import BadImage


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


class Fixed(Reader):
    """Stands for a reader: reads the brightness."""

    def __init__(self):
        pass

    def read(self, images, *, beams, batch_size):
        return [WrittenText(str(image.array()[0, 0, 0]), 0.0, []) for image in images]


def test_a_reader_is_judged_and_bad_images_are_told():
    pixels = np.arange(100, dtype=np.uint8)[:, None, None].repeat(2, 1).repeat(2, 2)
    images = ArrayImages(pixels, np.zeros(100, dtype=np.int64), ("text",), name="gray")

    class Torn(ImageDataset):
        targets, source = images.targets, "gray"

        def held(self, row):
            if row == 70:
                raise BadImage(images.name(row), "torn")
            return images.held(row)

    texts = [str(number) for number in range(100)]
    texts[10] = "11"
    found = evaluate_reader(Fixed(), Captions(Torn(), texts)).to_json()
    assert found["test_count"] == 99
    assert found["test_line_accuracy"] == pytest.approx(98 / 99)
    assert found["test_character_accuracy"] == pytest.approx(1 - 1 / 188)
    assert found["failed"] == [{"path": "gray[70]", "reason": "torn"}]
    assert found["mistakes"] == [{"image": "gray[10]", "wanted": "11", "read": "10"}]


def test_a_reader_that_can_read_no_image_says_so():
    images = ArrayImages(np.zeros((2, 2, 2), np.uint8), np.zeros(2, np.int64), ("text",), name="gray")

    class Torn(ImageDataset):
        targets, source = images.targets, "gray"

        def held(self, row):
            raise BadImage(images.name(row), "torn")

    with pytest.raises(InputError, match=r"not one of 2 images can be read: gray\[0\]: torn"):
        evaluate_reader(Fixed(), Captions(Torn(), ["1", "2"]))


def test_characters_have_an_interval():
    wanted = ["1234"] * 60
    texts = ["1234"] * 40 + ["1299"] * 20
    found = CaptioningEvaluation(names=texts, wanted=wanted, texts=texts, failed={}, seconds=0.1)
    low, high = found.metrics["character_accuracy"].interval
    assert low < found.characters < high
    # The mean of 60 draws of 1 with probability 2/3 and 0.5 otherwise has a standard deviation of 0.030.
    assert (found.characters - low, high - found.characters) == pytest.approx((0.06, 0.06), abs=0.012)


def test_a_reader_that_writes_too_much_has_no_character_right():
    found = CaptioningEvaluation(names=["a"], wanted=["12"], texts=["345678"], failed={}, seconds=0.1)
    assert found.to_json()["test_character_accuracy"] == 0
