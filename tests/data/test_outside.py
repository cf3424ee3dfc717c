"""What comes from outside is taken for no more than it is: files that are none, numbers without a range, any
bytes. Each ends in a bad image or one sentence, at once."""

import contextlib
import io
import os
import socket
import struct
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import vitreous as vt
from vitreous.cli.printing import print_json
from vitreous.data.config import DataConfig
from vitreous.data.files import file_digest
from vitreous.data.image_list import ImageList, image_list, read_url
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.sources import open_data
from vitreous.data.sources.folders import index_images
from vitreous.data.sources.manifests import read_table
from vitreous.data.sources.remote import expanded
from vitreous.data.sources.shard_index import members, read_label
from vitreous.errors import InputError, check_free
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage, bytes_of_file, stored
from vitreous.outside import finite_number, parse_digits, read_regular

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def special(kind, path):
    """Something named like an image that is no file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as found:
            found.bind(str(path)[-100:])
    return path


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_is_no_file_is_never_read(photos, kind, monkeypatch):
    monkeypatch.chdir(photos / "cat")
    path = special(kind, photos / "cat" / "x.png") if kind != "socket" else photos / "cat" / "x.png"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as found:
            found.bind("x.png")
    splits = open_data(str(photos), DataConfig(test_fraction=0))
    assert len(splits.train) == 20
    assert [(each.kind, each.found) for each in splits.train.findings] == [("special", 1)]
    for read in (bytes_of_file, file_digest, lambda path: ImageList([str(path)]).encoded(0)):
        with pytest.raises(BadImage, match="not a regular file"):
            read(path)
    with pytest.raises(InputError, match="cannot read"):
        stored(path)
    found = image_list(str(path))
    assert list(dict(evaluation(found).bad)) == [str(path)]


def evaluation(images):
    loader = evaluation_loader(images, preprocessing=Preprocessing(size=(16, 16)), batch_size=8)
    list(loader)
    return loader


def test_reading_is_bounded(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100))
    assert len(read_regular(tmp_path / "a", 100)) == 100
    with pytest.raises(OSError, match="more than 99 bytes"):
        read_regular(tmp_path / "a", 99)


@given(st.text(max_size=24) | st.integers().map(str) | st.integers(0, 10**9).map(str))
@QUICK
def test_a_whole_number_is_digits_alone(text):
    plain = 0 < len(text) <= 20 and set(text) <= set("0123456789") and int(text) < 2**63
    if plain:
        assert parse_digits(text) == int(text)
    else:
        with pytest.raises(ValueError, match="not"):
            parse_digits(text)


@given(st.text(max_size=12) | st.floats().map(str))
@QUICK
def test_a_number_is_finite(text):
    try:
        number = finite_number(text, 0, 1)
    except ValueError:
        return
    assert 0 <= number <= 1


def tar(size_field, content=b"x" * 700):
    """A tar file of one image whose header has this for its size, with the right checksum."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("a.jpg")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    data = bytearray(file.getvalue())
    data[124:136] = size_field
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


SIZES = st.sampled_from(
    [b"-0000001000\0", b"-0000002000\0", b"+0000001274\0", b"0_000001274\0", b" 000001274 \0"]
)


@pytest.mark.timeout(120)
@given(
    SIZES
    | st.binary(min_size=12, max_size=12)
    | st.text("01234567 -+_\0", min_size=12, max_size=12).map(str.encode)
)
@QUICK
def test_the_files_of_a_tar_lie_inside_it(tmp_path_factory, size):
    path = tmp_path_factory.getbasetemp() / "made.tar"
    path.write_bytes(tar(size))
    with path.open("rb") as file:
        try:
            found = list(members(str(path), file.fileno()))
        except InputError:
            return
    assert all(
        offset >= 0 and length >= 0 and offset + length <= path.stat().st_size for _, offset, length in found
    )
    assert len(found) <= path.stat().st_size // 512


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"label": ' * 50_000, b"\xff", b'{"label": {"a": NaN}}']
)
def test_a_label_that_is_none(content):
    with pytest.raises(InputError, match="is not a label"):
        read_label(".json", content, "a.json")


