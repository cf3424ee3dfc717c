"""Whole pre-training runs: what they leave behind, going on, fine-tuning from them, the command."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.api.training import settings_of
from vitreous.checkpoints.native import save_native
from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS
from vitreous.cli import run as command
from vitreous.data.config import DataConfig
from vitreous.data.dataset import Splits
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.inspection.run_report import label_of
from vitreous.tasks import OBJECTIVES, task_named, training_run
from vitreous.tasks.pretraining.rules import sampled_images
from vitreous.tasks.training_run import fit, open_run, plan_of_run
from vitreous.training.callbacks import Callback
from vitreous.training.config import MachineConfig
from vitreous.training.distributed import World
from vitreous.training.learner import scaled_lr
from vitreous.training.machine import ON_CPU
from vitreous.training.run import RunDirectory
from vitreous.training.trainer import NotFinite

PHOTOS = "vitreous:photos"
CPU = torch.device("cpu")
TINY = {
    "model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16},
    "training": {
        "length": "4 steps",
        "batch_size": 32,
        "ema": {"decay": 0.5},
        "records": {"save_every": 0.0},
        "machine": {"evaluation_batch_size": 360},
    },
}
DINO = {"pretraining": {"dino": {"prototypes": 16, "views": {"small_count": 1}}}}


def tiny_run(path: Path, objective: str = "mae") -> tuple[RunDirectory, Splits]:
    own = DINO if objective == "dino" else {}
    if objective == "distillation":
        save_native(vt.create("ViT-Ti/8", image_size=16, width=24, depth=1, heads=2), path.parent / "teacher")
        own = {"pretraining": {"distillation": {"teacher": str(path.parent / "teacher")}}}
    planned = task_named(objective).plan("digits", {**TINY, **own})
    return RunDirectory.create(path, planned.config), planned.data


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_leaves_an_encoder_behind(tmp_path, objective):
    run, splits = tiny_run(tmp_path / "run", objective)
    result = fit(plan_of_run(run, splits))
    encoder = vt.load(tmp_path / "run")
    assert encoder.config.num_classes is None
    assert encoder.labels is None
    assert encoder.config.stem.kind == "convolution"  # the model with which train would learn the digits
    images = torch.randn(2, 1, 8, 8)
    assert torch.allclose(encoder(images), result.model.encoder(images), atol=1e-6)
    row = run.metrics()[-1]
    assert row["step"] == 4
    assert np.isfinite([row["loss"], row["validation_loss"]]).all()
    assert 0.1 < row["validation_knn"] <= 1, "better than chance: even random features tell digits apart"
    found = task_named(objective).evaluate(result.model, splits.test, device=CPU, batch_size=360)
    metrics = found.metrics
    assert metrics["loss"].value == pytest.approx(row["validation_loss"], rel=1e-5)
    assert metrics["explained_share"].value == pytest.approx(1 - found.loss / found.trivial)
    if objective == "dino":
        assert found.trivial == pytest.approx(np.log(16))
    assert open_run(run.path).config == run.config


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mae", "dino", "contrastive"])
def test_a_batch_is_split_where_the_memory_is_small(tmp_path, objective):
    run, splits = tiny_run(tmp_path / "run", objective)
    task = task_named(objective)
    weights = sum(each.numel() for each in task.build(run.config, splits, steps=1).parameters())
    free = int((16 * weights + 1_000_000) / 0.7)
    parts = training_run.parts_that_fit(task, run.config, splits, ON_CPU, free)
    assert 1 < parts <= 32
    machine = MachineConfig(grad_accum_steps=parts, evaluation_batch_size=360)
    fit(plan_of_run(run.with_training(machine=machine, length="1 steps"), splits))


def test_a_process_without_a_batch_takes_part_in_validation(tmp_path):
    run, splits = tiny_run(tmp_path / "run", "dino")
    task, given = task_named("dino"), []

    class OneAfterTheOther(World):
        def gather(self, value):
            given.append(value)
            return given

    model = task.build(run.config, splits, steps=4)
    worlds = [OneAfterTheOther(rank, 2) for rank in (0, 1)]
    found = [task.evaluate(model, splits.test, device=CPU, batch_size=360, world=world) for world in worlds]
    assert found[0].loss == found[1].loss


def test_distillation_needs_a_teacher_and_saves_none_of_it(tmp_path):
    with pytest.raises(InputError, match="needs a teacher"):
        task_named("distillation").plan("digits", TINY)
    run, splits = tiny_run(tmp_path / "run", "distillation")
    objective = task_named("distillation").build(run.config, splits, steps=1)
    assert not [name for name, _ in objective.named_parameters() if "teacher" in name]
    images = torch.randn(5, 1, 8, 8)
    targets = objective.targets(images)
    assert targets.shape == (5, 24)  # of gray images of 8 pixels, which the teacher sees in color at 16
    assert torch.allclose(targets.mean(dim=1), torch.zeros(5), atol=1e-5)
    assert torch.allclose(targets.std(dim=1, correction=0), torch.ones(5), atol=1e-2)
    teacher = vt.load(tmp_path / "teacher")
    colors = teacher.preprocessing([to_pil(each) for each in run.config.prepared.denormalize(images)])
    expected = torch.nn.functional.layer_norm(teacher.features(colors), (24,))
    assert torch.nn.functional.cosine_similarity(targets, expected).min() > 0.95  # but for bytes and resizing


def to_pil(pixels: torch.Tensor) -> Image.Image:
    return Image.fromarray(pixels[0].numpy())


@pytest.mark.parametrize(
    "objective", ["mae", *(pytest.param(each, marks=pytest.mark.slow) for each in ("dino", "contrastive"))]
)
def test_a_run_that_goes_on_ends_with_the_same_bits(tmp_path, objective):
    run, splits = tiny_run(tmp_path / "whole", objective)
    train, test = splits.train.subset(np.arange(128)), splits.test.subset(np.arange(40))
    splits = splits._replace(train=train, test=test)
    fit(plan_of_run(run, splits))
    shutil.copytree(run.path, tmp_path / "half")
    (tmp_path / "half" / "checkpoints" / "step-000000004.json").unlink()
    shutil.rmtree(tmp_path / "half" / "model")
    again = open_run(tmp_path / "half")
    assert again.states.steps() == [3]
    fit(plan_of_run(again, splits))
    ours, theirs = vt.load(tmp_path / "half").state_dict(), vt.load(tmp_path / "whole").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mae", "dino"])
def test_activations_computed_again_change_nothing(tmp_path, objective):
    results = []
    for again in (False, True):
        training = {**TINY["training"], "machine": {"evaluation_batch_size": 360, "checkpointing": again}}
        planned = task_named(objective).plan(
            "digits", {**TINY, **(DINO if objective == "dino" else {}), "training": training}
        )
        run = RunDirectory.create(tmp_path / str(again), planned.config)
        results.append(fit(plan_of_run(run, planned.data)).model.encoder.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_settings_win_over_rules(tmp_path):
    settings = {"model": {"depth": 2}, "pretraining": {"mae": {"mask_ratio": 0.5}}}
    config = task_named("mae").plan("digits", settings).config
    assert config.model.depth == 2
    assert config.model.width == 64  # by the size of the images
    assert config.pretraining.mae.mask_ratio == 0.5
    assert config.pretraining.mae.decoder_width == 64  # by the encoder
    with pytest.raises(InputError, match=r"did you mean 'pretraining\.mae\.mask_ratio'"):
        task_named("mae").plan("digits", {"pretraining": {"mae": {"mask_rate": 0.5}}})


def test_the_recipe_of_a_paper_decides_and_not_the_data():
    plan = task_named("mae").plan("synthetic:40@32", {"model": {"name": "ViT-L/16"}}, recipe="mae")
    model, training = plan.config.model, plan.config.training
    assert (plan.config.recipe, model.width, model.position.kind) == ("mae", 1024, "sincos-2d")
    assert plan.config.pretraining.mae.decoder_width == 512
    assert scaled_lr(training) == pytest.approx(1.5e-4 * training.batch_size / 256)
    with pytest.raises(InputError, match="the recipe dino is for `objective` dino, not mae"):
        vt.pretrain("digits", objective="mae", recipe="dino")
    with pytest.raises(InputError, match="did you mean 'mae'"):
        vt.pretrain("digits", recipe="maee")


def test_options_of_data_and_time_are_those_of_train(tmp_path, monkeypatch):
    for number in range(10):
        Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "unwanted.csv").write_text("path\n3.png\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="`minutes` and `epochs` both set the length"):
        vt.pretrain(tmp_path, minutes=1, epochs=1)
    how = {"minutes": 2, "strict": True, "group_by": r"\d", "exclude": "unwanted.csv", "deterministic": False}
    source, settings = str(tmp_path), settings_of(how)
    config = task_named("contrastive").plan(source, {**settings, "model": TINY["model"]}).config
    assert (config.training.minutes, config.training.machine_config.deterministic) == (2, False)
    assert (config.data.read.bad_files, config.data.group_by) == (0, r"\d")
    splits = open_data(source, config.data, "unlabeled")
    names = [part.name(row) for part in splits[:3] if part for row in range(len(part))]
    assert len(names) == 9
    assert not any("3.png" in name for name in names)


def test_augmentation_that_views_ignore_is_refused():
    with pytest.raises(InputError, match=r"augmentation\.flip has no effect"):
        task_named("dino").plan("digits", {**TINY, "augmentation": {"flip": 0.5}})


def test_what_does_not_fit_is_told_before_a_run_is_begun(tmp_path, capsys):
    out = tmp_path / "run"
    stem = ["--set", "model.position.kind=relative", "--out", str(out)]
    assert command(["pretrain", "digits", "--objective", "mae", *stem]) == 2
    assert "MAE removes tokens" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("model", "objective", "size"),
    [("ViT-Ti/16", "mae", 224), ("BiT-R50x1", "dino", 224), ("R26+ViT-Ti/32", "dino", 224)],
)
def test_a_named_model_sees_images_of_its_published_size(model, objective, size):
    config = task_named(objective).plan("digits", {"model": {"name": model}}).config
    assert config.model.image_size == config.prepared.size == (size, size)
    assert config.model.channels == 1
    assert config.model.num_classes is None


def test_the_held_out_images_are_those_of_training(tmp_path):
    ours, theirs = open_data("digits", DataConfig(), "unlabeled"), open_data("digits", DataConfig())
    assert [ours.test.name(i) for i in range(9)] == [theirs.test.name(i) for i in range(9)]
    assert len(ours.train) == len(theirs.train)


@pytest.fixture
def heap(tmp_path) -> Path:
    """Images in a folder, without classes."""
    folder = tmp_path / "heap"
    (folder / "holidays").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(20):
        pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / ("holidays" if i % 2 else ".") / f"{i}.png")
    return folder


def test_a_heap_of_images_needs_no_classes(heap, tmp_path):
    splits = open_data(str(heap), DataConfig(), "unlabeled")
    assert len(splits.train) + len(splits.test) == 20
    assert 2 <= len(splits.test) <= 8
    assert label_of(splits.train, 0) == Path(splits.train.name(0)).stem  # in figures of the report
    config = task_named("mae").plan(str(heap), {}).config
    # The model with which train would learn them from scratch.
    assert config.model.image_size == (32, 32)
    assert config.model.stem.kind == "convolution"
    assert config.augmentation.affine is not None
    assert config.augmentation.mix is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        open_data(str(tmp_path / "empty"), DataConfig(), "unlabeled")


def test_a_table_beside_images_and_the_name_of_a_dataset_mean_what_they_mean_in_training(
    heap, tmp_path, monkeypatch
):
    rows = [f"{'holidays/' if i % 2 else ''}{i}.png,{'ab'[i % 3 // 2]}\n" for i in range(16)]
    (heap / "metadata.csv").write_text("file_name,label\n" + "".join(rows))
    ours, theirs = (open_data(str(heap), DataConfig(), kind) for kind in ("unlabeled", "classes"))
    assert [len(part) for part in (ours.train, ours.test)] == [len(theirs.train), len(theirs.test)]
    assert ours.train.all_keys() == theirs.train.all_keys()
    heap.rename(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    assert len(open_data("digits", DataConfig(), "unlabeled").train) == 1437


@pytest.mark.parametrize("objective", ["masked-patch", "mae"])
def test_a_damaged_image_stops_no_pre_training_before_it_begins(heap, objective):
    for file in [*heap.rglob("*.png")][::2]:
        file.write_bytes(file.read_bytes()[:60])
    task = task_named(objective)
    planned = task.plan(str(heap), {})
    assert len(sampled_images(planned.data.train, planned.config)) < len(planned.data.train)
    task.build(planned.config, planned.data, steps=1)
    for file in heap.rglob("*.png"):
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(InputError, match="can be read"):
        task.build(planned.config, planned.data, steps=1)


def test_a_packed_folder_is_taken_as_training_takes_it(heap, tmp_path):
    """What `vitreous data pack` writes: shards, and nothing that looks like an image from outside."""
    from vitreous.data.packing import Packing, pack

    for name in ("cat", "dog"):
        shutil.copytree(heap, tmp_path / "photos" / name)
    packed = tmp_path / "packed"
    pack(open_data(str(tmp_path / "photos"), DataConfig()), packed, Packing(workers=1))
    ours, theirs = open_data(str(packed), DataConfig(), "unlabeled"), open_data(str(packed), DataConfig())
    assert len(ours.train) > 0
    assert [ours.train.name(i) for i in range(len(ours.train))] == [
        theirs.train.name(i) for i in range(len(theirs.train))
    ]


@pytest.mark.slow
def test_the_command_and_fine_tuning_from_its_run(heap, tmp_path, capsys):
    sizes = [
        "model.width=16",
        "model.depth=1",
        "model.heads=2",
        "model.mlp_dim=16",
        "training.length=2 steps",
    ]
    tiny = [word for setting in sizes for word in ("--set", setting)]
    path = tmp_path / "run"
    options = ["--objective", "masked-patch", "--batch-size", "8", "--device", "cpu", "--out", str(path)]
    assert command(["pretrain", str(heap), *options, *tiny, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["objective"] == "masked-patch"
    assert 12 <= result["train_count"] <= 18
    page = Path(result["report"]).read_text()
    assert page.count("data:image/png") >= 12  # image, shown and filled in, of four
    assert not re.search(r"""(src|href)=["']?https?:|url\(["']?https?:""", page)

    assert command(["pretrain", "--resume", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == result["loss"]
    assert command(["pretrain", "--resume", str(path), "--seed", "3"]) == 2
    assert command(["pretrain", str(heap), "--objective", "may"]) == 2
    assert "did you mean 'mae'?" in capsys.readouterr().err
    assert command(["pretrain", str(heap), *options]) == 2
    assert f"vitreous pretrain --resume {path}" in capsys.readouterr().err


def test_training_begins_with_the_encoder(tmp_path):
    from vitreous.training.initial_model import starting_model

    run, splits = tiny_run(tmp_path / "run")
    encoder = fit(plan_of_run(run, splits)).model.encoder
    planned = task_named("classification").plan("digits", {}, init=str(run.path))
    model = starting_model(planned.config, planned.data.train.classes)
    assert model.config.num_classes == 10
    assert torch.equal(model.blocks[0].attention.qkv.weight, encoder.blocks[0].attention.qkv.weight)
    assert not model.head.weight.any()


def test_a_loss_that_is_not_finite_keeps_the_last_good_weights(tmp_path):
    settings = {
        **TINY,
        "preprocessing": {"std": [1e-300]},
        "training": {"length": "99 steps", "batch_size": 32},
    }
    run = RunDirectory.create(tmp_path / "run", task_named("mae").plan("digits", settings).config)
    splits = open_data("digits", DataConfig())
    with (
        pytest.warns(UserWarning, match="not finite"),
        pytest.raises(NotFinite, match=r"they are in .*model"),
    ):
        fit(plan_of_run(run, splits))
    assert all(torch.isfinite(weight).all() for weight in vt.load(run.path).parameters())


@pytest.mark.parametrize(
    "asked",
    [
        {"loss": "sigmoid"},
        {"label_smoothing": 0.1},
        {"distillation": {"teacher": "a", "kind": "soft"}},
    ],
)
def test_what_pre_training_does_not_do_is_refused(asked):
    with pytest.raises(InputError, match=rf"training\.{next(iter(asked))} is not for pre-training"):
        task_named("mae").plan("digits", {**TINY, "training": asked})


@pytest.mark.slow
def test_the_precision_is_decided_once(tmp_path):
    asked = "training.length=1 steps", "training.batch_size=32", "training.precision=auto", "model.width=32"
    settings = [f"--set={each}" for each in asked]  # so narrow that bf16 does not pay
    path = tmp_path / "run"
    assert command(["pretrain", "digits", "--device", "cpu", "--out", str(path), *settings]) == 0
    assert open_run(path).config.training.precision == "fp32"


@pytest.mark.parametrize(
    ("objective", "settings", "said"),
    [
        ("mae", {"augmentation": {"mix": {"mixup": 0.8}}}, "augmentation.mix is not for pre-training"),
        ("mae", {"augmentation": {"mix": {"cutmix": 1.0}}}, "augmentation.mix is not for pre-training"),
        ("mae", {"data": {"class_balance": True}}, "data.class_balance is not for pre-training"),
        ("mae", {"pretraining": {"dino": {"prototypes": 8}}}, "unknown setting pretraining.dino"),
        ("dino", {"pretraining": {"mae": {"mask_ratio": 0.5}}}, "unknown setting pretraining.mae"),
        (
            "dino",
            {"pretraining": {"dino": {"views": {"small_count": 0, "small_scale": (0.1, 0.3)}}}},
            "small_scale has no effect without small views",
        ),
    ],
)
def test_settings_without_effect_are_refused(objective, settings, said):
    with pytest.raises(InputError, match=said):
        task_named(objective).plan("digits", {**TINY, **settings})


@pytest.mark.slow
def test_the_teacher_follows_until_the_time_is_up(tmp_path):
    """A training that ends after a time has as many steps as its estimate says now, not as its epochs say:
    momentum and temperature end where they would, and no teacher stands still before."""
    run, splits = tiny_run(tmp_path / "run", "dino")
    shares = []

    class Shares(Callback):
        def on_step_end(self, trainer):
            shares.append((float(trainer.learner.model.done), trainer.learner.step / trainer.total))

    ticks = itertools.count(0.0, 0.25)
    plan = plan_of_run(run.with_training(length="0.5 minutes"), splits)
    with pytest.warns(UserWarning, match="s are enough for only about .* too few to learn much"):
        trained = fit(plan, callbacks=[Shares()], clock=lambda: next(ticks))
    assert len(shares) > 8  # of which four were planned
    assert all(found == pytest.approx(wanted) for found, wanted in shares[2:])
    assert shares[-2][0] < shares[-1][0] == 1
    assert trained.model.steps == len(shares)  # the averaged model's, too


@pytest.mark.parametrize(
    ("objective", "settings", "said"),
    [
        ("mae", {"mae": {"mask_ratio": 0}}, "mae.mask_ratio=0 hides nothing"),
        ("masked-patch", {"masked_patch": {"corrupted": 0}}, "corrupted: 0 is out of range: write a value"),
        ("masked-patch", {"masked_patch": {"corrupted": 0.01}}, "corrupted=0.01 corrupts none of the 16 pat"),
    ],
)
def test_an_objective_that_hides_nothing_is_refused(objective, settings, said):
    with pytest.raises(InputError, match=said):
        task_named(objective).plan("digits", {**TINY, "pretraining": settings})


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED_ENCODERS[PHOTOS].path, reason="its package is not installed")
def test_pre_training_begins_with_an_encoder_of_another_package(heap, tmp_path):
    """Most of its weights are in the network before its Transformer layers."""
    settings = {"training.length": "2 steps", "training.batch_size": 4}
    how = {"objective": "contrastive", "image_size": 64, "device": "cpu", "progress": False}
    run = vt.pretrain(heap, init=PHOTOS, out=tmp_path / "run", settings=settings, **how)
    before, after = vt.load(PHOTOS, image_size=64), vt.load(run.path)
    assert after.config.stem == before.config.stem
    for name, weight in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], weight, rtol=0.1, atol=1e-3)
