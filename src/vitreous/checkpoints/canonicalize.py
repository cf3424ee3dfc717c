"""What a format can hold (`FormatLimits`), and what weights can absorb: a model's configuration and weights
in the plainest form that computes the same (canonical), for formats that know fewer variants; and the model
without what the user agrees to drop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from einops import rearrange
from torch import Tensor

from vitreous.checkpoints.weights import attributes_of, load_weights, meta_model, stored_weights
from vitreous.errors import InputError, Param
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.model import Model
from vitreous.models.settings import set_leaf
from vitreous.models.vit import ViT

# Of each field of the configuration, what a format can hold; None for anything. A dot goes into the stem or
# the positions. The first value is what the field becomes when it is dropped. Fields not named are free.
FormatLimits = Mapping[str, Collection[object] | None]

# What most codebases' only ViT is; a format says where it differs.
PLAIN_VIT: dict[str, Collection[object] | None] = {
    "mlp": ("gelu",),
    "norm_eps": (1e-6,),
    "norm": ("pre",),
    "norm_kind": ("layer",),
    "position.where": ("stem",),
    "position.kind": ("learned",),
    "position.shared": (False,),
    "stem.kind": ("patch",),
    "class_token": (True,),
    "registers": (0,),
    "pooling.kind": ("class",),
    "final_norm": ("tokens",),
    "extra_norms": ((),),
    "qk_norm": ("none",),
    "edge": ("refuse",),
    **dict.fromkeys(("stem.norm_before", "stem.norm_after", "position.rotary.class_angles"), (False,)),
    **dict.fromkeys(("position.rotary", "head_dim", "representation_size"), (None,)),
    "position.rotary.register_temperature": (None,),
    **dict.fromkeys(("pooling.heads", "pooling.mlp_dim"), (None,)),
}


def canonical(model: ViT, *, keep: Collection[str]) -> tuple[ViTConfig, dict[str, Tensor]]:
    """Return the same function with one learned table of positions, a convolution as stem, all biases.

    LayerScale goes into the matrices in front of it.

    Args:
        keep: parts that the format knows and that stay as they are: "layer_scale", "qkv_bias", "position".
    """
    config, weights = model.config, stored_weights(model)
    fields: dict[str, object] = {}
    if "position" not in keep and config.position.at_stem:
        weights = {name: w for name, w in weights.items() if not name.startswith("position.")}
        if (table := position_table(model)) is not None:
            weights["position.table"] = table
            fields["position"] = {"kind": "learned", "rotary": config.rotary}
    if config.stem.kind == "patch" and not (config.stem.norm_before or config.stem.norm_after):
        weight = weights["stem.projection.weight"]
        if weight.ndim == 2:
            p, q = config.patch_size
            weights["stem.projection.weight"] = rearrange(weight, "D (p q C) -> D C p q", p=p, q=q)
        fields["stem"] = {"kind": "patch"}
        weights.setdefault("stem.projection.bias", torch.zeros(config.width))
    if not config.qkv_bias and "qkv_bias" not in keep:
        fields["qkv_bias"] = True
        rows = 3 * config.heads * config.resolved_head_dim
        weights |= {f"blocks.{i}.attention.qkv.bias": torch.zeros(rows) for i in range(config.depth)}
    if config.layer_scale is not None and config.norm == "pre" and "layer_scale" not in keep:
        fields["layer_scale"] = None
        for layer in range(config.depth):
            for branch, last in (("attention", "attention.out"), ("mlp", "mlp.contract")):
                gamma = weights.pop(f"blocks.{layer}.{branch}_branch.scale.gamma")
                matrix, bias = f"blocks.{layer}.{last}.weight", f"blocks.{layer}.{last}.bias"
                weights |= {matrix: weights[matrix] * gamma[:, None], bias: weights[bias] * gamma}
    return ViTConfig.checked(config.model_dump(), fields), weights


def position_table(model: ViT) -> Tensor | None:
    """Return the positions at the stem as one table, whatever they are made of; None where they are
    elsewhere."""
    kind = model.config.position.kind
    if kind == "none":
        return torch.zeros(model.config.sequence_length - model.config.registers, model.config.width)
    rows = getattr(model.position, "rows", None)
    return rows().detach().clone() if rows else None


def without_patch_bias(config: ViTConfig, weights: dict[str, Tensor]) -> tuple[ViTConfig, dict[str, Tensor]]:
    """Return the patch projection's bias moved into the positions of the patches."""
    bias, table = weights["stem.projection.bias"], weights["position.table"].clone()
    table[config.num_class_tokens :] += bias
    rest = {name: w for name, w in weights.items() if name != "stem.projection.bias"}
    stem = config.stem.model_copy(update={"bias": False})
    return config.model_copy(update={"stem": stem}), rest | {"position.table": table}


