"""The program that `test_fake_gpu` runs: forward and backward passes on a device that has no values.

PyTorch's fake tensors have shapes, types and devices only; an operation on tensors of two devices is an
error. The device is a backend in Python, which a process registers once: hence a program of its own.

With `bf16` as its argument it computes on a fake CPU in bf16, the precision of GPUs, which PyTorch does not
know for such backends: an operation that refuses to mix it with fp32 is an error.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import vitreous as vt
from vitreous.addons.segmentation.masked import MaskBatch
from vitreous.addons.self_supervision.distillation import FeatureDistillation, FeatureDistillationConfig
from vitreous.addons.self_supervision.views import Views
from vitreous.addons.studies.laboratory import Laboratory
from vitreous.addons.studies.sequences import with_key_size
from vitreous.addons.studies.study import TrainingSetup
from vitreous.addons.text.batches import TextBatch
from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.transformer import Transformer
from vitreous.checkpoints import weights as weights_of_files
from vitreous.checkpoints.resizing import with_head
from vitreous.data.batch_augmentation import BatchRandom, BatchTransform
from vitreous.data.config import AffineConfig, AugmentationConfig, MixConfig
from vitreous.data.image_samples import Batch
from vitreous.evaluation.outputs import summaries
from vitreous.models import model as models
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.task import self_supervised
from vitreous.training.config import MachineConfig, TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.objectives import Teacher, classification
from vitreous.training.step import LossOf, Objective, TrainStep, skips_on_device

_setup_privateuseone_for_python_backend("fakegpu")
HALF = sys.argv[1:] == ["bf16"]
DEVICE = torch.device("cpu" if HALF else "fakegpu:0")
Case = Callable[[], object]
CASES: dict[str, Case] = {}
TINY: dict[str, Any] = {"width": 24, "depth": 1, "heads": 2, "mlp_dim": 24}


def on_device(build: Callable[[], Any]) -> Any:
    """Build a model without weights, and give it fake ones on the device."""
    with unset_fake_temporarily(), torch.device("meta"):
        model = build()
    fakes: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in fakes:  # tied weights stay one
            fakes[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype, device=DEVICE)
        return fakes[id(tensor)]

    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(
                    fake(parameter), requires_grad=parameter.requires_grad
                )
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else fake(buffer)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=DEVICE) then makes a fake one, too
    return model


def replace_weights(
    model: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True
) -> nn.Module:
    """`nn.Module._apply`, which swaps tensors in place and cannot do so with fake ones."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(function(parameter), parameter.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else function(buffer)
    return model


nn.Module._apply = replace_weights  # type: ignore[assignment]
models.is_finite = weights_of_files.is_finite = lambda tensor: True  # a fake tensor has no numbers to ask


def vit(size: int = 32, **overrides: Any) -> Any:
    settings = {**TINY, "image_size": size, "num_classes": 7, **overrides}
    return on_device(lambda: vt.create("ViT-Ti/8", **settings))


def images(model: Any, count: int = 4) -> Tensor:
    return torch.empty(count, model.config.channels, *model.config.image_size, device=DEVICE)


def numbers(*shape: int, high: int = 7) -> Tensor:
    return torch.randint(high, shape, device=DEVICE)


def forward(model: Any) -> None:
    """Train it, ask it, and look at its tokens."""
    model.train()
    outputs = model(images(model))
    assert outputs.device == DEVICE
    outputs.sum().backward()
    with torch.inference_mode():
        model.eval()(images(model))
        model.tokens(images(model))


WAITING = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique")


