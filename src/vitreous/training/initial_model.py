"""The model that a run starts from: random weights, or a checkpoint fitted to it, and low-rank adaptation.

LoRA (2106.09685) is a function applied to a model: torch's parametrization makes each chosen weight W + alpha
/ rank * B A, and merging makes it a weight again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vitreous.checkpoints.runs import check_finished
from vitreous.data.config import BUNDLED
from vitreous.errors import InputError, Param, nearest
from vitreous.layers.initialization import init_weights
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.ensemble import EnsembleConfig, NetworkConfig
from vitreous.models.model import Model, Trainable, WithEncoder, build_model
from vitreous.models.preprocessing import ImagePreparation, Preprocessing
from vitreous.models.settings import merged
from vitreous.rng import torch_generator
from vitreous.training.config import DrawnHeadConfig, LoRAConfig, RunConfig
from vitreous.training.settings import AnyConfig, AnyRun, Tree, configure


def starting_model(config: RunConfig, labels: Sequence[str]) -> Model:
    """Build the model of `config` as it is trained: random or from a checkpoint, partly frozen, with LoRA."""
    model = build_model(config.model, preprocessing=config.prepared, labels=list(labels), seed=config.seed)
    if config.training.initialization != "google":
        init_weights(model, torch_generator(config.seed, "weights"), config.training.initialization)
    if isinstance(config.training.head, DrawnHeadConfig):
        init_head(model, config.training.head, config.seed)
    if config.init:
        loaded = checkpoint(config.init, image_size=config.model.image_size)
        take_weights(model, loaded, config.init)
        model.origin = loaded.origin
    if config.training.freeze:
        freeze(model, config.training.freeze)
    if config.training.loss == "sigmoid":
        model.task = "multilabel"
    if config.training.lora:
        add_lora(model, config.training.lora, seed=config.seed)
    return model


@torch.no_grad()
def init_head(model: Model, head: DrawnHeadConfig, seed: int) -> None:
    """Draw a fresh classifier as the training says, which a checkpoint of the same classes replaces."""
    std, bias = head.std, head.bias
    rng = torch_generator(seed, "head")
    for layer in model.head.modules():
        if isinstance(layer, nn.Linear):
            if std is not None:
                nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=rng)
            if bias and layer.bias is not None:
                nn.init.constant_(layer.bias, bias)


def without_lost_init(config: AnyConfig, saved: bool) -> AnyConfig:
    """Return a configuration without the checkpoint that its run began from, where that is gone and the run
    has saved a state: with all weights."""
    init = config.start
    lost = init is not None and os.path.isabs(init) and not os.path.exists(init)
    return config.model_copy(update={"init": None}) if saved and lost else config


def checkpoint(source: str, **overrides: Any) -> Trainable:
    """Return the model of a checkpoint of any format, or of a run."""
    from vitreous.checkpoints.files import model_folder, read_json
    from vitreous.checkpoints.loading import load_image_model
    from vitreous.checkpoints.native import is_native

    check_finished(Path(source))
    # The model that takes the weights may be built without memory at this moment.
    with torch.device("cpu"):
        described = model_folder(Path(source)) / "config.json"
        if not is_native(source) or read_json(described)["kind"] != "Ensemble":
            loaded: Any = load_image_model(source, **overrides)
            return loaded
        from vitreous.checkpoints.resizing import resize

        # This refuses an ensemble that has no network.
        described_checkpoint(source)
        ensemble: Any = load_image_model(source)
        network: Trainable = ensemble.network()
        return resize(network, **overrides) if overrides else network


def described_checkpoint(source: str) -> tuple[ViTConfig | BiTConfig, Preprocessing]:
    """Return the configuration and the preprocessing of the model that a run begins with, of which no weight
    is read; of one that answers by an ensemble, those of its network. Raises InputError: it has none, or is
    not a model that sees images alone."""
    from vitreous.checkpoints.loading import configuration

    check_finished(Path(source))
    spec = configuration(source)
    config, images = spec.config, spec.preprocessing
    if isinstance(config, ViTConfig | BiTConfig) and images:
        return config, images
    if not (isinstance(config, EnsembleConfig) and images):
        kind = type(config).__name__.removesuffix("Config")
        raise InputError(f"{source} holds a {kind}: a model that takes only images is needed here")
    for member in config.members:
        if isinstance(seen := member.features, NetworkConfig):
            own = {"size": seen.network.image_size, "mean": seen.mean, "std": seen.std}
            return seen.network, images.model_copy(update=own)
    raise InputError(
        f"{source} is an ensemble of methods without a network to start from: pass another {Param('init')}"
    )


def fitted_to_checkpoint(config: AnyRun, source: str, settings: Tree, imposed: Sequence[str] = ()) -> AnyRun:
    """Return `config` with the architecture and preprocessing of a checkpoint, so that its weights fit; but
    for the model settings in `settings`, and the fields `imposed` of its own model."""
    model, images = described_checkpoint(source)
    tree = model.model_dump()
    tree["num_classes"] = config.model.num_classes
    # Fine-tuning has one linear layer as its head (section 3.1 of the paper).
    if "representation_size" in tree:
        tree["representation_size"] = None
    wanted = {name: getattr(config.model, name) for name in imposed} | settings.get("model", {})
    preprocessing = images.model_dump(include={*ImagePreparation.model_fields})
    return configure(
        config.model_copy(update={"init": source}),
        {
            "model": merged(tree, wanted),
            "preprocessing": merged(preprocessing, settings.get("preprocessing", {})),
        },
    )


@torch.no_grad()
def take_weights(model: Model, loaded: Model, source: str) -> None:
    """Copy every weight of `loaded` that `model` has; the head only for the same classes, else it stays zero.
    Raises InputError: the rest does not fit, with the names that are missing or of another shape."""
    mine, theirs = dict(model.named_parameters()), dict(loaded.named_parameters())
    if isinstance(model, WithEncoder) and not isinstance(loaded, WithEncoder):
        theirs = {f"encoder.{name}": weight for name, weight in theirs.items()}
    elif isinstance(loaded, WithEncoder) and not isinstance(model, WithEncoder):
        theirs = {name.removeprefix("encoder."): weight for name, weight in theirs.items()}
    same_classes = loaded.labels is not None and loaded.labels == model.labels
    problems = []
    for name, parameter in mine.items():
        given: Tensor | None = theirs.get(name)
        of_head = name.startswith("head.")
        if given is not None and given.ndim == parameter.ndim == 4 and given.shape[1] != parameter.shape[1]:
            given = for_channels(given, parameter.shape[1])
        if given is None or given.shape != parameter.shape:
            problems += [] if of_head else [name]
        elif same_classes or not of_head:
            parameter.copy_(given)
    if problems:
        raise InputError(
            f"{source} does not fit the model: {', '.join(problems[:5])} "
            f"{'and more ' if len(problems) > 5 else ''}missing or of another shape; do not set a model.* "
            f"that changes the architecture together with {Param('init')}"
        )


def for_channels(weight: Float[Tensor, "D 3 P Q"], channels: int) -> Float[Tensor, "D C P Q"]:
    """Return the patch embedding of a color model for another number of channels, as timm's
    `adapt_input_conv`: for one their sum; for more they are repeated in their order, and scaled so that equal
    channels give what they gave before."""
    if channels == 1:
        return weight.sum(dim=1, keepdim=True)
    copies = -(-channels // weight.shape[1])
    return weight.repeat(1, copies, 1, 1)[:, :channels] * (weight.shape[1] / channels)


def freeze(model: Model, parts: Sequence[str]) -> None:
    """Freeze the parameters of the named parts. "backbone" is everything but the head; of "position.prefix",
    the class token's row of the position table, the values become zero (DeiT-III). Raises InputError: the
    model has no such part."""
    known = {name for name, _ in model.named_modules() if name} | {n for n, _ in model.named_parameters()}
    for part in parts:
        if part == "position.prefix" and "position.table" in known:
            position: Any = model.get_submodule("position")
            position.frozen_rows = position.extra
            with torch.no_grad():
                position.table[: position.extra] = 0
            continue
        if isinstance(model, WithEncoder) and f"encoder.{part}" in known:
            part = f"encoder.{part}"
        if part != "backbone" and part not in known:
            raise InputError(f"training.freeze: unknown part {part!r}: {nearest(part, ['backbone', *known])}")
        for name, parameter in model.named_parameters():
            inside = name == part or name.startswith(part + ".")
            if inside or (part == "backbone" and not name.startswith("head.")):
                parameter.requires_grad_(False)


def absolute_source(source: str) -> str:
    """Return DATA with an absolute path, so that config.toml runs from any folder. The name of data that come
    with the package stays, also where this folder has a file of that name."""
    kind, colon, path = source.partition(":")
    if source in BUNDLED:
        return source
    if Path(source).exists():
        return str(Path(source).resolve())
    if colon and Path(path).exists():
        return f"{kind}:{Path(path).resolve()}"
    return source


def absolute_checkpoint(source: str) -> str:
    """Return a checkpoint with an absolute path. hf:org/name stays, also where this folder has org/name."""
    return str(Path(source).resolve()) if Path(source).exists() else source


class LowRank(nn.Module):
    """W -> W + scale B A. B starts at zero, so the function starts unchanged (section 4.1)."""

    def __init__(
        self, weight: Float[Tensor, "out in_"], config: LoRAConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.scale = config.alpha / config.rank
        a = nn.init.kaiming_uniform_(torch.empty(config.rank, weight.shape[1]), a=5**0.5, generator=generator)
        self.a = nn.Parameter(a.to(weight.device))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], config.rank, device=weight.device))

    def forward(self, weight: Float[Tensor, "out in_"]) -> Float[Tensor, "out in_"]:
        return weight + self.scale * (self.b @ self.a)


def add_lora(model: nn.Module, config: LoRAConfig, *, seed: int) -> None:
    """Freeze everything but the head; matrices of the configured parts of each layer get low-rank changes,
    unless they are frozen already. Raises InputError: there are none."""
    chosen = []
    for name, module in model.named_modules():
        changes = any(f".{part}." in name for part in config.parts)
        if changes and isinstance(module, nn.Linear) and module.weight.requires_grad:
            chosen.append(module)
    if not chosen:
        raise InputError(
            f"training.lora changes the matrices of {' and '.join(config.parts)} in each layer, and the "
            "model has none that is trained: set training.lora=none, or check training.freeze"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name.startswith("head."))
    generator = torch_generator(seed, "lora")
    for module in chosen:
        parametrize.register_parametrization(module, "weight", LowRank(module.weight, config, generator))


def merge_lora(model: nn.Module) -> None:
    """Make parametrized weights ordinary ones of the same value."""
    for module in model.modules():
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
