"""The options of `optimize`."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from vitreous.api.options import BatchSize, DataSettings, Workers
from vitreous.training.options import ConfigFile, Device, Option


class OptimizeOptions(TypedDict, total=False):
    budget: Annotated[float, Option("accuracy that may be lost: 0.003 is 0.3%", default=0.003)]
    engines: Annotated[
        Sequence[str] | None,
        Option(
            "eager, compiled, onnx, openvino; by default those that are installed, and on a CPU without "
            "compiled, which takes minutes"
        ),
    ]
    timed_batch: Annotated[int, Option("images in the batches whose time decides", default=8)]
    batch_size: BatchSize
    workers: Workers
    device: Device
    settings: DataSettings
    config: ConfigFile
    progress: Annotated[bool, Option("print on stderr what is measured", default=True, in_python=True)]
