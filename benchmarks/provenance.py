"""Recipes beside the code that they cite, run on the same data: the largest difference of each quantity.

    git clone https://github.com/google-research/big_vision
    # and google-research/{vision_transformer,big_transfer}, facebookresearch/{deit,dino,mae}, wangf3014/ViT-5
    python benchmarks/provenance.py --sources FOLDER --out src/vitreous/training/recipes/provenance.json

FOLDER has the clones. What needs none runs without `--sources`: it asks timm, torchvision, and the numbers of
TensorFlow that `provenance_tensorflow.py` keeps. The models and optimizers of big_vision and vit_jax run in
JAX (flax, optax).

Settings: `provenance_settings.py` reads what the sources set out of their own configurations and parsers.

Quantities:
    (a recipe is beside its source, or beside a `peer`: another library that has the same model)
    weights    Kolmogorov-Smirnov distance of the initial values of a tensor, the largest of all tensors
    crops      the same for height, width, area and place of 20,000 crops
    colors     mean difference of the pixels (0 ... 255) after an operation of RandAugment, the largest
    resizing   mean difference of pixels after the resizing of training crops and of evaluation
    batch      share of images whose copies are all in one batch, at the step where that is least
    gradient   of the first step, relative to its norm, the largest of all tensors
    angle      degrees between a tensor before and after 20 steps, the largest difference from the source's
    loss       of 200 steps, the largest difference
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from peers import import_timm, import_torchvision
from PIL import Image
from provenance_settings import settings
from record import write_results
from torch import nn

import vitreous as vt
from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.image_augmentation import LISTS, Strength
from vitreous.data.image_samples import Batch
from vitreous.data.sampling import repeated, shuffled
from vitreous.data.transforms import random_crop
from vitreous.models.preprocessing import Preprocessing
from vitreous.rng import numpy_generator
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, TrainStep

TENSORFLOW = Path(__file__).parent / "results" / "provenance_tensorflow.npz"
DRAWS, STEPS, SHORT = 20_000, 200, 20
GOOGLE = ("s16-baseline", "augreg", "vtab-1k", "paper-jft", "paper-imagenet1k", "paper-imagenet21k")
GOOGLE += ("paper-fine-tuning", "paper-fine-tuning-imagenet", "paper-masked-patch")
TORCH = ("vit5", "deit", "deit-distilled", "mae", "mae-fine-tuning")


class Row(NamedTuple):
    """A quantity of a recipe, beside the code that was run."""

    recipe: str
    quantity: str
    difference: float
    where: str  # the tensor, operation or size of the largest difference
    source: str  # what was run
    limit: float  # what chance or rounding explains
    why: str = ""  # the reason where it is more
    peer: str = ""  # another library with the same model, for which the recipe was not written


# Distributions


def ks(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest distance of two empirical distributions."""
    places = np.unique(np.concatenate([ours, theirs]))
    shares = [np.searchsorted(np.sort(each), places, side="right") / len(each) for each in (ours, theirs)]
    return float(np.abs(shares[0] - shares[1]).max())


def boxes(config: RandomResizedCropConfig, size: tuple[int, int]) -> list[np.ndarray]:
    """Top, left, height, width and area of our crops."""
    drawn = [random_crop(size, config, numpy_generator(0, "sample", 0, i, 0)) for i in range(DRAWS)]
    columns = [*np.array(drawn).T]
    return [*columns, columns[2] * columns[3]]


def largest(found: Mapping[str, float]) -> tuple[float, str]:
    where = max(found, key=lambda name: found[name])
    return found[where], where


def chance(draws: int) -> float:
    """The KS distance of two samples that one comparison in a thousand exceeds by chance."""
    return 1.95 * math.sqrt(2 / draws)


