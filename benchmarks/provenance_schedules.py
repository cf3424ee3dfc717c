"""What 20 steps cannot show, by the sources' own parts at full length: the learning rate of every step, and
who decays and learns at which rate. `provenance.py --sources FOLDER` runs it.

Nothing is handed to a source here but its own command line: its scheduler, stepped in the order of its own
loop, its own groups of parameters, its own configuration.
"""

from __future__ import annotations

import ast
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from peers import import_timm
from provenance_jax import NoTensorFlow, loaded
from provenance_rows import Row, load
from provenance_settings import arguments, commands, inside
from torch import nn

import vitreous as vt
from vitreous.layers.embedding import LearnedPositions
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import learning_rate, scaled_lr, weight_decay
from vitreous.training.optimizers import parameter_groups

IMAGES = 1_281_167  # of ImageNet
LIMIT = 1e-5  # of the peak: schedules of JAX are float32
LAYERS = 12
NORM = partial(nn.LayerNorm, eps=1e-6)
NARROW = {"embed_dim": 48, "depth": LAYERS, "num_heads": 3}
SMALL = {"img_size": 32, "patch_size": 8, **NARROW}


# ---- The learning rate of every step


def our_rates(training: TrainingConfig, total: int, steps_per_epoch: int) -> np.ndarray:
    """Shares of the peak."""
    schedule = training.schedule
    return np.array([learning_rate(step, total, schedule, steps_per_epoch) for step in range(total)])


def rate_row(recipe: str, ours: np.ndarray, theirs: np.ndarray, source: str, which: str = "") -> Row:
    """The largest difference of a step, as a share of the peak."""
    assert len(ours) == len(theirs)
    apart = np.abs(ours - theirs)
    step = int(apart.argmax())
    where = f"{which}step {step:,} of {len(ours):,}: {ours[step]:.5f}, {theirs[step]:.5f} there"
    return Row(recipe, "rate", float(apart.max()), where, source, LIMIT)


def steps_of(training: TrainingConfig) -> tuple[int, int]:
    """Steps of a run on ImageNet, and of an epoch."""
    per_epoch = IMAGES // training.batch_size
    return training.total_steps(per_epoch), per_epoch


def epochs_of_loop(program: Path, scheduler: Any, optimizer: Any, epochs: int) -> np.ndarray:
    """The rate of each epoch: the source's own loop over epochs, of which only the training and the scheduler
    are left, in their order."""
    (main,) = [
        node
        for node in ast.parse(program.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == "main"
    ]
    (loop,) = [
        node
        for node in ast.walk(main)
        if isinstance(node, ast.For)
        and ast.unparse(node.target) == "epoch"
        and "train_one" in ast.unparse(node)
    ]
    wanted = ("train_one_epoch(", "lr_scheduler.step(")
    loop.body = [node for node in loop.body if any(each in ast.unparse(node) for each in wanted)]
    assert len(loop.body) == 2
    rates: list[float] = []

    def train_one_epoch(*words: Any, **options: Any) -> None:
        rates.append(optimizer.param_groups[0]["lr"])

    words = MagicMock(start_epoch=0, epochs=epochs)
    names = {"args": words, "train_one_epoch": train_one_epoch, "lr_scheduler": scheduler}
    unused = {
        node.id: MagicMock()
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and node.id not in (*names, "epoch", "range")
    }
    exec(
        compile(ast.fix_missing_locations(ast.Module([loop], [])), str(program), "exec"), {**unused, **names}
    )
    return np.array(rates)


def rates_of_deit(sources: Path) -> Iterator[Row]:
    """DeiT, DeiT III and ViT-5: timm's scheduler with the arguments of the README, in the authors' loop."""
    import_timm()
    with inside(sources / "deit"):
        parse = importlib.import_module("run_with_submitit").parse_args
        lines = commands(sources / "deit" / "README_deit.md", "run_with_submitit.py")
        third = commands(sources / "deit" / "README_revenge.md", "run_with_submitit.py")[0]
        hard = next(each for each in lines if "hard" in each)
        found = {
            "deit": arguments(parse, lines[0]),
            "deit-distilled": arguments(parse, hard),
            "deit3": arguments(parse, third),
        }
    with inside(sources / "ViT-5"):
        parser = importlib.import_module("main").get_args_parser()
        found["vit5"] = arguments(parser.parse_args, first_command(sources / "ViT-5" / "README.md"))
        found["vit5"].nodes, found["vit5"].ngpus = 1, 8
    create = importlib.import_module("timm.scheduler").create_scheduler
    for recipe, args in found.items():
        folder = "ViT-5" if recipe == "vit5" else "deit"
        training = find_recipe(recipe).config.training
        total, per_epoch = steps_of(training)
        if not args.unscale_lr:
            args.lr *= args.batch_size * args.nodes * args.ngpus / 512  # main.py, main
        args.epochs = int(training.epochs or 0)  # deit3: Table 1 has 400 of the README's 800
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=args.lr)
        scheduler, _ = create(args, optimizer)
        of_epochs = epochs_of_loop(sources / folder / "main.py", scheduler, optimizer, args.epochs)
        theirs = np.repeat(of_epochs / args.lr, per_epoch)
        yield rate_row(recipe, our_rates(training, total, per_epoch), theirs, f"{folder}, main.py, and timm")


