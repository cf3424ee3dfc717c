"""Where a ViT passes a ResNet of equal compute: Hangul in real fonts, held out by family of fonts.

    python benchmarks/crossing.py --fonts fonts --minutes 10
    python benchmarks/crossing.py --fonts fonts --scale gpu --minutes 40

What is compared, and the rule, is in results/crossing/design.md; glyphs.py says where the fonts are from.
First the rates are chosen, on a pilot seed and on families of fonts that are never in a test, then come the
seeds, which are drawn from the commit of the design. Every finished training is kept, so that the same
command goes on; `--minutes` ends it after that time. `--minutes 0` trains nothing and writes table and figure
again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from glyphs import SYLLABLES, Face, faces
from PIL import Image, ImageDraw, ImageFont
from record import commit_of, fresh_seeds, write_results
from scipy.stats import ttest_1samp
from torch.nn import functional as F

from vitreous.data.image_samples import Batch
from vitreous.evaluation.comparison import holm
from vitreous.evaluation.scores import half_width
from vitreous.layers.initialization import init_weights
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.description import describe
from vitreous.models.model import build_model
from vitreous.models.preprocessing import Preprocessing
from vitreous.rng import numpy_generator, torch_generator
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, TrainStep
from vitreous.whole_files import whole

FOLDER = Path(__file__).parent / "results" / "crossing"
DESIGN = FOLDER / "design.md"
VOWELS, FINALS = 21, 28  # a syllable is (initial * 21 + vowel) * 28 + final
SEEDS, PILOT, SAMPLES = 10, 0, 10_000
TEST, CHOOSING = 1 / 3, 1 / 6  # of the families
VIT, HYBRID, RESNET = "ViT", "hybrid", "ResNet"
AGAIN = "ViT, another seed"  # the null
COLORS = {VIT: "tab:blue", HYBRID: "tab:green", RESNET: "tab:red"}


class Scale(NamedTuple):
    """One size of the experiment.

    side: of the images, in pixels. sizes: training images. test: images of the held-out families.
    """

    models: Mapping[str, ViTConfig | BiTConfig]
    side: int
    sizes: tuple[int, ...]
    steps: int
    batch: int
    rates: tuple[float, ...]
    test: int
    device: str
    seeds: int = SEEDS


def models_of(side: int, vit: Mapping[str, Any], hybrid: Mapping[str, Any], resnet: Mapping[str, Any]) -> Any:
    shape: dict[str, Any] = {"image_size": (side, side), "channels": 1, "num_classes": VOWELS}
    return {
        VIT: ViTConfig(**shape, **vit),
        HYBRID: ViTConfig(**shape, **hybrid),
        RESNET: BiTConfig(**shape, **resnet),
    }


STEM = {"kind": "resnet", "layers": (1,), "width_factor": 0.5}
SCALES = {
    "cpu": Scale(
        models_of(
            24,
            {"patch_size": (4, 4), "width": 44, "depth": 2, "heads": 4, "mlp_dim": 176},
            {"stem": STEM, "patch_size": (4, 4), "width": 44, "depth": 1, "heads": 4, "mlp_dim": 176},
            {"layers": (1, 1), "width_factor": 0.5},
        ),
        side=24,
        sizes=(1000, 3162, 10_000, 31_623, 100_000),
        steps=2000,
        batch=64,
        rates=(1e-3, 3e-3, 1e-2),
        test=2000,
        device="cpu",
    ),
    "gpu": Scale(
        models_of(
            32,
            {"patch_size": (4, 4), "width": 64, "depth": 6, "heads": 4, "mlp_dim": 256},
            {"stem": STEM, "patch_size": (4, 4), "width": 64, "depth": 5, "heads": 4, "mlp_dim": 256},
            {"layers": (2, 2), "width_factor": 1.0},
        ),
        side=32,
        sizes=(1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000),
        steps=500,
        batch=2048,
        rates=(1e-3, 3e-3),
        test=10_000,
        device="cuda",
    ),
}


# ---- Images


class Drawings(NamedTuple):
    """Drawn syllables: pixels (N, side, side) of bytes, black on white; the vowel and the family of each."""

    pixels: np.ndarray
    vowels: np.ndarray
    families: np.ndarray  # numbers, of `names`
    names: tuple[str, ...]

    @property
    def digest(self) -> str:
        content = self.vowels.tobytes() + self.families.tobytes()
        return hashlib.blake2b(content + self.pixels[::97].tobytes(), digest_size=8).hexdigest()


def vowel_of(syllable: int) -> int:
    """The vowel of a code point, 0 to 20."""
    return (syllable - SYLLABLES.start) // FINALS % VOWELS


def drawn_face(face: Face, side: int, syllables: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The drawings of a face, (N, side, side), and their syllables. What it draws for several syllables, it
    draws for those that it lacks."""
    basic = ImageFont.Layout.BASIC  # a syllable is one glyph: nothing is to be shaped
    font = ImageFont.truetype(str(face.path), round(0.8 * side), index=face.number, layout_engine=basic)
    drawn = np.empty((len(syllables), side, side), np.uint8)
    for place, syllable in enumerate(syllables):
        image = Image.new("L", (side, side), 255)
        ImageDraw.Draw(image).text((side / 2, side / 2), chr(syllable), fill=0, font=font, anchor="mm")
        drawn[place] = np.asarray(image)
    _, first, counts = np.unique(
        drawn.reshape(len(syllables), -1), axis=0, return_index=True, return_counts=True
    )
    own = np.sort(first[counts == 1])
    return drawn[own], np.array(syllables)[own]


