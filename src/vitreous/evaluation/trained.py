"""Opening a model that must have learned something before it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitreous.checkpoints import open_model
from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.training.run import Run


def open_trained(spec: str, **overrides: Any) -> Model:
    """The model of a run, a checkpoint, or `hf:org/name`, but not of a mere name.

    Raises:
        InputError: `spec` is a model's name, which has fresh weights; or what `open_model` raises.
    """
    model = open_model(spec, **overrides)
    if not has_weights(spec):
        raise InputError(
            f"{spec} is a name without weights, and its answers mean nothing: give a run or a checkpoint"
        )
    return model


def check_has_classes(model: Model, spec: str) -> None:
    """Raise an InputError for the model of a pre-training run, which says how such a run is used."""
    if model.config.num_classes is None and (Path(spec) / "config.toml").is_file():
        Run.open(Path(spec))


def has_weights(spec: str) -> bool:
    """Whether MODEL means weights from somewhere, and not a mere name."""
    return Path(spec).exists() or ":" in spec
