"""How the benchmarks import their peers."""

from __future__ import annotations

from types import ModuleType

import torch


def import_timm() -> ModuleType:
    """timm, which imports torchvision."""
    declare_all()
    import timm

    return timm


def import_torchvision() -> ModuleType | None:
    """torchvision, if it is installed."""
    declare_all()
    try:
        import torchvision
    except ImportError:
        return None
    return torchvision


def declare_all() -> None:
    """A torchvision built for another PyTorch stops at operators that it cannot register, of which neither
    ViTs nor the transforms use any; declaring their names lets the import pass."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            declare(name)


def declare(name: str) -> None:
    """An operator of torchvision by its name alone."""
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    operator = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    library.define(operator)  # type: ignore[no-untyped-call]
    DECLARED.append(library)  # a library that is collected takes its operators along


DECLARED: list[torch.library.Library] = []
