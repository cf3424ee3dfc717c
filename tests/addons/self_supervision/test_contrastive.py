"""Contrastive learning: the loss by hand and as the paper writes it; views; one process and several."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_pre_hook

from forked import run_group
from vitreous.addons.self_supervision.contrastive import (
    Contrastive,
    ContrastiveConfig,
    contrastive_loss,
    standardized,
)
from vitreous.addons.self_supervision.tasks import of_views
from vitreous.addons.self_supervision.views import PairConfig, Views
from vitreous.errors import InputError
from vitreous.models.bit import BiT, BiTConfig
from vitreous.tasks import task_named
from vitreous.tasks.training_run import with_run
from vitreous.training.config import MachineConfig, TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.machine import Place
from vitreous.training.step import LossOf, TrainStep

SMALL = {"head_hidden": 32, "head_outputs": 16}


def test_the_loss_by_hand():
    """Two images, views at right angles: each view finds its other one among three."""
    first = torch.eye(4)[:2]
    loss, measured = contrastive_loss(first, first, temperature=0.5)
    assert loss.item() == pytest.approx(-math.log(math.exp(2) / (math.exp(2) + 2)))
    assert measured["pairs_found"] == 1
    loss, measured = contrastive_loss(first, first.flip(0), temperature=0.5)
    assert loss.item() == pytest.approx(-math.log(1 / (math.exp(2) + 2)))
    assert measured["pairs_found"] == 0
    same = torch.eye(4)[:1].expand(5, 4)
    loss, _ = contrastive_loss(same, same, temperature=0.1)
    assert loss.item() == pytest.approx(math.log(9)), "the trivial loss"


def test_the_loss_is_the_papers(images):
    """Algorithm 1 of 2002.05709 in float64, with plain loops: views 2k - 1 and 2k are of one image."""
    rng = torch.Generator().manual_seed(0)
    first, second = F.normalize(torch.randn(2, 6, 8, generator=rng, dtype=torch.float64), dim=-1)
    z = [each for pair in zip(first, second, strict=True) for each in pair]
    t, total = 0.3, 0.0
    for i in range(12):
        j = i + 1 if i % 2 == 0 else i - 1
        below = sum(math.exp(float(z[i] @ z[k]) / t) for k in range(12) if k != i)
        total -= math.log(math.exp(float(z[i] @ z[j]) / t) / below)
    loss, _ = contrastive_loss(first, second, temperature=t)
    assert loss.item() == pytest.approx(total / 12)


def test_the_trivial_loss_is_that_of_equal_features(tiny, images):
    objective = Contrastive(tiny(), ContrastiveConfig(**SMALL))
    torch.nn.init.zeros_(objective.head[2].weight)
    torch.nn.init.ones_(objective.head[2].bias)
    loss, _ = objective(images, torch.Generator().manual_seed(0))
    assert objective.trivial_loss(images, torch.Generator()).item() == pytest.approx(loss.item(), rel=1e-5)


def test_features_are_standardized():
    """What all images share says nothing about one, and a feature that does not vary stays finite."""
    features = torch.randn(16, 5) * torch.tensor([1.0, 2.0, 0.1, 30.0, 0.0]) + 100
    found = standardized(features, together=False)
    assert found.mean(dim=0).abs().max() < 1e-3
    assert found.std(dim=0, correction=0)[:4] == pytest.approx([1, 1, 1, 1], abs=1e-2)
    assert found[:, 4].abs().max() < 1e-3


def test_it_learns(tiny, images, losses):
    views = PairConfig(color=0.0, gray=0.0, blur=0.0, solarize=0.0)
    objective = Contrastive(tiny(), ContrastiveConfig(views=views, **SMALL))
    found = losses(objective, images, steps=50, lr=1e-3)
    assert sum(found[-10:]) < 0.85 * sum(found[1:11])
    assert objective.model.position.table.grad.abs().sum() > 0
    assert objective.encoder is objective.model


def test_views_of_the_loader_are_used_as_they_are(tiny, images):
    """Both views enter, in pairs: the loss of given views is that of their features, in whichever order."""
    objective = Contrastive(tiny(), ContrastiveConfig(**SMALL)).eval()
    pairs = torch.stack([images, images.flip(3)], dim=1)
    loss, _ = objective(Views(pairs, pairs[:, :0]), torch.Generator())
    swapped, _ = objective(Views(pairs.flip(1), pairs[:, :0]), torch.Generator())
    assert swapped.item() == pytest.approx(loss.item(), rel=1e-4)
    with torch.no_grad():
        features = standardized(objective.model.features(torch.cat([images, images.flip(3)])), together=False)
        z = F.normalize(objective.head(features), dim=-1)
    expected, _ = contrastive_loss(*z.chunk(2), temperature=0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_bit_can_learn_and_one_image_is_evaluated_but_not_trained_on(images):
    model = BiT(BiTConfig(image_size=(32, 32), layers=(1,), width_factor=0.5, num_classes=None))
    loss, _ = Contrastive(model, ContrastiveConfig(**SMALL))(images[:2], torch.Generator())
    assert loss.isfinite()
    alone = Contrastive(model, ContrastiveConfig(**SMALL))
    loss, _ = alone.eval()(images[:1], torch.Generator())
    assert loss.item() == 0  # the last one of an evaluation: nothing to compare with
    with pytest.raises(
        InputError, match=r"larger training\.batch_size or a smaller training\.machine\.grad_accum"
    ):
        alone.train()(images[:1], torch.Generator())


def test_some_views_are_negatives(tiny, images):
    """Of a white image, which no other change darkens."""
    views = {"color": 0.0, "gray": 0.0, "blur": 0.0, "solarize": 0.0}
    for share, expected in ((0.0, 0.0), (0.2, 0.2), (0.9, 0.9)):
        crops = Contrastive(tiny(), ContrastiveConfig(views=PairConfig(invert=share, **views))).crops
        white = torch.ones(400, 3, 32, 32)
        found = crops(white, tiny().preprocessing, torch.Generator().manual_seed(0)).images
        black = (found <= -1).all(dim=(2, 3, 4)).float()
        assert black.mean().item() == pytest.approx(expected, abs=0.05)


def test_the_data_decide_the_views():
    """Mirrored where `train` mirrors, by default nowhere; gray images have views as DINO's, but two."""
    task = task_named("contrastive")
    views = task.plan("world:shapes:60@32,test=20", {}).config.own.views
    assert (views.flip, views.invert, views.blur) == (0.0, 0.2, 0.1)
    views = task.plan("digits", {}).config.own.views
    assert (views.flip, views.large_scale, views.blur) == (0.0, (0.6, 1.0), 0.0)
    with pytest.raises(InputError, match=r"set pretraining\.contrastive\.views instead"):
        task.plan("digits", {"augmentation": {"flip": 0.5}})


