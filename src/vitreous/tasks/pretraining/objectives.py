"""The objective that a configuration names."""

from __future__ import annotations

from vitreous.models.names import Model
from vitreous.tasks.pretraining.config import ObjectiveName, PretrainingConfig
from vitreous.tasks.pretraining.dino import DINO
from vitreous.tasks.pretraining.mae import MAE
from vitreous.tasks.pretraining.masked_patch import MaskedPatchPrediction
from vitreous.tasks.pretraining.simmim import SimMIM

SelfSupervision = MaskedPatchPrediction | MAE | SimMIM | DINO


def build_objective(
    model: Model, name: ObjectiveName, config: PretrainingConfig, *, steps: int, seed: int = 0
) -> SelfSupervision:
    """Build the objective called `name` around `model`.

    Args:
        steps: of the optimizer in the whole training.
        seed: of the weights that the objective adds: mask token, decoder, heads.

    Raises:
        InputError: the objective cannot be had with this model.
    """
    match name:
        case "masked-patch":
            return MaskedPatchPrediction(model, config.masked_patch, seed=seed)
        case "mae":
            return MAE(model, config.mae, seed=seed)
        case "simmim":
            return SimMIM(model, config.simmim, seed=seed)
        case "dino":
            return DINO(model, config.dino, steps=steps, seed=seed)
