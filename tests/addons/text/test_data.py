"""Numbers in words, parallel text from every source, tokenizers, batches of like length."""

import unicodedata
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.addons.text.batches import EncodedPairs, encode_pairs, pair_loader
from vitreous.addons.text.text_pairs import (
    LANGUAGES,
    LARGEST,
    Pair,
    english,
    german,
    grammar_words,
    held_out_names,
    korean,
    number_pairs,
    open_parallel,
    pronoun_pairs,
)
from vitreous.addons.text.tokenizer import END, PAD, SMALLEST, START, Tokenizer, tokenizer_from_json
from vitreous.errors import InputError


@pytest.mark.parametrize(
    ("number", "en", "de", "ko"),
    [
        (0, "zero", "null", "영"),
        (1, "one", "eins", "일"),
        (16, "sixteen", "sechzehn", "십육"),
        (21, "twenty-one", "einundzwanzig", "이십일"),
        (101, "one hundred one", "einhunderteins", "백일"),
        (110, "one hundred ten", "einhundertzehn", "백십"),
        (1001, "one thousand one", "eintausendeins", "천일"),
        (10_000, "ten thousand", "zehntausend", "만"),
        (21_001, "twenty-one thousand one", "einundzwanzigtausendeins", "이만 천일"),
        (101_000, "one hundred one thousand", "einhunderteintausend", "십만 천"),
        (
            345_678,
            "three hundred forty-five thousand six hundred seventy-eight",
            "dreihundertfünfundvierzigtausendsechshundertachtundsiebzig",
            "삼십사만 오천육백칠십팔",
        ),
    ],
)
def test_numbers_in_words(number, en, de, ko):
    assert (english(number), german(number), korean(number)) == (en, de, ko)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_two_numbers_have_the_same_words(language):
    numbers = range(0, LARGEST + 1, 37)
    assert len({LANGUAGES[language](number) for number in numbers}) == len(numbers)


def test_number_pairs_stay_together_in_a_split():
    data = open_parallel("numbers", seed=3, test_fraction=0.1)
    groups = {pair.group for pair in data.train}, {pair.group for pair in data.test}
    assert not groups[0] & groups[1]
    assert len(data.test) == 6 * len(groups[1])
    assert {pair.target for pair in data.test}.isdisjoint(pair.target for pair in data.train)
    again = open_parallel("numbers", seed=3, test_fraction=0.1)
    assert again.test == data.test
    assert open_parallel("numbers", seed=4, test_fraction=0.1).test != data.test


def test_the_grammar_agrees_over_any_distance():
    """German his and her: by the noun at the beginning, and an ending by the noun that follows."""
    pairs = open_parallel("grammar", seed=0, test_fraction=0.05)
    rows = [*pairs.train, *pairs.test]
    assert len({pair.source for pair in rows}) == len(rows) == 8000
    assert not {pair.source for pair in pairs.train} & {pair.source for pair in pairs.test}
    feminine, distances = {"Anwendung", "Farbe", "Geschichte"}, set()
    for pair in rows:
        words = pair.target.replace(",", "").split()
        at = next(
            place
            for place, word in enumerate(words)
            if word in ("sein", "seine", "ihr", "ihre") and place > 4 and words[place - 1] in ("aber", "und")
        )
        stem = "ihr" if words[0] == "die" else "sein"
        assert words[at] == stem + ("e" if words[at + 1] in feminine else "")
        source = pair.source.split()
        distances.add(source.index("its"))
        if " das " in f" {' '.join(words[1:])} ":
            assert words[0] == "das"
    assert min(distances) < 8
    assert max(distances) > 18
    law = next(pair for pair in rows if pair.source.startswith("the old law near the river is very old, but"))
    assert law.target.startswith("das alte Gesetz am Fluss ist sehr alt, aber sein")


def test_the_pronoun_of_a_korean_sentence_is_that_of_its_noun():
    words = grammar_words("pronouns")["noun"]
    pairs = list(pronoun_pairs(600))
    assert len({pair.source for pair in pairs}) == 600
    for pair in pairs:
        assert pair.source.split().count("자신의") == 1
        read, written = set(pair.source.split()), set(pair.target.split())
        ((pronoun, noun),) = ((each, word) for each in words for word in words[each] if word in read)
        assert written & set(words) == {pronoun}
        assert words[pronoun][noun] in written
    assert {pair.target.split().index("her") for pair in pairs if " her " in pair.target} >= {8, 28}


