"""The bundled lines of handwritten digits, learned and evaluated: `train --task captioning`, seed by seed.

    python benchmarks/digit_lines.py --seeds 0 300 --out benchmarks/results/digit_lines.json

A seed draws the split of the single digits, the lines and the weights. What was chosen about the recipe was
chosen on lines of a fifth of seed 0's training digits; held-out lines are looked at once, at the end. Seconds
are of training and reading, on the clock and of the processor.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from record import write_results

from vitreous.addons.text.evaluation import evaluate_reader
from vitreous.tasks import task_named, training_run
from vitreous.training.run import Run


def learn(seed: int) -> dict[str, object]:
    """One run, evaluated."""
    task = task_named("captioning")
    plan = task.plan(None, {"seed": seed})
    config, data = plan.config, plan.data
    begun = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config)
        done = training_run.learn(run, data, device=torch.device("cpu"))
    found = evaluate_reader(task.answerer_of(done.model, done.material.beside), data.test).to_json()
    kept = ("test_count", "test_line_accuracy", "test_line_accuracy_interval", "test_character_accuracy")
    return {
        "seed": seed,
        **{name: found[name] for name in kept},
        "seconds": round(time.perf_counter() - begun[0], 1),
        "processor_seconds": round(time.process_time() - begun[1], 1),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    arguments = parser.parse_args()
    results = {
        "chosen on": "lines of 288 of the 1,437 training digits of seed 0, the other 1,149 learned",
        "rows": [learn(seed) for seed in arguments.seeds],
    }
    write_results(results, arguments.out, seeds=arguments.seeds)


if __name__ == "__main__":
    main()
