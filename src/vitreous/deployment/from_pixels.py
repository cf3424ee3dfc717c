"""A model that takes pixels: resizing and normalizing as products, so that a file holds the preprocessing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.with_encoder import WithEncoder

SUPPORT = {"bilinear": 1.0, "bicubic": 2.0}  # of Pillow's filters, in pixels
FIXED = 2.0**22  # Pillow's weights are multiples of 1 / FIXED
Node = TypeVar("Node")  # of a graph


class FromPixels(nn.Module):
    """A model with its preprocessing inside: from images of any one size to probabilities.

    Resizing is what Pillow (13) does: a weighted mean of columns, rounded to bytes, then one of rows; or the
    other way round where that is less work. Each is a product with a matrix of weights that is computed from
    the size of the image. Raises InputError: the model's images are resized in a way that is not supported.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        how: Preprocessing = model.preprocessing
        if how.resize == "fit" or how.interpolation not in SUPPORT or isinstance(model, WithEncoder):
            raise InputError(
                f"`with_preprocessing` cannot express {how.resize} and {how.interpolation}: it can crop and "
                "squash, bilinear and bicubic, for classifiers"
            )
        if model.task not in ("classification", "multilabel") or model.config.num_classes is None:
            raise InputError(
                "`with_preprocessing` writes a program that gives probabilities, and the model has none: "
                f"its task is {model.task}, with {model.config.num_classes or 'no'} classes"
            )
        self.model, self.how = model, how
        factor, shift = how.factor_and_shift()
        self.register_buffer("factor", factor)
        self.register_buffer("shift", shift)

    def forward(self, pixels: UInt8[Tensor, "B H W C"]) -> tuple[Tensor]:
        tall, wide = pixels.shape[1:3]
        sizes = [torch.scalar_tensor(1.0, dtype=torch.float64) * each for each in (tall, wide)]
        least = [float(each) for each in self.how.enlarged]
        scales = [target / size for target, size in zip(least, sizes, strict=True)]
        if self.how.resize == "crop":  # the longer side is rounded down
            scale = torch.maximum(*scales)
            targets = [
                torch.clamp_min(torch.floor(size * scale + 1e-6), low)
                for size, low in zip(sizes, least, strict=True)
            ]
        else:
            targets = [torch.full_like(size, low) for size, low in zip(sizes, least, strict=True)]
        down, across = (
            self.weights(count, size, target, kept)
            for count, size, target, kept in zip((tall, wide), sizes, targets, self.how.size, strict=True)
        )
        images = pixels.permute(0, 3, 1, 2).double()  # of 53 bits: exactly what Pillow counts
        across = across.transpose(0, 1)
        columns_first = as_bytes(down @ as_bytes(images @ across))
        rows_first = as_bytes(as_bytes(down @ images) @ across)
        lost = [size - target for size, target in zip(sizes, targets, strict=True)]
        images = torch.where(lost[0] > torch.clamp_min(2 * lost[1], 0.0), rows_first, columns_first)
        factor, shift = self.get_buffer("factor"), self.get_buffer("shift")
        logits = self.model(images.float() * factor + shift)
        return (logits.sigmoid() if self.model.task == "multilabel" else logits.softmax(dim=-1),)

    def weights(self, count: Any, size: Tensor, target: Tensor, kept: int) -> Float[Tensor, "kept count"]:
        """The weight of each of `count` lines in each of the `kept` lines in the middle of `target`."""
        cut = (target - kept) / 2
        start = torch.floor(cut) if self.how.crop_start == "floored" else torch.round(cut)
        step = size / target
        wide = torch.clamp_min(step, 1.0)
        centers = (torch.arange(kept, dtype=torch.float64) + start + 0.5) * step
        support = SUPPORT[self.how.interpolation] * wide
        first = torch.clamp_min(torch.floor(centers - support + 0.5), 0.0)[:, None]
        last = torch.minimum(torch.floor(centers + support + 0.5), size)[:, None]
        lines = torch.arange(count, dtype=torch.float64)[None]
        distance = torch.abs(lines - centers[:, None] + 0.5) / wide
        values = FILTERS[self.how.interpolation](distance) * ((lines >= first) & (lines < last))
        shares = values / values.sum(dim=1, keepdim=True)
        return torch.floor(shares * FIXED + 0.5) / FIXED


