"""Who decays, at which rate each layer learns, and what a step of each optimizer does."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.transformer import Transformer
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.models.names import create
from vitreous.tasks import OBJECTIVES
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.tasks.pretraining.task import build_objective
from vitreous.training.config import (
    AdamWConfig,
    ClipEach,
    ConstantScheduleConfig,
    LoRAConfig,
    MuonConfig,
    TrainingConfig,
)
from vitreous.training.initial_model import add_lora, freeze
from vitreous.training.learner import Learner
from vitreous.training.optimizers import (
    Muon,
    layer_of,
    make_optimizers,
    packed_weights,
    parameter_groups,
)
from vitreous.training.step import LossOf, TrainStep

SMALL: dict[str, Any] = {
    "image_size": 8,
    "width": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 16,
    "num_classes": 3,
}


def names_of(model: nn.Module, parameters: list[torch.Tensor]) -> set[str]:
    by_id = {id(parameter): name for name, parameter in model.named_parameters()}
    return {by_id[id(parameter)] for parameter in parameters}


def test_only_matrices_and_kernels_decay() -> None:
    model = create("ViT-Ti/4", **SMALL, registers=2, layer_scale=0.1, pooling="attention")
    groups = parameter_groups(model, AdamWConfig(weight_decay=0.1), 1e-3)
    decaying = {name for g in groups if g["weight_decay"] for name in names_of(model, g["params"])}
    resting = {name for g in groups if not g["weight_decay"] for name in names_of(model, g["params"])}
    assert decaying | resting == {name for name, _ in model.named_parameters()}
    assert {"stem.projection.weight", "blocks.0.attention.qkv.weight", "head.weight"} <= decaying
    assert all(name.endswith(".weight") and "norm" not in name for name in decaying)
    assert {"prefix", "position.table", "head.bias", "norm.weight", "pool.probe"} <= resting
    assert any("gamma" in name for name in resting)


def test_tokens_and_positions_decay_where_the_recipe_says_so() -> None:
    """As DINO's and MAE's own groups: what has more than one dimension in their code."""
    model = create("ViT-Ti/4", **SMALL, registers=2, layer_scale=0.1, qk_norm="unit")
    groups = parameter_groups(model, AdamWConfig(weight_decay=0.1, decayed="tokens"), 1e-3)
    decaying = {name for g in groups if g["weight_decay"] for name in names_of(model, g["params"])}
    assert {"prefix", "position.table", "stem.projection.weight", "head.weight"} <= decaying
    assert not [name for name in decaying if re.search(r"bias|norm|gamma|gain", name)]


@pytest.mark.parametrize(
    ("objective", "tokens"),
    [("dino", {"model.prefix", "model.position.table"}), ("mae", {"model.prefix", "decoder.mask"})],
)
def test_recipes_of_pretraining_decay_what_their_sources_do(objective: str, tokens: set[str]) -> None:
    model = build_objective(create("ViT-Ti/4", **SMALL), objective, None, steps=1)
    groups = parameter_groups(model, find_recipe(objective).config.training.optimizer, 1e-3)
    decaying = {name for g in groups if g["weight_decay"] for name in names_of(model, g["params"])}
    assert tokens <= decaying


def test_layer_decay_falls_towards_the_stem() -> None:
    model = create("ViT-Ti/4", **SMALL)
    groups = parameter_groups(model, AdamWConfig(layer_decay=0.5), 1.0)
    scale = {name: g["scale"] for g in groups for name in names_of(model, g["params"])}
    assert scale["head.weight"] == scale["norm.weight"] == 1.0
    assert scale["blocks.1.mlp_norm.weight"] == 0.5
    assert scale["blocks.0.mlp_norm.weight"] == 0.25
    assert scale["stem.projection.weight"] == scale["position.table"] == scale["prefix"] == 0.125


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "distillation"])
def test_layer_decay_reaches_the_encoder_of_every_objective(objective: str) -> None:
    """Whatever the objective calls it: `pretrain --init` has rates that fall with depth."""
    encoder = create("ViT-Ti/4", **{**SMALL, "num_classes": None}, channels=3)
    small = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
    settings = {"mae": small, "dino": {"prototypes": 8, "head_hidden": 8}}
    model = build_objective(encoder, objective, settings.get(objective), steps=1)
    groups = parameter_groups(model, AdamWConfig(layer_decay=0.5), 1.0)
    scales = {id(p): g["scale"] for g in groups for p in g["params"]}
    assert scales[id(encoder.blocks[1].mlp_norm.weight)] == 0.5
    assert scales[id(encoder.blocks[0].mlp_norm.weight)] == 0.25
    learning = [id(p) for p in encoder.parameters() if p.requires_grad]
    assert all(scales[each] == 1.0 for each in scales.keys() - set(learning))


def test_every_layer_has_a_number() -> None:
    assert [layer_of(name, 2) for name in ("stem.x", "blocks.0.x", "blocks.1.x", "head.weight")] == [
        0,
        1,
        2,
        3,
    ]


def test_layer_decay_of_a_model_without_layers_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no encoder layers"):
        parameter_groups(create("BiT-R50x1", layers=(1,)), AdamWConfig(layer_decay=0.5), 1.0)


def test_rates_follow_the_schedule_by_scale() -> None:
    schedule = ConstantScheduleConfig(warmup=0)
    config = TrainingConfig(peak_lr=0.4, optimizer=AdamWConfig(layer_decay=0.5), schedule=schedule)
    learner = Learner.begin(create("ViT-Ti/4", **SMALL), config)
    learner.lr_factor = 0.5
    assert learner.set_learning_rate(config, total=10, steps_per_epoch=10) == 0.2
    assert {round(g["lr"], 6) for o in learner.optimizers for g in o.param_groups} == {0.2, 0.1, 0.05, 0.025}


def test_decay_follows_its_schedule_where_there_is_one() -> None:
    config = TrainingConfig(optimizer=AdamWConfig(weight_decay=(0.04, 0.4)))
    learner = Learner.begin(create("ViT-Ti/16", width=16, depth=1, heads=2, mlp_dim=16), config)
    learner.step = 50
    learner.set_learning_rate(config, 100, 100)
    found = sorted(group["weight_decay"] for group in learner.optimizers[0].param_groups)
    assert found == pytest.approx([0.0, 0.22])


def test_each_gradient_is_clipped_by_itself() -> None:
    model = nn.Linear(2, 2)
    config = TrainingConfig(optimizer=AdamWConfig(clip_norm=ClipEach(each=3.0)), peak_lr=1e-9)
    learner = Learner.begin(model, config)

    def objective(layer: nn.Linear, batch: torch.Tensor, generator: torch.Generator) -> Any:
        return 100 * layer.weight.sum() + 0.1 * layer.bias.sum(), {}

    step = TrainStep(learner, LossOf(model, objective), config, seed=0)
    step.gradient = lambda batch: objective(model, batch, torch.Generator())[0].backward() or []  # type: ignore
    step.prepare(torch.zeros(1))
    assert model.weight.grad.norm().item() == pytest.approx(3.0, abs=1e-4)
    assert model.bias.grad.tolist() == pytest.approx([0.1, 0.1])  # by the global norm it would have vanished


@pytest.mark.parametrize("kind", ["adamw", "sgd", "adafactor", "muon"])
def test_every_optimizer_lowers_the_loss(kind: str) -> None:
    torch.manual_seed(0)
    model = create("ViT-Ti/4", **SMALL)
    images, targets = torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    # At five times the rate of SGD, or ten times that of Adafactor, which is relative to each weight's size,
    # the loss swings, and where it is after so many steps depends on how the machine rounds.
    rate = {"sgd": 0.02, "adafactor": 0.1}.get(kind, 0.01)
    optimizers = make_optimizers(model, TrainingConfig(optimizer=kind).optimizer, rate)  # type: ignore[arg-type]
    losses = []
    for _ in range(50):
        loss = nn.functional.cross_entropy(model(images), targets)
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_muon_takes_the_encoders_matrices_and_adamw_the_rest() -> None:
    model = create("ViT-Ti/4", **SMALL)
    muon, adamw = make_optimizers(model, MuonConfig(), 1e-3)
    of_muon = names_of(model, [p for g in muon.param_groups for p in g["params"]])
    of_adamw = names_of(model, [p for g in adamw.param_groups for p in g["params"]])
    assert of_muon == {n for n, p in model.named_parameters() if n.startswith("blocks.") and p.ndim == 2}
    assert of_muon | of_adamw == {name for name, _ in model.named_parameters()}
    assert not of_muon & of_adamw


def of_muon(model: nn.Module) -> set[str]:
    muon, *_ = make_optimizers(model, MuonConfig(), 1e-3)
    return names_of(model, [p for g in muon.param_groups for p in g["params"]])


LINEAR = ("attention.qkv", "attention.out", "mlp.expand", "mlp.contract")


def test_muon_takes_no_tables() -> None:
    model = create("ViT-Ti/4", **SMALL, position={"kind": "relative"})
    assert of_muon(model) == {f"blocks.{n}.{part}.weight" for n in (0, 1) for part in LINEAR}
    add_lora(model, LoRAConfig(rank=2), seed=0)
    change = "parametrizations.weight.0"
    assert of_muon(model) == {
        f"blocks.{n}.{part}.{change}.{side}" for n in (0, 1) for part in LINEAR for side in "ab"
    }


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "distillation"])
def test_muon_finds_the_layers_inside_an_objective(objective: str) -> None:
    """Those of MAE's decoder, too; no embedding, prediction or prototype, and no teacher."""
    model = create("ViT-Ti/4", **{**SMALL, "num_classes": None}, channels=3)
    small = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
    settings = {"mae": small, "dino": {"prototypes": 8, "head_hidden": 8}}
    expected = {f"model.blocks.{n}.{part}.weight" for n in (0, 1) for part in LINEAR}
    if objective == "mae":
        expected |= {f"decoder.blocks.0.{part}.weight" for part in LINEAR}
    assert of_muon(build_objective(model, objective, settings.get(objective), steps=1)) == expected


