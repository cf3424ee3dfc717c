"""Settings to a configuration and back."""

import tomllib
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from vitreous.errors import InputError
from vitreous.extensions import tasks
from vitreous.models.bit import BiTConfig
from vitreous.tasks import task_named
from vitreous.training.config import RunConfig
from vitreous.training.recipes import NAMES, recipe
from vitreous.training.settings import configure, leaves, to_toml, validated


@pytest.mark.parametrize("name", NAMES)
def test_config_toml_is_complete(name: str) -> None:
    config = recipe(name).config
    tree = tomllib.loads(to_toml(config))
    assert validated(tree, RunConfig) == config
    assert configure(RunConfig(), tree) == config  # also laid over something else


@settings(max_examples=20, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "training": st.fixed_dictionaries(
                {},
                optional={
                    "length": st.sampled_from(["3 steps", "0.25 epochs", "1.5 minutes"]),
                    "ema": st.none() | st.fixed_dictionaries({"decay": st.floats(0.1, 0.9)}),
                    "optimizer": st.fixed_dictionaries({"clip_norm": st.none() | st.floats(0.1, 9)}),
                },
            ),
            "model": st.fixed_dictionaries(
                {"position": st.fixed_dictionaries({"kind": st.sampled_from(["none", "learned"])})},
                optional={"final_norm": st.sampled_from(["none", "tokens"]), "num_classes": st.none()},
            ),
            "augmentation": st.fixed_dictionaries({"affine": st.none() | st.just({"rotate": 3.0})}),
        },
    )
)
def test_any_settings_survive_the_file(tree: dict[str, Any]) -> None:
    config = configure(recipe("digits").config, tree)
    assert validated(tomllib.loads(to_toml(config)), RunConfig) == config


def test_one_leaf_changes_one_leaf() -> None:
    before = recipe("digits").config
    after = configure(before, {"training": {"optimizer": {"clip_norm": 0.5}}})
    changed = {name for name, value in leaves(after).items() if leaves(before)[name] != value}
    assert changed == {"training.optimizer.clip_norm"}


def test_who_asks_for_a_length_gets_it() -> None:
    steps = recipe("paper-fine-tuning").config
    assert steps.training.steps
    asked = configure(steps, {"training": {"length": "2 epochs"}})
    assert asked.training.total_steps(7) == 14
    assert configure(asked, {"training": {"length": "3 steps"}}).training.total_steps(7) == 3


