"""`vitreous.optimize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from vitreous.addons.optimize.options import OptimizeOptions
from vitreous.api.arguments import model_name, path_of_run, say, settings_tree, silent, weights_folder
from vitreous.api.deployment import open_classifier
from vitreous.api.model_source import computation
from vitreous.errors import InputError, Param
from vitreous.training.options import with_options

if TYPE_CHECKING:
    from vitreous.addons.optimize.measuring import Optimization


@with_options(OptimizeOptions)
def optimize(model: Any, data: Any = None, **options: Unpack[OptimizeOptions]) -> Optimization:
    """Find the fastest way to run a classifier on this machine that is still accurate enough, and store it.

    This measures engines (PyTorch, ONNX Runtime, OpenVINO), bf16, int8 and token merging. `predict`
    and `evaluate` then use the stored choice, unless you specify another precision.

    Example:
        >>> found = vt.optimize("runs/photos", "more-photos/", engines=["eager"], progress=False)
        >>> found.rows[0].name
        'eager fp32'

    Args:
        model: a run, or a folder of weights in the native format.
        data: images that the model was not trained on; by default the validation set of the run's data.
        options: of `OptimizeOptions`.

    Raises:
        InputError: the model or the data does not exist, the task has no labels, or there are no validation
            images.
    """
    from vitreous.addons.optimize import measuring

    budget, timed_batch = options["budget"], options["timed_batch"]
    if not 0 <= budget < 1 or timed_batch < 1:
        raise InputError(
            f"{Param('budget')} {budget:g} is not a fraction below 1 (such as 0.3%), or "
            f"{Param('timed_batch')} is below 1"
        )
    path, folder = path_of_run(model), weights_folder(model)
    if folder is None:
        raise InputError(
            f"{model_name(model)} is neither a run nor a model folder, in which the choice could be "
            "stored: write one with vitreous convert"
        )
    how = computation(options["device"], options["batch_size"], options["workers"])
    chosen = measuring.engines_here(how["device"], options["engines"])
    tree = settings_tree(options["settings"], options["config"])
    answerer, held = open_classifier(str(path), "labels to compare", data, tree)
    return measuring.optimize(
        answerer.to(how["device"]).eval(),
        folder,
        held.examples,
        facts={"model": str(path), "source": held.source, "part": held.part},
        engines=chosen,
        budget=budget,
        timed_batch=timed_batch,
        say=say if options["progress"] else silent,
        **how,
    )
