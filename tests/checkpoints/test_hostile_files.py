"""Files from outside may be cut, damaged or made to harm. Reading them runs nothing, allocates nothing that
the file does not hold, and ends in one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import resource
import struct
import time
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import vitreous as vt
from vitreous.checkpoints.files import read_checkpoint
from vitreous.checkpoints.pickles import OPCODES
from vitreous.checkpoints.tensors import read_npz, read_safetensors


def refused(path: Path, **overrides: Any) -> str:
    """The one sentence with which `path` is refused, at once and without memory."""
    before, start = peak_memory(), time.process_time()
    with pytest.raises(vt.InputError) as caught:
        vt.load(path, **overrides)
    assert time.process_time() - start < 10  # of this process: a busy machine does not count
    assert peak_memory() - before < 64
    return str(caught.value)


def peak_memory() -> float:
    """MB that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Harm:
    """An object whose unpickling writes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "harmed"
    torch.save({"weight": torch.zeros(1), "more": Harm(mark)}, tmp_path / "zip.pth")
    torch.save({"more": Harm(mark)}, tmp_path / "legacy.pth", _use_new_zipfile_serialization=False)
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Harm(mark)))
    for path in tmp_path.glob("*.pth"):
        assert re.search("Python objects|no known format", refused(path))
    assert not mark.exists()


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "harmed"
    np.savez(tmp_path / "m.npz", **{"embedding/kernel": np.array([Harm(mark)], dtype=object)})
    assert "no Python objects" in refused(tmp_path / "m.npz")
    assert not mark.exists()


def test_a_header_that_claims_terabytes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 2**42) + b"{" + b" " * 80)
    assert "header of 4398046511104 bytes" in refused(path)
    told = {"w": {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}}
    header = json.dumps(told).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert len(path.read_bytes()) < 120
    assert "'w' is damaged" in refused(path)


def npy(shape: str, data: bytes = b"") -> bytes:
    """The bytes of an .npy that says it has this shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_array_that_claims_terabytes(compression: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w", compression) as archive:
        archive.writestr("embedding/kernel.npy", npy("(1048576, 1048576)"))
    assert "its size does not fit" in refused(tmp_path / "m.npz")


def test_an_archive_that_unfolds_without_end(tmp_path: Path) -> None:
    """Three gigabytes of zeros in three megabytes: seen from the table of contents, and refused unread."""
    path = tmp_path / "m.npz"
    count = 3 * 2**28
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        file.write(npy(f"({count},)"))
        for _ in range(48):
            file.write(bytes(2**20))
    folded = bytearray(path.read_bytes())
    claimed = 4 * count + len(npy(f"({count},)"))
    place = folded.rindex(b"PK\x01\x02")
    folded[place + 24 : place + 28] = struct.pack("<I", claimed)
    path.write_bytes(folded)
    assert "absurd size" in refused(path)


def test_a_tensor_larger_than_what_is_stored_of_it(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(2**30, 2**10)}, tmp_path / "m.pth")
    assert "not a plain tensor" in refused(tmp_path / "m.pth")


