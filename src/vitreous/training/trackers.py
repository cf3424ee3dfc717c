"""Experiment trackers of others; each is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from vitreous.errors import require_packages
from vitreous.training.config import CommandConfig
from vitreous.training.journal import Row, Tracker
from vitreous.training.settings import leaves

Name = Literal["wandb", "mlflow", "trackio"]


def open_tracker(name: Name, run: str, config: CommandConfig) -> Tracker:
    """The tracker called `name`, with the run begun in it.

    Raises:
        InputError: it is not installed.
    """
    require_packages(name, extra="track", what=f"training.track = {name!r}")
    library = import_module(name)
    settings = {key: str(value) for key, value in leaves(config).items()}
    return MLflow(library, run, settings) if name == "mlflow" else Wandb(library, run, settings)


class Wandb:
    """Weights & Biases, or trackio, which has the same calls."""

    def __init__(self, library: Any, run: str, settings: dict[str, str]) -> None:
        self.library = library
        library.init(project="vitreous", name=run, config=settings)

    def write(self, row: Row) -> None:
        self.library.log(dict(row), step=int(row["step"]))

    def close(self) -> None:
        self.library.finish()


class MLflow:
    """MLflow, wherever MLFLOW_TRACKING_URI points."""

    def __init__(self, library: Any, run: str, settings: dict[str, str]) -> None:
        self.library = library
        library.set_experiment("vitreous")
        library.start_run(run_name=run)
        library.log_params(settings)

    def write(self, row: Row) -> None:
        self.library.log_metrics({k: float(v) for k, v in row.items()}, step=int(row["step"]))

    def close(self) -> None:
        self.library.end_run()
