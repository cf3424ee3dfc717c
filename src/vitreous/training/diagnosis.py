"""Why is it not learning? Checks of a run's course and of its model on images; each finding has its fix."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.decoding import BadImage
from vitreous.data.findings import Finding
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.loading import REPAIRED
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.results import percent
from vitreous.training.config import TrainingConfig

Rows = Sequence[Mapping[str, Any]]

# Peak rates between which models of this kind usually learn, at a batch of 256.
USUAL_RATES = {"adamw": (1e-5, 5e-3), "muon": (1e-5, 5e-2), "adafactor": (1e-4, 1.0), "sgd": (1e-4, 1.0)}
ENOUGH_STEPS = 20  # before which nothing is said about the loss
ENOUGH_LINES = 4  # of metrics.jsonl, to say that a loss stays where it was
WORTH_A_WORD = 30  # seconds of training, below which waiting does not matter
CALMER = "set a lower training.peak_lr, a longer training.schedule.warmup or training.precision=fp32"
STARVING = 0.2  # share of the time in which training waited for data
SAMPLE = 128  # images that are looked at
FEWEST_TOKENS = 4
EXPLODING = 1e3  # times as large after a layer as before the first
VANISHING = 1e-7  # of the largest gradient


def course_findings(
    training: TrainingConfig,
    rows: Rows,
    *,
    kept: bool = False,
    classes: int | None = None,
    data: DataConfig | None = None,
) -> Iterator[Finding]:
    """All checks that need no model.

    Args:
        kept: whether there is a model, which a run writes at its end or where its loss is not finite.
        classes: that each image is one of; None where something else is learned.
        data: how images are loaded, where they are.
    """
    if not rows:
        if kept:
            problem = "the loss was not finite before the first line of metrics.jsonl"
            yield Finding("not finite", "error", problem, CALMER)
        else:
            problem, fix = "metrics.jsonl has no line yet", "train for at least one epoch"
            yield Finding("course", "warning", problem, fix)
        return
    yield from skipped_steps(rows)
    yield from learning(training, rows, classes)
    yield from starving(data, rows)
    yield from overfitting(rows)


def skipped_steps(rows: Rows) -> Iterator[Finding]:
    """Steps that were skipped."""
    first = next((row for row in rows if row.get("skipped")), None)
    if first is not None:
        yield Finding(
            "not finite",
            "warning",
            f"{rows[-1]['skipped']} steps had a gradient that is not finite, the first before step "
            f"{first['step']}",
            CALMER,
        )


def learning(training: TrainingConfig, rows: Rows, classes: int | None) -> Iterator[Finding]:
    """A loss that stays where it began, or where guessing is, or that climbs: usually the learning rate."""
    losses = [row["loss"] for row in rows if "loss" in row]
    # What DINO's student should say moves with its teacher: such a loss climbs while it learns.
    if not losses or rows[-1]["step"] < ENOUGH_STEPS or "teacher_entropy" in rows[-1]:
        return
    smooth = [median(losses[max(end - 3, 0) : end]) for end in range(1, len(losses) + 1)]
    if classes is None:
        stuck = len(losses) >= ENOUGH_LINES and min(losses) > 0.97 * losses[0]
        seen = f"the loss has hardly fallen, from {losses[0]:.3f} to {losses[-1]:.3f}"
    else:
        chance = math.log(classes)
        stuck = training.loss == "softmax" and min(losses) > 0.95 * chance
        seen = f"the loss ({losses[-1]:.3f}) is no better than guessing (ln {classes} = {chance:.3f})"
    # A single epoch's loss jumps: Mixup draws how hard it is.
    climbing = smooth[-1] > 1.3 * min(smooth)
    if not stuck and climbing:
        seen = f"the loss climbed from {min(smooth):.3f} to {smooth[-1]:.3f}"
    if stuck or climbing:
        rate = (
            f"the peak rate is {training.peak_lr:g} with {training.optimizer.kind} at a batch of "
            f"{training.batch_size}"
        )
        said = f"{seen} after {rows[-1]['step']} steps; {rate}"
        yield Finding("learning rate", "error", said, advice(training))


def advice(training: TrainingConfig) -> str:
    """The usual range of rates for this batch size grows with its root."""
    low, high = USUAL_RATES[training.optimizer.kind]
    factor = math.sqrt(training.batch_size / 256)
    if training.peak_lr > (high := high * max(factor, 0.25)):
        return f"set training.peak_lr below {high:.2g}"
    if training.peak_lr < (low := low * min(factor, 1.0)):
        return f"set training.peak_lr above {low:.2g}"
    return (
        f"try training.peak_lr={training.peak_lr / 3:.2g} with a longer training.schedule.warmup, and "
        "look at the other findings and at the images in report.html: do the labels fit them?"
    )


def starving(data: DataConfig | None, rows: Rows) -> Iterator[Finding]:
    """The first line holds the beginning, when everything is read for the first time."""
    later = [row["waiting"] for row in rows[1:] if "waiting" in row]
    long = rows[-1].get("seconds", 0) > WORTH_A_WORD
    if not (later and long and (mean := sum(later) / len(later)) > STARVING):
        return
    seen = f"training waited for data {percent(mean)} of the time"
    fix = "show fewer or smaller images, or train where there are more cores"
    if data is not None:
        seen += f" (data.workers={data.workers}, data.in_memory={data.in_memory})"
        fix = (
            "keep the images in memory (data.in_memory=true), shrink them once (vitreous data pack), or "
            "set more data.workers"
        )
    yield Finding("loader", "warning", seen, fix)


def overfitting(rows: Rows) -> Iterator[Finding]:
    """Training images are classified much better than validation images."""
    last = next((row for row in reversed(rows) if "validation_accuracy" in row and "accuracy" in row), None)
    if last and last["accuracy"] - last["validation_accuracy"] > 0.25:
        yield Finding(
            "overfitting",
            "warning",
            f"{percent(last['accuracy'])} right in training but "
            f"{percent(last['validation_accuracy'])} in validation",
            "add images or augmentation, use a smaller model, or begin from a checkpoint (--init)",
        )


def bad_file_findings(run: Path) -> Iterator[Finding]:
    """What bad_files.txt lists."""
    listed = run / "bad_files.txt"
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    if lines := [line for line in lines if not line.endswith(f"\t{REPAIRED}")]:
        name, _, reason = lines[0].partition("\t")
        yield Finding(
            "bad files",
            "warning",
            f"{len(lines)} images could not be read and were left out, such as {name} ({reason})",
            f"fix or remove what {listed} lists",
        )


def model_findings(model: Model, images: ImageDataset, *, learned: bool = True) -> Iterator[Finding]:
    """All checks, on a sample of `images`.

    Args:
        learned: whether it has been trained at all: a fresh head of zeros answers the same to everything.
    """
    some = images.subset(np.array(images.sample(SAMPLE)))
    batch, targets, _ = next(
        iter(evaluation_loader(some, preprocessing=model.preprocessing, batch_size=SAMPLE))
    )
    yield from normalization(model, batch)
    yield from geometry(model, images)
    broken = list(origin_of_nan(model, batch))
    yield from broken
    if not broken and learned and targets.ndim == 1:
        yield from layers(model, batch, targets)
        yield from one_class(model, batch, targets)


def normalization(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """Values should be about 0 on average, and vary by about 1."""
    mean, std = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3))
    if bool((mean.abs() < 1.5).all() and (std > 0.1).all() and (std < 5).all()):
        return
    yield Finding(
        "normalization",
        "error",
        f"the model sees values of mean {words(mean)} and standard deviation {words(std)}, from "
        f"preprocessing.mean={list(model.preprocessing.mean)} and std={list(model.preprocessing.std)}",
        "set preprocessing.mean and preprocessing.std to those of the images, of values in 0 ... 1",
    )


def words(values: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in values.tolist())


def geometry(model: Model, images: ImageDataset) -> Iterator[Finding]:
    """Patches against the image, and the image against what there is to see."""
    config = model.config
    height, width = config.image_size
    if isinstance(config, ViTConfig) and config.grid[0] * config.grid[1] < FEWEST_TOKENS:
        yield Finding(
            "patch size",
            "warning",
            f"{height}x{width} images in patches of {config.patch_size[0]}x{config.patch_size[1]} are "
            f"{config.grid[0] * config.grid[1]} patches: attention has nothing to compare",
            f"set model.patch_size={max(1, min(height, width) // 8)}, or show larger images (--image-size)",
        )
    sides = []
    for index in images.sample(16):
        with suppress(BadImage):  # counted and named by the loader
            sides.append(min(images.opened(index, 3).size))
    if sides and (shorter := float(np.median(sides))) * 3 < min(height, width):
        yield Finding(
            "image size",
            "warning",
            f"images of about {shorter:.0f} pixels are blown up to {height}x{width}",
            f"use --image-size {max(16, round(shorter / 16) * 16)}: the rest of the pixels is made up",
        )


def origin_of_nan(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """The first place where a number is not finite: an image, a weight, or a layer's output."""
    if not torch.isfinite(images).all():
        yield Finding(
            "origin of NaN",
            "error",
            "the images themselves are not finite once they are normalized",
            "fix preprocessing.mean and preprocessing.std: no std may be next to 0",
        )
        return
    broken = list(weights_not_finite(model.named_parameters()))
    yield from broken
    if broken:
        return
    first: list[str] = []

    def note(name: str, output: object) -> None:
        if isinstance(output, Tensor) and not torch.isfinite(output).all() and not first:
            first.append(name)

    handles = [
        module.register_forward_hook(lambda _, __, output, name=name: note(name, output))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    if first:
        yield Finding(
            "origin of NaN",
            "error",
            f"numbers stop being finite after {first[0]}",
            "use training.precision=fp32, or model.qk_norm=true if it is an attention",
        )


def weights_not_finite(weights: Iterable[tuple[str, Tensor]]) -> Iterator[Finding]:
    """The first weight that is not finite."""
    for name, weight in weights:
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            fix = "train again with a lower training.peak_lr or a longer training.schedule.warmup"
            yield Finding("origin of NaN", "error", f"the weight {name} is not finite", fix)
            return


def layers(model: Model, images: Float[Tensor, "B C H W"], targets: Int[Tensor, " B"]) -> Iterator[Finding]:
    """Layers whose output explodes, and those that no gradient reaches."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList) or not len(blocks):
        return
    sizes: list[float] = []
    handles = [
        block.register_forward_hook(lambda _, inputs, output: sizes.append(ratio(output, inputs[0])))
        for block in blocks
    ]
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    model.zero_grad()
    torch.autograd.backward(F.cross_entropy(model(images), targets))
    for handle in handles:
        handle.remove()
    growth = np.cumprod(sizes)
    if growth.max() > EXPLODING:
        layer = int(np.argmax(growth > EXPLODING))
        yield Finding(
            "exploding layer",
            "error",
            f"after layer {layer + 1} the tokens are {growth[layer]:.0f} times as large as before layer 1",
            "set a lower training.peak_lr, more weight_decay, model.layer_scale=1e-4 or model.qk_norm=true",
        )
    reached = gradient_sizes(model)
    dead = [
        i for i in range(len(blocks)) if reached.get(i, 0.0) <= VANISHING * max(reached.values(), default=0)
    ]
    if dead and not frozen:
        yield Finding(
            "dead layer",
            "error",
            f"no gradient reaches layer{'s' if len(dead) > 1 else ''} {', '.join(str(i + 1) for i in dead)}",
            "train again with a lower training.peak_lr; if it stays, use model.norm=pre",
        )
    model.zero_grad()


def ratio(output: Tensor, before: Tensor) -> float:
    """How much larger tokens are after a layer."""
    return float(output.detach().square().mean().sqrt() / before.detach().square().mean().sqrt().clamp(1e-12))


def gradient_sizes(model: nn.Module) -> dict[int, float]:
    """The largest gradient in each encoder layer."""
    largest: dict[int, float] = {}
    for name, parameter in model.named_parameters():
        if name.startswith("blocks.") and parameter.grad is not None:
            layer = int(name.split(".")[1])
            largest[layer] = max(largest.get(layer, 0.0), float(parameter.grad.abs().max()))
    return largest


@torch.no_grad()
def one_class(
    model: Model, images: Float[Tensor, "B C H W"], targets: Int[Tensor, " B"]
) -> Iterator[Finding]:
    """A model that says the same of every image."""
    answers = Counter(model.eval()(images).argmax(dim=1).tolist())
    answer, times = answers.most_common(1)[0]
    right = int((targets == answer).sum())
    if times > 0.9 * len(images) and times > 1.5 * right:
        label = model.labels[answer] if model.labels else answer
        yield Finding(
            "one class",
            "error",
            f"{times} of {len(images)} images are called {label!r}, {right} are",
            "it has not learned: change the learning rate, or set data.class_balance=true if that class is "
            "by far the largest",
        )
