"""One image, one tensor, one answer: whatever kind of file an image is, through whichever door it comes, and
whatever is asked of the model."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from stored_images import KINDS
from vitreous.api.data_source import data_source
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.dataset import Splits
from vitreous.data.findings import read_findings
from vitreous.data.image_list import image_list
from vitreous.data.image_samples import image_loader
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.layers.embedding import LinearPatchStem, PatchStem
from vitreous.models.model import build_model
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.tasks.course import FINDINGS

pytest.importorskip("tifffile")
pytest.importorskip("pydicom")
WHOLE = DataConfig(test_fraction=0, validation_fraction=0)
SIDE = 32


def folder_of(kind: str, root: Path, count: int) -> list[str]:
    """Write `count` images of each of two classes; return their paths, in order."""
    ending, made = KINDS[kind]
    files: list[str] = []
    for label, name in enumerate("ab"):
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number}.{ending}").write_bytes(made(label, number))
            files.append(str(root / name / f"{number}.{ending}"))
    return files


def model_for(splits: Splits) -> ViT:
    """Return a classifier of these data, untrained, with classes that it tells apart."""
    summary = splits.summary
    how: dict[str, Any] = {"channels": summary.channels, "value_range": summary.value_range}
    if summary.statistics:
        how |= dict(zip(("mean", "std"), summary.statistics, strict=True))
    size = {"image_size": SIDE, "channels": summary.channels, "patch_size": 8, "num_classes": 2}
    shape = {"width": 16, "depth": 2, "heads": 2, "mlp_dim": 16}
    config = config_of("ViT-Ti/16", **size, **shape)
    model = build_model(config, preprocessing=Preprocessing(size=(SIDE, SIDE), **how), seed=3)
    assert isinstance(model, ViT)
    model.labels = ["a", "b"]
    with torch.no_grad():
        model.get_submodule("head").weight.normal_(std=0.3)  # type: ignore[operator, union-attr]
    return model


@contextmanager
def seen(size: tuple[int, int] = (SIDE, SIDE)) -> Iterator[list[torch.Tensor]]:
    """Yield every image that a Vision Transformer embeds while the context lasts."""
    images: list[torch.Tensor] = []

    def note(module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        embeds = isinstance(module, PatchStem | LinearPatchStem) and not given[0].is_meta
        if embeds and given[0].shape[-2:] == size:
            images.extend(given[0].detach().float().cpu())

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield images
    finally:
        hook.remove()


def apart(images: list[torch.Tensor], expected: torch.Tensor) -> float:
    """Return how far any image is from the nearest expected one."""
    assert images, "nothing was seen"
    distances = [(expected - image).abs().flatten(1).amax(dim=1).min() for image in images]
    return float(max(distances))


def probabilities(found: Any, labels: list[str]) -> np.ndarray:
    rows = []
    for answer in found:
        by_label = {choice.label: choice.probability for choice in answer.top}
        rows.append([by_label[label] for label in labels])
    return np.array(rows)


# ---- What is asked of a model, and the doors through which an image comes to it: {command} x {kind}.

ASKED: dict[str, Callable[[ViT, list[str], Path], np.ndarray]] = {
    "predict": lambda model, files, root: probabilities(vt.predict(model, files, progress=False), ["a", "b"]),
    "predict of a folder": lambda model, files, root: probabilities(
        vt.predict(model, root, progress=False), ["a", "b"]
    ),
    "predict of bytes": lambda model, files, root: probabilities(
        vt.predict(model, [Path(file).read_bytes() for file in files], progress=False), ["a", "b"]
    ),
    "Predictor": lambda model, files, root: np.stack(vt.Predictor(model)({"path": files})["probabilities"]),
    "Predictor of bytes": lambda model, files, root: np.stack(
        vt.Predictor(model)({"bytes": [Path(file).read_bytes() for file in files]})["probabilities"]
    ),
    "evaluate": lambda model, files, root: vt.evaluate(model, root, progress=False).probabilities,
    "serve": lambda model, files, root: served(model, files),
}


def served(model: ViT, files: list[str]) -> np.ndarray:
    models = pytest.importorskip("vitreous.addons.serving.models")
    classifier = models.Classifier(model, torch.device("cpu"), precision="fp32", most_pixels=10**6)
    asked = []
    for file in files:
        pixels, damage = classifier.prepare(Path(file).read_bytes(), file)
        assert damage is None
        asked.append(models.Question(file, pixels, models.Top()))
    rows = []
    for answer in classifier.predict(asked):
        by_label = {choice["label"]: choice["probability"] for choice in answer["top"]}
        rows.append([by_label["a"], by_label["b"]])
    return np.array(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_one_image_is_one_tensor_and_one_answer(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    files = folder_of(kind, root, 3)
    model = model_for(open_data(str(root), WHOLE))
    with torch.inference_mode():
        tensors = torch.stack([model.preprocessing(file) for file in files])
        expected = model(tensors).softmax(dim=-1).numpy()
        features = model.features(tensors).numpy()
    assert np.ptp(expected[:, 0]) > 1e-3, "the answers do not tell the images apart"
    for name, ask in ASKED.items():
        with seen() as images:
            found = ask(model, files, root)
        order = range(len(files))
        np.testing.assert_allclose(found, expected[order], atol=1e-5, err_msg=name)
        assert apart(images, tensors) < 1e-5, name
    with seen() as images:
        embedded = vt.embed(model, files, progress=False)
        vt.attribute(model, files[:1], steps=1, progress=False)
    np.testing.assert_allclose(embedded.values, features, atol=1e-5)
    assert apart(images[: len(files)], tensors) < 1e-5


# ---- Doors of a dataset: what is known of the images, and what training sees, is the same: {door} x {kind}.


def manifest(files: list[str], place: Path) -> str:
    with (place / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows([each, Path(each).parent.name] for each in files)
    return str(place / "list.csv")


def pairs(files: list[str], place: Path) -> list[tuple[bytes, str]]:
    return [(Path(file).read_bytes(), Path(file).parent.name) for file in files]


def table(files: list[str], place: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": Path(file).read_bytes(), "path": None} for file in files]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    labels = [Path(file).parent.name for file in files]
    return datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)


def frame(files: list[str], place: Path) -> str:
    pandas = pytest.importorskip("pandas")
    rows = {"path": files, "label": [Path(file).parent.name for file in files]}
    return str(data_source(pandas.DataFrame(rows)))


def shards(files: list[str], place: Path) -> str:
    whole = open_data(str(Path(files[0]).parent.parent), WHOLE)
    pack(whole, place / "packed", Packing(raw=True))
    return str(place / "packed")


DOORS: dict[str, Callable[[list[str], Path], Any]] = {
    "manifest": manifest,
    "list of pairs": pairs,
    "list that is stored": lambda files, place: data_source(pairs(files, place)),
    "datasets": table,
    "datasets that are stored": lambda files, place: data_source(table(files, place)),
    "data frame": frame,
    "shards": shards,
}
# Cells that are left out, and why.
LEFT_OUT = {
    ("shards", "JPEG large"): "images are shrunk to the size of shards: other pixels, by design",
    ("shards", "PNG of 12 bits, large"): "the same, with their bits",
}
# Doors that are left out, since they have no files of these kinds: a torch Dataset holds arrays or what
# Pillow has opened (tests/data/test_objects.py compares them), bundled data are made by a program, tables and
# streams of the hub (tests/data/test_hub.py) hold the bytes that "datasets" has here.


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_known_of_images_is_the_same_through_every_door(kind: str, tmp_path: Path) -> None:
    files = folder_of(kind, tmp_path / "data", 3)
    plain = open_data(str(tmp_path / "data"), WHOLE)
    how = model_for(plain).preprocessing
    expected = torch.stack([how(file) for file in files])
    for door, enter in DOORS.items():
        if (door, kind) in LEFT_OUT:
            continue
        found = open_data(enter(files, tmp_path), WHOLE)
        assert found.summary._replace(statistics=None) == plain.summary._replace(statistics=None), door
        order = np.argsort([found.train.label(row) for row in range(len(files))], kind="stable")
        tensors = torch.stack([how(found.train.opened(int(row), how)) for row in order])
        assert apart(list(tensors), expected) < 1e-5, door


# ---- A run, from the folder to the exported file: {train, report, evaluate, predict, inspect, pack, export}.
# Left out: what a training on shards sees where `pack` wrote JPEG, which is lossy: its model is compared,
# with `raw` its images, too.


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_can_be_trained_on_can_be_used_everywhere(
    kind: str, tmp_path: Path, quick_figures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "data"
    files = folder_of(kind, root, 10)
    run, tensors = trained(root, tmp_path / "run", files)
    model = run.model.eval()
    assert (tmp_path / "run" / "report.html").is_file()
    with torch.inference_mode():
        expected = model(tensors).softmax(dim=-1).numpy()
    labels = list(model.labels)

    found = probabilities(vt.predict(run, files, progress=False), labels)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with seen() as images:
        evaluation = vt.evaluate(run, progress=False)
        inspected = vt.inspect(run, files[:3], out=tmp_path / "inspected", attributions=0, progress=False)
    assert apart(images, tensors) < 1e-5
    rows = [files.index(name) for name in evaluation.names]
    np.testing.assert_allclose(evaluation.probabilities, expected[rows], atol=1e-5)
    assert inspected.report.is_file()
    assert not inspected.failed
    vt.doctor(run)

    for name, inside in (("plain.onnx", False), ("pixels.onnx", True)):
        vt.export(run, tmp_path / name, with_preprocessing=inside, progress=False)
        found = probabilities(vt.predict(tmp_path / name, files, progress=False), labels)
        np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=name)

    # A model of the shards sees the files that they were made of as the shards, and as a model of the files.
    for raw in (False, True):
        packed = tmp_path / f"packed-{raw}"
        vt.pack_data(str(root), packed, raw=raw)
        other, theirs = trained(packed, tmp_path / f"run-{raw}", files, exact=raw)
        assert torch.equal(theirs, tensors)
        assert other.model.preprocessing == model.preprocessing


@pytest.mark.parametrize("how", ["threads", "processes", "memory"])
def test_what_the_model_cannot_see_is_counted_while_images_are_read(how: str, tmp_path: Path) -> None:
    """Of images of whose kind the header, or a sample, has said something else."""
    for number in range(12):
        gray = np.full((8, 8), 10 * number, np.uint8 if number < 9 else np.uint16)
        if number in (3, 4):
            Image.fromarray(np.stack([gray, 255 - gray, gray], axis=2)).save(tmp_path / f"{number:02}.png")
        else:
            Image.fromarray(gray * (100 if number == 10 else 1)).save(tmp_path / f"{number:02}.png")
    images = image_list(str(tmp_path))
    loader = image_loader(
        images,
        preprocessing=Preprocessing(size=(8, 8), channels=1, value_range=((0, 255),)),
        augmentation=AugmentationConfig(),
        batch_size=4,
        seed=0,
        workers=2,
        config=DataConfig(reading={"processes": how == "processes", "in_memory": how == "memory"}),
    )
    assert len(list(loader)) == 3
    names = [Path(name).name for name in loader.bad.lost]
    kinds = dict(sorted(zip(names, loader.bad.lost.values(), strict=True)))
    assert kinds == {"03.png": "colors", "04.png": "colors", "10.png": "range"}
    assert not loader.bad.reasons


def test_a_run_says_at_its_end_what_the_model_has_not_seen(
    tmp_path: Path, quick_figures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = folder_of("JPEG gray", tmp_path / "data", 10)
    colored = files[2], files[13]
    for file in colored:
        Path(file).write_bytes(KINDS["JPEG"][1](0, 1))
    settings = {"model.depth": 1, "model.width": 48, "model.heads": 3, "model.mlp_dim": 96}
    settings |= {"model.channels": 1}
    how: dict[str, Any] = {"image_size": SIDE, "epochs": 1, "batch_size": 8, "device": "cpu"}
    result = vt.train(tmp_path / "data", model="ViT-Ti/8", settings=settings, progress=False, **how)
    assert result.model.preprocessing.channels == 1
    (found,) = (each for each in read_findings(result.path / FINDINGS) if each.kind == "colors lost")
    seen_in_training = {
        line.split("\t")[0] for line in (result.path / "bad_files.txt").read_text().splitlines()
    }
    assert set(found.images) == seen_in_training <= set(colored)
    assert seen_in_training


def trained(data: Path, out: Path, files: list[str], *, exact: bool = True) -> tuple[Any, torch.Tensor]:
    """Return a run of two steps, and the images of files as its model takes them: all that it has seen while
    it was trained and reported is among these."""
    settings: dict[str, Any] = {"model.depth": 1, "model.width": 48, "model.heads": 3, "model.mlp_dim": 96}
    for name in ("random_resized_crop", "policy", "color_jitter", "affine", "mix"):
        settings[f"augmentation.{name}"] = "none"
    settings |= {"augmentation.flip": 0.0, "augmentation.noise": 0.0, "augmentation.random_erasing": 0.0}
    how: dict[str, Any] = {"image_size": SIDE, "epochs": 1, "batch_size": 8, "device": "cpu"}
    with seen() as images:
        run = vt.train(str(data), model="ViT-Ti/8", out=str(out), settings=settings, progress=False, **how)
    tensors = torch.stack([run.model.preprocessing(file) for file in files])
    if exact:
        assert apart(images, tensors) < 1e-5
    return run, tensors
