"""From token ids to vectors and back: embeddings and positions of a sequence (1706.03762, 3.4 and 3.5).

Two more letters in shapes: S source tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.layers.attention import KeyValues
from vitreous.layers.initialization import GoogleInit


class TokenEmbedding(nn.Module):
    """A vector for each token of the vocabulary, multiplied by sqrt(D); the same matrix makes the logits
    (section 3.4: "we share the same weight matrix").

    Args:
        scale: whether a looked-up vector is multiplied by sqrt(D).
    """

    def __init__(self, vocabulary: int, width: int, *, scale: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        self.scale = math.sqrt(width) if scale else 1.0

    def reset(self, init: GoogleInit) -> None:
        init.table(self.weight, self.weight.shape[1] ** -0.5)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return F.embedding(ids, self.weight) * self.scale

    def logits(self, z: Float[Tensor, "B T D"], bias: Float[Tensor, "V"] | None) -> Float[Tensor, "B T V"]:
        """Return the logit of each token of the vocabulary: its product with z."""
        return F.linear(z, self.weight, bias)


class NoPositions(nn.Module):
    """Return the tokens as they are."""

    def forward(self, z: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        return z


class SinusoidalPositions(nn.Module):
    """Sines and cosines of the position, added (section 3.5).

    Args:
        computed: one of the functions below, with its arguments.
    """

    table: Tensor

    def __init__(self, computed: Callable[[], Float[Tensor, "length D"]]) -> None:
        super().__init__()
        self.computed = computed
        self.register_buffer("table", None, persistent=False)
        self.compute_buffers(torch.get_default_device())

    def compute_buffers(self, device: torch.device) -> None:
        self.table = self.computed().to(device)

    def forward(self, z: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Add the positions of tokens, of which the first is at `start`."""
        return z + self.table[start : start + z.shape[1]].to(z.dtype)


def sinusoids(length: int, width: int) -> Float[Tensor, "length D"]:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same (section 3.5)."""
    waves = sines_and_cosines(length, count=(width + 1) // 2, step=2 / width)
    return torch.stack(waves, dim=-1).flatten(1)[:, :width].float()


def halved_sinusoids(length: int, width: int) -> Float[Tensor, "length D"]:
    """Return the same numbers, all sines before all cosines, as in Marian."""
    table = sinusoids(length, width)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def fairseq_sinusoids(length: int, width: int, *, first: int) -> Float[Tensor, "length D"]:
    """Return the numbers as in fairseq: halved, the last wave 10000 times as long as the first, and the
    positions counted from `first`, which is the pad token plus one."""
    half = width // 2
    waves = sines_and_cosines(first + length, count=half, step=1 / max(half - 1, 1))
    return F.pad(torch.cat(waves, dim=1)[first:], (0, width % 2)).float()


def sines_and_cosines(
    length: int, *, count: int, step: float
) -> tuple[Float[Tensor, "length count"], Float[Tensor, "length count"]]:
    """Return the sines and cosines of pos / 10000^(i step), in double precision, on the CPU: the table is
    moved afterwards."""
    position = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
    omega = 10_000.0 ** (-step * torch.arange(count, dtype=torch.float64, device="cpu"))
    return (position * omega).sin(), (position * omega).cos()


class LearnedSequencePositions(nn.Module):
    """A free vector for each position. The first `offset` rows of the table are unused (BART's code
    reserves two)."""

    def __init__(self, length: int, width: int, *, offset: int) -> None:
        super().__init__()
        self.offset = offset
        self.table = nn.Parameter(torch.empty(length + offset, width))

    def reset(self, init: GoogleInit) -> None:
        init.table(self.table, 0.02)

    def forward(self, z: Float[Tensor, "B T D"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Add the positions of tokens, of which the first is at `start`."""
        first = self.offset + start
        return z + self.table[first : first + z.shape[1]]


def padding_mask(real: Tensor) -> Float[Tensor, "B 1 1 S"]:
    """Return what is added to attention logits so that padding is ignored. `real`: (B, S), true at tokens."""
    return torch.zeros(real.shape, device=real.device).masked_fill(~real.bool(), -torch.inf)[:, None, None]


def causal_mask(new: int, past: int = 0, *, device: torch.device | None = None) -> Float[Tensor, "1 1 T S"]:
    """Return what is added to attention logits so that a token sees itself and what came before, never what
    follows (section 3.2.3). `new` queries follow `past` tokens that all of them see."""
    mask = torch.full((new, past + new), -torch.inf, device=device)
    return mask.triu(diagonal=past + 1)[None, None]


class DecoderPast(NamedTuple):
    """Cache of a decoder block from step to step: keys and values of the tokens so far, and those of the
    context, which are computed once."""

    attention: KeyValues
    cross_attention: KeyValues


def pre_norm(z: Tensor, layer: nn.Module, norm: nn.Module, branch: nn.Module, *inputs: object) -> Tensor:
    """Return z + Layer(LN(z), inputs)"""
    return z + branch(layer(norm(z), *inputs))


def post_norm(z: Tensor, layer: nn.Module, norm: nn.Module, branch: nn.Module, *inputs: object) -> Tensor:
    """Return LN(z + Layer(z, inputs))"""
    return norm(z + branch(layer(z, *inputs)))


class DecoderBlock(nn.Module):
    """Causal self-attention, attention over the encoder's output, MLP (1706.03762, section 3.1).

    Args:
        residual: `pre_norm` or `post_norm`, for each of the three.
    """

    described: ClassVar = {
        "attention_norm": ("LayerNorm", "LN, 1706.03762"),
        "attention_branch": ("residual", "+ z, Eq. 2"),
        "cross_norm": ("LayerNorm", "LN, 1706.03762"),
        "cross_branch": ("residual", "1706.03762"),
        "mlp_norm": ("LayerNorm", "LN, 1706.03762"),
        "mlp_branch": ("residual", "+ z', Eq. 3"),
    }

    def __init__(
        self,
        *,
        attention: nn.Module,
        cross_attention: nn.Module,
        mlp: nn.Module,
        norms: tuple[nn.Module, nn.Module, nn.Module],
        branches: tuple[nn.Module, nn.Module, nn.Module],
        residual: Callable[..., Tensor],
    ) -> None:
        super().__init__()
        self.attention_norm, self.cross_norm, self.mlp_norm = norms
        self.attention, self.cross_attention, self.mlp = attention, cross_attention, mlp
        self.attention_branch, self.cross_branch, self.mlp_branch = branches
        self.residual = residual

    def forward(
        self,
        z: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S M"],
        mask: Float[Tensor, "#B #K #T U"] | None = None,
        context_mask: Float[Tensor, "#B #K #T S"] | None = None,
        past: DecoderPast | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the tokens after the layer. `past` is extended by them; without it, `z` is the whole
        sequence."""
        seen, known = past or (None, None)
        z = self.residual(z, self.attention, self.attention_norm, self.attention_branch, mask, seen)
        reads = context, context_mask, known
        z = self.residual(z, self.cross_attention, self.cross_norm, self.cross_branch, *reads)
        return self.residual(z, self.mlp, self.mlp_norm, self.mlp_branch)