WHY = {
    "transformers weights": "transformers draws the patch projection from N(0, 0.02), as all "
    "matrices; timm leaves it as PyTorch draws convolutions",
    "transformers loss": "its Trainer decays positions and the class token, too; where both decay the same, "
    "losses agree",
    "vit-pytorch weights": "vit-pytorch draws positions and tokens from N(0, 1), and leaves matrices as "
    "PyTorch draws linear layers",
    "mae weights": "as vit_jax: query, key and value are three matrices, patches LeCun normal, tokens zero",
    "vit5 weights": "as timm: the class token and the registers begin near zero, and not from N(0, 0.02)",
    "colors": "TensorFlow shears about the center of the first pixel, Pillow about its corner",
    "loss": "not known: a first moment in bfloat16, imitated, leaves 0.1145; weights that differ by 1e-6 "
    "give 0.0002",
    "resizing in evaluation": "TensorFlow's area filter; bilinear with antialiasing averages more",
}
# Of what is computed and not drawn: pixels are rounded, and float32 adds up in another order.
LIMITS = {"colors": 0.5, "resizing": 0.5, "batch": 0.01, "gradient": 1e-4, "angle": 1.0, "loss": 0.02}


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
    for name in TORCH:
        config = find_recipe(name).config.augmentation.random_resized_crop
        assert config
        found, size = {}, (375, 500)
        crop = torchvision.transforms.RandomResizedCrop
        image = torch.empty(3, *size)
        theirs = np.array([crop.get_params(image, [*config.scale], [3 / 4, 4 / 3]) for _ in range(DRAWS)]).T
        for column, mine, other in zip(
            ("top", "left", "height", "width", "area"),
            boxes(config, size),
            [*theirs, theirs[2] * theirs[3]],
            strict=True,
        ):
            found[column] = ks(mine, other)
        yield Row(name, "crops", *largest(found), f"torchvision {torchvision.__version__}", chance(DRAWS))


def noise(height: int, width: int) -> np.ndarray:
    """The image of `provenance_tensorflow.py`."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = np.stack([np.sin(7 * x + 3 * y), np.cos(5 * y), np.sin(11 * x * y)], axis=-1)
    return np.clip(110 + 70 * waves + rng.normal(0, 20, waves.shape), 0, 255).astype(np.uint8)


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
    for name in ("deit", "deit-distilled"):
        yield Row(
            name,
            "colors",
            *largest(found),
            f"timm {importlib.import_module('timm').__version__}",
            LIMITS["colors"],
        )


def resizing_of_tensorflow() -> Iterator[Row]:
    from vitreous.data import transforms

    kept, source = np.load(TENSORFLOW), torch.from_numpy(noise(100, 150)).permute(2, 0, 1)
    config = find_recipe("s16-baseline").config
    crop = config.augmentation.random_resized_crop
    for target in ((32, 32), (64, 96)):
        name = f"{target[0]}x{target[1]}"
        preprocessing = Preprocessing(size=target, interpolation="bilinear", resize="squash")
        options = {"antialias": False} if not getattr(crop, "antialias", True) else {}
        ours = transforms.crop_pixels(source, (0, 0, 100, 150), (100, 150), preprocessing, **options)
        apart = mean_difference(ours.permute(1, 2, 0), kept[f"bilinear/{name}"])
        if name == "32x32":
            for recipe in GOOGLE:
                yield Row(
                    recipe,
                    "resizing of crops",
                    apart,
                    name,
                    f"TensorFlow {kept['version']}",
                    LIMITS["resizing"],
                )
        whole = transforms.crop_pixels(source, (0, 0, 100, 150), (100, 150), preprocessing)
        if name == "64x96":
            apart = mean_difference(whole.permute(1, 2, 0), kept[f"area/{name}"])
            yield Row(
                "s16-baseline",
                "resizing in evaluation",
                apart,
                name,
                f"TensorFlow {kept['version']}",
                LIMITS["resizing"],
            )


def copies(sources: Path | None) -> Iterator[Row]:
    """Of 1,024 images with three copies each; DeiT's sampler counts the same over eight processes."""
    batch, count, number = 1024, 3, 600
    order = repeated(shuffled(batch * number, seed=0, epoch=0), count, batch)
    ours = np.asarray(order.indices[:]).reshape(number, batch)

    def share(rows: np.ndarray) -> float:
        return float((np.unique(rows, return_counts=True)[1] == count).mean())

    theirs = 1 - 2 / (batch / count)
    where = "no clone: two images at the edges"
    if sources:
        sampler = load(sources / "deit" / "samplers.py").RASampler
        parts = [[*sampler(range(batch * 100), num_replicas=8, rank=rank)] for rank in range(8)]
        rows = np.array(parts).T.reshape(-1, batch)  # what the processes have in each step
        theirs, where = min(map(share, rows)), "samplers.py, eight processes"
    least = min(share(each) for each in ours)
    yield Row(
        "deit", "batch", abs(theirs - least), f"least {least:.3f}, {theirs:.3f} there", where, LIMITS["batch"]
    )


