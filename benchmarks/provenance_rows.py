"""What `provenance.py` and its parts have in common: the rows that they find, distances of distributions, and
two trainings of the same weights on the same data."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from vitreous.data.image_samples import Batch
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.objectives import Objective, classification
from vitreous.training.step import LossOf, TrainStep

DRAWS, STEPS, SHORT = 20_000, 200, 20
# Of what is computed and not drawn: pixels are rounded, and float32 adds up in another order.
LIMITS = {"colors": 0.5, "resizing": 0.5, "batch": 0.01, "gradient": 1e-4, "angle": 1.0, "loss": 0.02}


class Row(NamedTuple):
    """A quantity of a recipe, beside the code that was run."""

    recipe: str
    quantity: str
    difference: float
    where: str  # the tensor, operation or size of the largest difference
    source: str  # what was run
    limit: float  # what chance or rounding explains
    why: str = ""  # the reason where it is more
    peer: str = ""  # another library with the same model, for which the recipe was not written
    null: float | None = None  # the difference of the source from itself, from weights one rounding apart


def ks(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest distance of two empirical distributions."""
    places = np.unique(np.concatenate([ours, theirs]))
    shares = [np.searchsorted(np.sort(each), places, side="right") / len(each) for each in (ours, theirs)]
    return float(np.abs(shares[0] - shares[1]).max())


def largest(found: Mapping[str, float]) -> tuple[float, str]:
    where = max(found, key=lambda name: found[name])
    return found[where], where


def chance(draws: int) -> float:
    """The KS distance of two samples that one comparison in a thousand exceeds by chance."""
    return 1.95 * math.sqrt(2 / draws)


def load(path: Path, *folders: Path) -> Any:
    """Import a file of a clone."""
    sys.path[:0] = [str(path.parent), *map(str, folders)]
    try:
        spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where timm's registry looks for it
        spec.loader.exec_module(module)
        return module
    finally:
        del sys.path[: 1 + len(folders)]


def initial(ours: nn.Module, theirs: nn.Module, names: Callable[[str], bool] = lambda name: True) -> Any:
    """The KS distance of the tensor of two models for which it is largest beside what chance explains, where
    that is, and what chance explains."""
    others, found, limits = theirs.state_dict(), {}, {}
    for name, tensor in ours.state_dict().items():
        if names(name) and tensor.is_floating_point() and tensor.numel() >= 100:
            mine, other = (
                each.detach().double().flatten().numpy()[:: max(each.numel() // DRAWS, 1)][:DRAWS]
                for each in (tensor, others[name])
            )
            found[name], limits[name] = ks(np.round(mine, 5), np.round(other, 5)), chance(len(mine))
    _, where = largest({name: found[name] / limits[name] for name in found})
    return found[where], where, limits[where]


def with_source(found: tuple[float, str, float], source: str) -> tuple[float, str, str, float]:
    return found[0], found[1], source, found[2]


State = dict[str, dict[str, torch.Tensor]]


class Follower(NamedTuple):
    """What a training did: its first gradient and its weights after some steps, by tensor, and its losses.

    state: of the optimizer, by its part and by tensor. again: the same of a second training from weights that
    are one rounding apart; empty for ours.
    """

    gradient: dict[str, torch.Tensor]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]
    losses: list[float]
    state: State
    again: State


def angles(follower: Follower) -> dict[str, float]:
    """Degrees by which each tensor that learns was turned."""
    found = {}
    for name in follower.gradient:
        before, after = follower.before[name], follower.after[name]
        # Biases that begin at 1e-6 or 0 have no direction to turn from.
        if before.norm() > 1e-4 * math.sqrt(before.numel()) and before.numel() >= 100:
            cosine = torch.cosine_similarity(before.flatten().double(), after.flatten().double(), dim=0)
            found[name] = math.degrees(math.acos(min(float(cosine), 1.0)))
    return found


def compared(recipe: str, source: str, ours: Follower, theirs: Follower, after: int = SHORT) -> Iterator[Row]:
    """Yield how far two trainings are apart.

    Args:
        after: of `follow`.
    """
    gradients = {
        name: float((own - theirs.gradient[name]).norm() / theirs.gradient[name].norm().clamp(min=1e-12))
        for name, own in ours.gradient.items()
        if theirs.gradient[name].norm() > 1e-6
    }
    yield Row(recipe, "gradient", *largest(gradients), source, LIMITS["gradient"])
    mine, other = angles(ours), angles(theirs)
    turned = {name: abs(angle - other[name]) for name, angle in mine.items() if name in other}
    size, where = largest(turned)
    text = f"{where}: {mine[where]:.2f}, {other[where]:.2f} there"
    yield Row(recipe, "angle", size, text, source, LIMITS["angle"])
    yield states_apart(recipe, source, ours, theirs, after)
    losses = {str(i): abs(a - b) for i, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True))}
    size, where = largest(losses)
    yield Row(recipe, "loss", size, f"step {where}", source, LIMITS["loss"])


