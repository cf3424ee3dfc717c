"""Why DINO collapses on small gray digits: short runs, with one thing changed in each.

    python benchmarks/dino_collapse.py --out benchmarks/results/dino_collapse.json

A small ViT (16 pixels, patches of 4, two layers) learns the 1,437 training digits of scikit-learn with
`pretrain`'s head, optimizer and schedule, and is measured on the 360 held-out ones:

    information    of the teacher's answer about its image: entropy of the mean answer minus mean entropy
    entropy        of an answer: log 359 = 5.88 where all prototypes are equal
    spread         standard deviation of the student's outputs over the images, before any temperature
    agreement      correlation of the student's output for one view with the teacher's for the other
    gain           agreement * student's temperature / teacher's temperature
    neighbors      k-NN accuracy of the teacher's and of the student's features; untrained, the null

Close to equal answers softmax is linear: the student's best output is what it can predict of the teacher's,
times the quotient of the temperatures. So differences between images grow where the gain is above 1, and are
forgotten below. Rows that the file has are not computed again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from record import write_results

from vitreous.addons.self_supervision.dino import DINO, DINOConfig, signs_of_collapse
from vitreous.addons.self_supervision.tasks import of_views
from vitreous.addons.self_supervision.views import Views, ViewsConfig
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.sources import open_data
from vitreous.models.model import build_model
from vitreous.tasks import task_named
from vitreous.training.learner import Learner
from vitreous.training.settings import configure
from vitreous.training.step import LossOf, TrainStep

MODEL = {"image_size": (16, 16), "width": 64, "depth": 2, "heads": 4, "mlp_dim": 128, "layer_scale": None}
MODEL |= {"stem": {"kind": "patch"}}
# The views and the temperature that gray images had until 2026-11-27, but for the small views, for time.
FORMER = {"large_scale": (0.6, 1.0), "small_count": 0, "flip": 0.0, "blur": 0.0, "solarize": 0.0}
FORMER_TEACHER = {
    "teacher_temperature": 0.07,
    "teacher_temperature_start": 0.04,
    "teacher_temperature_warmup": 0.3,
}
MILD = FORMER | {"large_scale": (0.8, 1.0), "color": 0.0, "gray": 0.0}
NEIGHBORS, BANKS = 20, 2


def teacher_at(temperature: float) -> dict[str, Any]:
    """A temperature of the teacher without a warm-up."""
    return {
        "teacher_temperature": temperature,
        "teacher_temperature_start": temperature,
        "teacher_temperature_warmup": 0.0,
    }


RUNS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {  # views, and other settings of DINO
    "today's defaults": (None, {}),
    "former defaults": (FORMER, {}),
    "teacher at 0.04": (FORMER, teacher_at(0.04)),
    "teacher at 0.02": (FORMER, teacher_at(0.02)),
    "mild views": (MILD, {}),
}


def pixels(part: ImageDataset) -> list[Image.Image]:
    return [part.opened(row, 1).upright() for row in range(len(part))]


def neighbors(model: Any, known: torch.Tensor, labels: np.ndarray, new: torch.Tensor) -> np.ndarray:
    """The classes that the nearest neighbors vote for, as in DINO's appendix E."""
    bank, query = (F.normalize(model.features(images), dim=1) for images in (known, new))
    similarity, rows = (query @ bank.T).topk(NEIGHBORS, dim=1)
    votes = torch.zeros(len(new), 10)
    votes.scatter_add_(1, torch.from_numpy(labels)[rows], (similarity / 0.07).exp())
    return votes.argmax(dim=1).numpy()


def one_run(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train, and measure at the start and at the end."""
    views, own = RUNS[name]
    task, splits = task_named("dino"), open_data("digits", DataConfig())
    config: Any = configure(task.rules(splits.summary), {"seed": seed})  # type: ignore[attr-defined]
    config = configure(config, task.fitted(config, splits.summary, splits.train), {"source": "digits"})  # type: ignore[attr-defined]
    preprocessing = config.preprocessing.of_size(MODEL["image_size"], config.model.channels)
    model_config = type(config.model).model_validate(config.model.model_dump() | MODEL)
    changes = {"length": f"{steps} steps", "precision": "fp32"}
    train = type(config.training).model_validate(config.training.model_dump() | changes)
    dino = config.own
    if views is not None:
        former = {**FORMER_TEACHER, **own, "views": ViewsConfig(**views)}
        dino = DINOConfig.model_validate(dino.model_dump() | former)
    model = build_model(model_config, seed=seed, preprocessing=preprocessing)
    objective = DINO(model, dino, steps=steps, seed=seed)

    assert splits.test is not None
    rng, (factor, shift) = np.random.default_rng(seed), preprocessing.factor_and_shift()
    parts = {"train": pixels(splits.train), "test": pixels(splits.test)}
    labels = {"train": splits.train.targets.strata(), "test": splits.test.targets.strata()}
    whole = {part: torch.stack([preprocessing(image) for image in images]) for part, images in parts.items()}

    def cut(images: list[Image.Image]) -> Views:
        views = zip(*(objective.crops.cut(image, rng) for image in images), strict=True)
        return Views(*(torch.stack(each) * factor + shift for each in views))

    banks, held_out = [cut(parts["train"]) for _ in range(BANKS)], cut(parts["test"])

    @torch.no_grad()
    def measured() -> dict[str, float]:
        objective.eval()
        first, second = held_out.images.unbind(1)
        temperature = float(objective.teacher_temperature(objective.done))
        outputs = torch.stack(
            [objective.teacher_head(objective.teacher.features(v)) for v in (first, second)]
        )
        signs = signs_of_collapse(F.softmax((outputs - objective.center) / temperature, dim=-1))
        mine = objective.head(model.features(first))
        student, teacher = (each - each.mean(dim=0) for each in (mine, outputs[1]))
        agreement = float((student * teacher).sum() / (student.norm() * teacher.norm()))
        found = {
            "information": float(signs["marginal_entropy"] - signs["teacher_entropy"]),
            "entropy": float(signs["teacher_entropy"]),
            "spread": float(student.std()),
            "agreement": agreement,
            "gain": agreement * objective.config.student_temperature / temperature,
        }
        for who, encoder in (("teacher", objective.teacher), ("student", model)):
            votes = neighbors(encoder, whole["train"], labels["train"], whole["test"])
            found[f"neighbors, {who}"] = float((votes == labels["test"]).mean())
        objective.train()
        return {key: round(value, 4) for key, value in found.items()}

    untrained = measured()
    learner = Learner.begin(objective, train)
    step = TrainStep(learner, LossOf(objective, of_views), train, seed=seed)
    order = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        while len(order) < train.batch_size:
            order = np.concatenate([order, rng.permutation(len(parts["train"]))])
        rows, order = order[: train.batch_size], order[train.batch_size :]
        learner.set_learning_rate(train, steps, steps)
        step(Views(*(each[rows] for each in banks[rng.integers(BANKS)])))
    return {"run": name, "seed": seed, "steps": steps, "untrained": untrained, "trained": measured()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=[*RUNS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file, beside those it has")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if options.out and options.out.exists():
        rows = json.loads(options.out.read_text("utf-8"))["rows"]
    for seed in options.seeds:
        for name in options.runs:
            if any(
                (each["run"], each["seed"], each["steps"]) == (name, seed, options.steps) for each in rows
            ):
                continue
            rows.append(one_run(name, seed, options.steps))
            print(json.dumps(rows[-1]), flush=True)
            write_results({"rows": rows}, options.out, seeds=options.seeds, shown=False)


if __name__ == "__main__":
    main()
