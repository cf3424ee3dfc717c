"""Everything that changes while a model learns, its way into a checkpoint and back, and the schedule."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.errors import InputError, Param
from vitreous.layers.embedding import LearnedPositions
from vitreous.models.model import WithEncoder
from vitreous.training.config import AnySchedule, FallingScheduleConfig, OptimizerConfig, TrainingConfig
from vitreous.training.distributed import Shards, sharded_as
from vitreous.training.optimizers import make_optimizers

FACTORED = ("/row_var", "/col_var")  # Adafactor's sums, smaller than their weight


class State(NamedTuple):
    """All that a run needs to resume: tensors, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


AverageWeight = Callable[[int], float]  # of the weights after step number 0, 1, ...; 0 leaves the average


class Average:
    """Averaged weights: a <- (1 - f(t)) a + f(t) w after step t, of parameters alone: no buffers here learn.
    model: at the beginning, its weights not sharded yet."""

    def __init__(self, model: nn.Module, weight: AverageWeight, shards: Shards | None = None) -> None:
        self.weight, self.following = weight, model
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        if shards:
            shards.shard_model(self.model)

    def update(self, step: int) -> None:
        if weight := self.weight(step):
            move_towards(self.model, self.following, weight)


def exponential(decay: float, *, warmup: bool = True) -> AverageWeight:
    """Return the weights of an exponential moving average (EMA, Polyak averaging). With a warm-up the decay
    grows from 0.1 as (1 + t) / (10 + t), so that a short run does not remember its random initialization."""
    if not warmup:
        return lambda step: 1 - decay
    return lambda step: 1 - min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def move_towards(model: nn.Module, target: nn.Module, weight: float | Tensor) -> None:
    """Move one model towards another: w <- (1 - weight) w + weight t for every parameter of two models of one
    architecture, sharded alike."""
    # Of shards each process moves its own.
    weights: list[Tensor] = []
    targets: list[Tensor] = []
    for found, each in ((weights, model), (targets, target)):
        for p in each.parameters():
            found.append(p.to_local() if hasattr(p, "to_local") else p)
    shares: Any = [weight] * len(weights) if isinstance(weight, Tensor) else weight
    # No public function moves a list of tensors, and torch.optim.swa_utils calls this one, too.
    torch._foreach_lerp_(weights, targets, shares)


