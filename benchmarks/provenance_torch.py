"""Recipes beside code in PyTorch: timm, transformers and vit-pytorch as they are installed, and clones of the
authors' code of MAE, DINO, DeiT and ViT-5. `provenance.py` runs it."""

from __future__ import annotations

import copy
import importlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from peers import import_timm
from provenance_rows import (
    SHORT,
    STEPS,
    Row,
    batches,
    build,
    compared,
    follow,
    follow_peer,
    initial,
    load,
    small,
    small_training,
    with_source,
)
from provenance_settings import inside
from torch import nn

import vitreous as vt
from vitreous.data.image_samples import Batch
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.config import FallingScheduleConfig, TrainingConfig
from vitreous.training.learner import learning_rate
from vitreous.training.objectives import classification


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
    steps: int = STEPS,
    criterion: Callable[..., torch.Tensor] | None = None,
    clip: Callable[[], object] = lambda: None,
    count: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Iterator[Row]:
    """Train a peer with its optimizer from its weights, at the recipe's rates, and ours from the same.

    Args:
        forward: gives its logits.
        loaded: makes our model of it.
        steps: of the whole training; the losses of a short one are not compared.
        criterion: of its logits and the labels; None: cross-entropy with the recipe's smoothing.
        clip: called between the gradient and the step.
        count, dtype: of the images of a step.
    """
    data = [batch._replace(images=batch.images.to(dtype)) for batch in batches(32, steps, count)]
    ours = follow(loaded(peer), training, data, steps=steps)

    def begin(number: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = training.peak_lr * learning_rate(number, steps, training.schedule)

    smoothed = partial(nn.functional.cross_entropy, label_smoothing=training.label_smoothing)

    def loss_of(batch: Batch) -> torch.Tensor:
        return (criterion or smoothed)(forward(batch.images), batch.targets)

    theirs = follow_peer(peer, loaded, optimizer, data, loss_of, begin=begin, clip=clip)
    for row in compared(about.recipe, about.source, ours, theirs):
        if row.quantity != "loss" or steps == STEPS:
            yield row._replace(peer=about.name)


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
    smoothed = importlib.import_module("timm.loss").LabelSmoothingCrossEntropy(training.label_smoothing)
    about = Peer(name, "", source)
    yield from beside(about, peer, peer, vt.load, optimizer, training, STEPS, criterion=smoothed)


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
        return transformers.ViTForImageClassification(
            transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=10, layer_norm_eps=1e-6)
        )

    found = initial(build(config, training), vt.load(drawn()))
    yield Row(about.recipe, "weights", *with_source(found, about.source), peer=about.name)
    for name, others in (
        (about.name, ()),
        ("transformers, with the recipe's weight decay", ("position", "cls_token")),
    ):
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
    yield from beside(about, peer, peer, loaded, optimizer, training, SHORT)


SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 192, "depth": 2, "num_heads": 3, "num_classes": 10}
OURS = {"width": 192, "heads": 3, "mlp_dim": 768}  # the same for `small`
NORM = partial(nn.LayerNorm, eps=1e-6)


def from_vit5(sources: Path) -> Iterator[Row]:
    """`vit5` beside the authors' model, of two layers, with AdamW in the place of their LAMB."""
    from vitreous.training.initial_model import freeze

    import_timm()
    code = load(sources / "ViT-5" / "models_vit5.py")
    options = {"num_registers": 4, "rope": True, "reg_theta": 100, "qk_norm": True, "flash": False}
    torch.manual_seed(0)
    peer = code.vit_models(norm_layer=partial(code.RMSNorm, eps=1e-6), **SMALL, **options)

    def loaded(model: nn.Module) -> nn.Module:
        ours = vt.load(model.state_dict())
        freeze(ours, training.freeze)
        return ours

    config, training = small("vit5", drop_path=(0.0, 0.0), **OURS)
    ours, source = build(config, training), "ViT-5, models_vit5.py"
    yield Row("vit5", "weights", *with_source(initial(ours, vt.load(peer.state_dict())), source))

    def forward(images: torch.Tensor) -> torch.Tensor:
        with patch.object(torch.Tensor, "cuda", lambda tensor: tensor):  # rope.py moves its angles itself
            found: torch.Tensor = peer(images)
        return found

    yield from beside_binary("vit5", source, peer, forward, loaded, training)


