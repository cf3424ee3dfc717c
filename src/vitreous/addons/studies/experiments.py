"""The experiments of the paper on the image world, each with its claims, and the list of all studies. Their
words are in the catalog, by the same names."""

from __future__ import annotations

import re
from typing import Any

from vitreous.addons.studies.complexity import complexity
from vitreous.addons.studies.sequence_experiments import heads, key_size, regularization, sinusoids, size
from vitreous.addons.studies.study import BASE, WORLD, Claim, Study, TrainingSetup, Variant
from vitreous.errors import InputError, nearest
from vitreous.languages import words
from vitreous.training.settings import Tree

# Shapes in the middle, since a texture is the same everywhere.
POSITIONS = BASE.change(
    data="world:shapes:6000@16,clutter=0,scale=1,shift=0,cycles=1,looks=same,test=1600",
    labels="shapes",
    steps=250,
)
CENTERED = "world:shapes:6000@16,clutter=0,scale=0.5,shift=0,cycles=1,looks=same,test=1600"
INIT_STD = 0.3  # of learned positions, of which those of 0.02 need a longer training
POSITION_ROWS = (  # name, kind, where if they are added, the paper's accuracy
    ("none", "none", None, "0.61382"),
    ("1-D, stem", "learned", "stem", "0.64206"),
    ("1-D, every layer", "learned", "every-layer", "0.63964"),
    ("1-D, every layer, shared", "learned", "every-layer-shared", "0.64292"),
    ("2-D, stem", "learned-2d", "stem", "0.64001"),
    ("2-D, every layer", "learned-2d", "every-layer", "0.64046"),
    ("2-D, every layer, shared", "learned-2d", "every-layer-shared", "0.64022"),
    ("relative", "relative", None, "0.64032"),
)

# About as many operations as the ViT of BASE. At half the width GroupNorm, which has 32 groups, would have
# one channel in a group, and take from each image what tells textures apart: how strongly a filter answers.
HYBRID: dict[str, object] = {"stem": {"kind": "resnet", "layers": (), "width_factor": 1.0}, "depth": 2}
RESNET: dict[str, object] = {"layers": (1,), "width_factor": 1.0, "order": "post-activation"}
MANY = 100_000  # training images, of which 600 steps see no image twice
# Learning rates by the 5-shot accuracy of two seeds that the results do not have, after 600 steps on MANY.
# The ResNet: 0.809 with 0.01, 0.813 with 0.03, 0.782 with 0.1. That of the hybrid is the largest tried.
ARCHITECTURES = {
    "ViT": BASE,
    "hybrid": BASE.change(HYBRID),
    "ResNet": TrainingSetup(model=RESNET, rate=3e-2),
}
SIZES = (300, 1_000, 3_000, 10_000, 30_000, MANY)
LONG = 600  # steps
COMPUTE = (75, 150, 300, LONG, 1_200)  # steps: an image costs each architecture as many operations
LABELED = 160  # images, ten of each class
RATES = (0.3, 1.0, 3.0)  # as factors
SGD_FACTOR = 30.0  # the paper's Table 4 (SGD) has 1 to 75 times the learning rates of Table 3 (Adam)
ALIKE = 0.02  # what counts as alike, fixed before anything was trained


def count(trial: TrainingSetup, images: int, **fields: Any) -> TrainingSetup:
    """Return the trial with another number of training images, and other fields."""
    return trial.change(data=re.sub(r":\d+@", f":{images}@", trial.data), **fields)


def positions() -> Study:
    base = count(POSITIONS, MANY, steps=LONG)
    variants = []
    for name, kind, where, paper in POSITION_ROWS:
        position: dict[str, object] = {"kind": kind}
        if kind != "none":
            position["init_std"] = INIT_STD
        if where is not None:
            position["where"] = where
        variants.append(Variant(name, base.change({"position": position}), paper))
    claims = [Claim("any", ((1, "1-D, stem"), (-1, "none")), "paper", "Table 8", "+2.8 (5-shot)", "few-shot")]
    for name, first, paper in (
        ("two-dimensional", "2-D, stem", "-0.2 (5-shot)"),
        ("relative", "relative", "-0.2 (5-shot)"),
    ):
        terms = (1, first), (-1, "1-D, stem")
        claims.append(Claim(name, terms, "paper", "Table 8", paper, "few-shot", rule="alike", margin=ALIKE))
    return Study("positions", tuple(variants), tuple(claims), measure="few-shot")


def swept(
    name: str, trial: TrainingSetup, factor: float = 1.0, paper: str = "", rates: tuple[float, ...] = ()
) -> list[Variant]:
    """Return a group: the trial with each of `RATES` and of `rates`, all times `factor`."""
    variants: list[Variant] = []
    for rate in RATES + rates:
        times = factor * rate
        changed = trial.change(rate=trial.rate * times)
        variants.append(Variant(f"{name}, rate x{times:g}", changed, paper, name, times))
    return variants