def test_one_name_is_a_list_of_one() -> None:
    tree = {"records": {"track": "wandb"}, "freeze": "backbone", "lora": {"parts": "mlp"}}
    training = configure(RunConfig(), {"training": tree}).training
    assert (training.records.track, training.freeze, training.lora.parts) == (
        ("wandb",),
        ("backbone",),
        ("mlp",),
    )
    assert configure(RunConfig(), {"training": {"records": {"track": "none"}}}).training.records.track == ()
    with pytest.raises(InputError, match=r"training\.records\.track.*'wandb', 'mlflow' or 'trackio'"):
        configure(RunConfig(), {"training": {"records": {"track": "wandbb"}}})


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (
            {"training": {"peak_lrr": 1}},
            "unknown setting training.peak_lrr: did you mean 'training.peak_lr'?",
        ),
        ({"peak_lr": 1}, "did you mean 'training.peak_lr'?"),
        ({"modell": {"depth": 1}}, "unknown setting modell: did you mean 'model'?"),
        ({"model": {"depht": 1}}, "did you mean 'model.depth'?"),
        ({"model": {"stem": 3}}, "model.stem is a group of settings"),
        ({"model": {"patch_size": 3}}, "not a multiple of patch size 3: use 9"),
        (
            {"training": {"length": "-1 epochs"}},
            "training.length: '-1 epochs' is not a length: write 90 epochs",
        ),
        ({"training": {"length": "0 epochs"}}, "leaves no time to train: pass a number above 0"),
        ({"training": {"length": "2.5 steps"}}, "is not a whole number of steps"),
        ({"training": {"epochs": 3}}, "unknown setting training.epochs: did you mean 'training.length'?"),
        (
            {"training": {"batch_size": 7, "machine": {"grad_accum_steps": 2}}},
            "multiple of training.machine.grad_accum",
        ),
        (
            {"preprocessing": {"size": [4, 4]}},
            "unknown setting preprocessing.size: did you mean 'model.image_size'?",
        ),
        (
            {"preprocessing": {"mean": [0.5] * 3}},
            "preprocessing: mean has 3 numbers and std 1, but an image has 1",
        ),
        ({"model": {"name": "ViT-X/16"}}, "unknown size 'X'"),
    ],
)
def test_mistakes_are_one_sentence(tree: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        configure(recipe("digits").config, tree)
    assert sentence in str(caught.value)


def test_images_follow_the_model() -> None:
    config = configure(recipe("from-scratch").config, {"model": {"image_size": 48}})
    assert config.prepared.size == config.model.image_size == (48, 48)


def test_another_kind_of_branch_replaces_the_old_one() -> None:
    config = configure(recipe("digits").config, {"model": {"stem": {"kind": "patch", "bias": False}}})
    assert config.model.model_dump()["stem"] == {
        "kind": "patch",
        "bias": False,
        "form": "convolution",
        "norm_before": False,
        "norm_after": False,
    }


def test_a_name_stands_for_an_architecture_and_leaves_the_images() -> None:
    config = configure(recipe("digits").config, {"model": {"name": "ViT-Ti/4", "depth": 3}})
    leaf = leaves(config)
    assert (leaf["model.width"], leaf["model.depth"], leaf["model.patch_size"]) == (192, 3, (4, 4))
    assert leaf["model.image_size"] == (8, 8)
    assert leaf["model.stem.kind"] == "patch"


def test_a_bit_can_take_the_place_of_a_vit_and_back() -> None:
    bit = configure(recipe("digits").config, {"model": {"name": "BiT-R50x1"}})
    assert type(bit.model).__name__ == "BiTConfig"
    vit = configure(bit, {"model": {"name": "ViT-Ti/2"}})
    assert type(vit.model).__name__ == "ViTConfig"
    assert vit.model.channels == 1


def test_a_configuration_without_a_model_is_said() -> None:
    with pytest.raises(InputError, match=r"no \[model\]"):
        validated({"seed": 1}, RunConfig)


def test_a_list_without_brackets_is_told_how_to_be_written() -> None:
    settings = {"augmentation": {"random_resized_crop": {"scale": "0.3,1.0"}}}
    with pytest.raises(
        InputError, match=r"scale: '0.3,1.0' is not a list: write it in brackets, as in \[0.3, 1.0\]"
    ):
        configure(RunConfig(), settings)


@pytest.mark.parametrize("value", ["tokens", "[tokens]"])
def test_a_list_of_texts_is_told_to_have_quotes(value: str) -> None:
    with pytest.raises(
        InputError, match=r'is not a list: write it in brackets and quotes, as in \["tokens"\]'
    ):
        configure(RunConfig(), {"model": {"extra_norms": value}})


def test_every_field_of_every_configuration_is_described() -> None:
    """By its description, or by the docstring of the configuration that it holds."""
    kinds: dict[type[BaseModel], None] = {}

    def held(annotation: Any) -> Iterator[type[BaseModel]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        for part in get_args(annotation):
            yield from held(part)

    def add(kind: type[BaseModel]) -> None:
        if kind not in kinds:
            kinds[kind] = None
            for field in kind.model_fields.values():
                for each in held(field.annotation):
                    add(each)

    for kind in (*(task_named(name).config for name in tasks()), BiTConfig):
        add(kind)
    assert len(kinds) > 20
    missing = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, field in kind.model_fields.items()
        if not field.description and not (field.annotation in kinds and field.annotation.__doc__)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("training", "sentence"),
    [
        ({"distillation": {"weight": 0.3}}, "distillation.teacher: it is missing"),
        (
            {"distillation": {"teacher": "runs/a", "temperature": 2.0}},
            "distillation.temperature has no effect with training.distillation.kind=hard: leave it out",
        ),
        (
            {"optimizer": {"kind": "sgd", "betas": [0.8, 0.9]}},
            "betas has no effect with training.optimizer.kind=sgd: leave",
        ),
        (
            {"optimizer": {"kind": "adafactor", "eps": 1e-6}},
            "eps has no effect with training.optimizer.kind",
        ),
        (
            {"optimizer": {"momentum": 0.5}},
            "momentum has no effect with training.optimizer.kind=adamw",
        ),
        (
            {"schedule": {"timescale": 50}},
            "timescale has no effect with training.schedule.kind=cosine: leave it out",
        ),
        (
            {"schedule": {"kind": "constant", "end": 0.1}},
            "end has no effect with training.schedule.kind=constant: leave",
        ),
    ],
)
def test_a_setting_without_effect_is_refused(training: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=f"training.*{sentence}"):
        task_named("classification").plan("digits", {"training": training})


def test_settings_with_an_effect_or_of_no_change_are_taken() -> None:
    plan = task_named("classification").plan
    for training in (
        {"optimizer": {"kind": "sgd"}},  # the recipe's betas go with its kind
        {"optimizer": {"kind": "muon", "betas": [0.8, 0.9], "momentum": 0.8}},
        {"schedule": {"kind": "rsqrt", "timescale": 50}},
        {"lora": {"rank": 2, "alpha": 8}},
        {"lora": {"alpha": 8}},
        {"distillation": {"teacher": "digits", "kind": "soft", "temperature": 2.0}},
        {"optimizer": {"clip_norm": {"each": 3.0}}, "records": {"early_stopping": {"patience": 3}}},
    ):
        config = plan("digits", {"training": training}).config
        tree = tomllib.loads(to_toml(config))
        assert plan("digits", tree).config.training == config.training  # a config.toml can be run again
    config = task_named("translation").plan("numbers", {"training": {"schedule": {"timescale": 50}}}).config
    assert config.training.schedule.timescale == 50
