"""The model that a run starts from: fresh weights, or a checkpoint made to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.errors import InputError, nearest
from vitreous.models.initialization import init_weights
from vitreous.models.names import Model, build_model
from vitreous.models.segmenter import Segmenter
from vitreous.models.settings import merged
from vitreous.rng import torch_generator
from vitreous.training.config import RunConfig
from vitreous.training.run import check_finished
from vitreous.training.settings import AnyRun, configure


def starting_model(config: RunConfig, labels: Sequence[str]) -> Model:
    """Build the model of `config`, its weights drawn from `config.seed` or taken from `config.init`."""
    model = build_model(
        config.model, preprocessing=config.preprocessing, labels=list(labels), seed=config.seed
    )
    if config.training.initialization != "google":
        init_weights(model, torch_generator(config.seed, "weights"), config.training.initialization)
    if config.init:
        take_weights(model, checkpoint(config.init, image_size=config.model.image_size), config.init)
    freeze(model, config.training.freeze)
    if config.training.loss == "sigmoid":
        model.task = "multilabel"
    return model


def checkpoint(source: str, **overrides: Any) -> Model:
    """The model in a checkpoint of any format, or in a run."""
    from vitreous.checkpoints import load

    check_finished(Path(source))
    return load(source, **overrides)


def fitted_to_checkpoint(
    config: AnyRun, source: str, settings: Mapping[str, Any], imposed: Sequence[str] = ()
) -> AnyRun:
    """`config` with the architecture and preprocessing of a checkpoint, so that its weights fit.

    What `settings` says about the model is kept, and of the configuration's own model the fields `imposed`.
    """
    loaded = checkpoint(source)
    tree = loaded.config.model_dump()
    tree |= {"num_classes": config.model.num_classes, **without_representation(tree)}
    wanted = {name: getattr(config.model, name) for name in imposed} | settings.get("model", {})
    preprocessing = loaded.preprocessing.model_dump()
    if "image_size" in wanted:
        preprocessing.pop("size")
    return configure(
        config.model_copy(update={"init": source}),
        {
            "model": merged(tree, wanted),
            "preprocessing": merged(preprocessing, settings.get("preprocessing", {})),
        },
    )


def without_representation(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tuning puts one linear layer on the pooled token; the pre-training head's hidden layer goes
    (paper, section 3.1)."""
    return {"representation_size": None} if "representation_size" in tree else {}


@torch.no_grad()
def take_weights(model: Model, loaded: Model, source: str) -> None:
    """Every weight of `loaded` that `model` has. The head is taken only for the same classes; otherwise it
    stays as it was drawn: zero.

    Raises:
        InputError: the rest does not fit, with the names that are missing or of another shape.
    """
    mine, theirs = dict(model.named_parameters()), dict(loaded.named_parameters())
    if isinstance(model, Segmenter) and not isinstance(loaded, Segmenter):
        theirs = {f"encoder.{name}": weight for name, weight in theirs.items()}
    elif isinstance(loaded, Segmenter) and not isinstance(model, Segmenter):
        theirs = {name.removeprefix("encoder."): weight for name, weight in theirs.items()}
    same_classes = loaded.labels is not None and loaded.labels == model.labels
    problems = []
    for name, parameter in mine.items():
        given = theirs.get(name)
        fits = given is not None and given.shape == parameter.shape
        if name.startswith("head."):
            if fits and same_classes and given is not None:
                parameter.copy_(given)
        elif fits and given is not None:
            parameter.copy_(given)
        else:
            problems.append(name)
    if problems:
        raise InputError(
            f"{source} does not fit the model: {', '.join(problems[:5])} "
            f"{'and more ' if len(problems) > 5 else ''}missing or of another shape; set no model.* that "
            "changes the architecture together with --init"
        )


def freeze(model: Model, parts: Sequence[str]) -> None:
    """Parameters of the named parts learn nothing. "backbone" is everything but the head.

    Raises:
        InputError: the model has no such part.
    """
    known = {name for name, _ in model.named_modules() if name} | {n for n, _ in model.named_parameters()}
    for part in parts:
        if isinstance(model, Segmenter) and f"encoder.{part}" in known:
            part = f"encoder.{part}"
        if part != "backbone" and part not in known:
            raise InputError(f"training.freeze: unknown part {part!r}: {nearest(part, ['backbone', *known])}")
        for name, parameter in model.named_parameters():
            inside = name == part or name.startswith(part + ".")
            if inside or (part == "backbone" and not name.startswith("head.")):
                parameter.requires_grad_(False)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def absolute_source(source: str) -> str:
    """DATA with its path made absolute, so that config.toml runs from anywhere."""
    kind, colon, path = source.partition(":")
    if Path(source).exists():
        return str(Path(source).resolve())
    if colon and Path(path).exists():
        return f"{kind}:{Path(path).resolve()}"
    return source
