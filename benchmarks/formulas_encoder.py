"""What does an encoder of formulas bring? Fine-tuning from it, beside training from scratch and a small CNN.

    vitreous train formulas:128x400@64 --recipe formulas --minutes 45 --out runs/formulas
    python benchmarks/formulas_encoder.py --init runs/formulas --sets signs strokes textures digits \
        --images 10 50 --seeds 1 2 3 --out FILE.json

Each way learns from the same few images of each class for as long: `--seconds` of processor time on one
thread. "scratch" is the model and recipe that `vitreous train` chooses for these images, "fine-tuned" those
that it chooses with `--init`, "cnn" the six convolutions of `from_scratch.py`. The made sets
have 24 classes and validation looks that training never shows; the digits are real, and their test set is
the usual one. `letters` and `shapes` are for tuning. Rows that the file has are not computed again.
`--frozen 64 128` probes the frozen features at these sizes instead of training anything.

    python benchmarks/formulas_encoder.py --write runs/formulas FOLDER

writes the encoder of a finished run: without its head, in fp16, with what it was trained on. In
src/vitreous/checkpoints/encoders/NAME it is vitreous:NAME: it comes with the package, and `vitreous train`
tries it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from from_scratch import CNN_RATE, SmallCNN, changed, train_and_measure
from made_sets import SETS, write_set
from record import write_results
from self_supervised import few_labels, margin
from torch import nn

import vitreous as vt
from vitreous.checkpoints.download import local_copy
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.native import save_native, write_json
from vitreous.data.config import DataConfig
from vitreous.data.dataset import Splits
from vitreous.data.sources import open_data
from vitreous.evaluation.probes import probe
from vitreous.models.config import Origin
from vitreous.outside import parse_place
from vitreous.tasks.recipe_choice import choose_fine_tuning, choose_recipe
from vitreous.tasks.training_run import open_run
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import checkpoint, fitted_to_checkpoint, starting_model
from vitreous.training.settings import configure

WAYS = ("scratch", "cnn", "fine-tuned")
NO_VALIDATION = DataConfig(validation_fraction=0.0)  # each of so few images counts


def opened(name: str, folder: Path, images: int, seed: int) -> tuple[str, Splits]:
    """Return DATA and its parts, with `images` training images of each class."""
    if name == "digits":
        return name, few_labels(open_data(name, NO_VALIDATION), images, seed)
    source = str(write_set(name, folder / f"{name}-{images}-{seed}", images=images, seed=seed))
    return source, open_data(source, NO_VALIDATION)


def configured(way: str, source: str, splits: Splits, options: argparse.Namespace, seed: int) -> RunConfig:
    """Return what `vitreous train` chooses for these images, with or without the encoder."""
    if way != "fine-tuned":
        config: RunConfig = choose_recipe(source, splits.summary).config
    else:
        base = choose_fine_tuning(source, splits.summary, checkpoint(options.init).config).config
        config = fitted_to_checkpoint(base, options.init, {})
        if options.rate:
            config = configure(config, {"training": {"peak_lr": options.rate}})
    return config.model_copy(update={"seed": seed})


def one_row(way: str, name: str, images: int, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        source, splits = opened(name, Path(folder), images, seed)
        config, labels = configured(way, source, splits, options, seed), splits.train.classes

        def vit() -> nn.Module:
            return starting_model(config, labels)

        def cnn() -> nn.Module:
            torch.manual_seed(seed)
            return SmallCNN(config.model.channels, len(labels))

        make, training = vit, config.training
        if way == "cnn":
            make, training = cnn, changed(config.training, ema=None, peak_lr=CNN_RATE)
        found = train_and_measure(make, config, splits, budget=options.seconds, training=training)
    return {"set": name, "images": images, "seed": seed, "way": way, "seconds": options.seconds, **found}


def frozen(name: str, images: int, seed: int, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return what probes of the frozen features reach on images of `size` pixels."""
    with tempfile.TemporaryDirectory() as folder:
        _, splits = opened(name, Path(folder), images, seed)
        found: dict[str, Any] = probe(
            vt.load(options.init, image_size=size).eval(), splits, shots=(images,)
        ).to_json()
    named: dict[str, Any] = {"set": name, "images": images, "seed": seed, "size": size}
    return named | {key: round(found[key], 4) for key in ("linear", "knn")}