class NoWaiting(TorchDispatchMode):
    """Refuses what waits until the device has done all that it was given before: reading a number from it, a
    shape that depends on numbers, a copy from the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        assert not func.__name__.startswith(WAITING), f"the CPU waits for {func.__name__} of the device"
        found = func(*args, **kwargs)
        if func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            source = args[1] if func is torch.ops.aten.copy_.default else args[0]
            crosses = source.device.type == "cpu" and found.device == DEVICE
            assert not crosses or kwargs.get("non_blocking"), "the CPU waits for the device"
        return found


def step(model: nn.Module, objective: Objective, batch: Any, **training: Any) -> None:
    """Compute the clipped gradient of a batch, and take the optimizer's step."""
    training["precision"] = "bf16" if HALF else "fp32"
    config = TrainingConfig(batch_size=4, machine=MachineConfig(grad_accum_steps=2), **training)
    learner = Learner.begin(model, config)
    train_step = TrainStep(learner, LossOf(model, objective), config, seed=0)
    train_step.late = skips_on_device(learner)  # as on a GPU
    assert train_step.late
    with nullcontext() if HALF else NoWaiting():
        for _ in range(2):
            train_step.prepare(batch)
            train_step.take()
    train_step.add(train_step.measured)


def goes_on_after_a_checkpoint() -> None:
    """What was measured before is summed over all processes, and further steps are added to it."""
    model = vit()
    learner = Learner.begin(model, config := TrainingConfig(batch_size=4))
    train_step = TrainStep(learner, LossOf(model, classification(config)), config, seed=0)
    train_step.prepare(Batch(images(model), numbers(4), numbers(4)))
    with patch.object(World, "gather", return_value=[{"loss": 1.0, "images": 4.0}, {"loss": 2.0}]):
        learner.meter = World(0, 2).all_reduce_sum({}, learner.device)
    train_step.add(train_step.measured)
    assert {each.device for each in learner.meter.values()} == {DEVICE}


CASES["a checkpoint of several processes"] = goes_on_after_a_checkpoint
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"dropout": 0.1, "attention_dropout": 0.1, "drop_path": 0.2},
    "distillation": {"pooling": "class+distillation"},
    "SwiGLU, QK norm, LayerScale": {"mlp": "swiglu", "qk_norm": "head", "layer_scale": 0.1},
    "post-norm": {"norm": "post"},
    "convolution stem": {"stem": {"kind": "convolution", "widths": (8, 8, 24), "strides": (2, 2, 2)}},
    "linear stem": {"stem": {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True}},
    "hidden layer in the head": {"representation_size": 16},
    "padded": {"size": 35, "edge": "pad"},
    "registers": {"registers": 3, "class_token": False, "pooling": "mean"},
}
for position in ("none", "learned", "learned-2d", "sincos-2d", "relative", "rotary-2d"):
    VARIANTS[f"position {position}"] = {"position": {"kind": position}}
for position in ("learned", "learned-2d", "sincos-2d"):
    VARIANTS[f"position {position} in every layer"] = {"position": {"kind": position, "where": "every-layer"}}
for pooling in ("class", "mean", "mean-all", "attention", "class+mean"):
    VARIANTS[f"pooling {pooling}"] = {"pooling": pooling, "registers": 2}
# In bf16 those with operations that refuse to mix precisions: fused attention with a bias or rotated queries,
# convolutions, matrices, normalizations. The others add and concatenate, which never refuses.
MIXING = {
    "plain",
    "SwiGLU, QK norm, LayerScale",
    "convolution stem",
    "linear stem",
    "hidden layer in the head",
}
MIXING |= {"position relative", "position rotary-2d", "pooling attention"}
for name, overrides in VARIANTS.items():
    if HALF and name not in MIXING:
        continue
    CASES[name] = lambda overrides=overrides: forward(vit(**overrides))
for name, settings in {
    "R+ViT-Ti/16": TINY,
    "BiT-R50x1": {"layers": (1, 1)},
    "Seg-Ti/16": TINY,
    "Seg-Ti-Mask/16": {**TINY, "cells": 2},
}.items():
    CASES[name] = lambda name=name, settings=settings: forward(
        on_device(lambda: vt.create(name, image_size=32, num_classes=7, **settings))
    )

