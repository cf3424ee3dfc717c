"""Multi-head attention: appendix A of the ViT paper (arXiv 2010.11929), section 3.2 of 1706.03762."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.layers.initialization import GoogleInit

Heads = Float[Tensor, "B K T E"]  # queries, keys or values
KeyAndValue = tuple[Float[Tensor, "B K S E"], Float[Tensor, "B K S E"]]
LogitBias = Float[Tensor, "#B #K #T S"]  # added to the attention logits: -inf where a token may not attend


def split_heads(z: Float[Tensor, "B T KE"], heads: int) -> Heads:
    """Split the heads: (B, T, K D_h) -> (B, K, T, D_h)"""
    return z.reshape(*z.shape[:2], heads, -1).transpose(1, 2)


def join_heads(heads: Heads) -> Float[Tensor, "B T KE"]:
    """Join the heads: (B, K, T, D_h) -> (B, T, K D_h)"""
    return heads.transpose(1, 2).flatten(2)


class NoAttentionPositions(nn.Module):
    """Return the query and the key as they are, and no attention bias."""

    def forward(self, query: Heads, key: Heads) -> tuple[Heads, Heads, None]:
        return query, key, None


class KeyValues:
    """Cache of the keys and values of a decoder from step to step; empty at first."""

    def __init__(self) -> None:
        self.cached: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        """Return the number of cached tokens."""
        return self.cached[0].shape[2] if self.cached else 0

    def extend(self, key: Heads, value: Heads) -> KeyAndValue:
        """Append new keys and values; return those of all tokens so far."""
        if self.cached:
            key, value = torch.cat([self.cached[0], key], dim=2), torch.cat([self.cached[1], value], dim=2)
        self.cached = key, value
        return self.cached

    def reorder(self, rows: Int[Tensor, "B2"]) -> None:
        """Replace row i by row rows[i], as a beam search chooses which beams continue."""
        if self.cached:
            self.cached = self.cached[0][rows], self.cached[1][rows]


class UnitLength(nn.Module):
    """Queries or keys of unit length, times a gain of each head and channel (ViT-22B's qk-norm as vit-pytorch
    has it). A gain of sqrt(D_h) is RMSNorm's."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(heads, 1, head_dim))

    def reset(self, init: GoogleInit) -> None:
        nn.init.constant_(self.gain, self.gain.shape[-1] ** 0.5)

    def forward(self, x: Heads) -> Heads:
        return F.normalize(x, dim=-1) * self.gain


