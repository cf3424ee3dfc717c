"""Everything that changes while a model learns, and its way into a saved state and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.legacy import current_weights
from vitreous.training.average import Average, Averaging
from vitreous.training.config import TrainingConfig
from vitreous.training.optimizers import make_optimizers
from vitreous.training.sharding import Shards
from vitreous.training.state import State

FACTORED = ("/row_var", "/col_var")  # Adafactor's sums, smaller than their weight


@dataclass
class Learner:
    """A model on its way.

    Attributes:
        model: the weights, in their plain form: not compiled, not wrapped.
        step: optimizer steps taken.
        lr_factor: below 1 after training went back from a loss that was not finite.
        setbacks: how often it did.
        skipped: steps that were left out because their gradient was not finite.
        seconds: of training, over all sessions.
        meter: sums since the last line of metrics.jsonl.
        shards: how the weights are spread over processes; None where each has them all.
    """

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    average: Averaging | None = None
    step: int = 0
    lr_factor: float = 1.0
    setbacks: int = 0
    skipped: int = 0
    seconds: float = 0.0
    meter: dict[str, Tensor] = field(default_factory=dict)
    shards: Shards | None = None

    COUNTS = ("step", "lr_factor", "setbacks", "skipped", "seconds")

    @classmethod
    def begin(
        cls,
        model: nn.Module,
        config: TrainingConfig,
        shards: Shards | None = None,
        average: Averaging | None = None,
    ) -> Learner:
        """Before the first step.

        Args:
            average: of the model's weights, where it is not the exponential one that `config` may ask for.
        """
        if config.ema_decay:
            average = Average(model, config.ema_decay, shards=shards)
        if shards:
            shards.root = shards.spread(model)
        optimizers = make_optimizers(model, config.optimizer, config.peak_lr, sharded=shards is not None)
        return cls(model, optimizers, average, shards=shards)

    @property
    def result(self) -> nn.Module:
        """The model to use: averaged weights where they are kept. All processes must ask."""
        return self.gathered(self.average.model if self.average else self.model)

    def gathered(self, model: nn.Module) -> nn.Module:
        """The model or its average, put together where it is in shards: all processes must ask."""
        return self.shards.whole(model) if self.shards else model

    def state(self) -> State:
        """A view of the present, to be written before the next step."""
        tensors = {f"model/{name}": tensor.detach() for name, tensor in self.model.named_parameters()}
        tensors |= {f"meter/{name}": tensor for name, tensor in self.meter.items()}
        if self.average:
            tensors |= {f"average/{n}": tensor for n, tensor in self.average.model.named_parameters()}
        facts: dict[str, Any] = {name: getattr(self, name) for name in self.COUNTS}
        facts["optimizers"] = []
        for number, optimizer in enumerate(self.optimizers):
            memory = optimizer.state_dict()["state"]
            facts["optimizers"].append(
                {
                    str(index): {key: value for key, value in slots.items() if not torch.is_tensor(value)}
                    for index, slots in memory.items()
                }
            )
            tensors |= {
                f"optimizer/{number}/{index}/{key}": value
                for index, slots in memory.items()
                for key, value in slots.items()
                if torch.is_tensor(value)
            }
        return State(tensors, facts)

    def weights(self) -> dict[str, Tensor]:
        """What each tensor of a saved state belongs to: `optimizer/0/5` is the memory about the weight that
        is the fifth of the first optimizer."""
        named: dict[str, Tensor] = {f"model/{name}": p for name, p in self.model.named_parameters()}
        if self.average:
            named |= {f"average/{name}": p for name, p in self.average.model.named_parameters()}
        for number, optimizer in enumerate(self.optimizers):
            learning = [p for group in optimizer.param_groups for p in group["params"]]
            named |= {f"optimizer/{number}/{index}": p for index, p in enumerate(learning)}
        return named

    def check_fits(self, tensors: dict[str, Tensor]) -> None:
        """Raises InputError where a state is another model's: fused optimizers would read past its end."""
        weights = self.weights()
        missing = [name for name in weights if name.startswith("model/") and name not in tensors]
        strange = [
            name
            for name, tensor in tensors.items()
            if (weight := weights.get(name, weights.get(name.rpartition("/")[0]))) is not None
            and tensor.ndim == weight.ndim > 0
            and not name.endswith(FACTORED)
            and tensor.shape != weight.shape
        ]
        if missing or strange:
            raise InputError(
                f"the saved state does not fit the run's model ({(missing + strange)[0]} for one): it was "
                "saved by another version of vitreous, or config.toml was changed; begin a new run, with "
                "--init RUN to keep what was learned"
            )

    def current(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a state with the names that weights have now."""
        names = {name for name, _ in self.model.named_parameters()}
        for part in ("model/", "average/"):
            old = within(tensors, part)
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(part)}
            tensors |= {part + name: tensor for name, tensor in current_weights(old, names).items()}
        return tensors

    @torch.no_grad()
    def restore(self, state: State, *, first: bool = True) -> None:
        """Become what was saved, to the bit. The first process has the meter, which was summed over all."""
        tensors, facts = self.current(state.tensors), state.facts
        self.check_fits(tensors)
        for name, parameter in self.model.named_parameters():
            parameter.copy_(tensors[f"model/{name}"])
        if self.average:
            for name, parameter in self.average.model.named_parameters():
                parameter.copy_(tensors[f"average/{name}"])
        device = next(self.model.parameters()).device
        saved = within(tensors, "meter/") if first else {}
        self.meter = {name: tensor.to(device) for name, tensor in saved.items()}
        for name in self.COUNTS:
            setattr(self, name, facts[name])
        for number, optimizer in enumerate(self.optimizers):
            memory: dict[int, dict[str, Any]] = {
                int(index): dict(slots) for index, slots in facts["optimizers"][number].items()
            }
            for name, tensor in within(tensors, f"optimizer/{number}/").items():
                index, key = name.split("/")
                memory.setdefault(int(index), {})[key] = tensor
            # Rates and groups come from the configuration, so only the memory is put back.
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": memory, "param_groups": groups})


def within(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name begins with `prefix`, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