def head() -> Study:
    """Return the study of each pooling with its own best learning rate."""
    base = count(BASE, MANY, steps=LONG)
    mean = base.change({"class_token": False, "pooling": "mean"})
    terms = (1, "mean"), (-1, "class token")
    claim = Claim("alike", terms, "paper", "Fig. 9", measure="few-shot", rule="alike", margin=ALIKE)
    variants = (*swept("class token", base), *swept("mean", mean))
    return Study("head", variants, (claim,), measure="few-shot")


def optimizer() -> Study:
    """Return the study of pre-training with each optimizer at several learning rates; SGD's are larger, as in
    the paper. No claims: the best rates of the ResNet were the largest of three, and those of four have not
    been run."""
    variants = list[Variant]()
    resnet = ARCHITECTURES["ResNet"].change(rate=1e-2)
    for name, trial, rates in (("ResNet", resnet, (10.0,)), ("ViT", ARCHITECTURES["ViT"], ())):
        trial = count(trial, MANY, steps=LONG)
        variants += swept(f"{name}, Adam", trial, rates=rates)
        sgd = trial.change(optimizer="sgd", weight_decay=0.0)
        variants += swept(f"{name}, SGD", sgd, SGD_FACTOR, rates=rates)
    return Study("optimizer", tuple(variants), (), measure="few-shot")