class JointNorm(nn.Module):
    """One norm over the channels of all heads together (InternViT-6B's qk-norm).

    Args:
        norm: of heads * D_h channels.
    """

    def __init__(self, norm: nn.Module, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = norm, heads

    def forward(self, x: Heads) -> Heads:
        return split_heads(self.norm(join_heads(x)), self.heads)


class Attention(nn.Module):
    """Multi-head self-attention, MSA (paper, Eq. 5-8).

        [q, k, v] = z U_qkv          A = softmax(q k^T / sqrt(D_h))          MSA(z) = [A v; ...] U_msa

    Args:
        width: D, the width of a token.
        heads: k in the paper, K in our shapes.
        head_dim: D_h. The paper sets D_h = D / k; it is free here.
        qkv_bias: whether q, k and v have a bias.
        norm: makes the LayerNorm of each head's q and k ("qk-norm"), from its width; None for none.
        sub_norm: makes the LayerNorm before the projection ("sub-LN", arXiv 2210.06423); None for none.
        position: maps (q, k) to (q, k, attention bias): rotary or relative positions; None for neither.
        dropout: of the attention weights.
    """

    described: ClassVar = {"sub_norm": ("LayerNorm", "2210.06423"), "out": ("projection", "... U_msa, Eq. 8")}

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        head_dim: int,
        qkv_bias: bool = True,
        norm: Callable[[int], nn.Module] | None = None,
        sub_norm: Callable[[int], nn.Module] | None = None,
        position: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=qkv_bias)  # U_qkv; rows: q, k, v; heads inside
        self.query_norm = norm(head_dim) if norm else nn.Identity()
        self.key_norm = norm(head_dim) if norm else nn.Identity()
        self.position = position or NoAttentionPositions()
        self.dropout = dropout
        self.sub_norm = sub_norm(heads * head_dim) if sub_norm else nn.Identity()
        self.out = nn.Linear(heads * head_dim, width)  # U_msa

    def reset(self, init: GoogleInit) -> None:
        for part in self.qkv.weight.chunk(3):
            init.matrix(part)

    def project(self, z: Float[Tensor, "B T D"]) -> tuple[Heads, Heads, Heads, LogitBias | None]:
        """Return query, key and value of every head, and what is added to the logits before the softmax."""
        # Split q, k and v before the transpose: backward then makes one copy instead of two.
        query, key, value = (split_heads(each, self.heads) for each in self.qkv(z).chunk(3, dim=-1))
        query, key, bias = self.position(self.query_norm(query), self.key_norm(key))
        return query, key, value, bias

    def forward(
        self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None, past: KeyValues | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return MSA(z). `mask` is added to the logits: 0 where a token may attend, -inf where it may not.
        With a `past`, z are the tokens after those in it, and it is extended by them."""
        query, key, value, bias = self.project(z)
        if past is not None:
            key, value = past.extend(key, value)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, add_biases(bias, mask), dropout)
        return self.out(self.sub_norm(join_heads(attended)))

    def attention_weights(
        self, z: Float[Tensor, "B T D"], mask: LogitBias | None = None, past: KeyValues | None = None
    ) -> Float[Tensor, "B K T S"]:
        """Return the matrix A that `forward` uses for the same input; rows (queries) sum to one (Eq. 6)."""
        query, key, _, bias = self.project(z)
        if past is not None and past.cached:
            key = torch.cat([past.cached[0], key], dim=2)
        return attention_map(query, key, add_biases(bias, mask))


class CrossAttention(nn.Module):
    """Attention whose queries come from one sequence and whose keys and values come from another
    (1706.03762, section 3.2.3). Also the attention of a pooling head, whose query is learned."""

    described: ClassVar = {"out": ("projection", "... U_msa, Eq. 8")}

    def __init__(
        self, width: int, *, context_width: int, heads: int, head_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * head_dim)
        self.key_value = nn.Linear(context_width, 2 * heads * head_dim)  # rows: k, v; heads inside
        self.dropout = dropout
        self.out = nn.Linear(heads * head_dim, width)

    def reset(self, init: GoogleInit) -> None:
        for part in self.key_value.weight.chunk(2):
            init.matrix(part)

    def project_query(self, z: Float[Tensor, "B T D"]) -> Heads:
        return split_heads(self.query(z), self.heads)

    def project_context(self, context: Float[Tensor, "B S M"], past: KeyValues | None = None) -> KeyAndValue:
        """Return keys and values of the context; with a `past` they are computed at the first call only."""
        if past is not None and past.cached:
            return past.cached
        key, value = (split_heads(each, self.heads) for each in self.key_value(context).chunk(2, dim=-1))
        return (key, value) if past is None else past.extend(key, value)

    def forward(
        self,
        z: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S M"],
        mask: LogitBias | None = None,
        past: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"]:
        query, (key, value) = self.project_query(z), self.project_context(context, past)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        return self.out(join_heads(attended))

    def attention_weights(
        self,
        z: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S M"],
        mask: LogitBias | None = None,
        past: KeyValues | None = None,
    ) -> Float[Tensor, "B K T S"]:
        """Return the attention of every head for the same inputs; rows (queries) sum to one."""
        return attention_map(self.project_query(z), self.project_context(context, past)[0], mask)


def attention_map(
    query: Heads, key: Float[Tensor, "B K S E"], bias: LogitBias | None
) -> Float[Tensor, "B K T S"]:
    """Return softmax(q k^T / sqrt(D_h) + bias), which the fused kernel never materializes."""
    logits = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    return torch.softmax(logits if bias is None else logits + bias, dim=-1)


def add_biases(bias: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Return the sum of two optional terms of the attention logits."""
    if bias is None or mask is None:
        return mask if bias is None else bias
    return bias + mask
