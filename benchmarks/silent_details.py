"""What details cost that no paper states: each switched alone in one recipe, on characters of real fonts.

    python benchmarks/silent_details.py --fonts fonts --minutes 10

What is compared, and the rule, is in results/silent_details/design.md, and was written before anything was
run. Every finished training is kept, so that the same command goes on; `--minutes` ends it after that time.
`--minutes 0` trains nothing and writes the table again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from glyphs import Glyphs, glyphs, split_by_family
from PIL import Image
from record import commit_of, fresh_seeds, write_results
from torch import nn
from torch.nn import functional as F

from vitreous.addons.self_supervision.dino import DINO, DINOConfig
from vitreous.addons.self_supervision.views import ViewsConfig
from vitreous.data import batch_augmentation, rand_augment, sampling
from vitreous.data.config import AugmentationConfig
from vitreous.data.dataset import ArrayImages
from vitreous.data.image_samples import image_loader
from vitreous.data.sampling import Order, repeated
from vitreous.evaluation.comparison import holm
from vitreous.evaluation.scores import half_width
from vitreous.layers.initialization import init_weights
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.settings import merged
from vitreous.rng import torch_generator
from vitreous.tasks.pretraining.task import self_supervised
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, TrainStep

FOLDER = Path(__file__).parent / "results" / "silent_details"
DESIGN, RESULTS, TABLE = FOLDER / "design.md", FOLDER / "results.json", FOLDER / "table.md"
SEEDS, CLASSES, SIDE, SIZE, SHARE, BATCH = 10, 32, 48, 32, 0.3, 32
NEIGHBORS, LEVEL, POINT = 20, 0.05, 0.01
Tree = Mapping[str, Any]

VIT = {"image_size": (SIZE, SIZE), "channels": 3, "num_classes": CLASSES, "patch_size": (8, 8)}
VIT |= {"width": 64, "depth": 2, "heads": 4, "mlp_dim": 128}
OPTIMIZER = {"kind": "adamw", "weight_decay": 0.1, "clip_norm": 1.0}
SUPERVISED: dict[str, Any] = {
    "model": VIT,
    "training": {
        "length": "500 steps",
        "batch_size": BATCH,
        "peak_lr": 2e-3,
        "optimizer": OPTIMIZER,
        "schedule": {"kind": "cosine", "warmup": 50},
        "precision": "fp32",
    },
    "augmentation": {
        "random_resized_crop": {"scale": (0.6, 1.0)},
        "policy": {"layers": 1, "magnitude": 10, "operations": "big_vision", "probability": 0.25},
        "mix": {"mixup": 0.2, "cutmix": 1.0, "probability": 0.25},
        "repeated_augmentation": 3,
    },
}
HYBRID_STEM = {"kind": "resnet", "layers": (1, 1), "width_factor": 0.5}
SHORT = {"length": "300 steps", "peak_lr": 1e-3, "schedule": {"warmup": 30}}
HYBRID = merged(SUPERVISED, {"model": {"stem": HYBRID_STEM, "depth": 3}, "training": SHORT})
DINO_RECIPE = merged(
    SUPERVISED,
    {
        "model": {"num_classes": None, "depth": 3},
        "training": SHORT,
        "augmentation": {
            "random_resized_crop": None,
            "policy": None,
            "mix": None,
            "repeated_augmentation": 1,
        },
    },
)
VIEWS = ViewsConfig(large_scale=(0.4, 1.0), small_scale=(0.1, 0.4), small_count=2, small_size=16, flip=0.0)
PROTOTYPES = {"prototypes": 256, "head_hidden": 256, "head_bottleneck": 64, "freeze_prototypes": 0.25}
RECIPES = {"supervised": SUPERVISED, "hybrid": HYBRID, "dino": DINO_RECIPE}


class Detail(NamedTuple):
    """One difference between codebases.

    part: of the design. settings: of the recipe that are switched. patches: what is done while it is trained.
    """

    name: str
    recipe: str
    part: int
    settings: Tree = MappingProxyType({})
    patches: tuple[Callable[[], Any], ...] = ()
    model: Callable[[nn.Module, int], None] | None = None  # what is changed of the initial weights
    by_area: bool = False  # evaluation


# ---- What is switched, where it is not a setting


@contextmanager
def first_moments_in_bfloat16() -> Iterator[None]:
    """Round Adam's first moment after every step, as optax stores it with mu_dtype=bfloat16."""
    take = TrainStep.take

    def rounded(self: TrainStep) -> None:
        take(self)
        for optimizer in self.learner.optimizers:
            for state in optimizer.state.values():
                state["exp_avg"].copy_(state["exp_avg"].bfloat16())

    with patch.object(TrainStep, "take", rounded):
        yield


