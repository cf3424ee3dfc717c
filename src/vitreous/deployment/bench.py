"""How fast a ViT is here, beside the same ViT of the peers that are installed.

All take turns, call by call, so that a machine that slows down slows all of them; a ratio is the median over
the rounds. The peers compute the same function's operations with weights of their own: sizes, not numbers,
decide the speed.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.deployment.engines import ENGINES, engine_named
from vitreous.errors import InputError, nearest
from vitreous.models.config import ViTConfig
from vitreous.models.names import build_model
from vitreous.models.program import Program
from vitreous.results import Result
from vitreous.training.precision import Precision, computing

Call = Callable[[], object]


class Contender(NamedTuple):
    """Images a second, and how many times as fast as vitreous in the same rounds."""

    name: str
    version: str
    images_per_second: float
    ratio: float


@dataclass(frozen=True)
class Comparison(Result):
    """absent: the peers that could not be imported, with the reason."""

    config: ViTConfig
    way: Way
    contenders: tuple[Contender, ...]
    absent: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "image_size": list(self.config.image_size),
            "batch_size": self.way.batch,
            "training": self.way.training,
            "precision": self.way.precision,
            "compiled": self.way.compiled,
            "device": str(self.way.device),
            "contenders": self.table(),
            "absent": self.absent,
        }

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each implementation."""
        return [each._asdict() for each in self.contenders]


class Way(NamedTuple):
    """How models are called: in training a step of AdamW, else the logits alone."""

    batch: int = 16
    rounds: int = 10
    training: bool = False
    precision: Precision = "fp32"
    compiled: bool = False
    device: torch.device = torch.device("cpu")


def compare(
    config: ViTConfig,
    way: Way,
    peers: Sequence[str] | None = None,
    *,
    program: Program | None = None,
) -> Comparison:
    """vitreous and its peers on the same images.

    Args:
        config: a plain ViT: the peers have no registers, relative positions, ...
        peers: of `PEERS`; None for all that are installed.
        program: an exported model of this configuration, which is compared too, under its engine's name.

    Raises:
        InputError: no such peer, or it is wanted and cannot be imported; the peers have no such model.
    """
    if unknown := [name for name in peers or () if name not in PEERS]:
        raise InputError(f"unknown peer {unknown[0]!r}: {nearest(unknown[0], list(PEERS))}")
    if not is_plain(config):
        if peers or program is None:
            raise InputError(
                "the peers have only plain ViTs of square images, with a head: compare a name such as "
                "ViT-B/16"
            )
        peers = ()
    models: dict[str, nn.Module] = {"vitreous": build_model(config)}
    packages = {"vitreous": "vitreous", **{name: peer.package for name, peer in PEERS.items()}}
    if program:
        engine = engine_named(program.path)
        models[engine], packages[engine] = program, ENGINES[engine].package
    absent = {}
    for name in PEERS if peers is None else peers:
        try:
            models[name] = PEERS[name].build(config)
        except Exception as error:  # whatever another package stumbles on when it is imported
            if peers is not None:
                raise InputError(f"{name} cannot be used here: {error}; leave it out of --peers") from error
            absent[name] = str(error).split("\n")[0]
    calls = {name: prepared(model, config, way) for name, model in models.items()}
    times = take_turns(calls, way)
    ours = times["vitreous"]
    contenders = tuple(
        Contender(
            name,
            version(packages[name]),
            round(way.batch / statistics.median(taken), 2),
            round(statistics.median(mine / theirs for mine, theirs in zip(ours, taken, strict=True)), 3),
        )
        for name, taken in times.items()
    )
    return Comparison(config, way, contenders, absent)


def take_turns(calls: Mapping[str, Call], way: Way) -> dict[str, list[float]]:
    """Seconds of each call of each; the order turns round from round to round."""
    for call in calls.values():  # compiling, and what is set up once
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(way.rounds):
        for name in calls if turn % 2 else reversed([*calls]):
            wait(way.device)
            began = time.perf_counter()
            calls[name]()
            wait(way.device)
            times[name].append(time.perf_counter() - began)
    return times


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def prepared(model: nn.Module, config: ViTConfig, way: Way) -> Call:
    """One call of a model, with everything that it needs."""
    model = model.to(way.device).train(way.training)
    compile_model = ENGINES["compiled"].prepare
    assert compile_model
    if way.compiled:
        model = torch.compile(model) if way.training else compile_model(model)  # type: ignore[assignment]
    random = torch.Generator().manual_seed(0)
    images = torch.randn(way.batch, config.channels, *config.image_size, generator=random).to(way.device)

    def answer() -> None:
        with torch.inference_mode(), computing(way.precision, way.device):
            model(images)

    if not way.training:
        return answer
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    targets = torch.randint(config.num_classes or 1, (way.batch,), generator=random).to(way.device)

    def step() -> None:
        optimizer.zero_grad()
        with computing(way.precision, way.device):
            loss = nn.functional.cross_entropy(logits(model(images)), targets)
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def logits(output: Any) -> Tensor:
    """Hugging Face wraps its logits."""
    return output if isinstance(output, Tensor) else output.logits


def is_plain(config: ViTConfig) -> bool:
    """Whether the peers have such a model: without registers, relative positions, ..."""
    sizes = ("image_size", "patch_size", "channels", "num_classes", "width", "depth", "heads", "mlp_dim")
    plain = ViTConfig(**{name: getattr(config, name) for name in sizes})
    return config == plain and config.num_classes is not None and len({*config.image_size}) == 1


# What each of them calls the sizes of a ViT.
NAMES = """
here         timm         huggingface          torchvision  vit-pytorch
image_size   img_size     image_size           image_size   image_size
patch_size   patch_size   patch_size           patch_size   patch_size
channels     in_chans     num_channels         -            channels
num_classes  num_classes  num_labels           num_classes  num_classes
width        embed_dim    hidden_size          hidden_dim   dim
depth        depth        num_hidden_layers    num_layers   depth
heads        num_heads    num_attention_heads  num_heads    heads
mlp_dim      -            intermediate_size    mlp_dim      mlp_dim
mlp_ratio    mlp_ratio    -                    -            -
head_dim     -            -                    -            dim_head
"""


def build_peer(peer: str, module: str, model: str, config: ViTConfig) -> nn.Module:
    """The model of a peer, from its class in its module; Hugging Face's takes a configuration."""
    sizes = config.model_dump(include={"channels", "num_classes", "width", "depth", "heads", "mlp_dim"})
    sizes |= {"image_size": config.image_size[0], "patch_size": config.patch_size[0]}
    sizes |= {"mlp_ratio": config.mlp_dim / config.width, "head_dim": config.width // config.heads}
    header, *rows = (line.split() for line in NAMES.split("\n") if line)
    column = header.index(peer)
    arguments = {row[column]: sizes[row[0]] for row in rows if row[column] != "-"}
    package = importlib.import_module(module)
    if peer == "huggingface":
        arguments = {"config": package.ViTConfig(**arguments)}
    built: nn.Module = getattr(package, model)(**arguments)
    return built


class Peer(NamedTuple):
    package: str
    build: Callable[[ViTConfig], nn.Module]


PEERS = {
    name: Peer(package, partial(build_peer, name, module, model))
    for name, package, module, model in (
        ("timm", "timm", "timm.models.vision_transformer", "VisionTransformer"),
        ("huggingface", "transformers", "transformers", "ViTForImageClassification"),
        ("torchvision", "torchvision", "torchvision.models", "VisionTransformer"),
        ("vit-pytorch", "vit-pytorch", "vit_pytorch", "ViT"),
    )
}
