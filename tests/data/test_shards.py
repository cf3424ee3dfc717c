"""Tar shards are read in place, and tricks in them are refused."""

import io
import os
import shutil
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import numpy as np
import pytest

import vitreous as vt
import vitreous.data.sources.shards as shards_module
from vitreous.data import held_out
from vitreous.data.config import AugmentationConfig, DataConfig, FetchedForm
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import find_source, open_data
from vitreous.data.sources import remote as remote_shards
from vitreous.data.sources import shard_index as indexing
from vitreous.data.sources.remote import find_shards
from vitreous.errors import InputError
from vitreous.outside import is_url
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner


def write(path, files):
    with tarfile.open(path, "w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def shards(folder, make_jpeg, label, count=2):
    for shard in range(count):
        numbers = range(shard * 10, shard * 10 + 10)
        files = [(f"{number:04}.jpg", make_jpeg(number)) for number in numbers]
        suffix, _ = label(0)
        files += [(f"{number:04}{suffix}", label(number)[1]) for number in numbers]
        write(folder / f"a-{shard:03}.tar", files)
    return str(folder / f"a-{{000..{count - 1:03}}}.tar")


@pytest.fixture
def large_from_10(monkeypatch):
    """Indexes of 10 images and more are stored, and mapped into memory."""
    monkeypatch.setattr(indexing, "LARGE", 10)


@pytest.mark.parametrize(
    "label",
    [
        lambda number: (".cls", str(number % 2).encode()),
        lambda number: (".txt", ("cat", "dog")[number % 2].encode()),
        lambda number: (".json", b'{"label": "%s"}' % (b"cat", b"dog")[number % 2]),
    ],
)
def test_images_and_labels_belong_together(tmp_path, make_jpeg, label):
    splits = open_data(shards(tmp_path, make_jpeg, label), DataConfig(test_fraction=0.2))
    assert len(splits.train) + len(splits.test) == 20
    for index in range(len(splits.train)):
        number = int(splits.train.name(index).rsplit("/", 1)[1].removesuffix(".jpg"))
        assert splits.train.encoded(index) == make_jpeg(number)
        assert splits.train.targets.strata()[index] == number % 2


def test_class_names_stand_beside_the_shards(tmp_path, make_jpeg):
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()))
    (tmp_path / "classes.txt").write_text("cat\ndog\nemu\n")
    assert open_data(spec, DataConfig()).train.classes == ("cat", "dog", "emu")
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(InputError, match="has 1 classes"):
        open_data(spec, DataConfig())


def test_numbers_of_products_are_names(tmp_path, make_jpeg):
    """As class numbers they would need a list of all numbers below them."""
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", (b"99999999999", b"12")[number % 2]))
    assert open_data(spec, DataConfig()).train.classes == ("12", "99999999999")


def test_names_that_lead_out_of_the_archive_are_refused(tmp_path, make_jpeg):
    for name in ("../evil.jpg", "/etc/evil.jpg", "a/../../evil.jpg"):
        write(tmp_path / "b-0.tar", [(name, make_jpeg(0)), ("x.cls", b"0")])
        with pytest.raises(InputError, match="unsafe name"):
            open_data(str(tmp_path / "b-{0..0}.tar"), DataConfig())


def test_the_image_of_a_sample_has_the_plain_name(tmp_path, make_jpeg):
    """Whatever the order, and beside what a Mac adds."""
    order = [("jpg", 0), ("seg.png", 7), ("depth.png", 8)]
    for shard, names in enumerate((order, order[::-1])):
        files = [(f"{shard}{number}.{name}", make_jpeg(seed)) for number in range(2) for name, seed in names]
        hidden = [(f"._{shard}{number}.jpg", b"Mac OS X") for number in range(2)]
        write(
            tmp_path / f"a-{shard}.tar",
            [*files, *hidden, *((f"{shard}{n}.cls", b"%d" % n) for n in range(2))],
        )
    images = open_data(str(tmp_path / "a-{0..1}.tar"), DataConfig(test_fraction=0)).train
    assert [images.name(index)[-6:] for index in range(4)] == ["00.jpg", "01.jpg", "10.jpg", "11.jpg"]
    assert {images.encoded(index) for index in range(4)} == {make_jpeg(0)}