def first_command(readme: Path) -> str:
    """The first command of ViT-5's README, for a parser."""
    text = readme.read_text(encoding="utf-8").replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("torchrun --nproc_per_node"))
    return "python " + line.split(maxsplit=3)[3]


def rates_of_mae(sources: Path) -> Iterator[Row]:
    folder = sources / "mae"
    with inside(folder):
        adjust = importlib.import_module("util.lr_sched").adjust_learning_rate
        for recipe, program, readme in (
            ("mae", "submitit_pretrain", "PRETRAIN.md"),
            ("mae-fine-tuning", "submitit_finetune", "FINETUNE.md"),
        ):
            parse = importlib.import_module(program).parse_args
            args = arguments(parse, commands(folder / readme, f"{program}.py")[0])
            args.lr = args.blr * args.batch_size * args.nodes * args.ngpus * args.accum_iter / 256
            training = find_recipe(recipe).config.training
            total, per_epoch = steps_of(training)
            none = SimpleNamespace(param_groups=[])
            theirs = [adjust(none, step / per_epoch, args) / args.lr for step in range(total)]
            ours = our_rates(training, total, per_epoch)
            yield rate_row(recipe, ours, np.array(theirs), "mae, util/lr_sched.py")


def dinos_schedules(sources: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    """What DINO's utils make of the arguments: (arguments, rates, decays) of every step on ImageNet."""
    with inside(sources / "dino"), patch.object(torch.hub, "list", lambda name: []):
        program = importlib.import_module("main_dino")
        schedule = importlib.import_module("utils").cosine_scheduler
        args = arguments(program.get_args_parser().parse_args, "python main_dino.py --arch vit_small")
        batch = args.batch_size_per_gpu * 8
        peak, per_epoch = args.lr * batch / 256, IMAGES // batch
        rates = schedule(peak, args.min_lr, args.epochs, per_epoch, warmup_epochs=args.warmup_epochs)
        decays = schedule(args.weight_decay, args.weight_decay_end, args.epochs, per_epoch)
    return args, rates / peak, decays


def rates_of_dino(sources: Path) -> Iterator[Row]:
    _, theirs, _ = dinos_schedules(sources)
    training = find_recipe("dino").config.training
    total, per_epoch = steps_of(training)
    yield rate_row("dino", our_rates(training, total, per_epoch), theirs, "dino, utils.py")


def rates_of_google(sources: Path) -> Iterator[Row]:
    """big_vision's and vit_jax's schedules, and BiT's rule."""
    import jax.numpy as jnp

    with inside(sources / "big_vision"):
        configs = {
            "s16-baseline": importlib.import_module("big_vision.configs.vit_s16_i1k").get_config(),
            "augreg": importlib.import_module("big_vision.configs.vit_i21k").get_config("variant=B/16"),
        }
    sys.meta_path.insert(0, NoTensorFlow())
    sys.path[:0] = [str(sources / "big_vision"), str(sources / "vision_transformer")]
    create = importlib.import_module("big_vision.utils").create_learning_rate_schedule
    for recipe, config in configs.items():
        training = find_recipe(recipe).config.training
        total, per_epoch = steps_of(training)
        rate = create(total, training.batch_size, IMAGES, base=1.0, **config.schedule)
        theirs = np.asarray(rate(jnp.arange(total)))
        yield rate_row(recipe, our_rates(training, total, per_epoch), theirs, "big_vision, utils.py")

    of_vit_jax = importlib.import_module("vit_jax.utils").create_learning_rate_schedule
    common = importlib.import_module("vit_jax.configs.common")
    for recipe, data in (
        ("paper-fine-tuning", "cifar10"),
        ("paper-fine-tuning-imagenet", "imagenet2012"),
        ("vtab-1k", "cifar10"),
    ):
        config = common.with_dataset(common.get_config(), data)
        training = find_recipe(recipe).config.training
        total = training.steps or 0
        rate = of_vit_jax(total, 1.0, config.decay_type, config.warmup_steps)
        theirs = np.asarray(rate(jnp.arange(total)))
        yield rate_row(recipe, our_rates(training, total, total), theirs, "vit_jax, utils.py")

    rule = load(sources / "big_transfer" / "bit_hyperrule.py")
    chosen, rows = find_recipe("bit-hyperrule"), []
    for images in (19_999, 50_000, 500_000):
        training = chosen.suited(images=images).training
        total = training.steps or 0
        theirs = np.array([rule.get_lr(step, images, 1.0) for step in range(total)])
        ours = our_rates(training, total, total)
        rows.append(
            rate_row(chosen.name, ours, theirs, "big_transfer, bit_hyperrule.py", f"{images:,} images, ")
        )
    yield max(rows, key=lambda row: row.difference)


# ---- Who decays, and at which share of the rate each parameter learns

Shares = dict[str, tuple[float, float]]  # (decay, scale of the rate) by the name of our parameter


def our_shares(model: nn.Module, training: TrainingConfig) -> Shares:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {}
    for group in parameter_groups(model, training.optimizer, scaled_lr(training)):
        for parameter in group["params"]:
            found[names[id(parameter)]] = (group["weight_decay"], group["scale"])
    return found


@torch.no_grad()
def by_our_names(
    peer: nn.Module, loaded: Callable[[nn.Module], nn.Module], values: Mapping[str, float]
) -> dict[str, float]:
    """A number for each parameter of a peer, by the names of ours: its weights are filled with it, and loaded
    as ours are."""
    kept = {key: value.clone() for key, value in peer.state_dict().items()}
    peer.load_state_dict({k: torch.full_like(v, values[k]) if k in values else v for k, v in kept.items()})
    found = {}
    ours = loaded(peer)
    tables = {f"{n}.table": m.frozen_rows for n, m in ours.named_modules() if isinstance(m, LearnedPositions)}
    for name, parameter in ours.named_parameters():
        if parameter.requires_grad:
            numbers = set(parameter[tables.get(name, 0) :].double().flatten().tolist())
            assert len(numbers) == 1, f"{name} is of several parameters that differ"
            (found[name],) = numbers
    peer.load_state_dict(kept)
    return found


def shares_of(
    peer: nn.Module, loaded: Callable[[nn.Module], nn.Module], groups: list[dict[str, Any]]
) -> Shares:
    """Those of a peer's own groups."""
    decays, scales = {}, {}
    names = {id(parameter): name for name, parameter in peer.named_parameters()}
    for group in groups:
        for parameter in group["params"]:
            decays[names[id(parameter)]] = float(group["weight_decay"])
            scales[names[id(parameter)]] = float(group.get("lr_scale", 1.0))
    ours, shares = by_our_names(peer, loaded, decays), by_our_names(peer, loaded, scales)
    return {name: (ours[name], shares[name]) for name in ours}


def decay_row(recipe: str, ours: Shares, theirs: Shares, source: str) -> Row:
    """How many parameters differ."""
    both = sorted(set(ours) & set(theirs))
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    apart = [name for name in both if not np.allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-9)]
    where = f"{len(apart)} of {len(both)} tensors"
    if apart:
        where += f", {apart[0]}: {ours[apart[0]]}, {theirs[apart[0]]} there"
    return Row(recipe, "decay", float(len(apart)), where, source, 0.0)


