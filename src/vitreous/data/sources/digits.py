"""scikit-learn's handwritten digits: 1,797 pictures of 8x8, real data, bundled (Alpaydin and Kaynak, UCI)."""

from __future__ import annotations

import numpy as np

from vitreous.data.config import DataConfig
from vitreous.data.pictures import ArrayPictures, Pictures, Subset
from vitreous.data.splitting import carve


def open_digits(config: DataConfig) -> tuple[Pictures, Pictures | None, Pictures | None]:
    """(train, validation, test): scikit-learn's own stratified split, so that others can repeat it."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    values, targets = load_digits(return_X_y=True)
    grey = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    pictures = ArrayPictures(
        grey, targets.astype(np.int64), tuple(str(digit) for digit in range(10)), name="digits"
    )
    if not config.test_fraction:
        return *carve(pictures, config), None
    train, test = train_test_split(
        np.arange(len(grey)),
        test_size=config.test_fraction,
        stratify=targets,
        random_state=config.split_seed,
    )
    return *carve(Subset(pictures, train), config), Subset(pictures, test)
