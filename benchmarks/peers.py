"""How the benchmarks import their peers."""

from __future__ import annotations

from types import ModuleType

import torch


def import_timm() -> ModuleType:
    """timm, also where torchvision's compiled operators do not load.

    timm imports torchvision, of which a ViT uses nothing. A torchvision built for another PyTorch stops at
    operators that it cannot register; declaring their names lets the import pass.
    """
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            declare(name)
    import timm

    return timm


def declare(name: str) -> None:
    """An operator of torchvision by its name alone."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    DECLARED.append(library)  # a library that is collected takes its operators along


DECLARED: list[torch.library.Library] = []
