"""How gradients are joined: parameters that get none, by one process of a group of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitreous.data.image_samples import Batch
from vitreous.models.names import create
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import Shards, World
from vitreous.training.learner import Learner
from vitreous.training.machine import activation_checkpointing
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, TrainStep, average_gradients, data_parallel


class Losses(nn.Module):
    """One matrix is used, the other only if `both`."""

    def __init__(self, *, both: bool) -> None:
        super().__init__()
        self.used, self.other, self.both = nn.Linear(3, 1), nn.Linear(3, 1), both

    def forward(self, part: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self.used(part).mean()
        return (loss + self.other(part).mean() if self.both else loss), {}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[World]:
    """A group of this process alone, of which the code is told that it is one of two."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield World(rank=0, size=2)
    dist.destroy_process_group()


def test_what_an_objective_freezes_is_not_waited_for(group: World) -> None:
    losses, part = Losses(both=False), torch.ones(2, 3)
    losses.other.requires_grad_(False)
    joined = data_parallel(losses, None, TrainingConfig(), group)
    assert isinstance(joined, DistributedDataParallel)
    for _ in range(3):
        losses.zero_grad()
        loss, _ = joined(part, torch.Generator())
        torch.autograd.backward(loss)
        assert losses.used.weight.grad is not None
        assert losses.used.weight.grad.tolist() == [[1.0] * 3]
        assert losses.other.weight.grad is None


def test_compiled_code_is_divided_where_gradients_are_exchanged(
    group: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first bucket holds 1 MB, as much as each of these matrices."""
    graphs: list[int] = []

    def noted(graph: torch.fx.GraphModule, inputs: object) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrices = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3)))

        def forward(self, part: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return self.matrices(part).mean(), {}

    compile = nn.Module.compile  # only the backend is another
    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: compile(module, backend=noted))
    joined = data_parallel(Large(), None, TrainingConfig(), group, compiled=True)
    for _ in range(3):
        loss, _ = joined(torch.ones(2, 512), torch.Generator())
        torch.autograd.backward(loss)
    assert len(graphs) > 1


@pytest.mark.slow  # without the checks of shapes, which are no part of a graph
@pytest.mark.parametrize("checkpointing", [False, True])
def test_layers_in_shards_are_compiled_inside_of_what_gathers_them(
    group: World, monkeypatch: pytest.MonkeyPatch, checkpointing: bool
) -> None:
    """All by one graph, also where their activations are computed again."""
    graphs: list[int] = []

    def noted(graph: torch.fx.GraphModule, inputs: object) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    compile = torch.compile  # only the backend is another
    monkeypatch.setattr(torch, "compile", lambda function, **options: compile(function, backend=noted))
    small = {"width": 16, "depth": 3, "heads": 2, "mlp_dim": 16}
    model = create("ViT-Ti/4", image_size=8, channels=1, num_classes=10, **small)
    config = TrainingConfig(batch_size=4, machine={"checkpointing": checkpointing, "shard": True})
    learner = Learner.begin(model, config, Shards(model, config, torch.device("cpu"), compiled=True))
    before = [parameter.detach().clone() for parameter in learner.model.parameters()]
    with activation_checkpointing(model) if checkpointing else nullcontext():
        loss = data_parallel(LossOf(model, classification(config)), learner.shards, config, group)
        step = TrainStep(learner, loss, config, seed=0, world=group)
        step(Batch(torch.rand(4, 1, 8, 8), torch.arange(4), torch.arange(4)))
    assert graphs == [max(graphs)]
    assert any(not torch.equal(*pair) for pair in zip(before, learner.model.parameters(), strict=True))


def test_gradients_are_averaged(group: World) -> None:
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    parameters[0].grad = torch.tensor([2.0, 4.0])
    average_gradients(parameters, World(rank=0, size=2))  # one of the two brought what it has
    assert parameters[0].grad.tolist() == [1.0, 2.0]
    assert parameters[1].grad is None


def test_a_gradient_that_another_process_has_counts_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other of the two has a gradient for the second matrix alone."""
    brought = [torch.tensor([0, 1], dtype=torch.int32), torch.zeros(2), torch.tensor([3.0, 5.0])]

    def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        theirs = brought.pop(0)
        if op == dist.ReduceOp.MAX:
            torch.maximum(tensor, theirs, out=tensor)
        else:
            tensor.add_(theirs)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    parameters[0].grad = torch.tensor([2.0, 4.0])
    average_gradients(parameters, World(rank=0, size=2))
    assert [each.grad.tolist() for each in parameters if each.grad is not None] == [[1.0, 2.0], [3.0, 5.0]]
