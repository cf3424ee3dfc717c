"""Training segmenters: the loss, resuming to the bit, starting from a checkpoint, several processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import vitreous as vt
from vitreous.addons.segmentation.evaluation import evaluate_segmenter
from vitreous.addons.segmentation.masked import MaskBatch, mask_image
from vitreous.addons.segmentation.model import Segmenter
from vitreous.addons.segmentation.task import SegmentationConfig, segmentation
from vitreous.errors import InputError
from vitreous.tasks import task_named
from vitreous.tasks.training_run import fit, plan_of_run, resume_run
from vitreous.training.callbacks import Callback
from vitreous.training.config import TrainingConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.run import RunDirectory
from vitreous.training.settings import to_toml
from vitreous.training.trainer import Interrupted, NotFinite

TINY = {
    "model": {"image_size": [16, 16], "patch_size": [8, 8], "stem": {"kind": "patch"}, "width": 16,
              "depth": 1, "heads": 2, "mlp_dim": 16, "cells": 2, "dropout": 0.1},
    "augmentation": {"random_resized_crop": {"scale": [0.4, 1.0]}, "flip": 0.5, "noise": 0.05},
    "training": {"length": "9 steps", "batch_size": 4, "ema": {"decay": 0.9},
                 "records": {"log_every": 1, "save_every": 1e9}},
    "data": {"reading": {"workers": 0}},
}  # fmt: skip
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twenty images of colored squares."""
    root, rng = tmp_path_factory.mktemp("squares"), np.random.default_rng(0)
    for name in ("images", "masks"):
        (root / name).mkdir()
    for number in range(20):
        mask = np.zeros((24, 24), dtype=np.uint8)
        top, left = rng.integers(0, 12, 2)
        mask[top : top + 10, left : left + 10] = 1 + number % 2
        colors = np.array([[60, 60, 60], [220, 60, 60], [60, 60, 220]], dtype=np.uint8)
        Image.fromarray(colors[mask]).save(root / "images" / f"{number}.png")
        mask_image(mask, 3).save(root / "masks" / f"{number}.png")
    return root


def planned(folder, path: Path, settings=TINY, **options):
    plan = task_named("segmentation").plan(str(folder), settings, **options)
    return RunDirectory.create(path, plan.config), plan.data


def reopened(path):
    started = resume_run(path)
    return started.run, started.data


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(vt.load(path).named_parameters())


class Given(nn.Module):
    """Whose logits are what they are."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images):
        return self.logits


def test_pixels_of_255_teach_nothing():
    model = Given(torch.randn(2, 3, 4, 4))
    logits = model.logits
    masks = torch.randint(0, 3, (2, 4, 4))
    masks[0, :2] = 255
    batch = MaskBatch(torch.zeros(2, 1, 4, 4), masks)
    objective = segmentation(TrainingConfig())
    loss, measures = objective(model, batch, torch.Generator())
    judged = masks != 255
    wanted = F.cross_entropy(logits.permute(0, 2, 3, 1)[judged], masks[judged])
    assert torch.allclose(loss, wanted)
    right = (logits.argmax(dim=1) == masks)[judged].float().mean()
    assert torch.allclose(measures["accuracy"], right)
    loss.backward()
    assert (logits.grad[0, :, :2] == 0).all()
    nothing = MaskBatch(batch.images, torch.full_like(masks, 255))
    assert objective(model, nothing, torch.Generator())[0] == 0


def test_a_run_goes_on_in_shards_where_that_is_asked(folder, tmp_path):
    planned(folder, tmp_path / "run")
    reopened_run, _ = reopened(tmp_path / "run")
    assert not reopened_run.config.training.machine_config.shard
    assert resume_run(tmp_path / "run", shard=True).config.training.machine_config.shard


def test_a_loss_that_is_not_finite_keeps_the_last_good_weights(folder, tmp_path):
    settings = {**TINY, "preprocessing": {"std": [1e-300, 1e-300, 1e-300]}}
    run, splits = planned(
        folder, tmp_path / "run", {**settings, "training": {"length": "99 steps", "batch_size": 4}}
    )
    with (
        pytest.warns(UserWarning, match="not finite"),
        pytest.raises(NotFinite, match=r"they are in .*model"),
    ):
        fit(plan_of_run(run, splits))
    assert all(torch.isfinite(weight).all() for weight in weights(run.path).values())


class StopAt(Callback):
    """Asks for a stop, as Ctrl-C does, after a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, trainer):
        if trainer.learner.step == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_resumed_run_is_bit_equal(folder, tmp_path):
    """With dropout, crops, noise and averaged weights, stopped in the middle of an epoch of four steps."""
    whole = planned(folder, tmp_path / "whole")
    fit(plan_of_run(*whole))
    broken = planned(folder, tmp_path / "broken")
    with pytest.raises(Interrupted):
        fit(plan_of_run(*broken), callbacks=[StopAt(6)])
    fit(plan_of_run(*reopened(tmp_path / "broken")))
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(one[name], other[name]) for name in one)
    rows = RunDirectory.open(tmp_path / "broken", SegmentationConfig).metrics()
    assert [row["step"] for row in rows] == list(range(1, 10))
    assert {"loss", "miou", "accuracy"} <= rows[-1].keys()


