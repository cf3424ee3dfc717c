"""The third model of `vitreous learn`: a hybrid ViT on photographs of 112 x 112 pixels, stored with it.

    apt-get download tuxpaint-stamps-default openclipart-png gcompris-qt-data
    for each in *.deb; do dpkg -x $each packages; done
    python docs/make_photo_model.py packages    # some minutes of one core

Its stem are the first blocks of `vitreous:photos`, a convolutional network that Google trained on ImageNet:
they stay as they are, so what they make of each image is computed once. The Transformer on their 7 x 7 cells
begins from random weights. It learns from cut-out photographs of Tux Paint's stamps (GPL-2+), drawings of the
Open Clip Art Library (public domain) and photographs of GCompris (GPL-3+, CC BY-SA). What is cut out is
pasted onto noise, plain colors and gradients; a photograph is cropped.

An object is held out with all whose name begins with the same word, in three parts: those that are learned
from; those that choose when to stop and how far answers lean to "none of these"; and those that are counted,
once. None of the photographs that the page shows is among them. Beside the model are what the most frequent
class would have, and the nearest training image by pixels.

Weights of the stem and of the Transformer are rounded to 8 bits for each output channel, as the page stores
them; the accuracy is that of the rounded model.

    python docs/make_photo_model.py packages --linear    # a quarter of an hour of one core

compares it, on validation images alone, with a ViT on linear patches of 48 x 48 pixels (section 3.1 of the
paper) that has twice the layers, and three times the epochs of the same training.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor, nn

import vitreous as vt
from vitreous.addons.learn_page.page import in_8_bits
from vitreous.checkpoints.native import save_native
from vitreous.evaluation.scores import wilson_interval
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

FOLDER = Path(vt.__file__).parent / "addons" / "learn_page" / "photo"
NONE = "none of these"
# Of each class the folders of stamps and of drawings.
FOLDERS = {
    "mammal": (["animals/mammals", "animals/marsupials"], ["animals/mammals"]),
    "bird": (["animals/birds"], ["animals/birds"]),
    "fish": (["animals/fish"], ["animals/fish"]),
    "insect": (["animals/insects"], ["animals/bugs"]),
    "flower": (["plants/flowers"], ["plants/flowers"]),
    "fruit or vegetable": (["food/fruit", "food/vegetables"], ["food/fruit", "food/vegetables"]),
    "vehicle": (["vehicles"], ["transportation/vehicles"]),
    "building": (["town/houses"], ["buildings/homes"]),
    NONE: (
        ["household", "hobbies", "sports", "clothes", "symbols/money", "space", "town/roadsigns"],
        [
            "people",
            "tools",
            "recreation/music",
            "food/desserts",
            "office",
            "electronics",
            "buildings/furniture",
        ],
    ),
}
# Of each class the photographs of GCompris: a folder of activities, and what the names begin with.
PHOTOGRAPHS = {
    "mammal": {
        "erase": "alpaca calf camels cheetah gibbon giraffe goat gorilla horse kitten long_nosed_monkey "
        "macaque meerkats nubian_ibex pika red_panda rhinoceros squirrel",
        "explore_farm_animals": "cat cow dog horse pig sheep",
        "explore_world_animals": "bison giraffe hedgehog jaguar kangaroo koala lemur moose panda polar_bear",
        "lang": "bear bull camel cat cow dog fox giraffe gorilla hedgehog hippopotamus horse kangaroo mouse. "
        "panda pig rabbit rhinoceros sheep wolf",
    },
    "bird": {
        "erase": "gosling heron kingfisher northern_harrier penguin spoonbills swans toucan",
        "explore_farm_animals": "chicken duck owl",
        "explore_world_animals": "scarlet_macaw",
        "lang": "bird chicken duck owl turkey",
    },
    "fish": {"categorization/resource/images/fishes": "fish", "lang": "fish shark"},
    "insect": {"erase": "bee butterfly caterpillar", "lang": "bee. beetle bug butterfly flies mosquito"},
    "fruit or vegetable": {
        "lang": "apple apricot coconut kiwi lemon melon orange. peach pear plum raspberry strawberry"
    },
    "building": {
        "categorization/resource/images/monuments": "IndiaGate arc bay brand burj cath colos eiff empire "
        "greatP juche kutub leMusee lean monument opera parth taj usCapitol victoria zimni",
        "explore_monuments": "arles chateau cite eiff mont palais reims aula berlin brand neuschw schwerin "
        "trier worms charminar gateway golden hawa konark mysore qutub victoria cabrillo castill castleC "
        "lincoln chichen coloss taj",
    },
    NONE: {
        "categorization/resource/images/tools": "",
        "categorization/resource/images/others": "",
        "leftright/resource": "main poing",
        "lang": "arm back. boy brother child dad ear. eyes face family finger foot friend girl grandm hair "
        "hand head knee leg man. mother mouth neck nose sister son. teeth thumb tongue woman",
    },
}
# Photographs of the page: class, file in scikit-image or scikit-learn, middle of a square and side as shares.
SHOWN = {
    "mammal": ("skimage", "data/chelsea.png", (0.5, 0.5), 1.0),
    "flower": ("sklearn", "datasets/images/flower.jpg", (0.5, 0.5), 1.0),
    "building": ("sklearn", "datasets/images/china.jpg", (0.5, 0.5), 1.0),
    NONE: ("skimage", "data/coffee.png", (0.5, 0.5), 1.0),
}
CREDIT = (
    "cat by Stefan van der Walt (CC0), coffee by Rachel Michetti (CC0), flower by vultilion (CC BY 2.0), "
    "temple by danielbuechele (CC BY 2.0)"
)
SHOWN_SIZE = 288
SIZE, CANVAS = 112, 168  # of an image, and of the one that it is reduced from
COPIES = 360  # training images of a class
LARGEST = 4_000  # pixels of a side of a drawing that is read
MODEL: dict[str, Any] = {
    "image_size": SIZE,
    "patch_size": 16,
    "width": 96,
    "depth": 3,
    "heads": 4,
    "mlp_dim": 192,
    "class_token": True,
    "pooling": {"kind": "class"},
    "layer_scale": None,
    "dropout": 0.1,
}
EPOCHS, BATCH = 10, 64
# What the hybrid is compared with: the same width with linear patches, as large as a page stores in 16 bits.
LINEAR: dict[str, Any] = {
    "image_size": 48,
    "patch_size": 8,
    "width": 96,
    "depth": 6,
    "heads": 4,
    "mlp_dim": 192,
    "dropout": 0.1,
}
LINEAR_EPOCHS = 30
KEPT = 0.9  # of the right answers on validation images of the things that it knows, when it leans to NONE


def resources(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each image in a file of Qt's resource compiler."""
    packed = file.read_bytes()
    version, tree, data, names = struct.unpack(">IIII", packed[4:20])
    size = 14 if version < 2 else 22

    def inside(number: int, path: str) -> Iterator[tuple[str, bytes]]:
        at = tree + number * size
        name, flags = struct.unpack(">IH", packed[at : at + 6])
        if number:
            (length,) = struct.unpack(">H", packed[names + name : names + name + 2])
            path += "/" + packed[names + name + 6 : names + name + 6 + 2 * length].decode("utf-16-be")
        if flags & 2:
            count, first = struct.unpack(">II", packed[at + 6 : at + 14])
            for each in range(first, first + count):
                yield from inside(each, path)
        elif path.endswith(".webp") and not flags & 4:
            (offset,) = struct.unpack(">I", packed[at + 10 : at + 14])
            (length,) = struct.unpack(">I", packed[data + offset : data + offset + 4])
            content = packed[data + offset + 4 : data + offset + 4 + length]
            yield path, zlib.decompress(content[4:]) if flags & 1 else content

    yield from inside(0, "")