# Weights and steps


def load(path: Path, *folders: Path) -> Any:
    """Import a file of a clone."""
    sys.path[:0] = [str(path.parent), *map(str, folders)]
    try:
        spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where timm's registry looks for it
        spec.loader.exec_module(module)
        return module
    finally:
        del sys.path[: 1 + len(folders)]


class NoTensorFlow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """big_vision imports TensorFlow for files and data; its models and optimizers call nothing of it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] == "tensorflow":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock()
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module: Any) -> None:
        pass


def initial(ours: nn.Module, theirs: nn.Module, names: Callable[[str], bool] = lambda name: True) -> Any:
    """The KS distance of the tensor of two models for which it is largest beside what chance explains, where
    that is, and what chance explains."""
    others, found, limits = theirs.state_dict(), {}, {}
    for name, tensor in ours.state_dict().items():
        if names(name) and tensor.is_floating_point() and tensor.numel() >= 100:
            mine, other = (
                each.detach().double().flatten().numpy()[:: max(each.numel() // DRAWS, 1)][:DRAWS]
                for each in (tensor, others[name])
            )
            found[name], limits[name] = ks(np.round(mine, 5), np.round(other, 5)), chance(len(mine))
    _, where = largest({name: found[name] / limits[name] for name in found})
    return found[where], where, limits[where]


def with_source(found: tuple[float, str, float], source: str) -> tuple[float, str, str, float]:
    return found[0], found[1], source, found[2]


class Follower(NamedTuple):
    """What a training did: its first gradient and its weights after some steps, by tensor, and its losses."""

    gradient: dict[str, torch.Tensor]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]
    losses: list[float]


def angles(follower: Follower) -> dict[str, float]:
    found = {}
    for name, before in follower.before.items():
        after = follower.after[name]
        # Biases that begin at 1e-6 or 0 have no direction to turn from.
        if before.norm() > 1e-4 * math.sqrt(before.numel()) and before.numel() >= 100:
            cosine = torch.cosine_similarity(before.flatten().double(), after.flatten().double(), dim=0)
            found[name] = math.degrees(math.acos(min(float(cosine), 1.0)))
    return found


def compared(recipe: str, source: str, ours: Follower, theirs: Follower) -> Iterator[Row]:
    gradients = {
        name: float((mine - theirs.gradient[name]).norm() / theirs.gradient[name].norm().clamp(min=1e-12))
        for name, mine in ours.gradient.items()
        if theirs.gradient[name].norm() > 1e-6
    }
    yield Row(recipe, "gradient", *largest(gradients), source, LIMITS["gradient"])
    other = angles(theirs)
    turned = {name: abs(angle - other[name]) for name, angle in angles(ours).items()}
    size, where = largest(turned)
    text = f"{where}: {angles(ours)[where]:.2f}, {other[where]:.2f} there"
    yield Row(recipe, "angle", size, text, source, LIMITS["angle"])
    losses = {str(i): abs(a - b) for i, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True))}
    size, where = largest(losses)
    yield Row(recipe, "loss", size, f"step {where}", source, LIMITS["loss"])


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def batches(size: int, steps: int = STEPS) -> list[Batch]:
    """Images whose class is the place of a bright square."""
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        labels = torch.randint(10, (16,), generator=generator)
        images = torch.randn(16, 3, size, size, generator=generator) * 0.5
        for image, label in zip(images, labels.tolist(), strict=True):
            image[:, 3 * label : 3 * label + 3, :8] += 2.0
        found.append(Batch(images, labels, torch.ones(16, dtype=torch.bool)))
    return found


def follow(model: nn.Module, config: TrainingConfig, data: list[Batch]) -> Follower:
    """Train a model as `vitreous train` does, with the recipe's optimizer."""
    learner = Learner.begin(model, config)
    step = TrainStep(learner, LossOf(model, classification(config)), config, seed=0)
    before, after, gradient, losses = copied(model), {}, {}, []
    for number, batch in enumerate(data):
        learner.set_learning_rate(config, len(data))
        step.prepare(batch)
        if number == 0:
            gradient = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        losses.append(float(step.measured[0][1]["loss"]))
        step.take()
        step.outcome()
        if number + 1 == SHORT:
            after = copied(model)
    return Follower(gradient, before, after, losses)