@pytest.mark.slow
def test_a_killed_run_goes_on(folder, tmp_path):
    """kill -9, as a machine that fails: the newest whole state is taken."""
    settings = {
        **TINY,
        "training": {
            **TINY["training"],
            "length": "4000 steps",
            "records": {**TINY["training"]["records"], "save_every": 0.05},
        },
    }
    planned(folder, tmp_path / "run", settings)
    code = f"""
import torch
from pathlib import Path
from vitreous.tasks.training_run import fit
from vitreous.tasks.training_run import plan_of_run, resume_run
torch.set_num_threads(1)
started = resume_run(Path({str(tmp_path / "run")!r}))
fit(plan_of_run(started.run, started.data))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    states = tmp_path / "run" / "checkpoints"
    while not any(int(path.stem[5:]) > 10 for path in states.glob("step-*.json")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    step = RunDirectory.open(tmp_path / "run", SegmentationConfig).states.newest().facts["step"]
    toml = tmp_path / "run" / "config.toml"
    toml.write_text(toml.read_text().replace('"4000 steps"', f'"{step + 2} steps"'))
    run, splits = reopened(tmp_path / "run")
    assert isinstance(fit(plan_of_run(run, splits)).model, Segmenter)
    assert [row["step"] for row in run.metrics()] == list(range(1, step + 3))


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_and_each_image_is_judged_once(folder, tmp_path):
    """The same losses, one JSON object, and the held-out images counted once.

    Without dropout and noise, which each process samples.
    """
    description = tmp_path / "config.toml"
    plain = {"model": {**TINY["model"], "dropout": 0.0}, "augmentation": {**TINY["augmentation"], "noise": 0}}
    settings = {**TINY, **plain}
    description.write_text(to_toml(task_named("segmentation").plan(str(folder), settings).config))
    rows, results = {}, {}
    for processes in (1, 2):
        out = tmp_path / str(processes)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = ["-m", "vitreous", "train", "--task", "segmentation", "--config", str(description)]
        done = subprocess.run(
            [sys.executable, *launch, *command, "--out", str(out), "--device", "cpu", "--json"],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        (line,) = done.stdout.strip().splitlines()
        results[processes] = json.loads(line)
        rows[processes] = RunDirectory.open(out, SegmentationConfig).metrics()
    losses = ([row["loss"] for row in rows[processes]] for processes in (1, 2))
    assert next(losses) == pytest.approx(next(losses), abs=1e-4)
    assert results[1]["test_count"] == results[2]["test_count"] > 0
    assert results[2]["test_miou"] == pytest.approx(results[1]["test_miou"], abs=0.02)


@pytest.mark.slow
def test_it_learns_squares(folder, tmp_path):
    settings = {
        "model": {**TINY["model"], "width": 32, "dropout": 0.0, "cells": 4, "layer_scale": "none"},
        "training": {"length": "100 steps", "batch_size": 8, "peak_lr": 5e-3},
        "augmentation": {"color_jitter": "none"},
        "data": {"test_fraction": 0.4},
    }
    run, splits = planned(folder, tmp_path / "run", settings)
    model = fit(plan_of_run(run, splits)).model
    found = evaluate_segmenter(model, splits.test)
    assert found.miou > 0.6
    assert found.miou > 2 * found.always_first


def test_an_encoder_comes_from_any_vit_at_another_size(folder, tmp_path):
    vit = vt.ViT(
        vt.ViTConfig(image_size=32, patch_size=8, width=16, depth=2, heads=2, mlp_dim=16, mlp="gelu_tanh")
    )
    vt.save(vit, tmp_path / "vit.npz", format="google")
    settings = {
        "model": {"image_size": [16, 16]},
        "training": TINY["training"],
        "data": {"reading": {"workers": 0}},
    }
    run, splits = planned(folder, tmp_path / "run", settings, init=str(tmp_path / "vit.npz"))
    assert run.config.model.depth == 2
    assert run.config.model.pooling.kind == "mean"
    assert run.config.preprocessing.resize == "squash"
    model = starting_model(run.config, splits.train.classes)
    assert torch.equal(model.encoder.blocks[1].mlp.expand.weight, vit.blocks[1].mlp.expand.weight)
    assert model.encoder.position.table.shape == (5, 16)
    assert fit(plan_of_run(run, splits)).model.labels == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"augmentation": {"mix": {"mixup": 0.2}}}, "augmentation.mix cannot be applied to masks"),
        ({"augmentation": {"policy": {}}}, "augmentation.policy=rand-augment cannot be applied to masks"),
        ({"preprocessing": {"resize": "crop"}}, "a segmenter sees whole images"),
        ({"training": {"loss": "sigmoid"}}, "training.loss is for images that have one class"),
        ({"model": {"num_classes": 7}}, "model.num_classes is 7, but .* has 3 classes"),
        ({"model": {"decodr": "linear"}}, "did you mean 'model.decoder'"),
        ({"training": {"batch_size": 64}}, r"a batch of 64 is more than the \d+ training images"),
        ({"model": {"cells": 99}}, "cells is 99, but a patch has"),
    ],
)
def test_settings_that_do_not_fit_are_said(folder, settings, said):
    with pytest.raises(InputError, match=said):
        task_named("segmentation").plan(str(folder), settings)