def drawings_of(fonts: Path, side: int) -> Drawings:
    """All syllables in all faces of a folder; an edition that only renames another adds nothing. They are
    drawn once and kept beside the fonts."""
    kept = fonts / f"syllables-{side}.npz"
    if not kept.exists():
        pixels, vowels, families, names, seen = [], [], [], [], set()
        for face in faces(fonts, ["가"]):
            drawn, syllables = drawn_face(face, side, SYLLABLES)
            key = hashlib.blake2b(drawn.tobytes()).digest()
            if key in seen:
                continue
            seen.add(key)
            if face.family not in names:
                names.append(face.family)
            pixels.append(drawn)
            vowels.append([vowel_of(each) for each in syllables.tolist()])
            families.append(np.full(len(drawn), names.index(face.family)))
            print(f"{face.path.name}: {len(drawn)} syllables", file=sys.stderr)
        with whole(kept, ".npz") as path:
            np.savez(
                path,
                pixels=np.concatenate(pixels),
                vowels=np.concatenate(vowels),
                families=np.concatenate(families),
                names=np.array(names),
            )
    with np.load(kept, allow_pickle=False) as found:
        known = tuple(found["names"].tolist())
        return Drawings(found["pixels"], found["vowels"], found["families"], known)


class Split(NamedTuple):
    """Numbers of drawings: those to learn from in the order in which they are taken, and held-out ones."""

    learned: np.ndarray
    held_out: np.ndarray


def choosing_families(families: int) -> np.ndarray:
    """The families on which rates are chosen, the same for all seeds: no test has them."""
    return numpy_generator(PILOT, "choosing").permutation(families)[: round(CHOOSING * families)]


def split_of(known: Drawings, seed: int, test: int) -> Split:
    """The drawings that a seed learns from, and the same number of each family that is held out: of those for
    choosing on the pilot seed, otherwise of others."""
    choosing = choosing_families(len(known.names))
    others = np.setdiff1d(np.arange(len(known.names)), choosing)
    others = numpy_generator(seed, "families").permutation(others)
    tested = round(TEST * len(known.names))
    held = choosing if seed == PILOT else others[:tested]
    rng = numpy_generator(seed, "drawings")
    learned = rng.permutation(np.flatnonzero(np.isin(known.families, others[tested:])))
    rows = [np.flatnonzero(known.families == family) for family in held]
    held_out = [rng.permutation(each)[: math.ceil(test / len(held))] for each in rows]
    return Split(learned, np.concatenate(held_out))


def normalized(pixels: np.ndarray | torch.Tensor, device: str) -> torch.Tensor:
    """(N, 1, side, side), from -1 to 1."""
    return torch.as_tensor(pixels).to(device)[:, None].float() / 127.5 - 1