def small(recipe: str, **options: Any) -> tuple[Any, TrainingConfig]:
    """The recipe's model with two layers for images of 32 pixels, and its training in STEPS steps of 16,
    without warm-up."""
    config = find_recipe(recipe).config
    sizes = {"depth": 2, "image_size": (32, 32), "patch_size": (8, 8), "num_classes": 10}
    model = config.model.model_dump() | sizes | options
    # Warm-up begins at 0 in big_vision, and at one part here: of 10,000 steps that is one.
    schedule = config.training.schedule.model_copy(update={"warmup": 0.0})
    training = config.training.model_copy(
        update={"schedule": schedule, "batch_size": 16, "lr_batch_size": None, "label_smoothing": 0.0}
    )
    return type(config.model).model_validate(model), training


def from_big_vision(sources: Path) -> Iterator[Row]:
    """`s16-baseline` beside big_vision's model and optimizer."""
    import jax
    import jax.numpy as jnp
    import ml_collections

    sys.meta_path.insert(0, NoTensorFlow())
    sys.path.insert(0, str(sources / "big_vision"))
    vit = importlib.import_module("big_vision.models.vit")
    optim = importlib.import_module("big_vision.optax")

    name, source = "s16-baseline", f"big_vision in JAX {jax.__version__}"
    config, training = small(name, drop_path=0.0)
    net = vit.Model(num_classes=10, variant="S/8", rep_size=True, pool_type="gap", posemb="sincos2d", depth=2)
    example = jnp.zeros((1, 32, 32, 3))
    params = net.init(jax.random.PRNGKey(0), example)["params"]

    def ours_of(tree: Any) -> nn.Module:
        flat = {
            "/".join(k.key for k in path): np.asarray(x)
            for path, x in jax.tree_util.tree_leaves_with_path(tree)
        }
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder, "weights.npz"), **{f"params/{key}": value for key, value in flat.items()})
            return vt.load(
                Path(folder, "weights.npz"), image_size=(32, 32), heads=6, pooling={"kind": "mean"}
            )

    mine = build(config, training)
    yield Row(
        name, "weights", *with_source(initial(mine, ours_of(params), lambda n: "position" not in n), source)
    )

    # The same weights in both; the head is drawn, since a zero head hides the gradients below it.
    params = dict(params)
    params["head"] = {
        **params["head"],
        "kernel": jax.random.normal(jax.random.PRNGKey(1), params["head"]["kernel"].shape) * 0.02,
    }
    data = batches(32)
    model = ours_of(params)
    ours = follow(model, training, data)

    settings = ml_collections.ConfigDict(
        {
            "optax_name": "scale_by_adam",
            "optax": {"mu_dtype": "bfloat16"},
            "grad_clip_norm": 1.0,
            "lr": 1e-3,
            "wd": 1e-4,
            "schedule": {"warmup_steps": 0, "decay_type": "cosine"},
        }
    )
    tx, _ = optim.make(settings, params, sched_kw={"total_steps": STEPS, "batch_size": 16, "data_size": 1000})

    def loss_of(weights: Any, images: Any, labels: Any) -> Any:
        logits, _ = net.apply({"params": weights}, images)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    yield from compared(name, source, ours, followed_in_jax(loss_of, tx, params, data, ours_of))


