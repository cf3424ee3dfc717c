"""`vitreous.calibrate`: probabilities that are right as often as they say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitreous.api.arguments import Settings, path_of_run, progress_bar, settings_tree
from vitreous.api.data import data_source
from vitreous.errors import InputError
from vitreous.results import Result


@dataclass(frozen=True)
class Calibrated(Result):
    """A temperature that was fitted, and the expected calibration error on the same images.

    Attributes:
        source, part, count: the images.
        temperature: by which the logits of the model without any calibration are divided now.
        error_before, error_after: the expected calibration error.
        folder: where the calibrated model is.
    """

    model: str
    source: str
    part: str
    count: int
    temperature: float
    error_before: float
    error_after: float
    folder: Path


def calibrate(
    model: Any,
    data: Any = None,
    *,
    out: str | Path | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Calibrated:
    """Fit a temperature of a classifier's probabilities, and store the model with it. Ranks do not change.

    Args:
        model: a run, whose model is replaced; or any checkpoint with a head, which is written to `out`.
        data: images that the model did not learn from and is not evaluated on, as `train` takes them; by
            default the validation part of what the run was trained on.
        out: the folder for the calibrated model; by default the run's own.
        settings, config: of the data ({"data.validation_fraction": 0.1}).

    Raises:
        InputError: no such model or data, a task without probabilities, or no images to calibrate on.
    """
    from vitreous.checkpoints.files import model_folder
    from vitreous.checkpoints.native import save_native
    from vitreous.data.workers import worker_count
    from vitreous.evaluation.calibration import calibrate_model
    from vitreous.tasks.answering import open_answerer, task_of
    from vitreous.tasks.classification import Classification
    from vitreous.training.precision import pick_device

    path, here = path_of_run(model), pick_device(device)
    if not isinstance(path, str | Path):
        raise InputError(f"a {type(model).__name__} is stored nowhere: vitreous.save it, and give that path")
    spec = str(path)
    task, answerer = open_answerer(spec)
    if not isinstance(task, Classification):
        raise InputError(f"{task.noun} has no probabilities to calibrate: give a classifier")
    folder = Path(out) if out is not None else model_folder(Path(spec).expanduser())
    if out is not None and folder.exists():
        raise InputError(f"{folder} exists already, and nothing is overwritten: choose another --out")
    if out is None and task_of(spec) is None:
        raise InputError(f"{spec} cannot be changed in its place: name a folder for the model with --out")
    source = None if data is None else data_source(data)
    held = task.to_calibrate(spec, answerer, source, settings_tree(settings, config))
    with progress_bar("calibrating", progress) as advance:
        before, after = calibrate_model(
            answerer.to(here),
            held.examples,
            device=here,
            batch_size=batch_size,
            workers=worker_count(workers),
            progress=advance,
        )
    save_native(answerer, folder)
    errors = before.calibration.ece, after.calibration.ece
    return Calibrated(spec, held.source, held.part, after.count, answerer.temperature, *errors, folder)
