"""The calibration error on new real images: with the temperature that is fitted as after a training, and
without it.

    python benchmarks/calibration.py --sets "few digits" emoji --out benchmarks/results/calibration.json

The sets are ones that a small ViT (16 pixels, patches of 4, three layers) classifies with mistakes: where
there are none, the error only says how confident the model is. `few digits` are 300 of MNIST to learn from;
the others are those of real_images.py. Each seed tests on another quarter of the images, and holds out a
fifth of the rest for the temperature; the images that the model learned from count as far as they agree.

No temperature: the null. Beside each error is the one that would be measured if every probability were
right, which is not 0 for so many images. The interval is Student's over the seeds with Nadeau and Bengio's
correction. Rows that the JSON file has are not computed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from real_images import make_folders
from record import write_results

from vitreous.addons.studies.laboratory import HELD_OUT, Laboratory, OwnImages, PartImages, normalized_images
from vitreous.addons.studies.study import BASE
from vitreous.errors import cache_folder
from vitreous.evaluation.calibration import fit_temperature, temperature_helps
from vitreous.evaluation.scores import calibration_of, half_width

SETS = {"few digits": "mnist5k", "emoji": "emoji", "tuxpaint": "tuxpaint", "letters": "letters"}
FEW, VALIDATION = 300, 5  # images that are learned of the digits; one of so many is held out


class Parts(OwnImages):
    """Images of which some that could be learned are for the temperature."""

    def part(self, part: str, seed: int) -> PartImages:
        whole = super().part("test" if part == "test" else "train", seed)
        if part == "test":
            return whole
        most = FEW * VALIDATION // (VALIDATION - 1) if self.name.startswith("few") else whole.images
        rows = np.random.default_rng(seed).permutation(whole.images)[:most]
        held_out = np.arange(len(rows)) % VALIDATION == 0
        rows = rows[held_out if part == "validation" else ~held_out]
        factors = {name: labels[rows] for name, labels in whole.factors.items()}
        return PartImages(len(rows), whole.whole[torch.from_numpy(rows)].__getitem__, factors, whole.looks)


def if_right(confidence: np.ndarray, rng: np.random.Generator) -> float:
    """The mean error that is measured where each prediction is right as often as it says."""
    drawn = [calibration_of(confidence, rng.random(len(confidence)) < confidence).ece for _ in range(200)]
    return float(np.mean(drawn))


def one_seed(own: Parts, seed: int, steps: int) -> dict[str, float]:
    laboratory = Laboratory(cache_folder() / "studies", torch.device("cpu"), own=own)
    trial = BASE.change(steps=steps, labels="labels")
    model = laboratory.starting_model(trial, seed)
    laboratory.train(model, trial, seed)
    found: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name in ("train", "validation", "test"):
        part = own.part(name, seed)
        images = normalized_images(part.whole, model.config.image_size, laboratory.device, part.looks)
        with torch.inference_mode():
            found[name] = model(images).float(), torch.from_numpy(part.factors["labels"])
    held_out, learned = found["validation"], found["train"]
    temperature = fit_temperature(*held_out, learned) if temperature_helps(*held_out, learned) else 1.0
    logits, targets = found["test"]
    row, rng = {"temperature": temperature}, np.random.default_rng(seed)
    for way, scale in (("without", 1.0), ("with", temperature)):
        confidence, predictions = (logits / scale).softmax(dim=1).max(dim=1)
        right = (predictions == targets).numpy()
        row["accuracy"] = float(right.mean())
        row[f"{way} a temperature"] = calibration_of(confidence.numpy(), right).ece
        row[f"{way}, if it were right"] = if_right(confidence.numpy(), rng)
    return {name: round(value, 4) for name, value in row.items()}


def summary(seeds: list[dict[str, float]]) -> dict[str, Any]:
    """Means over the seeds, and the interval of the change of the error."""
    means = {name: round(float(np.mean([seed[name] for seed in seeds])), 4) for name in seeds[0]}
    change = [seed["with a temperature"] - seed["without a temperature"] for seed in seeds]
    half = half_width(change, 1 / (HELD_OUT - 1))
    return {**means, "change": round(float(np.mean(change)), 4), "half_width": round(half, 4), "seeds": seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[*SETS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--data", type=Path, default=Path("real-images"), help="folder of the packages")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file, beside those it has")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    if options.out and options.out.exists():
        rows = json.loads(options.out.read_text("utf-8"))["rows"]
    for name in options.sets:
        if name in rows:
            continue
        own = Parts.read(str(make_folders(SETS[name], 0, options.data)), (16, 16))
        own = Parts(f"{name} {own.name}", *own[1:])
        seeds = [one_seed(own, seed, options.steps) for seed in range(options.seeds)]
        rows[name] = {"steps": options.steps, "classes": own.classes, **summary(seeds)}
        print(name, json.dumps(rows[name]), flush=True)
        write_results({"rows": rows}, options.out, seeds=range(options.seeds), shown=False)


if __name__ == "__main__":
    main()