def test_muon_finds_both_stacks_of_a_translator() -> None:
    config = TransformerConfig(vocabulary=20, width=16, heads=2, mlp_dim=16, depth=1, encoder_depth=1)
    found = of_muon(Transformer(config))
    assert {name.split(".blocks.")[0] for name in found} == {"encoder", "text.decoder"}
    assert not any("tokens" in name for name in found)


def test_muon_and_its_companion_may_have_nothing_to_do() -> None:
    model = create("ViT-Ti/4", **SMALL)
    freeze(model, ["backbone"])
    with pytest.raises(InputError, match="Muon is for the matrices of encoder layers"):
        make_optimizers(model, MuonConfig(), 1e-3)
    matrices = create("ViT-Ti/4", **SMALL)
    names = of_muon(matrices)
    for name, parameter in matrices.named_parameters():
        parameter.requires_grad_(name in names)
    assert len(make_optimizers(matrices, MuonConfig(), 1e-3)) == 1


def test_muon_orthogonalizes_query_key_and_value_apart() -> None:
    """A step of the packed weight is that of three weights."""
    torch.manual_seed(0)
    packed = nn.ModuleDict({"qkv": nn.Linear(8, 24, bias=False)})
    weight = packed["qkv"].weight
    apart = [nn.Parameter(part.clone()) for part in weight.detach().chunk(3)]
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9}
    one = Muon([{"params": [weight], "weight_decay": 0.1}], packed_weights(packed), **settings)
    three = torch.optim.Muon(apart, weight_decay=0.1, adjust_lr_fn="match_rms_adamw", **settings)
    for _ in range(2):
        weight.grad = torch.randn(24, 8)
        for parameter, gradient in zip(apart, weight.grad.chunk(3), strict=True):
            parameter.grad = gradient.clone()
        one.step()
        three.step()
    torch.testing.assert_close(weight, torch.cat(list(apart)))
    assert one.state[weight]["momentum_buffer"].shape == (24, 8)


