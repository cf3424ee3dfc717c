"""Does pre-training without labels pay, at equal total compute, against the best that learns from scratch?

    python benchmarks/self_supervised.py --set signs strokes --seeds 1 2 3 4 5 --out FILE.json

A set has 5,000 images, ten of each class with a label: one of the made sets (made_sets.py: files of 72 to 144
pixels, 24 classes) or of the generated image world (`glyphs`: letters of an invented alphabet over clutter,
`--size` pixels); test images look as training never shows them. On one side `vitreous pretrain` learns from
all images without labels for `--minutes`, and `vitreous train --init` from the labeled ones for
`--tuning-minutes`; on the other `vitreous train --init none` learns from the labeled ones for both times
together. All models, rates and changes of images are those that the product chooses by itself. Models of
masked objectives have fixed positions, with which training from scratch can be faster, too: so beside them
it is done with them as well, and pre-training is compared with the better of the two. Time is processor time
of one thread, so that other work on the machine changes little; with `--device cuda` it is time on the
clock, so processes beside each other need the same cores and kind of work. What was chosen by hand was chosen
on letters and shapes: evaluate on other sets. Intervals are Student's, over sets and seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from made_sets import SETS, classes, write_set
from record import write_results
from scipy.stats import t

from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.dataset import Splits, Subset
from vitreous.data.sources import open_data, summarize
from vitreous.evaluation.classification import evaluate_classification
from vitreous.evaluation.probes import probe, with_baselines
from vitreous.tasks import OBJECTIVES, task_named
from vitreous.tasks.pretraining.task import Pretraining
from vitreous.tasks.recipe_choice import choose_fine_tuning, choose_recipe
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.initial_model import checkpoint, fitted_to_checkpoint
from vitreous.training.machine import Place
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure
from vitreous.training.trainer import Trainer

SCRATCH = {"none": {}, "none, fixed positions": {"model": {"position": {"kind": "sincos-2d"}}}}
# A teacher, which has seen other images, is not an objective for these alone.
COMPARED = [objective for objective in OBJECTIVES if objective != "distillation"]
TESTED = 50  # test images of each class of a made set
MACHINE = "shared with other work, one thread"


def few_labels(splits: Splits, count: int, seed: int) -> Splits:
    """The same data with `count` training images of each class, drawn by the seed."""
    rng = np.random.default_rng(seed)
    targets = splits.train.targets.strata()
    chosen = [rng.permutation(np.flatnonzero(targets == label))[:count] for label in np.unique(targets)]
    train = Subset(splits.train, np.sort(np.concatenate(chosen)))
    return splits._replace(train=train, summary=summarize(train)[0])


def finished(
    path: Path, config: Callable[[], Any], splits: Splits, device: torch.device
) -> RunDirectory[Any]:
    """The run at `path`, which is trained unless it has been."""
    run = (
        RunDirectory.open(path, task_named(config().task).config) if (path / "config.toml").exists() else None
    )
    run = run or RunDirectory.create(path, config())
    if not (path / "model" / "config.json").exists():
        clock = clock_of(device)
        started = clock()
        fit(plan_of_run(run, splits, Place(device)), Place(device))
        print(f"{path.name}: {clock() - started:.0f} s", flush=True)
    return run


def clock_of(device: torch.device) -> Callable[[], float]:
    return process_time if device.type == "cpu" else perf_counter


def timed(minutes: float, seed: int) -> dict[str, Any]:
    """Settings of a training; on a GPU compiling would take a large part of so short a time."""
    return {"seed": seed, "training": {"length": f"{minutes} minutes", "machine": {"compile": False}}}


def source_of(name: str, folder: Path, options: argparse.Namespace) -> str:
    """DATA of a set: files that are written once, or a part of the image world."""
    if name not in SETS:
        return f"world:{name}:{options.unlabeled}@{options.size}"
    count = round(options.unlabeled / len(classes(name)))
    place = folder / f"{name}-{count}"
    if not place.exists():
        write_set(name, folder / f"{name}-unfinished", images=count, validation=TESTED).rename(place)
    return str(place)


def one_seed(folder: Path, name: str, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What each way reaches on the test images, one after the other."""
    source = source_of(name, folder, options)
    splits = open_data(source, DataConfig(split=SplitByName(seed=seed), validation_fraction=0.0))
    few = few_labels(splits, options.labels, seed)
    stem = f"{name}-{seed}"

    def scratch(own: dict[str, Any]) -> Any:
        settings = timed(options.minutes + options.tuning_minutes, seed) | {"source": source}
        return configure(choose_recipe(source, few.summary).config, settings, own)

    known = {"set": name, "seed": seed}
    masked = not {"masked-patch", "mae"}.isdisjoint(options.objectives)
    for number, (way, own) in enumerate(SCRATCH.items() if masked else [("none", SCRATCH["none"])]):
        run = finished(folder / f"{stem}-scratch-{number}", partial(scratch, own), few, options.device)
        yield known | row(way, run, few, options.device)
    for objective in options.objectives:

        def pretraining(objective: Any = objective) -> Any:
            task = task_named(objective)
            assert isinstance(task, Pretraining)
            config = configure(task.rules(splits.summary), timed(options.minutes, seed))
            return configure(config, task.fitted(config, splits.summary, splits.train), {"source": source})

        run = finished(folder / f"{stem}-{objective}", pretraining, splits, options.device)

        def tuning(init: str = str(run.path)) -> Any:
            base = choose_fine_tuning(source, few.summary, checkpoint(init).config).config
            base = configure(base, timed(options.tuning_minutes, seed), {"source": source})
            return fitted_to_checkpoint(base, init, {})

        tuned = finished(folder / f"{stem}-{objective}-tuned", tuning, few, options.device)
        frozen = run.model().to(options.device).eval()
        probed = with_baselines(probe(frozen, few, shots=(options.labels,)), frozen, few)
        seen = {
            "explained": measured(run, "validation_explained"),
            "neighbors": measured(run, "validation_knn"),
            "frozen": {key: value for key, value in probed.to_json().items() if is_result(key)},
        }
        yield known | row(objective, tuned, few, options.device) | seen


