"""Parameter groups, and optimizers from torch.optim."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.with_encoder import encoder_of
from vitreous.training.config import AdamWConfig, AnyOptimizer, MuonConfig, OptimizerConfig

Group = dict[str, Any]
IN_A_LAYER = re.compile(r"(^|\.)blocks\.\d+\.")  # of a model, or of one inside an objective
PACKED = {"qkv": 3, "key_value": 2}  # matrices in one weight, stacked along the rows


def make_optimizers(
    model: nn.Module, config: AnyOptimizer, peak_lr: float, *, sharded: bool = False
) -> list[torch.optim.Optimizer]:
    """Return the optimizer of every parameter that learns; two of them for Muon, which takes matrices only.

    Each group has `scale`, its share of the schedule's learning rate (layer-wise decay), and `decay_scale`,
    its share of the weight decay's.
    """
    groups = parameter_groups(model, config, peak_lr)
    match config.kind:
        case "adamw":
            return [adamw(groups, config)]
        case "sgd":
            # Here the decay is a penalty: torch adds it to the gradient, before the momentum. PyTorch has no
            # fused SGD for shards.
            return [MomentumSGD(groups, lr=peak_lr, momentum=config.momentum, fused=not sharded)]
        case "adafactor":
            return [torch.optim.Adafactor(groups, lr=peak_lr)]
        case "muon":
            hidden, rest = split_for_muon(model, groups)
            if not hidden:
                raise InputError(
                    "Muon is for the matrices of encoder layers, and none of them learns here: use another "
                    "training.optimizer.kind"
                )
            muon = PackedMuon(
                hidden,
                packed_weights(model),
                lr=peak_lr,
                momentum=config.momentum,
                adjust_lr_fn="match_rms_adamw",
            )
            return [muon, adamw(rest, config)] if rest else [muon]


class MomentumSGD(torch.optim.SGD):
    """SGD whose momentum begins at zero, so that a GPU can skip the first step, too."""

    def _init_group(self, group: Any, params: Any, grads: Any, moments: list[Any]) -> Any:
        has_sparse = super()._init_group(group, params, grads, moments)  # type: ignore[no-untyped-call]
        moments[:] = [torch.zeros_like(g) if m is None else m for g, m in zip(grads, moments, strict=False)]
        return has_sparse


class PackedMuon(torch.optim.Muon):
    """Muon (2502.16982), which orthogonalizes each of the matrices that are stacked in one weight, such as
    query, key and value in `qkv`, instead of all of them as one.

    Args:
        packed: how many matrices are stacked in a weight, by its id.
    """

    def __init__(self, groups: list[Group], packed: Mapping[int, int], **settings: Any) -> None:
        super().__init__(groups, **settings)
        self.packed = dict(packed)
        self.gathered: list[tuple[Tensor, Tensor]] = []  # shards, and all of them as one tensor

    def _init_group(
        self,
        group: Any,
        params_with_grad: list[Tensor],
        grads: list[Tensor],
        muon_momentum_bufs: list[Tensor],
    ) -> bool:
        found: tuple[list[Tensor], list[Tensor], list[Tensor]] = [], [], []
        has_complex = super()._init_group(group, *found)
        for parameter, gradient, momentum in zip(*found, strict=True):
            count, whole = self.packed.get(id(parameter), 1), (parameter, gradient, momentum)
            # Gathered once: a chunk of shards is a copy, and what the step adds to it is lost.
            if type(gradient) is not Tensor:
                whole = tuple(each.full_tensor() for each in whole)  # type: ignore[attr-defined]
                self.gathered += [(parameter, whole[0]), (momentum, whole[2])]
            for target, tensor in zip((params_with_grad, grads, muon_momentum_bufs), whole, strict=True):
                target.extend(tensor.chunk(count))
        return has_complex

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)  # type: ignore[no-untyped-call]
        for shards, whole in self.gathered:
            from torch.distributed.tensor import distribute_tensor

            mesh, placements = shards.device_mesh, shards.placements  # type: ignore[attr-defined]
            shards.copy_(distribute_tensor(whole, mesh, placements, src_data_rank=None))
        self.gathered.clear()
        return loss


def packed_weights(model: nn.Module) -> dict[int, int]:
    """Return how many matrices are stacked in a weight, by its id."""
    return {
        id(module.weight): PACKED[name.rpartition(".")[2]]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in PACKED
    }


def adamw(groups: list[Group], config: AdamWConfig | MuonConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


def parameter_groups(model: nn.Module, config: OptimizerConfig, peak_lr: float) -> list[Group]:
    """Group the parameters that learn by weight decay and by their layer's share of the learning rate."""
    form = 1 / peak_lr if config.decay_form == "independent" else 1.0
    # Matrices and kernels; not biases, norms, LayerScale, tokens, positions, probes.
    decaying = {id(each.weight) for each in model.modules() if isinstance(each, nn.Linear | nn.Conv2d)}
    layers = depth(model) if config.layer_decay else 0
    groups: dict[tuple[float, float], Group] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale = config.layer_decay ** (layers + 1 - layer_of(name, layers)) if config.layer_decay else 1.0
        its_form = form if id(parameter) in decaying else 0.0
        settings = {"lr": peak_lr * scale, "scale": scale, "weight_decay": config.weight_decay * its_form}
        group = groups.setdefault((scale, its_form), {"params": [], **settings, "decay_scale": its_form})
        group["params"].append(parameter)
    if not groups:
        raise InputError("there is nothing to train: training.freeze covers every parameter of the model")
    return list(groups.values())


def depth(model: nn.Module) -> int:
    blocks = getattr(encoder_of(model), "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise InputError(
            f"{type(model).__name__} has no encoder layers: set training.optimizer.layer_decay=none"
        )
    return len(blocks)


def layer_of(name: str, layers: int) -> int:
    """Return 0 for what makes the tokens, l for encoder layer l, L + 1 for the norm, pooling and head
    (BEiT, 2106.08254; MAE, 2111.06377)."""
    name = name.removeprefix("encoder.")  # of a model around one
    if match := re.match(r"blocks\.(\d+)\.(?!position\.)", name):
        return int(match[1]) + 1
    if name.startswith(("stem.", "prefix", "position.", "embedding_norm.", "blocks.")):
        return 0
    return layers + 1


def split_for_muon(model: nn.Module, groups: list[Group]) -> tuple[list[Group], list[Group]]:
    """Return Muon's groups, the matrices of linear maps in the layers of encoders and decoders, and those of
    everything else: embeddings, projections, heads, tables of positions."""
    matrices = {
        id(parameter)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and IN_A_LAYER.search(name)
        for parameter in module.parameters()
        if parameter.ndim == 2
    }
    hidden = [{**g, "params": [p for p in g["params"] if id(p) in matrices]} for g in groups]
    rest = [{**g, "params": [p for p in g["params"] if id(p) not in matrices]} for g in groups]
    return [g for g in hidden if g["params"]], [g for g in rest if g["params"]]
