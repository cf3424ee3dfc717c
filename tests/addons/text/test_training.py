"""Training what writes text: the paper's schedule, checkpoint averaging, resumed runs, saved models."""

import json
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.addons.text.batches import TextBatch, padded_ids, tokens_per_target
from vitreous.addons.text.config import CaptionerConfig
from vitreous.addons.text.models import Reader, Translator
from vitreous.addons.text.task import (
    RECIPES,
    TranslationConfig,
    last_checkpoints,
    next_token,
    pairs_config,
)
from vitreous.addons.text.text_pairs import Pair, Parallel, number_pairs
from vitreous.addons.text.tokenizer import PAD, Tokenizer, tokenizer_from_json
from vitreous.addons.text.transformer import Captioner
from vitreous.checkpoints.native import save_native
from vitreous.tasks import task_named
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.training_run import fit, open_run, plan_of_run, with_run
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Average, Learner, learning_rate
from vitreous.training.machine import ON_CPU
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure
from vitreous.training.trainer import NotFinite

pytestmark = pytest.mark.usefixtures("quick_figures")

CPU = torch.device("cpu")


def fresh_model(config: Any) -> Any:
    return task_named(config.task).build(config, None, steps=1)


@pytest.fixture(scope="module")
def data():
    pairs = list(number_pairs(60))
    return Parallel(pairs[:180], pairs[180:200], 0, "numbers")


@pytest.fixture(scope="module")
def tiny():
    settings = {
        "model": {"width": 16, "heads": 2, "mlp_dim": 16, "depth": 1, "encoder_depth": 1, "dropout": 0.1},
        "tokenizer": {"vocabulary": 300},
        "training": {
            "length": "12 steps",
            "batch_size": 16,
            "schedule": {"warmup": 2},
            "records": {"save_every": 0},
        },
        "averaging": {"checkpoints": 2, "every": 3},
    }
    return packaged_config(TranslationConfig, RECIPES / "numbers.toml", settings)


def trained(path, config, data):
    run = RunDirectory.create(path, config)
    done = fit(plan_of_run(run, data))
    return done.model, tokenizer_from_json(done.batches.files["tokenizer.json"], where="the run")


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_the_papers_schedule():
    width, warmup, total = 512, 4000, 100_000
    training = pairs_config(1_000_000).training
    peak, schedule = training.peak_lr, training.schedule
    assert (training.steps, schedule.warmup) == (total, warmup)
    for step in (1, 100, 3999, 4000, 10_000, 99_999):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert peak * learning_rate(step - 1, total, schedule) == pytest.approx(paper, rel=2e-4)


def test_larger_data_get_the_papers_base_model():
    base = pairs_config(1_000_000).model
    assert (base.width, base.depth, base.encoder_depth, base.heads, base.mlp_dim) == (512, 6, 6, 8, 2048)
    assert pairs_config(1000).model.width < pairs_config(50_000).model.width < 512


def test_the_mean_of_the_last_checkpoints():
    model = torch.nn.Linear(1, 1, bias=False)
    average = Average(model, last_checkpoints(total=10, count=3, every=2))
    seen = []
    for step in range(10):
        with torch.no_grad():
            model.weight.fill_(float(step))
        average.update(step)
        seen.append(average.model.weight.item())
    assert seen[-1] == pytest.approx((5 + 7 + 9) / 3)
    assert seen[3] == 3  # before that, the newest checkpoint


