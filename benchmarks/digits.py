"""The digits recipe on many splits, beside a tuned kernel SVM and nearest neighbors on the same splits.

    python benchmarks/digits.py --splits 100 101 102 --out benchmarks/results/digits.json

Each split is what `vitreous train --set data.split.seed=N` trains and measures, by the same functions: 80%
of the 1,797 digits for training, 20% held out and looked at once, at the end. Seconds are of training alone,
and are also given as processor seconds, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import write_results

from vitreous.evaluation.classical import fit_classical
from vitreous.evaluation.classification import evaluate_classification
from vitreous.evaluation.scores import half_width
from vitreous.models.model import Model
from vitreous.tasks import task_named
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.run import RunDirectory

OVERLAP = 360 / 1437  # held-out images for each one that is learned from


def one_split(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train on one split, and count the mistakes of everyone."""
    planned = task_named("classification").plan("digits", {**settings, "data": {"split": {"seed": seed}}})
    assert planned.data.test is not None
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder) / "run", planned.config)
        processor = time.process_time()
        trained = fit(plan_of_run(run, planned.data))
        processor = time.process_time() - processor
    assert isinstance(trained.model, Model)
    evaluation = evaluate_classification(trained.model, planned.data.test)
    count = len(planned.data.test)
    baselines = fit_classical(planned.data).baselines(planned.data.test)
    found = {each.name: each.accuracy for each in baselines}
    return {
        "split_seed": seed,
        "mistakes": round((1 - evaluation.accuracy) * count),
        "held_out": count,
        "accuracy": evaluation.accuracy,
        "seconds": round(trained.seconds, 1),
        "processor_seconds": round(processor, 1),
        "waiting_for_data": round(trained.waiting, 4),
        **{name: found[name] for name in ("SVM on pixels", "k nearest neighbors")},
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over splits, and Nadeau and Bengio's intervals: splits share images."""
    baselines = [key for key in rows[0] if key not in NOT_BASELINES]
    return {
        "splits": len(rows),
        "accuracy": statistics.fmean(row["accuracy"] for row in rows),
        "half_width": half_width([row["accuracy"] for row in rows], OVERLAP),
        **{name: statistics.fmean(row[name] for row in rows) for name in baselines},
        "differences": {
            name: {
                "mean": statistics.fmean(gains := [row["accuracy"] - row[name] for row in rows]),
                "half_width": half_width(gains, OVERLAP),
            }
            for name in baselines
        },
        "seconds": statistics.fmean(row["seconds"] for row in rows),
        "processor_seconds": statistics.fmean(row["processor_seconds"] for row in rows),
    }


NOT_BASELINES = (
    *("split_seed", "mistakes", "held_out", "accuracy"),
    *("seconds", "processor_seconds", "waiting_for_data"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(100, 110)))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--epochs", type=float, help="instead of the recipe's")
    parser.add_argument("--note", default="", help="kept with the results: what else the machine was doing")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = {"training": {"length": f"{options.epochs} epochs"}} if options.epochs else {}
    rows = []
    for seed in options.splits:
        rows.append(one_split(seed, settings))
        print(json.dumps(rows[-1]), flush=True)
    results = {
        "note": options.note,
        "summary": summary(rows),
        "splits": rows,
    }
    print(json.dumps(results["summary"], indent=2))
    write_results(
        results, options.out, machine=f"{options.threads} threads", seeds=options.splits, shown=False
    )


if __name__ == "__main__":
    main()
