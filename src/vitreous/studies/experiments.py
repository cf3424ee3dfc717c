"""The experiments of the paper on the image world, each with its claims, and the list of all studies. Their
words are in the catalog, by the same names."""

from __future__ import annotations

from typing import Any

from vitreous.errors import InputError, nearest
from vitreous.languages import words
from vitreous.studies.complexity import complexity
from vitreous.studies.sequence_experiments import heads, key_size, sinusoids
from vitreous.studies.study import BASE, WORLD, Claim, Study, Trial, Variant

# Shapes in the middle, since a texture is the same everywhere.
POSITIONS = BASE.change(
    data="world:shapes:6000@16,clutter=0,scale=1,shift=0,cycles=1,looks=same,test=1600",
    labels="shapes",
    steps=250,
)
INIT_STD = 0.3  # of learned positions, of which those of 0.02 need a longer training
POSITION_ROWS = (  # name, kind, where, the paper's accuracy
    ("none", "none", "stem", "0.61382"),
    ("1-D, stem", "learned", "stem", "0.64206"),
    ("1-D, every layer", "learned", "every-layer", "0.63964"),
    ("1-D, every layer, shared", "learned", "every-layer-shared", "0.64292"),
    ("2-D, stem", "learned-2d", "stem", "0.64001"),
    ("2-D, every layer", "learned-2d", "every-layer", "0.64046"),
    ("2-D, every layer, shared", "learned-2d", "every-layer-shared", "0.64022"),
    ("relative", "relative", "every-layer", "0.64032"),
)

# About as many operations as the ViT of BASE. At half the width GroupNorm, which has 32 groups, would have
# one channel in a group, and take from each image what tells textures apart: how strongly a filter answers.
HYBRID: dict[str, Any] = {"stem": {"kind": "resnet", "layers": (), "width_factor": 1.0}, "depth": 2}
RESNET: dict[str, Any] = {"layers": (1,), "width_factor": 1.0, "order": "post-activation"}
# Learning rates by the validation images of a seed that the results do not have.
ARCHITECTURES = {
    "ViT": BASE,
    "hybrid": BASE.change(HYBRID, rate=1e-3),
    "ResNet": Trial(model=RESNET, rate=3e-3),
}
FEW, MANY = 200, 6000  # training images
LABELED = 160  # images, ten of each class
RATES = (0.3, 1.0, 3.0)  # of that of BASE
SGD_FACTOR = 30.0  # the paper's Table 4 (SGD) has 1 to 75 times the learning rates of Table 3 (Adam)
ALIKE = 0.02  # what counts as alike, fixed before anything was trained


def count(trial: Trial, images: int) -> Trial:
    """Return the trial with another number of training images, for as many steps."""
    return trial.change(data=trial.data.replace(f":{MANY}@", f":{images}@"))


def positions() -> Study:
    variants = [
        Variant(
            name, POSITIONS.change({"position": {"kind": kind, "where": where, "init_std": INIT_STD}}), paper
        )
        for name, kind, where, paper in POSITION_ROWS
    ]
    claims = [Claim("any", ((1, "1-D, stem"), (-1, "none")), "paper", "Table 8", "+2.8 (5-shot)")]
    for name, first, paper in (
        ("two-dimensional", "2-D, stem", "-0.2 (5-shot)"),
        ("once", "1-D, every layer", "-0.2 (5-shot)"),
        ("shared", "1-D, every layer, shared", "+0.1 (5-shot)"),
        ("relative", "relative", "-0.2 (5-shot)"),
    ):
        terms = (1, first), (-1, "1-D, stem")
        claims.append(Claim(name, terms, "paper", "Table 8", paper, rule="alike", margin=ALIKE))
    return Study("positions", tuple(variants), tuple(claims))


def head() -> Study:
    """Each pooling with its own best learning rate, and the mean at the rate of the class token."""
    variants = [
        Variant(f"{name}, rate x{factor:g}", BASE.change(model, rate=BASE.rate * factor), "", name, factor)
        for name, model in (("class token", {}), ("mean", {"class_token": False, "pooling": "mean"}))
        for factor in RATES
    ]
    claim = Claim("alike", ((1, "mean"), (-1, "class token")), "paper", "Fig. 9", rule="alike", margin=ALIKE)
    return Study("head", tuple(variants), (claim,))


