"""CIFAR's and MNIST's own files, made small; the pickled version is not touched."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError


def cifar10(root, count=20):
    generator = np.random.default_rng(0)
    root.mkdir()
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        rows = generator.integers(0, 256, (count, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(count) % 10
        (root / f"{name}.bin").write_bytes(rows.tobytes())
    (root / "batches.meta.txt").write_text("\n".join(["airplane", *"bcdefghij"]) + "\n\n")
    return root


def test_cifar10(tmp_path):
    root = cifar10(tmp_path / "cifar-10-batches-bin")
    splits = open_data(f"cifar10:{tmp_path}", DataConfig(validation_fraction=0.1))
    train, validation, test = map(len, splits[:3])
    assert (train + validation, test) == (100, 20)
    assert 10 <= validation <= 20
    assert splits.test.classes[0] == "airplane"
    row = np.frombuffer((root / "test_batch.bin").read_bytes(), dtype=np.uint8)[3073 : 2 * 3073]
    assert splits.test.targets.strata()[1] == row[0]
    assert np.array_equal(np.asarray(splits.test.image(1)).transpose(2, 0, 1).ravel(), row[1:])


def test_cifar100_takes_the_fine_label(tmp_path):
    for name in ("train.bin", "test.bin"):
        rows = np.zeros((200, 3074), dtype=np.uint8)
        rows[:, 1] = np.arange(200) % 100
        (tmp_path / name).write_bytes(rows.tobytes())
    splits = open_data(f"cifar100:{tmp_path}", DataConfig())
    assert len(splits.train.classes) == 100
    assert splits.test.targets.strata().tolist() == (np.arange(200) % 100).tolist()


def test_the_pickled_version_is_refused_unread(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trapped"), "w"))

    for name in ["data_batch_1", "train"]:
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    for kind in ("cifar10", "cifar100"):
        with pytest.raises(InputError, match="binary version"):
            open_data(f"{kind}:{tmp_path}", DataConfig())
    assert not (tmp_path / "trapped").exists()


def test_a_cifar_file_cut_short(tmp_path):
    root = cifar10(tmp_path / "c")
    file = root / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"data_batch_3.bin has \d+ bytes"):
        open_data(f"cifar10:{root}", DataConfig())


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_mnist(tmp_path, packed):
    generator = np.random.default_rng(1)
    images = {}
    for part, count in (("train", 60), ("t10k", 20)):
        images[part] = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in (
            (f"{part}-images-idx3-ubyte", images[part]),
            (f"{part}-labels-idx1-ubyte", labels),
        ):
            data = gzip.compress(idx(array)) if packed else idx(array)
            (tmp_path / (name + ".gz" * packed)).write_bytes(data)
    splits = open_data(f"mnist:{tmp_path}", DataConfig())
    assert [len(splits.train), len(splits.test)] == [60, 20]
    assert np.array_equal(np.asarray(splits.test.image(7)), images["t10k"][7])
    assert splits.test.targets.strata()[7] == 7


def test_mnist_mistakes(tmp_path):
    with pytest.raises(InputError, match="no train-images-idx3-ubyte"):
        open_data(f"mnist:{tmp_path}", DataConfig())
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"abc" * 99)[:-9])
    with pytest.raises(InputError, match="is not a complete gzip"):
        open_data(f"mnist:{tmp_path}", DataConfig())
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 28, 28), np.uint8))[:-1])
    with pytest.raises(InputError, match="truncated"):
        open_data(f"mnist:{tmp_path}", DataConfig())
    with pytest.raises(InputError, match="a path is empty"):
        open_data("mnist:", DataConfig())