@pytest.mark.parametrize("names", [("0.jpg", "0.png"), ("0.left.jpg", "0.right.jpg")])
def test_two_images_of_one_sample_are_refused(tmp_path, make_jpeg, names):
    write(tmp_path / "a-0.tar", [*((name, make_jpeg(0)) for name in names), ("0.cls", b"0")])
    with pytest.raises(InputError, match=f"two images in one sample, {names[0]} and {names[1]}"):
        open_data(str(tmp_path / "a-0.tar"), DataConfig())


def test_links_and_pickles_are_no_samples(tmp_path, make_jpeg):
    with tarfile.open(tmp_path / "c-0.tar", "w") as archive:
        link = tarfile.TarInfo("0.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name, data in (("0.pyd", b"cos\nsystem\n"), ("0.cls", b"1")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(InputError, match="no image with a label"):
        open_data(str(tmp_path / "c-0.tar"), DataConfig())


def test_mistakes(tmp_path, make_jpeg):
    write(tmp_path / "x-000.tar", [])
    with pytest.raises(InputError, match=r"no shard .*x-001\.tar"):
        open_data(str(tmp_path / "x-{000..001}.tar"), DataConfig())
    (tmp_path / "y-0.tar").write_bytes(b"no tar" * 500)
    with pytest.raises(InputError, match="not a tar file"):
        open_data(str(tmp_path / "y-0.tar"), DataConfig())
    write(tmp_path / "z-0.tar", [("0.jpg", make_jpeg(0)), ("0.json", b"{}")])
    with pytest.raises(InputError, match="no image with a label"):
        open_data(str(tmp_path / "z-0.tar"), DataConfig())
    write(tmp_path / "train-0.tar", [("0.jpg", make_jpeg(0)), ("0.cls", b"0"), ("1.jpg", make_jpeg(1))])
    write(tmp_path / "more-0.tar", [("2.jpg", make_jpeg(0)), ("2.cls", b"0")])
    with pytest.raises(InputError, match="has a split 'more': write train, val or test"):
        open_data(str(tmp_path / "[mt][or]*-0.tar"), DataConfig())
    with pytest.raises(InputError, match="write memory://"):
        open_data("memory://bucket/a.csv", DataConfig())
    with pytest.raises(InputError, match=r"data\.form\.kind=fetched does not fit .*, which is shards"):
        open_data(str(tmp_path / "train-0.tar"), DataConfig(form=FetchedForm(cache_gb=3)))


@pytest.mark.parametrize(
    ("label", "row"),
    [
        (b'{"label": ["cat", "dog"]}', [1, 1]),
        (b'{"label": {"cat": 0.25, "dog": 0.5}}', [0.25, 0.5]),
        (b'{"label": "dog"}', [0, 1]),
        (b'{"label": []}', [0, 0]),
    ],
)
def test_several_labels_are_rows(tmp_path, make_jpeg, label, row):
    pair = [("1.jpg", make_jpeg(1)), ("1.json", b'{"label": ["cat", "dog"]}')]
    write(tmp_path / "m-0.tar", [("0.jpg", make_jpeg(0)), ("0.json", label), *pair])
    splits = open_data(str(tmp_path / "m-{0..0}.tar"), DataConfig(test_fraction=0))
    assert splits.train.targets.matrix.toarray().tolist() == [row, [1, 1]]


@pytest.mark.parametrize("label", [b'{"label": {"cat": 2}}', b'{"label": {"cat": "much"}}', b"[1]", b"{"])
def test_what_is_no_label_is_said(tmp_path, make_jpeg, label):
    write(tmp_path / "m-0.tar", [("0.jpg", make_jpeg(0)), ("0.json", label)])
    with pytest.raises(InputError, match=r"0\.json is not a label: write a class"):
        open_data(str(tmp_path / "m-{0..0}.tar"), DataConfig())


WHOLE = DataConfig(test_fraction=0, validation_fraction=0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_shards_of_img2dataset_are_pre_trained_on(tmp_path, make_jpeg):
    """An image with its caption and what is known of it; some have neither."""
    files = []
    for number in range(12):
        files.append((f"{number:09}.jpg", make_jpeg(number)))
        if number % 3:
            files.append((f"{number:09}.txt", b"a photo of %d" % number))
            files.append((f"{number:09}.json", b'{"caption": "a photo", "url": "https://x", "width": 64}'))
    write(tmp_path / "00000.tar", files)
    splits = open_data(str(tmp_path), WHOLE, "unlabeled")
    assert (len(splits.train), splits.train.classes) == (12, ("image",))
    assert splits.train.encoded(5) == make_jpeg(5)
    assert len(open_data(str(tmp_path), WHOLE).train) == 8  # those that have a text


@pytest.mark.parametrize("folder", ["", "Images/cat"])
def test_images_beside_the_archive_that_they_are_from_are_pre_trained_on(tmp_path, make_jpeg, folder):
    write(tmp_path / "images.tar", [(f"{number}.jpg", make_jpeg(number)) for number in range(3)])
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for number in range(5):
        (tmp_path / folder / f"{number}.jpg").write_bytes(make_jpeg(number))
    assert len(open_data(str(tmp_path), WHOLE, "unlabeled").train) == 5


@pytest.mark.parametrize("folder", ["", "train"])
def test_class_folders_beside_the_archive_that_they_are_from_are_read(tmp_path, make_jpeg, folder):
    write(tmp_path / "images.tar", [(f"{label}/{label}.jpg", make_jpeg(0)) for label in "ab"])
    for label in "ab":
        (tmp_path / folder / label).mkdir(parents=True)
        for number in range(3):
            (tmp_path / folder / label / f"{number}.jpg").write_bytes(make_jpeg(number))
    assert open_data(str(tmp_path), WHOLE).train.classes == ("a", "b")


def test_folders_without_images_beside_shards_are_not_classes(tmp_path, make_jpeg):
    write(
        tmp_path / "0.tar",
        [("0.jpg", make_jpeg(0)), ("0.cls", b"1"), ("1.jpg", make_jpeg(1)), ("1.cls", b"0")],
    )
    for name in ("logs", "notes", "train"):
        (tmp_path / name).mkdir()
    assert len(open_data(str(tmp_path), WHOLE).train) == 2


def test_captions_are_not_classes(tmp_path, make_jpeg, monkeypatch):
    monkeypatch.setattr(shards_module, "FEW", 5)  # 12 labels are too many then
    files = [(f"{number}.jpg", make_jpeg(0)) for number in range(12)]
    files += [(f"{number}.txt", b"a photo of %d" % number) for number in range(12)]
    write(tmp_path / "a-0.tar", files)
    with pytest.raises(InputError, match="12 different labels of 12 images, such as 'a photo of 0': write"):
        open_data(str(tmp_path / "a-0.tar"), WHOLE)
    assert open_data(str(tmp_path / "a-0.tar"), WHOLE, "unlabeled").train.classes == ("image",)


def test_a_class_number_is_preferred_to_a_name(tmp_path, make_jpeg):
    for number, order in enumerate(([".cls", ".json", ".txt"], [".txt", ".json", ".cls"])):
        labels = {".cls": b"1", ".json": b'{"label": 2}', ".txt": b"a caption"}
        files = [("0.jpg", make_jpeg(0)), *((f"0{suffix}", labels[suffix]) for suffix in order)]
        write(tmp_path / f"p{number}-0.tar", [*files, ("1.jpg", make_jpeg(1)), ("1.cls", b"0")])
        assert open_data(str(tmp_path / f"p{number}-0.tar"), WHOLE).train.targets.strata().tolist() == [1, 0]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar_is_indexed_as_tarfile_does(tmp_path, make_jpeg, form):
    """With long names, names that are not ASCII, folders and links between the files."""
    names = ["a/0", "folder/" + 60 * "x" + "/" + 70 * "y", "ünï/9"] + (
        ["z" * 250] if form != tarfile.USTAR_FORMAT else []
    )
    with tarfile.open(tmp_path / "f-0.tar", "w", format=form) as archive:
        for name in names:
            for kind, suffix, data in (
                (tarfile.DIRTYPE, "", b""),
                (tarfile.SYMTYPE, ".png", b""),
                (tarfile.REGTYPE, ".jpg", make_jpeg(len(name))),
                (tarfile.REGTYPE, ".cls", b"1"),
            ):
                member = tarfile.TarInfo(name + suffix)
                member.type, member.size, member.linkname = kind, len(data), "x" if suffix == ".png" else ""
                archive.addfile(member, io.BytesIO(data))
    images = open_data(str(tmp_path / "f-0.tar"), WHOLE).train
    assert [images.key(index) for index in range(len(names))] == [f"f-0.tar/{name}.jpg" for name in names]
    assert [images.encoded(index) for index in range(len(names))] == [make_jpeg(len(name)) for name in names]


def written_in(folder: Path) -> dict[Path, int]:
    """When each file was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_large_index_is_made_once_and_memory_mapped(tmp_path, make_jpeg, monkeypatch, large_from_10, cache):
    """Until a shard changes; and as many shards as there are need few open files."""
    monkeypatch.setattr(shards_module, "OPEN_FILES", 2)  # of five shards
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=5)
    first, made = open_data(spec, WHOLE).train, written_in(cache / "indexes")
    before = len(os.listdir("/proc/self/fd"))
    again = open_data(spec, WHOLE).train
    assert written_in(cache / "indexes") == made
    assert isinstance(again.images.index.sizes if hasattr(again, "images") else again.index.sizes, np.memmap)
    for index in range(50):
        assert again.encoded(index) == first.encoded(index) == make_jpeg(index)
        assert again.key(index) == first.key(index)
    assert len(os.listdir("/proc/self/fd")) <= before + len(indexing.ShardIndex._fields) + 4  # as memory maps
    os.utime(tmp_path / "a-003.tar", (1, 1))
    assert len(open_data(spec, WHOLE).train) == 50
    assert written_in(cache / "indexes") != made


def test_the_parts_of_a_large_index_are_stored_beside_it(tmp_path, make_jpeg, monkeypatch, cache):
    """The same images are held out as of a small one, which is not stored; processes share the arrays."""
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=5)
    config = DataConfig(test_fraction=0.2, validation_fraction=0.2)
    expected = [[part.key(index) for index in range(len(part))] for part in open_data(spec, config)[:3]]
    assert not list((cache / "indexes").glob("*/*"))
    monkeypatch.setattr(indexing, "LARGE", 10)
    monkeypatch.setattr(held_out, "ROWS", 16)  # several parts of rows
    made = list[object]()
    for again in range(2):
        parts = open_data(spec, config)[:3]
        made.append(written_in(cache / "indexes"))
        assert made[0] == made[again]
        assert [[part.key(index) for index in range(len(part))] for part in parts] == expected
        for part in parts:
            assert isinstance(part.targets.numbers, np.memmap)
            for index in range(len(part)):
                number = int(part.key(index).rsplit("/", 1)[1].removesuffix(".jpg"))
                assert (part.targets.numbers[index], part.encoded(index)) == (number % 2, make_jpeg(number))


def test_stored_parts_that_a_power_cut_has_damaged_are_made_again(tmp_path, make_jpeg, large_from_10, cache):
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=5)
    config = DataConfig(test_fraction=0.2)
    expected = open_data(spec, config).test.all_keys()
    (file,) = (cache / "indexes").glob("*/test-*-2/held_out/numbers.npy")
    content = file.read_bytes()
    for left in (0, len(content) // 2):
        file.write_bytes(content[:left])
        assert open_data(spec, config).test.all_keys() == expected
        assert file.read_bytes() == content


def test_parts_that_cannot_be_stored_are_the_same(tmp_path, make_jpeg, large_from_10, cache):
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=5)
    expected = open_data(spec, DataConfig(test_fraction=0.2))
    (stored,) = expected.test.cache.parents[1].glob("test-*-2")
    shutil.rmtree(stored)
    stored.write_bytes(b"")  # in the place of the folder
    found = open_data(spec, DataConfig(test_fraction=0.2))
    assert stored.is_file()
    assert not isinstance(found.test.targets.numbers, np.memmap)
    for part, other in ((found.train, expected.train), (found.test, expected.test)):
        assert [part.key(index) for index in range(len(part))] == [other.key(i) for i in range(len(other))]


def test_processes_that_train_together_read_different_shards(tmp_path, make_jpeg, cache):
    """All images in an epoch: each shard by one process, and by no other."""
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=4)
    memory = fsspec.filesystem("memory")
    for file in Path(spec).parent.glob("*.tar"):
        memory.pipe_file(f"/together/{file.name}", file.read_bytes())
    images = open_data("memory://together/a-{000..003}.tar", WHOLE).train
    read = []
    for rank in range(2):
        loader = image_loader(
            images,
            preprocessing=vt.Preprocessing(size=(8, 8)),
            augmentation=AugmentationConfig(),
            batch_size=5,
            seed=0,
            rank=rank,
            world_size=2,
        )
        read.append({index for batch in loader.epoch(0) for index in batch.indices.tolist()})
        assert len({index // 10 for index in read[rank]}) == 2
    assert read[0] | read[1] == set(range(40))


def test_shards_elsewhere_are_fetched_into_a_cache_of_limited_size(tmp_path, make_jpeg, monkeypatch, cache):
    """Read shard by shard; those used longest ago are removed; a run resumes from its URL."""
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=4)
    memory = fsspec.filesystem("memory")
    for number in range(4):
        memory.pipe_file(f"/bucket/a-{number:03}.tar", (tmp_path / f"a-{number:03}.tar").read_bytes())
    memory.pipe_file("/bucket/classes.txt", b"cat\ndog\n")
    size = (tmp_path / "a-000.tar").stat().st_size
    config = WHOLE.model_copy(update={"form": FetchedForm(cache_gb=2.5 * size / 1e9)})
    here, there = open_data(spec, WHOLE).train, open_data("memory://bucket/a-{000..003}.tar", config).train
    assert there.classes == ("cat", "dog")
    assert there.blocks.tolist() == np.repeat(range(4), 10).tolist()
    assert [there.encoded(index) for index in range(40)] == [here.encoded(index) for index in range(40)]
    assert len(list((cache / "remote").glob("*.tar"))) == 2
    assert len(find_shards("memory://bucket/*.tar")) == 4
    with pytest.raises(InputError, match=r"no shard memory://bucket/a-004\.tar"):
        open_data("memory://bucket/a-{000..004}.tar", config)
    monkeypatch.setattr(remote_shards.time, "sleep", lambda seconds: None)  # before each attempt
    memory.pipe_file("/bucket/a-000.tar", b"short")  # it has changed since it was listed
    for file in (cache / "remote").glob("*.tar"):
        file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        indexing.index_shard(
            find_shards(spec.replace("{000..003}", "{000..000}"))[0]._replace(
                location="memory://bucket/a-000.tar"
            ),
            1e9,
        )


def test_shards_on_the_hub_are_no_dataset_of_the_hub():
    assert find_source("hf://datasets/org/name/a-{000..003}.tar").form == "fetched"
    assert find_source("hf:org/name").form == "hub"
    assert is_url("hf://datasets/org/name/photo.jpg")


def test_a_shard_that_another_process_removes_at_once_is_read(tmp_path, make_jpeg, monkeypatch, cache):
    """Another process that makes room may remove a shard as soon as it is there, before it is used here."""
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=2)
    memory = fsspec.filesystem("memory")
    for number in range(2):
        memory.pipe_file(f"/removed/a-{number:03}.tar", (tmp_path / f"a-{number:03}.tar").read_bytes())
    replace = os.replace

    def removed_at_once(beside, file):
        replace(beside, file)
        if str(file).endswith(".tar"):
            os.unlink(file)

    monkeypatch.setattr(os, "replace", removed_at_once)
    here, there = open_data(spec, WHOLE).train, open_data("memory://removed/a-{000..001}.tar", WHOLE).train
    assert [there.encoded(index) for index in range(20)] == [here.encoded(index) for index in range(20)]
    assert not list((cache / "remote").glob("*.tar"))


# Object stores: S3 as moto plays it on this machine, and files over HTTP.


@pytest.fixture(scope="module")
def s3():
    """The file system of a server of this machine, with a bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    pytest.importorskip("s3fs")
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            patch.setenv(name, "us-east-1")
        system = fsspec.filesystem("s3")
        system.mkdir("bucket")
        yield system
    server.stop()


@pytest.fixture
def spec(tmp_path, make_jpeg):
    (tmp_path / "here").mkdir()
    return shards(tmp_path / "here", make_jpeg, lambda number: (".cls", str(number % 2).encode()), count=4)


def images_of(spec, **settings):
    return open_data(spec, WHOLE.model_copy(update=settings)).train


def contents(images):
    return [images.encoded(index) for index in range(len(images))]


@pytest.mark.slow
def test_shards_in_s3(s3, spec, tmp_path, cache):
    """The images of the files, in a cache of limited size; what changes there is fetched again."""
    s3.put(str(tmp_path / "here"), "bucket/shards", recursive=True)
    size = (tmp_path / "here" / "a-000.tar").stat().st_size
    form = FetchedForm(cache_gb=2.5 * size / 1e9)
    there, here = images_of("s3://bucket/shards/a-{000..003}.tar", form=form), images_of(spec)
    assert contents(there) == contents(here)
    assert there.targets.strata().tolist() == here.targets.strata().tolist()
    assert len(list((cache / "remote").glob("*.tar"))) == 2
    assert contents(images_of("s3://bucket/shards/*.tar")) == contents(here)
    s3.put(str(tmp_path / "here" / "a-001.tar"), "bucket/shards/a-000.tar")
    s3.invalidate_cache()
    assert contents(images_of("s3://bucket/shards/a-{000..000}.tar")) == contents(here)[10:20]
    with pytest.raises(InputError, match=r"there is no shard s3://bucket/shards/a-004\.tar"):
        images_of("s3://bucket/shards/a-{000..004}.tar")
    with pytest.raises(InputError, match="nowhere"):
        images_of("s3://nowhere/a-{000..001}.tar")


@pytest.mark.slow
def test_a_run_is_copied_to_s3_and_resumes_from_there(s3, tmp_path):
    """Milestones and the newest checkpoints, and not those that are removed here."""
    tiny = {"model.width": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 16}
    settings = {
        **tiny,
        "training.records.save_every": 0,
        "training.records.keep_every": 4,
        "training.batch_size": 256,
        "training.records.upload": "s3://bucket/runs/digits",
    }
    out, length = tmp_path / "digits", "training.length"
    vt.train("digits", settings={**settings, length: "9 steps"}, out=out, progress=False)
    here = {path.relative_to(out).as_posix() for path in (out / "checkpoints").rglob("*") if path.is_file()}
    there = {name.removeprefix("bucket/runs/digits/") for name in s3.find("bucket/runs/digits")}
    assert Checkpointer(out / "checkpoints").steps() == [4, 8, 9]
    assert there == {*here, "config.toml", "split.csv", "metrics.jsonl"}
    back = tmp_path / "back"
    s3.get("bucket/runs/digits", str(back), recursive=True)
    run = vt.Run(back).resume(steps=12, progress=False)
    assert run.metrics[-1]["step"] == 12
    assert "bucket/runs/digits/checkpoints/step-000000012.json" in s3.find("bucket/runs/digits")


@pytest.mark.slow
def test_a_store_that_refuses_stops_no_training(s3, tmp_path):
    states = Checkpointer(tmp_path / "run" / "checkpoints", upload="s3://no-such-bucket/run")
    learner = vt.create("ViT-Ti/16", image_size=16, num_classes=2, width=16, depth=1, heads=2, mlp_dim=16)
    with pytest.warns(UserWarning, match="cannot copy the checkpoints to s3://no-such-bucket/run: "):
        states.save(Learner.begin(learner, TrainingConfig()))
    assert states.steps() == [0]


@pytest.mark.slow
def test_shards_over_http(spec, tmp_path, cache):
    pytest.importorskip("aiohttp")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "here"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"http://127.0.0.1:{server.server_port}"
    try:
        assert contents(images_of(f"{where}/a-{{000..003}}.tar")) == contents(images_of(spec))
        assert len(list((cache / "remote").glob("*.tar"))) == 4
        with pytest.raises(InputError, match=f"there is no shard {where}/a-004.tar"):
            images_of(f"{where}/a-{{000..004}}.tar")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(InputError, match="cannot be reached"):
        images_of(f"{where}/b-{{000..001}}.tar")
