"""The objective that a configuration names."""

from __future__ import annotations

from vitreous.models.names import Model
from vitreous.pretraining.config import PretrainingConfig
from vitreous.pretraining.dino import DINO
from vitreous.pretraining.mae import MAE
from vitreous.pretraining.masked_patch import MaskedPatchPrediction
from vitreous.pretraining.simmim import SimMIM

SelfSupervision = MaskedPatchPrediction | MAE | SimMIM | DINO


def build_objective(model: Model, config: PretrainingConfig, *, steps: int) -> SelfSupervision:
    """The chosen objective around `model`.

    Args:
        steps: of the optimizer in the whole training.

    Raises:
        InputError: the objective cannot be had with this model.
    """
    match config.objective:
        case "masked-patch":
            return MaskedPatchPrediction(model, config.masked_patch)
        case "mae":
            return MAE(model, config.mae)
        case "simmim":
            return SimMIM(model, config.simmim)
        case "dino":
            return DINO(model, config.dino, steps=steps)