def preparing_nodes(graph: Any) -> list[str]:
    """Return the names of the nodes of an ONNX graph that prepare the images, in float64: all that the first
    float32 numbers are computed from."""
    return nodes_before(graph, next(node for node in graph.node if is_float32(node)))


def exact_nodes(graph: Any, task: str | None, *, prepares: bool) -> list[str]:
    """Return the names of the nodes of an ONNX graph that stay in float32 where products are in int8: those
    that prepare the images, where the graph has them, or the head of a regression."""
    return preparing_nodes(graph) if prepares else head_nodes(graph, task)


def exact_operations(graph: Any, task: str | None, *, prepares: bool) -> list[str]:
    """Return what `exact_nodes` does, of an OpenVINO graph."""
    return preparing_operations(graph) if prepares else head_operations(graph, task)


def head_nodes(graph: Any, task: str | None) -> list[str]:
    """Return the names of the nodes of an ONNX graph that compute numbers from features: the head of a
    regression, which gives them in the unit of the labels, of which int8 has two digits."""
    if task != "regression":
        return []
    makers = {name: node for node in graph.node for name in node.output}
    logits, features = (nodes_before(graph, makers[each.name]) for each in graph.output)
    return [name for name in logits if name not in features]


def nodes_before(graph: Any, node: Any) -> list[str]:
    makers = {name: node for node in graph.node for name in node.output}
    return all_before(
        node,
        lambda node: [makers[name] for name in node.input if name in makers],
        lambda node: str(node.name),
    )


def preparing_operations(graph: Any) -> list[str]:
    """Return the names of the operations of an OpenVINO graph that prepare the images."""
    return operations_before(next(each for each in graph.get_ordered_ops() if is_float32_operation(each)))


def head_operations(graph: Any, task: str | None) -> list[str]:
    """Return what `head_nodes` does, of an OpenVINO graph."""
    if task != "regression":
        return []
    logits, features = (operations_before(each.get_node()) for each in graph.outputs)
    return [name for name in logits if name not in features]


def operations_before(operation: Any) -> list[str]:
    return all_before(
        operation,
        lambda each: [value.get_node() for value in each.input_values()],
        lambda each: str(each.get_friendly_name()),
    )


def all_before(node: Node, inputs: Callable[[Node], list[Node]], name: Callable[[Node], str]) -> list[str]:
    """Return the names of a node of a graph, and of all that it is computed from."""
    waiting, found = [node], dict[str, None]()
    while waiting:
        node = waiting.pop()
        if name(node) not in found:
            found[name(node)] = None
            waiting += inputs(node)
    return list(found)


def is_float32(node: Any) -> bool:
    """Whether a node of ONNX casts to float32, the type of number 1."""
    return node.op_type == "Cast" and any(each.name == "to" and each.i == 1 for each in node.attribute)


def is_float32_operation(operation: Any) -> bool:
    """Whether an operation of OpenVINO casts float64 to float32."""
    if operation.get_type_name() != "Convert":
        return False
    made, read = operation.get_output_element_type(0), operation.get_input_element_type(0)
    return bool(made.to_string() == "f32" and read.to_string() == "f64")


def bilinear(x: Tensor) -> Tensor:
    return torch.clamp_min(1 - x, 0.0)


def bicubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = -0.5."""
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


FILTERS: dict[str, Callable[[Tensor], Tensor]] = {"bilinear": bilinear, "bicubic": bicubic}


def as_bytes(values: Tensor) -> Tensor:
    return torch.clamp(torch.floor(values + 0.5), 0.0, 255.0)
