"""What is said of a model of timm, as timm takes it: the defaults of the architecture, under what config.json
says of its arguments and its images; or what open_clip, transformers or a training program says instead. The
defaults are in a table of timm's registry that comes with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypedDict

from vitreous.checkpoints.formats.open_clip import open_clip_facts
from vitreous.checkpoints.source import (
    CONFIG,
    OPEN_CLIP_CONFIG,
    Documents,
    Facts,
    File,
    Source,
    Statements,
)
from vitreous.checkpoints.training_facts import plain_facts, training_statements
from vitreous.errors import InputError, nearest
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD

# Of timm's PretrainedCfg, for what a description of images leaves out.
IMAGES = {
    "interpolation": "bicubic",
    "crop_pct": 0.875,
    "crop_mode": "center",
    "mean": list(IMAGENET_MEAN),
    "std": list(IMAGENET_STD),
}
RESIZE_MODES = {"shortest": "center", "squash": "squash", "longest": "border"}  # open_clip's: timm's
# Arguments that no weight shows, and the width, for which an architecture has a name.
UNSHOWN = ("num_heads", "act_layer", "no_embed_class", "pool_include_prefix", "embed_dim")
OF_A_FLAG = {True: "avg", False: "token"}  # MAE's global_pool
POOLINGS = {"avg": "mean", "token": "class", "max": "max", "avgmax": "mean+max"}  # timm's: ours


class TimmRegistry(TypedDict):
    """The table.

    Attributes:
        timm: the release that it is of.
        read: of each architecture what no weight shows.
        refused: by a part that is not supported, the architectures that have it.
        preprocessing: of tags.
    """

    timm: str
    read: dict[str, dict[str, object]]
    refused: dict[str, list[str]]
    preprocessing: list[dict[str, object]]


@cache
def registry() -> TimmRegistry:
    """Return what timm's registry says of its Vision Transformers."""
    table: TimmRegistry = json.loads(Path(__file__).with_name("timm_architectures.json").read_bytes())
    return table


def known_architecture(config: Mapping[str, object], where: str) -> str:
    """Return the architecture that a config.json names, without its tag; empty where it names none. Raises
    InputError: one that is not supported, or not a Vision Transformer."""
    name, table = str(config.get("architecture", "")).split(".")[0], registry()
    for part, refused in table["refused"].items():
        if name in refused:
            raise InputError(f"{where}: {name} of timm has a part that is not supported: {part}")
    if name and name not in table["read"]:
        hint = nearest(name, list(table["read"]))
        like = f": {hint}" if hint.startswith("did you mean") else ""
        raise InputError(
            f"{where}: {name} is not among the Vision Transformers of timm {table['timm']} that are known "
            f"here{like}"
        )
    return name


def tags_of(architecture: str) -> dict[str, int]:
    """Return the tags of an architecture, each with the number of its preprocessing in the table; none of one
    that is not supported."""
    tags = registry()["read"].get(architecture, {}).get("tags", {})
    assert isinstance(tags, dict)  # as the table of the package has them
    return tags


def description_of(name: str) -> dict[str, object]:
    """Return the config.json of a published model of timm, or of an architecture, by its name. Raises
    InputError: the registry has no such architecture or tag."""
    _, _, tag = name.partition(".")
    architecture = known_architecture({"architecture": name}, f"like='timm:{name}'")
    tags = tags_of(architecture)
    if tag and tags and tag not in tags:
        raise InputError(f"like='timm:{name}': {architecture} has no tag {tag!r}: {nearest(tag, list(tags))}")
    described: dict[str, object] = {"architecture": architecture}
    if tag in tags:
        described["pretrained_cfg"] = registry()["preprocessing"][tags[tag]]
    return described


def check_architecture(file: File, known: bool) -> None:
    """Raise InputError for an architecture of timm that is not read, by its name."""
    if known and "pretrained_cfg" in file.description:  # as timm's own config.json has
        known_architecture(file.description, file.where)


def timm_facts(documents: Documents, source: Source) -> Facts:
    """Return what is said of a model of timm. Raises InputError: its architecture is not supported."""
    config = description(documents, source)
    training = plain_facts(documents, source)
    where = source.where
    name = known_architecture(config, where)
    images = Statements(config).part("pretrained_cfg") if "pretrained_cfg" in config else Statements(config)
    args = Statements(config, where).part("model_args")
    row = registry()["read"].get(name, {})
    model = {**row, "global_pool": config.get("global_pool", images.get("global_pool")), **args}
    if model["global_pool"] is None and "global_pool" in row:
        model["global_pool"] = row["global_pool"]
    labels = config.get("label_names", images.get("label_names", images.get("labels")))
    look = {key: images[key] for key in (*IMAGES, "input_size") if images.get(key) is not None}
    if look.get("interpolation") == "random":
        look["interpolation"] = "bicubic"
    return replace(
        training,
        name=name,
        # A null of model_args undoes what the architecture has, as it does in timm.
        model=Statements({key: value for key, value in model.items() if value is not None}, where),
        images=Statements({**IMAGES, **look} if look.keys() & IMAGES else look, where),
        arguments=frozenset(args),
        labels=[str(label) for label in labels] if isinstance(labels, list) else None,
        fields={**training.fields, **pooling_of_training(documents)},
        conflicts=conflicts_of(documents.get(CONFIG, {}), row),
    )


