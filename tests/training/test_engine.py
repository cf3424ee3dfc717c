"""SAM, activation checkpointing, LoRA, distillation, precision, memory, trackers."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from vitreous.data.dataset import Splits
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.models.names import create
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.callbacks import Tracker
from vitreous.training.config import (
    HardDistillationConfig,
    LoRAConfig,
    RunConfig,
    SoftDistillationConfig,
    TrainingConfig,
)
from vitreous.training.initial_model import add_lora, merge_lora, starting_model
from vitreous.training.machine import (
    Place,
    accumulation,
    activation_checkpointing,
    numerics,
    pick_precision,
    saved_bytes,
)
from vitreous.training.objectives import Teacher, classification, teacher_loss
from vitreous.training.recipes import recipe
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure
from vitreous.training.step import sharpness_aware
from vitreous.training.trainer import Trainer

from .conftest import Fit, weights

SMALL: dict[str, Any] = {
    "image_size": 8,
    "width": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 32,
    "num_classes": 3,
}

PLAIN: dict[str, Any] = {"model": {"dropout": 0.0, "drop_path": 0.0}}


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    model = create("ViT-Ti/4", **SMALL)
    nn.init.normal_(model.head.weight)  # type: ignore[arg-type]
    return model


def test_sharpness_takes_the_gradient_uphill_and_puts_the_weights_back() -> None:
    """L(w) = w^3 at w = 2: g = 12, uphill w + 0.1, gradient there 3 * 2.1^2."""
    w = nn.Parameter(torch.tensor([2.0]))

    def gradient() -> list[tuple[int, dict[str, torch.Tensor]]]:
        w.grad = None
        (w**3).sum().backward()
        return [(1, {"loss": (w**3).sum().detach()})]

    assert sharpness_aware(gradient, [w], 0.1)[0][1]["loss"].item() == 8.0
    assert w.item() == 2.0
    assert w.grad is not None
    assert w.grad.item() == pytest.approx(3 * 2.1**2, rel=1e-6)


def test_sharp_steps_train(trained: Fit) -> None:
    plain = weights(trained({"training": {"length": "3 steps"}}))
    sharp = weights(trained({"training": {"length": "3 steps", "optimizer": {"sam_radius": 0.05}}}))
    assert not torch.equal(plain["model/head.weight"], sharp["model/head.weight"])
    assert all(torch.isfinite(tensor).all() for tensor in sharp.values())


def test_checkpointed_activations_change_no_gradient(model: nn.Module) -> None:
    images = torch.randn(4, 3, 8, 8)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(images).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    before, kept = gradients(), saved_bytes(model, images)
    with activation_checkpointing(model):
        inside, kept_inside = gradients(), saved_bytes(model, images)
    assert all(torch.equal(a, b) for a, b in zip(before, inside, strict=True))
    assert kept_inside < 0.6 * kept
    assert saved_bytes(model, images) == kept


def test_checkpointing_a_model_without_layers_is_an_input_error() -> None:
    bit = create("BiT-R50x1", layers=(1,))
    with pytest.raises(InputError, match="no encoder layers"), activation_checkpointing(bit):
        pass


def test_lora_begins_as_the_model_learns_little_and_merges_exactly(model: nn.Module) -> None:
    images = torch.randn(2, 3, 8, 8)
    before = model(images)
    names = list(dict(model.named_parameters()))
    add_lora(model, LoRAConfig(rank=2, alpha=4), seed=0)
    torch.testing.assert_close(model(images), before)
    learning = [name for name, p in model.named_parameters() if p.requires_grad]
    assert all(name.startswith("head.") or "parametrizations.weight.0" in name for name in learning)
    assert (
        sum("parametrizations" in name for name in learning) == 2 * 2 * 4
    )  # a and b; qkv, out, two of the MLP
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("weight.0.b"):
                parameter.normal_()
    changed = model(images)
    assert not torch.allclose(changed, before)
    merge_lora(model)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())
    assert sorted(dict(model.named_parameters())) == sorted(names)
    torch.testing.assert_close(model(images), changed)


def test_lora_leaves_what_is_frozen(tiny: RunConfig) -> None:
    training = {"lora": {"rank": 2}, "freeze": ["head", "blocks.0"]}
    model = starting_model(configure(tiny, {"training": training}), [str(n) for n in range(10)])
    learning = {
        name.partition(".attention")[0].partition(".mlp")[0]
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    assert learning == {"blocks.1"}


def test_lora_that_changes_nothing_is_an_input_error(tiny: RunConfig) -> None:
    bit = create("BiT-R50x1", image_size=32, num_classes=3, layers=(1,))
    with pytest.raises(InputError, match="has none that is trained"):
        add_lora(bit, LoRAConfig(rank=2), seed=0)
    frozen = configure(tiny, {"training": {"lora": {"rank": 2}, "freeze": ["backbone"]}})
    with pytest.raises(InputError, match="has none that is trained"):
        starting_model(frozen, [str(n) for n in range(10)])


@pytest.mark.parametrize("more", [[], ["position"]])
def test_the_class_token_stays_without_a_position(trained: Fit, tiny: RunConfig, more: list[str]) -> None:
    """In every step, whatever the optimizer does; also where all positions are frozen."""
    config = configure(tiny, {"training": {"freeze": [*more, "position.prefix"]}})
    before = starting_model(config, [str(n) for n in range(10)]).get_parameter("position.table")
    training = {"freeze": [*more, "position.prefix"], "length": "3 steps", "optimizer": {"sam_radius": 0.05}}
    table = trained({"training": training}).model.get_parameter("position.table")
    assert not table[0].any()
    assert torch.equal(table[1:], before[1:]) == bool(more)


def test_lora_moves_chosen_matrices_and_the_head_and_is_merged_when_saved(
    tiny: RunConfig, splits: Splits, tmp_path: Path
) -> None:
    lora = {"rank": 2, "parts": ["attention"]}
    config = configure(tiny, {"training": {"length": "3 steps", "lora": lora}})
    model = starting_model(config, splits.train.classes)
    merge_lora(model)  # which changes nothing yet
    before = dict(model.named_parameters())
    run = RunDirectory.create(tmp_path / "run", config)
    fit(plan_of_run(run, splits))
    after = dict(run.model().named_parameters())
    moved = {name for name, parameter in after.items() if not torch.equal(parameter, before[name])}
    assert after.keys() == before.keys()
    assert {name.split(".")[-2] for name in moved} == {"head", "qkv", "out"}


def test_a_teacher_that_is_the_student_adds_its_own_entropy(model: nn.Module) -> None:
    logits = torch.randn(5, 3)
    soft = SoftDistillationConfig(teacher="t", temperature=2.0)
    assert teacher_loss(logits, logits, soft) == pytest.approx(0, abs=1e-6)
    hard = teacher_loss(logits, logits, HardDistillationConfig(teacher="t"))
    assert hard == pytest.approx(nn.functional.cross_entropy(logits, logits.argmax(dim=1)).item())


def test_each_token_answers_its_own_teacher() -> None:
    """DeiT's class token learns from the labels, its distillation token from the teacher."""
    torch.manual_seed(0)
    student = create("ViT-Ti/4", **SMALL, pooling="class+distillation")
    teacher = Teacher(create("ViT-Ti/4", **SMALL), Preprocessing(size=(8, 8)), ["a", "b", "c"])
    batch = Batch(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    for weight, learning in ((0.0, "classes"), (1.0, "distillation")):
        config = TrainingConfig(distillation=HardDistillationConfig(teacher="t", weight=weight))
        student.zero_grad()
        loss, measures = classification(config, teacher)(student, batch, torch.Generator())
        loss.backward()
        moved = {n for n, p in student.head.named_parameters() if p.grad is not None and p.grad.any()}
        assert {name.split(".")[0] for name in moved} == {learning}
        assert set(measures) == {"accuracy", "distillation_loss"}


def test_a_teacher_sees_its_own_normalization_size_and_class_order() -> None:
    torch.manual_seed(0)
    model = create("ViT-Ti/4", **{**SMALL, "image_size": 12})
    nn.init.normal_(model.head.weight)  # type: ignore[arg-type]
    model.preprocessing = Preprocessing(size=(12, 12), mean=(0.2, 0.3, 0.4), std=(0.1, 0.2, 0.3))
    model.labels = ["x", "y", "z"]
    student = Preprocessing(size=(8, 8))
    teacher = Teacher(model, student, ["z", "x"])
    pixels = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
    given = teacher(student.normalize(pixels))
    expected = model(model.preprocessing.normalize(torch.full((1, 3, 12, 12), 200, dtype=torch.uint8)))
    torch.testing.assert_close(given, expected[:, [2, 0]], rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="does not know the class 'w'"):
        Teacher(model, student, ["w"])


@pytest.mark.parametrize("native", [False, True])
def test_precision_follows_the_machine(native: bool, products: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    products.take(bf16=0.5 if native else 1.0)
    assert pick_precision("bf16", cpu) == "bf16"
    assert pick_precision("auto", cpu, width=768) == ("bf16" if native else "fp32")
    assert pick_precision("auto", cpu, width=64) == "fp32"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0) if native else (7, 5))
    assert pick_precision("auto", torch.device("cuda"), width=64) == ("bf16" if native else "fp32")
    for name in ("paper-fine-tuning", "deit", "digits"):  # none is tied to bf16
        assert Place(cpu).precision(recipe(name).config) == (
            "bf16" if native and name != "digits" else "fp32"
        )


