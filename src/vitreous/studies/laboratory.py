"""Runs the trials of studies. Each is a run directory in a cache that all studies share, named by the hash of
what it depends on, so that nothing is trained twice and an interrupted study resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vitreous import __version__
from vitreous.checkpoints import load_image_model
from vitreous.checkpoints.native import save_native
from vitreous.checkpoints.whole_files import write_text
from vitreous.data.dataset import ImageDataset, Indices, Splits
from vitreous.data.sources import summarize
from vitreous.errors import InputError, writing_to
from vitreous.evaluation.classification import evaluate
from vitreous.evaluation.probing import draw_order
from vitreous.models.description import describe
from vitreous.models.names import change
from vitreous.studies.study import Part, Trial
from vitreous.tasks import task_named
from vitreous.tasks.running import learn
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import fitted_to_checkpoint
from vitreous.training.run import Run
from vitreous.training.settings import Tree, merged

RESUME = "free some space; the same command resumes"


@dataclass(frozen=True)
class TrialResult:
    """What one trial with one seed gave.

    Attributes:
        accuracy: on the held-out images; None for self-supervised trials, which have none.
        macs: multiply-accumulate operations for one image.
        seconds: of training.
    """

    accuracy: float | None
    test_count: int
    parameters: int
    macs: int
    seconds: float


class Laboratory:
    """Runs trials on one source of data.

    Args:
        source: DATA.
        settings: of every trial, over those of the data's recipe and under those of the trial.
        cache: the folder of the runs.
    """

    def __init__(self, source: str, settings: Tree, *, cache: Path, device: torch.device) -> None:
        self.source, self.settings, self.cache, self.device = source, settings, cache, device

    def base(self) -> RunConfig:
        """What the variants are variants of.

        Raises:
            InputError: the images have several labels, so that there is no accuracy to compare.
        """
        planned = task_named("classification").plan(self.source, self.settings)
        if planned.data.summary.multi_label:
            raise InputError(
                f"a study needs one class for each image, and those of {self.source} have several labels: "
                "give other data"
            )
        config: RunConfig = planned.config
        return config

    def run(self, trial: Trial, seed: int) -> tuple[Path, TrialResult]:
        """The run directory of a trial, and its result, from the cache or new.

        Raises:
            Interrupted: Ctrl-C or SIGTERM came; the same call goes on from the saved state.
            InputError: settings that do not fit, or data without a held-out part.
        """
        config, splits = self.prepare(trial, seed)
        folder = self.cache / cache_key(config, splits)
        cached = folder / "result.json"
        if cached.is_file():
            return folder, TrialResult(**json.loads(cached.read_text(encoding="utf-8")))
        run = Run(folder, config) if (folder / "config.toml").is_file() else Run.create(folder, config)
        result = self.trained(run, splits, supervised=trial.objective is None)
        with writing_to(self.cache, RESUME):
            write_text(cached, json.dumps(asdict(result)))
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # only an unfinished run needs them
        return folder, result

    def trained(self, run: Run, splits: Splits, *, supervised: bool) -> TrialResult:
        """Train, and evaluate on the held-out part what has learned with labels."""
        if supervised and splits.test is None:
            raise InputError(f"{self.source} has no held-out part: set data.test_fraction")
        trained = learn(run, splits, device=self.device)
        model: Any = trained.model if supervised else trained.model.encoder
        accuracy, count = None, 0
        if supervised and splits.test is not None:
            evaluation = evaluate(model, splits.test, device=self.device, batch_size=256)
            accuracy, count = evaluation.metrics["accuracy"].value, evaluation.count
        parameters = sum(parameter.numel() for parameter in model.parameters())
        return TrialResult(accuracy, count, parameters, describe(run.config.model).macs, trained.seconds)

    def prepare(self, trial: Trial, seed: int) -> tuple[RunConfig, Splits]:
        """A trial's configuration and data. Each seed draws its own split, weights and order, the same for
        all variants, so that they can be compared in pairs."""
        settings = merged(merged(self.settings, trial.settings), {"seed": seed, "data": {"split_seed": seed}})
        if trial.objective:
            planned = task_named(trial.objective).plan(self.source, settings)
            return planned.config, planned.data
        config, _, splits, _ = task_named("classification").plan(self.source, settings)
        if trial.start:
            # A fine-tuned model learns by the recipe of the data, as one from scratch does. The architecture
            # comes with the checkpoint; only the size of the images may change.
            model = {k: v for k, v in trial.settings.get("model", {}).items() if k == "image_size"}
            init = self.starting_checkpoint(trial, seed)
            config = fitted_to_checkpoint(config, init, {**settings, "model": model})
        splits = select_part(splits, trial.part, seed)
        return fitted(config, splits), splits

    def starting_checkpoint(self, trial: Trial, seed: int) -> str:
        """The checkpoint that a trial is fine-tuned from."""
        assert trial.start is not None
        folder, _ = self.run(trial.start, seed)
        if not trial.fresh_positions:
            return str(folder)
        size = trial.settings["model"]["image_size"]
        fresh = folder / f"fresh-positions-{'x'.join(map(str, size))}"
        if not (fresh / "config.json").is_file():
            model = load_image_model(folder, image_size=size)
            generator = torch.Generator().manual_seed(seed)
            for parameter in model.get_submodule("position").parameters():
                nn.init.normal_(parameter, std=0.02, generator=generator)
            with writing_to(self.cache, RESUME):
                save_native(model, fresh)
        return str(fresh)


def fitted(config: RunConfig, splits: Splits) -> RunConfig:
    """As many outputs as the part has classes, and no batch larger than its training images."""
    model = change(config.model, {"num_classes": len(splits.train.classes)})
    largest = len(splits.train) // config.training.grad_accum_steps * config.training.grad_accum_steps
    batch = min(config.training.batch_size, largest)
    training = config.training.model_copy(update={"batch_size": batch})
    return config.model_copy(update={"model": model, "training": training})


def cache_key(config: RunConfig, splits: Splits) -> str:
    """A name that changes with anything that a result depends on: the program, the configuration, and which
    images with which targets there are."""
    digest = hashlib.blake2b(digest_size=16)
    described: Mapping[str, Any] = {"version": __version__, **config.model_dump(mode="json")}
    digest.update(json.dumps(described, sort_keys=True).encode())
    for part in (splits.train, splits.validation, splits.test):
        if part is not None:
            digest.update(np.ascontiguousarray(part.targets).tobytes())
            digest.update("\n".join(part.name(index) for index in range(len(part))).encode())
    return digest.hexdigest()


def select_part(splits: Splits, part: Part, seed: int) -> Splits:
    """The part of the data that a trial is about. Few training images are drawn by the seed, class by
    class; of the held-out part nothing is left out but other classes.

    Raises:
        InputError: half of the classes is less than two.
    """
    if part.classes != "all":
        splits = half_of_classes(splits, first=part.classes == "first half")
    if part.fraction < 1 or part.per_class is not None:
        splits = splits._replace(train=splits.train.subset(sampled_indices(splits.train, part, seed)))
    return splits._replace(summary=summarize(splits.train))


def half_of_classes(splits: Splits, *, first: bool) -> Splits:
    count = len(splits.train.classes)
    low, high = (0, count // 2) if first else (count // 2, count)
    if high - low < 2:
        raise InputError(f"{splits.name} has {count} classes: this study needs two halves of two or more")
    halves: dict[str, Any] = {}
    for name in ("train", "validation", "test"):
        if (part := getattr(splits, name)) is not None:
            half = part.subset(np.flatnonzero((part.targets >= low) & (part.targets < high)))
            half.classes, half.targets = part.classes[low:high], half.targets - low
            halves[name] = half
    return splits._replace(**halves)


def sampled_indices(train: ImageDataset, part: Part, seed: int) -> Indices:
    """At least one image of each class."""
    chosen = []
    for members in draw_order(train.targets, len(train.classes), seed):
        count = max(1, round(part.fraction * len(members)))
        chosen.append(members[: min(count, part.per_class or count)])
    return np.sort(np.concatenate(chosen))