@pytest.mark.parametrize("grammar", ["grammar", "pronouns"])
def test_words_of_a_grammar_are_tokens_in_its_recipe(grammar):
    from vitreous.tasks import task_named

    config = task_named("translation").plan(grammar, {}).config
    pairs = open_parallel(grammar, seed=config.seed, test_fraction=config.test_fraction).train[:2000]
    texts = [text for pair in pairs for text in pair[:2]]
    tokenizer = Tokenizer.train(texts, config.tokenizer.vocabulary)
    for text in texts:
        assert len(tokenizer.encode(text)) <= len(text.split()) + text.count(",")
    assert max(len(tokenizer.encode(text)) for text in texts) < config.model.max_length


def test_a_tsv_of_pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("eins\tone\r\n\nzwei\t two \nleer\t\ndrei\tthree\tnoch etwas\n", encoding="utf-8-sig")
    data = open_parallel(str(path), seed=0, test_fraction=0.3)
    pairs = {(pair.source, pair.target) for pair in data.train + data.test}
    assert pairs == {("eins", "one"), ("zwei", "two"), ("drei", "three")}
    assert data.empty == 2
    assert len(data.test) == 1
    assert data.name == "pairs"


def test_two_files(tmp_path):
    (tmp_path / "a.de").write_text("eins\nzwei\u2028zwo\ndrei\n")
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n")
    data = open_parallel(f"{tmp_path / 'a.de'},{tmp_path / 'a.en'}", seed=0, test_fraction=0.1)
    assert {(p.source, p.target) for p in data.train + data.test} == {
        ("eins", "one"),
        ("zwei\u2028zwo", "two"),
        ("drei", "three"),
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"eins one\n", r"line 1: no tab"),
        (b"\n\n", r"has 0 pairs"),
        (b"eins\tone\n", r"has 1 pairs"),
        (b"\xff\xfe\n", r"not UTF-8"),
    ],
)
def test_a_bad_tsv_is_said(tmp_path, content, said):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        open_parallel(str(path), seed=0, test_fraction=0.1)


def test_other_bad_sources_are_said(tmp_path):
    (tmp_path / "a").write_text("eins\nzwei\n")
    (tmp_path / "b").write_text("one\n")
    with pytest.raises(InputError, match=r"2 lines.*has 1"):
        open_parallel(f"{tmp_path / 'a'},{tmp_path / 'b'}", seed=0, test_fraction=0.1)
    with pytest.raises(InputError, match="cannot read"):
        open_parallel(str(tmp_path / "none.tsv"), seed=0, test_fraction=0.1)
    with pytest.raises(InputError, match="3 files"):
        open_parallel(f"{tmp_path / 'a'},{tmp_path / 'b'},{tmp_path / 'a'}", seed=0, test_fraction=0.1)


@pytest.fixture(scope="module")
def tokenizer():
    texts = [text for pair in list(number_pairs(300)) for text in (pair.source, pair.target)]
    return Tokenizer.train(texts, 400)


def test_words_of_the_training_text_are_few_tokens(tokenizer):
    assert len(tokenizer) == 400
    assert len(tokenizer.encode("hundred")) == 1
    assert "".join(tokenizer.pieces(tokenizer.encode("zwei hundert"))) == "▁zwei▁hundert"


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_every_text_comes_back_from_its_tokens(tokenizer, text):
    # A space in front is not kept, and "▁" stands for a space.
    wanted = unicodedata.normalize("NFC", text).replace("▁", " ")
    wanted = wanted.removeprefix(" ")
    assert tokenizer.decode(tokenizer.encode(text)) == wanted


def test_text_that_looks_like_marks_is_text(tokenizer):
    ids = tokenizer.encode("<s> </s> <pad> <0x41>")
    assert min(ids) > END
    assert tokenizer.decode(ids) == "<s> </s> <pad> <0x41>"


def test_marks_are_not_decoded_and_the_end_ends(tokenizer):
    ids = [START, *tokenizer.encode("zwei"), END, *tokenizer.encode("drei"), PAD]
    assert tokenizer.decode(ids) == "zwei"


def test_a_saved_tokenizer_is_the_same(tokenizer):
    again = tokenizer_from_json(tokenizer.to_json(), where="here")
    for text in ("dreihundert 😀", "삼백"):
        assert again.encode(text) == tokenizer.encode(text)
    with pytest.raises(InputError, match="is not a byte-pair tokenizer"):
        tokenizer_from_json("{}", where="here")
    with pytest.raises(InputError, match="no room"):
        Tokenizer.train(["a"], SMALLEST)


def test_of_more_characters_than_a_vocabulary_holds_the_rarest_are_bytes() -> None:
    characters = [chr(0xAC00 + number) for number in range(200)]
    texts = [f"{first} {first}{second}" for first, second in pairwise(characters)]
    small, again = (Tokenizer.train(reversed(texts) if turned else texts, 300) for turned in (False, True))
    assert len(small) == 300
    assert small.to_json() == again.to_json(), "of equally rare characters always the same are kept"
    text = unicodedata.normalize("NFC", "".join(characters))
    assert small.decode(small.encode(text)) == text


