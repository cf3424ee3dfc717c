"""Greedy, sampled and beam-searched decoding."""

import itertools

import pytest
import torch

import vitreous as vt
from vitreous.addons.text.beam_search import beam_search, greedy
from vitreous.addons.text.config import TransformerConfig


def tiny(vocabulary=9, **overrides):
    torch.manual_seed(3)
    config = TransformerConfig(
        vocabulary=vocabulary,
        width=16,
        depth=2,
        encoder_depth=1,
        heads=2,
        mlp_dim=32,
        max_length=20,
        never=(0, 1),
        **overrides,
    )
    model = vt.Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.text.parameters():
            parameter *= 1.5  # far from uniform, so that searches differ
    return model


def sources(rows, vocabulary=9):
    return torch.randint(3, vocabulary, (rows, 6), generator=torch.Generator().manual_seed(0))


def test_greedy_equals_the_argmax_of_whole_sequences():
    model = tiny()
    source = sources(4)
    ids = greedy(model.text, model.encode(source), max_length=12)
    for row, text in zip(source, ids, strict=True):
        prefix = [model.config.start]
        while len(prefix) < 12 and prefix[-1] != model.config.end:
            with torch.no_grad():
                logits = model(row[None], torch.tensor([prefix]))[0, -1]
            logits[[0, 1]] = -torch.inf
            prefix.append(int(logits.argmax()))
        assert text.tolist()[: len(prefix)] == prefix
        assert set(text.tolist()[len(prefix) :]) <= {model.config.pad}


def test_a_row_is_decoded_alike_alone_and_in_a_batch():
    model = tiny()
    source = sources(5)
    source[2, 3:] = 0
    together = beam_search(model.text, model.encode(source), max_length=10)
    alone = beam_search(model.text, model.encode(source[2:3, :3]), max_length=10)
    length = alone.ids.shape[-1]
    assert torch.equal(together.ids[2, :, :length], alone.ids[0])
    torch.testing.assert_close(together.scores[2], alone.scores[0], atol=1e-5, rtol=1e-5)


def log_probability(model, source, ids):
    with torch.no_grad():
        logits = model(source, torch.tensor([ids]))[0].log_softmax(dim=-1)
    return sum(logits[t, ids[t + 1]].item() for t in range(len(ids) - 1))


def gnmt(length: int, penalty: float) -> float:
    """Equation 14 of 1609.08144: at five tokens and 0.6 it is 1.36, where 5 ** 0.6 would be 2.63."""
    return ((5 + length) / 6) ** penalty


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.5])
def test_a_wide_enough_beam_finds_the_best_of_all_sequences(length_penalty):
    model = tiny(vocabulary=5)
    source = torch.tensor([[3, 4, 4, 3]])
    written = [[1, *words, 2] for n in range(3) for words in itertools.product((3, 4), repeat=n)]
    written += [[1, *words] for words in itertools.product((3, 4), repeat=3)]  # cut at max_length
    best = max(
        written, key=lambda ids: log_probability(model, source, ids) / gnmt(len(ids) - 1, length_penalty)
    )
    found = beam_search(
        model.text,
        model.encode(source),
        max_length=4,
        beams=16,
        length_penalty=length_penalty,
        early_stopping="never",
    )
    ids = [token for token in found.ids[0, 0].tolist() if token != 0]
    assert ids == best
    score = log_probability(model, source, best) / gnmt(len(best) - 1, length_penalty)
    assert found.scores[0, 0].item() == pytest.approx(score, abs=1e-5)
    assert (found.scores[0].diff() <= 0).all()


def test_one_beam_is_greedy():
    model = tiny()
    memory = model.encode(sources(6))
    plain = greedy(model.text, memory, max_length=12)
    beam = beam_search(model.text, memory, max_length=12, beams=1, early_stopping="first").ids[:, 0]
    width = min(plain.shape[1], beam.shape[1])
    assert torch.equal(plain[:, :width], beam[:, :width])


def test_decoding_stops_when_every_row_is_done():
    model = tiny(logits_bias=True)
    with torch.no_grad():
        model.text.bias[2] = 4.0  # some rows end soon
    source = sources(6)[[1, 3, 4]]
    steps = []
    step = model.text.step
    model.text.step = lambda *given: steps.append(1) or step(*given)
    ids = greedy(model.text, model.encode(source), max_length=20)
    lengths = [(row == model.config.end).nonzero() for row in ids]
    assert all(len(ends) for ends in lengths), "the test needs rows that end"
    assert len(steps) == ids.shape[1] - 1 == max(int(ends[0]) for ends in lengths)


def test_the_end_can_be_forced_at_the_limit():
    model = tiny(end_at_limit=True)
    with torch.no_grad():
        model.text.tokens.weight[2] = 0
    ids = greedy(model.text, model.encode(sources(3)), max_length=4)
    assert (ids == 2).any(dim=1).all()


def test_what_cannot_be_decoded_is_said():
    model = tiny()
    memory = model.encode(sources(1))
    with pytest.raises(vt.InputError, match="max_length 21"):
        greedy(model.text, memory, max_length=21)