class Noted(nn.Module):
    """Two weights, and what the objective drew."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.drawn: list[float] = []


def step_of(config: TrainingConfig) -> tuple[Noted, TrainStep]:
    """A step whose loss is the mean of weight · row over a batch, with a number drawn in each part."""
    model = Noted()
    learner = Learner.begin(model, config)

    def objective(module: Noted, batch: Batch, generator: torch.Generator) -> Any:
        module.drawn.append(torch.rand((), generator=generator).item())
        return (batch.images @ module.weight).mean(), {}

    return model, TrainStep(learner, LossOf(model, objective), config, seed=0)


def rows(*values: tuple[float, float]) -> Batch:
    return Batch(torch.tensor(values), torch.zeros(len(values), dtype=torch.long), torch.arange(len(values)))


@pytest.mark.parametrize(("limit", "expected"), [(1.0, (5 / 13, 12 / 13)), (26.0, (5.0, 12.0))])
def test_a_gradient_is_scaled_down_to_the_limit_and_never_up(
    limit: float, expected: tuple[float, float]
) -> None:
    """It keeps its direction: (5, 12) has the norm 13."""
    model, step = step_of(TrainingConfig(optimizer=AdamWConfig(clip_norm=limit)))
    step.prepare(rows((5.0, 12.0)))
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("parts", "taken"), [(1, 1), (2, 2), (4, 3)])
def test_the_gradient_of_parts_is_that_of_the_batch(parts: int, taken: int) -> None:
    """Of parts that are not of one size, each counts by its images: five in two are three and two."""
    machine = {"grad_accum_steps": parts}
    model, step = step_of(TrainingConfig(machine=machine, optimizer=AdamWConfig(clip_norm=None)))
    batch = rows((1.0, 0.0), (2.0, 1.0), (3.0, 5.0), (10.0, -4.0), (20.0, 8.0))
    measured = step.gradient(batch)
    assert sum(images for images, _ in measured) == 5
    assert len(measured) == taken
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == pytest.approx([7.2, 2.0])


def test_each_step_draws_its_own_numbers_whenever_it_is_taken() -> None:
    config = TrainingConfig()
    (whole, step), (resumed, again) = step_of(config), step_of(config)
    for _ in range(3):
        step(rows((1.0, 1.0)))
    again.learner.step = 2
    again(rows((1.0, 1.0)))
    assert len(set(whole.drawn)) == 3
    assert resumed.drawn == whole.drawn[2:]


@pytest.mark.parametrize("shape", [(4, 16), (16, 4), (8, 8)])
def test_muons_step_has_the_size_of_its_longer_side(shape: tuple[int, int]) -> None:
    """2502.16982: 0.2 sqrt(max(A, B)) of a matrix whose singular values are about one."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.randn(shape)
    Muon([{"params": [weight]}], {}, lr=1.0, momentum=0.0).step()
    found = torch.linalg.svdvals(weight.detach()) / (0.2 * max(shape) ** 0.5)
    assert 0.6 < found.min() <= found.max() < 1.3  # five steps of Newton and Schulz leave them there


def test_an_objective_hears_how_long_the_training_is_and_what_each_step_measured() -> None:
    """Schedules of its own follow the number of steps; weights of its own move after each step."""
    model, step = step_of(TrainingConfig())
    heard: list[Any] = []
    model.set_total = lambda total: heard.append(total)  # type: ignore[assignment]
    step.after_step = lambda measured, finite: heard.append((measured[0][0], bool(finite)))
    step.learner.set_total(7)
    step(rows((1.0, 1.0), (2.0, 2.0)))
    step(rows((float("nan"), 1.0)))
    assert heard == [7, (2, True), (1, False)]