def is_result(key: str) -> bool:
    """Whether a number of a probe is the same in any place and at any speed."""
    return key != "data" and "seconds" not in key


def row(way: str, run: RunDirectory[Any], few: Splits, device: torch.device) -> dict[str, Any]:
    assert few.test is not None
    model = run.model().to(device)
    return {
        "pre-training": way,
        "accuracy": round(evaluate_classification(model, few.test).accuracy, 4),
        "training_accuracy": round(evaluate_classification(model, few.train).accuracy, 4),
        "epochs": round(measured(run, "epoch"), 1),
    }


def measured(run: RunDirectory[Any], name: str) -> float:
    """The last value of a column of the run's metrics."""
    return next(float(each[name]) for each in reversed(run.metrics()) if name in each)


def gains(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The gain of each objective over the better training from scratch, by pairs of seeds, with intervals."""
    base: dict[tuple[str, int], float] = {}
    for each in rows:
        if each["pre-training"] in SCRATCH:
            pair = each["set"], each["seed"]
            base[pair] = max(base.get(pair, 0.0), each["accuracy"])
    found = []
    ways = dict.fromkeys(each["pre-training"] for each in rows if each["pre-training"] not in SCRATCH)
    sets = dict.fromkeys(each["set"] for each in rows)
    for way, name in product(ways, sets if len(sets) == 1 else (*sets, "all")):
        mine = [each for each in rows if each["pre-training"] == way and name in (each["set"], "all")]
        if not mine:
            continue
        values = [each["accuracy"] - base[each["set"], each["seed"]] for each in mine]
        mean, count = statistics.fmean(values), len(values)
        interval = [round(mean + sign * margin(values), 4) for sign in (-1, 1)] if count > 1 else None
        gain = {"gain": round(mean, 4), "interval": interval, "pairs": count}
        found.append({"pre-training": way, "set": name, **gain})
    return found


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results of runs of this program that differ in seeds and sets alone."""
    settings = dict(parts[0]["settings"])
    for name in ("sets", "seeds"):
        settings[name] = list(dict.fromkeys(value for part in parts for value in part["settings"][name]))
    for part in parts:
        if part["settings"] | {name: settings[name] for name in ("sets", "seeds")} != settings:
            raise SystemExit(f"--join: these results have other settings: {part['settings']}")
    rows = [row for part in parts for row in part["rows"]]
    return {"settings": settings, "gains": gains(rows), "rows": rows}


def margin(values: Sequence[float]) -> float:
    """Half of the 95% interval of a mean, Student's."""
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--set", dest="sets", nargs="+", default=["signs", "strokes", "textures"])
    parser.add_argument("--objectives", nargs="+", default=["contrastive"], choices=COMPARED)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--unlabeled", type=int, default=5000)
    parser.add_argument("--labels", type=int, default=10, help="of each class")
    parser.add_argument("--size", type=int, default=32, help="pixels of a side, of the image world")
    parser.add_argument("--minutes", type=float, default=4.0, help="of pre-training")
    parser.add_argument("--tuning-minutes", type=float, default=2.0, help="of fine-tuning")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    parser.add_argument("--join", type=Path, nargs="+", help="run nothing; join these results of other seeds")
    options = parser.parse_args()
    if options.join:
        parts = [json.loads(file.read_text(encoding="utf-8")) for file in options.join]
        machine = parts[0]["machine"].split(", ", 2)[2]  # without the processor, which is written again
        write_results(joined(parts), options.out, machine=machine)
        return
    machine = torch.cuda.get_device_name(options.device) if options.device.type == "cuda" else MACHINE
    if options.device.type == "cpu":
        torch.set_num_threads(1)
    assert Trainer.__init__.__kwdefaults__ is not None
    Trainer.__init__.__kwdefaults__["clock"] = clock_of(options.device)
    rows: list[dict[str, Any]] = []
    shown = {key: value for key, value in vars(options).items() if key not in ("runs", "out", "join")}
    shown["device"] = options.device.type
    with tempfile.TemporaryDirectory() as scratch:
        for seed, name in product(options.seeds, options.sets):
            for each in one_seed(options.runs or Path(scratch), name, seed, options):
                rows.append(each)
                print(json.dumps(each), flush=True)
                results = {"settings": shown, "gains": gains(rows), "rows": rows}
                write_results(results, options.out, machine=machine, seeds=options.seeds, shown=False)


if __name__ == "__main__":
    main()