def from_vit_jax(sources: Path) -> Iterator[Row]:
    """The initial weights of vit_jax's ViT and hybrid, and fine-tuning with SGD as its train.py does."""
    import jax
    import jax.numpy as jnp
    import ml_collections

    sys.meta_path.insert(0, NoTensorFlow())
    sys.path.insert(0, str(sources / "vision_transformer"))
    vit = importlib.import_module("vit_jax.models_vit")
    rates = importlib.import_module("vit_jax.utils").create_learning_rate_schedule
    import optax

    source, example = f"vit_jax in JAX {jax.__version__}", jnp.zeros((1, 32, 32, 3))
    blocks = {"num_layers": 2, "mlp_dim": 1536, "num_heads": 6, "dropout_rate": 0.0}
    sizes = {"num_classes": 10, "hidden_size": 384, "transformer": {**blocks, "attention_dropout_rate": 0.0}}

    def params_of(net: Any) -> Any:
        return net.init(jax.random.PRNGKey(0), example, train=False)["params"]

    def ours_of(tree: Any) -> nn.Module:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        flat = {"/".join(key.key for key in path): np.asarray(value) for path, value in leaves}
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder, "weights.npz"), **flat)
            return vt.load(Path(folder, "weights.npz"), image_size=(32, 32), heads=6)

    patches = ml_collections.ConfigDict({"size": (8, 8)})
    net = vit.VisionTransformer(patches=patches, representation_size=384, **sizes)
    mine = build(*small("paper-imagenet21k", width=384, mlp_dim=1536, heads=6, representation_size=384))
    found = initial(mine, ours_of(params_of(net)))
    yield Row("paper-imagenet21k", "weights", *with_source(found, source))

    stem = {"num_layers": (1, 1), "width_factor": 1.0}
    net = vit.VisionTransformer(
        patches=ml_collections.ConfigDict({"size": (1, 1)}), resnet=ml_collections.ConfigDict(stem), **sizes
    )
    hybrid = {"kind": "resnet", "layers": (1, 1), "width_factor": 1.0}
    config, training = small("augreg", width=384, mlp_dim=1536, heads=6, stem=hybrid)
    found = initial(build(config, training), ours_of(params_of(net)))
    yield Row("augreg", "weights", *with_source(found, f"{source}, a hybrid"))

    net = vit.VisionTransformer(patches=patches, **sizes)
    params = dict(params_of(net))  # with a head that is drawn: a zero one hides the gradients below it
    kernel = jax.random.normal(jax.random.PRNGKey(1), params["head"]["kernel"].shape) * 0.02
    params["head"] = {**params["head"], "kernel": kernel}
    data, name = batches(32), "paper-fine-tuning"
    training = small(name)[1]
    model = ours_of(params)
    ours = follow(model, training, data)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.sgd(
            learning_rate=rates(STEPS, training.peak_lr, "cosine", 0),
            momentum=0.9,
            accumulator_dtype="bfloat16",
        ),
    )

    def loss_of(weights: Any, images: Any, labels: Any) -> Any:
        logits = net.apply({"params": weights}, images, train=False)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    yield from compared(name, source, ours, followed_in_jax(loss_of, tx, params, data, ours_of))


def followed_in_jax(
    loss_of: Callable[..., Any], tx: Any, params: Any, data: list[Batch], ours_of: Callable[[Any], nn.Module]
) -> Follower:
    """Train in JAX with an optimizer of optax.

    Args:
        loss_of: of parameters, images (B, H, W, 3) and labels (B,).
        ours_of: makes our model of a tree like the parameters'.
    """
    import jax
    import jax.numpy as jnp
    import optax

    @jax.jit
    def step(weights: Any, state: Any, images: Any, labels: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
        updates, state = tx.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, loss, gradient

    state, losses, gradient, after, weights = tx.init(params), [], {}, {}, params
    for number, batch in enumerate(data):
        images = jnp.asarray(batch.images.permute(0, 2, 3, 1).numpy())
        weights, state, loss, raw = step(weights, state, images, jnp.asarray(batch.targets.numpy()))
        losses.append(float(loss))
        if number == 0:
            norm = math.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(raw)))
            clipped = jax.tree.map(partial(jnp.multiply, min(1.0, 1.0 / norm)), raw)
            gradient = copied(ours_of(clipped))
        if number + 1 == SHORT:
            after = copied(ours_of(weights))
    return Follower(gradient, copied(ours_of(params)), after, losses)


def build(config: Any, training: TrainingConfig) -> nn.Module:
    """Our model with the initial weights of a recipe."""
    from vitreous.layers.initialization import init_weights
    from vitreous.models.names import build_model
    from vitreous.rng import torch_generator

    model = build_model(config)
    init_weights(model, torch_generator(0, "weights"), training.initialization)
    return model