def optimizer() -> Study:
    """Pre-training with each optimizer at three learning rates; SGD's are larger, as in the paper."""
    adam = [
        Variant(f"Adam, rate x{factor:g}", BASE.change(rate=BASE.rate * factor), "", "Adam", factor)
        for factor in RATES
    ]
    sgd = [
        Variant(
            f"SGD, rate x{factor * SGD_FACTOR:g}",
            BASE.change(rate=BASE.rate * SGD_FACTOR * factor, optimizer="sgd", weight_decay=0.0),
            group="SGD",
            x=factor * SGD_FACTOR,
        )
        for factor in RATES
    ]
    terms = (1, "Adam"), (-1, "SGD")
    claims = (
        Claim("pre-training", terms, "ours", "D.1"),
        Claim("transfer", terms, "paper", "Table 7", "+0.5 (ResNet50), +0.3 (R152x2)", "few-shot"),
    )
    return Study("optimizer", (*adam, *sgd), claims)


def shape() -> Study:
    changes: dict[str, dict[str, Any]] = {
        "the base": {},
        "depth, third": {"depth": 1},
        "depth, double": {"depth": 6},
        "width, third": {"width": 24, "mlp_dim": 48},
        "patch, double": {"patch_size": (8, 8)},
    }
    variants = [
        Variant(name, BASE.change(model), group=name.partition(",")[0]) for name, model in changes.items()
    ]
    claims = (
        Claim("depth", ((1, "depth, double"), (-1, "depth, third")), "paper", "Fig. 8"),
        Claim("patches", ((1, "the base"), (-1, "patch, double")), "paper", "Fig. 8"),
        Claim("width", ((1, "width, third"), (-1, "depth, third")), "paper", "Fig. 8"),
    )
    return Study("shape", tuple(variants), claims)


def resolution() -> Study:
    """From a model of half the size, where shapes are still visible, and from one of the whole size."""
    high = POSITIONS.change({"position": {"init_std": INIT_STD}})
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
    resized = 1, "low, fine-tuned at high"
    claims = (
        Claim("higher", (resized, (-1, "low, fine-tuned at low")), "paper", "3.2"),
        Claim("resized", (resized, (-1, "low, at high, fresh positions")), "ours", "3.2"),
        Claim(
            "cropped",
            ((1, "high, fine-tuned at low"), (-1, "high, at low, cropped positions")),
            "ours",
            "3.2",
        ),
    )
    return Study("resolution", variants, claims)


def data_size() -> Study:
    """Each architecture, pre-trained on few and on many images in equal steps, without regularization; and
    evaluated by few-shot accuracy on other classes."""
    variants = [
        Variant(f"{name}, {images}", count(trial, images), group=name, x=float(images))
        for name, trial in ARCHITECTURES.items()
        for images in (FEW, MANY)
    ]

    def gap(images: int, sign: int = 1) -> tuple[tuple[int, str], ...]:
        return (sign, f"ViT, {images}"), (-sign, f"ResNet, {images}")

    claims = (
        Claim("little", gap(FEW, -1), "paper", "Fig. 3, 4", measure="few-shot"),
        Claim("much", gap(MANY), "paper", "Fig. 3, 4", measure="few-shot"),
        Claim("closes", gap(MANY) + gap(FEW, -1), "paper", "Fig. 4"),
        Claim("more-data", ((1, f"ViT, {MANY}"), (-1, f"ViT, {FEW}")), "paper", "Fig. 4", measure="few-shot"),
        Claim("compute", gap(MANY), "paper", "Fig. 5", "2 to 4 times less compute"),
        Claim("hybrid", ((1, f"hybrid, {MANY}"), (-1, f"ViT, {MANY}")), "paper", "Fig. 5"),
        Claim("hybrid-little", ((1, f"hybrid, {FEW}"), (-1, f"ViT, {FEW}")), "ours", "3.1"),
    )
    return Study("data-size", tuple(variants), claims)