def objects(packages: Path) -> Iterator[tuple[Image.Image, str, str]]:
    """Yield each image, its class, and its name."""
    share = packages / "usr" / "share"
    roots = (share / "tuxpaint" / "stamps", share / "openclipart" / "png")
    for label, inside in FOLDERS.items():
        for root, names in zip(roots, inside, strict=True):
            for name in names:
                for path in sorted((root / name).rglob("*.png")):
                    yield Image.open(path), label, path.stem
    photographs = [
        found for file in sorted((share / "gcompris-qt" / "rcc").glob("*.rcc")) for found in resources(file)
    ]
    for label, activities in PHOTOGRAPHS.items():
        for activity, beginnings in activities.items():
            for place, content in photographs:
                file = place.rpartition("/")[2]
                if f"activities/{activity}/" in place and file.startswith(tuple(beginnings.split()) or ""):
                    yield Image.open(BytesIO(content)), label, file.removesuffix(".webp")


def part_of(name: str, label: str) -> str:
    """Return the part of an object and of all that are named alike: train, val, or test."""
    word = re.match(r"fish\d+|[\d_\W]*([A-Za-z]+)", name)
    kin = (word[1] or word[0]).lower().removesuffix("s") if word else name
    share = hashlib.sha256(f"photo model {label} {kin}".encode()).digest()[0] / 256
    return "test" if share < 0.22 else "val" if share < 0.34 else "train"