def from_timm(sources: Path | None) -> Iterator[Row]:
    """`deit` beside timm's model and optimizer, as DeiT's main.py puts them together."""
    timm = import_timm()
    name, source = "deit", f"timm {timm.__version__}"
    config, training = small(name, drop_path=0.0)
    torch.manual_seed(0)
    options = {"embed_dim": 384, "depth": 2, "num_heads": 6, "num_classes": 10}
    peer = timm.models.vision_transformer.VisionTransformer(img_size=32, patch_size=8, **options)
    yield Row(name, "weights", *with_source(initial(build(config, training), vt.load(peer)), source))
    nn.init.normal_(peer.head.weight, std=0.02)
    factory = importlib.import_module("timm.optim")
    optimizer = factory.create_optimizer_v2(peer, opt="adamw", lr=1e-3, weight_decay=0.05)
    yield from beside(Peer(name, "", source), peer, peer, vt.load, optimizer, training, STEPS)


class Peer(NamedTuple):
    """What a recipe is beside, where its own source is not the only one."""

    recipe: str
    name: str
    source: str


def beside(
    about: Peer,
    peer: nn.Module,
    forward: Callable[[torch.Tensor], torch.Tensor],
    loaded: Callable[[nn.Module], nn.Module],
    optimizer: torch.optim.Optimizer,
    training: TrainingConfig,
    steps: int = SHORT,
) -> Iterator[Row]:
    """Train a peer with its optimizer from its weights, at the recipe's rates, and ours from the same.

    Args:
        forward: gives its logits.
        loaded: makes our model of it.
        steps: of the whole training; the losses of a short one are not compared.
    """
    from vitreous.training.learner import learning_rate

    data = batches(32, steps)
    ours = follow(loaded(peer), training, data)
    before, losses, gradient, after = copied(loaded(peer)), [], {}, {}
    for number, batch in enumerate(data):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * learning_rate(number, steps, training.schedule)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(batch.images), batch.targets)
        loss.backward()
        if number == 0:
            kept = {key: value.clone() for key, value in peer.state_dict().items()}
            peer.load_state_dict({n: p.grad for n, p in peer.named_parameters()}, strict=False)
            gradient = copied(loaded(peer))
            peer.load_state_dict(kept)
        losses.append(float(loss))
        optimizer.step()
        if number + 1 == SHORT:
            after = copied(loaded(peer))
    for row in compared(about.recipe, about.source, ours, Follower(gradient, before, after, losses)):
        if row.quantity != "loss" or steps == STEPS:
            yield row._replace(peer=about.name)


def from_transformers(sources: Path | None) -> Iterator[Row]:
    """`deit` beside the ViT of transformers, with AdamW as its Trainer groups parameters: no decay of biases
    and of LayerNorm, but of positions and the class token; and with the decay of the recipe."""
    import_timm()  # declares the operators that torchvision asks for
    transformers = importlib.import_module("transformers")
    trainer = importlib.import_module("transformers.trainer_pt_utils")
    about = Peer("deit", "transformers", f"transformers {transformers.__version__}")
    config, training = small(about.recipe, drop_path=0.0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 1536}

    def drawn() -> nn.Module:
        torch.manual_seed(0)
        return transformers.ViTForImageClassification(  # type: ignore[no-any-return]
            transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=10, layer_norm_eps=1e-6)
        )

    found = initial(build(config, training), vt.load(drawn()))
    yield Row(about.recipe, "weights", *with_source(found, about.source), peer=about.name)
    for name, others in ((about.name, ()), ("transformers, decay of the recipe", ("position", "cls_token"))):
        peer = drawn()
        decayed = trainer.get_parameter_names(peer, [nn.LayerNorm], ["bias", "layernorm", *others])
        optimizer = adamw(peer, decayed)
        yield from beside(
            about._replace(name=name), peer, partial(logits, peer), vt.load, optimizer, training, STEPS
        )


