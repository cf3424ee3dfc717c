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
from vitreous.data.dataset import Splits, Subset
from vitreous.evaluation.classification import evaluate
from vitreous.evaluation.features import extract
from vitreous.evaluation.probing import knn_hits
from vitreous.tasks.pretraining.task import ObjectiveName, PretrainingRunConfig, by_model, rules
from vitreous.tasks.running import learn
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.run import Run
from vitreous.training.settings import Tree, configure

# Two-sided 97.5 % quantiles of Student's t for 2, 3, 4, 5 seeds; with more, the normal one is near enough.
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}


class Variant(NamedTuple):
    """One way to a classifier.

    Attributes:
        objective: of pre-training; None is from scratch.
        times: how many times the usual number of epochs the labels are learned.
    """

    objective: ObjectiveName | None
    seed: int
    times: int = 1

    @property
    def name(self) -> str:
        return f"{self.objective or 'scratch'}{f'-x{self.times}' if self.times > 1 else ''}-{self.seed}"


class Outcome(NamedTuple):
    """What a variant reached on the held-out images, and the seconds that its two parts took.

    Attributes:
        knn: of nearest neighbors among the few labeled images, by the features before fine-tuning.
    """

    variant: Variant
    accuracy: float
    knn: float
    pretraining_seconds: float
    fine_tuning_seconds: float


class Comparison(NamedTuple):
    """What is compared.

    Attributes:
        splits: all of `train` is pre-trained on, without its labels; `test` judges.
        labeled: images of each class whose label fine-tuning may see; drawn by the seed.
        pretraining: settings of pre-training over those of the rules; its model is that of every method.
        training: the training settings of fine-tuning.
        from_scratch: those without pre-training; the rate that is best for one is not best for the other.
    """

    splits: Splits
    labeled: int
    pretraining: Tree
    training: TrainingConfig
    from_scratch: TrainingConfig

    def pretraining_config(self, objective: ObjectiveName, seed: int) -> PretrainingRunConfig:
        """The same encoder for every objective: without a class token, pooled by the mean."""
        same = {"model": {"class_token": False, "pooling": "mean"}, "seed": seed}
        key, own = objective.replace("-", "_"), dict(self.pretraining)
        own["pretraining"] = {name: each for name, each in own["pretraining"].items() if name == key}
        config = configure(rules(self.splits.summary, objective), same, own)
        return configure(config, by_model(config, self.splits.summary), own)

    def fine_tuning_config(self, variant: Variant, init: Path | None) -> RunConfig:
        model = self.pretraining_config("mae", variant.seed)
        training = self.training if init else self.from_scratch
        return RunConfig(
            source=self.splits.name,
            init=None if init is None else str(init),
            seed=variant.seed,
            model=model.model.model_copy(update={"num_classes": len(self.splits.train.classes)}),
            preprocessing=model.preprocessing,
            augmentation=AugmentationConfig(affine=AffineConfig(translate=0.1, rotate=10)),
            training=training.model_copy(update={"epochs": training.epochs * variant.times}),
        )


def compare(
    folder: Path,
    comparison: Comparison,
    *,
    objectives: Sequence[ObjectiveName],
    long: int,
    seeds: Sequence[int] = (0, 1, 2),
    device: torch.device,
) -> Iterator[Outcome]:
    """Each variant with each seed, from scratch first, and there with `long` times the epochs, too, if more;
    the runs lie in `folder`."""
    for seed in seeds:
        scratch = {Variant(None, seed): None, Variant(None, seed, long): None}
        for variant in (*scratch, *(Variant(each, seed) for each in objectives)):
            yield outcome(folder, comparison, variant, device)


def outcome(folder: Path, comparison: Comparison, variant: Variant, device: torch.device) -> Outcome:
    """One variant with one seed."""
    init, spent = None, 0.0
    if variant.objective:
        config = comparison.pretraining_config(variant.objective, variant.seed)
        run = opened(folder / variant.name, config)
        if not finished(run):
            learn(run, comparison.splits, device=device)
        init, spent = run.path, run.metrics()[-1]["seconds"]
    run = opened(folder / f"{variant.name}-tuned", comparison.fine_tuning_config(variant, init))
    few = few_labels(comparison.splits, comparison.labeled, variant.seed)
    if not finished(run):
        learn(run, few, device=device)
    assert few.test is not None
    before = starting_model(run.config, few.train.classes).eval()
    labeled, evaluated = (
        extract(before, part, device=device, batch_size=256) for part in (few.train, few.test)
    )
    neighbors = knn_hits(labeled, evaluated, classes=len(few.train.classes)) / len(few.test)
    accuracy = evaluate(run.model(), few.test).accuracy
    return Outcome(variant, accuracy, neighbors, spent, run.metrics()[-1]["seconds"])


def opened(path: Path, config: RunConfig) -> Run:
    """The run at `path`, new or begun earlier."""
    return Run(path, config) if (path / "config.toml").exists() else Run.create(path, config)


def finished(run: Run) -> bool:
    return (run.path / "model" / "config.json").exists()


def few_labels(splits: Splits, count: int, seed: int) -> Splits:
    """The same data with `count` training images of each class, drawn by the seed."""
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
    return mean, mean - margin, mean + margin
