"""Parameter groups, and optimizers from torch.optim."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.model import encoder_of
from vitreous.training.config import AdamWConfig, AnyOptimizer, MuonConfig, OptimizerConfig
from vitreous.training.distributed import sharded_as, whole_tensor

Group = dict[str, Any]
IN_A_LAYER = re.compile(r"(^|\.)blocks\.\d+\.")  # of a model, or of one inside an objective
TOKEN = re.compile(r"(^|\.)(prefix|mask|probe|position\..*)$")  # class and mask tokens, probes, positions
PACKED = {"qkv": 3, "key_value": 2}  # matrices in one weight, stacked along the rows


def make_optimizers(
    model: nn.Module, config: AnyOptimizer, peak_lr: float, *, sharded: bool = False
) -> list[torch.optim.Optimizer]:
    """Return the optimizer of every parameter that learns; two of them for Muon, which takes matrices only.

    Each group has `scale`, its share of the schedule's learning rate (layer-wise decay), and `decays`,
    its share of the weight decay's.
    """
    groups = parameter_groups(model, config, peak_lr)
    match config.kind:
        case "adamw":
            return [adamw(groups, config)]
        case "sgd":
            # Here the decay is a penalty: torch adds it to the gradient, before the momentum. PyTorch has no
            # fused SGD for shards. The momentum begins at zero, so that a GPU can skip the first step, too.
            sgd = torch.optim.SGD(groups, lr=peak_lr, momentum=config.momentum, fused=not sharded)
            for group in groups:
                for parameter in group["params"]:
                    sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
            return [sgd]
        case "adafactor":
            return [torch.optim.Adafactor(groups, lr=peak_lr)]
        case "muon":
            hidden, rest = split_for_muon(model, groups)
            if not hidden:
                raise InputError(
                    "Muon is for the matrices of encoder layers, and none of them is trained: use another "
                    "training.optimizer.kind"
                )
            muon = Muon(hidden, packed_weights(model), lr=peak_lr, momentum=config.momentum)
            return [muon, adamw(rest, config)] if rest else [muon]


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of a step, as Muon's authors have them
NEWTON_SCHULZ_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Muon (2502.16982): the momentum of each matrix is orthogonalized, and scaled to the size of AdamW's
    steps. Of matrices that are stacked in one weight, such as query, key and value in `qkv`, each by itself.

    Args:
        packed: how many matrices are stacked in a weight, by its id.
    """

    def __init__(self, groups: list[Group], packed: Mapping[int, int], *, lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.packed = dict(packed)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no second evaluation
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
                moved = parameter.grad.lerp(momentum, group["momentum"])  # Nesterov's
                whole = whole_tensor(moved)
                matrices = whole.chunk(self.packed.get(id(parameter), 1))
                change = torch.cat([orthogonalized(each) for each in matrices])
                size = max(matrices[0].shape) ** 0.5
                change = sharded_as(parameter, change.to(parameter.dtype))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(change, alpha=-0.2 * size * group["lr"])


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return about U V^T of a matrix U S V^T, by steps of Newton and Schulz in bf16."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def packed_weights(model: nn.Module) -> dict[int, int]:
    """Return how many matrices are stacked in a weight, by its id."""
    found = {}
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and last in PACKED:
            found[id(module.weight)] = PACKED[last]
    return found


def adamw(groups: list[Group], config: AdamWConfig | MuonConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)


def parameter_groups(model: nn.Module, config: OptimizerConfig, peak_lr: float) -> list[Group]:
    """Group the parameters that learn by weight decay and by their layer's share of the learning rate."""
    # Matrices and kernels; never biases, norms, LayerScale. DINO and MAE let decay what has three dimensions
    # in their code: tokens and positions. Over DINO's recipe a position keeps e^-18 of what it began with.
    decaying = {id(each.weight) for each in model.modules() if isinstance(each, nn.Linear | nn.Conv2d)}
    if config.decayed == "tokens":
        decaying |= {id(each) for name, each in model.named_parameters() if TOKEN.search(name)}
    layers = depth(model) if config.layer_decay else 0
    inside = {id(each): name for name, each in encoder_of(model).named_parameters()}
    first = config.weight_decay[0] if isinstance(config.weight_decay, tuple) else config.weight_decay
    groups: dict[tuple[float, bool], Group] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        scale = 1.0
        # What is around an encoder learns as its head does.
        if config.layer_decay:
            scale = config.layer_decay ** (layers + 1 - layer_of(inside.get(id(parameter), ""), layers))
        decays = id(parameter) in decaying
        settings = {"lr": peak_lr * scale, "scale": scale, "weight_decay": first if decays else 0.0}
        group = groups.setdefault((scale, decays), {"params": [], **settings, "decays": decays})
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
    if match := re.match(r"blocks\.(\d+)\.(?!position\.)", name):
        return int(match[1]) + 1
    if name.startswith(("stem.", "prefix", "position.", "embedding_norm.", "blocks.")):
        return 0
    return layers + 1


def split_for_muon(model: nn.Module, groups: list[Group]) -> tuple[list[Group], list[Group]]:
    """Return Muon's groups, the matrices of linear maps in the layers of encoders and decoders, and those of
    everything else: embeddings, projections, heads, tables of positions."""
    matrices = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and IN_A_LAYER.search(name):
            matrices |= {id(parameter) for parameter in module.parameters() if parameter.ndim == 2}
    hidden, rest = [], []
    for group in groups:
        inside = [p for p in group["params"] if id(p) in matrices]
        outside = [p for p in group["params"] if id(p) not in matrices]
        if inside:
            hidden.append({**group, "params": inside})
        if outside:
            rest.append({**group, "params": outside})
    return hidden, rest