def without_key_bias(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return biases of the keys that are zero. They add the same number to all logits of a query, which the
    softmax does not see; keys that are rotated need theirs."""
    named = {name: bias.clone() for name, bias in weights.items() if name.endswith("attention.qkv.bias")}
    for bias in named.values():
        bias.chunk(3)[1].zero_()
    return weights | named


def with_layer_scale(config: ViTConfig, weights: dict[str, Tensor]) -> tuple[ViTConfig, dict[str, Tensor]]:
    """Return LayerScale of ones where there is none, for a format that always has it."""
    if config.layer_scale is not None:
        return config, weights
    ones: dict[str, Tensor] = {}
    for layer in range(config.depth):
        for branch in ("attention", "mlp"):
            ones[f"blocks.{layer}.{branch}_branch.scale.gamma"] = torch.ones(config.width)
    return config.model_copy(update={"layer_scale": 1.0}), weights | ones


def ratio_for(hidden: int, width: int) -> float:
    """Return the ratio of an MLP's width for code that rounds `width * ratio` down, which may fall short by
    one."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else (hidden + 0.5) / width


def field_value(config: Config, field: str) -> object:
    """Return a field by its dotted name; None where the stem has no such field."""
    value: object = config
    for part in field.split("."):
        value = getattr(value, part, None)
    return value


# Of the small models that `train` makes by default.
OTHERWISE = (
    "; ONNX holds every model (vitreous export RUN --out model.onnx), and a model of the paper's form, which "
    "this format holds, comes from vitreous train DATA --model ViT-Ti/16 or --init with a published encoder"
)


def check_limits(config: ViTConfig | BiTConfig, limits: FormatLimits, format: str) -> None:
    """Raise InputError for a part which the format cannot hold: one that can be left out only where no other
    stands in the way."""
    for field, allowed in sorted(limits.items(), key=lambda row: row[0] in (*DROPPABLE, "num_classes")):
        value = field_value(config, field)
        if allowed is None or value in allowed or (value is None and "." in field):
            continue
        part = "head" if field == "num_classes" else field
        whole = part in ("head", "position.rotary", "position.rotary.periods")
        known = "" if whole else f"={value}, only {' or '.join(str(each) for each in allowed)}"
        hint = f"; leave it out with {Param('drop')} {part}" if part in DROPPABLE else ""
        hint = OTHERWISE if part.startswith("stem") else hint
        raise InputError(f"{format} cannot hold {part}{known}{hint}")


def held_by_format(
    model: Model, format: str, limits: FormatLimits, *, keep: Collection[str] = (), headless: bool = True
) -> tuple[ViTConfig, dict[str, Tensor]]:
    """Return the canonical form of a ViT that a format can hold.

    Args:
        keep: as in `canonical`.
        headless: whether the format has a place for a model without a head.

    Raises:
        InputError: it can not; the part is named.
    """
    if not isinstance(model, ViT):
        raise InputError(f"{format} cannot hold a BiT, only a ViT")
    if model.config.num_classes is None and not headless:
        raise InputError(f"{format} cannot hold a model without a head: its class always has one")
    config, weights = canonical(model, keep=keep)
    check_limits(config, limits, format)
    return config, weights


# Fields whose change takes no weight away, or only those of the part itself.
DROPPABLE = (
    "representation_size",
    "head",
    "mlp",
    "norm_eps",
    "position.rotary.periods",
    "stem.standardization",
    "stem.standardization_eps",
    "stem.norm_eps",
    "standardization",
)


def without_parts(model: Model, drop: Sequence[str], limits: FormatLimits) -> Model:
    """Return the model without the parts in `drop`, which from then on is another model: the head goes
    together with the representation layer that it was trained on. Raises InputError: a part that cannot be
    taken out."""
    if not drop:
        return model
    tree = model.config.model_dump()
    for field in drop:
        if field not in DROPPABLE:
            raise InputError(f"cannot drop {field!r}: known are {', '.join(DROPPABLE)}")
        if field in ("head", "representation_size"):
            tree["num_classes"] = None
            tree |= {"representation_size": None} if field == "representation_size" else {}
        elif (allowed := limits.get(field)) and field_value(model.config, field) not in allowed:
            set_leaf(tree, field, next(iter(allowed)))
    tree = {name: value for name, value in tree.items() if name in type(model.config).model_fields}
    config = model.config.checked(tree, {})
    headless = {"labels": None, "task": None} if config.num_classes is None else {}
    rest: Model = meta_model(config, **attributes_of(model) | headless)
    wanted = stored_weights(rest)
    load_weights(rest, {name: w for name, w in stored_weights(model).items() if name in wanted}, where="drop")
    return rest
