"""The machine that a training runs on: its device and processes (`Place`), the number formats on it, the
memory of a step and the threads of a CPU."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from vitreous.errors import InputError, Param, is_installed
from vitreous.extensions import outputs_of
from vitreous.languages.terminal import said
from vitreous.models.catalog import TRAINING_STATES
from vitreous.training.config import CommandConfig, TrainingConfig
from vitreous.training.distributed import ALONE, World, encoder_layers

CPU = torch.device("cpu")
LONG_RUN = 1000  # steps, in which a compiled step makes up for its compilation
# Channels from which on a CPU gains from bf16. On one with AMX a training step of width 64 took 0.85 times as
# long as in fp32, of 96 0.7 to 0.9 times, of 128 and 192 0.5 times (65 tokens), of 384 0.4 times (197); with
# AVX-512 BF16 of AMD (Zen 4) 0.6 times for widths from 64 to 128, 0.5 for 192 to 768; answers 0.5 to 0.75.
# There are others with AVX-512 BF16 on which steps took 1.1 to 1.7 times as long: so the product is timed.
WIDE = 128
FIRST_BF16 = (8, 0)  # NVIDIA's Ampere
SIDE, PRODUCTS = 256, 7  # of the matrices that are multiplied to time bf16 on a CPU, and how often
FASTER = 0.75  # of the time in fp32, below which bf16 is faster: the casts around the products take time, too
Precision = Literal["fp32", "bf16"]
CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"  # must be set before the first product on a GPU
USABLE = 0.7  # of the free memory: allocators leave gaps, and kernels need workspace
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # mallopt(3)'s parameters
CGROUP = Path("/sys/fs/cgroup")
# One thread is taken where its steps take less than this part of the time: the last bits of a result depend
# on the number of threads, so that a small gain is not worth it.
MARGIN = 0.8
# Processors, of whose time a step with several threads must have had less for one thread to be tried: on an
# idle machine that step would only be slow.
CROWDED = 1.5
TIMED_STEPS = 2  # that are timed with several threads and with one, in turns
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # in which a user says how many


@dataclass(frozen=True)
class Place:
    """The device of this process, and the processes that train together. What a configuration leaves open is
    decided here: the precision, and whether a step is compiled."""

    device: torch.device = CPU
    world: World = ALONE

    def precision(self, config: CommandConfig) -> str:
        """Return the precision of a training: by the device, and by the model's width."""
        return pick_precision(config.training.precision, self.device, config.width or WIDE)

    def compiles(self, training: TrainingConfig, total: int, *, fixed_shapes: bool) -> bool:
        """Return whether a step is compiled: where nothing is set, on a GPU if that pays in so many steps."""
        if training.machine_config.compile is not None:
            return training.machine_config.compile
        pays = fixed_shapes and total >= LONG_RUN
        return self.device.type == "cuda" and pays and is_installed("triton")

    def built(self, training: TrainingConfig) -> AbstractContextManager[object]:
        """Return the context in which a model is built: of weights in shards only the first process has them,
        and shares them out."""
        waits = training.machine_config.shard and self.world.size > 1 and not self.world.first
        return torch.device("meta") if waits else nullcontext()


ON_CPU = Place()


def pick_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is the GPU where there is one. Raises InputError: no such
    device, or it is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"{Param('device')} {name}: only cpu and cuda are supported; use cpu or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"{Param('device')} {name}: this machine has {torch.cuda.device_count()} GPUs; use cpu or auto"
        )
    return device


def pick_precision(wanted: Precision | Literal["auto"], device: torch.device, width: int = WIDE) -> Precision:
    """Return `wanted`; for "auto" bf16 where the device is faster in it, and on a CPU if the model is wide
    enough to gain from it."""
    if wanted != "auto":
        return wanted
    # GPUs from this capability on have instructions for bf16.
    if device.type == "cuda":
        faster = torch.cuda.get_device_capability(device) >= FIRST_BF16
    else:
        # Elsewhere a product is timed, the first time that this is asked of a model that could gain from it.
        faster = (device.type != "cpu" or width >= WIDE) and time_of_bf16() < FASTER
    return "bf16" if faster else "fp32"


@cache
def time_of_bf16() -> float:
    """Return the time of a matrix product on the CPU in bf16, as a multiple of that in fp32: the best of some
    rounds, a few milliseconds in all. Processors that have the same instructions differ in it."""
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        matrices = {kind: torch.ones(SIDE, SIDE, dtype=kind, device="cpu") for kind in best}
        for kind, matrix in PRODUCTS * list(matrices.items()):
            begun = perf_counter()
            matrix @ matrix
            best[kind] = min(best[kind], perf_counter() - begun)
    return best[torch.bfloat16] / best[torch.float32]


