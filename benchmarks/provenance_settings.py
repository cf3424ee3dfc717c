"""What the code of a source sets, found by running it: its configurations, argument parsers and defaults.

`provenance.py --sources FOLDER` calls `settings(FOLDER)`. Nothing here is a value: each is computed by the
source, and translated to the name that it has in vitreous. What a source imports and these calls need not
(TensorFlow, submitit, timm of 2020) is a stand-in.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

from peers import import_torchvision

STAND_INS = (
    *("tensorflow", "tensorflow_probability", "submitit", "timm", "torch._six", "flax", "panopticapi"),
    *("wandb", "apex"),
)
POOLING = {"gap": "mean", "tok": "class", "map": "attention"}
POSITIONS = {"sincos2d": "sincos-2d", "learn": "learned"}
LOSSES = {"softmax_xent": "softmax", "sigmoid_xent": "sigmoid"}
MOMENT = "torch.optim keeps the first moment in float32"
TPU = "a TPU multiplies float32 in bfloat16 by default; auto is bfloat16 on GPUs and float32 elsewhere"
BIAS = "0: a standard deviation of 1e-6 is a thousandth of the first step of Adam"
LAMB = "torch.optim has no LAMB, and AdamW diverges at the rate for LAMB"
TABLE_1 = "Table 1 of the paper, for the 400 epochs of this recipe; the README has 800 epochs and more decay"
SUM = ", for a loss that is the mean over 1,000 classes; ours is the sum"

# The reasons for another value, by recipe and setting; a test holds that there is one wherever values differ.
WHY = {
    ("augreg", "model.pooling.kind"): "the published AugReg weights have a class token",
    (
        "augreg",
        "augmentation.policy.magnitude",
    ): "medium1, with which the recommended B/16 was trained; the configuration specifies light2, "
    "a compromise between 30 and 300 epochs",
    ("augreg", "training.optimizer.weight_decay"): "the same decay: 0.1 times the rate of 1e-3 is 1e-4",
    ("s16-baseline", "training.optimizer.weight_decay"): "the same decay: 0.1 times the rate of 1e-3 is 1e-4",
    ("augreg", "training.initialization.mlp_bias"): BIAS,
    ("s16-baseline", "training.initialization.mlp_bias"): BIAS,
    ("augreg", "training.precision"): TPU,
    ("s16-baseline", "training.precision"): TPU,
    ("augreg", "training.optimizer.moment_dtype"): MOMENT,
    ("s16-baseline", "training.optimizer.moment_dtype"): MOMENT,
    ("deit3", "training.length"): TABLE_1,
    ("deit3", "training.optimizer.weight_decay"): TABLE_1,
    ("deit3", "training.peak_lr"): LAMB,
    ("deit3", "training.optimizer.kind"): LAMB,
    ("deit3", "training.optimizer.clip_norm"): f"Table 1 of the paper{SUM}",
    ("deit3", "training.schedule.warmup"): "5 epochs of 400 instead of 800",
    ("vit5", "training.peak_lr"): LAMB,
    ("vit5", "training.optimizer.kind"): LAMB,
    (
        "vit5",
        "training.optimizer.clip_norm",
    ): f"apex's FusedLAMB itself clips the norm of all gradients at 1{SUM}",
    ("linear-probe", "training.length"): "30 are enough for smaller datasets, and 90 on ImageNet take a day",
    ("linear-probe", "training.batch_size"): "one GPU",
    ("linear-probe", "training.peak_lr"): "the rate for a batch of 256",
    ("linear-probe", "training.schedule.warmup"): "short, since the batch is small",
}


class Setting(NamedTuple):
    """A setting of a recipe as its source computes it."""

    recipe: str
    setting: str
    there: Any
    where: str  # what was run: a configuration, or the command of a README in its program's parser
    row: int | None = None  # of the recipe's rows
    why: str = ""


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that a source imports, and of which nothing is called that matters here."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if any(name == each or name.startswith(f"{each}.") for each in STAND_INS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock(__version__="0.3.2")  # the one that MAE asserts
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module: Any) -> None:
        pass


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Imports from a clone, of which nothing stays loaded: clones have modules of the same names."""
    import_torchvision()
    before, finder = dict(sys.modules), StandIn()
    for name in [name for name in sys.modules if name.split(".")[0] in STAND_INS]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.meta_path.remove(finder)
        own = [name for name, module in sys.modules.items() if name not in before]
        for name in own:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")) or isinstance(
                sys.modules[name], MagicMock
            ):
                del sys.modules[name]
        sys.modules.update(before)


