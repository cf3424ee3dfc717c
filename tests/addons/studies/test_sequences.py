"""Sequences that studies generate, and a Transformer with smaller keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from vitreous.addons.studies.laboratory import Laboratory
from vitreous.addons.studies.sequences import (
    JOINED,
    SMALL,
    TASKS,
    Sequences,
    SequenceTrial,
    answers,
    encoded_pairs,
    parsed,
    task_data,
    tree,
    with_key_size,
)
from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.tokenizer import END, PAD, START
from vitreous.addons.text.transformer import Transformer
from vitreous.errors import InputError
from vitreous.layers.attention import Attention, CrossAttention


def test_expressions_are_parsed_as_python_parses_them() -> None:
    """Those without ^, which Python does not have as a power."""
    rng, checked = np.random.default_rng(0), 0
    values = dict(zip("abcd", (2.0, 3.0, 5.0, 7.0), strict=True))
    while checked < 50:
        source, target = parsed(rng)
        if "^" in source:
            continue
        assert target.count("(") == target.count(")") == len(source) // 2
        assert [each for each in target if each not in "()"] == list(source)
        plain, nested = (eval("".join(each), {}, values) for each in (source, target))
        assert nested == pytest.approx(plain)
        checked += 1


def test_all_operators_bind_to_the_left() -> None:
    assert " ".join(tree("abcd", "+^^")) == "( a + ( ( b ^ c ) ^ d ) )"


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_drawn_by_seed_and_their_parts_share_nothing(task: str) -> None:
    data = task_data(task, 0, 60, 20)
    assert data.train.source.shape[0] == 60
    assert data.test.source.shape[0] == 20
    assert (data.train.target[:, 0] == START).all()
    rows = [{tuple(row[row != PAD].tolist()) for row in part.source} for part in (data.train, data.test)]
    assert not rows[0] & rows[1]
    again, other = task_data.__wrapped__(task, 0, 60, 20), task_data(task, 1, 60, 20)
    assert torch.equal(again.train.source, data.train.source)
    assert other.train.source.shape != data.train.source.shape or not torch.equal(
        other.train.source, data.train.source
    )
    if task == "copy":
        source, target = data.test.source[0], data.test.target[0]
        assert source[source > END].tolist() == target[target > END].tolist()
        assert data.longer is not None
        assert int((data.longer.source != PAD).sum(1).min()) > int((data.train.source != PAD).sum(1).max())


@pytest.mark.slow
def test_the_test_is_like_what_is_learned() -> None:
    """Of the short expressions, which are drawn again and again, both parts have some."""
    data = task_data("parsing", 0, 600, 200)
    lengths = [(part.source != PAD).sum(1) for part in (data.train, data.test)]
    short = [float((each == 4).float().mean()) for each in lengths]  # two operands, a sign and the end
    assert short[0] > 0.02
    assert abs(short[0] - short[1]) < 0.04
    with pytest.raises(InputError, match="too few for train=30000"):
        task_data("parsing", 0, 30_000, 1000)


def test_the_pronoun_is_where_the_grammar_has_it() -> None:
    pairs = TASKS["agreement"](0, 30)
    words = sorted({word for pair in pairs for side in pair for word in side})
    places = encoded_pairs(pairs, {word: number for number, word in enumerate(words, 3)}).pronoun
    for (_, target), place in zip(pairs, places.tolist(), strict=True):
        assert target[place] in ("sein", "seine", "ihr", "ihre")
        assert target[place - 1] in JOINED


def test_a_row_is_right_if_greedy_decoding_writes_it() -> None:
    from vitreous.addons.text.beam_search import greedy

    data = task_data("copy", 0, 60, 20)
    config = TransformerConfig(**{**SMALL, "vocabulary": data.vocabulary, "width": 16, "heads": 2})
    model = Transformer(config, seed=1).eval()
    source = data.test.source[:4]
    with torch.inference_mode():
        ids = greedy(model.text, model.encode(source), max_length=12)
    ids = ids.clone()
    assert answers(model, Sequences(source, ids, ids[:, 0]))[0].all()
    ids[0, 2] = 3 if ids[0, 2] != 3 else 4
    right, tokens = answers(model, Sequences(source, ids, ids[:, 0]))
    assert not right[0, 1]
    assert torch.equal(tokens, ids[:, 1:] != PAD)


def test_smaller_keys_are_those_of_a_smaller_attention() -> None:
    """Attention with keys of two channels, computed by hand from the channels that are left."""
    config = TransformerConfig(**{**SMALL, "vocabulary": 9, "width": 16, "heads": 2, "depth": 1})
    model = Transformer(config, seed=0).eval()
    hidden = with_key_size(model, 2)
    z, context = torch.randn(1, 5, 16), torch.randn(1, 3, 16)
    attention = next(each for each in model.modules() if isinstance(each, Attention))
    cross = next(each for each in model.modules() if isinstance(each, CrossAttention))
    with torch.no_grad():
        _, key, value, _ = attention.project(z)
        assert (key[..., 2:] == 0).all()
        assert (value != 0).all()
        original = attention.qkv.parametrizations.weight.original
        plain = (z @ original.T + attention.qkv.parametrizations.bias.original).chunk(3, -1)
        first = [each.reshape(1, 5, 2, 8).transpose(1, 2)[..., :2] for each in plain[:2]]
        wanted = torch.softmax(first[0] @ first[1].transpose(-2, -1) / 2**0.5, -1)
        torch.testing.assert_close(attention.attention_weights(z), wanted)
        assert (cross.project_context(context)[0][..., 2:] == 0).all()
    # Of each of four attentions 6 of 8 channels, in two heads, of queries and keys, with their biases.
    assert hidden == 4 * 6 * 2 * 2 * (16 + 1)


def test_a_trial_of_sequences(tmp_path: Path) -> None:
    trial = SequenceTrial(task="agreement", train=60, test=20, steps=2, batch_size=8)
    laboratory = Laboratory(cache=tmp_path, device=torch.device("cpu"))
    result = laboratory.run(trial.change({"width": 16, "heads": 2}), 0)[1]
    assert set(result.values) == {"sequences", "validation", "tokens", "pronoun"}
    assert result.macs > 0
    smaller = laboratory.run(trial.change({"width": 16, "heads": 2}, key_size=4), 0)[1]
    assert smaller.parameters < result.parameters


@pytest.mark.slow
def test_label_smoothing_and_dropout_change_what_is_learned() -> None:
    trial = SequenceTrial(train=60, test=20, batch_size=8, steps=2)
    losses = list[float]()

    class Recorded(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            if func is torch.nn.functional.cross_entropy:
                losses.append(float(found.detach()))
            return found

    with Recorded():
        for each in (
            trial,
            trial.change(label_smoothing=0.0),
            trial.change({"dropout": 0.5}),
            trial.change(),
        ):
            each.perform(0, share=1.0, device=torch.device("cpu"))
    first = losses[::2]
    assert first[3] == first[0]
    assert len(set(first)) == 3
