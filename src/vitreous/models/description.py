"""What a model does and costs, measured on the model itself, without a single weight.

A copy on torch's meta device, where tensors have a shape but no numbers, runs one input. The layers name in
`described` which of their parts are a step of the paper, and by which equation; hooks record them in the
order in which they run, with the parameters and the operations since the step before. The memory is measured
on that device, too: nothing is allocated.
"""

from __future__ import annotations

import copy
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from vitreous.languages import CURRENT, phrase, rendered_text, speaking, words
from vitreous.layers.attention import Attention, CrossAttention
from vitreous.layers.embedding import PatchStem, to_patches
from vitreous.models.bit import BiTConfig
from vitreous.models.config_parts import Config
from vitreous.models.ensemble import EnsembleConfig
from vitreous.models.model import model_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.results import Result, byte_size, si, text_table


@dataclass
class Stage:
    """One step from the input to the output.

    Attributes:
        name: what happens, in English.
        equation: where the paper says so (arXiv 2010.11929, unless another number is given).
        shape: of the result for one image; only the image itself is written as a batch of one.
        times: how often the step happens: once for each layer of the encoder.
        parameters: of all these times together; what layers share counts once.
        macs: multiply-accumulate operations of all these times together, for one image.
        heads: the shape begins with the number of heads.
        weights: the names of the parameters.
        title: the name in the language of the description.
    """

    name: str
    equation: str
    shape: tuple[int, ...]
    times: int = 1
    parameters: int = 0
    macs: int = 0
    heads: bool = False
    weights: list[str] = field(default_factory=list)
    title: str = ""

    @property
    def written_shape(self) -> str:
        """ "197x768"; "12 heads of 197x64" where the first number counts heads."""
        if self.heads:
            count, *head = self.shape
            return f"{count} head{'s' if count > 1 else ''} of {'x'.join(map(str, head))}"
        return "x".join(map(str, self.shape))


def stage_words(described: str) -> str:
    """Return the name or the written shape of a stage in the language that is spoken; as it is where no
    catalog has it, such as that of someone's own model."""
    name = re.sub(r"\d+", "n", described.lower().replace(",", "").replace(" ", "-"))
    return rendered_text(words("stages").get(name, described), {"n": re.findall(r"\d+", described)})


@dataclass(frozen=True)
class Description(Result):
    """The stages of a model, and what it costs. `sequence` is the number of tokens and their width; `memory`
    is that of `batch_size` images, everything else that of one; `answers` says by which methods an ensemble
    answers, `preprocessing` what comes before a model of images, and `images` the same in a line; it prints
    in `language`."""

    stages: tuple[Stage, ...]
    memory: MemoryEstimate
    sequence: tuple[int, int]
    batch_size: int = 1
    answers: str = ""
    preprocessing: Preprocessing | None = None
    images: str | None = None
    language: str = "en"

    @property
    def parameters(self) -> int:
        return sum(stage.parameters for stage in self.stages)

    @property
    def macs(self) -> int:
        return sum(stage.macs for stage in self.stages)

    def table(self) -> list[dict[str, object]]:
        """Return one row for each stage, in English."""
        rows = []
        for stage in self.stages:
            row = asdict(stage)
            del row["title"]
            rows.append(row)
        return rows

    def to_json(self) -> dict[str, object]:
        memory = self.memory
        return {
            "stages": self.table(),
            "parameters": self.parameters,
            "macs": self.macs,
            "gmacs": round(self.macs / 1e9, 4),
            "memory": {**memory._asdict(), "inference": memory.inference, "training": memory.training},
            "batch_size": self.batch_size,
            "tokens": self.sequence[0],
            "width": self.sequence[1],
            "images": self.images,
        }

    def __str__(self) -> str:
        """Return what `vitreous describe` prints."""
        with speaking(self.language):
            return self.in_words()

    def in_words(self) -> str:
        """Return the tables in the language that is spoken."""
        memory, said = self.memory, words("description")
        stages: list[tuple[str, ...]] = []
        for stage in self.stages:
            repeated = stage.times != 1
            stages.append(
                (
                    f"  {stage.title}" if repeated else stage.title,
                    stage.equation.replace("Eq.", said["equation"]),
                    stage_words(stage.written_shape),
                    f"x{stage.times}" if repeated else "",
                    f"{stage.parameters:,}" if stage.parameters else "",
                    si(stage.macs) if stage.macs else "",
                )
            )
        total = (said["total"], "", "", "", f"{self.parameters:,}", si(self.macs))
        headers = [said[name] for name in ("stage", "paper", "shape", "layers", "parameters", "macs")]
        sizes = [
            (said["weights"], byte_size(memory.weights), byte_size(memory.weights)),
            (said["gradients"], "", byte_size(memory.gradients)),
            (said["optimizer"], "", byte_size(memory.optimizer)),
            (said["activations"], byte_size(memory.working), byte_size(memory.activations)),
            (said["total"], byte_size(memory.inference), byte_size(memory.training)),
        ]
        memory_headers = (
            phrase("description.memory", count=self.batch_size),
            said["inference"],
            said["training"],
        )
        answers = f"{phrase('models.answers', name=self.answers)}\n\n" if self.answers else ""
        images = "\n" + phrase("description.images", pipeline=self.images) if self.images else ""
        cost = phrase("description.cost", parameters=si(self.parameters), macs=si(self.macs))
        return (
            f"{answers}{text_table(headers, [*stages, total], words=3)}\n\n"
            f"{cost}\n{said['counted']}\n\n"
            f"{text_table(memory_headers, sizes)}\n{said['measured']}{images}"
        )