def decays_of_deit(sources: Path) -> Iterator[Row]:
    """timm's groups with the models' own `no_weight_decay`, as main.py makes the optimizer; AdamW's in the
    place of LAMB's, which are the same."""
    from vitreous.training.initial_model import freeze

    timm = import_timm()
    create = importlib.import_module("timm.optim").create_optimizer_v2
    plain = load(sources / "deit" / "models.py")
    third = load(sources / "deit" / "models_v2.py")
    fifth = load(sources / "ViT-5" / "models_vit5.py")
    made = {
        "deit": timm.models.vision_transformer.VisionTransformer(**SMALL, num_classes=10),
        "deit-distilled": plain.DistilledVisionTransformer(
            **SMALL, num_classes=10, qkv_bias=True, norm_layer=NORM
        ),
        "deit3": third.vit_models(
            **SMALL,
            num_classes=10,
            qkv_bias=True,
            norm_layer=NORM,
            block_layers=third.Layer_scale_init_Block,
            init_scale=1e-4,
        ),
        "vit5": fifth.vit_models(
            **SMALL,
            num_classes=10,
            norm_layer=partial(fifth.RMSNorm, eps=1e-6),
            num_registers=4,
            rope=True,
            reg_theta=100,
            qk_norm=True,
            flash=False,
        ),
    }
    for recipe, peer in made.items():
        training = find_recipe(recipe).config.training

        def of(model: nn.Module, recipe: str = recipe, training: TrainingConfig = training) -> nn.Module:
            options: dict[str, Any] = {} if recipe == "vit5" else {"heads": 3}
            if recipe == "deit3":
                options["like"] = "timm:deit3_small_patch16_224"
            ours = vt.load(model.state_dict(), **options)
            freeze(ours, training.freeze)
            return ours

        groups = create(peer, opt="adamw", lr=1.0, weight_decay=training.optimizer.weight_decay).param_groups
        source = f"{'ViT-5' if recipe == 'vit5' else 'deit'}, and timm {timm.__version__}"
        yield decay_row(recipe, our_shares(of(peer), training), shares_of(peer, of, groups), source)


