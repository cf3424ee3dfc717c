"""As many answers as questions: whatever asks a model about a list of images has a row for each, in order; of
one that cannot be read the row says why, of a damaged one what is missing."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.models.vit import ViT

MISSING = "the file ends too early, and the missing rows are gray"


@pytest.fixture
def rows(tmp_path: Path) -> list[str]:
    """Seven questions about four files, one of them torn and one a JPEG that was cut, and about none."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "asked"
    folder.mkdir()
    for name in "ab":
        Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(folder / f"{name}.png")
    (folder / "torn.png").write_bytes((folder / "a.png").read_bytes()[:60])
    Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:-800])
    names = ("b.png", "torn.png", "a.png", "b.png", "cut.jpg", "gone.png", "torn.png")
    return [str(folder / name) for name in names]


def answers(found: Any) -> Iterator[dict[str, Any]]:
    for each in found:
        answer = each.to_json()
        label = answer.get("label", answer.get("value"))
        yield {
            "path": each.path,
            "answer": label,
            **{name: answer.get(name) for name in ("damaged", "error")},
        }


def columns(found: dict[str, Any], answer: str = "label") -> Iterator[dict[str, Any]]:
    for row in range(len(found["path"])):
        value = found[answer][row]
        yield {name: found[name][row] for name in ("path", "damaged", "error")} | {"answer": value}


def listed(found: Any, values: Any) -> Iterator[dict[str, Any]]:
    failed = {each.path: each.reason for each in found.failed}
    damaged = {each.path: each.reason for each in found.damaged}
    for path, value in zip(found.paths, values, strict=True):
        missing = value is None or (isinstance(value, np.ndarray) and np.isnan(value).all())
        row = {"path": path, "answer": None if missing else value}
        yield {**row, "damaged": damaged.get(path), "error": failed.get(path)}


def frame(rows: list[str]) -> Any:
    return pytest.importorskip("pandas").DataFrame({"question": range(len(rows)), "path": rows})


def table(model: Any, rows: list[str], suffix: str) -> Iterator[dict[str, Any]]:
    vt.predict(model, rows, out=f"answers.{suffix}", progress=False)
    path = Path(f"answers.{suffix}")
    if suffix == "csv":
        with path.open(newline="") as file:
            found = [{name: value or None for name, value in row.items()} for row in csv.DictReader(file)]
    elif suffix == "jsonl":
        found = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        found = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    for row in found:
        yield {name: row.get(name) for name in ("path", "damaged", "error")} | {"answer": row["label"]}


def folder(model: Any, rows: list[str], ask: Callable[..., Any], column: str) -> Iterator[dict[str, Any]]:
    existing = [row for row in rows if "gone" not in row]  # what is not there at all is refused
    Path("list.csv").write_text("path\n" + "".join(f"{row}\n" for row in rows))
    found = ask(model, "list.csv", out=f"parts-{column}", progress=False)
    assert (found.count, len(existing)) == (7, 6)
    read = pytest.importorskip("pyarrow.parquet").read_table(f"parts-{column}").to_pylist()
    for row in read:
        yield {name: row[name] for name in ("path", "damaged", "error")} | {"answer": row[column]}


def command(model: Any, rows: list[str], capsys: Any) -> Iterator[dict[str, Any]]:
    vt.save(model, "stored")
    capsys.readouterr()
    assert run(["predict", "stored", *rows, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["path"] for each in told["failed"]] == [rows[1], rows[5]]
    assert [each["path"] for each in told["damaged"]] == [rows[4]]
    for row in told["predictions"]:
        yield {name: row.get(name) for name in ("path", "damaged", "error")} | {"answer": row["label"]}


def lines(model: Any, rows: list[str], capsys: Any) -> Iterator[dict[str, Any]]:
    vt.save(model, "stored")
    capsys.readouterr()
    assert run(["predict", "stored", *rows]) == 1
    said = capsys.readouterr()
    for path, line in zip(rows, said.out.splitlines(), strict=True):
        assert line.startswith(path)
        error = None if "%" in line else line.removeprefix(path).strip()
        yield {
            "path": path,
            "answer": None if error else line,
            "damaged": MISSING if MISSING in line else None,
            "error": error,
        }
    assert f"{rows[4]}: {MISSING}" in said.err


DOORS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "predict of a list": lambda model, rows, _: answers(vt.predict(model, rows, progress=False)),
    "predict of paths": lambda model, rows, _: answers(vt.predict(model, [*map(Path, rows)], progress=False)),
    "predict of an array": lambda model, rows, _: answers(vt.predict(model, np.array(rows), progress=False)),
    "predict of a generator": lambda model, rows, _: answers(vt.predict(model, iter(rows), progress=False)),
    "predict of a frame": lambda model, rows, _: answers(vt.predict(model, frame(rows), progress=False)),
    "predict of a column": lambda model, rows, _: answers(
        vt.predict(model, frame(rows)["path"], progress=False)
    ),
    "predict of a frame of one column": lambda model, rows, _: answers(
        vt.predict(model, frame(rows)[["path"]].rename(columns={"path": "file"}), progress=False)
    ),
    "predict in batches of two": lambda model, rows, _: answers(
        vt.predict(model, rows, batch_size=2, progress=False)
    ),
    "predict with views": lambda model, rows, _: answers(vt.predict(model, rows, tta=True, progress=False)),
    "predict's table": lambda model, rows, _: (
        {"answer": row["label"], **{name: row[name] for name in ("path", "damaged", "error")}}
        for row in vt.predict(model, rows, progress=False).table()
    ),
    "a csv file": lambda model, rows, _: table(model, rows, "csv"),
    "a jsonl file": lambda model, rows, _: table(model, rows, "jsonl"),
    "a parquet file": lambda model, rows, _: table(model, rows, "parquet"),
    "a folder of answers": lambda model, rows, _: folder(model, rows, vt.predict, "label"),
    "a folder of features": lambda model, rows, _: folder(model, rows, vt.embed, "features"),
    "Predictor": lambda model, rows, _: columns(vt.Predictor(model)({"path": rows})),
    "Predictor of bytes": lambda model, rows, _: columns(
        vt.Predictor(model)(
            {
                "path": rows,
                "bytes": [Path(row).read_bytes() if Path(row).exists() else None for row in rows],
            }
        )
    ),
    "Predictor of features": lambda model, rows, _: columns(
        vt.Predictor(model, "features")({"path": rows}), "features"
    ),
    "embed": lambda model, rows, _: listed(
        found := vt.embed(model, rows, batch_size=2, progress=False), found.values
    ),
    "attribute": lambda model, rows, _: listed(
        found := vt.attribute(model, rows, steps=1, progress=False), found.classes
    ),
    "the command": command,
    "the command's lines": lines,
}


