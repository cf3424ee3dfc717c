"""Why is it not learning? All checks of a run, whatever its task, or of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from vitreous.checkpoints.loading import load
from vitreous.checkpoints.runs import is_finished
from vitreous.checkpoints.tensors import read_safetensors
from vitreous.data.checks import data_findings, known_findings, unlike_neighbors
from vitreous.data.dataset import ClassTargets, ImageDataset, Splits
from vitreous.data.findings import Finding, finding, read_findings
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.evaluation.features import feature_outputs
from vitreous.evaluation.model_diagnosis import (
    check_geometry,
    model_findings,
    normalization,
    origin_of_nan,
    weights_not_finite,
)
from vitreous.evaluation.result import FEWEST
from vitreous.evaluation.scores import is_network, wilson_interval
from vitreous.layers.pooling import DistilledHead
from vitreous.models.model import Model
from vitreous.models.stored import Stored
from vitreous.tasks import task_of_run
from vitreous.tasks.classification import Classification
from vitreous.tasks.course import (
    FINDINGS,
    SAMPLE,
    AnyRun,
    at_chance,
    other_looks,
    run_findings,
    with_others,
    without_what_was_tried,
)
from vitreous.tasks.task import read_candidates
from vitreous.training.config import RunConfig
from vitreous.training.diagnosis import bad_file_findings, causes_first, frozen_encoder, overfitting
from vitreous.training.run import RunDirectory

ASKED = 400  # images of each part that the model is asked about
LIKE_OTHERS = 8  # of the ten images that the model finds most alike, of one other class: a doubtful label
WRONG, FEWEST_WRONG = 0.08, 6  # doubtful labels: the share from which on they are a finding, and how many


def examine_run(path: Path) -> list[Finding]:
    """Return what is wrong with a run: its data, its course, its model (of a run that was stopped, as its
    newest state has it). Raises InputError: it is not a run, or what it was trained on is no longer there."""
    task = task_of_run(path)
    run = RunDirectory.open(path, task.config).with_data(None)
    # The report has these as well.
    at_its_end = read_findings(path / FINDINGS) if is_finished(path) else []
    if isinstance(task, Classification):
        seen = [*bad_file_findings(path), *classifier_findings(task, run, at_its_end)]
        return causes_first(without_what_was_tried(run, with_others(seen, at_its_end)))
    findings = [*bad_file_findings(path), *run_findings(run), *weight_findings(run)]
    if (path / "model").exists():
        data = task.open_data(run.config, run.split)
        findings += known_findings(data, labels=task.info.targets != "unlabeled")
        images: list[Stored] = []
        if isinstance(data.train, ImageDataset):
            images = [image for _, image in data.train.readable(data.train.sample(SAMPLE))]
        if images:
            model = load(path / "model")
            seeing: Model = getattr(model, "encoder", model)
            if task.info.no_answers:
                findings += check_geometry(seeing, data.train)
            batch = seeing.preprocessing(images)
            findings += [*normalization(seeing, batch), *origin_of_nan(seeing, batch)]
    return causes_first(without_what_was_tried(run, with_others(findings, at_its_end)))


def classifier_findings(
    task: Classification, run: RunDirectory[RunConfig], at_its_end: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield what is wrong with a classifier's run. at_its_end: what was found at the end of the training."""
    config = run.config
    splits = open_data(config.source, config.data.with_split(run.split))
    usual = usual_config(task, run, splits)
    yield from data_findings(splits)
    yield from frozen_encoder(config.training, config.init)
    yield from run_findings(run, len(splits.train.classes), usual.training if usual else None)
    finished = is_finished(run.path)
    model = run.model() if finished else run.model_so_far(splits.train.classes)
    held_out = splits.test or splits.validation or splits.train
    learned = bool(run.metrics() or finished)
    seen = list(
        model_findings(model, held_out, learned=learned, usual=usual.model.image_size if usual else None)
    )
    yield from seen
    found_cause = any(each.kind == "origin of NaN" for each in seen)
    if learned and not found_cause and isinstance(splits.train.targets, ClassTargets):
        baseline = 0.0
        for each in at_its_end:
            if each.kind == "below baseline" and isinstance(low := each.values["low"], float):
                baseline = low
        yield from answer_findings(run, model, splits, baseline)


