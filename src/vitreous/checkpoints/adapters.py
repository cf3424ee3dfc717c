"""Adapters of PEFT (LoRA, arXiv 2106.09685): a folder with adapter_config.json, whose weights are merged into
those of the model that it names, W + scale B A, where that model is on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from vitreous.checkpoints.download import cached
from vitreous.checkpoints.files import (
    ADAPTER_WEIGHTS,
    model_folder,
    read_checkpoint,
    read_json,
    read_weights,
)
from vitreous.checkpoints.formats.huggingface_families import published_name
from vitreous.checkpoints.source import ADAPTER, CONFIG, File, Source, Statements
from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.checkpoints.weights import listing
from vitreous.errors import InputError
from vitreous.outside import local_path

# Fields of a LoRA that make another function of it.
UNKNOWN_FIELDS = (
    *("use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "layer_replication", "target_parameters"),
    *("trainable_token_indices", "alora_invocation_tokens", "arrow_config", "kasa_config", "megatron_config"),
    *("monteclora_config", "velora_config"),
)
# How its matrices began; other ways change the weights of the model, too.
KNOWN_BEGINNINGS = (None, True, False, "gaussian", "eva", "orthogonal")
WITH_PEFT = "load it with peft, and save the result of merge_and_unload with save_pretrained"
WRAPPERS = re.compile(r"\.(base_layer|modules_to_save)(\.default)?(?=\.)")


class LowRankChange(NamedTuple):
    """The change of one layer: what is added to its weight, and to its bias."""

    down: Entry  # A
    up: Entry  # B
    scale: float
    bias: Entry | None

    def weight(self, before: Entry) -> Tensor:
        down, up = self.down.read().float(), self.up.read().float()
        change = up.flatten(1) @ down.flatten(1)  # of a convolution B is 1x1
        return before.read().float() + self.scale * change.view(before.shape)

    def shape(self) -> tuple[int, ...]:
        return (self.up.shape[0], *self.down.shape[1:])


def open_adapter(path: Path) -> File:
    """Return the model that an adapter names, with the adapter merged into it. Raises InputError: another
    kind of adapter, or its model is not on this machine, or has no place for it."""
    folder = path if path.is_dir() else path.parent
    described = read_json(folder / ADAPTER)
    check_description(folder, described)
    base = base_of(folder, described)
    opened = read_checkpoint(model_folder(base))
    source = opened.source()
    file = next(folder / name for name in ADAPTER_WEIGHTS if (folder / name).is_file())
    changes, instead = changes_of(folder, described, next(iter(read_weights(file).parts.values())))
    merged = merge_adapter(source, changes, instead)
    kind = Statements(described, folder).part("auto_mapping").get("base_model_class")
    documents = dict(opened.documents)
    if isinstance(kind, str) and CONFIG in documents:
        documents[CONFIG] = {**documents[CONFIG], "architectures": [kind]}
    where = f"{folder} (an adapter of {base})"
    return File(where, {"": merged}, documents, place=where)


def check_description(folder: Path, described: Mapping[str, object]) -> None:
    kind, base = described.get("peft_type"), described.get("base_model_name_or_path")
    if kind != "LORA":
        raise InputError(
            f"{folder} is a PEFT adapter ({kind}) for {base or 'a model that it does not name'}: only "
            f"LoRA is merged here; {WITH_PEFT}"
        )
    beginning = described.get("init_lora_weights")
    unsupported = [f"{name}={described[name]!r}" for name in UNKNOWN_FIELDS if described.get(name)]
    if beginning not in KNOWN_BEGINNINGS:
        unsupported.append(f"init_lora_weights={beginning!r}")
    if unsupported:
        raise InputError(
            f"{folder} is a LoRA adapter with {listing(unsupported)}, which is not merged here: {WITH_PEFT}"
        )


def base_of(folder: Path, described: Mapping[str, object]) -> Path:
    """Return where the model of an adapter is. Raises InputError: not on this machine."""
    name = described.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise InputError(
            f"{folder} is a PEFT adapter that does not name its model: merge it with peft "
            f"(PeftModel.from_pretrained(model, {str(folder)!r}).merge_and_unload()), and load the module"
        )
    for path in (local_path(name), folder / name):
        if path.exists():
            return path
    if found := cached(name, described.get("revision")):
        return found
    hub = re.fullmatch(r"[\w.-]+/[\w.-]+", name)
    get = f"load that model once (vitreous.load('hf:{name}')), and then this" if hub else "put it there"
    raise InputError(
        f"{folder} is a PEFT adapter for {name}, which is not on this machine: {get}; or "
        "merge it with peft (merge_and_unload), and load the merged module"
    )


def changes_of(
    folder: Path, described: Mapping[str, object], tensors: Tensors
) -> tuple[dict[str, LowRankChange], dict[str, Entry]]:
    """Return by the name of a layer what is added to it, and by the name of a weight what replaces it (heads,
    biases)."""
    low_rank: dict[str, dict[str, Entry]] = {}
    instead: dict[str, Entry] = {}
    for name, entry in tensors.items():
        name = name.removeprefix("base_model.model.").removeprefix("base_model.")
        if match := re.fullmatch(r"(.*)\.lora_(A|B)(?:\.default)?\.(weight|bias)", name):
            low_rank.setdefault(match[1], {})[f"{match[2]}.{match[3]}"] = entry
        elif ".original_module." in name:  # the head before, which another replaces
            continue
        elif ".lora_" in name:
            raise InputError(f"{folder}: the adapter has an unknown tensor {name}: merge it with peft")
        else:
            instead[WRAPPERS.sub("", name)] = entry
    changes = {}
    for layer, parts in low_rank.items():
        if not {"A.weight", "B.weight"} <= parts.keys():
            raise InputError(f"{folder}: the adapter has only one of the two matrices of {layer}")
        down, up = parts["A.weight"], parts["B.weight"]
        if len(down.shape) < 2 or up.shape[1:] != (down.shape[0], *(1 for _ in down.shape[2:])):
            raise InputError(f"{folder}: the two matrices of {layer} do not fit: {down.shape} and {up.shape}")
        rank = down.shape[0]
        alpha = pattern_of(described.get("alpha_pattern"), layer, described.get("lora_alpha", 8))
        if not isinstance(alpha, int | float) or not rank:
            raise InputError(f"{folder}: lora_alpha={alpha!r} and a rank of {rank} are not understood")
        scale = alpha / (rank**0.5 if described.get("use_rslora") else rank)
        changes[layer] = LowRankChange(down, up, scale, parts.get("B.bias"))
    return changes, instead


def pattern_of(patterns: object, layer: str, usual: object) -> object:
    """Return the value of the first pattern that the end of a layer's name matches, as PEFT chooses it.
    Raises InputError: a pattern that is more than names."""
    for pattern, value in patterns.items() if isinstance(patterns, dict) else ():
        names = str(pattern).removeprefix("^").replace("\\.", ".")
        if not re.fullmatch(r"[\w.|-]+", names):
            raise InputError(f"the adapter's alpha_pattern {pattern!r} is not understood: merge it with peft")
        if any(f".{layer}".endswith(f".{each}") for each in names.split("|")):
            return value
    return usual


def merge_adapter(
    source: Source, changes: Mapping[str, LowRankChange], instead: Mapping[str, Entry]
) -> Tensors:
    """Return the weights of the model with the adapter's. Raises InputError: it has no place for some."""
    entries = dict(source.tensors)
    wanted = {layer: place_of(f"{layer}.weight", entries) for layer in changes}
    missing_layers: list[str] = []
    others: list[str] = []  # of another shape
    for layer, place in wanted.items():
        if place is None:
            missing_layers.append(layer)
        elif entries[place].shape != changes[layer].shape():
            others.append(layer)
    if lost := missing_layers + others:
        raise InputError(f"{source.where} has no layers that this adapter changes: {listing(lost)}")
    missing = ""  # before the names of a model without a head, to which the adapter adds one
    for layer, place in wanted.items():
        assert place
        before = entries[place]
        entries[place] = Entry(before.shape, partial(changes[layer].weight, before))
        first = layer.partition(".")[0]
        if not f".{place}".count(f".{first}."):
            missing = f"{first}."
        if (more := changes[layer].bias) is not None:
            bias = place.removesuffix("weight") + "bias"
            if bias not in entries or entries[bias].shape != more.shape:
                raise InputError(
                    f"the adapter changes the bias of {layer}: {source.where} has none that fits"
                )
            entries[bias] = Entry(
                more.shape, partial(add_low_rank, entries[bias], more, changes[layer].scale)
            )
    for name, entry in instead.items():
        entries[place_of(name, entries) or name] = entry
    heads = set(instead)
    return {name if name in heads else f"{missing}{name}": entry for name, entry in entries.items()}


def add_low_rank(before: Entry, more: Entry, scale: float) -> Tensor:
    return before.read().float() + scale * more.read().float()


def place_of(name: str, entries: Mapping[str, Entry]) -> str | None:
    """Return the name in a file of a weight that the adapter's model has in memory: with another prefix or
    none, and as releases of transformers before 5 call it."""
    inner = name.partition(".")[2]
    first = name.removesuffix(inner)
    for each in (name, first + published_name(inner), published_name(name), inner, published_name(inner)):
        if each in entries:
            return each
        found = [known for known in entries if known.endswith(f".{each}")]
        if len(found) == 1 and each not in (inner, published_name(inner)):
            return found[0]
    return None
