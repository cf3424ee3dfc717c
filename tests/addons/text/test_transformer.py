"""The encoder-decoder: masks, shapes, configuration, and the key/value cache."""

import pytest
import torch
from pydantic import ValidationError

import vitreous as vt
from vitreous.addons.text.config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.addons.text.layers import causal_mask, halved_sinusoids, sinusoids

TINY = {
    "vocabulary": 23,
    "width": 16,
    "depth": 2,
    "encoder_depth": 2,
    "heads": 4,
    "mlp_dim": 32,
    "max_length": 24,
    "dropout": 0.0,
}


def tiny(**overrides):
    torch.manual_seed(0)
    return vt.Transformer(TransformerConfig(**{**TINY, **overrides})).eval()


def tokens(*shape):
    return torch.randint(3, 23, shape, generator=torch.Generator().manual_seed(1))


def test_base_and_big_have_the_papers_sizes():
    with torch.device("meta"):
        base = vt.Transformer(TransformerConfig.base(vocabulary=37000))
        big = vt.Transformer(TransformerConfig.big(vocabulary=37000))
    millions = [round(sum(p.numel() for p in model.parameters()) / 1e6) for model in (base, big)]
    assert millions == [63, 214]  # Table 3 says 65 and 213


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "position", ["sinusoidal", "sinusoidal-halves", "sinusoidal-fairseq", "learned", "none"]
)
def test_steps_with_the_cache_equal_the_whole_sequence(norm, position):
    model = tiny(norm=norm, final_norm=norm == "pre", position=position)
    source, target = tokens(3, 7), tokens(3, 9)
    source[1, 5:] = 0
    with torch.no_grad():
        memory = model.encode(source)
        whole = model.decode(target, memory)
        past = model.text.no_past()
        first = model.text.step(target[:, :4], memory, past)
        rest = [model.text.step(target[:, t : t + 1], memory, past) for t in range(4, 9)]
    assert len(past[0].attention) == 9
    torch.testing.assert_close(torch.stack([first, *rest], dim=1), whole[:, 3:], atol=1e-5, rtol=1e-5)


def test_no_token_sees_what_follows_it():
    model = tiny()
    source, target = tokens(1, 5), tokens(1, 8)
    changed = target.clone()
    changed[0, 5] = (target[0, 5] + 1 - 3) % 20 + 3
    with torch.no_grad():
        before, after = model(source, target), model(source, changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])


def test_padding_changes_nothing():
    model = tiny()
    source, target = tokens(1, 5), tokens(1, 6)
    padded = torch.cat([source, torch.zeros(1, 4, dtype=torch.long)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(padded, target), model(source, target), atol=1e-5, rtol=1e-5)


def test_causal_mask_behind_a_past():
    seen = causal_mask(2, 3)[0, 0] == 0
    assert seen.tolist() == [[True] * 4 + [False], [True] * 5]


def test_sinusoids_are_those_of_the_paper():
    table = sinusoids(10, 8)
    assert table[7, 4].item() == pytest.approx(torch.tensor(7 / 10000 ** (4 / 8)).sin().item(), abs=1e-6)
    assert table[7, 5].item() == pytest.approx(torch.tensor(7 / 10000 ** (4 / 8)).cos().item(), abs=1e-6)
    assert torch.equal(halved_sinusoids(10, 8)[:, :4], table[:, 0::2])


def test_the_embedding_is_shared_by_source_target_and_output():
    names = [name for name, _ in tiny().named_parameters() if "tokens" in name]
    assert names == ["text.tokens.weight"]
    separate = tiny(source_vocabulary=31)
    assert separate.source_tokens.weight.shape == (31, 16)
    assert separate(torch.tensor([[30, 29]]), tokens(1, 3)).shape == (1, 3, 23)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"width": 18}, "multiple of 4 heads"),
        ({"norm": "pre"}, "final_norm=True"),
        ({"end": 23}, "only 23"),
        ({"depht": 3}, "depht"),
    ],
)
def test_what_does_not_fit_together_is_said(wrong, said):
    with pytest.raises(ValidationError, match=said):
        TransformerConfig(**{**TINY, **wrong})


def test_a_captioner_reads_images():
    torch.manual_seed(0)
    encoder = vt.ViTConfig(
        image_size=(8, 16), patch_size=4, num_classes=None, width=24, depth=1, heads=2, mlp_dim=32
    )
    decoder = DecoderConfig(vocabulary=11, width=16, depth=2, heads=2, mlp_dim=32, max_length=12)
    model = vt.Captioner(CaptionerConfig(encoder=encoder, decoder=decoder)).eval()
    images = torch.randn(2, 3, 8, 16)
    with torch.no_grad():
        memory = model.encode(images)
        logits = model(images, torch.tensor([[1, 4, 5], [1, 6, 7]]))
    assert memory.context.shape == (2, 9, 24)
    assert logits.shape == (2, 3, 11)
    with pytest.raises(ValidationError, match="num_classes"):
        CaptionerConfig(encoder=encoder.model_copy(update={"num_classes": 10}), decoder=decoder)