def token_operations(model: Tree) -> float:
    """Return the operations of a token in all layers: projections, attention over 17 tokens for patches of 4
    pixels, and MLP."""
    width, tokens = model["width"], (16 // model["patch_size"][0]) ** 2 + 1
    layer = 4 * width**2 + 2 * tokens * width + 2 * width * model["mlp_dim"]
    return float(tokens * model["depth"] * layer)


def shape() -> Study:
    """Return the study of one dimension at a time, smaller and larger."""
    changes: dict[str, dict[str, object]] = {
        "the base": {},
        "depth, third": {"depth": 1},
        "depth, double": {"depth": 6},
        "depth, four times": {"depth": 12},
        "width, third": {"width": 24, "mlp_dim": 48},
        "width, double": {"width": 128, "mlp_dim": 256},
        "MLP width, halved": {"mlp_dim": 64},
        "MLP width, double": {"mlp_dim": 256},
        "MLP width, four times": {"mlp_dim": 512},
        "patch, double": {"patch_size": (8, 8)},
        "patch, halved": {"patch_size": (2, 2)},
    }
    base = count(BASE, MANY, steps=LONG)
    variants = []
    for name, model in changes.items():
        trial = base.change(model)
        cost = token_operations(trial.model) / token_operations(base.model)
        variants.append(Variant(name, trial, group=name.partition(",")[0], x=cost))
    deeper = (1, "depth, double"), (-1, "depth, third")
    finer = (1, "the base"), (-1, "patch, double")
    claims = (
        Claim("depth", deeper, "paper", "Fig. 8", measure="few-shot"),
        Claim("patches", finer, "paper", "Fig. 8", measure="few-shot"),
    )
    return Study("shape", tuple(variants), claims, measure="few-shot")


def resolution() -> Study:
    """Return the study of fine-tuning from a model of half the size, where shapes are still visible, and from
    one of the whole size."""
    high = POSITIONS.change({"position": {"kind": "learned", "init_std": INIT_STD}})
    start = high.change({"image_size": (8, 8)})
    tuning: dict[str, Any] = {"start": start, "steps": high.steps // 2, "rate": high.rate / 3}
    down = tuning | {"start": high}
    variants = (
        Variant("low, fine-tuned at low", start.change(**tuning)),
        Variant("low, fine-tuned at high", high.change(**tuning)),
        Variant("low, at high, fresh positions", high.change(positions="fresh", **tuning)),
        Variant("high, fine-tuned at low", start.change(**down)),
        Variant("high, at low, cropped positions", start.change(positions="cropped", **down)),
    )
    # No claims: at 16 pixels a patch of 4 shows half as much of the object as it did at 8.
    return Study("resolution", variants, ())


def data_size() -> Study:
    """Return the study of each architecture, pre-trained on few to many images in equal steps, without
    regularization."""
    variants: list[Variant] = []
    for name, trial in ARCHITECTURES.items():
        for images in SIZES:
            counted = count(trial, images, steps=LONG)
            variants.append(Variant(f"{name}, {images}", counted, group=name, x=float(images)))
    few = SIZES[0]

    def gap(images: int, sign: int = 1) -> tuple[tuple[int, str], ...]:
        return (sign, f"ViT, {images}"), (-sign, f"ResNet, {images}")

    claims = (
        Claim("little", gap(few, -1), "paper", "Fig. 3, 4", measure="few-shot"),
        Claim("much", gap(MANY), "paper", "Fig. 3, 4", measure="few-shot"),
    )
    return Study("data-size", tuple(variants), claims, measure="few-shot")


def compute() -> Study:
    """Return the study of each architecture, pre-trained for short to long on images of which none is seen
    twice."""
    variants: list[Variant] = []
    for name, trial in ARCHITECTURES.items():
        for steps in COMPUTE:
            counted = count(trial, MANY, steps=steps)
            variants.append(Variant(f"{name}, {steps}", counted, group=name, x=steps / COMPUTE[0]))
    most = COMPUTE[-1]
    terms = (1, f"ViT, {most}"), (-1, f"ResNet, {most}")
    claims = (Claim("equal", terms, "paper", "Fig. 5", measure="few-shot"),)
    return Study("compute", tuple(variants), claims, measure="few-shot")


def transfer() -> Study:
    """Return the study of the same few labels after pre-training on images without or with labels of other
    things."""
    data, mean = f"{WORLD},looks=same", {"class_token": False, "pooling": "mean"}
    scratch = count(BASE.change(mean, data=data), LABELED)
    pre = count(BASE.change(mean, data=data), MANY, steps=LONG)
    masked = pre.change(objective="masked-patch")
    starts: dict[str, tuple[TrainingSetup | None, str]] = {
        "from scratch": (None, "77.9"),
        "mean colors": (masked, "79.9"),
        "small colors": (masked.change(target="small-colors"), ""),
        "pixels": (masked.change(target="pixels"), ""),
        "MAE": (pre.change(objective="mae"), ""),
        "objects": (pre.change(labels="objects"), "84.0"),
    }
    variants: list[Variant] = []
    for name, (start, paper) in starts.items():
        variants += swept(name, scratch.change(start=start), paper=paper)
    mean_color, gain = (1, "mean colors"), "+2.0 (ImageNet)"
    claims = (Claim("mean-color", (mean_color, (-1, "from scratch")), "paper", "B.1.2", gain),)
    return Study("transfer", tuple(variants), claims)


def attention() -> Study:
    """Return the study of attention on 36 patches, in four layers and in three after a convolution."""
    large = BASE.change(data=WORLD.replace("@16", "@24"), measures=("accuracy", "heads", "positions"))
    vit = count(large.change({"depth": 4}), MANY, steps=LONG)
    hybrid = vit.change({**HYBRID, "depth": 3}, measures=("accuracy", "heads"))
    untrained = vit.change(steps=0)  # the null: what these measures are before anything is learned
    variants = (Variant("ViT", vit), Variant("hybrid", hybrid), Variant("ViT, untrained", untrained))
    terms = (1, "ViT"), (-1, "ViT, untrained")
    # Nearness of positions has no claim: it was withdrawn, as no kept seed has measured it within rings.
    claim = Claim(
        "depth",
        terms,
        "paper",
        "Fig. 7",
        measure="distance-slope",
        margin=1.0,
        points=False,
        null="ViT, untrained",
    )
    return Study("attention", variants, (claim,))


def inductive_bias() -> Study:
    """Return the study of what is learned in the middle of the image: features of textures under shifts, and
    shapes that have moved."""
    shifted: list[Variant] = []
    moved: list[Variant] = []
    for name, trial in ARCHITECTURES.items():
        data = f"{WORLD},shift=0"
        textures = trial.change(data=data, labels="textures", measures=("accuracy", "shifts"))
        shapes = trial.change(data=CENTERED, labels="shapes", measures=("accuracy", "moved"))
        shifted.append(Variant(name, count(textures, MANY, steps=LONG)))
        moved.append(Variant(f"{name}, shapes", count(shapes, MANY, steps=LONG)))
    terms = (1, "ResNet, shapes"), (-1, "ViT, shapes")
    claims = (Claim("moved-resnet", terms, "paper", "3.1", measure="moved"),)
    return Study("inductive-bias", (*shifted, *moved), claims)


def initialization() -> Study:
    """Return the study without a training step: what the architectures know of images before they see one."""
    fresh = {name: trial.change(steps=0, measures=("shifts",)) for name, trial in ARCHITECTURES.items()}
    none: dict[str, object] = {"position": {"kind": "none"}}
    # Many patches, so that a chance correlation is small.
    wide = BASE.change(
        steps=0, data=f"{WORLD.replace('@16', '@64')},looks=same", measures=("shifts", "positions")
    )
    variants = (
        Variant("ViT", fresh["ViT"].change(measures=("shifts", "shuffled"))),
        Variant("ViT, no positions", fresh["ViT"].change(none, measures=("shifts", "shuffled"))),
        Variant("hybrid", fresh["hybrid"]),
        Variant("ResNet", fresh["ResNet"]),
        Variant("256 patches", wide),
    )
    return Study("initialization", variants, (), measure="equivariance")


STUDIES = {
    study.name: study
    for study in (
        positions(), head(), optimizer(), shape(), resolution(), data_size(), compute(),
        transfer(), attention(), inductive_bias(), initialization(), complexity(), sinusoids(),
        heads(), key_size(), size(), regularization(),
    )
}  # fmt: skip


def study_named(name: str) -> Study:
    """Return the study called `name`. Raises InputError with the nearest name if there is none."""
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}: {nearest(name, list(words('studies')))}")
    return STUDIES[name]
