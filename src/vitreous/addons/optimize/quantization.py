"""Products in int8: ONNX and OpenVINO, quantized by NNCF, calibrated on images."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from vitreous.addons.optimize.processor import processor_flags, saturates_int8
from vitreous.deployment.programs import PIXELS, in_one_line
from vitreous.errors import InputError, Param, require_packages
from vitreous.extensions import outputs_of_task
from vitreous.models.ensemble import EnsembleConfig, LinearConfig

if TYPE_CHECKING:
    import openvino
    from onnx import GraphProto, NodeProto

Node = TypeVar("Node")


def write_onnx_int8(
    outputs: nn.Module, path: Path, metadata: dict[str, Any], samples: Sequence[NDArray[np.float32]]
) -> float:
    """Write an ONNX file with products in int8. Returns how far its outputs are from the model's. Raises
    InputError: it has a head of which NNCF quantizes nothing."""
    config = getattr(outputs.model, "config", None)
    members = config.members if isinstance(config, EnsembleConfig) else ()
    if any(not isinstance(each.head, LinearConfig) for each in members):
        raise InputError(
            "an SVM, kernel ridge regression or nearest neighbors cannot be in int8 in an ONNX file: use "
            f"{Param('precision')} fp32, or {Param('format')} openvino"
        )
    from vitreous.deployment.export import save_onnx, signature, verified

    save_onnx(outputs, path, metadata)
    source = signature(outputs)[0]
    import onnx

    loaded = onnx.load(path)
    del loaded.graph.value_info[:]
    described = list(loaded.metadata_props)
    exact = exact_nodes(loaded.graph, metadata["task"], prepares=source == PIXELS)
    small = quantized(loaded, [{source: each} for each in samples], exact)
    del small.metadata_props[:]
    small.metadata_props.extend(described)
    onnx.save(small, path)
    return verified(outputs, path, exact=False)


def quantized(graph: object, samples: Sequence[object], exact: Sequence[str]) -> Any:
    """Return a graph of OpenVINO or ONNX with products in int8, but for the nodes in `exact`, calibrated on
    samples, by NNCF. Raises InputError: there are no samples, or it cannot."""
    require_packages("nncf", extra="cpu", what="int8")
    if not samples:
        raise InputError(f"int8 needs images to calibrate on: pass a run, or name DATA with {Param('data')}")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        import nncf

        # With it, the weights of all layers get 7 bits.
        overflow = nncf.OverflowFix.ENABLE if saturates_int8(processor_flags()) else None
        logging.getLogger("nncf").setLevel(logging.ERROR)
        try:
            return nncf.quantize(
                graph,
                nncf.Dataset(samples),
                preset=nncf.QuantizationPreset.MIXED,
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(samples),
                advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=overflow),
                ignored_scope=nncf.IgnoredScope(names=list(exact), validate=False) if exact else None,
            )
        except Exception as error:  # of NNCF, or of the engine that runs the graph on the samples
            raise InputError(
                f"NNCF cannot write the model in int8: change {Param('precision')} ({in_one_line(error)})"
            ) from error


def exact_nodes(graph: GraphProto, task: str | None, *, prepares: bool) -> list[str]:
    """Return the names of the nodes of an ONNX graph that stay in floating point where products are in int8.

    Where the graph prepares the images, in float64: all that its first float32 numbers are computed from.
    Else a head that gives numbers in the unit of the labels, of which int8 has two digits. And everywhere:
    depthwise convolutions, to whose inputs NNCF gives a zero point for each channel, with which ONNX Runtime
    does not compute (with one for all channels the outputs are twice as far from the model's); and padded
    max-pooling, of which NNCF takes the range from the bound that `keep_padding` inserts.
    """
    makers = {}
    for node in graph.node:
        for name in node.output:
            makers[name] = node
    exact = []
    for node in graph.node:
        if is_grouped(node):
            exact.append(node.name)
        elif node.op_type == "MaxPool" and (bound := makers[node.input[0]]).op_type == "Clip":
            exact += [node.name, bound.name, makers[bound.input[0]].name]

    def before(node: NodeProto) -> list[str]:
        return all_before(
            node,
            lambda each: [makers[name] for name in each.input if name in makers],
            lambda each: str(each.name),
        )

    if prepares:
        return exact + before(next(node for node in graph.node if casts_to_float32(node)))
    if outputs_of_task(task) != "number":
        return exact
    logits, features = (before(makers[output.name]) for output in graph.output)
    return exact + [name for name in logits if name not in features]


def exact_operations(graph: openvino.Model, task: str | None, *, prepares: bool) -> list[str]:
    """Return what `exact_nodes` does, of an OpenVINO graph."""

    def before(operation: openvino.Node) -> list[str]:
        return all_before(
            operation,
            lambda each: [value.get_node() for value in each.input_values()],
            lambda each: str(each.get_friendly_name()),
        )

    if prepares:
        return before(next(each for each in graph.get_ordered_ops() if converts_to_float32(each)))
    if outputs_of_task(task) != "number":
        return []
    logits, features = (before(output.get_node()) for output in graph.outputs)
    return [name for name in logits if name not in features]


def all_before(node: Node, inputs: Callable[[Node], list[Node]], name: Callable[[Node], str]) -> list[str]:
    """Return the names of a node of a graph, and of all that it is computed from."""
    waiting, found = [node], dict[str, None]()
    while waiting:
        node = waiting.pop()
        if name(node) not in found:
            found[name(node)] = None
            waiting += inputs(node)
    return list(found)


def casts_to_float32(node: NodeProto) -> bool:
    """Return whether a node of ONNX casts to float32, the type of number 1."""
    return node.op_type == "Cast" and any(each.name == "to" and each.i == 1 for each in node.attribute)


def is_grouped(node: NodeProto) -> bool:
    """Return whether a node of ONNX is a convolution of groups of channels."""
    return node.op_type == "Conv" and any(each.name == "group" and each.i > 1 for each in node.attribute)


def converts_to_float32(operation: openvino.Node) -> bool:
    """Return whether an operation of OpenVINO casts float64 to float32."""
    if operation.get_type_name() != "Convert":
        return False
    made, read = operation.get_output_element_type(0), operation.get_input_element_type(0)
    return bool(made.to_string() == "f32" and read.to_string() == "f64")