def answering_precision(wanted: str, device: torch.device, model: object = None) -> Precision:
    """Return the precision of inference: fp32, bf16, or for "auto" the faster of the two; "fp32", without
    autocast, for a model that computes in another type of its own. Raises InputError: there is no such
    precision, or such a model computes in another."""
    if wanted not in ("auto", "fp32", "bf16"):
        raise InputError(
            f"{Param('precision')} {wanted} is not available for inference: use auto, fp32 or bf16"
        )
    if (own := weights_type(model)) != torch.float32:
        if wanted == "fp32" or (wanted == "bf16" and own != torch.bfloat16):
            raise InputError(
                f"precision={wanted!r} is for float32 weights, and the model has "
                f"{str(own).removeprefix('torch.')}: leave it out, or pass model.float()"
            )
        return "fp32"
    return "fp32" if wanted == "fp32" else pick_precision("auto" if wanted == "auto" else "bf16", device)


def weights_type(model: object) -> torch.dtype:
    """Return the type of a model's weights, or of the model in an answerer; float32 where there are none."""
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    weights = module.parameters() if isinstance(module, nn.Module) else ()
    return next((each.dtype for each in weights), torch.float32)


@contextmanager
def computing(wanted: str, device: torch.device) -> Iterator[None]:
    """Within this context, in this thread, multiply matrices in the precision of `answering_precision`."""
    with autocast(answering_precision(wanted, device), device):
        yield


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which a model computes in the precision of its training."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def with_cast_weights(model: ModuleT) -> ModuleT:
    """Return a copy whose matrices are bf16 already, for autocast, which casts them again in every batch
    otherwise: the same outputs, in 0.8 of the time of one image of a ViT-Ti/16. A head that gives
    numbers stays as it is."""
    copied = copy.deepcopy(model)
    numbers = outputs_of(model) == "number"
    for name, module in copied.named_modules():
        plain = type(module) in (nn.Linear, nn.Conv2d) and not parametrize.is_parametrized(module)
        if plain and not (numbers and name.startswith("head")):
            module.to(torch.bfloat16)
    return copied


@contextmanager
def numerics(device: torch.device, precision: str, *, deterministic: bool) -> Iterator[None]:
    """Within this context, compute as a training asks for: on the GPU that is given, what stays in fp32 in
    TF32, unless the precision is fp32; with `deterministic` by algorithms that give the same bits each time.
    Raises InputError: an operation has no such algorithm."""
    cudnn, fp32 = torch.backends.cudnn, precision == "fp32"
    with ExitStack() as before:
        before.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        before.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
        for name in ("allow_tf32", "benchmark"):
            before.callback(setattr, cudnn, name, getattr(cudnn, name))
        if device.type == "cuda":
            torch.set_float32_matmul_precision("highest" if fp32 else "high")
            cudnn.allow_tf32 = not fp32  # of convolutions
            # Otherwise the first GPU is the current one, also for what synchronizes.
            if device.index is not None:
                before.enter_context(torch.cuda.device(device))
        if deterministic:
            os.environ.setdefault(*CUBLAS_WORKSPACE)
            torch.use_deterministic_algorithms(True)  # cuDNN's, too
            cudnn.benchmark = False
        try:
            yield
        except RuntimeError as error:
            if "does not have a deterministic implementation" not in str(error):
                raise
            what = f"{Param('deterministic')}: {str(error).partition(',')[0]}"
            raise InputError(f"{what}; leave the option out") from error


