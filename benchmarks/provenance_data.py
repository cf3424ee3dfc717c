"""What recipes do with images beside what their sources do: crops, colors, resizing, and the images of an
epoch. `provenance.py` runs it."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from peers import import_timm, import_torchvision
from PIL import Image, ImageOps
from provenance_colors import DRAWN, appearance, noise
from provenance_rows import DRAWS, LIMITS, Row, chance, ks, largest, load
from provenance_settings import inside

from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.image_augmentation import change_colors
from vitreous.data.loading import Sampler
from vitreous.data.rand_augment import LISTS, Strength
from vitreous.data.sampling import repeated, shuffled_order
from vitreous.data.transforms import crop_pixels, random_crop
from vitreous.models.preprocessing import Preprocessing, to_tensor
from vitreous.rng import numpy_generator
from vitreous.tasks.pretraining.rules import find_recipe

TENSORFLOW = Path(__file__).parent / "results" / "provenance_tensorflow.npz"
GOOGLE = (
    *("s16-baseline", "augreg", "vtab-1k", "paper-jft", "paper-imagenet1k", "paper-imagenet21k"),
    *("paper-fine-tuning", "paper-fine-tuning-imagenet", "paper-masked-patch"),
)
TORCH = ("vit5", "deit", "deit-distilled", "deit3", "mae", "mae-fine-tuning")
# Whose folder of a clone has how evaluation resizes.
EVALUATIONS = {
    "deit": "deit/datasets.py",
    "deit-distilled": "deit/datasets.py",
    "deit3": "deit/datasets.py",
    "mae-fine-tuning": "mae/util/datasets.py",
    "vit5": "ViT-5/datasets.py",
}
# By the readers whose orders are kept. VTAB's sets of 1,000 images are shuffled whole, as CIFAR-10 is.
ORDERS = {
    "s16-baseline": "big_vision",
    "augreg": "big_vision",
    "paper-fine-tuning": "vit_jax whole",
    "vtab-1k": "vit_jax whole",
    "paper-fine-tuning-imagenet": "vit_jax",
}


def boxes(config: RandomResizedCropConfig, size: tuple[int, int]) -> list[np.ndarray]:
    """Top, left, height, width and area of our crops."""
    drawn = [random_crop(size, config, numpy_generator(0, "sample", 0, i, 0)) for i in range(DRAWS)]
    columns = [*np.array(drawn).T]
    return [*columns, columns[2] * columns[3]]


def crops_of_tensorflow() -> Iterator[Row]:
    kept, known = np.load(TENSORFLOW), {}
    for name in GOOGLE:
        config = find_recipe(name).config.augmentation.random_resized_crop
        assert config
        if config not in known:
            known[config] = largest(
                {
                    f"{column} of {size}": ks(ours, theirs)
                    for size in ("375x500", "224x224", "500x200")
                    for column, ours, theirs in zip(
                        ("top", "left", "height", "width", "area"),
                        boxes(config, tuple(map(int, size.split("x")))),  # type: ignore[arg-type]
                        kept[f"boxes/{size}"],
                        strict=True,
                    )
                }
            )
        yield Row(name, "crops", *known[config], f"TensorFlow {kept['version']}", chance(DRAWS))


def crops_of_torchvision() -> Iterator[Row]:
    torchvision = import_torchvision()
    assert torchvision
    views = find_recipe("dino").config.own.views  # type: ignore[attr-defined]
    configs = {name: [find_recipe(name).config.augmentation.random_resized_crop] for name in TORCH}
    configs["dino"] = [RandomResizedCropConfig(scale=each) for each in (views.large_scale, views.small_scale)]
    size, crop, image = (375, 500), torchvision.transforms.RandomResizedCrop, torch.empty(3, 375, 500)
    for name, wanted in configs.items():
        found = {}
        for config in wanted:
            assert config
            drawn = [crop.get_params(image, [*config.scale], [3 / 4, 4 / 3]) for _ in range(DRAWS)]
            theirs = np.array(drawn).T
            for column, mine, other in zip(
                ("top", "left", "height", "width", "area"),
                boxes(config, size),
                [*theirs, theirs[2] * theirs[3]],
                strict=True,
            ):
                found[column if len(wanted) == 1 else f"{column} of {config.scale}"] = ks(mine, other)
        yield Row(name, "crops", *largest(found), f"torchvision {torchvision.__version__}", chance(DRAWS))


def mean_difference(ours: Any, theirs: Any) -> float:
    return float(np.abs(np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)).mean())


def colors_of_big_vision() -> Iterator[Row]:
    kept, chosen = np.load(TENSORFLOW), LISTS["big_vision"]
    image, found = Image.fromarray(noise(48, 64)), {}
    for key in [key for key in kept.files if key.startswith("operation/")]:
        _, name, level = key.split("/")
        ours = "".join(f"-{c.lower()}" if c.isupper() else c for c in name).strip("-")
        ours = ours.replace("auto-contrast", "autocontrast")
        apart, size = [], int(level) / chosen.levels
        if "Translate" in name:  # 100 pixels at the strongest, ours as a part of the usual 224
            size *= 224 / (64 if name.endswith("X") else 48)
        for sign in (1, -1):  # theirs is of one direction; which one ours calls positive does not matter
            strength = Strength(size, sign, (0, 0), chosen.fill, chosen.resample)
            apart.append(mean_difference(chosen.table[ours](image, strength), kept[key]))
        found[f"{name} at {level}"] = min(apart)
    for name in ("s16-baseline", "augreg"):
        yield Row(
            name, "colors", *largest(found), f"big_vision in TensorFlow {kept['version']}", LIMITS["colors"]
        )


def colors_of_timm() -> Iterator[Row]:
    import_timm()
    theirs = importlib.import_module("timm.data.auto_augment")
    chosen, image, found = LISTS["timm"], Image.fromarray(noise(48, 64)), {}
    ours = {
        "PosterizeIncreasing": "posterize",
        "SolarizeIncreasing": "solarize",
        "SolarizeAdd": "solarize-add",
    }
    ours |= {
        "ColorIncreasing": "color",
        "ContrastIncreasing": "contrast",
        "BrightnessIncreasing": "brightness",
    }
    ours |= {"SharpnessIncreasing": "sharpness", "AutoContrast": "autocontrast", "Equalize": "equalize"}
    ours |= {"Invert": "invert", "Rotate": "rotate", "ShearX": "shear-x", "ShearY": "shear-y"}
    ours |= {"TranslateXRel": "translate-x", "TranslateYRel": "translate-y"}
    hparams = {"img_mean": chosen.fill, "interpolation": chosen.resample}
    for name in theirs._RAND_INCREASING_TRANSFORMS:
        for level in (3, 9):
            operation = theirs.AugmentOp(name, prob=1.0, magnitude=level, hparams=hparams)
            apart = []
            for sign in (1, -1):
                strength = Strength(level / chosen.levels, sign, (0, 0), chosen.fill, chosen.resample)
                mine = chosen.table[ours[name]](image, strength)
                apart += [mean_difference(mine, operation(image)) for _ in range(12)]
            found[f"{name} at {level}"] = min(apart)
    for name in ("deit", "deit-distilled", "mae-fine-tuning"):
        yield Row(
            name,
            "colors",
            *largest(found),
            f"timm {importlib.import_module('timm').__version__}",
            LIMITS["colors"],
        )


Change = Callable[[int], Any]  # the image of a draw


def drawn(change: Change) -> np.ndarray:
    """What the image looks like in 20,000 draws, (A, draws)."""
    return np.array([appearance(np.asarray(change(number))) for number in range(DRAWS)]).T


def furthest(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[float, str]:
    """The largest KS distance of the numbers of `appearance`, of several kinds of images."""
    columns = ("mean red", "mean green", "mean blue", "spread of red", "spread of green", "spread of blue")
    found = {}
    for kind, (ours, theirs) in pairs.items():
        for column, mine, other in zip((*columns, "edges"), ours, theirs, strict=True):
            found[f"{column}, {kind}" if kind else column] = ks(mine, other)
    return largest(found)


def ours_drawn(name: str) -> np.ndarray:
    """After the color changes of a recipe."""
    pixels, config = to_tensor(Image.fromarray(noise(DRAWN, DRAWN))), find_recipe(name).config.augmentation

    def change(number: int) -> torch.Tensor:
        return change_colors(pixels, config, numpy_generator(0, "sample", 0, number, 0)).permute(1, 2, 0)

    return drawn(change)


def draws_of_big_vision() -> Iterator[Row]:
    kept = np.load(TENSORFLOW)
    for name, magnitude in (("s16-baseline", 10), ("augreg", 15)):
        found = furthest({"": (ours_drawn(name), kept[f"draws/{magnitude}"])})
        source = f"big_vision in TensorFlow {kept['version']}"
        yield Row(name, "color draws", *found, source, chance(DRAWS))


def draws_of_timm() -> Iterator[Row]:
    """RandAugment as `create_transform` sets it up."""
    timm = import_timm()
    policy: Any = find_recipe("deit").config.augmentation.policy
    made = importlib.import_module("timm.data").create_transform(
        input_size=224,
        is_training=True,
        auto_augment=f"rand-m{policy.magnitude:g}-mstd{policy.magnitude_std}-inc1",
        interpolation="bicubic",
    )
    (augment,) = [each for each in made.transforms if type(each).__name__ == "RandAugment"]
    image = Image.fromarray(noise(DRAWN, DRAWN))
    np.random.seed(0)  # noqa: NPY002  # timm draws operations from it
    random.seed(0)
    with patch.object(ImageOps, "posterize", partial(posterized, ImageOps.posterize)):
        theirs = drawn(lambda number: augment(image))
    found = furthest({"": (ours_drawn("deit"), theirs)})
    for name in ("deit", "deit-distilled", "mae-fine-tuning"):
        assert find_recipe(name).config.augmentation.policy == policy
        yield Row(name, "color draws", *found, f"timm {timm.__version__}", chance(DRAWS))


def posterized(posterize: Callable[..., Image.Image], image: Image.Image, bits: int) -> Image.Image:
    """Pillow's operation, which refuses to keep no bits since release 13; before, that made a black image."""
    return posterize(image, bits) if bits else Image.new(image.mode, image.size)


