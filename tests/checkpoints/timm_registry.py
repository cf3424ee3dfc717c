"""What timm's registry says of its Vision Transformers, as the package's table of their names.

    python tests/checkpoints/timm_registry.py

writes `src/vitreous/checkpoints/formats/timm_architectures.json` again, after a new release of timm: what no
weight shows of each architecture, the preprocessing of each published tag, and what is refused and why.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from vitreous.checkpoints.live import ROPES, eva_arguments

TABLE = Path(__file__).parents[2] / "src/vitreous/checkpoints/formats/timm_architectures.json"
MODULES = (
    "vision_transformer",
    "deit",
    "vision_transformer_hybrid",
    "eva",
    "beit",
    "vision_transformer_relpos",
    "vision_transformer_sam",
    "naflexvit",
    "cait",
)
ACTIVATIONS = {"GELU": "gelu", "QuickGELU": "quick_gelu", "GELUTanh": "gelu_tanh", "SiLU": "silu"}
# By the name of a class of timm: the part of it that is not supported.
UNKNOWN = {
    "Cait": "class attention",
    "VisionTransformerRelPos": "relative positions",
    "VisionTransformerSAM": "windowed attention",
    "DiffParallelScalingBlock": "differential attention",
    "DiffAttention": "differential attention",
    "ConvStem": "a stem of convolutions",
    "FeatureListNet": "a ResNet with BatchNorm",
    "AttentionPoolPrr": "attention pooling of several queries",
}


class StandIn(ModuleType):
    """A module any name of which is a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {mode: mode.lower() for mode in MODES}))
        return getattr(self, name)


MODES = ("NEAREST", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")


class Finder:
    """Finds a stand-in for torchvision, which timm imports and its Vision Transformers do not use."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, Finder(), is_package=True) if name.split(".")[0] == "torchvision" else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.__path__ = []
        module.__version__ = "0"  # type: ignore[attr-defined]


OPERATORS: list[torch.library.Library] = []  # kept: they go away with their library


def import_torchvision() -> ModuleType:
    """torchvision; where its compiled operators are of another PyTorch without them: its transforms and its
    Vision Transformers have no use for them, but it registers two while it is imported."""
    try:
        import torchvision
    except RuntimeError:
        forget("torchvision")
        OPERATORS.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            OPERATORS[0].define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision
    return torchvision


def import_timm() -> ModuleType:
    """timm, with a stand-in for torchvision where that is not installed, and only while timm is imported."""
    try:
        import_torchvision()
        import timm
    except (ImportError, RuntimeError):
        forget("timm", "torchvision")
        sys.meta_path.append(Finder)  # type: ignore[arg-type]
        try:
            import timm
        finally:
            sys.meta_path.remove(Finder)  # type: ignore[arg-type]
            forget("torchvision")
    return timm


def forget(*packages: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        del sys.modules[name]


def unknown_part(model: Any) -> str | None:
    """The part of a model that is not supported; None if there is none."""
    block = model.blocks[0]
    rope = type(getattr(model, "rope", None)).__name__
    if rope not in ("NoneType", *ROPES):
        return "rotary positions of another kind"
    if any(getattr(each.attn, "num_kv_groups", 1) > 1 for each in model.blocks if hasattr(each, "attn")):
        return "grouped-query attention"
    backbone = getattr(getattr(model, "patch_embed", None), "backbone", None)
    parts = (model, block, getattr(block, "attn", None), getattr(block, "norm1", None), backbone)
    for part in (*parts, getattr(model, "attn_pool", None)):
        if found := UNKNOWN.get(type(part).__name__):
            return found
    if (getattr(block, "gamma_1", None) is None) != (getattr(block, "gamma_2", None) is None):
        return "LayerScale of the attention alone"
    if model.global_pool not in ("", "token", "avg", "map", "max", "avgmax"):
        return f"pooling {model.global_pool!r}"
    return None


def facts(model: Any) -> dict[str, Any]:
    """What no weight of the model shows."""
    block = model.blocks[0]
    modules = [*block.modules()]
    found = {
        "num_heads": next(each.num_heads for each in modules if hasattr(each, "num_heads")),
        "global_pool": model.global_pool,
        "embed_dim": model.embed_dim,
        "norm_eps": next(
            each.eps for each in modules if "norm" in type(each).__name__.lower() and hasattr(each, "eps")
        ),
    }
    if embeds := getattr(model, "embeds", None):
        found |= naflex_facts(embeds)
    else:
        found["default_size"] = list(model.patch_embed.img_size)
    mlp = next((each for each in modules if hasattr(each, "fc2")), block)
    activation = ACTIVATIONS[type(mlp.mlp_act if mlp is block else mlp.act).__name__]
    if mlp is block or type(mlp).__name__ == "Mlp":
        found["act_layer"] = activation
    for name in ("no_embed_class", "pool_include_prefix"):
        if getattr(model, name, False):
            found[name] = True
    return found | eva_arguments(model)


# Of NaFlexVit's positions, where they are not as usual.
USUAL = {
    "pos_embed_interp_mode": "bicubic",
    "pos_embed_ar_preserving": False,
    "pos_embed_antialias": True,
    "pos_embed_align_corners": False,
}


def naflex_facts(embeds: Any) -> dict[str, Any]:
    """What no weight of NaFlexVit's patches and positions shows."""
    found = {"patch_size": list(embeds.patch_size), "no_embed_class": True}
    if embeds.pos_embed_type != "learned":
        found["pos_embed"] = embeds.pos_embed_type
    return found | {name: v for name, usual in USUAL.items() if (v := getattr(embeds, name)) != usual}


def preprocessing_of(cfg: Any) -> dict[str, Any]:
    names = ("input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std")
    return {name: list(v) if isinstance(v := getattr(cfg, name), tuple) else v for name in names}


def architectures(timm: Any) -> Iterator[tuple[str, Any]]:
    """Every architecture, made without memory."""
    for module in MODULES:
        for name in timm.list_models(module=module):
            with torch.device("meta"):
                yield name, timm.create_model(name)


def registry(timm: Any) -> dict[str, Any]:
    """The whole table."""
    from timm.models import get_pretrained_cfg

    table: dict[str, Any] = {"timm": timm.__version__, "read": {}, "refused": {}, "preprocessing": []}
    looks = table["preprocessing"]
    tags: dict[str, list[str]] = {}
    for module in MODULES:
        for full in timm.list_models(module=module, pretrained=True):
            name, _, tag = full.partition(".")
            tags.setdefault(name, []).append(tag)
    for name, model in architectures(timm):
        if part := unknown_part(model):
            table["refused"].setdefault(part, []).append(name)
            continue
        table["read"][name] = row = facts(model) | {"tags": {}}
        for tag in tags.get(name, []):
            look = preprocessing_of(get_pretrained_cfg(f"{name}.{tag}"))
            if look not in looks:
                looks.append(look)
            row["tags"][tag] = looks.index(look)
    return table


def as_text(table: dict[str, Any]) -> str:
    """JSON with one line for each architecture."""
    parts = []
    for key, value in table.items():
        if isinstance(value, str):
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
            continue
        pairs = value.items() if isinstance(value, dict) else ((None, each) for each in value)
        lines = [f" {f'{json.dumps(name)}: ' if name else ''}{json.dumps(each)}" for name, each in pairs]
        first, last = "{}" if isinstance(value, dict) else "[]"
        parts.append(f"{json.dumps(key)}: {first}\n" + ",\n".join(lines) + f"\n{last}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(as_text(registry(import_timm())), encoding="utf-8")
