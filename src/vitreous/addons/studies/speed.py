"""Images a second of models at sizes of images (2010.11929, Fig. 12, left), on one CPU thread."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from vitreous.addons.studies.study import Bench, Study, TrialResult, Variant
from vitreous.models.description import describe
from vitreous.models.names import create

MODELS = ("ViT-Ti/16", "ViT-S/32", "ViT-S/16", "BiT-R50x1")
SIZES = (64, 128, 224, 384)


@dataclass(frozen=True)
class SpeedTrial:
    """A model at one size of images. Each seed measures it again."""

    revision: ClassVar[int] = 1
    settings: ClassVar[tuple[str, ...]] = ()

    name: str
    size: int
    batch: int = 2
    repeats: int = 5
    data: str = ""
    steps: int = 0
    rate: float = 0.0

    def perform(self, laboratory: Bench, seed: int) -> tuple[None, TrialResult]:
        """The least processor time of several calls: other work on the machine can only add to it."""
        model = create(self.name, image_size=self.size, num_classes=None).eval()
        images = torch.randn(self.batch, 3, self.size, self.size)
        repeats = max(1, round(laboratory.share * self.repeats))
        threads, begun, times = torch.get_num_threads(), time.process_time(), []
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                model.features(images)
                for _ in range(repeats):
                    start = time.process_time()
                    model.features(images)
                    times.append(time.process_time() - start)
        finally:
            torch.set_num_threads(threads)
        described = describe(model.config)
        values = {"images-a-second": self.batch / min(times)}
        parameters, macs = described.parameters, described.macs
        return None, TrialResult(values, parameters, macs, time.process_time() - begun)


def speed() -> Study:
    """Times are those of a machine and decide no claim."""
    variants: list[Variant] = []
    for name in MODELS:
        for size in SIZES:
            variants.append(Variant(f"{name}, {size}", SpeedTrial(name, size), group=name, x=float(size)))
    return Study("speed", tuple(variants), (), "images-a-second", points=False, world="layers")
