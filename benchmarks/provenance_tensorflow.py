"""What TensorFlow itself computes: boxes of its random crop, resized pixels, the operations and the draws of
big_vision's RandAugment, and the order in which big_vision and vit_jax read images, kept for `provenance.py`,
whose environment has no TensorFlow.

    pip install tensorflow-cpu tensorflow_datasets ml_collections einops
    git clone https://github.com/google-research/big_vision
    git clone https://github.com/google-research/vision_transformer
    python benchmarks/provenance_tensorflow.py --sources FOLDER

FOLDER has the clones, whose code is loaded and run as it is. big_vision's `tensorflow_addons`, which is no
longer released, is replaced by the same calls of TensorFlow's own kernel for projective transforms; JAX, of
which the readers ask for the number of processes and devices alone, by one process with one device.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
from provenance_colors import DRAWN, appearance, noise

tf: Any = None  # tensorflow, which main imports: --help needs none
KEPT = Path(__file__).parent / "results" / "provenance_tensorflow.npz"
SIZES = ((375, 500), (224, 224), (500, 200))
DRAWS = 20_000
QUANTILES = np.linspace(0, 1, 1001)
LEVELS = (3, 10, 15)
# A part of ImageNet, in its proportions: of 1,281,167 images big_vision shuffles 250,000 at a time, vit_jax
# 50,000.
IMAGES, BATCH, SHARES = 5003, 32, {"big_vision": 250_000 / 1_281_167, "vit_jax": 50_000 / 1_281_167}


def boxes(height: int, width: int) -> np.ndarray:
    """Quantiles (5, Q) of top, left, height, width and area of the crops that big_vision asks for."""

    @tf.function  # type: ignore[untyped-decorator]
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
            transforms=tf.stack([tf.cast(each, tf.float32) for each in matrix])[None],
            output_shape=tf.shape(image)[:2],
            interpolation="NEAREST",
            fill_mode="CONSTANT",
            fill_value=0.0,
        )[0]

    def rotate(image: Any, angle: float) -> Any:
        height, width = image.shape[0], image.shape[1]
        cos, sin = tf.cos(angle), tf.sin(angle)
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


def autoaugment(sources: Path) -> Any:
    """The file of big_vision that has RandAugment."""
    sys.modules["tensorflow_addons"] = addons()
    path = sources / "big_vision" / "big_vision" / "pp" / "autoaugment.py"
    spec = importlib.util.spec_from_file_location("autoaugment", path)
    assert spec
    assert spec.loader
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    return theirs


def big_vision_draws(sources: Path, magnitude: int) -> np.ndarray:
    """Quantiles (A, Q) of what 20,000 images look like after RandAugment with two layers. An image has a
    quarter of the usual 224 pixels, as have translations and the squares of cutout."""
    theirs = autoaugment(sources)
    whole, image = theirs.HParams, tf.constant(noise(DRAWN, DRAWN))

    def smaller(**options: int) -> Any:
        return whole(**{name: value * DRAWN // 224 for name, value in options.items()})

    with patch.object(theirs, "HParams", smaller):

        @tf.function  # type: ignore[untyped-decorator]
        def draw() -> Any:
            return theirs.distort_image_with_randaugment(image, 2, magnitude)

        tf.random.set_seed(0)
        found = np.array([appearance(draw().numpy()) for _ in range(DRAWS)])
    return np.stack([np.quantile(each, QUANTILES, method="inverted_cdf") for each in found.T])


def orders(sources: Path) -> dict[str, np.ndarray]:
    """The images (steps, batch) that the readers of big_vision and vit_jax give in about two epochs."""
    one = MagicMock(process_count=lambda: 1, process_index=lambda: 0, local_device_count=lambda: 1)
    steps, found = 2 * IMAGES // BATCH, {}
    sys.path[:0] = [str(sources / "big_vision"), str(sources / "vision_transformer")]
    stand_ins = dict.fromkeys(("flax", "big_vision.utils"), MagicMock()) | {"jax": one}
    with patch.dict(sys.modules, stand_ins):
        make = importlib.import_module("big_vision.input_pipeline").make_for_train
        data = tf.data.Dataset.range(IMAGES)
        size = round(SHARES["big_vision"] * IMAGES)
        batches = make(data, lambda index: index, BATCH, shuffle_buffer_size=size)
        found["big_vision"] = np.stack([each.numpy() for each in batches.take(steps)])

        read = importlib.import_module("vit_jax.input_pipeline").get_data
        data = tf.data.Dataset.range(IMAGES).map(lambda index: {"image": index, "label": index})
        options = {"mode": "train", "num_classes": IMAGES, "repeats": None, "batch_size": BATCH}
        for name, size in (("vit_jax whole", IMAGES), ("vit_jax", round(SHARES["vit_jax"] * IMAGES))):
            batches = read(
                data=data,
                image_decoder=lambda index: tf.zeros((4, 4, 3), tf.uint8),
                image_size=4,
                shuffle_buffer=size,
                **options,
            )
            labels = [each["label"][0].numpy().argmax(axis=1) for each in batches.take(steps)]
            found[name] = np.stack(labels)
    return found


def big_vision_operations(sources: Path) -> dict[str, np.ndarray]:
    """Return the image that each operation makes at each level, of one direction."""
    theirs = autoaugment(sources)
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
    parser.add_argument("--sources", type=Path, required=True, help="folder of the clones")
    sources = parser.parse_args().sources
    globals()["tf"] = importlib.import_module("tensorflow")
    kept: dict[str, np.ndarray] = {"version": np.array(tf.__version__)}
    for height, width in SIZES:
        kept[f"boxes/{height}x{width}"] = boxes(height, width).astype(np.int32)
    image = tf.cast(noise(100, 150), tf.float32)
    for target in ((32, 32), (64, 96)):
        name = f"{target[0]}x{target[1]}"
        kept[f"bilinear/{name}"] = tf.image.resize(image, target).numpy()
        kept[f"area/{name}"] = tf.image.resize(image, target, method="area").numpy()
    kept |= {f"operation/{name}": image for name, image in big_vision_operations(sources).items()}
    kept |= {f"order/{name}": rows.astype(np.int16) for name, rows in orders(sources).items()}
    for magnitude in (10, 15):  # of s16-baseline and augreg
        kept[f"draws/{magnitude}"] = big_vision_draws(sources, magnitude)
    np.savez_compressed(KEPT, **kept)  # type: ignore[arg-type]
    print(f"{len(kept)} arrays in {KEPT}")


if __name__ == "__main__":
    main()