def describe(model: nn.Module | Config, *, batch_size: int = 1) -> Description:
    """Describe a model, or the one that a configuration stands for: every stage of its forward pass with its
    shape, parameters, operations and equation, and the memory that inference and training need.

    Args:
        model: any model of the project, or its configuration. It is neither run nor changed.
        batch_size: of the memory's activations.
    """
    shapes = on_meta(model)
    inputs = example_inputs(shapes.config, 1)
    image = []
    if inputs[0].is_floating_point():
        image.append(Stage("image", "x", tuple(inputs[0].shape), title=stage_words("image")))
    memory = memory_of(shapes, example_inputs(shapes.config, batch_size))
    stages = [*image, *StageRecorder(shapes.eval().requires_grad_(False)).run(inputs)]
    config = getattr(shapes.config, "encoder", shapes.config)  # inside a model around one
    answers = ""
    if isinstance(config, BiTConfig):  # the cells of the last feature map
        sequence = math.prod(config.grid), config.output_widths[-1]
    elif isinstance(config, EnsembleConfig):  # without tokens
        sequence, answers = (1, config.feature_width), config.title
    else:
        sequence = config.sequence_length, config.width
    return Description(
        tuple(stages),
        memory,
        sequence,
        batch_size,
        answers,
        getattr(shapes, "preprocessing", None),
        language=CURRENT.get(),
    )


def on_meta(model: nn.Module | Config) -> Any:
    """Return a copy of a model, or a model of a configuration, in evaluation mode on the meta device."""
    if isinstance(model, nn.Module):
        shapes: dict[int, object] = {id(buffer): buffer.to("meta") for buffer in model.buffers()}
        for parameter in model.parameters():
            shapes[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=True)
        return copy.deepcopy(model, shapes).eval()
    with torch.device("meta"):
        return model_of(model).eval()


def example_inputs(config: Any, batch: int) -> tuple[Tensor, ...]:
    """Return what the model of a configuration takes: images; or what the configuration itself says."""
    with torch.device("meta"):
        if own := getattr(config, "example_inputs", None):
            inputs: tuple[Tensor, ...] = own(batch)
            return inputs
        return (torch.empty(batch, config.channels, *config.image_size),)


