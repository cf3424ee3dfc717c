"""One training step: gradients of a batch in micro-batches, clipping, the optimizers, the average.

A step whose gradient is not finite changes nothing. Where the optimizer can skip a step on the device itself,
Python asks one step later whether it did, when the GPU has the next gradient to compute. What is counted,
averaged and saved is the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from vitreous.rng import torch_generator, torch_seed
from vitreous.training.config import ClipEach, TrainingConfig
from vitreous.training.distributed import ALONE, Shards, World, whole_tensor
from vitreous.training.learner import Learner
from vitreous.training.machine import autocast

Measured = tuple[Tensor, Mapping[str, Tensor]]
Objective = Callable[[nn.Module, Any, torch.Generator], Measured]
MicroBatchMeasures = list[tuple[int, dict[str, Tensor]]]
SHORT_IN_BF16 = 200  # tokens, see attention_kernels


class LossOf(nn.Module):
    """An objective as a module: gradients are synchronized whatever it calls of the model."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: object, generator: torch.Generator) -> Measured:
        return self.objective(self.model, batch, generator)


def data_parallel(
    loss: nn.Module,
    shards: Shards | None,
    config: TrainingConfig,
    world: World,
    *,
    compiled: bool = False,
) -> nn.Module:
    """Return a loss as a step computes it: compiled where that is asked for, and so that its gradient ends up
    as the mean over all processes.

    Shards reduce gradients in the backward pass, and compile their layers. Replicas are PyTorch's
    DistributedDataParallel, which waits for a gradient of every parameter that learns: an objective freezes
    those that it does not use.

    Gradients are divided by the number of processes and then added up. A sum of two does not depend on the
    order, so with two processes a resumed run is equal to the bit; with more up to the rounding of the sum,
    whose order depends on DDP's buckets. A `deterministic` sum is not DDP's: `TrainStep` makes it in every
    step, parameter by parameter.
    """
    if shards:
        return loss
    if compiled:
        # Only the step is compiled: the model itself stays as it is.
        loss.compile(dynamic=False)
    if world.size == 1 or config.machine_config.deterministic:
        return loss
    # Buffers are constants of the architecture: sending them each step would be waste.
    # PyTorch 2.11 warns about the name of this class.
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return DistributedDataParallel(loss, broadcast_buffers=False)


def average_gradients(parameters: list[nn.Parameter], world: World) -> None:
    """Make `.grad` the mean over all processes, where any of them has one."""
    device = parameters[0].device
    used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=device)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    for parameter, somewhere in zip(parameters, used.tolist(), strict=True):
        if somewhere:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            # DDP divides before the sum, too.
            gradient.div_(world.size)
            dist.all_reduce(gradient)
            parameter.grad = gradient