def torchscript(path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    """An archive whose modules are described by these bytes."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("m/constants.pkl", b"\x80\x02).")
        archive.writestr("m/data.pkl", pickled)


def test_only_known_operations_of_a_pickle_are_carried_out(tmp_path: Path) -> None:
    """Not BYTEARRAY8, which makes as many bytes as it says before one is read."""
    for code in set(range(256)) - {each[0] for each in OPCODES}:
        torchscript(tmp_path / "m.pt", b"\x80\x05" + bytes([code]) + struct.pack("<Q", 6 * 2**30) + b"x.")
        refused(tmp_path / "m.pt")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_objects_that_unfold_into_far_more_than_the_file(compression: int, tmp_path: Path) -> None:
    torchscript(tmp_path / "m.pt", b"\x80\x02" + b"]" * (2**24 if compression == 0 else 2**22), compression)
    assert "far larger" in refused(tmp_path / "m.pt")


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=2, max_size=5),
)
@settings(max_examples=50, deadline=None)
def test_tensors_that_share_bytes(places: list[tuple[int, int]]) -> None:
    """Of four numbers in a file, 400 layers could be made."""
    header = {
        f"w{n}": {"dtype": "F32", "shape": [count], "data_offsets": [4 * begin, 4 * (begin + count)]}
        for n, (begin, count) in enumerate(places)
    }
    taken = [place for begin, count in places for place in range(begin, begin + count)]
    encoded = json.dumps(header).encode()
    with TemporaryDirectory() as folder:
        path = Path(folder, "m.safetensors")
        path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(32))
        if len(set(taken)) == len(taken):
            assert len(read_safetensors(path)) == len(places)
        else:
            with pytest.raises(vt.InputError, match="share bytes"):
                read_safetensors(path)


@pytest.mark.parametrize("format", ["vitreous", "google"])
def test_a_flipped_bit_of_a_weight_is_seen(format: str, tmp_path: Path, tiny: Any) -> None:
    """By the checksums that are stored: our own, and those of the zip archive."""
    path = tmp_path / ("m.npz" if format == "google" else "m")
    vt.save(tiny(mlp="gelu_tanh"), path, format=format)
    file = path if path.is_file() else path / "model.safetensors"
    whole = file.read_bytes()
    read = read_npz if format == "google" else read_safetensors
    rng, seen = np.random.default_rng(0), 0
    numbers = [entry.read().numpy().tobytes() for entry in read(file).values()]
    numbers = [each for each in numbers if len(each) > 64 and whole.count(each) == 1]
    for content in numbers:
        begin = whole.index(content)
        place = begin + int(rng.integers(len(content)))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(vt.InputError, match="damaged"):
            [entry.read() for entry in read(file).values()]
        seen += 1
    assert seen == len(numbers) > 10


@pytest.mark.parametrize("depth", [33, 4096])
def test_a_description_of_more_layers_than_there_are_weights(depth: int, tmp_path: Path, tiny: Any) -> None:
    vt.save(tiny(), tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    told = json.loads(config.read_text())
    config.write_text(json.dumps(told | {"model": told["model"] | {"depth": depth}}))
    start = time.process_time()
    assert "missing weights" in refused(tmp_path / "m")
    assert time.process_time() - start < 1


def test_a_configuration_of_absurd_size(tmp_path: Path, tiny: Any) -> None:
    vt.save(tiny(), tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    told = json.loads(config.read_text())
    for changes in (
        {"depth": 10**9},
        {"width": 2**62, "heads": 1},
        {"image_size": [2**30, 2**30], "position": {"kind": "sincos-2d"}},
        {"image_size": [2**15, 2**15], "position": {"kind": "relative"}},
    ):
        config.write_text(json.dumps(told | {"model": told["model"] | changes}))
        refused(tmp_path / "m")


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "..", "", "a/b.safetensors", "a\\..\\b"]
)
def test_a_shard_elsewhere(name: str, tmp_path: Path) -> None:
    save_file({"w": torch.zeros(1)}, tmp_path / "outside.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    message = refused(folder)
    assert "must be in the folder" in message or "there is no" in message or "cannot read" in message


def test_shards_that_are_whole(tmp_path: Path, tiny: Any) -> None:
    """The same index without tricks is read."""
    model = tiny()
    vt.save(model, tmp_path / "m", format="huggingface")
    tensors = {name: entry.read().clone() for name, entry in read_checkpoint(tmp_path / "m").tensors.items()}
    (tmp_path / "m" / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{number}.safetensors"
        save_file({name: tensors[name] for name in part}, tmp_path / "m" / file)
        places |= dict.fromkeys(part, file)
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(vt.load(tmp_path / "m")(images), model(images))
    index.write_text(json.dumps({"weight_map": places | {"missing": file}}))
    assert "missing is not in" in refused(tmp_path / "m")


@cache  # files of older PyTorch hold addresses, whose number of digits differs each time
def written(format: str) -> tuple[bytes, str]:
    """A small whole file of a format, and its ending."""
    torch.manual_seed(0)
    buffer = io.BytesIO()
    tensors = {
        "patch_embed.proj.weight": torch.randn(8, 3, 8, 8),
        "blocks.0.attn.qkv.weight": torch.randn(24, 8),
        "pos_embed": torch.randn(1, 5, 8),
    }
    if format == "safetensors":
        from safetensors.torch import save

        return save(tensors), ".safetensors"
    if format == "npz":
        np.savez(buffer, **{name: tensor.numpy() for name, tensor in tensors.items()})
        return buffer.getvalue(), ".npz"
    if format == "folded npz":
        np.savez_compressed(buffer, **{name: tensor.numpy() for name, tensor in tensors.items()})
        return buffer.getvalue(), ".npz"
    torch.save(tensors, buffer, _use_new_zipfile_serialization=format == "pth")
    return buffer.getvalue(), ".pth"


@pytest.mark.parametrize("format", ["safetensors", "npz", "folded npz", "pth", "legacy pth"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_damaged_files(format: str, data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cut anywhere, or with bytes changed: a clean error, or tensors no larger than the file holds."""
    whole, ending = written(format)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(
            st.integers(0, len(whole) - 1)
            | st.integers(0, 400)
            | st.integers(len(whole) - 400, len(whole) - 1)
        )
        damaged[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(whole))) :]
    path = tmp_path_factory.getbasetemp() / f"damaged{ending}"
    path.write_bytes(damaged)
    before = peak_memory()
    with contextlib.suppress(vt.InputError):
        tensors = read_checkpoint(path).tensors
        for entry in tensors.values():
            assert entry.read().untyped_storage().nbytes() <= 1100 * len(whole)
    assert peak_memory() - before < 64


