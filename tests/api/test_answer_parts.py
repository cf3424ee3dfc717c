"""Any number of images into a folder of Parquet files: every form of DATA, resumed, shared; and
`vt.Predictor` as a function for other engines."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.models.vit import ViT

pytest.importorskip("pyarrow")
from pyarrow import Table, parquet

COUNT = 10


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same ten images as files, a manifest, shards without labels, and Parquet; in memory:// as well."""
    import fsspec

    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    files = [encoded(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)) for _ in range(COUNT)]
    (folder / "files" / "in").mkdir(parents=True)
    for number, data in enumerate(files):
        (folder / "files" / ("in" if number > 6 else ".") / f"{number}.png").write_bytes(data)
    (folder / "files" / ".hidden.png").write_bytes(files[0])
    paths = sorted(str(path.relative_to(folder)) for path in (folder / "files").rglob("[0-9].png"))
    (folder / "list.csv").write_text("path\n" + "".join(f"{path}\n" for path in paths))
    parquet.write_table(Table.from_pydict({"path": paths}), folder / "list.parquet")
    rows = [{"bytes": data, "path": None} for data in files]
    parquet.write_table(Table.from_pydict({"image": rows}), folder / "train.parquet", row_group_size=4)
    for shard in range(2):
        some = {f"{number}.png": files[number] for number in range(5 * shard, 5 * shard + 5)}
        write_tar(folder / f"shard-{shard:02d}.tar", {**some, f"{shard}.txt": b"no image"})
    memory = fsspec.filesystem("memory")
    for path in folder.rglob("*.*"):
        if path.is_file():
            memory.pipe(f"/world/{path.relative_to(folder)}", path.read_bytes())
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return rows


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten images are three parts."""
    monkeypatch.setattr("vitreous.data.image_parts.ROWS", 4)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("{0}/files", 3),
        ("{0}/list.csv", 3),
        ("{0}/list.parquet", 3),
        ("{0}/train.parquet", 3),
        ("{0}/shard-{{00..01}}.tar", 2),
        ("{0}/shard-*.tar", 2),
        ("memory://world/files/", 3),
        ("memory://world/list.csv", 3),
        ("memory://world/train.parquet", 3),
        ("memory://world/shard-{{00..01}}.tar", 2),
        ("hf:{0}/parquet", 3),
    ],
)
def test_every_form_of_data_has_the_same_features(
    model: ViT, world: Path, tmp_path: Path, small_parts: None, data: str, parts: int
) -> None:
    if "hf:" in data and not (world / "parquet").exists():
        (world / "parquet").mkdir()
        (world / "parquet" / "train.parquet").write_bytes((world / "train.parquet").read_bytes())
    found = vt.embed(model, data.format(world), out=tmp_path / "out", progress=False)
    assert (found.count, found.failed, found.values.shape) == (COUNT, (), (0, 16))
    assert len([*(tmp_path / "out").iterdir()]) == parts
    rows = rows_of(tmp_path / "out")
    assert len({row["path"] for row in rows}) == COUNT
    numbers = (
        [int(Path(row["path"]).stem) for row in rows]
        if "train" not in data and "hf" not in data
        else range(10)
    )
    files = sorted((world / "files").rglob("[0-9].png"), key=lambda path: path.stem)
    expected = vt.embed(model, files, progress=False).values[list(numbers)]
    np.testing.assert_allclose([row["features"] for row in rows], expected, atol=1e-5)


def test_masks_beside_images_in_shards_are_not_answered(model: ViT, tmp_path: Path) -> None:
    """A WebDataset's 0.seg.png, and what a Mac adds; names of several dots alone are images."""
    image = encoded(np.zeros((20, 20, 3), np.uint8))
    names = ("in/0.PNG", "in/0.seg.png", "1.png", "1.depth.16.png", "2.final.png", "in/._0.png")
    write_tar(tmp_path / "x.tar", dict.fromkeys(names, image))
    vt.embed(model, str(tmp_path / "x.tar"), out=tmp_path / "out", progress=False)
    found = [row["path"].removeprefix(f"{tmp_path / 'x.tar'}/") for row in rows_of(tmp_path / "out")]
    assert found == ["in/0.PNG", "1.png", "2.final.png"]