class StageRecorder(TorchFunctionMode):
    """Runs a model and records each part that its layers describe as a `Stage`.

    The model is changed for good: it is the copy of `on_meta`.

    `described` of a class maps its parts (children by their dotted name, or methods) to (name, equation). A
    class with `described_as` is one stage as a whole: nothing inside is recorded.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.stages: dict[tuple[str, str], Stage] = {}
        self.flops = FlopCounterMode(display=False, custom_mapping=NORMALIZATIONS)
        self.counted = 0  # operations up to the last stage
        self.names = {id(each): name for name, each in model.named_parameters()}
        self.since: dict[str, int] = {}  # parameters that were used since the last stage
        self.known: set[int] = set()
        self.hooked: set[int] = set()  # layers may share a part
        self.inside: list[str] = []  # attention layers that are running
        self.whole: list[str] = []  # the part that is one stage and is running

    def run(self, inputs: tuple[Tensor, ...]) -> list[Stage]:
        """Return the stages of one forward pass."""
        for path, module in self.model.named_modules(remove_duplicate=False):
            self.watch(path, module)
        with torch.no_grad(), self.flops, self:
            self.model(*inputs)
        return list(self.stages.values())

    def watch(self, path: str, module: nn.Module) -> None:
        """Hook the described parts of one module."""
        # One convolution computes what is two steps in Eq. 1.
        if isinstance(module, PatchStem):
            patch, flat = module.patch, ("patches, flat", "x_p")
            module.register_forward_pre_hook(
                lambda _, args: self.end(f"{path}.flat", flat, to_patches(args[0], patch))
            )
        if label := getattr(module, "described_as", None):
            module.register_forward_pre_hook(lambda *_: self.whole.append(path))
            module.register_forward_hook(lambda *_: self.whole.clear())
            self.after(module, path, label)
        if isinstance(module, Attention | CrossAttention):
            module.register_forward_pre_hook(lambda *_: self.inside.append(path))
            heads = "heads side by side", "[SA_1; ...], Eq. 8"
            module.out.register_forward_pre_hook(
                lambda _, args: self.end(f"{path}.heads", heads, args[0].detach())
            )
        for name, label in getattr(module, "described", {}).items():
            *parents, last = name.split(".")
            owner = module.get_submodule(".".join(parents))
            part, where = getattr(owner, last), f"{path}.{name}".strip(".")
            if isinstance(part, nn.Module):
                if isinstance(part, nn.RMSNorm):
                    label = label[0].replace("LayerNorm", "RMSNorm"), label[1]
                if not isinstance(part, nn.Identity):
                    self.after(part, where, label)
            elif part is not None:
                setattr(owner, last, self.recorded(where, label, part))

    def after(self, part: nn.Module, path: str, label: tuple[str, str]) -> None:
        """Record the result of a module."""
        if id(part) not in self.hooked:
            self.hooked.add(id(part))
            part.register_forward_hook(lambda _, __, result: self.end(path, label, result))

    def recorded(
        self, path: str, label: tuple[str, str], method: Callable[..., Tensor]
    ) -> Callable[..., Tensor]:
        """Wrap a method so that its result is recorded."""

        def call(*args: object, **kwargs: object) -> Tensor:
            result = method(*args, **kwargs)
            self.end(path, label, result)
            return result

        return call

    def end(
        self, path: str, label: tuple[str, str], result: Tensor, *, ahead: int = 0, heads: bool = False
    ) -> None:
        """Record a stage that ended with `result`: what was used and done since the stage before, and the
        operations `ahead`, which the counter is yet to see. The same stage of all layers is one."""
        if self.whole:
            return
        done = self.flops.get_total_flops() // 2 + ahead
        key = re.sub(r"\bblocks\.\d+\b", "blocks", path), label[0]
        if key not in self.stages:
            shape, title = tuple(result.shape[1:]), stage_words(label[0])
            self.stages[key] = Stage(*label, shape, times=0, heads=heads, title=title)
        stage = self.stages[key]
        stage.times += 1
        stage.parameters += sum(self.since.values())
        stage.weights += self.since
        stage.macs += done - self.counted
        self.counted = done
        self.since = {}

    def use(self, operands: Iterable[object]) -> None:
        """Note which parameters are used for the first time."""
        for operand in operands:
            if isinstance(operand, list | tuple):
                self.use(operand)
            elif isinstance(operand, nn.Parameter) and id(operand) not in self.known:
                self.known.add(id(operand))
                self.since[self.names[id(operand)]] = operand.numel()

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func == torch.Tensor.dtype.__get__:  # type: ignore[attr-defined]  # which says a type, and uses no weight
            return func(*args, **(kwargs or {}))
        self.use((*args, *(kwargs or {}).values()))
        if self.whole or func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        path, query, tokens = self.inside.pop(), args[0], args[1].shape[-2]
        self.end(path, ("query, key, value, each", "z U_qkv, Eq. 5"), query, heads=True)
        weights, macs = query.new_empty(*query.shape[:-1], tokens), math.prod(query.shape) * tokens
        self.end(path, ("attention weights", "A, Eq. 6"), weights, ahead=macs, heads=True)
        result = func(*args, **(kwargs or {}))
        self.end(path, ("weighted values", "A v, Eq. 7"), result, heads=True)
        return result


def normalization_flops(shape: torch.Size, *_: object, **__: object) -> int:
    """Return five multiply-accumulate operations for each number that a normalization takes in, as fvcore
    counts them, from which the published figures are."""
    return 10 * math.prod(shape)


NORMALIZATIONS: dict[object, Callable[..., int]] = {
    torch.ops.aten.native_layer_norm: normalization_flops,
    torch.ops.aten.native_group_norm: normalization_flops,
}


FLOAT = 4  # bytes of a number in fp32


class MemoryEstimate(NamedTuple):
    """Bytes in fp32, with attention fused, so that its maps are never stored whole.

    Attributes:
        weights: parameters and fixed tables.
        gradients: one number for each parameter.
        optimizer: AdamW's two moments of each gradient.
        working: the most that is alive at once while a batch goes through, the images included.
        activations: what the backward pass needs of a batch.
    """

    weights: int
    gradients: int
    optimizer: int
    working: int
    activations: int

    @property
    def inference(self) -> int:
        return self.weights + self.working

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


def memory_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> MemoryEstimate:
    """Return what a batch costs in fp32. `model` and `inputs` are on the meta device; nothing is
    allocated."""
    known = [*model.parameters(), *model.buffers()]
    gradients = FLOAT * sum(parameter.numel() for parameter in model.parameters())
    with FusedAttention():
        with torch.no_grad(), LiveBytes(known) as inference:
            model.eval()(*(each.clone() for each in inputs))
        with LiveBytes(known) as training:
            graph = model.train()(*(each.clone() for each in inputs)).grad_fn
            # The result is gone, so what is alive belongs to the graph.
            activations = training.now
            del graph
    return MemoryEstimate(
        weights=FLOAT * sum(tensor.numel() for tensor in known),
        gradients=gradients,
        optimizer=2 * gradients,
        working=inference.peak,
        activations=activations,
    )


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of results of operations that are alive (`now`), and the most at once so far (`peak`),
    without `known` storages."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = {storage_of(tensor): 0 for tensor in known}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and storage_of(tensor) not in self.alive:
                storage = tensor.untyped_storage()
                self.alive[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.release, storage._cdata)
        return result

    def release(self, key: int) -> None:
        self.now -= self.alive.pop(key)


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class FusedAttention(TorchFunctionMode):
    """The meta device has no fused attention; this replaces it, and takes the memory of one."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return FusedKernel.apply(*args[:4])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class FusedKernel(torch.autograd.Function):
    """Shapes alone: saves query, key, value, bias, the result and one number for each row of the map, as
    FlashAttention does (arXiv 2205.14135)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        batch, heads, tokens, _ = query.shape
        # As the real kernels lay it out: the heads of one token side by side.
        result = query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)
        ctx.save_for_backward(query, key, value, bias, result, query.new_empty(query.shape[:-1]))
        return result
