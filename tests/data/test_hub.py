"""Data sets of the datasets library, from disk."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.data.config import AugmentationConfig, DataConfig, HubForm
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data, summarize
from vitreous.data.sources.hub import find_files
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

datasets = pytest.importorskip("datasets")


def table(count, seed):
    generator = np.random.default_rng(seed)
    images = [Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)) for _ in range(count)]
    features = datasets.Features(
        {
            "coarse": datasets.ClassLabel(names=["a", "b"]),
            "img": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "emu"]),
        }
    )
    rows = {"coarse": [0] * count, "img": images, "label": [index % 3 for index in range(count)]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_saved_to_disk(tmp_path):
    datasets.DatasetDict({"train": table(12, 0), "validation": table(6, 1)}).save_to_disk(
        str(tmp_path / "set")
    )
    splits = open_data(f"hf:{tmp_path / 'set'}", DataConfig())
    assert splits.train.classes == ("cat", "dog", "emu")
    assert (len(splits.train), splits.validation, len(splits.test)) == (12, None, 6)
    expected = table(12, 0)[5]["img"]
    assert np.array_equal(np.asarray(splits.train.image(5)), np.asarray(expected))
    assert Image.open(io.BytesIO(splits.train.encoded(5))).size == (16, 12)


def test_parquet_folder_without_a_test_split(tmp_path):
    table(30, 0).to_parquet(str(tmp_path / "train-00000-of-00001.parquet"))
    splits = open_data(f"hf:{tmp_path}", DataConfig())
    assert set(splits.test.targets.strata().tolist()) == {0, 1, 2}
    assert len(splits.train) + len(splits.test) == 30


def test_a_folder_without_tables_is_not_searched(tmp_path, monkeypatch):
    """The library would list all that is below it: of hf:/ that is the whole machine."""
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: pytest.fail("it is searched"))
    (tmp_path / "images" / "cat").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "images" / "cat")  # the folders of the machine may hold tables
    for spec in (f"hf:{tmp_path}", f"hf:{tmp_path / 'images'}", "hf:../.."):
        with pytest.raises(InputError, match="for a folder of images, leave out hf:"):
            open_data(spec, DataConfig())


def test_tables_are_looked_for_as_deep_as_the_hub_has_them(tmp_path):
    for name in ("a.parquet", "default/b.parquet", "default/train/c.parquet", "x/y/z/too-deep.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {Path(file).name for file in find_files(str(tmp_path))[1]}
    assert found == {"a.parquet", "b.parquet", "c.parquet"}


def test_mistakes(tmp_path):
    with pytest.raises(InputError, match="cannot be loaded"):
        open_data(f"hf:{tmp_path / 'nothing'}", DataConfig())
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a", "b"]})}).save_to_disk(
        str(tmp_path / "t")
    )
    with pytest.raises(InputError, match="no column of images; its columns are: text"):
        open_data(f"hf:{tmp_path / 't'}", DataConfig())


@pytest.fixture
def streamed(tmp_path):
    """60 training images in row groups of 3, 6 for test."""
    from pyarrow import parquet

    for name, count in (("train", 60), ("test", 6)):
        whole = tmp_path / f"{name}.all"
        table(count, len(name)).to_parquet(str(whole))
        parquet.write_table(
            parquet.read_table(whole), tmp_path / f"{name}-00000-of-00001.parquet", row_group_size=3
        )
        whole.unlink()
    return open_data(f"hf:{tmp_path}", DataConfig(form=HubForm(streaming=True)))


def test_a_stream_gives_the_same_images(streamed, tmp_path):
    downloaded = open_data(f"hf:{tmp_path}", DataConfig())
    assert streamed.train.classes == downloaded.train.classes
    assert np.array_equal(streamed.train.targets.strata(), downloaded.train.targets.strata())
    assert len(streamed.test) == 6
    for index in (0, 31, 59):
        assert streamed.train.encoded(index) == downloaded.train.encoded(index)


def test_a_stream_reads_each_row_group_once_in_an_epoch(streamed, monkeypatch):
    fetched = []
    open_file = streamed.train.system.open

    def counting(*arguments):
        fetched.append(arguments)
        return open_file(*arguments)

    loader = image_loader(
        streamed.train,
        preprocessing=Preprocessing(size=(8, 8)),
        augmentation=AugmentationConfig(),
        batch_size=6,
        seed=0,
        workers=2,
        config=DataConfig(reading={"in_memory": False}, form=HubForm(streaming=True)),
    )
    streamed.train.fetched.cache_clear()
    monkeypatch.setattr(streamed.train.system, "open", counting)
    first = [batch.indices for batch in loader.epoch(0)]
    assert sorted(index for batch in first for index in batch.tolist()) == list(range(60))
    assert len(fetched) == 20
    assert len({int(index) // 3 for index in first[0]}) > 2  # mixed over row groups
    again = [batch.indices for batch in loader.epoch(0, start=7)]
    assert all(map(torch.equal, again, first[7:]))
    other = next(loader.epoch(1)).indices
    assert not torch.equal(other, first[0])


def test_stream_mistakes(tmp_path):
    with pytest.raises(InputError, match="no Parquet files of a split 'train'"):
        open_data(f"hf:{tmp_path}", DataConfig(form=HubForm(streaming=True)))
    (tmp_path / "train.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(InputError, match="is not a Parquet file"):
        open_data(f"hf:{tmp_path}", DataConfig(form=HubForm(streaming=True)))


def test_one_of_several_configurations_is_named(tmp_path, monkeypatch):
    """As by the datasets library, which takes the only one, or the one called default."""
    import huggingface_hub
    from fsspec.implementations.dirfs import DirFileSystem

    monkeypatch.setattr(huggingface_hub, "HfFileSystem", lambda: DirFileSystem(str(tmp_path)))
    root = tmp_path / "datasets" / "me" / "set@refs%2Fconvert%2Fparquet"

    def counts(spec):
        return len(open_data(f"hf:{spec}", DataConfig(form=HubForm(streaming=True), test_fraction=0)).train)

    for count, name in ((3, "small"), (6, "large"), (9, "default")):
        (root / name / "train").mkdir(parents=True)
        table(count, 0).to_parquet(str(root / name / "train" / "0000.parquet"))
        if name == "large":
            words = r"hf:me/set has several configurations \(large, small\): name one, as in hf:me/set@large"
            with pytest.raises(InputError, match=words):
                counts("me/set")
            assert counts("me/set@small") == 3
        else:
            assert counts("me/set") == count


def test_looking_at_a_stream_reads_one_row_group(streamed):
    assert streamed.train.sample(32) == [0, 1, 2]
    streamed.train.fetched.cache_clear()
    summarize(streamed.train)
    assert streamed.train.fetched.cache_info().misses == 1


def test_a_parquet_file_that_holds_only_paths_says_so(tmp_path):
    images = [{"bytes": None, "path": f"photos/{number}.jpg"} for number in range(4)]
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table({"image": images, "label": [0, 1, 0, 1]}), tmp_path / "train.parquet")
    with pytest.raises(InputError, match=r"the Parquet file has only its path, photos/"):
        open_data(f"hf:{tmp_path}", DataConfig(form=HubForm(streaming=True)))


def test_a_held_out_part_that_lacks_a_class_has_the_numbers_of_train(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    for part, labels in (("train", ["ant", "bee", "cat"]), ("test", ["bee", "cat"])):
        images = [{"bytes": buffer.getvalue(), "path": None}] * len(labels)
        parquet.write_table(pyarrow.table({"image": images, "label": labels}), tmp_path / f"{part}.parquet")
    splits = open_data(f"hf:{tmp_path}", DataConfig(form=HubForm(streaming=True)))
    assert splits.test.classes == splits.train.classes
    assert splits.test.targets.strata().tolist() == [1, 2]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_needs_no_labels_needs_no_such_column(tmp_path, streaming):
    for name, count in (("train", 12), ("test", 6)):
        table(count, 0).select_columns("img").to_parquet(str(tmp_path / f"{name}-00000-of-00001.parquet"))
    config = DataConfig(form=HubForm(streaming=streaming))
    splits = open_data(f"hf:{tmp_path}", config, "unlabeled")
    assert (len(splits.train), len(splits.test)) == (12, 6)
    assert splits.train.classes == splits.test.classes == ("image",)
    with pytest.raises(InputError, match="no column of labels"):
        open_data(f"hf:{tmp_path}", config)
