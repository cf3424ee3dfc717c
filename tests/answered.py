"""Evaluations for tests, of probabilities that nobody has computed."""

from __future__ import annotations

from typing import Any

import numpy as np


def answered(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """What `ClassificationEvaluation` keeps of these probabilities."""
    first = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]
    return {
        "targets": targets,
        "predictions": probabilities.argmax(axis=1),
        "confidence": probabilities.max(axis=1),
        "true_probability": probabilities[np.arange(len(targets)), targets],
        "in_top5": (first == targets[:, None]).any(axis=1),
        "probabilities": probabilities,
    }