def test_a_source_is_answered_with_all_its_parts(model: ViT, tmp_path: Path) -> None:
    found = vt.predict(model, "synthetic:20@16", out=tmp_path / "out", progress=False)
    assert (len(found), found.out) == (20, tmp_path / "out")


def test_a_source_that_was_rewritten_is_read_again(model: ViT, tmp_path: Path) -> None:
    """In one process, under the same name; a list of paths as well."""
    source, listed = tmp_path / "cifar", tmp_path / "list.csv"
    source.mkdir()
    image = tmp_path / "0.png"
    image.write_bytes(encoded(np.zeros((20, 20, 3), np.uint8)))
    for count in (1, 2):
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            (source / f"{name}.bin").write_bytes(bytes(3073 * count))
        (source / "batches.meta.txt").write_text("\n".join("abcdefghij"))
        listed.write_text("path\n" + "0.png\n" * count)
        for data, images in ((f"cifar10:{source}", 6 * count), (listed, count)):
            out = tmp_path / f"out-{images}"
            assert vt.embed(model, data, out=out, progress=False).count == images


def test_labels_and_probabilities(model: ViT, world: Path, tmp_path: Path) -> None:
    whole = vt.predict(model, world / "files", progress=False)
    vt.predict(model, world / "files", out=tmp_path / "answers", progress=False)
    rows = rows_of(tmp_path / "answers")
    assert [row["path"] for row in rows] == [each.path for each in whole]
    for row, each in zip(rows, whole, strict=True):
        assert row["label"] == each.label
        assert row["probability"] == pytest.approx(max(row["probabilities"]))
        assert sum(row["probabilities"]) == pytest.approx(1)
    about = json.loads(parquet.read_metadata(tmp_path / "answers/part-00000.parquet").metadata[b"vitreous"])
    assert about["labels"] == list(model.labels or map(str, range(model.config.num_classes or 0)))
    vt.predict(model, world / "files", out=tmp_path / "top", top=2, progress=False)
    assert [*rows_of(tmp_path / "top")[0]] == [
        "path",
        "label",
        "probability",
        "label_2",
        "probability_2",
        "damaged",
        "error",
    ]


def test_what_is_there_is_not_computed_again_and_nothing_is_lost_or_doubled(
    model: ViT, world: Path, tmp_path: Path, small_parts: None
) -> None:
    """Whoever ends between any two batches leaves whole files alone."""
    answered: list[int] = []

    def forward(stem: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        if len(answered) in stops and stops.remove(len(answered)) is None:
            raise KeyboardInterrupt
        answered.append(len(inputs[0]))

    stops = {1, 3, 4}
    model.stem.register_forward_pre_hook(forward)
    out = tmp_path / "out"
    for expected in (0, 1, 1):
        with pytest.raises(KeyboardInterrupt):
            vt.embed(model, world / "files", out=out, batch_size=2, progress=False)
        assert len([*out.glob("*.parquet")]) == expected
    (out / ".part-00002.parquet.99.tmp").write_bytes(b"of one that was killed")
    assert vt.embed(model, world / "files", out=out, batch_size=2, progress=False).count == COUNT
    assert sum(answered) == COUNT + 4, "two batches of parts that were not complete"
    assert len({row["path"] for row in rows_of(out)}) == len(rows_of(out)) == COUNT
    assert [each.name for each in out.iterdir() if each.name.startswith(".")] == []


def test_a_folder_is_of_one_model_and_one_list_of_images(model: ViT, world: Path, tmp_path: Path) -> None:
    vt.embed(model, world / "files", out=tmp_path / "out", progress=False)
    with pytest.raises(vt.InputError, match="another model or other options"):
        vt.predict(model, world / "files", out=tmp_path / "out", progress=False)
    with pytest.raises(vt.InputError, match="other images than DATA has now"):
        vt.embed(model, world / "files" / "in", out=tmp_path / "out", progress=False)
    named = copy.deepcopy(model)
    vt.predict(model, world / "files", out=tmp_path / "named", progress=False)
    named.labels = [f"other {number}" for number in range(named.config.num_classes or 0)]
    with pytest.raises(vt.InputError, match="another model or other options"):
        vt.predict(named, world / "files", out=tmp_path / "named", progress=False)
    (tmp_path / "out/part-00000.parquet").write_bytes(b"zz")
    with pytest.raises(vt.InputError, match="was not written by vitreous"):
        vt.embed(model, world / "files", out=tmp_path / "out", progress=False)


def test_images_that_cannot_be_read_are_named_again_when_it_is_resumed(
    model: ViT, world: Path, tmp_path: Path
) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "a.png").write_bytes(b"zz")
    for _ in range(2):
        found = vt.embed(model, tmp_path / "torn", out=tmp_path / "none", progress=False)
        assert ([each.path for each in found.failed], found.count) == ([str(tmp_path / "torn" / "a.png")], 1)
    (row,) = rows_of(tmp_path / "none")
    assert row["features"] is None
    assert row["error"] == found.failed[0].reason
    assert parquet.read_schema(tmp_path / "none/part-00000.parquet").field("features").type.list_size == 16
    both = [str(tmp_path / "torn"), str(world / "files")]
    assert vt.embed(model, both, out=tmp_path / "both", progress=False).count == COUNT + 1


