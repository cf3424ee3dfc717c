"""Products in int8: ONNX and OpenVINO, quantized by NNCF, calibrated on images."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from vitreous.deployment.programs import PIXELS
from vitreous.errors import InputError, require_packages

Node = TypeVar("Node")


def write_onnx_int8(outputs: nn.Module, path: Path, about: dict[str, Any], samples: Sequence[Any]) -> float:
    """Write an ONNX file with products in int8. Returns how far its outputs are from the model's."""
    from vitreous.deployment.export import save_onnx, signature, verified

    save_onnx(outputs, path, about)
    source = signature(outputs)[0]
    import onnx

    loaded = onnx.load(path)
    del loaded.graph.value_info[:]
    described = list(loaded.metadata_props)
    exact = exact_nodes(loaded.graph, about["task"], prepares=source == PIXELS)
    small = quantized(loaded, [{source: each} for each in samples], exact)
    del small.metadata_props[:]
    small.metadata_props.extend(described)
    onnx.save(small, path)
    return verified(outputs, path, exact=False)


def quantized(graph: Any, samples: Sequence[Any], exact: Sequence[str] = ()) -> Any:
    """Return a graph of OpenVINO or ONNX with products in int8, but for the nodes in `exact`, calibrated on
    samples, by NNCF."""
    require_packages("nncf", extra="cpu", what="int8")
    if not samples:
        raise InputError("int8 needs images to calibrate on: give a run, or name DATA with `data`")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        import nncf

        nncf.set_log_level(logging.ERROR)
        logging.getLogger("nncf").setLevel(logging.ERROR)
        return nncf.quantize(
            graph,
            nncf.Dataset(samples),
            preset=nncf.QuantizationPreset.MIXED,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(samples),
            ignored_scope=nncf.IgnoredScope(names=list(exact), validate=False) if exact else None,
        )


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