@pytest.mark.parametrize("objective", ["mae", "dino", "contrastive"])
def test_a_wider_model_learns_at_a_lower_rate(objective: str) -> None:
    """As in `train`: the rates were chosen at a width of 128."""
    plan = task_named(objective).plan
    rates = [
        plan("world:shapes:60@32,test=20", {"model": {"name": name}} if name else {}).config.training.peak_lr
        for name in ("", "ViT-S/16", "ViT-B/16")
    ]
    assert rates[1:] == pytest.approx([rates[0] / 3, rates[0] / 6])


def test_there_are_no_small_views_to_set():
    """They would be cut and compared with nothing."""
    views = {"pretraining": {"contrastive": {"views": {"small_count": 4}}}}
    with pytest.raises(InputError, match="small_count"):
        task_named("contrastive").plan("digits", views)


def test_a_distillation_token_is_refused_without_naming_another_objective(tiny):
    model = tiny(pooling="class+distillation")
    with pytest.raises(InputError, match=r"set model\.pooling=class") as refused:
        Contrastive(model, ContrastiveConfig(**SMALL))
    assert "DINO" not in str(refused.value)


def test_validation_compares_as_many_images_as_training():
    """The loss of more is higher, and the two curves of a report would not be comparable."""
    task = task_named("contrastive")

    def chosen(**settings):
        return task.plan("digits", settings).config.training.machine_config.evaluation_batch_size

    assert chosen() == 64
    assert chosen(training={"batch_size": 32}) == 32
    assert chosen(training={"batch_size": 32, "machine": {"grad_accum_steps": 2}}) == 16
    assert chosen(training={"batch_size": 32, "machine": {"evaluation_batch_size": 8}}) == 8
    for wrong, name in (
        ({"batch_size": "many"}, "batch_size"),
        ({"machine": {"grad_accum_steps": 0}}, "grad"),
    ):
        with pytest.raises(InputError, match=name):
            chosen(training=wrong)
    masked = task_named("mae").plan("digits", {"training": {"batch_size": 32}}).config
    assert masked.training.machine_config.evaluation_batch_size == 256