def logits(peer: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """What a classifier of transformers gives."""
    found: torch.Tensor = peer(images).logits
    return found


def adamw(peer: nn.Module, decayed: list[str]) -> torch.optim.Optimizer:
    """AdamW with the decay of `deit` for the parameters of these names."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in peer.named_parameters():
        groups[name in decayed].append(parameter)
    return torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": 0.05}, {"params": groups[False], "weight_decay": 0.0}]
    )


def from_vit_pytorch(sources: Path | None) -> Iterator[Row]:
    """`deit` beside the ViT of vit-pytorch and plain AdamW, as its README trains."""
    import_timm()
    vit_pytorch = importlib.import_module("vit_pytorch")
    about = Peer("deit", "vit-pytorch", f"vit-pytorch {version('vit-pytorch')}")
    config, training = small(about.recipe, drop_path=0.0)
    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 384, "depth": 2, "heads": 6}
    torch.manual_seed(0)
    peer = vit_pytorch.ViT(**sizes, mlp_dim=1536)

    def loaded(model: nn.Module) -> nn.Module:
        return vt.load(model.state_dict(), heads=6)

    found = initial(build(config, training), loaded(peer), lambda name: "qkv.bias" not in name)
    yield Row(about.recipe, "weights", *with_source(found, about.source), peer=about.name)
    optimizer = torch.optim.AdamW(peer.parameters(), weight_decay=0.05)
    yield from beside(about, peer, peer, loaded, optimizer, training)


def from_vit5(sources: Path) -> Iterator[Row]:
    """The initial weights of `vit5` beside the authors' model, of two layers."""
    import_timm()
    code = load(sources / "ViT-5" / "models_vit5.py")
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 384, "depth": 2, "num_heads": 6, "num_classes": 10}
    options = {"num_registers": 4, "rope": True, "reg_theta": 100, "qk_norm": True, "flash": False}
    torch.manual_seed(0)
    peer = code.vit_models(norm_layer=partial(code.RMSNorm, eps=1e-6), **sizes, **options)
    theirs = vt.load(peer.state_dict())
    ours = build(*small("vit5", drop_path=(0.0, 0.0)))
    assert ours.config.model_copy(update={"layer_scale": 1.0}) == theirs.config  # type: ignore[union-attr]
    yield Row("vit5", "weights", *with_source(initial(ours, theirs), "ViT-5, models_vit5.py"))


def from_dino(sources: Path) -> Iterator[Row]:
    """The head of `dino` beside the authors': its initial weights, and the angles of its prototypes after 20
    steps of AdamW with each side's own parameter groups."""
    from vitreous.addons.self_supervision.dino import DINOConfig, ProjectionHead
    from vitreous.training.optimizers import make_optimizers

    folder = sources / "dino"
    theirs = load(folder / "vision_transformer.py").DINOHead
    groups_of = load(folder / "utils.py").get_params_groups
    config = find_recipe("dino").config
    shape = {"prototypes": 512, "head_hidden": 256, "head_bottleneck": 256}
    torch.manual_seed(0)
    ours, peer = ProjectionHead(384, DINOConfig(**shape)), theirs(384, 512, hidden_dim=256)

    def prototypes(head: nn.Module) -> torch.Tensor:
        if hasattr(head, "last_layer"):
            return head.last_layer.weight_v
        return head.prototypes if isinstance(head.prototypes, nn.Parameter) else head.prototypes.weight

    found = {"prototypes": ks(*(prototypes(h).detach().flatten().numpy() for h in (ours, peer)))}
    for mine, other in zip(ours.mlp, peer.mlp, strict=True):
        if isinstance(mine, nn.Linear):
            found["mlp"] = ks(*(m.weight.detach().flatten().numpy()[:DRAWS] for m in (mine, other)))
    source = "dino, vision_transformer.py"
    yield Row("dino", "weights", *largest(found), source, chance(DRAWS))
    optimizer = config.training.optimizer
    turned = []
    for head, found_groups in (
        (ours, make_optimizers(ours, optimizer, 1e-3)),
        (peer, [torch.optim.AdamW(groups_of(peer), lr=1e-3, weight_decay=0.04)]),
    ):
        generator = torch.Generator().manual_seed(0)
        start = prototypes(head).detach().clone()
        for _ in range(SHORT):
            features = torch.randn(64, 384, generator=generator)
            targets = torch.randn(64, 512, generator=generator).softmax(dim=1)
            loss = nn.functional.cross_entropy(head(features) / 0.1, targets)
            head.zero_grad()
            loss.backward()
            found_groups[0].step()
        turned.append(
            math.degrees(torch.arccos(torch.cosine_similarity(start, prototypes(head), dim=1)).mean().item())
        )
    text = f"prototypes: {turned[0]:.2f}, {turned[1]:.2f} there"
    yield Row("dino", "angle", abs(turned[0] - turned[1]), text, source, LIMITS["angle"])


