"""What a run leaves in TensorBoard, Weights & Biases, MLflow and trackio, without any server."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vitreous as vt
from vitreous.training.callbacks import read_metrics

pytestmark = pytest.mark.usefixtures("quick_figures")

TINY = {"model.depth": 1, "model.width": 16, "model.mlp_dim": 16}


@pytest.fixture(scope="module")
def run(folder: Path) -> vt.Run:
    """A run that was resumed to become longer."""
    path = folder / "run"
    vt.train(folder / "photos", init="none", epochs=1, settings=TINY, out=path, progress=False)
    return vt.Run(path).resume(epochs=2, progress=False)


@pytest.mark.slow
def test_tensorboard_has_curves_images_histograms_and_the_confusion_matrix(run: vt.Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path), size_guidance={"images": 0, "histograms": 0, "scalars": 0})
    events.Reload()
    tags = events.Tags()
    assert {"loss", "accuracy", "lr", "test/accuracy"} <= set(tags["scalars"])
    assert {"confusion", "augmented", "attention", "filters"} <= set(tags["images"])
    losses = {each.step: each.value for each in events.Scalars("loss")}
    rows = read_metrics(run.path / "metrics.jsonl")
    assert losses == pytest.approx({row["step"]: row["loss"] for row in rows}, rel=1e-5)
    assert run.evaluation is not None
    assert events.Scalars("test/accuracy")[-1].value == pytest.approx(run.evaluation.accuracy)
    names = {name for name, each in run.model.named_parameters() if each.ndim > 1}
    assert {tag.removeprefix("weights/") for tag in tags["histograms"] if tag.startswith("weights/")} == names
    assert any(tag.startswith("gradients/blocks.0.") for tag in tags["histograms"])
    last = events.Histograms("weights/head.weight")[-1].histogram_value
    head = run.model.head.weight
    assert last.num == sum(last.bucket) == head.numel()
    # The last histogram may be from before the last step, and the head is divided by the temperature.
    assert last.min < 0 < last.max


@pytest.mark.slow
def test_where_a_run_was_resumed_is_in_its_metrics_and_its_report(run: vt.Run) -> None:
    rows = read_metrics(run.path / "metrics.jsonl")
    resumed = [row["resumed"] for row in rows if "resumed" in row]
    assert resumed == [next(row["step"] for row in rows if row["epoch"] == 1)]
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "<title>epoch 1, Loss: resumed: –</title>" in page
    assert "Dotted lines: the run was resumed there." in page


def train(folder: Path, tracker: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Train for two epochs in a process of its own, in `folder`."""
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    command = [sys.executable, "-m", "vitreous", "train", "digits", "--epochs=2", "--out=run", *settings]
    environment = {**os.environ, "HOME": str(folder), **variables}
    tracked = [*command, f"--set=training.records.track={tracker}"]
    return subprocess.run(tracked, cwd=folder, env=environment, text=True, capture_output=True, check=False)


def losses(folder: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in read_metrics(folder / "run" / "metrics.jsonl")}


def accuracy_of_test(folder: Path) -> float:
    """What TensorBoard has of it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "run"))
    events.Reload()
    return float(events.Scalars("test/accuracy")[-1].value)


def records(content: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of 32 KiB, whose parts have a checksum, a length and a
    kind (1 whole, 2 first, 3 middle, 4 last). Its first seven bytes say that it is W&B's."""
    assert content.startswith(b":W&B")
    place, record = 7, b""
    while place < len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


@pytest.mark.slow
@pytest.mark.peers
def test_weights_and_biases_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb: pip install 'vitreous[track]'")
    from wandb.proto import wandb_internal_pb2

    done = train(tmp_path, "wandb", WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found: dict[int, float] = {}
    settings: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for update in record.run.config.update:
            settings[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
        if record.WhichOneof("record_type") == "history":
            row = {
                each.key or ".".join(each.nested_key): json.loads(each.value_json)
                for each in record.history.item
            }
            if "loss" in row:
                found[int(row["step"])] = row["loss"]
            results |= row
        project = record.run.project or None
        if record.WhichOneof("record_type") == "run":
            assert (project, record.run.display_name) == ("vitreous", "run")
    assert found == pytest.approx(losses(tmp_path))
    assert settings["model.width"] == "16"
    assert results["test/accuracy"] == pytest.approx(accuracy_of_test(tmp_path))
    assert results["confusion._type"] == "image-file"
    assert (file.parent / "files" / results["confusion.path"]).is_file()


@pytest.mark.slow
@pytest.mark.peers
def test_mlflow_in_a_local_file(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow: pip install 'vitreous[track]'")
    address = f"sqlite:///{tmp_path}/mlflow.db"
    done = train(tmp_path, "mlflow", MLFLOW_TRACKING_URI=address)
    assert done.returncode == 0, done.stderr
    client = mlflow.MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("vitreous")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["model.width"] == "16"
    history = {each.step: each.value for each in client.get_metric_history(found.info.run_id, "loss")}
    assert history == pytest.approx(losses(tmp_path))
    assert found.data.metrics["test/accuracy"] == pytest.approx(accuracy_of_test(tmp_path))
    assert {"confusion.png", "attention.png"} <= {
        each.path for each in client.list_artifacts(found.info.run_id)
    }
    # Its former file store needs a variable; without it a sentence says so, and no run is left.
    folder = tmp_path / "files"
    folder.mkdir()
    refused = train(folder, "mlflow", MLFLOW_TRACKING_URI=f"file://{folder}/mlruns")
    assert refused.returncode in (0, 2)
    if refused.returncode:
        assert "mlflow cannot be started" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not (folder / "run").exists()
    allowed = train(
        folder, "mlflow", MLFLOW_TRACKING_URI=f"file://{folder}/mlruns", MLFLOW_ALLOW_FILE_STORE="true"
    )
    assert allowed.returncode == 0, allowed.stderr
    assert list(folder.glob("mlruns/*/*/metrics/loss"))


@pytest.mark.slow
@pytest.mark.peers
def test_trackio_in_a_local_folder(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="trackio: pip install 'vitreous[track]'")
    done = train(tmp_path, "trackio", TRACKIO_DIR=str(tmp_path / "trackio"))
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "trackio" / "vitreous.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert {name for name, _, _ in rows} == {"run"}
    logged = [(step, json.loads(metrics)) for _, step, metrics in rows]
    found = {step: row["loss"] for step, row in logged if "loss" in row}
    assert found == pytest.approx(losses(tmp_path))
    assert logged[-1][1]["test/accuracy"] == pytest.approx(accuracy_of_test(tmp_path))
    assert logged[-1][1]["confusion"]["_type"] == "trackio.image"
