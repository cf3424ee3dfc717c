"""The tests on a machine with a GPU, which commands take by themselves: each failure is kept when it happens.

    python benchmarks/gpu_tests.py --out gpu_tests.json               # all that are not slow
    python benchmarks/gpu_tests.py --out gpu_tests.json --again       # those that failed, with more of why

After `--minutes` the tests end, and the file says how far they came. Its rows have the test, the exception
and the last lines of the traceback; a test that ends the process itself is named, too, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from record import write_results

ROOT = Path(__file__).parents[1]
LINES = 25  # of a traceback


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or folders; by default all")
    parser.add_argument("--again", action="store_true", help="those that failed according to --out")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--out", type=Path, required=True, help="keep the results in this JSON file")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text(encoding="utf-8")) if options.again else {}
    tests = [row["test"] for row in kept.get("failures", [])] if options.again else options.tests
    deadline = time.monotonic() + 60 * options.minutes
    found: dict[str, Any] = {"ended": False, "passed": 0, "failures": [], "skip": []}
    while time.monotonic() < deadline:
        lines = options.out.with_suffix(".lines")
        lines.write_text("", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "gpu_tests", "-p", "no:cacheprovider"]
        command += ["-p", "no:xdist", "-o", "addopts=", "-m", "not slow", *tests]
        command += [f"--deselect={test}" for test in found["skip"]]
        paths = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
        environment = {**os.environ, "PYTHONPATH": paths, "GPU_TESTS": str(lines)}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(1)
            collect(lines, found, options.out)
        over = process.poll() is None
        process.kill()
        running = collect(lines, found, options.out)
        if over or running is None:
            found["ended"] = not over
            break
        # The process died in this test: a crash below Python. It is named, and left out of the next run.
        found["failures"].append({"test": running, "error": f"exit code {process.wait()}", "lines": []})
        found["skip"] += [running, *found.pop("names", [])]
    found.pop("names", None)
    write_results(found, options.out, packages=("triton",), shown=False)
    print(f"{found['passed']} passed, {len(found['failures'])} failed: {options.out}")


def collect(lines: Path, found: dict[str, Any], out: Path) -> str | None:
    """Add what the plugin has written since, and return the test that has begun and not ended."""
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    before = [row for row in found["failures"] if row["test"] in found["skip"]]
    ended = [row for row in rows if "outcome" in row]
    found["names"] = [row["test"] for row in ended]
    found["passed"] = sum(row["outcome"] == "passed" for row in ended) + len(found["skip"]) - len(before)
    failed = [row for row in ended if row["outcome"] == "failed"]
    found["failures"] = before + [{k: row[k] for k in ("test", "error", "lines")} for row in failed]
    shown = {name: value for name, value in found.items() if name != "names"}
    write_results(shown, out, packages=("triton",), shown=False)
    begun = [row["test"] for row in rows if "outcome" not in row]
    return begun[-1] if begun and begun[-1] not in found["names"] else None


# As a plugin of pytest: `-p gpu_tests`, with the file of its lines in GPU_TESTS.


def pytest_runtest_logstart(nodeid: str) -> None:
    note({"test": nodeid})


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or (report.when == "setup" and report.failed):
        text = str(report.longrepr).splitlines() if report.failed else []
        errors = [line.removeprefix("E").strip() for line in text if line.startswith("E ")]
        error = errors[0] if errors else ""
        note({"test": report.nodeid, "outcome": report.outcome, "error": error, "lines": text[-LINES:]})


def note(row: dict[str, Any]) -> None:
    if path := os.environ.get("GPU_TESTS"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