def cut_out(image: Image.Image) -> Image.Image | None:
    """Return an object with its transparency, no larger than it is used; None where nothing is shown."""
    if max(image.size) > LARGEST:
        return None
    image = image.convert("RGBA")
    box = image.getchannel("A").point(lambda alpha: 255 * (alpha > 24)).getbbox()
    if box is None:
        return None
    image = image.crop(box)
    image.thumbnail((CANVAS, CANVAS), Image.Resampling.BICUBIC)
    return image if min(image.size) >= 16 else None


def is_photograph(cut: Image.Image) -> bool:
    """Return whether an image fills its rectangle."""
    return np.asarray(cut.getchannel("A")).min() > 200


def as_it_is(cut: Image.Image) -> Image.Image:
    """Return what the page would see: a photograph's center, or an object on white."""
    if is_photograph(cut):
        side = min(cut.size)
        left, top = ((each - side) // 2 for each in cut.size)
        square = cut.convert("RGB").crop((left, top, left + side, top + side))
        return square.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    return pasted(cut, Image.new("RGB", (CANVAS, CANVAS), "white"), 0.9, (0.5, 0.5))


def pasted(cut: Image.Image, canvas: Image.Image, share: float, place: tuple[float, float]) -> Image.Image:
    side = canvas.width
    grow = share * side / max(cut.size)
    small = cut.resize(
        (max(1, round(grow * cut.width)), max(1, round(grow * cut.height))), Image.Resampling.BICUBIC
    )
    corner = [round(at * (side - each)) for at, each in zip(place, small.size, strict=True)]
    canvas.paste(small, (corner[0], corner[1]), small)
    return canvas.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def background(rng: np.random.Generator) -> Image.Image:
    """Return noise whose power falls with its frequency, as that of photographs does, in colors that vary
    about two; or one color; or white."""
    kind = rng.random()
    if kind < 0.15:
        return Image.new("RGB", (CANVAS, CANVAS), "white")
    ends = rng.integers(0, 256, (2, 3)).astype(float)
    if kind < 0.3:
        red, green, blue = ends[0].astype(int).tolist()
        return Image.new("RGB", (CANVAS, CANVAS), (red, green, blue))
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(CANVAS), np.fft.rfftfreq(CANVAS), indexing="ij"))
    frequency[0, 0] = 1
    planes = []
    for power in rng.uniform(0.7, 2.2, 2):
        spectrum = np.fft.rfft2(rng.normal(size=(CANVAS, CANVAS))) / frequency**power
        plane = np.fft.irfft2(spectrum, (CANVAS, CANVAS))
        planes.append((plane - plane.mean()) / plane.std())
    ramp = np.linspace(-1.5, 1.5, CANVAS)[:, None] * rng.choice([-1, 0, 1])  # from the sky to the ground
    weight = 1 / (1 + np.exp(-1.5 * (planes[0] + ramp)))[..., None]
    pixels = ends[0] * weight + ends[1] * (1 - weight) + rng.uniform(0, 30) * planes[1][..., None]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def composed(cut: Image.Image | None, rng: np.random.Generator) -> Image.Image:
    """Return an object as a photograph might show it: somewhere, of some size, in some light; None: only
    a background."""
    if cut is None:
        return background(rng).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    if rng.random() < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for change in (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast):
        alpha = cut.getchannel("A")
        cut = change(cut).enhance(rng.uniform(0.7, 1.3))
        cut.putalpha(alpha)
    if is_photograph(cut):
        side = round(min(cut.size) * rng.uniform(0.6, 1.0))
        left, top = (round(rng.random() * (each - side)) for each in cut.size)
        square = cut.convert("RGB").crop((left, top, left + side, top + side))
        return square.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    cut = cut.rotate(rng.uniform(-20, 20), Image.Resampling.BICUBIC, expand=True)
    image = pasted(cut, background(rng), rng.uniform(0.6, 1.2), (rng.random(), rng.random()))
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8))) if rng.random() < 0.3 else image


