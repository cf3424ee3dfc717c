"""Vision Transformers as other libraries write them: one function, in many ways of computing attention.

`TorchvisionViT` has the structure and the names of `torchvision.models.VisionTransformer`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, DEPTH, CLASSES = 32, 4, 3, 5


class TorchvisionBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(0.0)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.0), nn.Linear(2 * width, width)
        )

    def forward(self, z: Tensor) -> Tensor:
        normed = self.ln_1(z)
        attended, _ = self.self_attention(normed, normed, normed, need_weights=False)
        z = z + self.dropout(attended)
        return z + self.mlp(self.ln_2(z))


class TorchvisionEncoder(nn.Module):
    def __init__(self, tokens: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, width).normal_(std=0.02))
        layers = {f"encoder_layer_{i}": TorchvisionBlock(width, heads) for i in range(depth)}
        self.layers = nn.Sequential(OrderedDict(layers))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, z: Tensor) -> Tensor:
        return self.ln(self.layers(z + self.pos_embedding))


class TorchvisionViT(nn.Module):
    def __init__(self, image_size: int = 32, patch_size: int = 8) -> None:
        super().__init__()
        self.image_size = image_size
        self.conv_proj = nn.Conv2d(3, WIDTH, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.encoder = TorchvisionEncoder((image_size // patch_size) ** 2 + 1, WIDTH, HEADS, DEPTH)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(WIDTH, CLASSES)))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.conv_proj(images).flatten(2).transpose(1, 2)
        z = torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)
        return self.heads(self.encoder(z)[:, 0])


Computed = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v of each head to the attended values


def eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scaled = query * query.shape[-1] ** -0.5
    return F.dropout((scaled @ key.transpose(-2, -1)).softmax(dim=-1), 0.0) @ value


def by_einsum(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    logits = torch.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("bhij,bhjd->bhid", torch.softmax(logits, -1), value)


class OwnAttention(nn.Module):
    """An own attention module: packed q, k, v, as in timm."""

    def __init__(self, computed: Computed) -> None:
        super().__init__()
        self.computed = computed
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, z: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        query, key, value = self.qkv(z).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(self.computed(query, key, value).transpose(1, 2).flatten(2)), None


def torchvision_like() -> TorchvisionViT:
    return with_weights(TorchvisionViT())


def written_as(computed: Computed) -> TorchvisionViT:
    """The same function with attention that is written in another way."""
    model, twin = torchvision_like(), torchvision_like()
    for layer, other in zip(model.encoder.layers, twin.encoder.layers, strict=True):
        own = OwnAttention(computed)
        own.qkv.weight, own.qkv.bias = other.self_attention.in_proj_weight, other.self_attention.in_proj_bias
        own.proj.load_state_dict(other.self_attention.out_proj.state_dict())
        layer.self_attention = own
    return model.eval()


class WeightsAskedFor(nn.MultiheadAttention):
    """`nn.MultiheadAttention` that is asked for its weights, as notebooks do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **{**kwargs, "need_weights": True})


def asked_for_weights() -> TorchvisionViT:
    model = torchvision_like()
    for layer in model.encoder.layers:
        layer.self_attention.__class__ = WeightsAskedFor
    return model


class EncoderOfLayers(nn.Module):
    """PyTorch's own encoder layers, whose fast path is one operator: the same function again."""

    def __init__(self) -> None:
        super().__init__()
        base = torchvision_like()
        self.base = base
        self.stack = nn.ModuleList()
        for layer in base.encoder.layers:
            own = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 2 * WIDTH, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
            )
            own.self_attn.load_state_dict(layer.self_attention.state_dict())
            pairs = ((own.norm1, layer.ln_1), (own.norm2, layer.ln_2))
            for mine, theirs in (*pairs, (own.linear1, layer.mlp[0]), (own.linear2, layer.mlp[3])):
                mine.load_state_dict(theirs.state_dict())
            self.stack.append(own)
        base.encoder.layers = nn.Sequential()
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        patches = self.base.conv_proj(images).flatten(2).transpose(1, 2)
        z = torch.cat([self.base.class_token.expand(len(images), -1, -1), patches], dim=1)
        z = z + self.base.encoder.pos_embedding
        for layer in self.stack:
            z = layer(z)
        return self.base.heads(self.base.encoder.ln(z)[:, 0])


WAYS: dict[str, Callable[[], nn.Module]] = {
    "nn.MultiheadAttention": torchvision_like,
    "asked for weights": asked_for_weights,
    "softmax": partial(written_as, eager),
    "einsum": partial(written_as, by_einsum),
    "fused kernel": partial(written_as, F.scaled_dot_product_attention),
    "nn.TransformerEncoderLayer": EncoderOfLayers,
}


@torch.no_grad()
def with_weights(model: TorchvisionViT) -> TorchvisionViT:
    """Weights that are not zero, and the same each time."""
    rng = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        drawn = 0.2 * torch.randn(parameter.shape, generator=rng)
        parameter.copy_(drawn + 1 if "ln" in name and name.endswith("weight") else drawn)
    return model.eval()
