"""Runs the trials of studies: small trainings on images in memory, each kept in a cache that all studies
share, named by the hash of what it depends on. Nothing is trained twice, and an interrupted study resumes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from vitreous.checkpoints import load_image_model
from vitreous.checkpoints.native import save_native
from vitreous.checkpoints.whole_files import write_text
from vitreous.data.image_samples import Batch
from vitreous.data.sources.world import World, WorldImages, parse
from vitreous.errors import writing_to
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.description import describe
from vitreous.models.names import Model, build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.rng import torch_generator
from vitreous.studies.measures import MEASURES, Images
from vitreous.studies.study import Trial
from vitreous.tasks.pretraining.mae import decoder_for
from vitreous.tasks.pretraining.rules import PretrainingConfig
from vitreous.tasks.pretraining.task import build_objective
from vitreous.training.config import OptimizerConfig, ScheduleConfig
from vitreous.training.learner import learning_rate
from vitreous.training.optimizers import make_optimizers
from vitreous.training.precision import computing

REVISION = 1  # of what a trial computes: another number trains all again
RESUME = "free some space; the same command resumes"
SCHEDULE = ScheduleConfig(kind="cosine", warmup=0.1)
MEAN, STD = 0.3, 0.25  # of the image world
DRAWN = 64  # images at a time


@dataclass(frozen=True)
class TrialResult:
    """What one trial with one seed gave.

    Attributes:
        values: by the name of a measure.
        macs: multiply-accumulate operations for one image.
        seconds: of processor time in training.
    """

    values: dict[str, float]
    parameters: int
    macs: int
    seconds: float


@lru_cache(maxsize=6)
def pixels_of(described: World, part: str, seed: int) -> tuple[UInt8[Tensor, "N H W 3"], WorldImages]:
    """Return all images of one part of the image world."""
    world = WorldImages(described, part, seed)
    drawn = [world.draw(np.arange(at, min(at + DRAWN, len(world)))) for at in range(0, len(world), DRAWN)]
    return torch.from_numpy(np.concatenate(drawn)), world


def world_of(trial: Trial) -> World:
    return parse(trial.data.removeprefix("world:"))


def normalized(
    pixels: UInt8[Tensor, "N H W 3"], size: tuple[int, int], device: torch.device
) -> Float[Tensor, "N 3 H2 W2"]:
    images = (pixels.to(device).permute(0, 3, 1, 2).float() / 255 - MEAN) / STD
    if tuple(images.shape[2:]) == size:
        return images
    return F.interpolate(images, size, mode="bilinear", antialias=True)


class Laboratory:
    """Runs trials.

    Args:
        cache: the folder of the trials.
        share: of the steps of each trial that are trained; less than 1 for a quick look.
    """

    def __init__(self, *, cache: Path, device: torch.device, share: float = 1.0) -> None:
        self.cache, self.device, self.share = cache, device, share
        # On a CPU the backward pass of attention in bf16 takes many times as long as in fp32.
        self.precision = "fp32" if device.type == "cpu" else "bf16"

    def run(self, trial: Trial, seed: int) -> tuple[Path, TrialResult]:
        """The folder of a trial, and its result, from the cache or new.

        Raises:
            InputError: settings that do not fit.
        """
        folder = self.cache / cache_key(trial, seed, self.share)
        cached = folder / "result.json"
        if cached.is_file():
            return folder, TrialResult(**json.loads(cached.read_text(encoding="utf-8")))
        model = self.starting_model(trial, seed)
        begun = time.process_time()
        self.train(model, trial, seed)
        seconds = time.process_time() - begun
        result = TrialResult(
            self.measured(model, trial, seed),
            sum(parameter.numel() for parameter in model.parameters()),
            describe(model.config).macs,
            seconds,
        )
        with writing_to(self.cache, RESUME):
            folder.mkdir(parents=True, exist_ok=True)
            if not trial.measures:  # others are fine-tuned from it
                save_native(model, folder)
            write_text(cached, json.dumps(asdict(result)))
        return folder, result

    def starting_model(self, trial: Trial, seed: int) -> Model:
        """A fresh model, or the one that a trial is fine-tuned from, with a new head for other labels."""
        world = world_of(trial)
        classes = len(WorldImages(replace(world, count=2, test=1, labels=trial.labels), "train", 0).classes)
        kind = BiTConfig if "layers" in trial.model else ViTConfig
        size = trial.model.get("image_size", (world.size, world.size))
        if trial.start is None:
            fields = {"stem": {"kind": "patch"}} if kind is ViTConfig else {}
            tree = {**fields, **trial.model, "image_size": size, "num_classes": classes}
            looks = Preprocessing(size=size, channels=3, mean=(MEAN,) * 3, std=(STD,) * 3)
            return build_model(kind(**tree), seed=seed, preprocessing=looks).to(self.device)
        folder, _ = self.run(replace(trial.start, measures=()), seed)
        model = load_image_model(folder, image_size=size, num_classes=classes).to(self.device)
        if trial.fresh_positions:
            generator = torch_generator(seed, "fresh positions", device=self.device)
            for parameter in model.get_submodule("position").parameters():
                nn.init.normal_(parameter, std=0.02, generator=generator)
        return model

    def train(self, model: Model, trial: Trial, seed: int) -> None:
        """Take the steps of a trial; images in an order that all variants of a seed share."""
        steps = max(min(1, trial.steps), round(self.share * trial.steps))
        learner: nn.Module = model
        if trial.objective:
            assert isinstance(model, ViT)
            settings = PretrainingConfig(mae=decoder_for(model.config))
            learner = build_objective(model, trial.objective, settings, steps=steps, seed=seed).to(
                self.device
            )
        betas = (0.9, 0.98) if trial.optimizer == "adamw" else (0.9, 0.999)
        config = OptimizerConfig(kind=trial.optimizer, betas=betas, weight_decay=trial.weight_decay)
        (optimizer,) = make_optimizers(learner, config, trial.rate)
        generator = torch_generator(seed, "study masks", device=self.device)
        learner.train()
        for step, batch in enumerate(self.batches(trial, seed, steps, model.config.image_size)):
            for group in optimizer.param_groups:
                group["lr"] = trial.rate * learning_rate(step, steps, SCHEDULE)
            with computing(self.precision, self.device):
                if trial.objective:
                    loss, _ = learner(batch.images, generator)
                else:
                    loss = F.cross_entropy(model(batch.images).float(), batch.targets)
            loss.backward()
            nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        learner.eval()

    def batches(self, trial: Trial, seed: int, steps: int, size: tuple[int, int]) -> Iterator[Batch]:
        """Yield batches of whole passes in random order."""
        pixels, world = pixels_of(world_of(trial), "train", seed)
        targets = torch.from_numpy(world.factors[trial.labels])
        generator = torch_generator(seed, "study order")
        order: Int[Tensor, " n"] = torch.empty(0, dtype=torch.int64)
        for _ in range(steps):
            while len(order) < trial.batch_size:
                order = torch.cat([order, torch.randperm(len(pixels), generator=generator)])
            rows, order = order[: trial.batch_size], order[trial.batch_size :]
            yield Batch(normalized(pixels[rows], size, self.device), targets[rows].to(self.device), rows)

    def measured(self, model: Model, trial: Trial, seed: int) -> dict[str, float]:
        """Return everything that the trial measures."""
        values: dict[str, float] = {}
        for name in trial.measures:
            measure, changes = MEASURES[name]
            pixels, world = pixels_of(replace(world_of(trial), **changes), "test", seed)
            images = Images(
                normalized(pixels, model.config.image_size, self.device), world.factors, trial.labels, seed
            )
            with torch.inference_mode(), computing(self.precision, self.device):
                values |= measure(model, images)
        return values


def cache_key(trial: Trial, seed: int, share: float) -> str:
    """A name that changes with anything that a result depends on."""
    described = json.dumps([REVISION, asdict(trial), seed, share], sort_keys=True, default=str)
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()
