"""Parity with the encoder-decoders of PyTorch and Hugging Face: vectors, logits, attention, decoded ids."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt
from vitreous.addons.text.beam_search import beam_search, greedy
from vitreous.addons.text.layers import causal_mask, halved_sinusoids, padding_mask
from vitreous.addons.text.models import read_tokenizer

TOLERANCE = 2e-5


def difference(ours, theirs):
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max())


@torch.no_grad()
def test_torch_nn_transformer(golden):
    case = golden("torch_nn_transformer")
    folder, given, expected = case.folder, case.array, case.expected
    model = vt.load(folder / "model.pt", heads=4)
    source, target = given("src"), given("tgt")
    source_mask = padding_mask(~given("src_key_padding_mask"))
    causal = causal_mask(5)
    assert torch.equal(causal[0, 0] != 0, given("tgt_mask"))
    target_mask = causal + padding_mask(~given("tgt_key_padding_mask"))
    assert difference(model.encoder(source, source_mask), expected["memory"]) < TOLERANCE
    assert difference(model(source, target), expected["output_nomask"]) < TOLERANCE
    assert difference(model(source, target, None, causal), expected["output_causal"]) < TOLERANCE
    assert difference(model(source, target, source_mask, target_mask), expected["output"]) < TOLERANCE


def test_torch_nn_transformer_pre_norm_of_the_installed_torch():
    torch.manual_seed(0)
    theirs = torch.nn.Transformer(
        16, 2, 2, 3, 32, norm_first=True, activation="gelu", batch_first=True, dropout=0.0
    ).eval()
    ours = vt.load(theirs.state_dict(), format="torch-transformer", heads=2, norm="pre", activation="gelu")
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    with torch.no_grad():
        assert difference(ours(source, target), theirs(source, target)) < TOLERANCE


def test_it_learns_to_copy_step_by_step_as_the_transformer_of_torch():
    """The same gradients through encoder, decoder and cross-attention: the losses of thirty steps agree."""
    torch.manual_seed(0)
    theirs = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True, dropout=0.0)
    ours = vt.load(theirs.state_dict(), format="torch-transformer", heads=2).train()
    projections = [torch.nn.Linear(16, 4) for _ in range(2)]
    projections[1].load_state_dict(projections[0].state_dict())
    batches = [torch.randint(4, (16, 5)) for _ in range(30)]
    embedding, causal = torch.randn(5, 16), torch.nn.Transformer.generate_square_subsequent_mask(5)
    losses = []
    for model, projection in zip((ours, theirs), projections, strict=True):
        optimizer = torch.optim.SGD([*model.parameters(), *projection.parameters()], lr=0.1, momentum=0.9)
        found = []
        for tokens in batches:
            source = embedding[tokens]
            shifted = embedding[torch.cat([torch.full((16, 1), 4), tokens[:, :-1]], dim=1)]
            masked = (None, causal_mask(5)) if model is ours else (None, causal)
            logits = projection(model(source, shifted, *masked))
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    assert losses[0][0] == pytest.approx(losses[1][0], abs=1e-6)
    assert losses[0][-1] < 0.9 * losses[0][0]


def test_what_is_no_torch_transformer_is_said():
    with pytest.raises(vt.InputError, match=r"missing weights: encoder\.layers\.0"):
        vt.load({"weight": torch.zeros(1)}, format="torch-transformer", heads=1)


@torch.no_grad()
def test_marian_logits(golden):
    case = golden("hf_marian")
    folder, given, expected = case.folder, case.array, case.expected
    model = vt.load(folder, format="marian")
    memory = model.encode(given("input_ids"), given("attention_mask").bool())
    assert difference(memory.context, expected["encoder_last_hidden_state"]) < TOLERANCE
    logits = model.decode(given("decoder_input_ids"), memory)
    assert difference(logits, expected["logits"]) < TOLERANCE
    # Hugging Face leaves out of the loss only what is marked -100; here every label counts.
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given("labels").flatten())
    assert float(loss) == pytest.approx(float(expected["loss"]), abs=TOLERANCE)
    assert difference(halved_sinusoids(16, 32), expected["embed_positions"]) < 1e-6


@torch.no_grad()
def test_marian_attention(golden):
    case = golden("hf_marian")
    folder, given, expected = case.folder, case.array, case.expected
    model = vt.load(folder, format="marian")
    seen = {}

    def keep(module, arguments):
        seen[module] = module.attention_weights(*arguments[:3] if len(arguments) == 4 else arguments[:2])

    encoder = [block.attention for block in model.encoder.blocks]
    cross = [block.cross_attention for block in model.text.decoder.blocks]
    for module in encoder + cross:
        module.register_forward_pre_hook(keep)
    model.decode(given("decoder_input_ids"), model.encode(given("input_ids"), given("attention_mask").bool()))
    assert difference(torch.stack([seen[each] for each in encoder]), expected["encoder_attn"]) < TOLERANCE
    assert difference(torch.stack([seen[each] for each in cross]), expected["cross_attn"]) < TOLERANCE


def test_marian_decoding(golden):
    case = golden("hf_marian")
    folder, given, expected = case.folder, case.array, case.expected
    model = vt.load(folder, format="marian")
    memory = model.encode(given("input_ids"), given("attention_mask").bool())
    assert difference(greedy(model.text, memory, max_length=14), expected["greedy"]) == 0
    beams = beam_search(model.text, memory, max_length=14, length_penalty=1.0, length_offset=0)
    assert difference(beams.ids[:, 0], expected["beam4"]) == 0
    assert difference(beams.scores[:, 0], expected["beam4_scores"]) < TOLERANCE
    early = beam_search(
        model.text, memory, max_length=14, length_penalty=0.6, length_offset=0, early_stopping="first"
    )
    assert difference(early.ids.flatten(0, 1), expected["beam4_lp06_early_all"]) == 0
    assert difference(early.scores.flatten(), expected["beam4_lp06_early_scores"]) < TOLERANCE


def test_trocr(golden):
    case = golden("hf_trocr")
    folder, given, expected = case.folder, case.array, case.expected
    model = vt.load(folder)
    with torch.no_grad():
        memory = model.encode(given("input"))
        assert difference(memory.context, expected["encoder_last_hidden_state"]) < TOLERANCE
        assert difference(model.decode(given("decoder_input_ids"), memory), expected["logits"]) < TOLERANCE
    assert difference(greedy(model.text, memory, max_length=12), expected["greedy"]) == 0
    beams = beam_search(model.text, memory, max_length=12, length_penalty=1.0, length_offset=0)
    assert difference(beams.ids[:, 0, :9], expected["beam4"]) == 0
    assert (
        beams.ids[:, 0, 9:] == model.text.config.pad
    ).all()  # ours are as long as the longest of all beams
    assert difference(beams.scores[:, 0], expected["beam4_scores"]) < TOLERANCE


@pytest.mark.parametrize("name", ["hf_marian", "hf_trocr"])
def test_a_foreign_tokenizer_is_refused_in_one_sentence(golden, name):
    with pytest.raises(vt.InputError, match="another library, whose tokenizer is not supported"):
        read_tokenizer(golden(name).folder)


def test_foreign_formats_are_recognized(golden):
    assert isinstance(vt.load(golden("hf_marian").folder), vt.Transformer)
    assert isinstance(vt.load(golden("hf_trocr").folder), vt.Captioner)
    assert isinstance(vt.load(golden("hf_vit").folder), vt.ViT)
    with pytest.raises(vt.InputError, match="leave out image_size"):
        vt.load(golden("hf_trocr").folder, image_size=64)
    with pytest.raises(vt.InputError, match="not a timm checkpoint"):
        vt.load(golden("hf_trocr").folder, format="timm")
    with pytest.raises(vt.InputError, match="holds a Transformer, where a Captioner is needed"):
        vt.Reader.load(golden("hf_marian").folder)


def test_the_encoder_of_a_captioner_with_another_decoder(golden, tmp_path):
    """ViT with GPT-2, as nlpconnect/vit-gpt2-image-captioning: the tower is read, as of others."""
    folder = golden("hf_trocr").folder
    state = load_file(folder / "model.safetensors")
    encoder = {name: each for name, each in state.items() if name.startswith("encoder.")}
    other = {"decoder.transformer.h.0.ln_1.weight": torch.ones(8), "decoder.lm_head.weight": torch.ones(9, 8)}
    save_file(encoder | other, tmp_path / "model.safetensors")
    described = json.loads((folder / "config.json").read_text())
    described["decoder"] = {"model_type": "gpt2"}
    (tmp_path / "config.json").write_text(json.dumps(described))
    loaded = vt.load(tmp_path)
    images = torch.randn(1, 3, *loaded.config.image_size)
    whole = vt.load(folder)
    torch.testing.assert_close(loaded.tokens(images), whole.encoder.tokens(images), atol=2e-5, rtol=0)
