"""Does pre-training pay? One encoder on few labels: fine-tuned from scratch, and from each objective.

Every run is a run directory, and one that is finished is not run again.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from vitreous.data.config import AffineConfig, AugmentationConfig
from vitreous.data.pictures import Subset
from vitreous.data.sources import Splits
from vitreous.evaluation.classification import evaluate
from vitreous.pretraining.config import ObjectiveName, PretrainingRunConfig
from vitreous.pretraining.plan import by_model, rules
from vitreous.pretraining.pretrainer import pretrain
from vitreous.training.classifier import train_classifier
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.run import Run
from vitreous.training.settings import Tree, configure

# Two-sided 97.5 % quantiles of Student's t for 2, 3, 4, 5 seeds; with more, the normal one is near enough.
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}


class Variant(NamedTuple):
    """One way to a classifier; objective None is from scratch."""

    objective: ObjectiveName | None
    seed: int

    @property
    def name(self) -> str:
        return f"{self.objective or 'scratch'}-{self.seed}"


class Outcome(NamedTuple):
    """What a variant reached on the held-out pictures, and the seconds that its two parts took."""

    variant: Variant
    accuracy: float
    pretraining_seconds: float
    fine_tuning_seconds: float


class Comparison(NamedTuple):
    """What is compared.

    Attributes:
        splits: all of `train` is pre-trained on, without its labels; `test` judges.
        labelled: pictures of each class whose label fine-tuning may see; drawn by the seed.
        pretraining: settings of pre-training over those of the rules; its model is everybody's.
        training: the training settings of fine-tuning, the same from scratch and from an encoder.
    """

    splits: Splits
    labelled: int
    pretraining: Tree
    training: TrainingConfig

    def pretraining_config(self, objective: ObjectiveName, seed: int) -> PretrainingRunConfig:
        """The same encoder for every objective: without a class token, pooled by the mean."""
        same = {"model": {"class_token": False, "pooling": "mean"}, "seed": seed}
        config = configure(rules(self.splits.summary, objective), same, self.pretraining)
        return configure(config, by_model(config, self.splits.summary), self.pretraining)

    def fine_tuning_config(self, seed: int, init: Path | None) -> RunConfig:
        model = self.pretraining_config("mae", seed)
        return RunConfig(
            source=self.splits.name,
            init=None if init is None else str(init),
            seed=seed,
            model=model.model.model_copy(update={"num_classes": len(self.splits.train.classes)}),
            preprocessing=model.preprocessing,
            augmentation=AugmentationConfig(affine=AffineConfig(translate=0.1, rotate=10)),
            training=self.training,
        )


def compare(
    folder: Path,
    comparison: Comparison,
    *,
    objectives: Sequence[ObjectiveName],
    seeds: Sequence[int] = (0, 1, 2),
    device: torch.device,
) -> Iterator[Outcome]:
    """Each variant with each seed, from scratch first; the runs lie in `folder`."""
    for seed in seeds:
        for objective in (None, *objectives):
            yield outcome(folder, comparison, Variant(objective, seed), device)


def outcome(folder: Path, comparison: Comparison, variant: Variant, device: torch.device) -> Outcome:
    """One variant with one seed."""
    init, spent = None, 0.0
    if variant.objective:
        config = comparison.pretraining_config(variant.objective, variant.seed)
        run = opened(folder / variant.name, config)
        if not finished(run):
            pretrain(run, comparison.splits, device=device)
        init, spent = run.path, run.metrics()[-1]["seconds"]
    run = opened(folder / f"{variant.name}-tuned", comparison.fine_tuning_config(variant.seed, init))
    few = few_labels(comparison.splits, comparison.labelled, variant.seed)
    if not finished(run):
        train_classifier(run, few, device=device)
    assert few.test is not None
    accuracy = evaluate(run.model(), few.test).accuracy
    return Outcome(variant, accuracy, spent, run.metrics()[-1]["seconds"])


def opened(path: Path, config: RunConfig) -> Run:
    """The run at `path`, new or begun earlier."""
    return Run(path, config) if (path / "config.toml").exists() else Run.create(path, config)


def finished(run: Run) -> bool:
    return (run.path / "model" / "config.json").exists()


def few_labels(splits: Splits, count: int, seed: int) -> Splits:
    """The same data with `count` training pictures of each class, drawn by the seed."""
    rng = np.random.default_rng(seed)
    targets = splits.train.targets
    chosen = [rng.permutation(np.flatnonzero(targets == label))[:count] for label in np.unique(targets)]
    return splits._replace(train=Subset(splits.train, np.sort(np.concatenate(chosen))))


def mean_and_interval(accuracies: Sequence[float]) -> tuple[float, float, float]:
    """The mean over seeds and its 95 % interval by Student's t; (mean, low, high)."""
    mean = statistics.fmean(accuracies)
    if len(accuracies) < 2:
        return mean, 0.0, 1.0
    margin = STUDENT.get(len(accuracies), 1.96) * statistics.stdev(accuracies) / len(accuracies) ** 0.5
    return mean, max(mean - margin, 0.0), min(mean + margin, 1.0)