def copies_apart() -> Any:
    """The copies of an image a third of an epoch apart: a batch has one of each."""

    def drifting(order: Order, copies: int, batch: int) -> Order:
        found = repeated(order, copies, batch)
        indices, numbers = np.asarray(found.indices[:]), np.asarray(found.copies)
        places = np.argsort(numbers % copies, kind="stable")
        return Order(indices[places], numbers[places])

    return patch.object(sampling, "repeated", drifting)


def shear_about_the_center() -> Any:
    """TensorFlow shears about the center of the first pixel, and Pillow about its corner: half a pixel
    times the shear apart."""

    def shearing(shear: tuple[float, float]) -> Any:
        def operation(image: Image.Image, strength: Any) -> Image.Image:
            amount = strength.level * strength.sign
            x, y = -0.5 * shear[0] * amount, -0.5 * shear[1] * amount
            matrix = (1.0, shear[0] * amount, x, shear[1] * amount, 1.0, y)
            fill = strength.fill_for(image)
            affine = Image.Transform.AFFINE
            return image.transform(image.size, affine, matrix, strength.resample, fillcolor=fill)

        return operation

    table = rand_augment.LISTS["big_vision"].table
    return patch.dict(table, {"shear-x": shearing((0.3, 0.0)), "shear-y": shearing((0.0, 0.3))})


def rounded_boxes() -> Any:
    """CutMix's sides rounded about the center, where timm cuts them to whole pixels."""

    def span(center: int, length: float, limit: int) -> tuple[int, int]:
        return max(round(center - length / 2), 0), min(round(center + length / 2), limit)

    # `mix` cuts lengths with int(), which is the builtin: here it leaves them as they are.
    keeping = patch.object(
        batch_augmentation, "int", lambda x: x if isinstance(x, float) else int(x), create=True
    )
    stack = ExitStack()
    stack.enter_context(patch.object(batch_augmentation, "span", span))
    stack.enter_context(keeping)
    return stack


@contextmanager
def gradients_of_zero() -> Iterator[None]:
    """Frozen weights get a gradient of zero, as from a factor in the loss, and not None."""
    prepare = TrainStep.prepare

    def zeroed(self: TrainStep, batch: Any) -> None:
        prepare(self, batch)
        for parameter in self.frozen_at(self.learner.step) if self.frozen_at else ():
            parameter.grad = torch.zeros_like(parameter)

    with patch.object(TrainStep, "prepare", zeroed):
        yield


def packed_attention(model: nn.Module, seed: int) -> None:
    """Query, key and value drawn as one matrix: Xavier's bound is that of (3D, D)."""
    for number, (_, module) in enumerate(m for m in model.named_modules() if m[0].endswith("qkv")):
        rng = torch_generator(seed, "packed", number)
        nn.init.xavier_uniform_(module.weight.data, generator=rng)


def last_norms_at_one(model: nn.Module, seed: int) -> None:
    """The scales that begin at 0, which close a residual branch, begin at 1."""
    zero = [m for m in model.modules() if isinstance(m, nn.GroupNorm) and not m.weight.any()]
    assert zero
    for norm in zero:
        nn.init.ones_(norm.weight)


def long_prototypes(objective: Any, seed: int) -> None:
    for head in (objective.head, objective.teacher_head):
        nn.init.normal_(head.prototypes.weight.data, generator=torch_generator(seed, "prototypes"))


CROP = "random_resized_crop"
DETAILS = (
    Detail("crop sampler", "supervised", 1, {"augmentation": {CROP: {"sampler": "tensorflow"}}}),
    Detail("antialias", "supervised", 1, {"augmentation": {CROP: {"antialias": False}}}),
    Detail("first moment", "supervised", 1, patches=(first_moments_in_bfloat16,)),
    Detail("warm-up", "supervised", 1, {"training": {"schedule": {"warmup_start": 0.0}}}),
    Detail("steps by epoch", "supervised", 1, {"training": {"schedule": {"per_epoch": True}}}),
    Detail("decay of tokens", "supervised", 1, {"training": {"optimizer": {"decayed": "tokens"}}}),
    Detail("truncation", "supervised", 2, {"augmentation": {CROP: {"truncate": True}}}),
    Detail("area resizing", "supervised", 2, by_area=True),
    Detail("repeated augmentation", "supervised", 2, patches=(copies_apart,)),
    Detail("center of the shear", "supervised", 2, patches=(shear_about_the_center,)),
    Detail("CutMix's boxes", "supervised", 2, patches=(rounded_boxes,)),
    Detail("query, key, value", "supervised", 2, model=packed_attention),
    Detail("gn3", "hybrid", 3, model=last_norms_at_one),
    Detail("frozen prototypes", "dino", 3, patches=(gradients_of_zero,)),
    Detail("length of prototypes", "dino", 3, model=long_prototypes),
)
PARTS = (1, 2, 3)
AS_IT_IS, ANOTHER_SEED = "as it is", "another seed"