def test_long_pairs_are_left_out_and_counted(tokenizer):
    pairs = [Pair("zwei", "two", 0), Pair("zwei " * 50, "two", 1), Pair("zwei", "two " * 50, 2)]
    encoded = encode_pairs(pairs, tokenizer, 20)
    assert len(encoded.sources) == 1
    assert encoded.too_long == 2
    assert encoded.sources[0][-1] == END
    assert (encoded.targets[0][0], encoded.targets[0][-1]) == (START, END)
    with pytest.raises(InputError, match="each of the 1 pairs"):
        encode_pairs(pairs[1:2], tokenizer, 20)


def some_lengths(count):
    lengths = np.random.default_rng(0).integers(2, 40, size=count)
    rows = [[row + 3] * length for row, length in enumerate(lengths.tolist())]
    return EncodedPairs(rows, rows, 0)


def test_batches_hold_pairs_of_like_length_and_every_pair_once():
    loader = pair_loader(some_lengths(1000), batch_size=10, seed=0)
    assert loader.steps_per_epoch == 100
    batches = list(loader.epoch(0))
    firsts = torch.cat([batch.source[:, 0] for batch in batches])
    assert sorted(firsts.tolist()) == list(range(3, 1003))
    padding = sum(int((batch.source == PAD).sum()) for batch in batches)
    total = sum(batch.source.numel() for batch in batches)
    assert padding / total < 0.05
    widths = [batch.source.shape[1] for batch in batches]
    assert widths != sorted(widths)


def test_a_batch_depends_on_seed_epoch_and_step_alone():
    loader, again = (pair_loader(some_lengths(200), batch_size=10, seed=7) for _ in range(2))
    first = list(loader.epoch(3))
    later = list(again.epoch(3, start=12))
    assert len(later) == 8
    assert all(torch.equal(a.source, b.source) for a, b in zip(first[12:], later, strict=True))
    assert not torch.equal(first[0].source, next(loader.epoch(4)).source)
    with pytest.raises(InputError, match="a batch of 10 is more than the 5 training samples"):
        pair_loader(some_lengths(5), batch_size=10, seed=0)


def test_processes_share_a_batch_of_pairs():
    one = next(pair_loader(some_lengths(200), batch_size=10, seed=7).epoch(0))
    parts = [
        next(pair_loader(some_lengths(200), batch_size=10, seed=7, rank=rank, world_size=2).epoch(0))
        for rank in (0, 1)
    ]
    assert torch.equal(one.source[:, 0], torch.cat([part.source[:, 0] for part in parts]))
    assert torch.equal(one.tokens[:5], parts[0].tokens)
    assert torch.equal(one.tokens[5:], parts[1].tokens)


def test_pairs_of_the_datasets_library(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "set").mkdir()
    rows = ['{"translation": {"de": "eins", "en": "one"}}', '{"translation": {"de": "zwei", "en": null}}']
    rows += ['{"translation": {"de": "drei", "en": "three"}}']
    (tmp_path / "set" / "train.jsonl").write_text("\n".join(rows) + "\n")
    data = open_parallel(f"hf:{tmp_path / 'set'}", seed=0, test_fraction=0.4)
    assert {(p.source, p.target) for p in data.train + data.test} == {("eins", "one"), ("drei", "three")}
    assert data.empty == 1
    (tmp_path / "set" / "train.jsonl").write_text('{"text": "eins"}\n')
    with pytest.raises(InputError, match="no column translation"):
        open_parallel(f"hf:{tmp_path / 'set'}", seed=0, test_fraction=0.4)


def test_other_lines_move_no_pair(tmp_path):
    lines = [f"quelle {number}\tsource {number}" for number in range(200)]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines))
    before = {pair.source for pair in open_parallel(str(path), seed=0, test_fraction=0.2).test}
    assert 20 < len(before) < 60
    path.write_text("\n".join(["neu\tnew", *lines[5:], "anders\tother"]))
    after = {pair.source for pair in open_parallel(str(path), seed=0, test_fraction=0.2).test}
    assert after - {"neu", "anders"} == before - {f"quelle {number}" for number in range(5)}
    assert held_out_names(["one", "one"], 0.5, 0, most=9).tolist() == [True, False]
    names = [f"{number}" for number in range(5000)]
    few, many = (held_out_names(names, 0.5, 0, most=most) for most in (400, 4000))
    assert few.sum() < 400
    assert not (few & ~many).any()