def states_apart(recipe: str, source: str, ours: Follower, theirs: Follower, after: int) -> Row:
    """The largest difference of a tensor's state, relative to its norm; 1 or more where it has taken another
    number of steps, or none. Beside it, the largest difference of the source from itself, whose weights began
    one rounding apart.

    Ours rounds otherwise in each step, and not at the start alone: n steps of independent roundings make
    sqrt(n) times what one makes, which is the limit.
    """

    def apart(state: State) -> dict[str, float]:
        found = {}
        for part, tensors in theirs.state.items():
            for name, other in tensors.items():
                mine = state[part][name]
                if part == "step":  # a row that is frozen here is 0 in what is loaded of the source
                    mine = torch.where(other == 0, other, mine)
                if name in ours.gradient and other.norm() > 1e-12:
                    found[f"{part} of {name}"] = float((mine - other).norm() / other.norm())
        return found

    size, where = largest(apart(ours.state))
    null, _ = largest(apart(theirs.again))
    return Row(recipe, "state", size, where, source, math.ceil(math.sqrt(after)) * null, null=null)


def state_of(
    optimizers: Sequence[torch.optim.Optimizer], model: nn.Module, of: Callable[[nn.Module], nn.Module]
) -> State:
    """The state of optimizers in torch, by part and by the names of our tensors: it is loaded in the place of
    the weights. Steps are numbers all over a tensor; -1: the optimizer knows nothing of it.

    Args:
        of: makes our model of the one that they train.
    """
    known: dict[int, dict[str, torch.Tensor]] = {}
    for optimizer in optimizers:
        known |= {id(parameter): slots for parameter, slots in optimizer.state.items()}
    parts = {key for slots in known.values() for key, value in slots.items() if torch.is_tensor(value)}
    kept, found = {key: value.clone() for key, value in model.state_dict().items()}, {}
    for part in sorted(parts):
        values = {}
        for name, parameter in model.named_parameters():
            value = known.get(id(parameter), {}).get(part)
            blank = torch.full_like(parameter, -1.0)
            values[name] = blank if value is None else value.to(parameter.dtype).expand_as(parameter)
        model.load_state_dict(kept | values)
        found[part] = copied(of(model))
    model.load_state_dict(kept)
    return found


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def batches(size: int, steps: int = STEPS, count: int = 16) -> list[Batch]:
    """Images whose class is the place of a bright square."""
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        labels = torch.randint(10, (count,), generator=generator)
        images = torch.randn(count, 3, size, size, generator=generator) * 0.5
        for image, label in zip(images, labels.tolist(), strict=True):
            image[:, 3 * label : 3 * label + 3, :8] += 2.0
        found.append(Batch(images, labels, torch.ones(count, dtype=torch.bool)))
    return found


def follow(
    model: nn.Module,
    config: TrainingConfig,
    data: Sequence[Any],
    objective: Objective | None = None,
    steps: int = STEPS,
    after: int = SHORT,
) -> Follower:
    """Train a model as `vitreous train` does, with the recipe's optimizer.

    Args:
        objective: None for the classification of the configuration.
        steps: of the whole training, of which `data` are the first.
        after: how many steps, for the weights and the optimizer's state.
    """
    learner = Learner.begin(model, config)
    step = TrainStep(learner, LossOf(model, objective or classification(config)), config, seed=0)
    before, weights, gradient, losses, state = copied(model), {}, {}, [], {}
    for number, batch in enumerate(data):
        learner.set_learning_rate(config, steps, steps_per_epoch=1)  # the sources are asked for a rate a step
        step.prepare(batch)
        if number == 0:
            gradient = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        losses.append(float(step.measured[0][1]["loss"]))
        step.take()
        step.outcome()
        if number + 1 == after:
            weights = copied(model)
            state = state_of(learner.optimizers, model, lambda same: same)
    return Follower(gradient, before, weights, losses, state, {})