@pytest.mark.parametrize("door", DOORS)
def test_rows_in_are_rows_out(
    door: str, model: ViT, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(DOORS[door](model, rows, capsys))
    assert [row["path"] for row in found] == rows
    assert [row["answer"] is None for row in found] == [False, True, False, False, False, True, True]
    assert [row["error"] is None for row in found] == [row["answer"] is not None for row in found]
    assert found[1]["error"] == found[6]["error"]
    assert [row["damaged"] for row in found] == [None] * 4 + [MISSING] + [None] * 2
    np.testing.assert_equal(found[0]["answer"], found[3]["answer"])


def test_an_exported_file_has_the_same_rows(model: ViT, rows: list[str]) -> None:
    pytest.importorskip("onnxruntime")
    vt.export(model, "model.onnx", progress=False)
    one = list(answers(vt.predict("model.onnx", rows, progress=False)))
    other = list(answers(vt.predict(model, rows, progress=False)))
    assert one == other


def test_what_is_evaluated_is_counted_as_often_as_it_is_named(model: ViT, rows: list[str]) -> None:
    model.labels = ["x", "y"]
    table = "".join(f"{row},{'xy'[number % 2]}\n" for number, row in enumerate(rows))
    Path("list.csv").write_text(f"path,label\n{table}")
    found = vt.evaluate(model, "list.csv", progress=False)
    assert (found.count, list(found.names)) == (4, [rows[row] for row in (0, 2, 3, 4)])
    assert [*found.failed] == [rows[1], rows[5]]
    assert found.damaged == {rows[4]: MISSING}
    assert found.to_json()["damaged"] == [{"path": rows[4], "reason": MISSING}]


def test_what_is_left_of_an_image_answers_as_any_answer(model: ViT, rows: list[str]) -> None:
    (answer,) = vt.predict(model, rows[4], progress=False)
    assert answer.damaged == MISSING
    assert answer.label == answer.top[0].label
    assert answer.to_json()["damaged"] == MISSING
    assert torch.isfinite(torch.tensor(answer.probability))


def test_a_stored_model_is_read_once_until_it_changes(model: ViT, rows: list[str]) -> None:
    """A loop around `vt.predict` does not load the checkpoint for each image, and another checkpoint under
    the same name is never answered by the one before."""
    opened: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("model.safetensors"):
            opened.append(str(arguments[0]))

    model.labels = ["x", "y"]
    vt.save(model, "stored")

    def answer(**options: Any) -> str:
        (found,) = vt.predict("stored", rows[0], progress=False, **options)
        return str(found.label)

    first = answer()
    sys.addaudithook(note)
    assert [answer(), answer(), len(opened)] == [first, first, 0]
    answer(top=1)  # another question
    assert opened
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([-9.0, 9.0] if first == "x" else [9.0, -9.0]))
    vt.save(model, "other")
    for file in Path("other").iterdir():
        file.replace(Path("stored") / file.name)
    assert answer(top=1) != first


@pytest.mark.parametrize("first", [np.zeros((8, 8, 3), np.uint8), Image.new("L", (8, 8)), b"bytes"])
def test_images_in_memory_are_not_mixed_with_paths(model: ViT, rows: list[str], first: Any) -> None:
    with pytest.raises(vt.InputError, match="paths and images in memory are mixed"):
        vt.predict(model, [first, rows[0]], progress=False)
