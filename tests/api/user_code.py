"""What a user writes, with the types that an editor and mypy --strict must agree on. It is not run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vitreous as vt


def models() -> None:
    model = vt.create("ViT-B/16", num_classes=10, image_size=224, seed=0)
    if isinstance(model, vt.ViT):
        rows, columns = model.config.grid
        assert_type(rows, int)
        assert_type(columns, int)
        tokens: Tensor = model.tokens(torch.zeros(1, 3, 224, 224))
        print(tokens.shape)
    config = vt.ViTConfig(image_size=224, patch_size=16)
    print(config.width, vt.ViTConfig(image_size=(96, 64)).grid, vt.BiTConfig(image_size=64).num_classes)


def weights(path: Path) -> None:
    model = vt.load(path, image_size=384)
    print(model.labels, model.preprocessing.size, model.task)
    vt.save(vt.create("ViT-Ti/16"), "model.npz", format="google")


def attention(images: list[Path]) -> None:
    model = vt.create("ViT-Ti/16")
    with vt.capture_attention(model) as captured:
        model(model.preprocessing(images))
    first: Tensor = captured.maps[0]
    print(first.shape)


def training(photos: Path) -> None:
    run = vt.train(photos, model="ViT-S/16", epochs=50, settings={"training.peak_lr": 1e-3})
    print(run.path.name, run.metrics[-1]["loss"], run.report)
    if run.evaluation:
        print(run.evaluation.metrics["accuracy"].value + 1.0)
    longer: vt.Run = run.resume(epochs=90)
    print(vt.evaluate(longer).count, len(vt.predict(longer, [photos / "a.jpg"], top=3)))
    print(vt.pretrain(photos, objective="dino", epochs=3, settings={"model.depth": 6}).task.upper())


def translation(pairs: Path) -> None:
    run = vt.train_translator(str(pairs), steps=100, batch_size=32, device="cpu")
    for each in vt.translate(run, ["<de> twenty-one"], beams=1):
        print(each.source, each.text.upper(), each.score)


def results(pixels: NDArray[np.uint8]) -> None:
    embeddings = vt.embed("runs/mine", pixels, batch_size=8)
    print(embeddings.values.mean(), embeddings.paths[0].upper(), embeddings.to_json()["width"])
    print(vt.probe("runs/mine", shots=[1, 5]).knn + 1.0)
    print(vt.describe("ViT-B/16").parameters + 1)
    print([finding.fix for finding in vt.doctor("photos/").findings])
    print(vt.convert("runs/mine", "model.npz", drop=["head"]).max_abs_difference < 2e-5)
    print(vt.export("runs/mine", "model.onnx").max_abs_difference < 1e-4)
    names: list[str] = vt.list_models("ViT-*")
    print(names, vt.inspect("runs/mine", "a.jpg").report.name)
    raise vt.InputError("what, where, what to do")
