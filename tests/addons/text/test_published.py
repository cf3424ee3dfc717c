"""Published models that write text, with the tokenizers beside them: what they write is what their own code
writes (`peer_families.py` made the golden translator)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vitreous as vt
from vitreous.tasks.answerer import task_of

MARIAN = Path(__file__).parents[2] / "checkpoints" / "data" / "families" / "marian"

pytest.importorskip("tokenizers", reason="tokenizers is not installed")


def check_translations(folder: Path, texts: Any) -> None:
    translator = vt.Translator.load(folder)
    expected = json.loads((folder / "expected.json").read_text())
    assert translator.model.config.encoder_heads == 4
    assert translator.model.config.heads == 2
    for text, one in zip(texts, expected, strict=True):
        assert translator.encode(text) == one["ids"], text
        [written] = translator.translate([text], beams=1, max_length=16)
        assert written.ids == one["written"], text
        assert written.text == one["text"], text
    together = translator.translate(list(texts), beams=1, max_length=16)
    assert [each.text for each in together] == [one["text"] for one in expected]


def test_a_published_translator_translates(peer_families: ModuleType, tmp_path: Path) -> None:
    check_translations(MARIAN, peer_families.TEXTS)
    task = task_of(MARIAN)
    assert task is not None
    assert task.name == "translation"


def test_a_loaded_translator_translates(peer_families: ModuleType) -> None:
    """By `vt.load` itself: with the tokenizer, or as a model that knows where its tokenizer is."""
    expected = [one["text"] for one in json.loads((MARIAN / "expected.json").read_text())]
    translator, texts = vt.Translator.load(MARIAN), list(peer_families.TEXTS)
    assert [each.text for each in translator.translate(texts, beams=1, max_length=16)] == expected
    model: Any = vt.load(MARIAN)
    assert vt.translate(model, texts[:1], beams=1) == vt.translate(MARIAN, texts[:1], beams=1)
    with pytest.raises(vt.InputError, match="was not loaded from a file, so its tokenizer is not known"):
        vt.translate(vt.Transformer(model.config), texts)


@pytest.mark.parametrize("damage", [b"", b"\x0a\xff\xff\xff\xff\x7f", b"{}", b"\x0a\x02\x08\x01"])
def test_a_damaged_tokenizer_is_one_sentence(damage: bytes, tmp_path: Path) -> None:
    shutil.copytree(MARIAN, tmp_path / "m")
    (tmp_path / "m" / "source.spm").write_bytes(damage)
    with pytest.raises(vt.InputError, match=r"source\.spm is not a SentencePiece model"):
        vt.Translator.load(tmp_path / "m")
    (tmp_path / "m" / "source.spm").unlink()
    with pytest.raises(vt.InputError, match="has no tokenizer next to its weights"):
        vt.Translator.load(tmp_path / "m")


def test_numbers_of_a_vocabulary_may_be_written_as_text_or_with_a_point(tmp_path: Path) -> None:
    shutil.copytree(MARIAN, tmp_path / "m")
    file = tmp_path / "m" / "vocab.json"
    numbers = json.loads(file.read_text())
    piece, number = next(iter(numbers.items()))
    texts = ["a text"]
    for written in (str(number), float(number)):
        file.write_text(json.dumps(numbers | {piece: written}))
        assert vt.translate(tmp_path / "m", texts, beams=1) == vt.translate(MARIAN, texts, beams=1)
    for wrong in ("first", None, [number], number + 0.5):
        file.write_text(json.dumps(numbers | {piece: wrong}))
        with pytest.raises(vt.InputError, match=r"vocab\.json: the number of .* is not a "):
            vt.Translator.load(tmp_path / "m")


@pytest.mark.slow
@pytest.mark.peers
def test_translations_with_live_peers(peer_families: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    peer_families.write_marian(tmp_path, normalization="nmt_nfkc")
    check_translations(tmp_path, peer_families.TEXTS)