class TrainStep:
    """Takes optimizer steps with one learner: `prepare`, then `take`. `outcome` counts what was taken.

    Args:
        loss: maps (batch, generator) to the loss of the learner's model and named measures: a `LossOf`, with
            several processes as `data_parallel` returns it. What it samples depends on (seed, rank, step)
            alone, as do dropout and stochastic depth.

    Attributes:
        late: whether the outcome of a step is asked for after the next one's `prepare`, and earlier only
            where the learner is read directly after `take`.
        after_step: of an objective that is a module and moves weights of its own: called after each step with
            what was measured in it and whether it was taken, which the device knows.
        frozen_at: of an objective that is a module, parts of which learn later: called with the number of a
            step, for the weights that it leaves as they are.
    """

    def __init__(
        self,
        learner: Learner,
        loss: nn.Module,
        config: TrainingConfig,
        *,
        seed: int,
        world: World = ALONE,
    ) -> None:
        self.learner, self.loss, self.config, self.device = learner, loss, config, learner.device
        self.seed, self.world = seed, world
        self.parameters = [p for p in learner.model.parameters() if p.requires_grad]
        self.masks = learner.gradient_masks()
        self.kernels = attention_kernels(learner.model, self.device, config)
        learner.model.train()
        self.late = self.device.type == "cuda" and skips_on_device(learner)
        self.after_step = getattr(learner.model, "after_step", None)
        self.frozen_at = getattr(learner.model, "frozen_at", None)
        # A step that is not counted yet: whether its gradient was finite, what was measured, its number.
        self.pending: tuple[Callable[[], bool], MicroBatchMeasures, int] | None = None

    def __call__(self, batch: object) -> None:
        """Take a step whose outcome does not matter."""
        self.prepare(batch)
        self.outcome()
        self.take()

    def prepare(self, batch: object) -> None:
        """Compute the clipped gradient of a batch into `.grad`."""
        gradient, radius = partial(self.gradient, batch), self.config.optimizer.sam_radius
        self.measured = sharpness_aware(gradient, self.parameters, radius) if radius else gradient()
        norm, optimizer = global_norm([p.grad for p in self.parameters]), self.config.optimizer
        if isinstance(optimizer.clip_norm, ClipEach):
            for parameter in self.parameters:
                torch.nn.utils.clip_grad_norm_(parameter, optimizer.clip_norm.each)
        elif optimizer.clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, optimizer.clip_norm, norm)
        self.finite = torch.isfinite(norm)
        # None, and not zero: AdamW would count the step and let the weight decay, and with second moments of
        # zero the first steps of learning would be several times as large. Every process has computed it.
        for parameter in self.frozen_at(self.learner.step) if self.frozen_at else ():
            parameter.grad = None

    def take(self) -> None:
        """Change the weights by the gradient, if that is finite."""
        learner = self.learner
        read = read_later(self.finite) if self.late else partial(bool, bool(self.finite))
        if self.late:
            skip = (~self.finite).float()
            for optimizer in learner.optimizers:
                optimizer.found_inf = skip  # type: ignore[attr-defined]  # as torch.amp.GradScaler does
        if self.late or read():
            for optimizer in learner.optimizers:
                optimizer.step()
        if self.after_step:
            self.after_step(self.measured, self.finite)
        self.pending = read, self.measured, learner.step
        learner.step += 1

    def outcome(self) -> bool | None:
        """Count the step that was taken. Return whether its gradient was finite; None if it is counted."""
        if self.pending is None:
            return None
        (is_finite, measured, step), self.pending = self.pending, None
        if finite := is_finite():
            self.add(measured)
            if self.learner.average:
                self.learner.average.update(step)
        else:
            self.learner.skipped += 1
        return finite

    def gradient(self, batch: object) -> MicroBatchMeasures:
        """Leave the gradient of the batch's mean loss in `.grad`. Return the number of images in each
        micro-batch and what was measured on it."""
        self.learner.model.zero_grad()
        # With this key a resumed run draws what it would have drawn without the interruption.
        key = (self.world.rank, self.learner.step)
        generator = torch_generator(self.seed, "objective", *key)
        measured: MicroBatchMeasures = []
        # Not a disabled autocast: a device may have none.
        half = autocast("bf16", self.device) if self.config.precision == "bf16" else nullcontext()
        parts = micro_batches(batch, self.config.machine_config.grad_accum_steps, self.device)
        # Around the backward pass, too, which computes checkpointed layers again.
        with (
            default_generators(self.device, torch_seed(self.seed, "dropout", *key)),
            attending(self.kernels),
        ):
            for part, share, last in parts:
                with half:
                    loss, measures = self.loss_of_part(part, generator, last=last)
                torch.autograd.backward(loss * share)
                measured.append((len(part[0]), {"loss": loss.detach(), **measures}))
        if self.world.size > 1 and self.config.machine_config.deterministic and not self.learner.shards:
            average_gradients(self.parameters, self.world)
        for table, mask in self.masks:
            if table.grad is not None:
                table.grad.mul_(mask)
        return measured

    def loss_of_part(self, part: object, generator: torch.Generator, *, last: bool) -> Measured:
        """Compute the loss of a micro-batch. Gradients are synchronized once a batch, with the last one."""
        if self.learner.shards:
            root = self.learner.shards.root
            root.set_requires_gradient_sync(last)
            root.set_is_last_backward(last)
            measured: Measured = root(self.loss, part, generator)
        elif isinstance(self.loss, DistributedDataParallel) and not last:
            with self.loss.no_sync():
                measured = self.loss(part, generator)
        else:
            measured = self.loss(part, generator)
        return measured

    def add(self, measured: MicroBatchMeasures) -> None:
        """Add to the sums of the meter, on the device: nothing waits for it."""
        meter = self.learner.meter
        for images, means in measured:
            numbers = {name: mean for name, mean in means.items() if mean.ndim == 0}
            for name, mean in {**numbers, "images": torch.ones((), device=self.device)}.items():
                total = meter.setdefault(name, torch.zeros((), dtype=torch.float64, device=self.device))
                total.add_(mean, alpha=images)