class Part:
    """Images of a part as the stem's cells, the mean of the trunk's last map, pixels, and classes."""

    def __init__(
        self, images: list[tuple[Image.Image, int]], trunk: nn.Module, prepared: Preprocessing
    ) -> None:
        cells, last, pixels, thumbnails = [], [], [], []
        with torch.no_grad():
            for start in range(0, len(images), BATCH):
                batch = [image for image, _ in images[start : start + BATCH]]
                maps = trunk(prepared(batch))
                cells.append(maps[10].half())
                last.append(maps[-1].mean(dim=(2, 3)))
                pixels += [np.asarray(image.resize((16, 16)), dtype=np.float32).ravel() for image in batch]
                side = LINEAR["image_size"]
                thumbnails += [
                    np.asarray(image.resize((side, side), Image.Resampling.LANCZOS)) for image in batch
                ]
        self.cells, self.last = torch.cat(cells), torch.cat(last)
        self.pixels = torch.from_numpy(np.stack(pixels))
        self.thumbnails = torch.from_numpy(np.stack(thumbnails)).permute(0, 3, 1, 2)
        self.labels = torch.tensor([label for _, label in images])


def parts_of(packages: Path, trunk: nn.Module, prepared: Preprocessing) -> dict[str, Part]:
    """Return the parts: train and val as composed, val and test as they are."""
    classes = list(FOLDERS)
    found: dict[tuple[str, str], list[Image.Image]] = defaultdict(list)
    for image, label, name in objects(packages):
        if cut := cut_out(image):
            found[part_of(name, label), label].append(cut)
    for (part, label), cuts in sorted(found.items()):
        print(part, label, len(cuts), sum(map(is_photograph, cuts)), "of them whole photographs", flush=True)
    parts: dict[str, list[tuple[Image.Image, int]]] = defaultdict(list)
    for (part, label), cuts in found.items():
        rng = np.random.default_rng(list(hashlib.sha256(f"{part} {label}".encode()).digest()))
        number = classes.index(label)
        if part != "train":
            parts[part] += [(as_it_is(cut), number) for cut in cuts]
        count = COPIES if part == "train" else 2 * len(cuts) if part == "val" else 0
        for copy in range(count):
            # A tenth of the training images of "none of these" have no object.
            empty = label == NONE and copy % 10 == 0
            parts[part].append((composed(None if empty else cuts[copy % len(cuts)], rng), number))
    return {part: Part(images, trunk, prepared) for part, images in parts.items()}


