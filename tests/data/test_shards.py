"""Tar shards are read in place, and tricks in them are refused."""

import io
import tarfile

import pytest

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError


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
        assert splits.train.targets[index] == number % 2


def test_class_names_stand_beside_the_shards(tmp_path, make_jpeg):
    spec = shards(tmp_path, make_jpeg, lambda number: (".cls", str(number % 2).encode()))
    (tmp_path / "classes.txt").write_text("cat\ndog\nemu\n")
    assert open_data(spec, DataConfig()).train.classes == ("cat", "dog", "emu")
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(InputError, match="names 1 classes"):
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
    with pytest.raises(InputError, match="is not a label"):
        open_data(str(tmp_path / "z-0.tar"), DataConfig())


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
    assert splits.train.targets.tolist() == [row, [1, 1]]


@pytest.mark.parametrize("label", [b'{"label": {"cat": 2}}', b'{"label": {"cat": "much"}}', b"[1]", b"{"])
def test_what_is_no_label_is_said(tmp_path, make_jpeg, label):
    write(tmp_path / "m-0.tar", [("0.jpg", make_jpeg(0)), ("0.json", label)])
    with pytest.raises(InputError, match=r"0\.json is not a label: write a class"):
        open_data(str(tmp_path / "m-{0..0}.tar"), DataConfig())
