"""One decoder block: causal self-attention, attention over the encoder's output, MLP, each on a residual
branch (1706.03762, section 3.1, Fig. 1 right). The parts are those of the encoder."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.attention import KeyValues


class DecoderPast(NamedTuple):
    """Cache of a decoder block from step to step: keys and values of the tokens so far, and those of the
    context, which are computed once."""

    attention: KeyValues
    cross_attention: KeyValues


NO_PAST = None, None


class DecoderBlock(nn.Module):
    """The parts of a block; its two kinds differ in where the norms are applied."""

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
    ) -> None:
        super().__init__()
        self.attention_norm, self.cross_norm, self.mlp_norm = norms
        self.attention, self.cross_attention, self.mlp = attention, cross_attention, mlp
        self.attention_branch, self.cross_branch, self.mlp_branch = branches


class PreNormDecoderBlock(DecoderBlock):
    """z' = MSA(LN(z)) + z;  z'' = CrossAttention(LN(z'), context) + z';  z = MLP(LN(z'')) + z''."""

    def forward(
        self,
        z: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S M"],
        mask: Float[Tensor, "#B #K #T U"] | None = None,
        context_mask: Float[Tensor, "#B #K #T S"] | None = None,
        past: DecoderPast | None = None,
    ) -> Float[Tensor, "B T D"]:
        """`past` is extended by these tokens; without it, `z` is the whole sequence."""
        seen, known = past or NO_PAST
        z = z + self.attention_branch(self.attention(self.attention_norm(z), mask, seen))
        z = z + self.cross_branch(self.cross_attention(self.cross_norm(z), context, context_mask, known))
        return z + self.mlp_branch(self.mlp(self.mlp_norm(z)))


class PostNormDecoderBlock(DecoderBlock):
    """z' = LN(z + MSA(z));  z'' = LN(z' + CrossAttention(z', context));  z = LN(z'' + MLP(z''))."""

    def forward(
        self,
        z: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S M"],
        mask: Float[Tensor, "#B #K #T U"] | None = None,
        context_mask: Float[Tensor, "#B #K #T S"] | None = None,
        past: DecoderPast | None = None,
    ) -> Float[Tensor, "B T D"]:
        """`past` is extended by these tokens; without it, `z` is the whole sequence."""
        seen, known = past or NO_PAST
        z = self.attention_norm(z + self.attention_branch(self.attention(z, mask, seen)))
        z = self.cross_norm(z + self.cross_branch(self.cross_attention(z, context, context_mask, known)))
        return self.mlp_norm(z + self.mlp_branch(self.mlp(z)))