@dataclass
class Learner:
    """A model in training."""

    model: nn.Module  # the weights, in their original modules: not compiled, not wrapped
    optimizers: list[torch.optim.Optimizer]
    average: Average | None = None
    step: int = 0  # optimizer steps taken
    lr_factor: float = 1.0  # below 1 after training went back from a loss that was not finite
    setbacks: int = 0  # how often it did
    skipped: int = 0  # steps that were skipped because their gradient was not finite
    bad_steps: int = 0  # how many of them in a row, up to now
    seconds: float = 0.0  # of training, over all sessions
    elapsed: float = 0.0  # with validations and saved checkpoints; of a training that has a time
    best_step: int | None = None  # of the best validation so far; None before the first
    best_score: float | None = None
    worse: int = 0  # validations since then
    threads: int | None = None  # 1 where one thread computes; None: as many as there are
    meter: dict[str, Tensor] = field(default_factory=dict)  # sums since the last row of metrics.jsonl
    shards: Shards | None = None  # how the weights are sharded over processes; None where each has them all

    COUNTS = (
        *("step", "lr_factor", "setbacks", "skipped", "seconds"),
        *("elapsed", "best_step", "best_score", "worse", "bad_steps", "threads"),
    )

    @classmethod
    def begin(
        cls,
        model: nn.Module,
        config: TrainingConfig,
        shards: Shards | None = None,
        averaging: AverageWeight | None = None,
    ) -> Learner:
        """Return the learner before its first step; `averaging` holds where `config` has no `ema`."""
        # Such a model uses the tokens of its encoder, and pools nothing.
        if isinstance(model, WithEncoder):
            model.encoder.pool.requires_grad_(False)
        if config.ema:
            averaging = exponential(config.ema.decay, warmup=config.ema.warmup)
        weights = {n: t.detach() for n, t in (*model.named_parameters(), *model.named_buffers())}
        weights = {} if next(iter(weights.values())).is_meta else weights
        average = Average(model, averaging, shards) if averaging else None
        if shards:
            shards.root = shards.shard_model(model)
            for each in (model, average.model) if average else (model,):
                shards.fill(each, weights)
        optimizers = make_optimizers(model, config.optimizer, scaled_lr(config), sharded=shards is not None)
        return cls(model, optimizers, average, shards=shards)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def is_out_of_patience(self, config: TrainingConfig) -> bool:
        """Return whether as many validations in a row as the patience were not better than the best."""
        stopping = config.records_config.early_stopping
        return self.worse >= (stopping.patience if stopping and stopping.patience else math.inf)

    def set_learning_rate(self, config: TrainingConfig, total: int, steps_per_epoch: int) -> float:
        """Set the learning rate of the next of `total` steps, each group's by its scale, and its weight decay
        where that changes. Return the rate."""
        share = learning_rate(self.step, total, config.schedule, steps_per_epoch)
        lr = self.lr_factor * scaled_lr(config) * share
        decay = weight_decay(self.step, total, config.optimizer)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["scale"]
                if decay is not None and group["decays"]:
                    group["weight_decay"] = decay
        return lr

    def set_total(self, total: int) -> None:
        """Tell an objective with schedules of its own of how many steps the training is, now."""
        for model in (self.model, self.average.model) if self.average else (self.model,):
            set_total: Any = getattr(model, "set_total", None)
            if set_total:
                set_total(total)

    @property
    def result(self) -> nn.Module:
        """The model to use, with averaged weights where there are some. All processes ask for it."""
        return self.full_model(self.average.model if self.average else self.model)

    def full_model(self, model: nn.Module) -> nn.Module:
        """Return the model or its average, gathered where it is sharded: all processes call it."""
        return self.shards.full_model(model) if self.shards else model

    def state(self) -> State:
        """Return a view of the present, to be written before the next step."""
        tensors = {f"model/{name}": tensor.detach() for name, tensor in self.model.named_parameters()}
        tensors |= {f"meter/{name}": tensor for name, tensor in self.meter.items()}
        if self.average:
            tensors |= {f"average/{n}": tensor for n, tensor in self.average.model.named_parameters()}
        facts: dict[str, Any] = {name: getattr(self, name) for name in self.COUNTS}
        facts["optimizers"] = []
        for number, optimizer in enumerate(self.optimizers):
            counts: dict[str, dict[str, Any]] = {}
            for index, slots in optimizer.state_dict()["state"].items():
                moments = {key: value for key, value in slots.items() if torch.is_tensor(value)}
                tensors |= {f"optimizer/{number}/{index}/{key}": value for key, value in moments.items()}
                counts[str(index)] = {key: value for key, value in slots.items() if key not in moments}
            facts["optimizers"].append(counts)
        return State({name: tensor.contiguous() for name, tensor in tensors.items()}, facts)

    def weights_of(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the weight that each tensor of a checkpoint belongs to, where it belongs to one:
        `optimizer/0/5/exp_avg` is of the fifth weight of the first optimizer."""
        found: dict[str, Tensor] = {f"model/{name}": p for name, p in self.model.named_parameters()}
        if self.average:
            found |= {f"average/{name}": p for name, p in self.average.model.named_parameters()}
        for number, optimizer in enumerate(self.optimizers):
            learning = [p for group in optimizer.param_groups for p in group["params"]]
            found |= {f"optimizer/{number}/{index}": p for index, p in enumerate(learning)}
        owners = {name: found.get(name, found.get(name.rpartition("/")[0])) for name in names}
        return {name: weight for name, weight in owners.items() if weight is not None}

    def sharded_weight(self, name: str, size: torch.Size) -> Any:
        """Return the sharded weight that a tensor of a checkpoint belongs to and is as large as; None for a
        count of steps, the meter, and where weights are not sharded."""
        weight: Any = self.weights_of([name]).get(name) if self.shards else None
        sharded = hasattr(weight, "full_tensor") and weight.shape == size
        return weight if sharded else None

    def empty_like(self, name: str, size: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return an uninitialized tensor to read `name` of a checkpoint into, sharded as its weight."""
        weight = self.sharded_weight(name, size)
        return torch.empty(size, dtype=dtype) if weight is None else torch.empty_like(weight, dtype=dtype)

    def shard(self, name: str, tensor: Tensor) -> Tensor:
        """Return a whole tensor of a checkpoint sharded as its weight."""
        weight = self.sharded_weight(name, tensor.shape)
        return tensor if weight is None else sharded_as(weight, tensor.to(self.device))

    def gradient_masks(self) -> list[tuple[Tensor, Tensor]]:
        """Return the weights of which some rows are frozen, whole or sharded, each with 0 for these rows and
        1 for the others."""
        found: list[tuple[Tensor, Tensor]] = []
        for name, module in self.model.named_modules():
            if isinstance(module, LearnedPositions) and module.frozen_rows:
                mask = torch.ones(module.table.shape, device=self.device)
                mask[: module.frozen_rows] = 0
                found.append((module.table, self.shard(f"model/{name}.table", mask)))
        return found

    def check_fits(self, tensors: dict[str, Tensor]) -> None:
        """Raise InputError for another model's checkpoint: fused optimizers would read past its end."""
        wanted = [f"model/{name}" for name, _ in self.model.named_parameters()]
        missing = [name for name in wanted if name not in tensors]
        unexpected = []
        for name, weight in self.weights_of(tensors).items():
            # Counts of steps and parts of moments have shapes of their own.
            other = tensors[name].ndim == 0 or name.endswith(FACTORED)
            if not other and tensors[name].shape != weight.shape:
                unexpected.append(name)
        if missing or unexpected:
            raise InputError(
                f"the checkpoint does not fit the run's model ({(missing + unexpected)[0]} for one): it was "
                "saved by another version of vitreous, or config.toml was changed; start a new run, with "
                f"{Param('init')} RUN to keep what was learned"
            )

    @torch.no_grad()
    def restore(self, state: State, *, first: bool = True) -> None:
        """Become what was saved, to the bit. The first process has the meter, which was summed over all."""
        tensors, facts = state
        self.check_fits(tensors)
        for name, parameter in self.model.named_parameters():
            parameter.copy_(tensors[f"model/{name}"])
        if self.average:
            for name, parameter in self.average.model.named_parameters():
                parameter.copy_(tensors[f"average/{name}"])
        saved = tensors_below(tensors, "meter/") if first else {}
        self.meter = {name: tensor.to(self.device) for name, tensor in saved.items()}
        for name in self.COUNTS:
            setattr(self, name, facts.get(name, getattr(self, name)))
        for number, optimizer in enumerate(self.optimizers):
            moments: dict[int, dict[str, Any]] = {}
            for index, slots in facts["optimizers"][number].items():
                moments[int(index)] = dict(slots)
            for name, tensor in tensors_below(tensors, f"optimizer/{number}/").items():
                index, key = name.split("/")
                moments.setdefault(int(index), {})[key] = tensor
            # Rates and groups come from the configuration, so only the state is restored.
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": moments, "param_groups": groups})


def tensors_below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose name begins with `prefix`, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def scaled_lr(config: TrainingConfig) -> float:
    """Return the peak learning rate at the batch size of a run (1706.02677)."""
    return config.peak_lr * config.batch_size / (config.lr_batch_size or config.batch_size)


def learning_rate(step: int, total: int, config: AnySchedule, steps_per_epoch: int = 1) -> float:
    """Return the share of the peak learning rate at `step` (0, 1, ... total - 1) of a run of `total` steps.

    Warm-up is linear and ends at the peak: step t of w has the share (t + 1) / w, or with a start s the share
    s + (1 - s) t / w. The curve runs over the steps after it (1608.03983 without restarts for cosine;
    2106.04560, section 3.5, for rsqrt with its cooldown), and is 0 (or `end`) at step `total`, which is never
    taken.

    Args:
        steps_per_epoch: for a rate that changes between epochs alone.
    """
    warmup = in_steps(config.warmup, total)
    cooldown = in_steps(config.cooldown, total) if config.kind in ("constant", "rsqrt") else 0
    falling = config if isinstance(config, FallingScheduleConfig) else None
    if falling and falling.per_epoch:
        # DeiT's loop sets the rate after an epoch, by the number of that epoch: two epochs have the first.
        step = max(step // steps_per_epoch - 1, 0) * steps_per_epoch
    if step < warmup:
        start = config.warmup_start
        return (step + 1) / warmup if start is None else start + (1 - start) * step / warmup
    before = 0 if falling and falling.under_warmup else warmup
    done = (step - before) / max(total - before, 1)
    match config.kind:
        case "linear":
            share = config.end + (1 - config.end) * (1 - done)
        case "cosine":
            share = config.end + (1 - config.end) * (1 + math.cos(math.pi * done)) / 2
        case "constant":
            share = 1.0
        case "steps":
            share = 0.1 ** sum(step > round(drop * total) for drop in config.drops)
        case "rsqrt":
            share = math.sqrt(config.timescale / (config.timescale + step - warmup))
    return share * min(1.0, (total - step) / cooldown) if cooldown else share


def weight_decay(step: int, total: int, config: OptimizerConfig) -> float | None:
    """Return the weight decay at a step of a run, along half a cosine (DINO, 2104.14294); None where it does
    not change."""
    if not isinstance(config.weight_decay, tuple):
        return None
    start, end = config.weight_decay
    return end + (start - end) * (1 + math.cos(math.pi * step / total)) / 2


def in_steps(length: float, total: int) -> int:
    """Return a length in steps; below 1 it is a share of the run. Warm-up never takes the whole run."""
    return min(round(length * total if length < 1 else length), max(total - 1, 0))