def usual_config(task: Classification, run: RunDirectory[RunConfig], splits: Splits) -> RunConfig | None:
    """Return what the run's recipe says for such data; None where it has none."""
    config, source = run.config, run.config.source
    for name in (None, config.recipe):
        with suppress(InputError):
            # The value plays no part: it keeps mirroring from being tried.
            untried = {"augmentation": {"flip": config.augmentation.flip}}
            chosen = task.choose(source, splits, untried, recipe=name, init=config.init).config
            if chosen.recipe == config.recipe:
                return chosen
    return None


def answer_findings(
    run: RunDirectory[RunConfig], model: Model, splits: Splits, baseline: float
) -> Iterator[Finding]:
    """Yield what the model's answers tell of the labels, on a sample of images. baseline: what a classical
    method that is better than the model has at least."""
    unseen = [splits.test]
    if is_network(read_candidates(run.path)):
        unseen.insert(0, splits.validation)
    held_out = [part for part in unseen if part is not None]
    if not held_out:
        return
    parts = [splits.train, *held_out]
    answers = [answers_to(model, part) for part in parts]
    labels = [part.targets.strata(found.indices) for part, found in zip(parts, answers, strict=True)]
    targets = np.concatenate(labels[1:])
    right = [found.classes == known for found, known in zip(answers[1:], labels[1:], strict=True)]
    accuracy = float(np.concatenate(right).mean())
    majority = float(np.bincount(targets).max() / len(targets))
    low, _ = wilson_interval(round(accuracy * len(targets)), len(targets))
    looks = list(other_looks(*((int(each.sum()), len(each)) for each in right))) if len(right) > 1 else []
    yield from looks
    if not looks and len(targets) >= FEWEST and low <= majority:
        yield from at_chance(run, splits, accuracy, majority, len(targets), labels_fit=baseline > majority)
    elif not splits.validation:
        yield from overfitting(run.metrics(), accuracy)
    seen: list[tuple[ImageDataset, int]] = []
    for part, found in zip(parts, answers, strict=True):
        seen += [(part, index) for index in found.indices.tolist()]
    features = np.concatenate([found.features for found in answers])
    doubtful = []
    apart = features - features.mean(axis=0)
    for row, other, _ in unlike_neighbors(apart, np.concatenate(labels), LIKE_OTHERS):
        part, index = seen[row]
        doubtful.append((part.name(index), splits.train.classes[other]))
    if len(doubtful) > WRONG * len(seen) and len(doubtful) >= FEWEST_WRONG:
        yield from finding("wrong labels", doubtful, count=len(seen), severity="warning")


class SampleAnswers(NamedTuple):
    """What a model says of a sample of images."""

    indices: NDArray[np.int64]  # of those that could be read, in their dataset
    features: NDArray[np.float32]  # what its head sees of them, (N, D)
    classes: NDArray[np.int64]  # its answers


def answers_to(model: Model, images: ImageDataset) -> SampleAnswers:
    """Ask a model about a sample of images."""
    chosen = np.array(images.sample(ASKED))
    found = feature_outputs(model, images.subset(chosen), device=torch.device("cpu"), batch_size=64)
    with torch.inference_mode():
        # Such a head sees a token for each of its classifiers.
        two = isinstance(model.head, DistilledHead)
        tokens = found.values.view(len(found.values), 2, -1) if two else found.values
        classes = model.head(tokens).argmax(dim=1)
    return SampleAnswers(chosen[found.indices], found.values.numpy(), classes.numpy())


def weight_findings(run: AnyRun) -> Iterator[Finding]:
    """Yield the first weight that is not finite, of the model or else of the newest state."""
    file = run.path / "model" / "model.safetensors"
    if file.exists():
        stored = read_safetensors(file)
        yield from weights_not_finite((name, entry.read()) for name, entry in stored.items())
    elif state := run.states.newest():
        yield from weights_not_finite(state.tensors.items())