def draws_of_authors(sources: Path) -> Iterator[Row]:
    """3-Augment with color jitter of DeiT III and of ViT-5, and the three kinds of views of DINO."""
    import_timm()
    image = Image.fromarray(noise(DRAWN, DRAWN))
    of_timm = importlib.import_module("timm.data.transforms")
    for name, folder in (("deit3", "deit"), ("vit5", "ViT-5")):
        random.seed(0)
        torch.manual_seed(0)
        jitter: Any = find_recipe(name).config.augmentation.color_jitter
        options = SimpleNamespace(input_size=DRAWN, src=False, color_jitter=jitter.brightness)
        with patch.multiple(of_timm, create=True, _pil_interp=None, ToTensor=None):  # imported, and not used
            code = load(sources / folder / "augment.py")
        made = code.new_data_aug_generator(options).transforms
        changes = [each for each in made if type(each).__name__ in ("RandomChoice", "ColorJitter")]
        theirs = drawn(partial(one_after_another, changes, image))
        found = furthest({"": (ours_drawn(name), theirs)})
        yield Row(name, "color draws", *found, f"{folder}, augment.py", chance(DRAWS))

    with inside(sources / "dino"), patch.object(torch.hub, "list", lambda name: []):
        of_dino = importlib.import_module("main_dino")
    views = find_recipe("dino").config.own.views  # type: ignore[attr-defined]
    cut = of_dino.DataAugmentationDINO(views.large_scale, views.small_scale, views.small_count)
    pairs = {}
    for kind, transform, blur, solarize in (
        ("first large view", cut.global_transfo1, min(2 * views.blur, 1.0), 0.0),
        ("second large view", cut.global_transfo2, views.blur / 5, views.solarize),
        ("small view", cut.local_transfo, views.blur, 0.0),
    ):
        theirs = transform.transforms[1:-1]  # without the crop and the normalization
        pairs[kind] = (
            views_drawn(image, views, blur, solarize),
            drawn(partial(one_after_another, theirs, image)),
        )
    yield Row("dino", "color draws", *furthest(pairs), "dino, main_dino.py", chance(DRAWS))


