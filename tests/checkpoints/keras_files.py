"""Tiny models of keras-hub as Keras writes them, with what they compute.

    KERAS_BACKEND=jax python tests/checkpoints/keras_files.py

writes `data/published/keras/`. It needs keras-hub, with any backend.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np

FOLDER = Path(__file__).parent / "data" / "published" / "keras"
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24, "patch_size": 8}


def drawn(model: Any) -> Any:
    rng = np.random.default_rng(0)
    for each in model.weights:
        if "float" in str(each.dtype):
            one = 1.0 if each.path.endswith(("gamma", "scale")) else 0.0
            each.assign(one + 0.3 * rng.standard_normal(each.shape))
    return model


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, shape, fields in (
        ("classifier", (16, 16, 3), {"pooling": "token"}),
        ("gap", (16, 24, 3), {"pooling": "gap", "intermediate_dim": 8, "activation": "softmax"}),
    ):
        backbone = keras_hub.models.ViTBackbone(image_shape=shape, layer_norm_epsilon=1e-5, **SIZES)
        model = drawn(keras_hub.models.ViTImageClassifier(backbone=backbone, num_classes=3, **fields))
        rng = np.random.default_rng(1)
        images = np.round(rng.random((2, *shape)) * 255).astype("float32") / 255
        model.save(FOLDER / f"{name}.keras")
        if name == "classifier":
            model.save_weights(FOLDER / "classifier.weights.h5")
            backbone.save_to_preset(str(FOLDER / "preset"))
        found[name] = {
            "images": images.transpose(0, 3, 1, 2).tolist(),
            "tokens": np.asarray(backbone(images)).tolist(),
            "outputs": np.asarray(model(images)).tolist(),
        }
    (FOLDER / "expected.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(keras.__version__, keras_hub.__version__)


if __name__ == "__main__":
    main()