def conflicts_of(config: Mapping[str, object], row: Mapping[str, object]) -> tuple[str, ...]:
    """Return where `timm.create_model("local-dir:...")` makes another model of a folder than its author had:
    it does not look for the pooling beside model_args."""
    pooling, args, cfg = (config.get(name) for name in ("global_pool", "model_args", "pretrained_cfg"))
    if not (pooling and isinstance(args, Mapping) and isinstance(cfg, Mapping)) or "global_pool" in args:
        return ()
    theirs = cfg.get("global_pool") or row.get("global_pool") or "token"
    if not args or pooling == theirs:
        return ()
    return (
        f"global_pool={pooling!r} next to model_args is used, as in its author's model; timm.create_model "
        f"does not read it there and pools by {theirs!r}",
    )


def description(documents: Documents, source: Source) -> Mapping[str, object]:
    """Return the config.json of timm, or what one would say: of a tower that open_clip_config.json names, of
    one inside a model of transformers, or of the architecture that a training program says."""
    config = documents.get(CONFIG, {})
    if "architecture" in config or "pretrained_cfg" in config:
        return config
    for tower in config.values():  # timm_wrapper of transformers
        if isinstance(tower, Mapping) and isinstance(tower.get("architecture"), str):
            return tower
    if OPEN_CLIP_CONFIG in documents:
        return by_open_clip(documents, source)
    return by_training(documents, source) or config


def by_open_clip(documents: Documents, source: Source) -> Mapping[str, object]:
    """Return how timm would describe the tower that an open_clip_config.json names; {} where it names none.
    Raises InputError: it pools in a way that is not supported."""
    facts = open_clip_facts(documents, source)
    name, pool = facts.model.get("timm_model_name"), facts.model.get("timm_pool")
    if not isinstance(name, str):
        return {}
    if pool in ("abs_attn", "rot_attn"):
        raise InputError(f"{source.where}: timm_pool={pool!r} of open_clip is not supported")
    config: dict[str, object] = {"architecture": name, "global_pool": pool or None}
    if (size := facts.model.get("image_size")) is not None:
        config["model_args"] = {"img_size": size}
    look = facts.images
    config["pretrained_cfg"] = {
        "mean": look["mean"],
        "std": look["std"],
        "interpolation": look["interpolation"],
        "crop_pct": 1.0,
        "crop_mode": RESIZE_MODES.get(str(look["resize_mode"])),
    }
    return config


def by_training(documents: Documents, source: Source) -> Mapping[str, object]:
    """Return how timm would describe the model whose architecture a training program names, where it is known
    and has the width of the weights; {} otherwise. timm's train.py says more of it in `args`."""
    training = training_statements(documents)
    name = next((name for name in training.names if name.split(".")[0] in registry()["read"]), None)
    if name is None:
        return {}
    said, architecture, width = training.values, name.split(".")[0], width_of(source)
    if width not in (None, said.get("embed_dim"), registry()["read"][architecture]["embed_dim"]):
        return {}
    tags = tags_of(architecture)
    tag = name.partition(".")[2] or next(iter(tags), "")
    look = dict(registry()["preprocessing"][tags[tag]]) if tag in tags else {}
    look |= {key: said[key] for key in IMAGES if said.get(key) is not None}
    args = {key: said[key] for key in UNSHOWN if said.get(key) is not None}
    pool = said.get("gp", said.get("global_pool"))
    pool = OF_A_FLAG.get(pool, pool) if isinstance(pool, bool) else pool  # of MAE
    return {
        "architecture": name,
        "global_pool": pool or None,
        "model_args": args,
        "pretrained_cfg": look,
    }


def width_of(source: Source) -> int | None:
    """Return the width that the weights show; None where they show none."""
    norms = (entry for name, entry in source.tensors.items() if name.endswith("blocks.0.norm1.weight"))
    return next((entry.shape[0] for entry in norms if entry.shape), None)


def pooling_of_training(documents: Documents) -> dict[str, object]:
    """Return the pooling that a training program says, in our words."""
    said = training_statements(documents).values
    pool = said.get("gp", said.get("global_pool"))
    pool = OF_A_FLAG[pool] if isinstance(pool, bool) else pool
    return {"pooling": POOLINGS[pool]} if isinstance(pool, str) and pool in POOLINGS else {}