def one_after_another(changes: list[Any], image: Image.Image, number: int) -> Image.Image:
    for each in changes:
        image = each(image)
    return image


def views_drawn(image: Image.Image, config: Any, blur: float, solarize: float) -> np.ndarray:
    """Our views of the whole image."""
    from vitreous.addons.self_supervision import views

    crops = views.MultiCrop(config, (224, 224), (96, 96))

    def change(number: int) -> torch.Tensor:
        rng = numpy_generator(0, "sample", 0, number, 0)
        view = crops.view(image, config.large_scale, (DRAWN, DRAWN), blur, solarize, rng)
        return view.permute(1, 2, 0)

    with patch.object(views, "random_crop", lambda *words: (0, 0, DRAWN, DRAWN)):
        return drawn(change)


def resizing_of_tensorflow() -> Iterator[Row]:
    kept, source = np.load(TENSORFLOW), torch.from_numpy(noise(100, 150)).permute(2, 0, 1)
    where, limit, whole = f"TensorFlow {kept['version']}", LIMITS["resizing"], (0, 0, 100, 150)
    small = Preprocessing(size=(32, 32), interpolation="bilinear", resize="squash")
    for recipe in GOOGLE:
        crop = find_recipe(recipe).config.augmentation.random_resized_crop
        assert crop
        ours = crop_pixels(source, whole, (100, 150), small, crop)
        theirs = kept["bilinear/32x32"]
        if ORDERS.get(recipe) == "big_vision":  # get_resize casts to the bytes of its image; vit_jax does not
            theirs = theirs.astype(np.uint8)
        apart = mean_difference(ours.permute(1, 2, 0), theirs)
        yield Row(recipe, "resizing of crops", apart, "32x32", where, limit)
    large = Preprocessing(size=(64, 96), interpolation="bilinear", resize="squash")
    ours = crop_pixels(source, whole, (100, 150), large)
    for recipe in ORDERS:
        theirs = "area" if ORDERS[recipe] == "big_vision" else "bilinear"
        apart = mean_difference(ours.permute(1, 2, 0), kept[f"{theirs}/64x96"])
        yield Row(recipe, "resizing in evaluation", apart, f"64x96, {theirs}", where, limit)


