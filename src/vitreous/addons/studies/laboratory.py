"""Runs the trials of studies, each kept in a cache that all studies share, named by the hash of what it
depends on: nothing is trained twice, and an interrupted study resumes. And the trials that learn images."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.addons.studies.measures import MEASURES, LabeledImages, as_learned
from vitreous.addons.studies.study import AnyTrial, Study, TrainingSetup, TrialResult, trials_of
from vitreous.addons.studies.world import WorldImages, WorldOptions, class_names, parse_world
from vitreous.checkpoints.loading import load_image_model
from vitreous.checkpoints.native import save_native
from vitreous.data.config import DataConfig
from vitreous.data.dataset import LabelTargets
from vitreous.data.image_samples import Batch
from vitreous.data.sources import open_data
from vitreous.errors import InputError, writing_to
from vitreous.layers.embedding import LearnedPositions
from vitreous.models.config import ViTConfig
from vitreous.models.description import describe
from vitreous.models.model import Model, build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.outside import read_text
from vitreous.rng import numpy_generator, torch_generator
from vitreous.tasks.pretraining.mae_decoder import decoder_for
from vitreous.tasks.pretraining.task import build_objective
from vitreous.training.config import AdamWConfig, AnyOptimizer, FallingScheduleConfig, SGDConfig
from vitreous.training.learner import learning_rate
from vitreous.training.machine import computing
from vitreous.training.optimizers import make_optimizers
from vitreous.whole_files import write_text

RESUME = "free some space; the same command resumes"
SCHEDULE = FallingScheduleConfig(warmup=0.1)
LOOKS = 0.3, 0.25  # mean and deviation of the pixels of the image world
HELD_OUT = 4  # one of so many of a user's images
OWN_LABELS = "labels"


class PartImages(NamedTuple):
    """The images of one part, with all kinds of labels, and the mean and deviation of pixels."""

    images: int
    take: Callable[[Int[Tensor, " n"]], UInt8[Tensor, "n H W 3"]]  # the pixels of images, by their numbers
    factors: Mapping[str, NDArray[np.int64]]
    looks: tuple[float, float] = LOOKS

    @property
    def whole(self) -> UInt8[Tensor, "N H W 3"]:
        """All pixels."""
        return self.take(torch.arange(self.images))


@lru_cache(maxsize=6)
def pixels_of(described: WorldOptions, part: str, seed: int) -> PartImages:
    """Return one part of the image world, whose images are drawn when they are taken for the first time."""
    world = WorldImages(described, part, seed)
    return PartImages(len(world), lambda rows: torch.from_numpy(world.rows(rows.numpy())), world.factors)


def world_of(trial: TrainingSetup) -> WorldOptions:
    return parse_world(trial.data.removeprefix("world:"))


class OwnImages(NamedTuple):
    """Images of a user instead of the image world: each seed holds out a quarter of its own."""

    name: str  # with a hash of all pixels and labels, so that trials of other images are not theirs
    pixels: UInt8[Tensor, "N H W 3"]
    targets: NDArray[np.int64]
    size: tuple[int, int]  # what the models take

    @property
    def classes(self) -> int:
        return int(self.targets.max()) + 1

    def part(self, part: str, seed: int) -> PartImages:
        order = numpy_generator(seed, "study split").permutation(len(self.targets))
        order = order[np.argsort(self.targets[order], kind="stable")]
        held_out = np.arange(len(order)) % HELD_OUT == 0
        rows = np.sort(order[held_out if part == "test" else ~held_out])
        if part == "test":  # a quarter of it is for selection
            rows = numpy_generator(seed, "study validation").permutation(rows)
        factors = {OWN_LABELS: self.targets[rows]}
        return PartImages(len(rows), self.pixels[rows].__getitem__, factors, self.looks)

    @property
    def looks(self) -> tuple[float, float]:
        mean = float(self.pixels.float().mean()) / 255
        return mean, max(float(self.pixels.float().std()) / 255, 0.01)

    def study(self, study: Study) -> Study:
        """Return the study on these images; by accuracy, where few shots would be of the learned classes."""

        def own(trial: TrainingSetup) -> TrainingSetup:
            measures = tuple(each for each in trial.measures if each != "few-shot")
            start = trial.start and own(trial.start)
            return replace(trial, data=self.name, labels=OWN_LABELS, measures=measures, start=start)

        def measured(name: str) -> str:
            return "accuracy" if name == "few-shot" else name

        return replace(
            study,
            variants=tuple(
                replace(each, trial=own(cast("TrainingSetup", each.trial))) for each in study.variants
            ),
            claims=tuple(replace(each, measure=measured(each.measure)) for each in study.claims),
            measure=measured(study.measure),
            world="own",
        )

    @classmethod
    def read(cls, source: object, size: tuple[int, int]) -> OwnImages:
        """Read all images of DATA, each as large as the models take it. Raises InputError: DATA are none, or
        without one class for each image."""
        splits = open_data(source, DataConfig())
        parts = [part for part in (splits.train, splits.validation, splits.test) if part is not None]
        looks = Preprocessing(size=size, channels=3, mean=(0.0,) * 3, std=(1.0,) * 3)
        pixels: list[Float[Tensor, "3 H W"]] = []
        for part in parts:
            if isinstance(part.targets, LabelTargets):
                raise InputError(f"{splits.name} has several labels per image: a study needs one class")
            pixels += (looks([part.image(row)])[0] for row in range(len(part)))
        whole = (255 * torch.stack(pixels)).round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()
        targets = np.concatenate([part.targets.strata() for part in parts])
        content = hashlib.blake2b(whole.numpy().tobytes() + targets.tobytes(), digest_size=8).hexdigest()
        return cls(f"{splits.name} {content}", whole, targets, size)


def check_own_images(study: Study) -> None:
    """Raise InputError for a study that changes what images show, or their number or labels."""
    trials = trials_of(study)
    shown = {(trial.data, getattr(trial, "labels", None)) for trial in trials}
    changed: set[str] = set()  # measures of images that look different from those that were learned
    for trial in trials:
        for name in getattr(trial, "measures", ()):
            _, change, _ = MEASURES[name]
            if change is not as_learned:
                changed.add(name)
    if len(shown) > 1 or changed or study.world != "images":
        raise InputError(f"the study {study.name} takes no DATA, since it generates its own: leave it out")


def normalized_images(
    pixels: UInt8[Tensor, "N H W 3"],
    size: tuple[int, int],
    device: torch.device,
    looks: tuple[float, float] = LOOKS,
) -> Float[Tensor, "N 3 H2 W2"]:
    images = (pixels.to(device).permute(0, 3, 1, 2).float() / 255 - looks[0]) / looks[1]
    if tuple(images.shape[2:]) == size:
        return images
    return F.interpolate(images, size, mode="bilinear", antialias=True)


@dataclass(frozen=True)
class Laboratory:
    """Runs trials."""

    cache: Path  # the folder of the trials
    device: torch.device
    share: float = 1.0  # of the steps of each trial that are trained; less than 1 for a quick look
    own: OwnImages | None = None  # what is learned instead of the image world

    @property
    def precision(self) -> str:
        """On a CPU the backward pass of attention in bf16 takes many times as long as in fp32."""
        return "fp32" if self.device.type == "cpu" else "bf16"

    def run(self, trial: AnyTrial, seed: int) -> tuple[Path, TrialResult]:
        """Return the folder of a trial, and its result, from the cache or new. Raises InputError: settings
        that do not fit."""
        folder = self.cache / cache_key(trial, seed, self.share, self.precision)
        cached = folder / "result.json"
        with suppress(FileNotFoundError):
            return folder, TrialResult(**json.loads(read_text(cached)))
        if isinstance(trial, TrainingSetup):
            model, result = self.learn_images(trial, seed)
        else:
            model, result = None, trial.perform(seed, share=self.share, device=self.device)
        with writing_to(self.cache, RESUME):
            folder.mkdir(parents=True, exist_ok=True)
            if model is not None:
                save_native(model, folder)
            write_text(cached, json.dumps(asdict(result)))
        return folder, result

    def learn_images(self, trial: TrainingSetup, seed: int) -> tuple[Model | None, TrialResult]:
        """Train and measure a model of images; it is returned where others are fine-tuned from it."""
        model = self.starting_model(trial, seed)
        begun = time.process_time()
        self.train(model, trial, seed)
        result = TrialResult(
            self.measured(model, trial, seed),
            sum(parameter.numel() for parameter in model.parameters()),
            describe(model.config).macs,
            time.process_time() - begun,
        )
        return None if trial.measures else model, result

    def images(
        self,
        trial: TrainingSetup,
        part: str,
        seed: int,
        changed: Callable[[WorldOptions], WorldOptions] = lambda world: world,
    ) -> PartImages:
        return self.own.part(part, seed) if self.own else pixels_of(changed(world_of(trial)), part, seed)

    def starting_model(self, trial: TrainingSetup, seed: int) -> Model:
        """Return a fresh model, or the one that a trial is fine-tuned from, with a new head for other
        labels."""
        if self.own:
            classes, size, looks = self.own.classes, self.own.size, self.own.looks
        else:
            side = world_of(trial).size
            classes, size, looks = len(class_names()[trial.labels]), (side, side), LOOKS
        size = trial.model.get("image_size", size)
        if trial.start is None:
            fields = {"stem": {"kind": "patch"}} if trial.config is ViTConfig else {}
            tree = {**fields, **trial.model, "image_size": size, "num_classes": classes}
            prepared = Preprocessing(size=size, channels=3, mean=(looks[0],) * 3, std=(looks[1],) * 3)
            return build_model(trial.config(**tree), seed=seed, preprocessing=prepared).to(self.device)
        folder, _ = self.run(replace(trial.start, measures=()), seed)
        model = load_image_model(folder, image_size=size, num_classes=classes).to(self.device)
        if trial.positions != "resized":
            assert isinstance(model, ViT)
            position = model.config.position
            assert position.kind == "learned"
            table = model.get_parameter("position.table").data
            if trial.positions == "cropped":
                table.copy_(middle_positions(load_image_model(folder), model.config.grid))
            else:
                generator = torch_generator(seed, "fresh positions", device=self.device)
                table.normal_(0, position.init_std, generator=generator)
        return model

    def train(self, model: Model, trial: TrainingSetup, seed: int) -> None:
        """Take the steps of a trial; images in an order that all variants of a seed share."""
        steps = max(min(1, trial.steps), round(self.share * trial.steps))
        learner: nn.Module = model
        if trial.objective:
            assert isinstance(model, ViT)
            settings = {"target": trial.target}
            if trial.objective == "mae":
                settings = decoder_for(model.config).model_dump()
            learner = build_objective(model, trial.objective, settings, steps=steps, seed=seed).to(
                self.device
            )
        decay = trial.weight_decay
        config: AnyOptimizer = SGDConfig(weight_decay=decay)
        if trial.optimizer == "adamw":
            config = AdamWConfig(betas=(0.9, 0.98), weight_decay=decay)
        (optimizer,) = make_optimizers(learner, config, trial.rate)
        generator = torch_generator(seed, "study masks")  # objectives draw on the CPU
        learner.train()
        for step, batch in enumerate(self.batches(trial, seed, steps, model.config.image_size)):
            with computing(self.precision, self.device):
                if trial.objective:
                    loss, _ = learner(batch.images, generator)
                else:
                    loss = F.cross_entropy(model(batch.images).float(), batch.targets)
            take_step(loss, learner, optimizer, trial.rate * learning_rate(step, steps, SCHEDULE))
        learner.eval()

    def batches(self, trial: TrainingSetup, seed: int, steps: int, size: tuple[int, int]) -> Iterator[Batch]:
        """Yield batches of whole passes in random order."""
        part = self.images(trial, "train", seed)
        targets = torch.from_numpy(part.factors[trial.labels])
        generator = torch_generator(seed, "study order")
        order: Int[Tensor, " n"] = torch.empty(0, dtype=torch.int64)
        for _ in range(steps):
            while len(order) < trial.batch_size:
                order = torch.cat([order, torch.randperm(part.images, generator=generator)])
            rows, order = order[: trial.batch_size], order[trial.batch_size :]
            images = normalized_images(part.take(rows), size, self.device, part.looks)
            yield Batch(images, targets[rows].to(self.device), rows)

    def measured(self, model: Model, trial: TrainingSetup, seed: int) -> dict[str, float]:
        """Return everything that the trial measures."""
        values: dict[str, float] = {}
        for name in trial.measures:
            measure, changed, canvas = MEASURES[name]
            part = self.images(trial, "test", seed, changed)
            height, width = model.config.image_size
            shown = normalized_images(part.whole, (canvas * height, canvas * width), self.device, part.looks)
            images = LabeledImages(shown, part.factors, trial.labels, seed)
            with torch.inference_mode(), computing(self.precision, self.device):
                values |= measure(model, images)
        return values


def take_step(loss: Tensor, learner: nn.Module, optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Take a step of a trial at a learning rate."""
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()


def middle_positions(model: Model, grid: tuple[int, int]) -> Float[Tensor, "rows D"]:
    """Return the learned positions of the extra tokens and of a smaller grid in the middle of the model's."""
    assert isinstance(model, ViT)
    position = model.position
    assert isinstance(position, LearnedPositions)
    rows = position.table.detach()
    patches = rows[position.extra :].reshape(*position.grid, -1)
    top, left = (position.grid[0] - grid[0]) // 2, (position.grid[1] - grid[1]) // 2
    middle = patches[top : top + grid[0], left : left + grid[1]]
    return torch.cat([rows[: position.extra], middle.flatten(0, 1)])


def cache_key(trial: AnyTrial, seed: int, share: float, precision: str = "fp32") -> str:
    """Return a name that changes with anything that a result depends on. Names of fp32 are without it, as
    before."""
    other = [] if precision == "fp32" else [precision]
    facts = [trial.revision, asdict(cast("Any", trial)), seed, share, *other]
    described = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()