# ---- One training


def characters() -> list[str]:
    """Capital letters and digits, without those that another looks like in some font."""
    return list("ABCDEFGHJKLMNPQRSTUVWXYZ23456789")


@lru_cache
def images_of(fonts: Path) -> Glyphs:
    return glyphs(fonts, characters(), SIDE)


def one_training(fonts: Path, detail: Detail, split: int, seed: int, steps: int | None = None) -> float:
    """The accuracy on held-out families of the recipe of a detail with the detail switched.

    Args:
        split: chooses the families.
        seed: of weights, order and augmentation.
        steps: fewer, for tests.
    """
    found = images_of(fonts)
    learned, held_out = split_by_family(found, split, SHARE)
    tree = merged(RECIPES[detail.recipe], detail.settings)
    if steps:
        tree = merged(tree, {"training": {"length": f"{steps} steps", "schedule": {"warmup": 2}}})
    config = TrainingConfig(**tree["training"])
    augmentation = AugmentationConfig(**tree["augmentation"])
    preprocessing = Preprocessing(
        size=(SIZE, SIZE), channels=3, interpolation="bilinear", mean=(0.5,) * 3, std=(0.5,) * 3
    )
    pixels = np.repeat(found.pixels[..., None], 3, axis=3)
    names = tuple(characters())
    train = ArrayImages(pixels[learned], found.classes[learned], names, name="glyphs")
    model: Any = build_model(ViTConfig(**tree["model"]), preprocessing=preprocessing)
    init_weights(model, torch_generator(seed, "weights"), config.initialization)
    objective, learner_model = classification(config), model
    if detail.recipe == "dino":
        total = config.steps
        assert total
        learner_model = DINO(model, DINOConfig(views=VIEWS, **PROTOTYPES), steps=total, seed=seed)
        objective = self_supervised
    if detail.model:
        detail.model(learner_model, seed)
    with ExitStack() as stack:
        for each in detail.patches:
            stack.enter_context(each())
        loader = image_loader(
            train, preprocessing=preprocessing, augmentation=augmentation, batch_size=BATCH, seed=seed
        )
        train_batches(learner_model, objective, config, loader, seed)
    shown = partial(evaluated, by_area=detail.by_area)
    labels = torch.from_numpy(found.classes)
    with torch.no_grad():
        if detail.recipe != "dino":
            answers = model.eval()(shown(found.pixels[held_out])).argmax(dim=1)
            return float((answers == labels[held_out]).float().mean())
        teacher = learner_model.teacher.eval()
        known, new = (
            F.normalize(teacher.features(shown(found.pixels[rows])), dim=1) for rows in (learned, held_out)
        )
        rows = (new @ known.T).topk(NEIGHBORS, dim=1).indices
        votes = F.one_hot(labels[learned][rows], CLASSES).sum(dim=1)
        return float((votes.argmax(dim=1) == labels[held_out]).float().mean())


def train_batches(model: nn.Module, objective: Any, config: TrainingConfig, loader: Any, seed: int) -> None:
    """As `vitreous train` does, without a run."""
    learner = Learner.begin(model, config)
    step = TrainStep(learner, LossOf(model, objective), config, seed=seed)
    total = config.steps
    assert total
    epoch = 0
    while learner.step < total:
        for batch in loader.epoch(epoch):
            learner.set_learning_rate(config, total, loader.steps_per_epoch)
            step(batch)
            if learner.step == total:
                break
        epoch += 1
    step.outcome()


def evaluated(pixels: np.ndarray, *, by_area: bool) -> torch.Tensor:
    """Images as evaluation shows them to the model, (N, 3, 32, 32)."""
    images = torch.from_numpy(pixels)[:, None].float()
    if by_area:
        small = F.interpolate(images, (SIZE, SIZE), mode="area")
    else:
        small = F.interpolate(images, (SIZE, SIZE), mode="bilinear", antialias=True)
    return (small.round() / 127.5 - 1).expand(-1, 3, -1, -1)


# ---- All of them