def accumulation(
    model: nn.Module,
    images: Tensor,
    batch_size: int,
    free: int,
    *,
    forward: Callable[[Tensor], object] | None = None,
) -> int:
    """Return the smallest number of equal micro-batches whose activations fit into `free` bytes with the
    weights and the optimizer.

    Args:
        images: two images to measure with, on the model's device.
        forward: computes the loss of images with the model, or their logits; None: the model alone.

    Raises:
        InputError: not even one image fits.
    """
    room = USABLE * free - state_bytes(model)
    each = saved_bytes(model, images, forward) / len(images)
    if room < each:
        raise InputError(
            f"one image needs {each / 2**20:.0f} MiB to train on, and there is room for "
            f"{max(room, 0) / 2**20:.0f} MiB: use a smaller model or image, or "
            "training.machine.checkpointing=true"
        )
    fits = int(room // each)
    return next(n for n in range(1, batch_size + 1) if batch_size % n == 0 and batch_size // n <= fits)


def state_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's weights, and of the gradients and the optimizer of those that learn."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    learning = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return weights + (TRAINING_STATES - 1) * learning


def saved_bytes(model: nn.Module, images: Tensor, forward: Callable[[Tensor], object] | None = None) -> int:
    """Return the bytes that a forward pass keeps for the backward pass: each storage once, no weights."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    # The tensors are held so that their addresses are not used again.
    seen: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        seen.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        (forward or model)(images)
    return sum(t.untyped_storage().nbytes() for address, t in seen.items() if address not in weights)


def free_bytes(device: torch.device) -> int:
    """Return the free memory of the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    # This counts no memory that the system could free by dropping its caches.
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvail")), free)
    with suppress(OSError, ValueError):  # a container's limit
        most, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, max(most - used, 0))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:  # ulimit -v
        with suppress(OSError):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            free = min(free, max(limit - pages * resource.getpagesize(), 0))
    return free


def peak_bytes(device: torch.device) -> int:
    """Return the most memory that this process has had: on a GPU that of its tensors."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def activation_checkpointing(model: nn.Module) -> Iterator[None]:
    """Within this context each encoder layer stores its input only, and its activations are computed again in
    the backward pass (1604.06174). Raises InputError: the model has no encoder layers."""
    blocks = list(encoder_layers(model))
    if not blocks:
        raise InputError(
            f"{type(model).__name__} has no encoder layers: set training.machine.checkpointing=false"
        )
    try:
        for block in blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        yield
    finally:
        for block in blocks:
            block.__dict__.pop("forward", None)


def stager(device: torch.device) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Return what copies tensors into memory that it keeps: from a GPU into pinned memory."""
    # Not the `DefaultStager` around it: that of PyTorch 2.11 works once, and forgets its memory.
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager

    gpu = device.type == "cuda"
    copies = StateDictStager(pin_memory=gpu, share_memory=False)

    def stage(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        copied: dict[str, Tensor] = copies.stage(tensors, non_blocking=gpu)
        if gpu:
            torch.cuda.synchronize(device)
        return copied

    return stage


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next step. Return whether it can.

    By default it maps every block of over 32 MiB again, and the system clears each page at the first touch.
    With it, a ViT-Ti/16's training step in fp32 (batch 32) was 1.08 to 1.14 times as fast on a virtual
    machine, and reading images 1.13 times; peak memory grew by 2%.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another system's C library
        return False
    settings = {MMAP_THRESHOLD: 2**30, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 * 2**20}
    return all(mallopt(name, value) for name, value in settings.items())


class Threads:
    """The threads that compute steps of about equal length. Within `with threads:` each step is computed in
    `with threads.step():`, and afterwards PyTorch has as many threads as before.

    The first step is not timed, since it allocates memory. Where the second had less than 1.5 processors, the
    next steps have one thread and several in turns, and all later ones what was faster.

    Args:
        tell: called with a sentence where one thread is taken.
        tries: whether one thread is tried where there are several.
        clock, used: return seconds since any moment, and those of processors that this process has used.

    Attributes:
        chosen: 1, or None for as many as there are.
    """

    def __init__(
        self,
        tell: Callable[[str], object] = lambda sentence: None,
        *,
        tries: bool = True,
        clock: Callable[[], float] = perf_counter,
        used: Callable[[], float] = process_time,
    ) -> None:
        self.tell, self.tries, self.clock, self.used = tell, tries, clock, used
        self.chosen: int | None = None
        self.several = torch.get_num_threads()
        self.steps = 0
        self.seconds = {1: 0.0, self.several: 0.0}

    def keep(self, chosen: int | None) -> None:
        """Compute as an earlier session of a training did, so that it goes on to the same bits."""
        self.tries, self.chosen = False, chosen

    def __enter__(self) -> None:
        self.several = torch.get_num_threads()
        self.tries &= self.several > 1
        torch.set_num_threads(self.chosen or self.several)

    def __exit__(self, *exception: object) -> None:
        torch.set_num_threads(self.several)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Compute a step within this context."""
        if not self.tries:
            yield
            return
        threads = 1 if self.steps and self.steps % 2 == 0 else self.several
        torch.set_num_threads(threads)
        began, used = self.clock(), self.used()
        yield
        seconds, used = self.clock() - began, self.used() - used
        if self.steps:
            self.seconds[threads] = self.seconds.get(threads, 0.0) + seconds
        self.steps += 1
        if self.steps == 2 and used > CROWDED * seconds:
            self.tries = False
        elif self.steps > 2 * TIMED_STEPS:
            self.choose()

    def choose(self) -> None:
        """Take one thread where it was faster."""
        self.tries = False
        several, one = self.seconds[self.several], self.seconds[1]
        if one < MARGIN * several:
            self.chosen = 1
            self.tell(
                said(
                    "computing with one thread, {factor:.1f} times as fast as with {count} here: other "
                    "programs use the cores",
                    factor=several / max(one, 1e-9),
                    count=self.several,
                )
            )
        torch.set_num_threads(self.chosen or self.several)


def threads_for(
    device: torch.device,
    tell: Callable[[str], object] = lambda sentence: None,
    *,
    world: World = ALONE,
    fixed: bool = False,
) -> Threads:
    """Return the threads of a computation: one thread is tried on a CPU, by a process that is alone, where
    the user has set no number.

    Args:
        fixed: whether the number must not depend on time.
    """
    free = device.type == "cpu" and world.size == 1 and not fixed
    return Threads(tell, tries=free and not any(os.environ.get(name) for name in VARIABLES))
