"""`vitreous.optimize`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    Settings,
    model_name,
    path_of_run,
    say,
    settings_tree,
    weights_folder,
)
from vitreous.api.deployment import open_classifier
from vitreous.api.model_source import computation
from vitreous.errors import InputError, Param

if TYPE_CHECKING:
    from vitreous.addons.optimize.measuring import Optimization


def optimize(
    model: Any,
    data: Any = None,
    *,
    budget: float = 0.003,
    engines: Sequence[str] | None = None,
    timed_batch: int = 8,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Optimization:
    """Measure the ways to compute a classifier on this machine, and keep the fastest that is accurate enough.

    Engines (PyTorch, ONNX Runtime, OpenVINO), bf16, int8 and token merging are measured. `predict`
    and `evaluate` use what is kept, unless another precision is asked for.

    Args:
        model: a run, or a folder of weights in the native format.
        data: images that the model did not learn from; by default the validation set of the run's data.
        budget: accuracy that may be lost: 0.003 is 0.3%.
        engines: eager, compiled, onnx, openvino; by default those that are installed, and on a CPU without
            compiled, which takes minutes.
        timed_batch: images in the batches whose time decides.
        batch_size: images that are computed together; by default 16 on a CPU, 64 on a GPU.
        workers: threads that decode images; by default one for each core.
        device: auto, cpu, cuda, cuda:N or mps; auto is a GPU where there is one.
        settings, config: of the data ({"data.validation_fraction": 0.1}).
        progress: print on stderr what is measured.

    Raises:
        InputError: no such model or data, a task without labels, or no validation images.
    """
    from vitreous.addons.optimize import measuring

    if not 0 <= budget < 1 or timed_batch < 1:
        raise InputError(
            f"{Param('budget')} {budget:g} is not a part of 1, as 0.3% is, or "
            f"{Param('timed_batch')} is below 1"
        )
    path, folder = path_of_run(model), weights_folder(model)
    if folder is None:
        raise InputError(
            f"{model_name(model)} is neither a run nor a folder of weights, beside which the choice is "
            "written: vitreous convert it to a folder"
        )
    how = computation(device, batch_size, workers)
    chosen = measuring.engines_here(how["device"], engines)
    answerer, held = open_classifier(str(path), "labels to compare", data, settings_tree(settings, config))
    return measuring.optimize(
        answerer.to(how["device"]).eval(),
        folder,
        held.examples,
        about={"model": str(path), "source": held.source, "part": held.part},
        engines=chosen,
        budget=budget,
        timed_batch=timed_batch,
        say=say if progress else lambda line: None,
        **how,
    )
