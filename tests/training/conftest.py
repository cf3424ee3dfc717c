"""A classifier so small that a step takes milliseconds, with everything that draws random numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vitreous.data.config import AffineConfig, AugmentationConfig, DataConfig, MixConfig
from vitreous.data.dataset import Splits
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.settings import configure
from vitreous.training.step import LossOf, TrainStep
from vitreous.training.trainer import Trainer, Validation


@pytest.fixture(scope="session")
def splits() -> Splits:
    """200 digits to train on."""
    return open_data("digits", DataConfig(test_fraction=0.85))


@pytest.fixture(scope="session")
def tiny() -> RunConfig:
    """Dropout, stochastic depth, affine changes, noise, Mixup, averaged weights: all of it random."""
    return RunConfig(
        model=ViTConfig(
            image_size=(8, 8),
            channels=1,
            patch_size=(4, 4),
            num_classes=10,
            width=16,
            depth=2,
            heads=2,
            mlp_dim=16,
            dropout=0.1,
            drop_path=0.2,
        ),
        preprocessing=Preprocessing(size=(8, 8), channels=1, mean=(0.3,), std=(0.4,)),
        augmentation=AugmentationConfig(affine=AffineConfig(rotate=10), noise=0.1, mix=MixConfig(mixup=0.2)),
        training=TrainingConfig(
            length="2 epochs", batch_size=32, ema={"decay": 0.9}, records={"save_every": 0}
        ),
    )


Fit = Callable[..., Learner]


@pytest.fixture
def trained(tiny: RunConfig, splits: Splits) -> Fit:
    """Train the tiny model in this process: trained({"training": {...}}, checkpointer=..., callbacks=...);
    `step`, where it is given, takes its steps."""

    def run(
        settings: dict[str, Any] | None = None,
        *,
        resume: Path | None = None,
        step: type[TrainStep] = TrainStep,
        **around: Any,
    ) -> Learner:
        config = configure(tiny, settings or {})
        learner = Learner.begin(starting_model(config, splits.train.classes), config.training)
        if resume:
            Checkpointer(resume).restore(learner)
        loader = image_loader(
            splits.train,
            preprocessing=config.prepared,
            augmentation=config.augmentation,
            batch_size=config.training.batch_size,
            seed=config.seed,
        )
        objective = around.pop("objective", None) or classification(config.training)
        loss = LossOf(learner.model, objective)
        if "validate" in around:
            around["validation"] = Validation(around.pop("validate"), around.pop("validate_every", 1))
        steps = step(learner, loss, config.training, seed=config.seed)
        Trainer(steps, loader, **around).fit()
        return learner

    return run


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    """All that the learner is, as it would be saved."""
    return {name: tensor.clone() for name, tensor in learner.state().tensors.items()}