def arguments(parse: Any, command: str) -> Any:
    """What a program's own parser makes of a command line."""
    words = shlex.split(command.replace("\\\n", " "))
    start = next(i for i, word in enumerate(words) if word.endswith(".py"))
    with patch.object(sys, "argv", words[start:]):
        return parse()


def commands(path: Path, program: str) -> list[str]:
    """The command lines of a README that call a program."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(rf"^python {re.escape(program)}(?:[^\n]*\\\n)*[^\n]*", text, re.MULTILINE)
    # Two slips of DeiT III's README that its parser does not take.
    found = [line.replace("--repeated-aug--bce-loss", "--repeated-aug --bce-loss") for line in found]
    return [line.replace(" --nb-classes 1000", "") for line in found]


def default(function: Any, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def rows_of(recipe: str, where: str, found: dict[str, Any], row: int | None = None) -> Iterator[Setting]:
    for setting, there in found.items():
        yield Setting(recipe, setting, there, where, row, WHY.get((recipe, setting), ""))


# Google's code


def crop_of(preprocessing: str, images: Any) -> dict[str, Any]:
    """The augmentation of a preprocessing string of big_vision; what it leaves out are its defaults."""
    calls = dict(re.findall(r"(\w+)\(([^)]*)\)", preprocessing))
    decorated = images.get_decode_jpeg_and_inception_crop  # which takes names of tensors, too
    (crop,) = [cell.cell_contents for cell in decorated.__closure__ if inspect.isfunction(cell.cell_contents)]
    name = "augmentation.random_resized_crop"
    found = {
        "model.image_size": [int(calls["decode_jpeg_and_inception_crop"])] * 2,
        f"{name}.scale": [default(crop, "area_min") / 100, default(crop, "area_max") / 100],
        f"{name}.ratio": [round(default(crop, f"ratio_{end}"), 4) for end in ("min", "max")],
        f"{name}.antialias": default(crop, "antialias"),
        "augmentation.flip": [0.5 if "flip_lr" in preprocessing else 0.0, 0.0],
    }
    if "randaug" in calls:
        layers, magnitude = map(int, calls["randaug"].split(","))
        found["augmentation.policy.layers"] = layers
        found["augmentation.policy.magnitude"] = float(magnitude)
    low, high = map(float, calls["value_range"].split(","))
    middle, half = 255 * (-low) / (high - low) / 255, 1 / (high - low)
    return found | {"preprocessing.mean": [middle] * 3, "preprocessing.std": [half] * 3}


def big_vision_of(config: Any, vit: Any, images: Any, optax: Any) -> dict[str, Any]:
    size = vit.decode_variant(config.model["variant"])
    found = {
        "model.num_classes": config.num_classes,
        "model.width": size["width"],
        "model.depth": size["depth"],
        "model.mlp_dim": size["mlp_dim"],
        "model.heads": size["num_heads"],
        "model.patch_size": list(size["patch_size"]),
        "model.pooling.kind": POOLING[config.model["pool_type"]],
        "model.position.kind": POSITIONS[config.model["posemb"]],
        "training.length": f"{config.total_epochs} epochs",
        "training.batch_size": config.input.batch_size,
        "training.peak_lr": config.lr,
        "training.optimizer.weight_decay": config.wd,
        "training.optimizer.betas": [default(optax.scale_by_adam, name) for name in ("b1", "b2")],
        "training.optimizer.moment_dtype": config.optax["mu_dtype"],
        "training.optimizer.clip_norm": config.grad_clip_norm,
        "training.schedule.kind": config.schedule["decay_type"],
        "training.schedule.warmup": float(config.schedule["warmup_steps"]),
        "training.precision": vit.dtype,
        "training.initialization.mlp_bias": vit.bias,
        "training.loss": LOSSES[config.loss],
        "augmentation.mix.mixup": config.mixup["p"],
    }
    if config.model.get("rep_size"):
        found["model.representation_size"] = size["width"]
    if config.get("init_head_bias"):
        found["training.head.bias"] = config.init_head_bias
    return found | crop_of(config.input.pp, images)


def from_big_vision(sources: Path) -> Iterator[Setting]:
    import optax  # before its dependencies are stand-ins

    with inside(sources / "big_vision"):
        images = importlib.import_module("big_vision.pp.ops_image")
        path = sources / "big_vision" / "big_vision" / "models" / "vit.py"
        text = path.read_text("utf-8")
        (dtype,) = re.findall(r'^  dtype_mm: str = "(\w+)"', text.split("class _Model")[1], re.MULTILINE)
        (bias,) = re.findall(r"bias_init=nn\.initializers\.normal\(stddev=(.*?)\)", text)
        decode = function_of(path, "decode_variant")
        vit = MagicMock(decode_variant=decode, dtype=dtype, bias=float(bias))
        for recipe, name, arg in (
            ("s16-baseline", "vit_s16_i1k", ()),
            ("augreg", "vit_i21k", ("variant=B/16",)),
        ):
            config = importlib.import_module(f"big_vision.configs.{name}").get_config(*arg)
            yield from rows_of(recipe, f"{name}.get_config()", big_vision_of(config, vit, images, optax))


def function_of(path: Path, name: str) -> Any:
    """A function of a file that calls nothing of its file, without the file's imports."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"def {name}("))
    end = next((i for i in range(start + 1, len(lines)) if re.match(r"\S", lines[i])), len(lines))
    found: dict[str, Any] = {}
    exec("\n".join(lines[start:end]), found)
    return found[name]