def resizing_of_torchvision(sources: Path | None) -> Iterator[Row]:
    """A crop as RandomResizedCrop resizes it, and evaluation as the authors' code sets it up."""
    torchvision = import_torchvision()
    assert torchvision
    import_timm()
    image, box = Image.fromarray(noise(375, 500)), (30, 60, 300, 350)
    where, limit = f"torchvision {torchvision.__version__}", LIMITS["resizing"]
    theirs = torchvision.transforms.functional.resized_crop(
        image, *box, [224, 224], torchvision.transforms.InterpolationMode.BICUBIC
    )
    pixels = to_tensor(image)
    for name in TORCH:
        ours = crop_pixels(pixels, box, (375, 500), find_recipe(name).config.prepared)
        apart = mean_difference(ours.permute(1, 2, 0), theirs)
        yield Row(name, "resizing of crops", apart, "300x350", where, limit)
    top, left, height, width = box
    resized = image.resize((224, 224), Image.Resampling.BICUBIC, (left, top, left + width, top + height))
    yield Row("dino", "resizing of crops", mean_difference(resized, theirs), "300x350", where, limit)
    for name, path in EVALUATIONS.items() if sources else ():
        assert sources
        config = find_recipe(name).config
        options = SimpleNamespace(
            input_size=config.model.image_size[0], eval_crop_ratio=config.preprocessing.crop_fraction
        )
        seen = load(sources / path).build_transform(False, options)(image)
        mine = config.prepared(image)
        scale = 255 * torch.tensor(config.preprocessing.std).view(3, 1, 1)
        apart = mean_difference(mine * scale, seen * scale)
        yield Row(name, "resizing in evaluation", apart, "375x500", f"{path}, {where}", limit)


def often(rows: np.ndarray, images: int) -> np.ndarray:
    """The shares of images that come 0, 1, 2, 3 or more times in the batches (steps, batch) of an epoch."""
    counts = np.bincount(rows.ravel(), minlength=images).clip(max=3)
    return np.bincount(counts, minlength=4) / images


def our_epoch(name: str, images: int, batch: int) -> np.ndarray:
    """The images (steps, batch) of a recipe's first epoch."""
    count = find_recipe(name).config.augmentation.repeated_augmentation

    def order(epoch: int) -> Any:
        found = shuffled_order(images, seed=0, epoch=epoch)
        return repeated(found, count, batch) if count > 1 else found

    sampler = Sampler(order, images, batch_size=batch)
    return np.stack([rows.indices for rows in sampler.epoch(0)])


def apart_in_an_epoch(name: str, theirs: np.ndarray, images: int) -> tuple[float, str]:
    """The largest difference of a share of `often`."""
    mine, other = often(our_epoch(name, images, theirs.shape[1]), images), often(theirs, images)
    size, times = largest(
        {str(times): abs(a - b) for times, (a, b) in enumerate(zip(mine, other, strict=True))}
    )
    return size, f"{times} times: {mine[int(times)]:.3f} of the images, {other[int(times)]:.3f} there"


