"""What TensorFlow itself computes: boxes of its random crop, resized pixels, and the operations of
big_vision's RandAugment, kept for `provenance.py`, whose environment has no TensorFlow.

    pip install tensorflow-cpu
    git clone https://github.com/google-research/big_vision
    python benchmarks/provenance_tensorflow.py --big-vision big_vision

big_vision's code is loaded from the clone and run as it is. Its `tensorflow_addons`, which is no longer
released, is replaced by the same calls of TensorFlow's own kernel for projective transforms.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

tf: Any = None  # tensorflow, which main imports: --help needs none
KEPT = Path(__file__).parent / "results" / "provenance_tensorflow.npz"
SIZES = ((375, 500), (224, 224), (500, 200))
DRAWS = 20_000
QUANTILES = np.linspace(0, 1, 1001)
LEVELS = (3, 10, 15)


def noise(height: int, width: int) -> np.ndarray:
    """An image that is the same everywhere: smooth waves with some noise."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = np.stack([np.sin(7 * x + 3 * y), np.cos(5 * y), np.sin(11 * x * y)], axis=-1)
    return np.clip(110 + 70 * waves + rng.normal(0, 20, waves.shape), 0, 255).astype(np.uint8)


def boxes(height: int, width: int) -> np.ndarray:
    """Quantiles (5, Q) of top, left, height, width and area of the crops that big_vision asks for."""

    @tf.function
    def draw(index: Any) -> Any:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            (height, width, 3),
            tf.zeros([0, 0, 4], tf.float32),
            area_range=(0.05, 1.0),
            aspect_ratio_range=(0.75, 1.33),
            min_object_covered=0,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], size[:2]], axis=0)

    tf.random.set_seed(0)
    drawn = tf.map_fn(draw, tf.range(DRAWS), fn_output_signature=tf.int32).numpy()
    columns = [*drawn.T, drawn[:, 2] * drawn[:, 3]]
    return np.stack([np.quantile(each, QUANTILES, method="inverted_cdf") for each in columns])


def addons() -> types.ModuleType:
    """tensorflow_addons.image: rotate, translate and transform, nearest, with zeros in gaps."""

    def transform(image: Any, matrix: Any) -> Any:
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=image[None],
            transforms=tf.reshape(tf.cast(matrix, tf.float32), (1, 8)),
            output_shape=tf.shape(image)[:2],
            interpolation="NEAREST",
            fill_mode="CONSTANT",
            fill_value=0.0,
        )[0]

    def rotate(image: Any, angle: float) -> Any:
        height, width = image.shape[0], image.shape[1]
        cos, sin = math.cos(angle), math.sin(angle)
        x = ((width - 1) - (cos * (width - 1) - sin * (height - 1))) / 2
        y = ((height - 1) - (sin * (width - 1) + cos * (height - 1))) / 2
        return transform(image, [cos, -sin, x, sin, cos, y, 0.0, 0.0])

    def translate(image: Any, by: Any) -> Any:
        return transform(image, [1.0, 0.0, -by[0], 0.0, 1.0, -by[1], 0.0, 0.0])

    image = types.ModuleType("tensorflow_addons.image")
    image.rotate, image.translate, image.transform = rotate, translate, transform  # type: ignore[attr-defined]
    package = types.ModuleType("tensorflow_addons")
    package.image = image  # type: ignore[attr-defined]
    return package


def big_vision_operations(clone: Path) -> dict[str, np.ndarray]:
    """Return the image that each operation makes at each level, of one direction."""
    sys.modules["tensorflow_addons"] = addons()
    path = clone / "big_vision" / "pp" / "autoaugment.py"
    spec = importlib.util.spec_from_file_location("autoaugment", path)
    assert spec
    assert spec.loader
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    theirs._randomly_negate_tensor = lambda level: level
    image = tf.constant(noise(48, 64))
    hparams = theirs.HParams(cutout_const=40, translate_const=100)
    found = {}
    for name, function in theirs.NAME_TO_FUNC.items():
        for level in LEVELS:
            if name == "Cutout":
                continue  # at a random place
            arguments = [*theirs.level_to_arg(hparams)[name](level)]
            if "replace" in inspect.getfullargspec(function).args:
                arguments.append([128, 128, 128])
            found[f"{name}/{level}"] = tf.cast(function(image, *arguments), tf.uint8).numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--big-vision", type=Path, required=True, help="clone of google-research/big_vision")
    clone = parser.parse_args().big_vision
    globals()["tf"] = importlib.import_module("tensorflow")
    kept: dict[str, np.ndarray] = {"version": np.array(tf.__version__)}
    for height, width in SIZES:
        kept[f"boxes/{height}x{width}"] = boxes(height, width).astype(np.int32)
    image = tf.cast(noise(100, 150), tf.float32)
    for target in ((32, 32), (64, 96)):
        name = f"{target[0]}x{target[1]}"
        kept[f"bilinear/{name}"] = tf.image.resize(image, target).numpy()
        kept[f"area/{name}"] = tf.image.resize(image, target, method="area").numpy()
    kept |= {f"operation/{name}": image for name, image in big_vision_operations(clone).items()}
    np.savez_compressed(KEPT, **kept)  # type: ignore[arg-type]
    print(f"{len(kept)} arrays in {KEPT}")


if __name__ == "__main__":
    main()
