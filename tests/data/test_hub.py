"""Data sets of the datasets library, from disk."""

import io

import numpy as np
import pytest
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError

datasets = pytest.importorskip("datasets")


def table(count, seed):
    generator = np.random.default_rng(seed)
    pictures = [
        Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)) for _ in range(count)
    ]
    features = datasets.Features(
        {
            "coarse": datasets.ClassLabel(names=["a", "b"]),
            "img": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "emu"]),
        }
    )
    rows = {"coarse": [0] * count, "img": pictures, "label": [index % 3 for index in range(count)]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_saved_to_disk(tmp_path):
    datasets.DatasetDict({"train": table(12, 0), "validation": table(6, 1)}).save_to_disk(
        str(tmp_path / "set")
    )
    splits = open_data(f"hf:{tmp_path / 'set'}", DataConfig())
    assert splits.train.classes == ("cat", "dog", "emu")
    assert (len(splits.train), splits.validation, len(splits.test)) == (12, None, 6)
    expected = table(12, 0)[5]["img"]
    assert np.array_equal(np.asarray(splits.train.picture(5)), np.asarray(expected))
    assert Image.open(io.BytesIO(splits.train.encoded(5))).size == (16, 12)


def test_parquet_folder_without_a_test_split(tmp_path):
    table(30, 0).to_parquet(str(tmp_path / "train-00000-of-00001.parquet"))
    splits = open_data(f"hf:{tmp_path}", DataConfig())
    assert np.bincount(splits.test.targets).tolist() == [2, 2, 2]


def test_mistakes(tmp_path):
    with pytest.raises(InputError, match="cannot be loaded"):
        open_data(f"hf:{tmp_path / 'nothing'}", DataConfig())
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a", "b"]})}).save_to_disk(
        str(tmp_path / "t")
    )
    with pytest.raises(InputError, match="no column of pictures; its columns are: text"):
        open_data(f"hf:{tmp_path / 't'}", DataConfig())
