"""Every recipe says what it is, and its tiny form trains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from vitreous.cli import run as command
from vitreous.data.config import MixConfig
from vitreous.data.dataset import ArrayImages, DataSummary, Splits
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.models.names import config_of, create
from vitreous.tasks.pretraining.rules import find_recipe, recipe_names
from vitreous.tasks.recipe_choice import choose, choose_fine_tuning, choose_recipe, fitted_to_count
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner, in_steps, scaled_lr
from vitreous.training.recipes import NAMES, executed, recipe, source_differences, sourced
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure, leaves, settings_differences
from vitreous.training.step import LossOf, TrainStep

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_its_command_hardware_and_what_to_expect(name: str) -> None:
    text = recipe(name).text
    assert re.search(r"^    vitreous train", text, re.MULTILINE)
    assert "Hardware:" in text
    assert recipe(name).config.recipe == name
    assert re.search(r"\b(Time|29 s)\b", text)
    assert re.search(r"Expected accuracy|Held-out accuracy", text)


def test_a_recipe_whose_time_is_computed_says_what_reading_was_measured_to_cost() -> None:
    kept = json.loads((RESULTS / "recipe_reading.json").read_text(encoding="utf-8"))["recipes"]
    said = {}
    for name in recipe_names():
        text = " ".join(find_recipe(name).text.split())
        found = re.findall(r"Reading an image takes ([\d.]+) ms .*? takes (\d+) cores?\.", text)
        assert len(found) == ("computed, not measured" in text), name
        for milliseconds, cores in found:
            said[name] = float(milliseconds), int(cores)
    assert said == {name: (row["milliseconds"], row["cores"]) for name, row in kept.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_names_what_frameworks_disagree_on(name: str) -> None:
    if name == "deit-distilled":  # it names those of `deit`
        name = "deit"
    *_, choices = recipe(name).text.partition("Choices on which frameworks disagree:")
    assert re.search(r"[Ii]nitialization|starts at zero|drawn small", choices)
    assert "decay" in choices
    assert "crop" in choices
    assert re.search(r"RandAugment", choices)


@pytest.fixture(scope="module")
def made() -> Splits:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (24, 40, 40, 3), dtype=np.uint8)
    images = ArrayImages(pixels, np.arange(24) % 3, ("a", "b", "c"), name="made")
    return Splits(images, None, None, "made", DataSummary(24, 3, 40, 40, 3, False))


SMALL_MODEL = {"width": 32, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 3}
TINY = {"training": {"length": "2 steps", "batch_size": 8}, "model": SMALL_MODEL}
SMALL_IMAGES = {
    "model": {"image_size": 32, "patch_size": 8}
}  # which the convolutions of "from-scratch" are not for


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_the_tiny_form_trains(name: str, made: Splits, tmp_path: Path) -> None:
    config = configure(recipe(name).config, TINY, {} if name == "from-scratch" else SMALL_IMAGES)
    if name == "deit-distilled":
        teacher = RunDirectory.create(tmp_path / "teacher", config)
        model = create("ViT-Ti/8", image_size=32, width=16, depth=1, heads=2, mlp_dim=16, num_classes=3)
        model.labels = ["a", "b", "c"]
        teacher.save_model(model)
        config = configure(config, {"training": {"distillation": {"teacher": str(teacher.path)}}})
    run = RunDirectory.create(tmp_path / "run", config)
    trained = fit(plan_of_run(run, made))
    rows = run.metrics()
    assert rows[-1]["step"] == 2
    assert np.isfinite(rows[-1]["loss"])
    assert trained.model.labels == ["a", "b", "c"]
    for tensor in run.model().state_dict().values():
        assert torch.isfinite(tensor).all()


def test_the_linear_probe_moves_nothing_but_the_head(made: Splits, tmp_path: Path) -> None:
    config = configure(recipe("linear-probe").config, TINY, SMALL_IMAGES)
    before = dict(starting_model(config, made.train.classes).named_parameters())
    run = RunDirectory.create(tmp_path / "run", config)
    fit(plan_of_run(run, made))
    moved = {name for name, p in run.model().named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"head.weight", "head.bias"}


@pytest.mark.parametrize(("images", "epochs", "batch"), [(400, 50, 50), (50_000, 5, 64), (1_281_167, 5, 64)])
def test_fine_tuning_suits_the_data_and_the_encoder(images: int, epochs: int, batch: int) -> None:
    data = DataSummary(images, 10, 300, 300, 3, False)
    choice = choose_fine_tuning("photos", data, config_of("ViT-B/16"))
    training, own = choice.config.training, choose_recipe("photos", data).config
    assert (training.epochs, training.batch_size) == (epochs, batch)
    assert (training.optimizer.kind, training.optimizer.layer_decay) == ("adamw", 0.75)
    assert training.peak_lr == pytest.approx(own.training.peak_lr / 6)  # 128 / 768
    assert choice.config.augmentation.random_resized_crop is not None  # it sees the center, as published
    assert choice.config.augmentation.flip == own.augmentation.flip
    whole = choose_fine_tuning("photos", data, config_of("ViT-B/16"), "squash")
    assert whole.config.augmentation == own.augmentation
    assert "Table 4" not in " ".join(each.text for each in choice.reasons)
    # A run of the project's own is as small as a model from scratch, and trains as long.
    small = choose_fine_tuning("photos", data, own.model).config.training
    assert (small.epochs, small.peak_lr) == (own.training.epochs, own.training.peak_lr)
    assert small.optimizer.layer_decay is None
    assert (
        choose_fine_tuning("photos", data, config_of("BiT-R50x1")).config.training.optimizer.layer_decay
        is None
    )


OWN = ("digits", "from-scratch", "formulas")  # which follow no paper


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN])
def test_every_recipe_scales_down_to_the_images(name: str) -> None:
    """No batch of 256 for 142 images, no warm-up that is longer than the training."""
    before = recipe(name).config
    config, (sentence,) = fitted_to_count(before, 142)
    training = config.training
    assert training.batch_size == 17
    factor = 17 / before.training.batch_size
    power = 1 if training.optimizer.kind == "sgd" or training.lr_batch_size else 0.5
    assert scaled_lr(training) == pytest.approx(scaled_lr(before.training) * factor**power)
    total = training.total_steps(142 // 17)
    assert in_steps(training.schedule.warmup, total) <= 0.1 * total + 1
    assert sentence.startswith(f"142 images: batches of 17 instead of {before.training.batch_size}")


@pytest.mark.parametrize("name", [name for name in recipe_names() if name not in OWN])
def test_every_setting_that_the_source_computes_is_the_same_or_the_reason_is_known(name: str) -> None:
    for row in sourced(find_recipe(name)):
        assert (row.here != row.there) == bool(row.why), row


def test_the_sources_were_run_for_all_recipes_that_cite_code() -> None:
    counts = {name: len(sourced(find_recipe(name))) for name in recipe_names() if name not in OWN}
    without = {name for name, count in counts.items() if not count}  # which follow the tables of a paper
    assert without == {"paper-jft", "paper-imagenet1k", "paper-imagenet21k", "paper-masked-patch", "vtab-1k"}
    assert sum(counts.values()) > 200


def test_rows_are_those_of_the_tables() -> None:
    """Table 3 of 2010.11929, by model; MAE's FINETUNE.md; Table 2's resolutions; BiT-HyperRule by images."""
    jft = recipe("paper-jft")
    found = {
        name: (training.epochs, training.peak_lr)
        for name in (
            "ViT-B/32",
            "ViT-L/16",
            "ViT-H/14",
            "R50+ViT-L/32",
            "R50+ViT-L/16",
            "BiT-R50x2",
            "BiT-R152x1",
        )
        for training in [jft.suited(name=name).training]
    }
    assert found == {
        "ViT-B/32": (7, 8e-4),
        "ViT-L/16": (14, 4e-4),
        "ViT-H/14": (14, 3e-4),
        "R50+ViT-L/32": (7, 2e-4),
        "R50+ViT-L/16": (14, 4e-4),
        "BiT-R50x2": (7, 1e-3),
        "BiT-R152x1": (7, 6e-4),
    }
    large = recipe("mae-fine-tuning").suited(encoder=config_of("ViT-L/16", class_token=True))
    assert (scaled_lr(large.training), large.training.optimizer.layer_decay) == (4e-3, 0.75)
    assert (large.model.drop_path, large.training.epochs) == ((0.0, 0.2), 50)
    assert scaled_lr(recipe("mae-fine-tuning").config.training) == 2e-3
    sizes = [recipe("paper-fine-tuning-imagenet").suited(encoder=config_of(name)).model.image_size for name in
             ("ViT-B/16", "ViT-L/16", "ViT-H/14")]  # fmt: skip
    assert sizes == [(384, 384), (512, 512), (518, 518)]
    named = recipe("paper-fine-tuning-imagenet").suited(name="ViT-H/14").model  # 384 is no size for it
    assert (named.image_size, named.patch_size) == ((518, 518), (14, 14))
    rule = recipe("bit-hyperrule")
    steps = [rule.suited(images=count).training.steps for count in (19_999, 20_000, 499_999, 500_000)]
    assert steps == [500, 10_000, 10_000, 20_000]
    few, many = (rule.suited(images=count).augmentation.mix for count in (19_999, 20_000))
    assert few is None
    assert many == MixConfig(mixup=0.1)
    small, large = (rule.suited(images=50_000, size=size) for size in ((32, 32), (96, 96)))
    assert (small.model.image_size, large.model.image_size) == ((128, 128), (480, 480))
    assert [each.augmentation.random_resized_crop.scale[0] for each in (small, large)] == [0.64, 0.88]
    deit3 = [recipe("deit3").suited(name=f"ViT-{size}").model for size in ("S/16", "B/16", "L/16", "H/14")]
    assert [model.drop_path for model in deit3] == [
        (rate, rate) for rate in (0.05, 0.2, 0.45, 0.6)
    ]  # README_revenge.md
    vit5 = [recipe("vit5").suited(name=f"ViT-5-{size}/16") for size in ("S", "B", "L")]
    assert [each.model.drop_path[0] for each in vit5] == [0.05, 0.2, 0.35]
    assert [each.training.epochs for each in vit5] == [800, 800, 400]
    assert {each.model.norm_kind for each in vit5} == {"rms"}


@pytest.mark.parametrize(
    "name",
    ["augreg", "paper-imagenet1k", "paper-imagenet21k", "paper-jft", "paper-masked-patch", "s16-baseline"],
)
def test_recipes_of_jax_code_have_its_gelu(name: str) -> None:
    assert find_recipe(name).config.model.mlp == "gelu_tanh"


def test_bit_hyperrule_follows_the_size_of_the_images() -> None:
    data = DataSummary(50_000, 10, 32, 32, 3, False)
    chosen = choose("cifar", data, name="bit-hyperrule")
    assert chosen.config.model.image_size == chosen.config.prepared.size == (128, 128)


def test_another_model_keeps_what_a_recipe_says_of_its_own() -> None:
    base = recipe("deit").suited(name="ViT-B/16").model
    assert (base.width, base.drop_path) == (768, (0.0, 0.1))
    wide = recipe("s16-baseline").suited(name="ViT-B/16").model
    assert (wide.width, wide.pooling.kind, wide.class_token, wide.position.kind) == (
        768,
        "mean",
        False,
        "sincos-2d",
    )
    assert recipe("from-scratch").suited(name="ViT-B/16").model == config_of("ViT-B/16", image_size=64)


def test_fresh_heads_are_drawn_as_the_recipe_says() -> None:
    small = {"model": {**SMALL_MODEL, **SMALL_IMAGES["model"], "representation_size": None}}
    head = starting_model(configure(recipe("augreg").config, small), "abc").head
    assert torch.equal(head.bias, torch.full((3,), -10.0))
    assert not head.weight.any()
    head = starting_model(configure(recipe("mae-fine-tuning").config, small), "abc").head
    assert 1e-5 < head.weight.std() < 3e-5
    assert not head.bias.any()


def test_positions_on_patches_alone_leave_the_class_token_none() -> None:
    small = {"model": {**SMALL_MODEL, **SMALL_IMAGES["model"]}}
    config = configure(recipe("deit3").config, small)
    model = starting_model(config, "abc")
    table = model.position.table
    assert not table[0].any()
    assert table[1:].all()
    model.head.weight.data.normal_()
    before = table.detach().clone()
    learner = Learner.begin(model, config.training)
    for optimizer in learner.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = 0.1

    def loss(model, batch, generator):
        return model(batch.images).logsumexp(dim=1).sum(), {}

    step = TrainStep(learner, LossOf(model, loss), config.training, seed=0)
    step.prepare(Batch(torch.randn(2, 3, 32, 32), torch.zeros(2).long(), torch.arange(2)))
    assert not table.grad[0].any()
    assert table.grad[1:].any()
    step.take()
    assert not table[0].any()
    assert (table[1:] != before[1:]).any()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("several", [True, False])
def test_the_chosen_recipe_suits_the_data(channels: int, several: bool) -> None:
    data = DataSummary(900, 7, 60, 80, channels, several)  # type: ignore[arg-type]
    choice = choose_recipe("photos", data)
    assert choice.config.model.num_classes == 7
    assert choice.config.model.channels == len(choice.config.preprocessing.mean) == channels
    assert choice.config.training.loss == ("sigmoid" if several else "softmax")
    assert "900 images of 7 classes" in " ".join(each.text for each in choice.reasons)


def test_differences_name_every_leaf_once() -> None:
    one, other = recipe("deit").config, recipe("deit-distilled").config
    rows = settings_differences(one, other)
    distillation = {f"training.distillation.{name}" for name in ("kind", "teacher", "weight")}
    assert set(rows) == {"model.pooling.kind", *distillation}
    assert not settings_differences(one, one)
    assert {*leaves(one), *leaves(other)} >= set(rows)


def test_an_unknown_recipe_is_an_input_error() -> None:
    with pytest.raises(InputError, match="did you mean 'deit3'"):
        recipe("deit33")


def test_the_command_shows_lists_and_compares(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["recipe"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == recipe_names()
    assert command(["recipe", "s16-baseline"]) == 0
    shown = capsys.readouterr().out
    assert "2205.01580" in shown
    assert "weight_decay = 0.1" in shown
    assert command(["recipe", "deit", "--diff", "s16-baseline"]) == 0
    assert "training.optimizer.weight_decay" in capsys.readouterr().out
    for name, expected in {
        "paper-jft": "no code computes",
        "bit-hyperrule": "all 28 settings",
    }.items():
        assert command(["recipe", name, "--diff", "source"]) == 0
        assert expected in capsys.readouterr().out


def test_a_difference_that_is_not_one_of_settings_is_said_and_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of what recipes do, not only of what they set: nothing stands under "none differs" alone."""
    for name in sorted({row["recipe"] for row in executed()["rows"]}):
        apart = [
            row for row in source_differences(name) if row["difference"] > row["limit"] and not row["peer"]
        ]
        assert command(["recipe", name, "--diff", "source"]) == 0
        shown = capsys.readouterr().out
        for row in apart:
            line = next(each for each in shown.splitlines() if each.startswith("the code behaves"))
            assert row["quantity"] in line
            assert row["why"]
