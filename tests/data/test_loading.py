"""Loaders: deterministic, resumable, shared among processes, and patient with bad files to a point."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from vitreous.data.config import (
    AugmentationConfig,
    DataConfig,
    MixConfig,
    RandAugmentConfig,
    RandomResizedCropConfig,
)
from vitreous.data.image_samples import ContactSheet, evaluation_loader, image_loader, memory_budget
from vitreous.data.sources import open_data
from vitreous.data.workers import loading_workers, worker_count
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage

PREPROCESSING = Preprocessing(size=(16, 24))
CROPS = AugmentationConfig(random_resized_crop=RandomResizedCropConfig(), flip=0.5, mix=MixConfig(mixup=0.2))
PLAIN = AugmentationConfig()


def loader(
    images,
    augmentation=CROPS,
    *,
    batch_size=4,
    seed=0,
    in_memory=True,
    bad_files=0.01,
    balance=False,
    processes=False,
    **others,
):
    return image_loader(
        images,
        preprocessing=PREPROCESSING,
        augmentation=augmentation,
        batch_size=batch_size,
        seed=seed,
        config=DataConfig(
            reading={"in_memory": in_memory, "bad_files": bad_files, "processes": processes},
            class_balance=balance,
        ),
        **others,
    )


@pytest.fixture
def train(photos):
    return open_data(str(photos), DataConfig(test_fraction=0)).train.subset(np.r_[0:8, 10:18])


def equal(one, two):
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.targets, b.targets)
        assert torch.equal(a.indices, b.indices)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("augmentation", [PLAIN, CROPS, AugmentationConfig(policy=RandAugmentConfig())])
def test_an_epoch_depends_on_seed_and_number_alone(train, augmentation, in_memory):
    threads = loader(train, augmentation, in_memory=in_memory, workers=2)
    alone = loader(train, augmentation, in_memory=in_memory, workers=0)
    list(alone.epoch(3))
    equal(list(threads.epoch(1)), list(alone.epoch(1)))
    first, other = next(alone.epoch(1)), next(alone.epoch(2))
    assert not torch.equal(first.indices, other.indices)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_start_in_the_middle_goes_on_exactly_there_without_decoding(train, in_memory):
    read = []

    class Watched(type(train)):
        def encoded(self, index):
            read.append(index)
            return super().encoded(index)

    whole = list(loader(train, in_memory=in_memory).epoch(5))
    train.__class__ = Watched
    late = loader(train, in_memory=in_memory)
    assert len(read) == (16 if in_memory else 0)  # all of them, once, when the loader is made
    read.clear()
    equal(list(late.epoch(5, start=3)), whole[3:])
    assert len(read) == (0 if in_memory else 4)


def test_an_epoch_visits_every_image_once(train):
    indices = torch.cat([batch.indices for batch in loader(train).epoch(0)])
    assert sorted(indices.tolist()) == list(range(16))


def test_a_last_batch_that_is_not_full_is_left_out(train):
    sizes = [len(batch.indices) for batch in loader(train, batch_size=5).epoch(0)]
    assert sizes == [5, 5, 5]


@pytest.mark.parametrize("in_memory", [True, False])
def test_two_processes_see_what_one_would(train, in_memory):
    whole = list(loader(train, batch_size=4, in_memory=in_memory).epoch(0))
    parts = [
        list(loader(train, batch_size=2, rank=rank, world_size=2, in_memory=in_memory).epoch(0))
        for rank in range(2)
    ]
    for one, left, right in zip(whole, *parts, strict=True):
        assert torch.equal(one.indices, torch.cat([left.indices, right.indices]))
        assert torch.allclose(one.images, torch.cat([left.images, right.images]), atol=1e-6)
        assert torch.allclose(one.targets, torch.cat([left.targets, right.targets]))


def test_targets_are_numbers_unless_mixed(train):
    batch = next(loader(train, PLAIN).epoch(0))
    assert batch.targets.dtype == torch.int64
    assert batch.images.dtype == torch.float32
    assert batch.images.shape == (4, 3, 16, 24)
    assert np.array_equal(batch.targets.numpy(), train.targets.strata(batch.indices.numpy()))
    mixed = next(loader(train).epoch(0))
    assert mixed.targets.shape == (4, 2)
    assert torch.allclose(mixed.targets.sum(1), torch.ones(4))


def test_without_augmentation_training_sees_what_evaluation_sees(train):
    evaluated = torch.cat(
        [batch.images for batch in evaluation_loader(train, preprocessing=PREPROCESSING, batch_size=5)]
    )
    for batch in loader(train, PLAIN).epoch(0):
        assert torch.equal(batch.images, evaluated[batch.indices])


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_counts_every_image_once_and_in_order(train, workers):
    batches = evaluation_loader(train, preprocessing=PREPROCESSING, batch_size=3, workers=workers)
    assert [index for batch in batches for index in batch.indices.tolist()] == list(range(16))


def break_files(root, count):
    for index in range(count):
        (root / "cat" / f"{index}.jpg").write_bytes(b"no image")


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_left_out_and_listed(photos, in_memory, workers, tmp_path):
    break_files(photos, 2)
    train = open_data(str(photos), DataConfig(test_fraction=0)).train
    loading = loader(train, in_memory=in_memory, workers=workers)
    for number in range(2):
        for batch in loading.epoch(number):
            assert len(batch.indices) == 4  # another image stands in
            assert not {0, 1} & set(batch.indices.tolist())
    assert [name for name, _ in loading.bad] == [
        str(photos / "cat" / f"{index}.jpg") for index in (0, 1)
    ] or len(loading.bad) == 2
    loading.bad.write(tmp_path / "bad_files.txt")
    lines = (tmp_path / "bad_files.txt").read_text().splitlines()
    assert f"{photos}/cat/0.jpg\tnot an image of a known format" in lines


@pytest.mark.parametrize("in_memory", [True, False])
def test_more_than_1_percent_of_bad_files_stops_with_the_list(photos, in_memory):
    break_files(photos, 4)
    train = open_data(str(photos), DataConfig(test_fraction=0)).train
    with pytest.raises(
        InputError, match=r"4 of 20 images cannot be read, more than 1%.*cat/3.jpg \(not an image"
    ):
        list(loader(train, in_memory=in_memory, workers=2).epoch(0))


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_bad_file_is_an_error_where_none_is_allowed(photos, in_memory):
    break_files(photos, 1)
    train = open_data(str(photos), DataConfig(test_fraction=0)).train
    with pytest.raises(InputError, match=r"0\.jpg cannot be read"):
        list(loader(train, in_memory=in_memory, bad_files=0.0).epoch(0))


def test_evaluation_leaves_bad_images_out(photos):
    break_files(photos, 6)
    images = open_data(str(photos), DataConfig(test_fraction=0)).train
    batches = evaluation_loader(images, preprocessing=PREPROCESSING, batch_size=3, workers=2)
    assert sum(len(batch.indices) for batch in batches) == 14
    assert len(batches.bad) == 6


def test_a_batch_larger_than_the_data_is_explained(train):
    with pytest.raises(InputError, match=r"a batch of 34 is more than the 16 .* at most 16"):
        loader(train, batch_size=17, world_size=2)


def test_class_balance_draws_every_class_equally_often(tmp_path, make):
    make(tmp_path / "p", classes=("cat",), count=18)
    make(tmp_path / "p", classes=("dog",), count=4)
    train = open_data(str(tmp_path / "p"), DataConfig(test_fraction=0)).train
    loading = loader(train, PLAIN, batch_size=22, balance=True)
    indices = next(loading.epoch(0)).indices.numpy()
    assert np.bincount(train.targets.strata(indices)).tolist() == [11, 11]
    assert len(set(indices[train.targets.strata(indices) == 1])) == 4


def test_repeated_augmentation_shows_an_image_several_times_differently(train):
    twice = AugmentationConfig(repeated_augmentation=2, random_resized_crop=RandomResizedCropConfig())
    for batch in loader(train, twice, batch_size=8).epoch(0):
        values, counts = batch.indices.unique(return_counts=True)
        assert counts.tolist() == [2] * 4
        one, two = (batch.indices == values[0]).nonzero().flatten()
        assert not torch.equal(batch.images[one], batch.images[two])


def test_threads_end_when_an_epoch_is_left_early(train):
    before = threading.active_count()
    batches = loader(train, in_memory=False, workers=2).epoch(0)
    next(batches)
    batches.close()
    assert threading.active_count() == before


def test_erased_rectangles_do_not_depend_on_the_number_of_processes(train):
    """Where they are; the noise in them is each process's own."""
    erased = AugmentationConfig(random_erasing=1.0)
    places = {}
    for world in (1, 2):
        for rank in range(world):
            options = {"batch_size": 16 // world, "rank": rank, "world_size": world}
            plain, batch = (next(loader(train, each, **options).epoch(0)) for each in (PLAIN, erased))
            for index, one, other in zip(batch.indices.tolist(), plain.images, batch.images, strict=True):
                places[world, index] = (one != other).any(dim=0)
    for index in range(16):
        assert places[1, index].any()
        assert torch.equal(places[1, index], places[2, index])


def test_the_loader_yields_bytes_and_the_prefetcher_what_the_model_sees(train):
    loading = loader(train, PLAIN)
    raw, seen = next(loading.loader.epoch(0)), next(loading.epoch(0))
    assert raw.images.dtype == torch.uint8
    assert torch.equal(PREPROCESSING.normalize(raw.images), seen.images)
    assert torch.equal(raw.targets, seen.targets)


def test_kept_images_are_decoded_once(train, photos):
    loading = loader(train)
    expected = list(loading.epoch(0))
    shutil.rmtree(photos)
    equal(list(loading.epoch(0)), expected)


def test_the_contact_sheet_shows_what_is_trained_on(train):
    mixed = AugmentationConfig(mix=MixConfig(mixup=5.0))  # often half and half
    sheet = ContactSheet.of(loader(train, mixed), PREPROCESSING, train.classes, 6)
    assert sheet.images.shape == (6, 3, 16, 24)
    assert sheet.images.dtype == torch.uint8
    assert len(sheet.labels) == 6
    assert any("%" in label for label in sheet.labels)
    plain = ContactSheet.of(loader(train, PLAIN), PREPROCESSING, train.classes, 99)
    assert sorted(plain.labels) == ["cat"] * 8 + ["dog"] * 8


def test_several_labels_pass_through(photos):
    lines = [f"{name}/{i}.jpg,{name}|all" for name in ("cat", "dog") for i in range(10)]
    (photos / "list.csv").write_text("\n".join(["path,label", *lines]))
    train = open_data(str(photos / "list.csv"), DataConfig()).train
    batch = next(loader(train, PLAIN).epoch(0))
    assert batch.targets.dtype == torch.float32
    assert batch.targets[:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.clock
def test_threads_that_decode_leave_the_caller_its_cores():
    program = (
        "import torch\n"
        "from vitreous.data.workers import pool\n"
        "with pool(1) as executor:\n"
        "    executor.submit(int).result()\n"
        "print(torch.get_num_threads())\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert run.stdout == "2\n", run.stderr


def test_fewer_threads_than_none_are_refused():
    with pytest.raises(InputError, match="the number of workers is -1: pass 0 or more"):
        worker_count(-1)


def test_processes_of_one_machine_share_its_cores_and_its_memory(monkeypatch):
    alone = memory_budget()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert (loading_workers(None), loading_workers(3)) == (1, 3)
    assert memory_budget() == alone / 1000


@pytest.mark.slow
@pytest.mark.parametrize("augmentation", [CROPS, AugmentationConfig(policy=RandAugmentConfig())])
def test_worker_processes_make_the_same_batches(train, augmentation):
    """In two epochs, from the middle of one, and of images that cannot be read."""
    bad = type("Bad", (type(train),), {"encoded": staticmethod(lambda index: encoded(index))})
    plain = train.encoded

    def encoded(index):
        if index == 3:
            raise BadImage("three", "it is bad")
        return plain(index)

    train.__class__ = bad
    given = {"in_memory": False, "workers": 2}
    threads = loader(train, augmentation, **given)
    processes = loader(train, augmentation, **given, processes=True)
    for epoch, start in ((0, 0), (1, 0), (1, 2)):
        equal(list(processes.epoch(epoch, start)), list(threads.epoch(epoch, start)))
    assert dict(processes.bad) == {"three": "it is bad"}
    pids = [process.pid for process in processes.loader.worker_processes._processes.values()]
    assert len(pids) == 2
    del processes
    gc.collect()
    for pid in pids:  # they end with the loader
        for _ in range(6000):
            if "State:\tZ" in status_of(pid):
                break
            time.sleep(0.01)
        else:
            raise AssertionError("a worker process is left")


def status_of(pid):
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "State:\tZ (it is gone)"


def test_a_worker_process_that_is_killed_is_one_sentence(train):
    processes = loader(train, in_memory=False, workers=2, processes=True)
    batches = processes.epoch(0)
    next(batches)
    for process in processes.loader.worker_processes._processes.values():
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(InputError, match="a worker process that reads data died"):
        list(batches) + list(processes.epoch(1))