def transfer() -> Study:
    """The same few labels, after pre-training on images without or with labels of other things."""
    mean = {"class_token": False, "pooling": "mean"}
    scratch, pre = count(BASE, LABELED).change(mean), BASE.change(mean, steps=2 * BASE.steps)
    starts: dict[str, tuple[Trial | None, str]] = {
        "from scratch": (None, "77.9"),
        "masked patches": (pre.change(objective="masked-patch"), "79.9"),
        "MAE": (pre.change(objective="mae"), ""),
        "objects": (pre.change(labels="objects"), "84.0"),
    }
    variants = tuple(
        Variant(f"{name}, rate x{factor:g}", trial, paper, name, factor)
        for name, (start, paper) in starts.items()
        for factor in RATES
        for trial in [scratch.change(start=start, rate=BASE.rate * factor)]
    )
    from_scratch = -1, "from scratch"
    claims = (
        Claim("masked-patch", ((1, "masked patches"), from_scratch), "paper", "B.1.2", "+2.0 (ImageNet)"),
        Claim("supervised", ((1, "objects"), (-1, "masked patches")), "paper", "4.6", "+4 (ImageNet)"),
        Claim("few-labels", ((1, "objects"), from_scratch), "paper", "Table 2"),
        Claim("mae", ((1, "MAE"), from_scratch), "later", "2111.06377"),
    )
    return Study("transfer", variants, claims)


def attention() -> Study:
    looked = BASE.change(measures=("accuracy", "heads", "positions"))
    hybrid = ARCHITECTURES["hybrid"].change(measures=("accuracy", "heads"))
    variants = (Variant("ViT", looked), Variant("hybrid", hybrid))
    vit = ((1, "ViT"),)
    claims = (
        Claim("depth", vit, "paper", "Fig. 7", measure="distance-slope", points=False),
        Claim("far", vit, "paper", "Fig. 7", measure="farthest-beyond-three-quarters", points=False),
        Claim("near", ((1, "hybrid"), (-1, "ViT")), "paper", "Fig. 7", measure="nearest-head", points=False),
        Claim("nearness", vit, "paper", "Fig. 7", measure="nearness", points=False),
        Claim("rows", vit, "paper", "Fig. 7", measure="rows-and-columns", points=False),
    )
    return Study("attention", variants, claims)


def inductive_bias() -> Study:
    centered = f"{WORLD},shift=0"
    measures = ("accuracy", "moved", "shifts")
    trained = {name: trial.change(data=centered, measures=measures) for name, trial in ARCHITECTURES.items()}
    variants = tuple(Variant(name, trial) for name, trial in trained.items())
    vit, shift = (-1, "ViT"), ((1, "ViT"), (-1, "ResNet"))
    claims = (
        Claim("equivariant", shift, "paper", "3.1", measure="equivariance", points=False),
        Claim("moved-resnet", ((1, "ResNet"), vit), "ours", "3.1", measure="moved"),
        Claim("moved-hybrid", ((1, "hybrid"), vit), "ours", "3.1", measure="moved"),
    )
    return Study("inductive-bias", variants, claims)


def initialization() -> Study:
    """Without a training step: what the architectures know of images before they see one."""
    fresh = {name: trial.change(steps=0, measures=("shifts",)) for name, trial in ARCHITECTURES.items()}
    none: dict[str, Any] = {"position": {"kind": "none"}}
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
    change: dict[str, Any] = {"measure": "shuffle-change", "points": False}
    shift: dict[str, Any] = {"measure": "equivariance", "points": False}
    claims = (
        Claim("shuffled", ((1, "ViT, no positions"),), "ours", "3.1", rule="none", **change),
        Claim("order", ((1, "ViT"),), "ours", "3.1", **change),
        Claim("equivariant", ((1, "ViT"), (-1, "ResNet")), "paper", "3.1", **shift),
        Claim("hybrid", ((1, "ViT"), (-1, "hybrid")), "ours", "3.1", **shift),
        Claim("flat", ((1, "256 patches"),), "paper", "3.2", measure="nearness", rule="alike", margin=0.05,
              points=False),
    )  # fmt: skip
    return Study("initialization", variants, claims, measure="equivariance")


STUDIES = {
    study.name: study
    for study in (
        positions(), head(), optimizer(), shape(), resolution(), data_size(), transfer(), attention(),
        inductive_bias(), initialization(), complexity(), sinusoids(), heads(), key_size(),
    )
}  # fmt: skip


def study_named(name: str) -> Study:
    """Return the study called `name`. Raises InputError with the nearest name if there is none."""
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}: {nearest(name, list(words('studies')))}")
    return STUDIES[name]
