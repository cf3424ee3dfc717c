"""scikit-learn's handwritten digits: 1,797 images of 8x8, real data, bundled (Alpaydin and Kaynak, UCI)."""

from __future__ import annotations

import numpy as np

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, ImageDataset, Subset
from vitreous.data.splitting import carve


def open_digits(config: DataConfig) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """(train, validation, test): scikit-learn's own stratified split, so that others can repeat it."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    values, targets = load_digits(return_X_y=True)
    gray = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = ArrayImages(
        gray, targets.astype(np.int64), tuple(str(digit) for digit in range(10)), name="digits"
    )
    if not config.test_fraction:
        return *carve(images, config), None
    train, test = train_test_split(
        np.arange(len(gray)),
        test_size=config.test_fraction,
        stratify=targets,
        random_state=config.split_seed,
    )
    return *carve(Subset(images, train), config), Subset(images, test)
