"""The options of `optimize`."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from vitreous.api.options import BatchSize, DataSettings, Workers
from vitreous.training.options import ConfigFile, DeviceOption, Option


class OptimizeOptions(TypedDict, total=False):
    budget: Annotated[float, Option("largest acceptable loss of accuracy: 0.003 is 0.3%", default=0.003)]
    engines: Annotated[
        Sequence[str] | None,
        Option(
            "eager, compiled, onnx, openvino; by default those that are installed, except for compiled on a "
            "CPU, where it takes minutes"
        ),
    ]
    timed_batch: Annotated[int, Option("number of images in the batches that are timed", default=8)]
    batch_size: BatchSize
    workers: Workers
    device: DeviceOption
    settings: DataSettings
    config: ConfigFile
    progress: Annotated[bool, Option("print each measurement on stderr", default=True, in_python=True)]
