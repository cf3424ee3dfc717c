"""Published models that write text, with the tokenizers beside them: what they write is what their own code
writes (`peer_families.py` made the golden translator)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image

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


@pytest.mark.slow
@pytest.mark.peers
@torch.no_grad()
def test_a_published_reader_reads(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = {name: number for number, name in enumerate([*marks, *letters, "Ġ", "th", "Ġth"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nĠ th\n")
    tokenizer = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    torch.manual_seed(0)
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1}
    encoder = transformers.ViTConfig(**sizes, num_attention_heads=2, intermediate_size=16)
    decoder = transformers.TrOCRConfig(
        vocab_size=len(vocabulary), d_model=16, decoder_layers=1, decoder_attention_heads=2,
        decoder_ffn_dim=16, max_position_embeddings=24, cross_attention_hidden_size=16,
    )  # fmt: skip
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    both.decoder_start_token_id, both.pad_token_id, both.eos_token_id = 2, 1, 2
    peer = transformers.VisionEncoderDecoderModel(both).eval()
    for parameter in peer.parameters():
        if parameter.ndim > 1:
            parameter.copy_(0.5 * torch.randn_like(parameter))
    peer.save_pretrained(tmp_path)

    reader = vt.Reader.load(tmp_path)
    image = Image.effect_noise((40, 30), 90).convert("RGB")
    pixels = reader.model.preprocessing([image])
    ids = peer.generate(
        pixels, num_beams=2, do_sample=False, max_length=20, length_penalty=0.6, early_stopping=False,
        decoder_start_token_id=2, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    [found] = reader.read([image], beams=2)
    assert reader.tokenizer.decode(ids[0].tolist()) == tokenizer.decode(ids[0], skip_special_tokens=True)
    if len(ids[0]) < 20:  # the search of ours may go on to the decoder's longest length
        assert found.ids == ids[0].tolist()
    assert found.text == tokenizer.decode(found.ids, skip_special_tokens=True)
    image.save(tmp_path / "image.png")
    with pytest.raises(vt.InputError, match="no command runs a Captioner"):
        vt.predict(vt.load(tmp_path), [tmp_path / "image.png"])