def decays_of_mae(sources: Path) -> Iterator[Row]:
    from provenance_torch import maes_peer

    from vitreous.tasks.pretraining.mae import MAE

    timm = import_timm()
    training = find_recipe("mae").config.training
    peer = maes_peer(sources, {**NARROW, "decoder_embed_dim": 48, "decoder_depth": 2, "decoder_num_heads": 4})

    def loaded_mae(model: nn.Module) -> nn.Module:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mae.pth")
            torch.save({"model": model.state_dict()}, path)
            mae = MAE.load(path, image_size=(32, 32), heads=3, decoder_heads=4)
        mae.model.position.requires_grad_(False)
        mae.model.pool.requires_grad_(False)
        return mae

    decay = training.optimizer.weight_decay
    groups = importlib.import_module("timm.optim").param_groups_weight_decay(peer, decay)
    ours, theirs = our_shares(loaded_mae(peer), training), shares_of(peer, loaded_mae, groups)
    yield decay_row("mae", ours, theirs, f"timm {timm.__version__}, add_weight_decay since 2022")

    code = load(sources / "mae" / "models_vit.py")
    grouped = load(sources / "mae" / "util" / "lr_decay.py").param_groups_lrd
    model = code.VisionTransformer(global_pool=True, **SMALL, num_classes=10, qkv_bias=True, norm_layer=NORM)
    of = partial(of_state, heads=3)
    training = find_recipe("mae-fine-tuning").config.training
    optimizer: Any = training.optimizer
    groups = grouped(
        model,
        optimizer.weight_decay,
        no_weight_decay_list=model.no_weight_decay(),
        layer_decay=optimizer.layer_decay,
    )
    ours, theirs = our_shares(of(model), training), shares_of(model, of, groups)
    yield decay_row("mae-fine-tuning", ours, theirs, "mae, util/lr_decay.py")