def from_deit3(sources: Path) -> Iterator[Row]:
    """`deit3` beside the authors' model, of two layers, with AdamW in the place of their LAMB."""
    from vitreous.training.initial_model import freeze

    import_timm()
    code = load(sources / "deit" / "models_v2.py")
    torch.manual_seed(0)
    peer = code.vit_models(
        **SMALL, qkv_bias=True, norm_layer=NORM, block_layers=code.Layer_scale_init_Block, init_scale=1e-4
    )

    def loaded(model: nn.Module) -> nn.Module:
        ours = vt.load(model.state_dict(), heads=3, like="timm:deit3_small_patch16_224")
        freeze(ours, training.freeze)
        return ours

    config, training = small("deit3", drop_path=(0.0, 0.0), **OURS)
    ours, source = build(config, training), "deit, models_v2.py"
    yield Row("deit3", "weights", *with_source(initial(ours, loaded(peer)), source))
    yield from beside_binary("deit3", source, peer, peer, loaded, training)


def beside_binary(
    recipe: str,
    source: str,
    peer: nn.Module,
    forward: Callable[[torch.Tensor], torch.Tensor],
    loaded: Callable[[nn.Module], nn.Module],
    training: TrainingConfig,
) -> Iterator[Row]:
    """Train a peer with binary cross-entropy and timm's AdamW, clipped as DeiT III and ViT-5 are."""
    factory = importlib.import_module("timm.optim")
    decay = training.optimizer.weight_decay
    optimizer = factory.create_optimizer_v2(peer, opt="adamw", lr=training.peak_lr, weight_decay=decay)
    # Theirs is the mean over the classes, ours the sum, and the recipe's limit is that of its 1,000 classes.
    classes, whole = SMALL["num_classes"], find_recipe(recipe).config.model.num_classes
    limit = training.optimizer.clip_norm
    assert isinstance(limit, float)
    assert whole
    training = training.model_copy(
        update={"optimizer": training.optimizer.model_copy(update={"clip_norm": limit * classes / whole})}
    )

    def clip() -> None:  # at 1 of the mean, as apex's FusedLAMB does
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0 * classes)

    def criterion(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        targets = nn.functional.one_hot(labels, classes).float()
        return nn.functional.binary_cross_entropy_with_logits(logits, targets) * classes

    about = Peer(recipe, "", f"{source}, and AdamW of timm")
    yield from beside(about, peer, forward, loaded, optimizer, training, criterion=criterion, clip=clip)


def from_deit(sources: Path) -> Iterator[Row]:
    """`deit-distilled` beside the authors' model with two heads and their loss."""
    timm = import_timm()
    code = load(sources / "deit" / "models.py")
    losses = load(sources / "deit" / "losses.py")
    torch.manual_seed(0)
    peer = code.DistilledVisionTransformer(**SMALL, qkv_bias=True, norm_layer=NORM)
    loaded = with_heads(3)
    name, source = "deit-distilled", f"deit, models.py and losses.py, timm {timm.__version__}"
    config, training = small(name, drop_path=0.0, **OURS)
    yield Row(name, "weights", *with_source(initial(build(config, training), loaded(peer)), source))
    distillation = training.distillation
    assert distillation
    linear = nn.Linear(3 * 32 * 32, 10).requires_grad_(False)

    def teacher(images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = linear(images.flatten(1))
        return found

    data = batches(32)
    ours = follow(loaded(peer), training, data, classification(training, teacher))
    optimizer = importlib.import_module("timm.optim").create_optimizer_v2(
        peer, opt="adamw", lr=1e-3, weight_decay=training.optimizer.weight_decay
    )
    objective = losses.DistillationLoss(
        importlib.import_module("timm.loss").LabelSmoothingCrossEntropy(training.label_smoothing),
        teacher,
        distillation.kind,
        distillation.weight,
        tau=1.0,
    )

    def begin(number: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = training.peak_lr * learning_rate(number, STEPS, training.schedule)

    def loss_of(batch: Batch) -> torch.Tensor:
        found: torch.Tensor = objective(batch.images, peer(batch.images), batch.targets)
        return found

    theirs = follow_peer(peer, loaded, optimizer, data, loss_of, begin=begin)
    yield from compared(name, source, ours, theirs)


def from_bit(sources: Path) -> Iterator[Row]:
    """`bit-hyperrule` beside BiT's model in PyTorch with one unit in each stage, and plain SGD."""
    code = load(sources / "big_transfer" / "bit_pytorch" / "models.py")
    name, source = "bit-hyperrule", "big_transfer, bit_pytorch/models.py"
    config, training = find_recipe(name).config, small_training(name)
    sizes = {"layers": (1, 1, 1, 1), "image_size": (32, 32), "num_classes": 10}
    model: Any = type(config.model).model_validate(config.model.model_dump() | sizes)
    torch.manual_seed(0)
    peer = code.ResNetV2([1, 1, 1, 1], 1, head_size=10)
    ours = build(model, training)
    with tempfile.TemporaryDirectory() as folder:  # whose tensor is which of ours: the one with its numbers
        vt.save(drawn_again(ours), Path(folder) / "bit.npz", format="bit")
        peer.load_from(np.load(Path(folder) / "bit.npz"))
    places = {}
    for theirs, parameter in peer.named_parameters():
        (places[theirs],) = [
            own
            for own, tensor in ours.named_parameters()
            if tensor.numel() == parameter.numel() and torch.equal(tensor.flatten(), parameter.flatten())
        ]

    def loaded(peer: Any) -> nn.Module:
        found, weights = build(model, training).to(peer.head.conv.weight.dtype), peer.state_dict()
        shapes = {own: tensor.shape for own, tensor in found.named_parameters()}
        found.load_state_dict(
            {own: weights[theirs].reshape(shapes[own]) for theirs, own in places.items()}, strict=False
        )
        return found

    zero = code.ResNetV2([1, 1, 1, 1], 1, head_size=10, zero_head=True)
    with tempfile.TemporaryDirectory() as folder:
        vt.save(ours, Path(folder) / "bit.npz", format="bit")
        zero.load_from(np.load(Path(folder) / "bit.npz"))
    fresh = initial(build(model, training), loaded(zero), lambda each: each.startswith("head"))
    yield Row(name, "weights", *with_source(fresh, f"{source}: the head, the only weights that are new"))
    peer.double()  # standardized kernels and few numbers in a group: in float32 the gradients differ by 1e-3
    about = Peer(name, "", f"{source}, in float64")
    for steps in (SHORT, STEPS):  # 20 pass all rates, 200 have the losses
        beginning = copy.deepcopy(peer)
        optimizer = torch.optim.SGD(beginning.parameters(), lr=0.003, momentum=0.9)
        with patch.object(torch.Tensor, "float", torch.Tensor.double):  # ours asks for float32 at least
            rows = list(
                beside(
                    about,
                    beginning,
                    beginning,
                    loaded,
                    optimizer,
                    training,
                    steps,
                    count=4,
                    dtype=torch.float64,
                )
            )
        yield from (row for row in rows if (row.quantity == "loss") == (steps == STEPS))


def drawn_again(model: nn.Module) -> nn.Module:
    """Weights of which no two tensors are equal, about as large as in a ResNet that is trained."""
    for tensor in model.parameters():
        nn.init.normal_(tensor, 1.0 if tensor.ndim == 1 else 0.0, 0.05)
    return model


def with_heads(count: int) -> Callable[[nn.Module], nn.Module]:
    """Return what makes our model of a state dict under timm's names."""
    return lambda model: vt.load(model.state_dict(), heads=count)


def from_mae_fine_tuning(sources: Path) -> Iterator[Row]:
    """`mae-fine-tuning` beside the authors' model, their layer-wise rates and their schedule."""
    from vitreous.training.initial_model import init_head

    timm = import_timm()
    folder = sources / "mae"
    code = load(folder / "models_vit.py")
    groups = load(folder / "util" / "lr_decay.py").param_groups_lrd
    adjust = load(folder / "util" / "lr_sched.py").adjust_learning_rate
    torch.manual_seed(0)
    peer = code.VisionTransformer(global_pool=True, **SMALL, qkv_bias=True, norm_layer=NORM)
    (line,) = re.findall(
        r"^ *(trunc_normal_\(model\.head\.weight.*\))$",
        (folder / "main_finetune.py").read_text(),
        re.MULTILINE,
    )
    exec(line, {"model": peer, "trunc_normal_": timm.layers.trunc_normal_})
    loaded = with_heads(3)
    name, source = "mae-fine-tuning", f"mae, models_vit.py, timm {timm.__version__}"
    config, training = small(name, drop_path=0.0, **OURS)
    ours: Any = build(config, training)
    init_head(ours, training.head, 0)
    yield Row(name, "weights", *with_source(initial(ours, loaded(peer)), source))
    nn.init.normal_(peer.head.weight, std=0.02)  # as small as it is, it hides the gradients below it
    decays = {"weight_decay": training.optimizer.weight_decay, "layer_decay": training.optimizer.layer_decay}
    optimizer = torch.optim.AdamW(
        groups(peer, no_weight_decay_list=peer.no_weight_decay(), **decays), lr=training.peak_lr
    )
    least = training.peak_lr * training.schedule.end
    rates = SimpleNamespace(lr=training.peak_lr, min_lr=least, warmup_epochs=0, epochs=STEPS)
    data = batches(32)
    follower = follow(loaded(peer), training, data)

    def begin(number: int) -> None:
        adjust(optimizer, number, rates)

    smoothed = importlib.import_module("timm.loss").LabelSmoothingCrossEntropy(training.label_smoothing)

    def loss_of(batch: Batch) -> torch.Tensor:
        found: torch.Tensor = smoothed(peer.head(peer.forward_features(batch.images)), batch.targets)
        return found

    theirs = follow_peer(peer, loaded, optimizer, data, loss_of, begin=begin)
    yield from compared(name, source, follower, theirs)


DINO_SIZES = {"prototypes": 512, "head_hidden": 256}


def dinos_settings() -> Any:
    """Those of the recipe, with a small head and small views."""
    own: Any = find_recipe("dino").config.own  # type: ignore[attr-defined]
    views = own.views.model_copy(update={"small_size": 16})
    return own.model_copy(update={**DINO_SIZES, "views": views})


def dinos_network(
    sources: Path, *, embed_dim: int, depth: int, steps: int = STEPS, settings: Any = None
) -> tuple[nn.Module, Callable[[nn.Module], Any], Any]:
    """The authors' student, what makes our objective of it, and their utils.

    Args:
        steps: of the whole training, for our objective.
        settings: of ours; None: the recipe's with a small head.
    """
    from vitreous.addons.self_supervision.dino import DINO

    with inside(sources / "dino"), patch.object(torch.hub, "list", lambda name: []):
        importlib.import_module("main_dino")
        code, tools = map(importlib.import_module, ("vision_transformer", "utils"))
    settings = settings or dinos_settings()
    torch.manual_seed(0)
    backbone = code.VisionTransformer(
        img_size=[32],
        patch_size=8,
        embed_dim=embed_dim,
        depth=depth,
        num_heads=3,
        qkv_bias=True,
        norm_layer=NORM,
    )
    head = code.DINOHead(embed_dim, settings.prototypes, hidden_dim=settings.head_hidden)
    student = tools.MultiCropWrapper(backbone, head)

    def loaded(peer: Any) -> DINO:
        weights = peer.backbone.state_dict()
        rounded = {n: t.to(torch.float32) for n, t in weights.items()}
        lost = {n: t - rounded[n] for n, t in weights.items()}  # by float32, in which weights are loaded
        model, rest = (vt.load(part, heads=3, image_size=(32, 32)) for part in (rounded, lost))
        dtype = weights["norm.weight"].dtype
        ours = DINO(model, settings, steps=steps).to(dtype)
        with torch.no_grad():
            for each in (ours.model, ours.teacher):
                for weight, more in zip(each.parameters(), rest.parameters(), strict=True):
                    weight.add_(more)
        weights = peer.head.state_dict()
        weights = {n: t for n, t in weights.items() if n.startswith("mlp")} | {
            "prototypes.weight": weights["last_layer.weight_v"]
        }
        ours.head.load_state_dict(weights)
        ours.teacher_head.load_state_dict(weights)
        return ours

    return student, loaded, tools


def from_dino(sources: Path) -> Iterator[Row]:
    """`dino` beside the authors' student, teacher and head, of two layers; and the state of the optimizer
    after an epoch of ImageNet in which the prototypes are frozen."""
    from vitreous.addons.self_supervision.dino import DINO

    settings = dinos_settings()
    student, loaded, _ = dinos_network(sources, embed_dim=192, depth=2)
    config, training = small("dino", num_classes=None, drop_path=0.0, width=192, heads=3, mlp_dim=768)
    found = initial(DINO(build(config, training), settings, steps=STEPS), loaded(student), of_the_student)
    yield Row("dino", "weights", *with_source(found, "dino, main_dino.py"))
    for row in beside_dino(sources, views(32, 16), settings, epochs=100):  # of two steps each
        if row.quantity != "state":
            yield row
    # The first epoch of ImageNet, of 2,502 steps at the rates of the warm-up, in which the prototypes are
    # frozen, and 20 steps after it; model and head are small for it. So many steps make much of one rounding,
    # for which float64 leaves room.
    data = views(32, 16, FROZEN + SHORT, batch=4, dtype=torch.float64)
    smaller = settings.model_copy(update={"prototypes": 64, "head_hidden": 64})
    begun = partial(beside_dino, epochs=100, steps_per_epoch=FROZEN, warmup_epochs=10)
    with patch.object(torch.Tensor, "float", torch.Tensor.double):  # ours asks for float32 at least
        rows = list(begun(sources, data, smaller, embed_dim=48, depth=1, dtype=torch.float64))
    for row in rows:
        if row.quantity == "state":
            yield row._replace(where=f"{row.where}, {SHORT} steps after {FROZEN:,} frozen ones, in float64")


FROZEN = 1_281_167 // 512  # steps of the epoch that freezes the prototypes


def beside_dino(
    sources: Path,
    data: list[Any],
    settings: Any,
    *,
    epochs: int,
    steps_per_epoch: int = 2,
    warmup_epochs: int = 0,
    embed_dim: int = 192,
    depth: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Iterator[Row]:
    """Ours and theirs on the same views, as long as there are some."""
    from vitreous.addons.self_supervision.tasks import of_views

    steps = epochs * steps_per_epoch
    training = small_training("dino")
    assert isinstance(training.schedule, FallingScheduleConfig)
    assert isinstance(training.optimizer.weight_decay, tuple)
    end, decays = training.schedule.end, training.optimizer.weight_decay
    # Their warm-up reaches the peak one step earlier, which the row of rates says: here ours does, too.
    warmup = max(warmup_epochs * steps_per_epoch - 1, 0)
    schedule = training.schedule.model_copy(update={"warmup": float(warmup)})
    training = training.model_copy(update={"schedule": schedule})
    network = partial(dinos_network, sources, embed_dim=embed_dim, depth=depth, settings=settings)
    student, loaded, tools = network(steps=steps)
    teacher, _, _ = network()
    student, teacher = student.to(dtype), teacher.to(dtype)
    with inside(sources / "dino"), patch.object(torch.hub, "list", lambda name: []):
        program = importlib.import_module("main_dino")
    after = len(data) if steps_per_epoch > 2 else SHORT
    ours = follow(loaded(student), training, data, of_views, steps=steps, after=after)
    objective = program.DINOLoss(
        settings.prototypes,
        4,
        settings.teacher_temperature_start,
        settings.teacher_temperature,
        0,
        epochs,
    ).to(dtype)
    optimizer = torch.optim.AdamW(tools.get_params_groups(student))
    cosine = partial(tools.cosine_scheduler, epochs=epochs, niter_per_ep=steps_per_epoch)
    rates = cosine(training.peak_lr, training.peak_lr * end, warmup_epochs=warmup_epochs)
    decay, momentum = cosine(*decays), cosine(settings.teacher_momentum, 1)
    step = [0]

    def begin(number: int) -> None:
        step[0] = number
        if number == 0:
            teacher.load_state_dict(student.state_dict())
            objective.center.zero_()
        for group, decayed in zip(optimizer.param_groups, (True, False), strict=True):
            group["lr"] = rates[number]
            if decayed:
                group["weight_decay"] = decay[number]

    def loss_of(batch: Any) -> torch.Tensor:
        crops = [*batch.images.unbind(1), *batch.small.unbind(1)]
        found: torch.Tensor = objective(student(crops), teacher(crops[:2]), step[0] // steps_per_epoch)
        return found

    def clip() -> None:
        tools.clip_gradients(student, training.optimizer.clip_norm.each)  # type: ignore[union-attr]
        tools.cancel_gradients_last_layer(step[0] // steps_per_epoch, student, 1)

    @torch.no_grad()
    def follow_student(number: int) -> None:
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.mul_(momentum[number]).add_((1 - momentum[number]) * fast)

    with patch.multiple(torch.distributed, all_reduce=MagicMock(), get_world_size=lambda: 1):
        theirs = follow_peer(
            student,
            loaded,
            optimizer,
            data,
            loss_of,
            begin=begin,
            clip=clip,
            end=follow_student,
            after=after,
        )
    yield from compared("dino", "dino, main_dino.py", ours, theirs, after)


def of_the_student(name: str) -> bool:
    return name.startswith(("model.", "head."))


def views(
    large: int, small: int, steps: int = STEPS, batch: int = 16, dtype: torch.dtype = torch.float32
) -> list[Any]:
    """Two large views and two small ones of each image, with noise of their own."""
    from vitreous.addons.self_supervision.views import Views

    found, generator = [], torch.Generator().manual_seed(1)
    for batch_of in batches(large, steps, batch):
        whole = batch_of.images.unsqueeze(1).repeat(1, 2, 1, 1, 1)
        whole += 0.3 * torch.randn(whole.shape, generator=generator)
        images = batch_of.images
        parts = torch.stack([images[:, :, :small, :small], images[:, :, -small:, -small:]], dim=1)
        found.append(Views(whole.to(dtype), parts.to(dtype)))
    return found


def from_mae(sources: Path) -> Iterator[Row]:
    """`mae` beside the authors' model of two layers, with their optimizer's groups and rates."""
    from vitreous.tasks.pretraining.mae import MAE
    from vitreous.tasks.pretraining.rules import MAEConfig
    from vitreous.tasks.pretraining.task import self_supervised

    timm = import_timm()
    sizes = {"embed_dim": 192, "depth": 2, "num_heads": 3, "decoder_embed_dim": 128}
    peer = maes_peer(sources, sizes | {"decoder_depth": 1, "decoder_num_heads": 4})
    with inside(sources / "mae"):
        adjust = importlib.import_module("util.lr_sched").adjust_learning_rate
    found = find_recipe("mae").config
    decoder = {"decoder_width": 128, "decoder_depth": 1, "decoder_heads": 4, "decoder_mlp_dim": 512}
    settings = found.own.model_copy(update=decoder)  # type: ignore[attr-defined]
    noises = torch.rand(STEPS, 16, 16, generator=torch.Generator().manual_seed(0))

    def loaded(model: nn.Module) -> MAE:
        """With the noise of the masks from a list."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mae.pth")
            torch.save({"model": model.state_dict()}, path)
            known = {"mask_ratio": settings.mask_ratio, "normalize_pixels": settings.normalize_pixels}
            mae = MAE.load(path, image_size=(32, 32), heads=3, decoder_heads=4, **known)
        mae.model.position.requires_grad_(False)
        numbers = iter(noises)
        mae.draw = lambda batch, generator: next(numbers)  # type: ignore[method-assign]
        return mae

    model, training = small("mae", num_classes=None, width=192, heads=3, mlp_dim=768)
    source = "mae, models_mae.py"
    mine = MAE(build(model, training), MAEConfig(**decoder))
    yield Row("mae", "weights", *with_source(initial(mine, loaded(peer), no_position), source))

    data = batches(32)
    ours = follow(loaded(peer), training, data, self_supervised)
    groups = importlib.import_module("timm.optim").param_groups_weight_decay(  # add_weight_decay, since 2022
        peer, training.optimizer.weight_decay
    )
    optimizer = torch.optim.AdamW(groups, lr=training.peak_lr, betas=training.optimizer.betas)
    rates = SimpleNamespace(lr=training.peak_lr, min_lr=0.0, warmup_epochs=0, epochs=STEPS)
    step = [0]

    def loss_of(batch: Batch) -> torch.Tensor:
        with patch.object(torch, "rand", lambda *shape, device=None: noises[step[0]]):
            found: torch.Tensor = peer(batch.images, mask_ratio=settings.mask_ratio)[0]
        return found

    def begin(number: int) -> None:
        step[0] = number
        adjust(optimizer, number, rates)

    theirs = follow_peer(peer, loaded, optimizer, data, loss_of, begin=begin)
    yield from compared("mae", f"mae, and AdamW's groups of timm {timm.__version__}", ours, theirs)


def maes_peer(sources: Path, sizes: dict[str, int]) -> nn.Module:
    """The authors' masked autoencoder for images of 32 pixels."""
    blocks = import_timm().models.vision_transformer
    torch.manual_seed(0)
    with inside(sources / "mae"), patch.object(np, "float", float, create=True):  # of NumPy until 1.23
        # Of timm it takes two classes, which today's timm has with one argument less.
        sys.modules["timm.models.vision_transformer"] = MagicMock(
            PatchEmbed=blocks.PatchEmbed,
            Block=lambda *words, qk_scale=None, **options: blocks.Block(*words, **options),
        )
        found: nn.Module = importlib.import_module("models_mae").MaskedAutoencoderViT(
            img_size=32, patch_size=8, norm_layer=NORM, norm_pix_loss=True, **sizes
        )
    return found


def no_position(name: str) -> bool:
    return "position" not in name


ALWAYS = (from_timm, from_transformers, from_vit_pytorch)
WITH_SOURCES = (from_deit, from_mae_fine_tuning, from_mae, from_dino, from_vit5)