def from_vit_jax(sources: Path) -> Iterator[Setting]:
    with inside(sources / "vision_transformer"):
        common = importlib.import_module("vit_jax.configs.common")
        for recipe, data in (
            ("paper-fine-tuning", "cifar10"),
            ("paper-fine-tuning-imagenet", "imagenet2012"),
        ):
            config = common.with_dataset(common.get_config(), data)
            found = {
                "model.image_size": [config.pp.crop] * 2,
                "training.length": f"{config.total_steps} steps",
                "training.batch_size": config.batch,
                "training.optimizer.clip_norm": config.grad_norm_clip,
                "training.schedule.kind": config.decay_type,
                "training.schedule.warmup": float(config.warmup_steps),
            }
            if recipe == "paper-fine-tuning-imagenet":
                found["training.peak_lr"] = config.base_lr
            yield from rows_of(recipe, f"vit_jax/configs/common.py, {data}", found)


def from_big_transfer(sources: Path) -> Iterator[Setting]:
    recipe = "bit-hyperrule"
    with inside(sources / "big_transfer"):
        rule = importlib.import_module("bit_hyperrule")
        for row, images, side in ((None, 50_000, 224), (0, 19_999, 224), (1, 500_000, 224), (2, 50_000, 95)):
            warmup, *drops, steps = rule.get_schedule(images)
            before, crop = rule.get_resolution((side, side))
            mixup = rule.get_mixup(images)
            found = {
                "model.image_size": [crop, crop],
                "augmentation.random_resized_crop.scale": [round((crop / before) ** 2, 2)] * 2,
                **({"augmentation.mix.mixup": mixup} if mixup else {"augmentation.mix": None}),
                "training.length": f"{steps} steps",
                "training.peak_lr": rule.get_lr(warmup, images),
                "training.schedule.warmup": float(warmup),
                "training.schedule.drops": [drop / steps for drop in drops],
            }
            yield from rows_of(recipe, f"bit_hyperrule.py, {images:,} images of {side} pixels", found, row)


# PyTorch