@pytest.mark.parametrize("ending", [".pth", ".npz"])
@pytest.mark.parametrize("flag", [0x1, 0x20, 0x40, 0x800])
def test_a_member_whose_own_header_is_damaged(ending: str, flag: int, tmp_path: Path) -> None:
    """Encrypted, patched, or a name that is not UTF-8, as its flags say: the directory of the archive does
    not."""
    whole, _ = written("pth" if ending == ".pth" else "folded npz")
    damaged = bytearray(whole)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        for info in archive.infolist():
            if "/data/" in info.filename or ending == ".npz":
                damaged[info.header_offset + 6 : info.header_offset + 8] = flag.to_bytes(2, "little")
                damaged[info.header_offset + 30] = 0xEA
    path = tmp_path / f"damaged{ending}"
    path.write_bytes(damaged)
    with pytest.raises(vt.InputError, match="damaged"):
        [entry.read() for entry in read_checkpoint(path).tensors.values()]


@pytest.mark.parametrize("name", ["hf_vit", "hf_dinov2", "timm_vit"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_strange_descriptions(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A config.json with any value in any place: a model or one clean error."""
    golden = Path(__file__).parents[1] / "golden" / "data" / name
    told = json.loads((golden / "config.json").read_text())
    branch: Any = told
    key = data.draw(st.sampled_from(sorted(told)))
    while isinstance(branch[key], dict) and branch[key] and data.draw(st.booleans()):
        branch = branch[key]
        key = data.draw(st.sampled_from(sorted(branch)))
    values: st.SearchStrategy[Any] = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=4,
    )
    branch[key] = data.draw(values)
    folder = tmp_path_factory.getbasetemp() / f"strange-{name}"
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes((golden / "model.safetensors").read_bytes())
    (folder / "config.json").write_text(json.dumps(told))
    with contextlib.suppress(vt.InputError):
        vt.load(folder)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "m.pth").write_text("hello")
    assert "not a known kind of checkpoint" in refused(tmp_path / "m.pth")
    (tmp_path / "empty.pth").touch()
    assert "is empty: its download may have failed" in refused(tmp_path / "empty.pth")
    (tmp_path / "folder").mkdir()
    assert "contains no weights" in refused(tmp_path / "folder")
    torch.save([1, 2, 3], tmp_path / "list.pth")
    assert "no state dict" in refused(tmp_path / "list.pth")
    torch.save({"w": torch.zeros(2)}, tmp_path / "other.pth")
    assert "no known format has weights like w" in refused(tmp_path / "other.pth")
    assert "there is no checkpoint at" in refused(tmp_path / "nowhere.npz")