def trainings(seeds: list[int]) -> Iterator[tuple[str, str, int, Detail, int]]:
    """(recipe, variant, split, detail, seed) of every training: part by part, and in each seed by seed, so
    that what is unfinished of a part is unfinished in all of its variants alike."""
    for part in PARTS:
        details = [each for each in DETAILS if each.part == part]
        for split in seeds:
            for recipe in dict.fromkeys(each.recipe for each in details):
                plain = Detail(AS_IT_IS, recipe, part)
                yield recipe, AS_IT_IS, split, plain, split
                yield recipe, ANOTHER_SEED, split, plain, split + 1
            for detail in details:
                yield detail.recipe, detail.name, split, detail, split


def summary(rows: Mapping[str, Mapping[str, Mapping[str, float]]], seeds: list[int]) -> list[dict[str, Any]]:
    """Each detail beside the recipe as it is: the mean of the pairs, its interval, p-values and a verdict."""
    found = []
    for name, recipe in [(each.name, each.recipe) for each in DETAILS] + [
        (ANOTHER_SEED, recipe) for recipe in RECIPES
    ]:
        plain, other = rows.get(recipe, {}).get(AS_IT_IS, {}), rows.get(recipe, {}).get(name, {})
        both = [str(seed) for seed in seeds if str(seed) in plain and str(seed) in other]
        pairs = np.array([other[seed] - plain[seed] for seed in both])
        row: dict[str, Any] = {"detail": name, "recipe": recipe, "seeds": len(pairs)}
        if len(pairs) > 1:
            row["as it is"] = round(float(np.mean([plain[seed] for seed in both])), 5)
            row["mean"] = round(float(pairs.mean()), 5)
            row["half_width"] = round(half_width(pairs.tolist()), 5)
            row["deviation"] = round(float(pairs.std(ddof=1)), 5)
            row["p_value"] = p_value(pairs)
        found.append(row)
    parts = {each.name: each.part for each in DETAILS}
    tested = [row for row in found if row["detail"] in parts and "p_value" in row]
    for part in PARTS:
        of_part = [row for row in tested if parts[row["detail"]] == part]
        for row, adjusted in zip(of_part, holm([row["p_value"] for row in of_part]), strict=True):
            row["p_value_holm"] = adjusted
    for row in tested:
        adjusted = row["p_value_holm"]
        low, high = row["mean"] - row["half_width"], row["mean"] + row["half_width"]
        row["verdict"] = "unfinished"
        if row["seeds"] == SEEDS:
            within = max(abs(low), abs(high)) < POINT
            row["verdict"] = (
                "moves accuracy" if adjusted < LEVEL else "less than a point" if within else "undecided"
            )
    return found


def p_value(pairs: np.ndarray) -> float:
    from scipy.stats import ttest_1samp

    return 1.0 if not pairs.std() else float(ttest_1samp(pairs, 0.0).pvalue)


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        "| detail | recipe | accuracy as it is, % | switched, points | deviation | p, Holm | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        if "mean" not in row:
            continue
        name = row["detail"] if row["detail"] != ANOTHER_SEED else "*another seed alone*"
        p = f"{row['p_value_holm']:.2g}" if "p_value_holm" in row else "–"
        numbers = f"{100 * row['mean']:+.2f} ± {100 * row['half_width']:.2f}"
        of = "" if row["seeds"] == SEEDS else f" ({row['seeds']} seeds)"
        lines.append(
            f"| {name}{of} | {row['recipe']} | {100 * row['as it is']:.1f} | {numbers} | "
            f"{100 * row['deviation']:.2f} | {p} | {row.get('verdict', 'null')} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fonts", type=Path, required=True, help="folder with the fonts")
    parser.add_argument("--minutes", type=float, default=10.0, help="after which it stops")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * arguments.minutes
    commit = commit_of(DESIGN)
    seeds = fresh_seeds(commit, SEEDS)
    kept: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    rows = kept.get("rows", {})
    known = images_of(arguments.fonts)
    about = {"design": commit, "seeds": seeds, "images": len(known.pixels), "families": len(known.names)}
    about |= {"digest": known.digest}
    if kept:
        assert about == {name: kept[name] for name in about}, "other fonts than those of the kept rows"
    for recipe, variant, split, detail, seed in trainings(seeds):
        values = rows.setdefault(recipe, {}).setdefault(variant, {})
        if str(split) in values:
            continue
        if time.monotonic() >= end:
            break
        began = time.process_time()
        values[str(split)] = round(one_training(arguments.fonts, detail, split, seed), 5)
        seconds = time.process_time() - began
        print(f"{recipe}, {variant}, {split}: {values[str(split)]:.4f}, {seconds:.0f} s", file=sys.stderr)
        write_results({**about, "rows": rows}, RESULTS, packages=("pillow",), shown=False)
    found = summary(rows, seeds)
    write_results({**about, "summary": found, "rows": rows}, RESULTS, packages=("pillow",), shown=False)
    TABLE.write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    main()