def teacher_of(parts: dict[str, Part]) -> nn.Linear:
    """Return a linear classifier on what the whole trunk sees, which has more to say than a class."""
    train, val = parts["train"], parts["val"]
    best, most = nn.Linear(train.last.shape[1], len(FOLDERS)), 0.0
    for decay in (1e-4, 1e-3, 1e-2):
        torch.manual_seed(0)
        linear = nn.Linear(train.last.shape[1], len(FOLDERS))
        optimizer = torch.optim.Adam(linear.parameters(), lr=1e-3, weight_decay=decay)
        for _ in range(4):
            for rows in torch.split(torch.randperm(len(train.labels)), 256):
                loss = F.cross_entropy(linear(train.last[rows]), train.labels[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        right = balanced(linear(val.last).argmax(dim=1), val.labels)
        print(f"teacher with decay {decay}: {right:.3f} of the validation images", flush=True)
        if right > most:
            best, most = linear, right
    return best


def balanced(answers: Tensor, labels: Tensor) -> float:
    """Return the mean over the classes of the share that is right."""
    return float(np.mean([float((answers[labels == k] == k).float().mean()) for k in torch.unique(labels)]))


def logits_of(model: ViT, cells: Tensor) -> Tensor:
    """Return a ViT's logits of cells of its stem."""
    tokens: Tensor = model.stem.get_submodule("projection")(cells.float()).flatten(2).transpose(1, 2)
    z = model.add_positions(model.prepend_tokens(tokens))
    return model.head(model.representation(model.pool(model.norm(model.encode(z)))))


def logits_of_pixels(model: ViT, thumbnails: Tensor) -> Tensor:
    """Return a ViT's logits of thumbnails in uint8, half of them mirrored while it trains."""
    images = thumbnails.float() / 127.5 - 1
    if model.training:
        mirrored = torch.rand(len(images)) < 0.5
        images[mirrored] = images[mirrored].flip(3)
    logits: Tensor = model(images)
    return logits


def train(model: ViT, parts: dict[str, Part], epochs: int = EPOCHS) -> float:
    """Train the Transformer, on cells of the frozen stem or on pixels; keep what is best on validation
    images, and return its mean accuracy over the classes there."""
    data, val = parts["train"], parts["val"]
    hybrid = "stem.backbone" in dict(model.named_modules())
    answer = logits_of if hybrid else logits_of_pixels
    seen, held_out = (each.cells if hybrid else each.thumbnails for each in (data, val))
    teacher = teacher_of(parts)
    with torch.no_grad():
        taught = (teacher(data.last) / 2).softmax(dim=1)
    parameters = [each for name, each in model.named_parameters() if "backbone" not in name]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)
    steps = epochs * (len(data.labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.1)
    torch.manual_seed(0)
    best, most = {}, 0.0
    for epoch in range(epochs):
        model.train()
        for rows in torch.split(torch.randperm(len(data.labels)), BATCH)[: len(data.labels) // BATCH]:
            inputs, soft = seen[rows].float(), taught[rows]
            hard = F.one_hot(data.labels[rows], len(FOLDERS)).float() * 0.9 + 0.1 / len(FOLDERS)
            # Pairs of images are mixed, cell by cell or pixel by pixel: what the Transformer sees.
            share, other = float(torch.distributions.Beta(0.4, 0.4).sample()), torch.randperm(len(rows))
            inputs, soft, hard = (share * each + (1 - share) * each[other] for each in (inputs, soft, hard))
            logits = answer(model, inputs)
            loss = -0.5 * (hard * logits.log_softmax(dim=1)).sum(dim=1).mean()
            loss = loss - 0.5 * 4 * (soft * (logits / 2).log_softmax(dim=1)).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.inference_mode():
            right = balanced(answer(model, held_out).argmax(dim=1), val.labels)
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}, validation {right:.3f}", flush=True)
        if right > most:
            best, most = {name: each.clone() for name, each in model.state_dict().items()}, right
    model.load_state_dict(best)
    return most


def leaning(logits: Tensor, labels: Tensor) -> float:
    """Return what to add to the logit of "none of these": the most with which enough of the things that are
    recognized stay so. In training it is one class of nine."""
    none = list(FOLDERS).index(NONE)
    things = labels != none
    recognized = int((logits.argmax(dim=1) == labels)[things].sum())
    most = 0.0
    for more in np.arange(0.05, 5, 0.05).round(2).tolist():
        answers = leaned(logits, more).argmax(dim=1)
        if int((answers == labels)[things].sum()) >= KEPT * recognized:
            most = more
    return most


def leaned(logits: Tensor, more: float) -> Tensor:
    return logits + more * F.one_hot(torch.tensor(list(FOLDERS).index(NONE)), len(FOLDERS))


def write_photographs() -> None:
    """Write the photographs of the page, none of which is in any part."""
    for number, (label, (package, file, (x, y), share)) in enumerate(SHOWN.items()):
        (root,) = importlib.import_module(package).__path__
        image = Image.open(Path(root) / file).convert("RGB")
        side = round(share * min(image.size))
        left, top = round(x * image.width - side / 2), round(y * image.height - side / 2)
        left, top = max(0, min(image.width - side, left)), max(0, min(image.height - side, top))
        square = image.crop((left, top, left + side, top + side))
        square = square.resize((SHOWN_SIZE, SHOWN_SIZE), Image.Resampling.LANCZOS)
        square.save(FOLDER / f"{number}-{label.replace(' ', '_')}.jpg", quality=82, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", type=Path)
    parser.add_argument("--features", action="store_true", help="only what the stem makes of the images")
    parser.add_argument(
        "--linear", action="store_true", help="compare with linear patches, and write no model"
    )
    options = parser.parse_args()
    packages = options.packages
    torch.set_num_threads(1)
    classes = list(FOLDERS)
    photos = vt.load("vitreous:photos").eval()
    trunk = photos.get_submodule("stem.backbone")
    model = vt.create("EfficientLite0+ViT-Ti/16", num_classes=len(classes), **MODEL)
    assert isinstance(model, ViT)
    stem = model.get_submodule("stem.backbone")
    prepared = photos.preprocessing.model_copy(
        update={"size": (SIZE, SIZE), "resize": "crop", "crop_fraction": 1.0}
    )
    model.preprocessing, model.labels, model.task = prepared, classes, "classification"
    weights = {name: each for name, each in trunk.state_dict().items() if name in stem.state_dict()}
    stem.load_state_dict(weights)
    kept = packages / "photo_parts_2.pt"
    if kept.is_file():
        parts = torch.load(kept, weights_only=False)
    else:
        parts = parts_of(packages, trunk, prepared)
        torch.save(parts, kept)
    if options.features:
        return
    reached = train(model, parts)
    if options.linear:
        torch.manual_seed(0)
        linear = vt.create("ViT-Ti/16", num_classes=len(classes), **LINEAR)
        assert isinstance(linear, ViT)
        size = sum(each.numel() for each in linear.parameters())
        compared = train(linear, parts, LINEAR_EPOCHS)
        rows = {
            "hybrid": {"validation": round(reached, 3), "epochs": EPOCHS},
            "linear": {"validation": round(compared, 3), "parameters": size, "epochs": LINEAR_EPOCHS},
        }
        print(json.dumps(rows, indent=1))
        return
    in_8_bits(model)
    model.half().float()
    test, val = parts["test"], parts["val"]
    none = classes.index(NONE)
    with torch.inference_mode():
        more = leaning(logits_of(model, val.cells), val.labels)
        straight = logits_of(model, test.cells).argmax(dim=1)
        model.get_parameter("head.bias")[none] += more
        model.half().float()
        answers = logits_of(model, test.cells).argmax(dim=1)
    nearest = torch.cdist(test.pixels, parts["train"].pixels).argmin(dim=1)
    for k, label in enumerate(classes):
        of_class = test.labels == k
        print(label, int((answers[of_class] == k).sum()), "of", int(of_class.sum()))
    correct, things = answers == test.labels, test.labels != none
    for name, found in (("without leaning", straight), (f"leaning by {more}", answers)):
        of_things, of_others = ((found == test.labels)[each] for each in (things, ~things))
        print(name, int(of_things.sum()), "of", len(of_things), int(of_others.sum()), "of", len(of_others))
    right, count = int(correct[things].sum()), int(things.sum())
    low, high = wilson_interval(right, count)
    facts = {
        "count": count,
        "right": right,
        "percent_right": round(100 * right / count),
        "low": round(100 * low),
        "high": round(100 * high),
        "frequent": round(100 * int(test.labels[things].bincount().max()) / count),
        "by_pixels": round(
            100 * float((parts["train"].labels[nearest] == test.labels)[things].float().mean())
        ),
        "others": int((~things).sum()),
        "refused": round(100 * float(correct[~things].float().mean())),
    }
    print(facts)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "facts.json").write_text(
        json.dumps({"credit": CREDIT, **facts}, indent=1) + "\n", encoding="utf-8"
    )
    save_native(model.half(), FOLDER)
    (FOLDER / "model.safetensors").chmod(0o644)
    write_photographs()


if __name__ == "__main__":
    main()