def test_a_gpu_uses_tf32_unless_the_precision_is_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """In products and in convolutions; and the GPU that is given is the current one, which a checkpoint's
    copies into pinned memory are waited for on."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(current.append(device)))

    def settings() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before, cuda = settings(), torch.device("cuda:1")
    for precision, expected in (("bf16", ("high", True)), ("fp32", ("highest", False))):
        with numerics(cuda, precision, deterministic=False):
            assert settings() == expected
            assert current.pop() == cuda
    with numerics(torch.device("cpu"), "bf16", deterministic=False):
        assert settings() == before
    assert settings() == before
    assert not current


def test_long_runs_with_batches_of_one_shape_are_compiled_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    cuda, config = torch.device("cuda"), RunConfig()

    def compiled(
        *, fixed: bool = True, total: int = 5000, device: torch.device = cuda, **machine: Any
    ) -> bool:
        training = configure(config, {"training": {"machine": machine}}).training
        return Place(device).compiles(training, total, fixed_shapes=fixed)

    assert compiled()
    assert not compiled(device=torch.device("cpu"))
    assert not compiled(total=200)
    assert not compiled(fixed=False)
    assert not compiled(compile=False)
    assert compiled(fixed=False, total=1, compile=True)
    monkeypatch.setitem(sys.modules, "triton", None)  # what would compile it
    assert not compiled()


def test_bf16_learns(trained: Fit) -> None:
    full = trained({"training": {"length": "4 steps"}, "model": {"dropout": 0.0, "drop_path": 0.0}})
    half = trained(
        {"training": {"length": "4 steps", "precision": "bf16"}, "model": {"dropout": 0.0, "drop_path": 0.0}}
    )
    for name, tensor in weights(full).items():
        if name.startswith("model/"):
            assert weights(half)[name].dtype == torch.float32
            torch.testing.assert_close(weights(half)[name], tensor, rtol=0.2, atol=1e-2, msg=name)


def test_the_fewest_parts_that_fit(model: nn.Module) -> None:
    images = torch.randn(2, 3, 8, 8)
    weight_bytes = sum(p.numel() * 4 for p in model.parameters())
    each = saved_bytes(model, images) / 2
    room = lambda count: int((weight_bytes * 4 + count * each) / 0.7) + 1  # noqa: E731
    assert accumulation(model, images, 24, room(24)) == 1
    assert accumulation(model, images, 24, room(23)) == 2
    assert accumulation(model, images, 24, room(1)) == 24
    with pytest.raises(InputError, match="one image needs"):
        accumulation(model, images, 24, weight_bytes)


def test_twice_the_images_keep_twice_the_bytes(model: nn.Module) -> None:
    two, four = (saved_bytes(model, torch.randn(n, 3, 8, 8)) for n in (2, 4))
    assert four == pytest.approx(2 * two, rel=0.05)


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_trackers_get_settings_and_rows(name: Any, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, Any] = {}
    library = ModuleType(name)
    for call in (
        "init",
        "log",
        "finish",
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_image",
        "end_run",
    ):
        setattr(library, call, lambda *args, _call=call, **kwargs: calls.update({_call: (args, kwargs)}))
    library.Image = lambda pixels: ("image", pixels.shape)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, library)
    tracker = Tracker(name, "run", tiny)
    trainer = cast(Trainer, None)  # which trackers do not look at
    tracker.on_log(trainer, {"step": 3, "loss": 0.5})
    tracker.on_train_end(trainer)
    assert not calls.keys() & {"finish", "end_run"}, "the results are still to come"
    rows = calls["log_metrics" if name == "mlflow" else "log"]
    tracker.add_results(3, {"test/accuracy": 0.9}, {"confusion": np.zeros((2, 2, 4), np.uint8)})
    tracker.close()
    if name == "mlflow":
        assert calls["log_params"][0][0]["training.batch_size"] == "32"
        assert rows == (({"step": 3.0, "loss": 0.5},), {"step": 3})
        assert calls["log_metrics"] == (({"test/accuracy": 0.9},), {"step": 3})
        assert calls["log_image"][0][1] == "confusion.png"
        assert "end_run" in calls
    else:
        assert calls["init"][1]["config"]["training.batch_size"] == "32"
        assert rows == (({"step": 3, "loss": 0.5},), {"step": 3})
        shown = {"test/accuracy": 0.9, "confusion": ("image", (2, 2, 4))}
        assert calls["log"] == ((shown,), {"step": 3})
        assert "finish" in calls


def test_a_tracker_that_fails_does_not_stop_training(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, calls = ModuleType("trackio"), []

    def broken(*args: Any, **more: Any) -> None:
        calls.append(args)
        raise ConnectionError("no route to the server. And more")

    library.init = library.finish = lambda *args, **more: None  # type: ignore[attr-defined]
    library.log = broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", library)
    tracker, trainer = Tracker("trackio", "run", tiny), cast(Trainer, None)
    with pytest.warns(
        UserWarning, match=r"trackio failed .*\(no route to the server\); metrics.jsonl has every"
    ):
        tracker.on_log(trainer, {"step": 1})
    tracker.on_log(trainer, {"step": 2})
    tracker.add_results(2, {"test/accuracy": 0.9}, {})
    assert len(calls) == 1
    library.init = broken  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"trackio cannot be started \(no route to the server\): set it up"):
        Tracker("trackio", "run", tiny)


def test_a_tracker_that_is_not_installed_is_an_input_error(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"pip install 'vitreous\[track\]'"):
        Tracker("wandb", "run", tiny)


@pytest.mark.slow
def test_a_compiled_step_learns_the_same(trained: Fit) -> None:
    plain = weights(trained({**PLAIN, "training": {"length": "4 steps", "machine": {"grad_accum_steps": 2}}}))
    compiled = weights(
        trained(
            {**PLAIN, "training": {"length": "4 steps", "machine": {"grad_accum_steps": 2, "compile": True}}}
        )
    )
    assert plain.keys() == compiled.keys()
    for name in ("model/head.weight", "average/head.weight"):
        torch.testing.assert_close(compiled[name], plain[name], rtol=1e-4, atol=1e-5, msg=name)


def test_low_rank_changes_depend_on_the_seed_alone() -> None:
    def factors(seed: int) -> torch.Tensor:
        torch.rand(1)  # the global generator moves
        model = create("ViT-Ti/4", **SMALL)
        add_lora(model, LoRAConfig(rank=2), seed=seed)
        return torch.cat([p.flatten() for name, p in model.named_parameters() if name.endswith("weight.0.a")])

    assert torch.equal(factors(0), factors(0))
    assert not torch.equal(factors(0), factors(1))