def cropped(images: torch.Tensor, area: tuple[float, float], rng: np.random.Generator) -> torch.Tensor:
    """A random square of each image, of a share of its area, at the image's size."""
    side = np.sqrt(rng.uniform(*area, len(images)))
    places = rng.uniform(-1, 1, (2, len(images))) * (1 - side)
    zero = np.zeros_like(side)
    matrices = np.stack([np.stack([side, zero, places[0]], 1), np.stack([zero, side, places[1]], 1)], 1)
    grid = F.affine_grid(torch.from_numpy(matrices).to(images), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


# ---- One training


def one_training(
    scale: Scale, known: Drawings, model: str, size: int, rate: float, split: int, seed: int
) -> float:
    """The accuracy on held-out families.

    Args:
        split: chooses the families and the images.
        seed: of weights, order and crops.
    """
    learned, held_out = split_of(known, split, scale.test)
    # Beyond the drawings that there are, a drawing counts again, as another crop of it.
    taken = np.resize(learned, size)
    config = TrainingConfig(
        length=f"{scale.steps} steps",
        batch_size=scale.batch,
        peak_lr=rate,
        optimizer={"kind": "adamw", "weight_decay": 0.1, "clip_norm": 1.0},
        schedule={"kind": "cosine", "warmup": scale.steps // 10},
        precision="fp32" if scale.device == "cpu" else "bf16",
    )
    sides = (scale.side, scale.side)
    preprocessing = Preprocessing(size=sides, channels=1, interpolation="bilinear", mean=(0.5,), std=(0.5,))
    network: Any = build_model(scale.models[model], preprocessing=preprocessing)
    init_weights(network, torch_generator(seed, "weights"), config.initialization)
    network.to(scale.device)
    learner = Learner.begin(network, config)
    step = TrainStep(learner, LossOf(network, classification(config)), config, seed=seed)
    for number, rows in enumerate(batches(size, scale, seed)):
        images = normalized(known.pixels[taken[rows]], scale.device)
        images = cropped(images, (0.6, 1.0), numpy_generator(seed, "crops", number))
        targets = torch.from_numpy(known.vowels[taken[rows]]).long().to(scale.device)
        learner.set_learning_rate(config, scale.steps, scale.steps)
        step(Batch(images, targets, torch.from_numpy(rows)))
    step.outcome()
    network.eval()
    with torch.no_grad():
        right = [
            (
                network(normalized(known.pixels[rows], scale.device)).argmax(1).cpu().numpy()
                == known.vowels[rows]
            )
            for rows in np.array_split(held_out, math.ceil(len(held_out) / 1000))
        ]
    return float(np.concatenate(right).mean())


def batches(size: int, scale: Scale, seed: int) -> Iterator[np.ndarray]:
    """The numbers of the images of every step: each epoch is a new order."""
    epochs = math.ceil(scale.steps * scale.batch / size)
    orders = (numpy_generator(seed, "order", epoch).permutation(size) for epoch in range(epochs))
    yield from np.concatenate(list(orders))[: scale.steps * scale.batch].reshape(scale.steps, scale.batch)


# ---- All of them

# accuracy[model][size][key]: of a pilot the key is the rate, of the test a seed
Rows = dict[str, dict[str, dict[str, float]]]


class Training(NamedTuple):
    """One training of the experiment, and where its accuracy is kept."""

    rows: Rows
    key: str
    name: str  # of the row
    model: str
    size: int
    rate: float
    split: int
    seed: int


def rates_to_try(scale: Scale, tried: Mapping[str, float]) -> list[float]:
    """The rates that are not tried yet: those of the scale, then one beyond the edge that the best is at."""
    missing = [rate for rate in scale.rates if f"{rate:g}" not in tried]
    if missing:
        return missing
    ratio = scale.rates[1] / scale.rates[0]
    lowest, highest = f"{scale.rates[0]:g}", f"{scale.rates[-1]:g}"
    beyond = {lowest: scale.rates[0] / ratio, highest: scale.rates[-1] * ratio}
    best = best_rate(tried)
    return [beyond[best]] if best in beyond and len(tried) == len(scale.rates) else []


def best_rate(tried: Mapping[str, float]) -> str:
    return max(tried, key=lambda rate: tried[rate])


def missing_trainings(scale: Scale, pilot: Rows, test: Rows, seeds: Sequence[int]) -> Iterator[Training]:
    """The trainings that are still to be done: the rates, then seed by seed, so that an end before the last
    leaves fewer seeds of all sizes and models alike. What is done is to be in the rows before the next one is
    asked for."""
    for size in scale.sizes:
        for model in scale.models:
            tried = pilot.setdefault(model, {}).setdefault(str(size), {})
            while rates := rates_to_try(scale, tried):
                yield Training(pilot, f"{rates[0]:g}", model, model, size, rates[0], PILOT, PILOT)
    for seed in seeds:
        for size in scale.sizes:
            for name in (*scale.models, AGAIN):
                model, own = (VIT, seed + 1) if name == AGAIN else (name, seed)
                if str(seed) not in test.setdefault(name, {}).setdefault(str(size), {}):
                    rate = float(best_rate(pilot[model][str(size)]))
                    yield Training(test, str(seed), name, model, size, rate, seed, own)


def crossing(sizes: Sequence[int], differences: np.ndarray) -> float:
    """The number of images from which on a curve of differences is not below 0: between the last two sizes of
    different sign on a line in the logarithm. -inf: it is never below, inf: it is below at the largest."""
    below = np.flatnonzero(differences < 0)
    if not len(below):
        return -math.inf
    last = int(below[-1])
    if last == len(sizes) - 1:
        return math.inf
    share = -differences[last] / (differences[last + 1] - differences[last])
    return float(sizes[last] * (sizes[last + 1] / sizes[last]) ** share)


def complete(scale: Scale, rows: Rows, seeds: Sequence[int]) -> list[str]:
    """The seeds of which every training is done: the others count nowhere."""
    names = (*scale.models, AGAIN)
    return [
        str(seed)
        for seed in seeds
        if all(str(seed) in rows.get(n, {}).get(str(s), {}) for n in names for s in scale.sizes)
    ]


def comparison(scale: Scale, rows: Rows, one: str, other: str, done: Sequence[str]) -> dict[str, Any]:
    """The difference of two rows at each size, with Student's intervals, and where it crosses 0, with the
    interval of bootstrap samples of the seeds that are done."""
    values = np.array(
        [[rows[one][str(size)][s] - rows[other][str(size)][s] for size in scale.sizes] for s in done]
    )
    found: dict[str, Any] = {"of": f"{one} minus {other}", "seeds": len(done)}
    if len(done) < 2:
        return found
    p_values = [1.0 if not each.std() else float(ttest_1samp(each, 0.0).pvalue) for each in values.T]
    found["sizes"] = [
        {
            "size": size,
            "mean": round(float(each.mean()), 5),
            "half_width": round(half_width(each.tolist()), 5),
            "deviation": round(float(each.std(ddof=1)), 5),
            "p_value_holm": adjusted,
        }
        for size, each, adjusted in zip(scale.sizes, values.T, holm(p_values), strict=True)
    ]
    samples = numpy_generator(PILOT, "bootstrap").integers(len(done), size=(SAMPLES, len(done)))
    points = np.sort([crossing(scale.sizes, values[sample].mean(0)) for sample in samples])
    low, high = points[round(0.025 * SAMPLES)], points[round(0.975 * SAMPLES) - 1]
    found["crossing"] = written(crossing(scale.sizes, values.mean(0)), scale.sizes)
    found["interval"] = [written(low, scale.sizes), written(high, scale.sizes)]
    found["crossing_in_samples"] = round(float(np.isfinite(points).mean()), 4)
    return found


def written(point: float, sizes: Sequence[int]) -> int | str:
    if math.isfinite(point):
        return round(point)
    return f"none up to {sizes[-1]}" if point > 0 else f"ahead from {sizes[0]}"


def summary(scale: Scale, pilot: Rows, rows: Rows, seeds: Sequence[int]) -> dict[str, Any]:
    """Costs of the models, chosen rates, accuracies, and the comparisons."""
    models = []
    for name, config in scale.models.items():
        cost = describe(config)
        rates = {size: float(best_rate(tried)) for size, tried in pilot.get(name, {}).items() if tried}
        models.append({"model": name, "macs": cost.macs, "parameters": cost.parameters, "rates": rates})
    done = complete(scale, rows, seeds)
    accuracies = []
    for name in (*scale.models, AGAIN) if len(done) > 1 else ():
        for size in scale.sizes:
            values = [rows[name][str(size)][seed] for seed in done]
            numbers = {"mean": round(float(np.mean(values)), 5), "half_width": round(half_width(values), 5)}
            accuracies.append({"model": name, "size": size, "seeds": len(done), **numbers})
    pairs = ((VIT, RESNET), (HYBRID, RESNET), (AGAIN, VIT))
    compared = [comparison(scale, rows, one, other, done) for one, other in pairs]
    return {"models": models, "accuracies": accuracies, "comparisons": compared}


def table(found: Mapping[str, Any]) -> str:
    """The summary in Markdown."""
    lines = ["| model | multiply-adds of an image | parameters | rates |", "|---|---|---|---|"]
    for row in found["models"]:
        rates = ", ".join(f"{int(size):,}: {rate:g}" for size, rate in row["rates"].items())
        lines.append(f"| {row['model']} | {row['macs']:,} | {row['parameters']:,} | {rates} |")
    lines += ["", "| images | accuracy of | % | seeds |", "|---|---|---|---|"]
    for row in sorted(found["accuracies"], key=lambda row: row["size"]):
        numbers = f"{100 * row['mean']:.1f} ± {100 * row['half_width']:.1f}"
        lines.append(f"| {row['size']:,} | {row['model']} | {numbers} | {row['seeds']} |")
    lines += ["", "| difference | images | points | p, Holm | crossing | 95% of samples |"]
    lines.append("|---|---|---|---|---|---|")
    for row in found["comparisons"]:
        for each in row.get("sizes", ()):
            numbers = f"{100 * each['mean']:+.1f} ± {100 * each['half_width']:.1f}"
            ends = " to ".join(str(end) for end in row["interval"])
            lines.append(
                f"| {row['of']} | {each['size']:,} | {numbers} | {each['p_value_holm']:.2g} | "
                f"{row['crossing']} | {ends} |"
            )
    return "\n".join(lines) + "\n"


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Accuracy over the number of images, and the differences, with Student's 95% intervals."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, color in COLORS.items():
        rows = sorted((r for r in found["accuracies"] if r["model"] == name), key=lambda r: r["size"])
        values = {key: [100 * row[key] for row in rows] for key in ("mean", "half_width")}
        sizes = [row["size"] for row in rows]
        left.errorbar(
            sizes, values["mean"], yerr=values["half_width"], color=color, fmt="o-", capsize=3, label=name
        )
    colors = (COLORS[VIT], COLORS[HYBRID], "gray")
    for row, color in zip(found["comparisons"], colors, strict=True):
        rows = row.get("sizes", ())
        right.errorbar(
            [each["size"] for each in rows],
            [100 * each["mean"] for each in rows],
            yerr=[100 * each["half_width"] for each in rows],
            color=color,
            fmt="o-",
            capsize=3,
            label=row["of"],
        )
    right.axhline(0, color="black", linewidth=1, linestyle="--")
    left.set(title="Vowel of a syllable in fonts not learned", ylabel="accuracy, %")
    right.set(title="Differences on equal splits", ylabel="points")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="training images")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def experiment(
    name: str,
    scale: Scale,
    known: Drawings,
    seeds: Sequence[int],
    end: float,
    about: Mapping[str, Any],
    out: Path,
) -> None:
    """Do what is missing, until `end` of the monotonic clock, and write results, table and figure."""
    results = out / f"{name}.json"
    kept = json.loads(results.read_text("utf-8")) if results.exists() else {}
    about = {**about, "seeds": list(seeds), "images": len(known.pixels), "families": len(known.names)}
    about |= {"digest": known.digest, "images_seen": scale.steps * scale.batch, "steps": scale.steps}
    if kept:
        assert about == {key: kept[key] for key in about}, "another design or other fonts than the kept rows'"
    pilot, rows, seconds = kept.get("pilot", {}), kept.get("rows", {}), kept.get("seconds", {})
    machine = "one thread" if scale.device == "cpu" else torch.cuda.get_device_name()

    def keep(found: Mapping[str, Any]) -> None:
        numbers = {**about, **found, "seconds": seconds, "pilot": pilot, "rows": rows}
        with whole(results) as path:
            write_results(numbers, path, machine=machine, packages=("pillow",), shown=False)

    for each in missing_trainings(scale, pilot, rows, seeds):
        if time.monotonic() >= end:
            break
        began = time.process_time() if scale.device == "cpu" else time.monotonic()
        accuracy = one_training(scale, known, each.model, each.size, each.rate, each.split, each.seed)
        each.rows[each.name][str(each.size)][each.key] = round(accuracy, 5)
        now = time.process_time() if scale.device == "cpu" else time.monotonic()
        seconds[each.model] = round(now - began, 1)  # of the last training
        print(f"{each.name}, {each.size}, {each.key}: {accuracy:.4f}, {now - began:.0f} s", file=sys.stderr)
        keep({})
    found = summary(scale, pilot, rows, seeds)
    keep(found)
    (out / f"{name}.md").write_text(table(found), encoding="utf-8")
    if found["accuracies"]:
        draw(found, out / f"{name}.png")
    print(table(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fonts", type=Path, required=True, help="folder with the fonts")
    parser.add_argument("--scale", choices=SCALES, default="cpu", help="of models, images and sizes")
    parser.add_argument("--minutes", type=float, default=10.0, help="after which it stops")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * arguments.minutes
    scale, commit = SCALES[arguments.scale], commit_of(DESIGN)
    known = drawings_of(arguments.fonts, scale.side)
    seeds = fresh_seeds(commit, scale.seeds, arguments.scale)
    experiment(arguments.scale, scale, known, seeds, end, {"design": commit}, FOLDER)


if __name__ == "__main__":
    main()
