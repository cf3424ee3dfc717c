"""The models that each checkpoint format is made for."""

from collections.abc import Mapping
from typing import Any

from vitreous.checkpoints.formats.dinov3 import ROTARY
from vitreous.checkpoints.formats.state_dicts import FRANKZVIT_FIELDS
from vitreous.models.names import VIT_5

# Of each format the fields of a model that it is made for, where they are not those of the paper's.
TYPICAL: dict[str, Mapping[str, Any]] = {
    "aimv2": {
        "norm_kind": "rms",
        "qkv_bias": False,
        "class_token": False,
        "pooling": "mean",
        "mlp": "swiglu",
        "num_classes": None,
        "stem": {"kind": "patch", "form": "linear", "norm_after": True},
    },
    "dinov2": {"num_classes": None},
    "dinov3": {"norm_eps": 1e-5, "num_classes": None, "position": {"kind": "rotary-2d", "rotary": ROTARY}},
    "frankzvit": FRANKZVIT_FIELDS,
    "google": {"mlp": "gelu_tanh"},
    "open-clip": {"norm_eps": 1e-5, "extra_norms": ("tokens",)},
    "vit-5": VIT_5,
    "vit-pytorch": {
        "norm_eps": 1e-5,
        "qkv_bias": False,
        "patch_size": (8, 8),
        "stem": {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True},
    },
}