def from_mae(sources: Path) -> Iterator[Row]:
    """The initial weights of `mae` beside the authors' model, of two layers."""
    from provenance_settings import inside

    from vitreous.tasks.pretraining.mae import MAE
    from vitreous.tasks.pretraining.rules import MAEConfig

    blocks = import_timm().models.vision_transformer
    sizes = {"embed_dim": 768, "depth": 2, "num_heads": 12, "decoder_embed_dim": 256}
    sizes |= {"decoder_depth": 1, "decoder_num_heads": 8}
    with inside(sources / "mae"), patch.object(np, "float", float, create=True):  # of NumPy until 1.23
        # Of timm it takes two classes, which today's timm has with one argument less.
        sys.modules["timm.models.vision_transformer"] = MagicMock(
            PatchEmbed=blocks.PatchEmbed,
            Block=lambda *words, qk_scale=None, **options: blocks.Block(*words, **options),
        )
        theirs = importlib.import_module("models_mae").MaskedAutoencoderViT(
            img_size=32, patch_size=8, norm_layer=partial(nn.LayerNorm, eps=1e-6), **sizes
        )
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"model": theirs.state_dict()}, Path(folder, "mae.pth"))
        peer = MAE.load(Path(folder, "mae.pth"), image_size=(32, 32), heads=12)
    config, training = small("mae", num_classes=None)
    decoder = {"decoder_width": 256, "decoder_depth": 1, "decoder_heads": 8, "decoder_mlp_dim": 1024}
    ours = MAE(build(config, training), MAEConfig(**decoder))
    source = "mae, models_mae.py"
    yield Row("mae", "weights", *with_source(initial(ours, peer, lambda n: "position" not in n), source))


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the documentation: for each recipe the largest difference of each quantity."""
    quantities = list(dict.fromkeys(row["quantity"] for row in rows))
    found = {(row["recipe"], row["peer"], row["quantity"]): row for row in rows}
    lines = [f"| recipe | {' | '.join(quantities)} |", f"|---|{'---|' * len(quantities)}"]
    for recipe, peer in dict.fromkeys((row["recipe"], row["peer"]) for row in rows):
        cells = []
        for quantity in quantities:
            row = found.get((recipe, peer, quantity))
            mark = "*" if row and row["difference"] > row["limit"] else ""
            cells.append(f"{row['difference']:.2g}{mark}" if row else "")
        lines.append(f"| `{recipe}`{peer and f', {peer}'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, help="folder of clones")
    parser.add_argument("--out", type=Path, help="file of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    programs: list[Callable[[], Iterator[Row]]] = [crops_of_tensorflow, crops_of_torchvision]
    programs += [colors_of_big_vision, colors_of_timm, resizing_of_tensorflow]
    programs += [lambda: copies(arguments.sources), lambda: from_timm(arguments.sources)]
    programs += [lambda: from_transformers(arguments.sources), lambda: from_vit_pytorch(arguments.sources)]
    if arguments.sources:
        programs += [lambda: from_big_vision(arguments.sources), lambda: from_vit_jax(arguments.sources)]
        programs += [lambda: from_dino(arguments.sources)]
        programs += [lambda: from_mae(arguments.sources), lambda: from_vit5(arguments.sources)]
    rows: list[Row] = []
    packages = ("timm", "torchvision", "jax", "flax", "optax")
    for program in programs:
        for found_row in program():
            row = found_row
            if row.difference > row.limit:
                row = row._replace(
                    why=WHY.get(f"{row.peer or row.recipe} {row.quantity}", WHY.get(row.quantity, ""))
                )
            print(f"{row.recipe:28} {row.quantity:24} {row.difference:10.3g}  {row.where}", file=sys.stderr)
            rows.append(row)
            found = {"rows": [row._asdict() for row in rows]}
            write_results(found, arguments.out, packages=packages, shown=False)
    if arguments.sources:
        found["settings"] = settings(arguments.sources)
        write_results(found, arguments.out, packages=packages, shown=False)


if __name__ == "__main__":
    main()