def views(transforms: Any) -> dict[str, Any]:
    """Of a Compose of torchvision or the authors' own transforms: what each is called with."""
    found: dict[str, Any] = {}
    for each in getattr(transforms, "transforms", [transforms]):
        name = type(each).__name__
        if name == "Compose":
            found |= views(each)
        elif name == "RandomApply":
            found |= views(each.transforms[0]) | {"color": each.p}
        elif name == "RandomResizedCrop":
            found |= {"scale": [*each.scale], "size": each.size[0]}
        elif name == "ColorJitter":
            found |= {"brightness": each.brightness[1] - 1, "contrast": each.contrast[1] - 1}
            found |= {"saturation": each.saturation[1] - 1, "hue": each.hue[1]}
        elif name == "GaussianBlur":
            found["blur"] = each.prob
        elif name in ("RandomHorizontalFlip", "RandomGrayscale", "Solarization"):
            key = {"RandomHorizontalFlip": "flip", "RandomGrayscale": "gray", "Solarization": "solarize"}[
                name
            ]
            found[key] = each.p
        elif name == "Normalize":
            found |= {"mean": [*each.mean], "std": [*each.std]}
    return found


def from_deit(sources: Path) -> Iterator[Setting]:
    folder = sources / "deit"
    with inside(folder):
        parse = importlib.import_module("run_with_submitit").parse_args
        (line, *_) = commands(folder / "README_deit.md", "run_with_submitit.py")
        yield from rows_of("deit", "README_deit.md", deit_of(arguments(parse, line)))
        distilled = next(
            each for each in commands(folder / "README_deit.md", "run_with_submitit.py") if "hard" in each
        )
        args = arguments(parse, distilled)
        found = {
            "training.distillation.kind": args.distillation_type,
            "training.distillation.weight": args.distillation_alpha,
        }
        yield from rows_of("deit-distilled", "README_deit.md", deit_of(args) | found)
        init = default(importlib.import_module("models_v2").vit_models.__init__, "init_scale")
        engine = (folder / "engine.py").read_text(encoding="utf-8")
        for row, line in zip(
            (None, 0, 1, 2), commands(folder / "README_revenge.md", "run_with_submitit.py"), strict=False
        ):
            args = arguments(parse, line)
            found = deit3_of(args, init, engine)
            if row is not None:
                of_rows = ("model.drop_path", "training.schedule.warmup_start", "training.schedule.end")
                found = {name: found[name] for name in of_rows}
            yield from rows_of("deit3", f"README_revenge.md, {args.model}", found, row)


def deit_of(args: Any) -> dict[str, Any]:
    batch = args.batch_size * args.nodes * args.ngpus
    rate = args.lr if args.unscale_lr else args.lr * batch / 512  # main.py, main
    return {
        "model.image_size": [args.input_size] * 2,
        "model.drop_path": [0.0, args.drop_path],
        "augmentation.repeated_augmentation": 3 if args.repeated_aug else 1,
        "augmentation.random_erasing": args.reprob,
        "augmentation.mix.mixup": args.mixup,
        "augmentation.mix.cutmix": args.cutmix,
        "augmentation.policy.magnitude": rand_augment(args.aa)["m"],
        "augmentation.policy.magnitude_std": rand_augment(args.aa)["mstd"],
        "training.length": f"{args.epochs} epochs",
        "training.batch_size": batch,
        "training.peak_lr": rate,
        "training.optimizer.weight_decay": args.weight_decay,
        "training.optimizer.clip_norm": args.clip_grad,
        "training.schedule.kind": args.sched,
        "training.schedule.warmup": args.warmup_epochs / args.epochs,
        "training.schedule.warmup_start": args.warmup_lr / rate,
        "training.schedule.end": args.min_lr / rate,
        "training.label_smoothing": args.smoothing,
    }


def deit3_of(args: Any, init: float, engine: str) -> dict[str, Any]:
    """DeiT III's, which draws from three augmentations in the place of RandAugment; so does ViT-5.
    engine: the text of engine.py, which has no option for what it does to targets."""
    found = deit_of(args)
    del found["augmentation.policy.magnitude"], found["augmentation.policy.magnitude_std"]
    return found | {
        "model.drop_path": [args.drop_path] * 2,
        "model.layer_scale": init,
        "preprocessing.crop_fraction": args.eval_crop_ratio,
        "augmentation.policy.kind": "three-augment" if args.ThreeAugment else "rand-augment",
        "augmentation.color_jitter.brightness": args.color_jitter,
        "augmentation.mix.whole_targets": args.bce_loss and "targets.gt(0.0)" in engine,
        "training.loss": "sigmoid" if args.bce_loss else "softmax",
        "training.optimizer.kind": args.opt,
    }