def small(recipe: str, **options: Any) -> tuple[Any, Any]:
    """The recipe's model with two layers for images of 32 pixels, and its training in STEPS steps of 16,
    without warm-up."""
    config = find_recipe(recipe).config
    sizes = {"depth": 2, "image_size": (32, 32), "patch_size": (8, 8), "num_classes": 10}
    model = config.model.model_dump() | sizes | options
    return type(config.model).model_validate(model), small_training(recipe)


def small_training(recipe: str) -> TrainingConfig:
    """The recipe's training with batches of 16, without warm-up."""
    training: TrainingConfig = find_recipe(recipe).config.training
    # The rate of every step of the whole length is compared by itself: provenance_schedules.py.
    changes = {"warmup": 0.0} | ({"per_epoch": False} if hasattr(training.schedule, "per_epoch") else {})
    schedule = training.schedule.model_copy(update=changes)
    return training.model_copy(update={"schedule": schedule, "batch_size": 16, "lr_batch_size": None})


def build(config: Any, training: TrainingConfig) -> Any:
    """Our model with the initial weights of a recipe."""
    from vitreous.layers.initialization import init_weights
    from vitreous.models.model import build_model
    from vitreous.rng import torch_generator

    model = build_model(config)
    init_weights(model, torch_generator(0, "weights"), training.initialization)
    return model


def follow_peer(
    peer: nn.Module,
    loaded: Callable[[nn.Module], nn.Module],
    optimizer: torch.optim.Optimizer,
    data: Sequence[Any],
    loss_of: Callable[[Any], torch.Tensor],
    *,
    begin: Callable[[int], object],
    clip: Callable[[], object] = lambda: None,
    end: Callable[[int], object] = lambda number: None,
    after: int = SHORT,
) -> Follower:
    """Train a model of PyTorch with an optimizer of its own, twice.

    Args:
        loaded: makes our model of it.
        begin: called with the number of a step before it: the rates; at 0 all that a training remembers
            besides the model and the optimizer begins again.
        clip: called between the gradient and the step.
        end: called after a step.
        after: as of `follow`.
    """

    def train(steps: Sequence[Any]) -> Follower:
        before, losses, gradient, weights, state = copied(loaded(peer)), [], {}, {}, {}
        for number, batch in enumerate(steps):
            begin(number)
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            clip()
            if number == 0:
                gradient = gradient_of(peer, loaded)
            losses.append(loss.item())
            optimizer.step()
            end(number)
            if number + 1 == after:
                weights, state = copied(loaded(peer)), state_of([optimizer], peer, loaded)
        return Follower(gradient, before, weights, losses, state, {})

    weights, state = copy.deepcopy((peer.state_dict(), optimizer.state_dict()))
    found = train(data)
    peer.load_state_dict(weights)
    optimizer.load_state_dict(state)
    one_rounding_apart(peer)
    return found._replace(again=train(data[:after]).state)


@torch.no_grad()
def one_rounding_apart(model: nn.Module) -> None:
    """Move every weight that learns to the next number above or below it."""
    generator = torch.Generator().manual_seed(2)
    for weight in model.parameters():
        if weight.requires_grad:
            above = torch.rand(weight.shape, generator=generator) < 0.5
            weight.copy_(torch.nextafter(weight, torch.where(above, torch.inf, -torch.inf).to(weight.dtype)))


def gradient_of(peer: nn.Module, loaded: Callable[[nn.Module], nn.Module]) -> dict[str, torch.Tensor]:
    """Return a peer's gradient by the names of our tensors: it is loaded in the place of the weights."""
    kept = {key: value.clone() for key, value in peer.state_dict().items()}
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in peer.named_parameters()
    }
    peer.load_state_dict(kept | gradients)
    found = copied(loaded(peer))
    peer.load_state_dict(kept)
    return found