def encode(form):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (21, 34, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


FILES = {form: encode(form) for form in ("JPEG", "PNG", "PPM", "GIF", "BMP", "TIFF", "WEBP")}
HEADS = [
    *(b"P6\n%d %d\n255\n" % size for size in ((0, 0), (0, 5), (2**31, 2**31), (10**30, 1))),
    *(b"P6\n" + b"9" * 5000 + b" 1\n255\n", b"P6\n-1 5\n255\n", b"P5\n1 1\n0\n"),
]


def is_image_or_bad(data):
    """Whatever the bytes are, there are pixels or a bad image; of both ways to read them."""
    with contextlib.suppress(BadImage):
        encoded = stored(data, "made", 3)
        assert encoded.pixels().shape == (3, *encoded.size)
    with contextlib.suppress(BadImage):
        stored(data, "made").check()


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_a_head_without_pixels(head):
    is_image_or_bad(head)
    with pytest.raises(BadImage):
        stored(head, "made", 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FILES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_bytes_are_a_bad_image(form, data):
    content = bytearray(FILES[form])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    is_image_or_bad(bytes(content[: data.draw(st.integers(0, len(content)))]))


@pytest.mark.parametrize("length", [200, 400, 1000])
def test_a_png_that_ends_too_early_says_so(length):
    with pytest.raises(BadImage, match="the file ends too early") as caught:
        stored(FILES["PNG"][:length], "made", 3).pixels()
    assert "EXIF" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_not_numbers(value):
    file, pixels = io.BytesIO(), np.ones((8, 8), np.float32)
    pixels[3, 4] = value
    Image.fromarray(pixels).save(file, "TIFF")
    with pytest.raises(BadImage, match="not all numbers"):
        stored(file.getvalue(), "made", 3).pixels()


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "cp949"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(
    names=st.lists(st.text("가나다라힣abc 1", min_size=1, max_size=6).map(str.strip).filter(bool), min_size=2)
)
@settings(max_examples=25, deadline=None)
def test_a_table_is_the_same_in_every_encoding(tmp_path_factory, encoding, names):
    path = tmp_path_factory.getbasetemp() / "manifest.csv"
    rows = ["path,label", *(f"{number}.png,{name}" for number, name in enumerate(names))]
    path.write_bytes("\r\n".join(rows).encode(encoding))
    assert read_table(path).column("label") == names


def test_a_table_of_another_encoding_is_said(tmp_path, caplog):
    path = tmp_path / "manifest.csv"
    path.write_bytes("path,label\n1.png,고양이\n".encode("cp949"))
    assert read_table(path).column("label") == ["고양이"]
    assert "read as CP949" in caplog.text
    path.write_bytes(b"path,label\n\xff\xff,a\n")
    with pytest.raises(InputError, match="neither UTF-8 nor UTF-16 nor CP949"):
        read_table(path)


@pytest.mark.parametrize(
    "content", ["path,label\n" + "x" * 200_000 + ",a\n", 'path,label\n"a,b\n' + "c,d\n" * 50_000]
)
def test_a_table_with_an_endless_field(tmp_path, content):
    (tmp_path / "m.csv").write_text(content)
    with pytest.raises(InputError, match="is not a table"):
        read_table(tmp_path / "m.csv")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("spec", ["s-{000..99999999}.tar", "s-{0.." + "9" * 400 + "}.tar", "s-{5..1}.tar"])
def test_names_of_shards_are_counted_before_they_are_made(spec):
    with pytest.raises(InputError, match="write"):
        expanded(spec)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"\0" * 50])
