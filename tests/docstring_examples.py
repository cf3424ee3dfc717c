"""The examples in docstrings, and the place in which they run: photos, and runs that never trained."""

from __future__ import annotations

import doctest
import inspect
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import vitreous as vt
from vitreous.addons.text.config import CaptionerConfig, DecoderConfig
from vitreous.addons.text.tokenizer import Tokenizer
from vitreous.checkpoints.native import save_native
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.run import RunDirectory

CLASSES = ("apples", "pears")
SLOW = {"Run", "export", "optimize", "pretrain", "train", "train_translator"}
ELSEWHERE = {"push_to_hub", "serve"}  # beside a hub, and in a process that is ended


def write_place(folder: Path) -> None:
    """photos/ and more-photos/ with two classes of twelve images, photo.jpg, runs/photos, runs/other, and
    two models of text."""
    for seed, name in enumerate(("photos", "more-photos")):
        write_photos(folder / name, seed)
    shutil.copy(folder / "photos" / "pears" / "1.jpg", folder / "photo.jpg")
    for seed, name in enumerate(("photos", "other")):
        write_run(folder / "runs" / name, seed)
    write_text_models(folder)


def write_photos(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    for channel, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 80, (48, 64, 3), dtype=np.uint8)
            pixels[..., channel] += 150
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")


def write_run(path: Path, seed: int) -> None:
    config = vt.ViTConfig(
        image_size=(32, 32), patch_size=(8, 8), width=32, depth=2, heads=2, mlp_dim=32, num_classes=2
    )
    preprocessing = vt.Preprocessing(size=(32, 32))
    model = vt.ViT(
        config, preprocessing=preprocessing, labels=list(CLASSES), task="classification", seed=seed
    )
    torch.nn.init.normal_(model.head.weight)  # type: ignore[arg-type]
    training = TrainingConfig(batch_size=8)
    settings = RunConfig(source="photos", model=config, preprocessing=preprocessing, training=training)
    RunDirectory.create(path, settings).save_model(model)


def write_text_models(folder: Path) -> None:
    """runs/numbers, which translates, and trocr, which reads images: neither has learned anything."""
    tokenizer = {"tokenizer.json": Tokenizer.train(["three twenty-one"], 270).to_json()}
    translates = vt.TransformerConfig(
        vocabulary=270, width=16, depth=1, heads=2, mlp_dim=16, encoder_depth=1, max_length=32
    )
    save_native(vt.Transformer(translates), folder / "runs" / "numbers" / "model", files=tokenizer)
    encoder = vt.ViTConfig(
        image_size=(32, 32), patch_size=(16, 16), width=16, depth=1, heads=2, mlp_dim=16, num_classes=None
    )
    decoder = DecoderConfig(vocabulary=270, width=16, depth=1, heads=2, mlp_dim=16, max_length=32)
    reads = vt.Captioner(CaptionerConfig(encoder=encoder, decoder=decoder))
    save_native(reads, folder / "trocr", files=tokenizer)


def has_example(name: str) -> bool:
    return ">>> " in (inspect.getdoc(getattr(vt, name)) or "")


def what_differs(name: str) -> str:
    """Run the example of a public name in the current folder; return what was not as it says, an
    empty text if all was."""
    text = inspect.getdoc(getattr(vt, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, {"vt": vt, "torch": torch}, name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    return "".join(said)
