"""The fastest way to compute a model on this machine whose accuracy stays within a budget: engines, number
formats and token merging, each measured on images that the model did not learn from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous.addons.optimize.choice import CHOICE, stamp_of
from vitreous.addons.optimize.engines import ENGINES, FILES, BackendConfig, prepared_module
from vitreous.addons.optimize.processor import has_bf16, processor_flags
from vitreous.addons.optimize.token_merging import can_merge_tokens, merging_layers, with_merged_tokens
from vitreous.data.dataset import ImageDataset
from vitreous.deployment.export import calibration_images, export
from vitreous.deployment.programs import open_program
from vitreous.errors import InputError, Param, is_installed, nearest
from vitreous.evaluation.classification import label_evaluation
from vitreous.evaluation.outputs import Batching, class_labels, compute_outputs
from vitreous.models.model import Model
from vitreous.outside import sha256_of
from vitreous.results import Result, percent
from vitreous.whole_files import write_text

MERGED = 0.5, 0.8  # parts of the patches that are merged over all layers
ROUNDS = 7


@dataclass(frozen=True)
class Measurement:
    """What was measured of a candidate.

    Attributes:
        name: of the candidate, in English in every language.
        engine, precision, merged: its parts, as in `BackendConfig`.
        metric: accuracy; mean average precision of a model with several labels for an image.
        agreement: the share of images with the same most probable label as in fp32.
        times: the throughput of batches, as a multiple of that of PyTorch in fp32 in the same rounds.
        images_per_second: that multiple of what PyTorch in fp32 reached when it was measured itself: rows
            are measured at different moments, in which the machine may be slower.
        milliseconds: of one image.
        memory: bytes of a process that computes a batch; 0 where it is not measured.
    """

    name: str
    engine: str
    precision: str
    merged: int
    metric: float
    agreement: float
    images_per_second: float
    times: float
    milliseconds: float
    memory: int
    within_budget: bool


@dataclass(frozen=True)
class Optimization(Result):
    """What was measured, and what was chosen.

    Attributes:
        source, part, count: the images.
        file: what was written; None where PyTorch computes the model.
    """

    model: str
    source: str
    part: str
    count: int
    budget: float
    batch_size: int
    rows: tuple[Measurement, ...]
    chosen: str
    file: Path | None

    def table(self) -> list[dict[str, object]]:
        """Return one row for each candidate."""
        return [asdict(each) for each in self.rows]


def engines_here(device: torch.device, wanted: Sequence[str] | None = None) -> list[str]:
    """Return the engines to try: those that are named; else PyTorch, and on a CPU the installed ones that
    compute files, on a GPU compilation, which takes minutes on a CPU. Raises InputError: there is no such
    engine, or it is not installed."""
    for name in wanted or ():
        if name not in ENGINES:
            raise InputError(f"unknown engine {name!r}: {nearest(name, list(ENGINES))}")
        if not is_installed(ENGINES[name]):
            extra = "cpu" if name == "openvino" else "export"
            raise InputError(
                f"{Param('engines')} {name} needs {ENGINES[name]}: pip install 'vitreous[{extra}]'"
            )
    if wanted:
        return ["eager", *(name for name in wanted if name != "eager")]
    if device.type == "cuda":
        return ["eager", "compiled"]
    needs = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("openvino",)}
    return ["eager", *(name for name, packages in needs.items() if all(map(is_installed, packages)))]


def engine_candidates(
    model: Model, engines: Sequence[str], device: torch.device, flags: Collection[str]
) -> Iterator[BackendConfig]:
    """Yield the ways to compute a model, without the first: PyTorch in fp32. `flags` are the processor's."""
    half = has_bf16(flags) or device.type == "cuda"
    int8 = device.type == "cpu" and is_installed("nncf")
    for engine in engines:
        if engine != "eager":
            yield BackendConfig(engine, "fp32")
        if half and engine != "onnx":
            yield BackendConfig(engine, "bf16")
        if int8 and engine in FILES:
            yield BackendConfig(engine, "int8")
    if can_merge_tokens(model):
        patches = model.config.grid[0] * model.config.grid[1]
        best = "openvino" if "openvino" in engines else engines[-1]
        lower = ["bf16"] * (half and best != "onnx") + ["int8"] * (int8 and best in FILES)
        times = len(merging_layers(model.config.depth))
        for count in sorted({min(round(part * patches / times), patches // 2) for part in MERGED} - {0}):
            yield from (BackendConfig(best, precision, count) for precision in lower or ["fp32"])


def open_candidate(
    model: Model, candidate: BackendConfig, file: Path, samples: Sequence[NDArray[np.float32]]
) -> nn.Module:
    """Return a model that is computed as a candidate says; `file` is written where its engine reads one."""
    if candidate.engine not in FILES:
        return prepared_module(model, candidate)
    if candidate.merged:
        model = with_merged_tokens(model, candidate.merged)
    export(model, file, candidate.engine, precision=candidate.precision, samples=samples)
    return open_program(file)


def optimize(
    model: Model,
    folder: Path,
    images: ImageDataset,
    *,
    budget: float,
    engines: Sequence[str],
    facts: dict[str, Any],
    timed_batch: int = 8,
    say: Callable[[str], None] = lambda line: None,
    **batching: Unpack[Batching],
) -> Optimization:
    """Measure the candidates, and keep the fastest within the budget.

    Args:
        model: a classifier in evaluation mode, on its device.
        folder: of its weights, beside which the choice is written.
        images: to measure accuracy on, and to calibrate on.
        budget: accuracy that may be lost, 0.003 for 0.3%.
        facts: model, source and part, for the result.
        timed_batch: images of a batch whose time decides.
        say: is called with a sentence about each candidate that cannot be had.

    Raises:
        InputError: there are no images of the model's classes.
    """
    device = torch.device(batching.get("device", "cpu"))
    labels = class_labels(model, images)
    samples = calibration_images(model, images)
    rows: list[Measurement] = []
    best: Path | None = None
    chosen: tuple[Measurement, BackendConfig] | None = None
    first: Tensor | None = None
    with TemporaryDirectory(dir=folder, prefix=".optimizing-") as place:
        for number, candidate in enumerate(
            [BackendConfig("eager", "fp32"), *engine_candidates(model, engines, device, processor_flags())]
        ):
            say(f"{candidate} ...")
            file = Path(place) / f"{number}{FILES.get(candidate.engine, '')}"
            try:
                module = model if not number else open_candidate(model, candidate, file, samples)
            except Exception as error:
                # Engines raise errors of many kinds: this candidate cannot be had.
                say(f"without {candidate}: {' '.join(str(error).split())[:200]}")
                continue
            outputs = compute_outputs(module, images, **batching)
            found = label_evaluation(labels, images, outputs, model.temperature)
            first = outputs.values if first is None else first
            metric = next(iter(found.metrics.values())).value
            speed, times, single = timings(model, module, timed_batch, device)
            if number == 0:
                times = 1.0
            else:
                speed = round(rows[0].images_per_second * times, 2)
            kept = file if candidate.engine in FILES else None
            row = Measurement(
                str(candidate),
                *candidate,
                metric,
                float((outputs.values.argmax(1) == first.argmax(1)).float().mean()),
                speed,
                times,
                single,
                # a GPU's memory is not that of a process
                peak_memory_of(folder, kept, candidate, timed_batch) if device.type == "cpu" else 0,
                not rows or metric >= rows[0].metric - budget - 1e-9,
            )
            rows.append(row)
            if row.within_budget and (chosen is None or times > chosen[0].times):
                chosen = row, candidate
                best = kept
        # The first candidate is always within the budget.
        assert chosen
        written = write_choice(folder, best, *chosen, rows)
    return Optimization(
        **facts,
        count=len(images),
        budget=budget,
        batch_size=timed_batch,
        rows=tuple(rows),
        chosen=chosen[0].name,
        file=written,
    )


def write_choice(
    folder: Path, file: Path | None, row: Measurement, candidate: BackendConfig, rows: Sequence[Measurement]
) -> Path | None:
    """Write what was chosen beside the weights, and return its file."""
    for old in ("optimized.onnx", "optimized-openvino"):
        path = folder / old
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    target = file and file.rename(folder / f"optimized{FILES[candidate.engine]}")
    sentence = (
        f"{candidate}: {row.times:.2f} times PyTorch's fp32, {percent(row.metric)} against "
        f"{percent(rows[0].metric)} on validation images (vitreous optimize)"
    )
    choice = {
        **candidate._asdict(),
        "file": target.name if target else None,
        "weights": sha256_of(folder / "model.safetensors"),
        "stamp": stamp_of(folder / "model.safetensors"),
        "sentence": sentence,
        "rows": [asdict(each) for each in rows],
    }
    write_text(folder / CHOICE, json.dumps(choice, indent=1, ensure_ascii=False))
    return target


def timings(model: Model, module: nn.Module, batch: int, device: torch.device) -> tuple[float, float, float]:
    """Return images a second, that of the plain model in the same rounds as a multiple, and the milliseconds
    of one image."""
    config = model.config

    @torch.inference_mode()
    def call(which: nn.Module, size: int) -> None:
        which(torch.zeros(size, config.channels, *config.image_size, device=device))

    calls: dict[str, Callable[[], object]] = {
        "plain": partial(call, model, batch),
        "this": partial(call, module, batch),
    }
    for each in calls.values():
        each()
    times = take_turns(calls, device)
    single = take_turns({"this": partial(call, module, 1)}, device)["this"]
    this = float(np.median(times["this"]))
    ratio = float(np.median(np.divide(times["plain"], times["this"])))
    return round(batch / this, 2), round(ratio, 3), round(1000 * float(np.median(single)), 2)


def take_turns(calls: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, list[float]]:
    """Return the seconds of `ROUNDS` calls of each, which take turns, so that a machine that slows down slows
    all of them; the order turns round from round to round."""
    # The first call compiles, and sets up what is needed once.
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS):
        for name in calls if turn % 2 else reversed([*calls]):
            wait(device)
            began = time.perf_counter()
            calls[name]()
            wait(device)
            times[name].append(time.perf_counter() - began)
    return times


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# getrusage would count what the process had before it began another program.
PRINT_PEAK = """
lines = open("/proc/self/status").read().splitlines()
print(next(line for line in lines if line.startswith("VmHWM")).split()[1])
"""
WITH_FILE = """
import sys
from pathlib import Path
import numpy as np
from vitreous.addons.optimize.openvino import STEADY
from vitreous.deployment.programs import open_exported
found = open_exported(Path(sys.argv[1]))
how = found.preprocessing
for _ in range(STEADY + 1):
    found.compute(np.zeros((int(sys.argv[2]), how.channels, *how.size), np.float32), 1)
"""
WITH_WEIGHTS = """
import sys
from pathlib import Path
import torch
import vitreous as vt
from vitreous.addons.optimize.engines import BackendConfig
from vitreous.addons.optimize.measuring import open_candidate
candidate = BackendConfig(sys.argv[3], sys.argv[4], int(sys.argv[5]))
model = open_candidate(vt.load(sys.argv[1]), candidate, Path(), ())
with torch.inference_mode():
    model(torch.zeros(int(sys.argv[2]), model.config.channels, *model.config.image_size))
"""


def peak_memory_of(folder: Path, file: Path | None, candidate: BackendConfig, batch: int) -> int:
    """Return the peak memory of a process that computes one batch as a candidate does, from its file or from
    the weights in `folder`; or 0 where the system does not tell, or the process fails."""
    program, path = (WITH_FILE, file) if file else (WITH_WEIGHTS, folder)
    command = [sys.executable, "-c", program + PRINT_PEAK, str(path), str(batch), *map(str, candidate)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return 1024 * int(done.stdout.split()[-1]) if done.returncode == 0 else 0