def test_a_damaged_index_is_made_again(photos, damage, monkeypatch, tmp_path):
    """Such as a file without content, as after a power cut."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("vitreous.data.sources.folders.LARGE", 1)  # so that it is stored
    monkeypatch.setattr("vitreous.data.sources.folders.SETTLED", -(10**12))  # whatever its age
    index_images(photos, ("cat", "dog"))
    (file,) = (tmp_path / "cache" / "indexes").glob("*.npz")
    content = file.read_bytes()
    for broken in (damage, content[:20], content[:200] + b"\xff" * 40 + content[240:]):
        file.write_bytes(broken)
        assert len(index_images(photos, ("cat", "dog")).paths) == 20


def test_an_idx_file_with_sides_beyond_its_bytes(tmp_path):
    from vitreous.data.sources.small import read_idx

    for sides in ((2**32 - 1,) * 3, (1, 1), ()):
        head = bytes((0, 0, 8, len(sides))) + struct.pack(f">{len(sides)}I", *sides)
        (tmp_path / "train-images-idx3-ubyte").write_bytes(head)
        with pytest.raises(InputError):
            read_idx(tmp_path, "train-images-idx3-ubyte")


def test_the_mark_of_windows_is_not_text(tmp_path):
    """Notepad saves config.toml, classes.txt and others with one, and with its own line ends."""
    from vitreous.outside import read_text

    (tmp_path / "a.toml").write_bytes("\ufeffa = 1\r\nb = '가'\r\n".encode())
    assert read_text(tmp_path / "a.toml") == "a = 1\nb = '가'\n"


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    """Nor is one of /proc that would wait, which is a regular file and has no size."""
    with (tmp_path / "sparse.png").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="more than"):
        read_regular(tmp_path / "sparse.png")


def test_a_regular_file_that_would_wait_is_no_image(tmp_path, monkeypatch):
    class Waiting(io.BytesIO):
        def read(self, *_):
            return None

    (tmp_path / "a.png").write_bytes(b"x")
    opened = (tmp_path / "a.png").open("rb")
    waiting = Waiting()
    waiting.fileno = opened.fileno
    monkeypatch.setattr(os, "fdopen", lambda *_, **__: waiting)  # as of some files of /proc
    with opened, pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "a.png")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_a_table_without_the_mark_of_its_encoding_is_named(tmp_path, encoding):
    (tmp_path / "l.csv").write_bytes("path,label\na.png,cat\n".encode(encoding))
    with pytest.raises(InputError, match="without a byte-order mark"):
        open_data(str(tmp_path / "l.csv"), DataConfig())


@pytest.mark.parametrize(("mode", "name"), [("w:gz", "gzip"), ("w:bz2", "bzip2"), ("w:xz", "xz")])
def test_a_compressed_shard_is_named(tmp_path, mode, name):
    with tarfile.open(tmp_path / "a.tar", mode) as archive:
        archive.addfile(tarfile.TarInfo("0.png"))
    with pytest.raises(InputError, match=f"it is a {name} file: unpack it first"):
        open_data(str(tmp_path / "a.tar"), DataConfig())


def test_json_is_printed_to_a_text_in_memory():
    with contextlib.redirect_stdout(io.StringIO()) as written:
        print_json({"name": "고양이"})
    assert written.getvalue() == '{"name":"고양이"}\n'


def test_shards_are_not_packed_into_what_they_are_of(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(3):
            Image.new("RGB", (8, 8), (index, 0, 0)).save(tmp_path / "photos" / name / f"{index}.png")
    with pytest.raises(InputError, match="would become part of the data"):
        vt.pack_data(tmp_path / "photos", tmp_path / "photos" / "packed")
    assert not (tmp_path / "photos" / "packed").exists()


def test_a_protocol_without_its_package_says_how_to_install_it(monkeypatch):
    def missing(path):
        raise ImportError('HTTPFileSystem requires "requests" and "aiohttp" to be installed')

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)  # as it raises without them
    with pytest.raises(InputError, match=r"requires .*: pip install requests aiohttp$"):
        read_url("https://example.org/a.png")


def test_a_folder_above_one_to_be_made_is_taken(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not overwritten"):
        check_free(tmp_path / "new" / "..")
