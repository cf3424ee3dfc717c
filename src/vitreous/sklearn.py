"""scikit-learn estimators: `ViTFeatures` in a Pipeline, and `ViTClassifier`.

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from vitreous.sklearn import ViTFeatures

    make_pipeline(ViTFeatures("hf:google/vit-base-patch16-224"), LogisticRegression()).fit(images, labels)

X is whatever `vitreous.embed` takes: paths, PIL images, arrays (N, H, W) or (N, H, W, C); or a table (N, F)
of numbers, as scikit-learn's own data sets are, whose rows are flattened images.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from vitreous.api.features import embed
from vitreous.api.model_source import resolve_model
from vitreous.api.prediction import predict
from vitreous.api.training import train
from vitreous.data.config import PATH_COLUMNS
from vitreous.errors import InputError
from vitreous.training.options import ImageSize, Settings


class ImageInput(BaseEstimator):  # type: ignore[misc]
    """What both estimators do with X: images are taken as they are, rows of a table become images.

    A table's numbers are scaled to 0 ... 1 by the least and the largest number seen in `fit`.
    """

    image_shape: tuple[int, ...] | None

    def options_without(self, *names: str) -> dict[str, Any]:
        """Return the parameters that the function of the Python API takes, too."""
        return {name: value for name, value in self.get_params(deep=False).items() if name not in names}

    def begin_input(self, X: object) -> Any:
        """Learn the form of X, and return its images."""
        self.is_table_ = not is_images(X)
        if not self.is_table_:
            return X
        table = validate_data(self, X, dtype=np.float32)
        self.low_, self.high_ = float(table.min()), float(table.max())
        self.image_shape_ = tuple(self.image_shape or (1, table.shape[1]))
        if prod(self.image_shape_) != table.shape[1]:
            raise InputError(
                f"image_shape {self.image_shape_} has {prod(self.image_shape_)} numbers, but a row of X has "
                f"{table.shape[1]}"
            )
        return self.images_of(table)

    def seen_input(self, X: object) -> Any:
        """Return the images of X, which must have the form that `fit` has seen."""
        if self.is_table_ == is_images(X):
            form = "a table of numbers" if self.is_table_ else "images"
            raise InputError(f"X does not have the form that fit was given: pass {form}")
        return self.images_of(validate_data(self, X, dtype=np.float32, reset=False)) if self.is_table_ else X

    def images_of(self, table: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the rows as images with values in 0 ... 1."""
        scaled = (table - self.low_) / max(self.high_ - self.low_, 1e-12)
        return list(scaled.clip(0, 1).reshape(-1, *self.image_shape_))


def is_images(X: object) -> bool:
    """Return whether X is images, and not a table of numbers."""
    if isinstance(X, str | Path | Image.Image) or getattr(X, "ndim", 0) in (3, 4):
        return True
    if any(name in PATH_COLUMNS for name in getattr(X, "columns", ())):
        return True
    # Paths also are an array, a Series or a frame of one column; a table of numbers can be of objects.
    texts = isinstance(X, list | tuple) or getattr(getattr(X, "dtype", None), "kind", "O") in "OU"
    if not texts or not hasattr(X, "__len__"):
        return False
    rows = X if isinstance(X, list | tuple) else np.asarray(X).reshape(-1)
    first = rows[0] if len(rows) else None
    return isinstance(first, str | Path | Image.Image) or getattr(first, "ndim", 0) in (2, 3)


@dataclass(eq=False, repr=False)
class ViTFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ImageInput):  # type: ignore[misc]
    """Images to the features that the head of a model sees. Nothing is trained.

    Args:
        model: a run, a checkpoint in any format, hf:org/name, a model name (fresh weights), or a model.
        image_shape: (H, W) or (H, W, C) of the rows of a table; by default one row of pixels.
        batch_size: images of a step.
        device: auto, cpu, cuda or cuda:N.
        precision: fp32, bf16 or auto.
    """

    model: Any = "ViT-Ti/16"
    _: KW_ONLY
    image_shape: tuple[int, ...] | None = None
    batch_size: int = 64
    device: str = "auto"
    precision: str = "fp32"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: object, y: object = None) -> ViTFeatures:
        """Open the model, and learn the form of X."""
        self.begin_input(X)
        self.model_ = resolve_model(self.model)
        config = self.model_.config
        tokens = 2 if getattr(config, "distillation_token", False) else 1  # DeiT's two are flattened
        self._n_features_out = tokens * config.feature_width
        return self

    def transform(self, X: object) -> NDArray[np.float32]:
        """Return the features of images, (N, D). Raises InputError: an image cannot be read."""
        check_is_fitted(self)
        options = self.options_without("model", "image_shape")
        features = embed(self.model_, self.seen_input(X), progress=False, **options)
        if features.failed:
            first = features.failed[0]
            raise InputError(f"{len(features.failed)} images cannot be read: {first.path} ({first.reason})")
        return features.values


@dataclass(eq=False, repr=False)
class ViTClassifier(ClassifierMixin, ImageInput):  # type: ignore[misc]
    """A model that `vitreous.train` trains or fine-tunes; all of X is learned from.

    Args:
        model: a model name such as "ViT-S/16"; by default the data decide.
        init: a checkpoint or a run to fine-tune.
        recipe, image_size, epochs, batch_size, settings, seed, device: see `vitreous.train`.
        image_shape: (H, W) or (H, W, C) of the rows of a table; by default one row of pixels.
        out: the run directory; by default a temporary one, of which only the model is kept.
    """

    model: str | None = None
    _: KW_ONLY
    init: Any = None
    recipe: str | None = None
    image_size: ImageSize | None = None
    epochs: int | float | None = None
    batch_size: int | None = None
    image_shape: tuple[int, ...] | None = None
    settings: Settings | None = None
    seed: int = 0
    device: str = "auto"
    out: str | Path | None = None

    def fit(self, X: object, y: object) -> ViTClassifier:
        """Train on images and their classes."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        images = self.begin_input(X)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs two classes or more, and y has one class: {self.classes_}")
        # Names that stay names: 20 different numbers would be taken for numbers to predict.
        labels = [f"class {number:06d}" for number in numbers.tolist()]
        options = self.options_without("image_shape")
        whole = {"data.test_fraction": 0.0, "data.validation_fraction": 0.0}
        options["settings"] = {**whole, **(self.settings or {})}
        with TemporaryDirectory() as folder:
            options["out"] = self.out or Path(folder) / "run"
            run = train((images, labels), **options, progress=False)
            self.model_ = run.model
        return self

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return the probability of each class of `classes_`, (N, classes)."""
        check_is_fitted(self)
        images = self.seen_input(X)
        answers = predict(self.model_, images, top=len(self.classes_), device=self.device, progress=False)
        if answers.failed:
            path, reason = next(iter(answers.failed.items()))
            raise InputError(f"{len(answers.failed)} images cannot be read: {path} ({reason})")
        found = [{each.label: each.probability for each in answer.top} for answer in answers]
        return np.array([[row[label] for label in self.model_.labels] for row in found])

    def predict(self, X: object) -> NDArray[Any]:
        """Return the most probable class of each image."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]