def of_state(model: nn.Module, **options: Any) -> nn.Module:
    return vt.load(model.state_dict(), **options)


def decays_of_dino(sources: Path) -> Iterator[Row]:
    """The authors' groups, and the decay of every step."""
    from provenance_torch import dinos_network

    training = find_recipe("dino").config.training
    student, loaded_dino, tools = dinos_network(sources, embed_dim=48, depth=LAYERS)
    _, _, decays = dinos_schedules(sources)
    groups = tools.get_params_groups(student)
    for group in groups:
        group.setdefault("weight_decay", float(decays[0]))
    ours, theirs = our_shares(loaded_dino(student), training), shares_of(student, loaded_dino, groups)
    row = decay_row("dino", ours, theirs, "dino, utils.py")
    total, _ = steps_of(training)
    mine = np.array([weight_decay(step, total, training.optimizer) for step in range(total)])
    apart = float(np.abs(mine - decays).max())
    assert row.difference or apart < 1e-9, f"the decay of a step is {apart} apart"
    yield row._replace(where=f"{row.where}; of {total:,} steps")


def decays_of_big_vision(sources: Path) -> Iterator[Row]:
    """The mask that big_vision's own optimizer gives to optax."""
    import jax
    import jax.numpy as jnp
    import ml_collections
    import optax

    sys.meta_path.insert(0, NoTensorFlow())
    sys.path.insert(0, str(sources / "big_vision"))
    vit = importlib.import_module("big_vision.models.vit")
    optim = importlib.import_module("big_vision.optax")
    from vitreous.training.initial_model import freeze

    for recipe, options in (
        ("s16-baseline", {"rep_size": True, "pool_type": "gap", "posemb": "sincos2d"}),
        ("augreg", {"pool_type": "tok", "posemb": "learn"}),
    ):
        training = find_recipe(recipe).config.training
        net = vit.Model(num_classes=10, variant="Ti/8", **options)
        params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 32, 32, 3)))["params"]
        recorded: list[Any] = []

        def record(decay: float, mask: Any, into: list[Any] = recorded) -> Any:
            into.append(jax.tree.map(lambda decaying: decay if decaying else 0.0, mask))
            return optax.identity()

        with patch.object(optax, "add_decayed_weights", record):
            optim.make(
                ml_collections.ConfigDict(
                    {
                        "optax_name": "scale_by_adam",
                        "lr": 1e-3,
                        "wd": 1e-4,
                        "schedule": {"warmup_steps": 0, "decay_type": "cosine"},
                    }
                ),
                params,
                sched_kw={"total_steps": 100, "batch_size": 16, "data_size": 1000},
            )
        (decays,) = recorded
        # Theirs is not multiplied by the rate: 1e-4 at the peak of 1e-3 is 0.1.
        filled = jax.tree.map(lambda p, d: np.full(p.shape, d / 1e-3, np.float32), params, decays)
        names = {"heads": 3} | ({"pooling": {"kind": "mean"}} if recipe == "s16-baseline" else {})
        model: Any = loaded(filled, prefix="params/", **names)
        if recipe == "augreg":
            freeze(model, ["position.prefix"])
        theirs = {
            name: (float(parameter.detach().double().mean()), 1.0)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        if recipe == "augreg":  # a row for the class token is ours alone, and frozen
            theirs["position.table"] = (float(model.position.table.detach()[1:].double().mean()), 1.0)
        yield decay_row(recipe, our_shares(model, training), theirs, "big_vision, optax.py")


RATES = (rates_of_deit, rates_of_mae, rates_of_dino, rates_of_google)
PROGRAMS = (*RATES, decays_of_deit, decays_of_mae, decays_of_dino, decays_of_big_vision)