def test_processes_of_torchrun_share_the_parts(
    model: ViT, world: Path, tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    counts = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        counts.append(vt.embed(model, world / "files", out=tmp_path / "out", progress=False).count)
    assert counts == [6, 4]
    assert len({row["path"] for row in rows_of(tmp_path / "out")}) == COUNT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gone", "--out", "out"], "there is no gone: DATA is digits;"),
        (["shard-{00..05}.tar", "--out", "out"], "there is no shard shard-00.tar"),
        (["zz://x", "--out", "out"], "cannot be reached"),
        (["empty", "--out", "out"], "empty is a folder without images"),
        (["empty.csv", "--out", "out"], "there are no images in empty.csv"),
        (["empty.parquet", "--out", "out"], "there are no images in empty.parquet"),
        (["hf:empty", "--out", "out"], "there are no images in hf:empty"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(
    model: ViT,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("empty.csv").write_text("path\n")
    parquet.write_table(Table.from_pydict({"path": []}), "empty.parquet")
    vt.save(model, tmp_path / "model")
    assert run(["embed", str(tmp_path / "model"), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_images_of_a_batch_may_have_one_name(model: ViT, world: Path) -> None:
    files = [(world / "files" / f"{number}.png").read_bytes() for number in range(2)]
    batch = {"path": ["x.png", "x.png", "y.png"], "bytes": [b"zz", *files]}
    for options in ({}, {"top": 1}):
        answers = vt.Predictor(model, **options)(batch)
        expected = vt.Predictor(model, **options)({"bytes": files})
        assert [each is None for each in answers["error"]] == [False, True, True]
        assert answers["path"] == batch["path"]
        assert answers["probability"] == [None, *expected["probability"]]


def test_the_columns_of_every_batch_are_the_same(model: ViT, world: Path) -> None:
    good = (world / "files" / "0.png").read_bytes()
    for output, options in (("labels", {}), ("labels", {"top": 2}), ("features", {})):
        predictor = vt.Predictor(model, output, **options)
        expected = predictor({"bytes": [good, None, float("nan")]})
        assert [each is None for each in expected["error"]] == [True, False, False]
        for batch in ([b"zz", None], []):
            found = predictor({"bytes": batch})
            assert [*found] == [*expected]
            assert all(len(column) == len(batch) for column in found.values())


@pytest.mark.parametrize(
    ("output", "options", "words"),
    [
        ("features", {"top": 3}, "no option top: its options are those of output='labels'"),
        ("labels", {"topp": 3}, "no option topp: did you mean 'top'"),
        ("labels", {"top": 0}, "`top` 0 gives no label"),
    ],
)
def test_options_are_checked_before_the_first_batch(output: str, options: Any, words: str) -> None:
    with pytest.raises(vt.InputError, match=words):
        vt.Predictor("not opened", output, **options)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_row_without_a_path_is_an_image_that_cannot_be_read(
    model: ViT, world: Path, tmp_path: Path, suffix: str
) -> None:
    """The columns are found whatever their case."""
    paths = [str(world / "files" / "0.png"), None, str(world / "files" / "1.png"), None]
    if suffix == "parquet":
        parquet.write_table(Table.from_pydict({"Path": paths}), tmp_path / "list.parquet")
    else:
        (tmp_path / "list.csv").write_text("Path,label\n" + "".join(f"{path or ''},x\n" for path in paths))
    found = vt.embed(model, tmp_path / f"list.{suffix}", out=tmp_path / "out", progress=False)
    name = f"{tmp_path}/list.{suffix}, row {{}} without a path"
    assert [each.path for each in found.failed] == [name.format(2), name.format(4)]
    assert found.count == 4
    assert [row["path"] for row in rows_of(tmp_path / "out")][1] == name.format(2)


def test_a_predictor_travels_as_its_arguments(model: ViT, world: Path, tmp_path: Path) -> None:
    vt.save(model, tmp_path / "model")
    predictor = vt.Predictor(tmp_path / "model", "features")
    paths = [str(world / "files" / "0.png"), str(world / "gone.png"), str(world / "files" / "1.png")]
    assert len(predictor({"path": paths})["features"]) == 3
    stored = pickle.dumps(predictor)
    assert len(stored) < 1000, "the weights stay at home"
    rows = pickle.loads(stored)({"path": paths})
    assert [each is None for each in rows["features"]] == [False, True, False]
    assert "No such file" in rows["error"][1]
    np.testing.assert_allclose(rows["features"][2], vt.embed(model, paths[2]).values[0], atol=1e-5)
    files = [Path(paths[0]).read_bytes(), b"zz"]
    labels = vt.Predictor(model)({"bytes": files, "path": np.array(["x", "y"])})
    assert [*labels] == ["path", "label", "probability", "probabilities", "damaged", "error"]
    assert (labels["label"][1], labels["path"]) == (None, ["x", "y"])
    assert [*vt.Predictor(model, top=2)({"bytes": files})][:4] == ["path", "label", "probability", "label_2"]
    with pytest.raises(vt.InputError, match="needs a column path or bytes"):
        predictor({"image": files})
    for other in ("image.png", Path("image.png"), ["image.png"], None):
        with pytest.raises(vt.InputError, match="a batch is a mapping of columns"):
            predictor(other)
    with pytest.raises(vt.InputError, match="did you mean 'features'"):
        vt.Predictor(model, "feature")


# --- processes that are killed -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 shards of 100 images each."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    for shard in range(24):
        pixels = rng.integers(0, 255, (100, 16, 16, 3), dtype=np.uint8)
        files = {f"{shard:02d}-{number:03d}.png": encoded(each) for number, each in enumerate(pixels)}
        write_tar(folder / f"x-{shard:02d}.tar", files)
    return folder


def check_whole(out: Path) -> None:
    names = [Path(row["path"]).name for row in rows_of(out)]
    assert len(names) == len(set(names)) == 2400
    assert [each.name for each in out.iterdir() if each.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_kill_9_at_any_time(model: ViT, shards: Path, tmp_path: Path, processes: int) -> None:
    vt.save(model, tmp_path / "model")
    out, chance = tmp_path / "out", random.Random(processes)
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        if processes > 1
        else []
    )
    command = [sys.executable, *launcher, "-m", "vitreous", "embed", str(tmp_path / "model"), str(shards)]
    for attempt in range(5):
        process = subprocess.Popen([*command, "--out", str(out)], start_new_session=True)
        try:
            before = len([*out.glob("*.parquet")]) if out.exists() else 0
            while process.poll() is None and (not out.exists() or len([*out.glob("*.parquet")]) < before + 2):
                time.sleep(0.01)
            process.wait(chance.random() / 4 if attempt < 4 else 300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0
    check_whole(out)