def epochs_of_tensorflow() -> Iterator[Row]:
    kept = np.load(TENSORFLOW)
    for name, reader in ORDERS.items():
        rows = kept[f"order/{reader}"].astype(np.int64)
        images = int(rows.max()) + 1
        found = apart_in_an_epoch(name, rows[: images // rows.shape[1]], images)
        source = f"the reader of {reader.split()[0]}, TensorFlow {kept['version']}"
        yield Row(name, "batch", *found, source, LIMITS["batch"])


def of_processes(sampler: Callable[..., Any], images: int, batch: int) -> np.ndarray:
    """The images (steps, batch) that eight processes have together in each step, without a last part."""
    parts = [np.array([*sampler(range(images), num_replicas=8, rank=rank)]) for rank in range(8)]
    steps = len(parts[0]) // (batch // 8)
    cut = [part[: steps * (batch // 8)].reshape(steps, -1) for part in parts]
    return np.concatenate(cut, axis=1)


def epochs_of_torch() -> Iterator[Row]:
    """PyTorch's DistributedSampler in eight processes, without a last batch that is not full."""
    sampler = importlib.import_module("torch.utils.data").DistributedSampler
    rows = of_processes(sampler, 12_812, 128)
    for name in ("mae", "mae-fine-tuning", "dino"):
        found = apart_in_an_epoch(name, rows, 12_812)
        yield Row(
            name, "batch", *found, f"DistributedSampler of PyTorch {torch.__version__}", LIMITS["batch"]
        )


def copies(sources: Path | None) -> Iterator[Row]:
    """Of 1,024 images with three copies each, how many are whole; and how often one comes in an epoch."""
    batch, count, number = 1024, 3, 600
    order = repeated(shuffled_order(batch * number, seed=0, epoch=0), count, batch)
    ours = np.asarray(order.indices[:]).reshape(number, batch)

    def share(rows: np.ndarray) -> float:
        return float((np.unique(rows, return_counts=True)[1] == count).mean())

    least = min(share(each) for each in ours)
    folders = {"deit": "deit", "deit-distilled": "deit", "deit3": "deit", "vit5": "ViT-5"}
    for name, folder in folders.items():
        theirs, where, often_apart = 1 - 2 / (batch / count), "no clone: two images at the edges", 0.0
        if sources:
            sampler = load(sources / folder / "samplers.py").RASampler
            parts = [[*sampler(range(batch * 100), num_replicas=8, rank=rank)] for rank in range(8)]
            rows = np.array(parts).T.reshape(-1, batch)  # what the processes have in each step
            theirs, where = min(map(share, rows)), f"{folder}, samplers.py, eight processes"
            often_apart, times = apart_in_an_epoch(name, of_processes(sampler, 12_812, 128), 12_812)
        text = f"least {least:.3f}, {theirs:.3f} there"
        if often_apart > abs(theirs - least):
            text = times
        yield Row(name, "batch", max(abs(theirs - least), often_apart), text, where, LIMITS["batch"])


def images_of_bit(sources: Path) -> Iterator[Row]:
    """What BiT's training in PyTorch does with the images of a folder: squashed, cropped, shuffled."""
    with inside(sources / "big_transfer"):
        program = importlib.import_module("bit_pytorch.train")
    images, batch = 12_800, 128

    class Folder(list[int]):
        """Stands for torchvision's ImageFolder: numbers, and what would be done with their images."""

        def __init__(self, root: str, transform: Any) -> None:
            super().__init__(range(images))
            self.transform = transform

    options = SimpleNamespace(
        dataset="imagenet2012", datadir="", examples_per_class=None, batch=batch, batch_split=1, workers=0
    )
    with patch.object(program.tv.datasets, "ImageFolder", Folder):
        train, valid, loader, _ = program.mktrainval(options, MagicMock())
    name, source = "bit-hyperrule", "big_transfer, bit_pytorch/train.py"
    config = find_recipe(name).config
    squash, crop = train.transform.transforms[:2]
    drawn_boxes = np.array([crop.get_params(Image.new("L", squash.size), crop.size) for _ in range(DRAWS)]).T
    theirs = [*drawn_boxes, drawn_boxes[2] * drawn_boxes[3]]
    wanted = config.augmentation.random_resized_crop
    assert wanted
    found = {}
    for column, mine, other in zip(
        ("top", "left", "height", "width", "area"), boxes(wanted, squash.size), theirs, strict=True
    ):
        found[column] = ks(mine, other)
    yield Row(name, "crops", *largest(found), source, chance(DRAWS))

    image, look = Image.fromarray(noise(512, 1024)), config.prepared
    cut = squash(image).crop((16, 16, 16 + crop.size[1], 16 + crop.size[0]))
    ours = crop_pixels(to_tensor(image), (16, 32, 480, 960), (512, 1024), look)
    apart = mean_difference(ours.permute(1, 2, 0), cut)
    yield Row(name, "resizing of crops", apart, "512x1024", source, LIMITS["resizing"])
    seen, evaluated = valid.transform(image), look(image)
    apart = mean_difference(evaluated * 127.5, seen * 127.5)
    yield Row(name, "resizing in evaluation", apart, "512x1024", source, LIMITS["resizing"])
    rows = np.array([*loader.sampler]).reshape(-1, batch)
    yield Row(name, "batch", *apart_in_an_epoch(name, rows, images), source, LIMITS["batch"])