def test_cosines_are_computed_in_float32(tiny, images):
    """In bf16 a cosine near one is off by up to 0.004, which the temperature makes 0.04."""
    objective = Contrastive(tiny(), ContrastiveConfig(**SMALL))
    seen = []
    objective.head.register_forward_hook(lambda head, given, found: seen.append(found))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = objective(images, torch.Generator().manual_seed(0))
    z = F.normalize(seen[0].float(), dim=-1)
    expected, _ = contrastive_loss(*z.chunk(2), temperature=0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_micro_batches_of_one_image_are_refused(tiny, images):
    """Before a run is begun; and while it learns, where the memory decided."""
    for one in ({"batch_size": 1}, {"batch_size": 4, "machine": {"grad_accum_steps": 4}}):
        with pytest.raises(InputError, match="compares the images of a micro-batch"):
            task_named("contrastive").plan("digits", {"training": one})
    config = TrainingConfig(batch_size=4, machine=MachineConfig(grad_accum_steps=4))
    learner = Learner.begin(Contrastive(tiny(), ContrastiveConfig(**SMALL)), config)
    pairs = torch.stack([images[:4], images[:4]], dim=1)
    with pytest.raises(InputError, match="compares the images of a micro-batch"):
        TrainStep(learner, LossOf(learner.model, of_views), config, seed=0)(Views(pairs, pairs[:, :0]))


def test_either_all_processes_measure_their_memory_or_none(tmp_path):
    """What is measured exchanges features: one process alone would wait for the others for ever."""
    plan = task_named("contrastive").plan("digits", {})

    class OneOfThemIsShort(World):
        def any(self, flags: tuple[bool, ...]) -> tuple[bool, ...]:
            return tuple(True for _ in flags)

    passes = []
    counting = register_module_forward_pre_hook(lambda module, inputs: passes.append(module))
    try:
        with_run(plan, {}, Place(), out=tmp_path / "enough")
        assert not passes
        with_run(plan, {}, Place(world=OneOfThemIsShort()), out=tmp_path / "short elsewhere")
        assert passes
    finally:
        counting.remove()


DRIVER = """
import sys
import torch
import torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from test_contrastive import views_and_objective
from vitreous.addons.self_supervision.tasks import of_views
from vitreous.addons.self_supervision.views import Views
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import process_group
from vitreous.training.learner import Learner
from vitreous.training.step import LossOf, TrainStep, data_parallel

torch.set_num_threads(1)
with process_group(torch.device("cpu")) as (world, _):
    objective, views = views_and_objective()
    share = len(views.images) // world.size
    mine = slice(world.rank * share, (world.rank + 1) * share)
    config = TrainingConfig(peak_lr=1e-2, optimizer={"kind": "sgd", "momentum": 0.0, "clip_norm": None})
    learner = Learner.begin(objective, config)
    loss = data_parallel(LossOf(objective, of_views), None, config, world)
    step = TrainStep(learner, loss, config, seed=0, world=world)
    for _ in range(4):
        step(Views(views.images[mine], views.small[mine]))
    if world.first:
        torch.save({name: each.detach() for name, each in objective.named_parameters()}, sys.argv[2])
    dist.barrier()
"""


def views_and_objective() -> tuple[Contrastive, Views]:
    import vitreous as vt

    model = vt.create("ViT-Ti/8", image_size=16, num_classes=None, width=16, depth=1, heads=2, mlp_dim=16)
    images = torch.randn(12, 2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    return Contrastive(model, ContrastiveConfig(**SMALL)), Views(images, images[:, :0])


@pytest.mark.slow
def test_several_processes_learn_what_one_learns(tmp_path: Path) -> None:
    """The views of all are compared with each other, and the features standardized over all: the weights
    after four steps are those of one process with the whole batch."""
    script, found = tmp_path / "driver.py", []
    script.write_text(DRIVER)
    for processes in (1, 2, 3):
        out = tmp_path / f"{processes}.pt"
        run_group(script, Path(__file__).parent, out, processes=processes)
        found.append(torch.load(out, weights_only=True))
    objective, _ = views_and_objective()
    before: dict[str, Tensor] = dict(objective.named_parameters())
    for name, one in found[0].items():
        for several in found[1:]:
            torch.testing.assert_close(several[name], one, rtol=1e-4, atol=1e-6, msg=name)
    for name in ("head.0.weight", "model.blocks.0.attention.qkv.weight"):
        assert not np.allclose(found[0][name], before[name].detach(), atol=1e-5)