for kind in ("softmax", "sigmoid"):
    CASES[f"classification, {kind}"] = lambda kind=kind: step(
        model := vit(),
        classification(TrainingConfig(loss=kind, label_smoothing=0.1)),
        Batch(images(model), numbers(4), numbers(4)),
    )


def distill(form: str) -> None:
    """The teacher's images are of another size and have other channels."""
    model = vit(channels=1, pooling="class+distillation")
    labels = [str(number) for number in range(7)]
    teacher = on_device(
        lambda: Teacher(
            vt.create("ViT-Ti/8", **TINY, image_size=24, num_classes=7), model.preprocessing, labels
        )
    )
    config = TrainingConfig(distillation={"teacher": "a", "kind": form})  # type: ignore[arg-type]
    step(model, classification(config, teacher), Batch(images(model), numbers(4), numbers(4)))


CASES["distillation, hard"] = lambda: distill("hard")
CASES["distillation, soft"] = lambda: distill("soft")


def run_of(task: str, batch: Callable[[Any], Any], **settings: Any) -> None:
    """A step of a task's model and objective, as a run of it has them."""
    kind = task_named(task)
    config = kind.config(task=task, **settings)
    step(on_device(lambda: kind.build(config, None, steps=4)), kind.objective(config, None), batch(config))


def unlabeled(*_: object) -> Batch:
    return Batch(torch.empty(4, 3, 32, 32, device=DEVICE), numbers(4), numbers(4))


def views(*_: object) -> Views:
    """As the loader cuts them."""
    return Views(torch.empty(4, 2, 3, 32, 32, device=DEVICE), torch.empty(4, 8, 3, 16, 16, device=DEVICE))


def pretrain(task: str, position: str) -> None:
    settings = {**TINY, "position": {"kind": position}}
    model = config_of("ViT-Ti/8", **settings, image_size=32, num_classes=None)
    batch = views if task in ("dino", "contrastive") else unlabeled
    run_of(task, batch, model=model, preprocessing=Preprocessing(size=(32, 32)))


for name in ("masked-patch", "mae", "dino", "contrastive"):
    for position in ("learned",) if HALF else ("learned", "sincos-2d"):
        CASES[f"{name}, {position}"] = lambda name=name, position=position: pretrain(name, position)


def distill_features() -> None:
    """The teacher is not among the modules of the objective."""

    def encoder() -> Any:
        return vt.create("ViT-Ti/8", **TINY, image_size=32)

    with patch("vitreous.addons.self_supervision.distillation.checkpoint", lambda teacher: encoder()):
        model = on_device(lambda: FeatureDistillation(encoder(), FeatureDistillationConfig()))
    model.teacher = tuple(on_device(lambda each=each: each) for each in model.teacher)
    with patch.object(nn.Module, "to", lambda module, *_: module):
        step(model, self_supervised, unlabeled())


CASES["feature distillation"] = distill_features
for classes in (7, 1200):
    CASES[f"evaluation, {classes} classes"] = lambda classes=classes: summaries(
        torch.empty(4, classes, device=DEVICE), numbers(4), 2.0
    )


def segment(decoder: str) -> None:
    settings = {**TINY, "image_size": 32, "num_classes": 7, "decoder": decoder}
    model = on_device(lambda: vt.create("Seg-Ti/16", **settings))
    kind = task_named("segmentation")
    config = kind.config(model=model.config, preprocessing=Preprocessing(size=(32, 32), resize="squash"))
    step(model, kind.objective(config, None), MaskBatch(images(model), numbers(4, 32, 32)))


CASES["segmentation, linear"] = lambda: segment("linear")
CASES["segmentation, mask Transformer"] = lambda: segment("mask-transformer")


def regress() -> None:
    kind, model = task_named("regression"), vit(num_classes=1)
    config = kind.config(task="regression", model=model.config, preprocessing=model.preprocessing)
    step(model, kind.objective(config, None), Batch(images(model), torch.empty(4, device=DEVICE), numbers(4)))