@pytest.mark.parametrize("total", [1, 3, 90, 100, 101, 250, 400, 640])
def test_the_mean_of_the_last_checkpoints_has_nothing_of_the_initial_weights(total):
    """Fewer checkpoints than asked for, as many, and more; resumed after a half."""
    count, every = 5, 100

    def begun():
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        return Learner.begin(model, TrainingConfig(), averaging=last_checkpoints(total, count, every))

    def learn(learner, steps):
        for step in steps:
            torch.nn.init.constant_(learner.model.weight, 1.0 + step)
            learner.average.update(step)
            learner.step = step + 1

    first, resumed = begun(), begun()
    learn(first, range(total // 2))
    resumed.restore(first.state())
    assert total < 2 or resumed.result.weight.item() >= 1
    learn(resumed, range(total // 2, total))
    checkpoints = range(total, 0, -every)[:count]
    assert resumed.result.weight.item() == pytest.approx(sum(checkpoints) / len(checkpoints))


def test_a_run_made_longer_before_its_first_checkpoint_has_nothing_of_the_initial_weights():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    average = Average(model, last_checkpoints(total=90, count=5, every=100))
    torch.nn.init.ones_(model.weight)
    for step in range(150):
        if step == 70:  # later than the first checkpoint of 150 steps, earlier than that of 90
            average.weight = last_checkpoints(total=150, count=5, every=100)
        average.update(step)
    assert average.model.weight.item() == 1


def test_padding_counts_nowhere_in_the_loss(tiny):
    model = fresh_model(tiny).eval()
    source, target = padded_ids([[5, 6, 2], [7, 2]]), padded_ids([[1, 8, 9, 2], [1, 8, 2]])
    objective = next_token(0.1)
    tokens = tokens_per_target([[1, 8, 9, 2], [1, 8, 2]], 2)
    together, _ = objective(model, TextBatch(source, target, tokens), torch.Generator())
    alone = [
        objective(
            model,
            TextBatch(source[i : i + 1, :n], target[i : i + 1, :m], torch.tensor([m - 1.0])),
            torch.Generator(),
        )[0]
        for i, n, m in ((0, 3, 4), (1, 2, 3))
    ]
    expected = (3 * alone[0] + 2 * alone[1]) / 5
    torch.testing.assert_close(together, expected, atol=1e-5, rtol=1e-5)
    parts = [
        objective(model, TextBatch(source[i:][:1], target[i:][:1], tokens[:1]), torch.Generator())[0]
        for i in (0, 1)
    ]
    torch.testing.assert_close(sum(parts) / 2, expected, atol=1e-5, rtol=1e-5)
    assert target[1, -1] == PAD


def test_label_smoothing_is_the_papers(tiny):
    model = fresh_model(tiny).eval()
    source, target = padded_ids([[5, 6, 2]]), padded_ids([[1, 8, 2]])
    batch = TextBatch(source, target, torch.tensor([2.0]))
    plain, smooth = (next_token(s)(model, batch, torch.Generator())[0] for s in (0.0, 0.1))
    log_p = model(source, target[:, :-1]).log_softmax(dim=-1)
    torch.testing.assert_close(smooth, 0.9 * plain - 0.1 * log_p.mean())


@pytest.mark.slow
def test_a_resumed_run_is_bit_equal(tmp_path, tiny, data):
    whole, _ = trained(tmp_path / "whole", tiny, data)
    again, _ = trained(tmp_path / "again", tiny, data)
    assert torch.equal(weights(whole), weights(again))

    half = configure(tiny, {"training": {"length": "7 steps"}})
    run = RunDirectory.create(tmp_path / "half", tiny)
    stopped = RunDirectory(run.path, half)  # the same run, stopped after 7 steps
    fit(plan_of_run(stopped, data))
    assert run.states.steps()[-1] == 7
    reopened = open_run(run.path)
    assert reopened.config == tiny
    # The mean of checkpoints depends on the length of the run, so only what learns is compared.
    resumed = fit(plan_of_run(reopened, data)).model
    assert resumed is not None
    newest = [open_run(tmp_path / name).states.newest().tensors for name in ("whole", "half")]
    learned = [{k: v for k, v in tensors.items() if k.startswith("model/")} for tensors in newest]
    assert all(torch.equal(learned[0][name], learned[1][name]) for name in learned[0])


def test_the_loss_falls(tmp_path, tiny, data):
    config = configure(
        tiny, {"training": {"length": "60 steps", "records": {"log_every": 10, "save_every": 1e9}}}
    )
    trained(tmp_path / "run", config, data)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < 0.75 * rows[0]["loss"]


def test_a_translator_comes_back_from_its_run(tmp_path, tiny, data):
    model, tokenizer = trained(tmp_path / "run", tiny, data)
    loaded = Translator.load(tmp_path / "run")
    assert torch.equal(weights(loaded.model), weights(model))
    texts = [pair.source for pair in data.test]
    first = Translator(model, tokenizer).translate(texts, max_length=20)
    assert loaded.translate(texts, max_length=20) == first
    for path in ("run", "run/model", "run/model/model.safetensors"):
        assert torch.equal(weights(vt.load(tmp_path / path)), weights(model))
    with pytest.raises(vt.InputError, match="leave out num_classes"):
        vt.load(tmp_path / "run", num_classes=3)
    assert [loaded.translate([text], max_length=20)[0].text for text in texts[:3]] == [
        t.text for t in first[:3]
    ]


@pytest.mark.parametrize("kind", ["sincos-2d", "rotary-2d", "learned"])
def test_a_reader_comes_back_with_its_positions(tmp_path, kind):
    width = {"width": 32, "depth": 1, "heads": 2, "mlp_dim": 32}
    encoder = {**width, "position": {"kind": kind}, "image_size": (12, 80), "patch_size": (4, 4)}
    small = {"encoder": {**encoder, "num_classes": None}, "decoder": {**width, "vocabulary": 300}}
    config = CaptionerConfig.checked({}, small)
    model = Captioner(config).eval()
    save_native(model, tmp_path, files={"tokenizer.json": Tokenizer.train(["0123456789"], 270).to_json()})
    loaded = Reader.load(tmp_path).model.to("cpu")
    images, ids = torch.randn(2, 3, 12, 80), torch.tensor([[1, 5], [1, 6]])
    with torch.no_grad():
        assert torch.equal(loaded(images, ids), model(images, ids))


def test_a_tokenizer_of_another_model_is_refused(tmp_path, tiny, data):
    trained(tmp_path / "run", tiny, data)
    other = Tokenizer.train(["alpha beta gamma"], 270)
    (tmp_path / "run" / "model" / "tokenizer.json").write_text(other.to_json())
    with pytest.raises(vt.InputError, match="not the tokenizer that this model was trained with"):
        Translator.load(tmp_path / "run")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path, tiny):
    vocabulary = {"vocabulary": 262}
    model = task_named(configure(tiny, {"model": vocabulary, "tokenizer": vocabulary}).task).build(
        configure(tiny, {"model": vocabulary, "tokenizer": vocabulary}), None, steps=1
    )
    tokenizer = Tokenizer.train(["alpha beta gamma"], 270)
    save_native(model, tmp_path, files={"tokenizer.json": tokenizer.to_json()})
    with pytest.raises(vt.InputError, match="do not belong together"):
        Translator.load(tmp_path)


def test_damaged_models_are_said(tmp_path, tiny):
    tokenizer = Tokenizer.train(["alpha"], 265).to_json()
    save_native(fresh_model(tiny), tmp_path, files={"tokenizer.json": tokenizer})
    config = tmp_path / "config.json"
    told = json.loads(config.read_text())
    config.write_text(json.dumps({**told, "model": {**told["model"], "width": 15}}))
    with pytest.raises(vt.InputError, match="multiple of 2 heads"):
        vt.load(tmp_path)
    config.write_text(json.dumps({**told, "model": {**told["model"], "depth": 2}}))
    with pytest.raises(vt.InputError, match="missing weights"):
        vt.load(tmp_path)
    config.write_text("{}")
    with pytest.raises(vt.InputError, match="not a model folder of vitreous"):
        vt.load(tmp_path, format="vitreous")


def test_texts_that_cannot_be_translated_are_said(tmp_path, tiny, data):
    model, tokenizer = trained(tmp_path / "run", tiny, data)
    translator = Translator(model, tokenizer)
    with pytest.raises(vt.InputError, match="empty line"):
        translator.translate(["  "])
    with pytest.raises(vt.InputError, match="the model reads 64"):
        translator.translate(["x" * 100])
    assert len(translator.translate(["日本 ☃"], max_length=8)) == 1  # outside the alphabet: spelled in bytes


def test_the_models_vocabulary_follows_the_tokenizers():
    larger = {"tokenizer": {"vocabulary": 3000}}
    assert packaged_config(TranslationConfig, RECIPES / "numbers.toml", larger).model.vocabulary == 3000
    with pytest.raises(vt.InputError, match=r"tokenizer\.vocabulary is 3000, but the model knows 400"):
        packaged_config(TranslationConfig, RECIPES / "numbers.toml", {**larger, "model": {"vocabulary": 400}})


def test_settings_are_checked():
    with pytest.raises(vt.InputError, match=r"did you mean 'model\.width'"):
        configure(TranslationConfig(), {"model": {"widht": 3}})
    with pytest.raises(vt.InputError, match=r"model.*multiple of 8 heads"):
        configure(TranslationConfig(), {"model": {"width": 20}})


@pytest.mark.parametrize(
    "asked",
    [
        {"ema": {"decay": 0.9}},
        {"loss": "sigmoid"},
        {"distillation": {"teacher": "ViT-B/16"}},
        {"initialization": "timm"},
        {"freeze": "encoder"},
        {"lora": {"rank": 2}},
        {"machine": {"checkpointing": True}},
        {"optimizer": {"layer_decay": 0.5}},
    ],
)
def test_what_this_training_does_not_do_is_refused(asked):
    base = packaged_config(TranslationConfig, RECIPES / "numbers.toml")
    with pytest.raises(vt.InputError, match=rf"training\.{next(iter(asked))}.*models that write text"):
        configure(base, {"training": asked})


def test_who_asks_for_a_length_gets_it():
    base = packaged_config(TranslationConfig, RECIPES / "numbers.toml")
    assert configure(base, {"training": {"length": "2 epochs"}}).training.total_steps(7) == 14
    assert configure(base, {"training": {"length": "3 steps"}}).training.total_steps(7) == 3


def test_the_precision_is_decided_once(tmp_path, tiny):
    auto = configure(tiny, {"training": {"precision": "auto"}})
    settings = auto.model_dump(exclude={"source", "task"})
    run = with_run(
        task_named("translation").plan(None, settings), settings, ON_CPU, out=tmp_path / "run"
    ).made
    assert run.config.training.precision in ("fp32", "bf16")
    assert open_run(run.path).config == run.config


def test_trackers_are_sent_every_row(tmp_path, tiny, data, monkeypatch):
    rows, settings = [], {}
    library = ModuleType("wandb")
    library.init = lambda project, name, config: settings.update(config)
    library.log = lambda row, step: rows.append(step)
    library.finish = lambda: rows.append("closed")
    monkeypatch.setitem(sys.modules, "wandb", library)
    config = configure(
        tiny, {"training": {"length": "2 steps", "records": {"log_every": 1, "track": "wandb"}}}
    )
    run = RunDirectory.create(tmp_path / "run", config)
    with run.tracked() as trackers:
        fit(plan_of_run(run, data), callbacks=trackers)
    assert rows == [1, 2, "closed"]
    assert settings["model.width"] == "16"


def test_a_loss_that_is_not_finite_keeps_the_last_good_weights(tmp_path, tiny, data):
    config = configure(tiny, {"training": {"length": "99 steps", "peak_lr": 1e30}})
    with (
        pytest.warns(UserWarning, match="not finite"),
        pytest.raises(NotFinite, match=r"they are in .*model"),
    ):
        trained(tmp_path / "run", config, data)
    kept = weights(Translator.load(tmp_path / "run").model)
    assert torch.isfinite(kept).all()
    assert not torch.equal(kept, weights(fresh_model(config)))  # the first step was good


def test_pairs_of_every_length_learn_nothing_from_each_other(tiny):
    pairs = [Pair("zwei", "two", i) for i in range(20)]
    with pytest.raises(vt.InputError, match="a batch of 32 is more than the 20"):
        task_named("translation").prepare(
            configure(tiny, {"training": {"batch_size": 32}}),
            Parallel(pairs, [], 0, "x"),
            ON_CPU,
        )