def gains(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each set, number of images and time, the accuracies and what fine-tuning gains over each of
    the others: mean over seeds, with Student's interval of the paired differences."""
    found = []
    for key in dict.fromkeys(rows_key(each)[:3] for each in rows):
        by_way = {
            way: {each["seed"]: each["accuracy"] for each in rows if rows_key(each) == (*key, way)}
            for way in WAYS
        }
        seeds = sorted(set.intersection(*(set(scores) for scores in by_way.values())))
        if not seeds:
            continue
        means = {way: round(statistics.fmean(by_way[way][s] for s in seeds), 4) for way in WAYS}
        row: dict[str, Any] = dict(zip(("set", "images", "seconds"), key, strict=True))
        row |= {"seeds": len(seeds), **means}
        for rival in ("scratch", "cnn"):
            each = [by_way["fine-tuned"][s] - by_way[rival][s] for s in seeds]
            row[f"gain over {rival}"] = round(statistics.fmean(each), 4)
            if len(each) > 1:
                gain, half = row[f"gain over {rival}"], margin(each)
                row[f"interval over {rival}"] = [round(gain - half, 4), round(gain + half, 4)]
        found.append(row)
    return found


def rows_key(row: dict[str, Any]) -> tuple[str, int, float, str]:
    return row["set"], row["images"], row["seconds"], row["way"]


def classifier_config(run: Path) -> RunConfig:
    """Return the configuration of a run of classification, which knows what it began from."""
    config = open_run(run).config
    assert isinstance(config, RunConfig)
    return config


def write_encoder(run: Path, folder: Path) -> None:
    """Write the encoder of a run, to be given away."""
    model = vt.load(run, num_classes=None)
    config = classifier_config(run)
    model.origin = Origin(source=f"vitreous:{folder.name}", format="vitreous", license="apache-2.0")
    save_native(model.half(), folder)
    sources = [config.source]  # and those of what it began from
    while config.init:
        if config.init.startswith("vitreous:"):
            described = read_json(local_copy(parse_place(config.init)) / "config.json")
            sources.insert(0, str(described["trained_on"]))
            break
        config = classifier_config(Path(config.init))
        sources.insert(0, config.source)
    described = read_json(folder / "config.json") | {"trained_on": ", ".join(sources)}
    write_json(described, folder / "config.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sets", nargs="+", choices=(*SETS, "digits"), default=("signs", "strokes", "textures")
    )
    parser.add_argument("--images", nargs="+", type=int, default=[10, 50], help="of each class")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seconds", type=float, default=60, help="of processor time, for each training")
    parser.add_argument("--init", default="runs/formulas", help="the encoder")
    parser.add_argument("--rate", type=float, help="peak learning rate of fine-tuning, for tuning it")
    parser.add_argument("--frozen", nargs="+", type=int, default=[], metavar="PIXELS", help="probe only")
    parser.add_argument("--note", default="", help="kept with the results: what else the machine was doing")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    parser.add_argument(
        "--write", nargs=2, type=Path, metavar=("RUN", "FOLDER"), help="write the encoder of a run"
    )
    options = parser.parse_args()
    if options.write:
        write_encoder(*options.write)
        return
    if not options.out:
        parser.error("give --out FILE.json")
    torch.set_num_threads(1)
    stored = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    if options.frozen:
        stored["sizes"] = [
            frozen(name, images, seed, size, options)
            for name, images, seed, size in product(
                options.sets, options.images, options.seeds, options.frozen
            )
        ]
        write_results(stored, options.out, machine="shared, one thread", seeds=options.seeds, shown=False)
        return
    rows = stored.get("rows", [])
    done = {(*rows_key(row), row["seed"]) for row in rows}
    for seed in options.seeds:
        for images in options.images:
            for name in options.sets:
                for way in options.ways:
                    if (name, images, options.seconds, way, seed) in done:
                        continue
                    rows.append(one_row(way, name, images, seed, options))
                    print(json.dumps(rows[-1]), flush=True)
                    results = stored | {
                        "note": options.note,
                        "gains": gains(rows),
                        "rows": rows,
                    }
                    write_results(
                        results, options.out, machine="shared, one thread", seeds=options.seeds, shown=False
                    )


if __name__ == "__main__":
    main()