CASES["regression"] = regress
TEXT = {"vocabulary": 300, "width": 24, "depth": 1, "heads": 2, "mlp_dim": 24}


def translate() -> None:
    kind, config = task_named("translation"), TransformerConfig(**TEXT, encoder_depth=1)
    batch = TextBatch(numbers(4, 6), numbers(4, 5), torch.empty(4, device=DEVICE))
    step(on_device(lambda: Transformer(config)), kind.objective(kind.config(), None), batch)


CASES["translation"] = translate


def masked_trial(objective: Any) -> None:
    """Train an objective of a study, on the device that its laboratory has."""
    laboratory, model = Laboratory(Path(), DEVICE), vit(num_classes=None)
    batch = Batch(images(model), numbers(4), numbers(4))
    with (
        patch.object(Laboratory, "batches", return_value=[batch]),
        patch("vitreous.addons.studies.laboratory.computing", return_value=nullcontext()),
    ):
        laboratory.train(model, TrainingSetup(objective=objective, steps=1), 0)


def smaller_keys() -> None:
    model = on_device(lambda: Transformer(TransformerConfig(**TEXT, encoder_depth=1)))
    with_key_size(model, 4)
    model(numbers(4, 6), numbers(4, 5)).sum().backward()


for objective in () if HALF else ("mae", "masked-patch"):
    CASES[f"study, {objective}"] = lambda objective=objective: masked_trial(objective)
CASES["study, smaller keys"] = smaller_keys


def changed(change: Callable[[Any], Any], **overrides: Any) -> None:
    """Change a model that is on the device: everything new is there as well."""
    model = change(vit(**overrides))
    assert {each.device for each in (*model.parameters(), *model.buffers())} == {DEVICE}
    forward(model)


for position in () if HALF else ("learned", "learned-2d", "sincos-2d", "rotary-2d"):
    CASES[f"resize images, {position}"] = lambda position=position: changed(
        lambda model: vt.resize(model, image_size=48), position={"kind": position}
    )
CASES["resize patches"] = lambda: changed(lambda model: vt.resize(model, patch_size=4))
CASES["another head"] = lambda: changed(lambda model: with_head(model, 5))


def augment(**settings: Any) -> None:
    """Normalize and augment a batch of bytes on the device."""
    preprocessing = Preprocessing(size=(32, 32))
    transform = on_device(lambda: BatchTransform(preprocessing, AugmentationConfig(**settings), classes=7))
    pixels = torch.zeros(4, 3, 32, 32, dtype=torch.uint8, device=DEVICE)
    with patch.object(BatchRandom, "noise_generator", return_value=None):  # the device has no generators
        batch = transform(Batch(pixels, numbers(4), numbers(4)), 0, 0)
    assert {each.device for each in batch if each is not None} == {DEVICE}


AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "normalization": {},
    "flips": {"flip": 0.5},
    "affine changes": {"affine": AffineConfig(rotate=5, elastic=0.02, fill="darkest")},
    "noise": {"noise": 0.1},
    "random erasing": {"random_erasing": 0.5},
    "Mixup": {"mix": MixConfig(mixup=0.2)},
    "CutMix": {"mix": MixConfig(cutmix=1.0)},
}
for name, settings in AUGMENTATIONS.items():  # of images as they are, before any precision
    if not HALF:
        CASES[name] = lambda settings=settings: augment(**settings)


if __name__ == "__main__":
    errors = {}
    for name, case in CASES.items():
        try:
            fake = FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=True))
            with fake, torch.autocast("cpu", torch.bfloat16, enabled=HALF):
                case()
            errors[name] = ""
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            own = [each for each in traceback.extract_tb(error.__traceback__) if "vitreous" in each.filename]
            errors[name] += "".join(f", {Path(each.filename).name}:{each.lineno}" for each in own[-2:])
    print(json.dumps(errors, indent=1))