def from_vit5(sources: Path) -> Iterator[Setting]:
    """The first three commands of the README, of S, B and L, on 8 GPUs."""
    folder = sources / "ViT-5"
    with inside(folder):
        parser = importlib.import_module("main").get_args_parser()
        init = default(importlib.import_module("models_vit5").vit_models.__init__, "init_scale")
        engine = (folder / "engine.py").read_text(encoding="utf-8")
        text = (folder / "README.md").read_text(encoding="utf-8")
        lines = re.findall(r"^torchrun --nproc_per_node (\d+) ((?:[^\n]*\\\n)*[^\n]*)", text, re.MULTILINE)
        for row, (processes, line) in zip((None, 0, 1), lines, strict=False):
            args = arguments(parser.parse_args, line)
            args.nodes, args.ngpus = 1, int(processes)
            found = deit3_of(args, init, engine)
            if args.model_ema:
                found["training.ema.decay"] = args.model_ema_decay
            yield from rows_of("vit5", f"README.md, {args.model}", found, row)


def rand_augment(name: str) -> dict[str, float]:
    """The numbers of a name of timm's RandAugment: rand-m9-mstd0.5-inc1."""
    return {key: float(value) for key, value in re.findall(r"([a-z]+)([\d.]+)", name)}


def from_mae(sources: Path) -> Iterator[Setting]:
    folder = sources / "mae"
    with inside(folder):
        submit = importlib.import_module("submitit_pretrain").parse_args
        (line, *_) = commands(folder / "PRETRAIN.md", "submitit_pretrain.py")
        args = arguments(submit, line)
        model = function_of_mae(folder)
        found = mae_of(args) | {
            "pretraining.mae.mask_ratio": args.mask_ratio,
            "pretraining.mae.normalize_pixels": args.norm_pix_loss,
            "pretraining.mae.decoder_width": model["decoder_embed_dim"],
            "pretraining.mae.decoder_depth": model["decoder_depth"],
            "pretraining.mae.decoder_heads": model["decoder_num_heads"],
            "pretraining.mae.decoder_mlp_dim": int(model["decoder_embed_dim"] * model["mlp_ratio"]),
        }
        yield from rows_of("mae", "PRETRAIN.md", found)
        submit = importlib.import_module("submitit_finetune").parse_args
        lines = commands(folder / "FINETUNE.md", "submitit_finetune.py")
        for row, line in zip((None, 0, 1), lines, strict=False):
            args = arguments(submit, line)
            found = mae_of(args) | {
                "model.drop_path": [0.0, args.drop_path],
                "model.pooling.kind": "mean" if args.global_pool else "class",
                "training.optimizer.layer_decay": args.layer_decay,
                "augmentation.random_erasing": args.reprob,
                "augmentation.mix.mixup": args.mixup,
                "augmentation.mix.cutmix": args.cutmix,
                "augmentation.policy.magnitude": rand_augment(args.aa)["m"],
                "augmentation.policy.magnitude_std": rand_augment(args.aa)["mstd"],
                "training.optimizer.clip_norm": args.clip_grad,
                "training.label_smoothing": args.smoothing,
            }
            yield from rows_of("mae-fine-tuning", f"FINETUNE.md, {args.model}", found, row)
        submit = importlib.import_module("submitit_linprobe").parse_args
        (line, *_) = commands(folder / "FINETUNE.md", "submitit_linprobe.py")
        found = mae_of(arguments(submit, line))
        rate = found.pop("training.peak_lr") * found["training.batch_size"] / 256
        del found["model.image_size"], found["training.schedule.end"]
        yield from rows_of("linear-probe", "FINETUNE.md", found | {"training.peak_lr": rate})