@contextmanager
def default_generators(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the default generators of the CPU and of `device`, as nn.Dropout's; restore them at the end."""
    gpus = []
    if device.type == "cuda":
        gpus = [torch.cuda.current_device() if device.index is None else device.index]
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for index in gpus:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def skips_on_device(learner: Learner) -> bool:
    """Return whether every optimizer of the learner can skip a step on the device: a fused one."""
    return all(optimizer.defaults.get("fused") for optimizer in learner.optimizers)


def read_later(flag: Tensor) -> Callable[[], bool]:
    """Return a function that reads a flag. It waits for what the device has been given up to here only."""
    if flag.device.type != "cuda":
        return partial(bool, flag)
    copy = torch.empty((), dtype=flag.dtype, pin_memory=True)
    copy.copy_(flag, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(flag.device))

    def read() -> bool:
        arrived.synchronize()
        return bool(copy)

    return read


def micro_batches(batch: Any, count: int, device: torch.device) -> Iterator[tuple[Any, float, bool]]:
    """Yield a batch in at most `count` parts on the device: with its share, and whether it is the last."""
    # A field that is None says nothing of any part.
    fields = batch._asdict()
    given = {name: tensor.chunk(count) for name, tensor in fields.items() if tensor is not None}
    number = len(next(iter(given.values())))
    for place in range(number):
        moved = {name: chunks[place].to(device, non_blocking=True) for name, chunks in given.items()}
        part = type(batch)(**{**fields, **moved})
        yield part, len(part[0]) / len(batch[0]), place + 1 == number


def global_norm(gradients: Sequence[Tensor | None]) -> Float[Tensor, ""]:
    """Return the norm of all gradients as one vector; of shards the whole vector's: all processes call it."""
    return whole_tensor(torch.nn.utils.get_total_norm([each for each in gradients if each is not None]))


def sharpness_aware(
    gradient: Callable[[], MicroBatchMeasures], parameters: Sequence[Tensor], radius: float
) -> MicroBatchMeasures:
    """Leave in `.grad` the gradient at w + radius g / |g|, where g is the gradient at w (sharpness-aware
    minimization, 2010.01412, Eq. 2 and 3). Return what `gradient` measured at w.

    Args:
        gradient: computes the gradient of the same batch with the same random numbers each time.
    """
    measured = gradient()
    learning = [p for p in parameters if p.grad is not None]
    gradients = [p.grad for p in learning if p.grad is not None]
    with torch.no_grad():
        scale = radius / (global_norm(gradients) + 1e-12)
        # The weights are restored as they were, since subtracting would leave rounding.
        here = [p.clone() for p in learning]
        for parameter, direction in zip(learning, gradients, strict=True):
            parameter.add_(direction * scale)
    gradient()
    with torch.no_grad():
        for parameter, before in zip(learning, here, strict=True):
            parameter.copy_(before)
    return measured


def attention_kernels(model: nn.Module, device: torch.device, config: TrainingConfig) -> list[SDPBackend]:
    """Return the kernels that attention may use; empty for PyTorch's choice.

    A GPU's memory-efficient kernel adds up gradients in any order. On a CPU the fused kernel is faster in
    fp32 at every length: forward and backward of unfused attention took 1.1 to 1.8 times as long on one
    core and 1.3 to 2.4 times on two, for 17 to 197 tokens with head dimensions of 11 to 64 (PyTorch 2.13).
    In bf16 with AMX (batch 64, width 128, 3 layers) a whole step of unfused attention takes 0.4 of the fused
    kernel's time for 17 tokens, 0.5 for 65, 0.6 for 145, 0.95 for 257 and 1.4 for 401.
    """
    if device.type != "cpu":
        return [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH] if config.machine_config.deterministic else []
    if config.precision != "bf16":
        return []
    # An objective of pre-training has its encoder inside; a module of any other kind has no number of tokens.
    encoder = getattr(model, "encoder", model)
    tokens = getattr(getattr(encoder, "config", None), "sequence_length", None)
    return [SDPBackend.MATH] if tokens is not None and tokens <= SHORT_IN_BF16 else []


@contextmanager
def attending(kernels: list[SDPBackend]) -> Iterator[None]:
    """Within this context, attention uses one of these kernels, if there are any. Unfused attention
    multiplies bf16 as it is: PyTorch's default is to make it fp32, which took twice as long."""
    cuda: Any = torch.backends.cuda
    # In spite of its name this is a setting of all devices.
    reduced = cuda.fp16_bf16_reduction_math_sdp_allowed()
    cuda.allow_fp16_bf16_reduction_math_sdp(reduced or kernels == [SDPBackend.MATH])
    try:
        with sdpa_kernel(kernels) if kernels else nullcontext():
            yield
    finally:
        cuda.allow_fp16_bf16_reduction_math_sdp(reduced)