def function_of_mae(folder: Path) -> dict[str, Any]:
    """What `mae_vit_base_patch16` calls its class with."""
    text = (folder / "models_mae.py").read_text(encoding="utf-8")
    body = text.split("def mae_vit_base_patch16_dec512d8b(**kwargs):")[1].split("return model")[0]
    names = {"MaskedAutoencoderViT": lambda **found: found, "partial": MagicMock(), "nn": MagicMock()}
    exec("kwargs = {}\n" + inspect.cleandoc(body), names)
    return names["model"]  # type: ignore[return-value]


def mae_of(args: Any) -> dict[str, Any]:
    batch = args.batch_size * args.nodes * args.ngpus * args.accum_iter
    return {
        "model.image_size": [getattr(args, "input_size", 224)] * 2,
        "training.length": f"{args.epochs} epochs",
        "training.batch_size": batch,
        "training.peak_lr": args.blr,
        "training.optimizer.weight_decay": args.weight_decay,
        "training.schedule.warmup": args.warmup_epochs / args.epochs,
        "training.schedule.end": args.min_lr / (args.blr * batch / 256),
    }


def from_dino(sources: Path) -> Iterator[Setting]:
    import torch

    folder = sources / "dino"
    with inside(folder), patch.object(torch.hub, "list", lambda name: []):
        program = importlib.import_module("main_dino")
        # 8 processes of the README's first command.
        parser = program.get_args_parser()
        args = arguments(parser.parse_args, "python main_dino.py --arch vit_small")
        head = importlib.import_module("vision_transformer").DINOHead.__init__
        augment = program.DataAugmentationDINO(
            args.global_crops_scale, args.local_crops_scale, args.local_crops_number
        )
        first, second, small = map(
            views, (augment.global_transfo1, augment.global_transfo2, augment.local_transfo)
        )
        batch = args.batch_size_per_gpu * 8
        found = {
            "model.image_size": [first["size"]] * 2,
            "model.drop_path": [0.0, args.drop_path_rate],
            "preprocessing.mean": first["mean"],
            "preprocessing.std": first["std"],
            "training.length": f"{args.epochs} epochs",
            "training.batch_size": batch,
            "training.peak_lr": args.lr,
            "training.optimizer.weight_decay": [args.weight_decay, args.weight_decay_end],
            "training.optimizer.clip_norm.each": args.clip_grad,
            "training.schedule.warmup": args.warmup_epochs / args.epochs,
            "training.schedule.end": args.min_lr / (args.lr * batch / 256),
            "pretraining.dino.prototypes": args.out_dim,
            "pretraining.dino.head_hidden": default(head, "hidden_dim"),
            "pretraining.dino.head_bottleneck": default(head, "bottleneck_dim"),
            "pretraining.dino.student_temperature": default(program.DINOLoss.__init__, "student_temp"),
            "pretraining.dino.center_momentum": default(program.DINOLoss.__init__, "center_momentum"),
            "pretraining.dino.teacher_temperature_start": args.warmup_teacher_temp,
            "pretraining.dino.teacher_temperature": args.teacher_temp,
            "pretraining.dino.teacher_temperature_warmup": args.warmup_teacher_temp_epochs / args.epochs,
            "pretraining.dino.teacher_momentum": args.momentum_teacher,
            "pretraining.dino.freeze_prototypes": args.freeze_last_layer / args.epochs,
            "pretraining.dino.views.large_scale": first["scale"],
            "pretraining.dino.views.small_scale": small["scale"],
            "pretraining.dino.views.small_count": augment.local_crops_number,
            "pretraining.dino.views.small_size": small["size"],
            "pretraining.dino.views.blur": small["blur"],
            "pretraining.dino.views.solarize": second["solarize"],
        }
        names = ("flip", "color", "brightness", "contrast", "saturation", "hue", "gray")
        found |= {f"pretraining.dino.views.{name}": round(small[name], 6) for name in names}
        yield from rows_of("dino", "main_dino.py, vit_small", found)


PROGRAMS = (from_big_vision, from_vit_jax, from_big_transfer, from_deit, from_vit5, from_mae, from_dino)


def settings(sources: Path) -> list[dict[str, Any]]:
    return [each._asdict() for program in PROGRAMS for each in program(sources)]
