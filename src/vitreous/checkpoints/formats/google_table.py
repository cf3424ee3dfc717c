"""The tables of Google's .npz: which of their weights is which of ours, and the order of the axes."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor

from vitreous.checkpoints.weights import Row, Token, converted, same, tokens_and_positions
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig

BLOCK = "Transformer/encoderblock_{}"


def linear(ours: str, theirs: str) -> list[Row]:
    """A matrix (in, out) and its bias."""
    kernel = converted(f"{ours}.weight", f"{theirs}/kernel", lambda t: t.T, lambda t: t.T)
    return [kernel, same(f"{ours}.bias", f"{theirs}/bias")]


def norm(ours: str, theirs: str) -> list[Row]:
    return [same(f"{ours}.weight", f"{theirs}/scale"), same(f"{ours}.bias", f"{theirs}/bias")]


def convolution(ours: str, theirs: str) -> Row:
    return converted(
        f"{ours}.weight", f"{theirs}/kernel", lambda t: t.permute(3, 2, 0, 1), lambda t: t.permute(2, 3, 1, 0)
    )


def projected(ours: str, theirs: tuple[str, ...], heads: int) -> list[Row]:
    """Several projections into heads, (D, heads, head_dim) each, as one matrix of ours."""

    def read_kernels(*kernels: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([kernel.flatten(1).T for kernel in kernels]),)

    def write_kernels(weight: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.T.reshape(part.shape[1], heads, -1) for part in weight.chunk(len(theirs)))

    def read_biases(*biases: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([bias.flatten() for bias in biases]),)

    def write_biases(bias: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.reshape(heads, -1) for part in bias.chunk(len(theirs)))

    kernels, biases = (tuple(f"{name}/{kind}" for name in theirs) for kind in ("kernel", "bias"))
    return [
        Row((f"{ours}.weight",), kernels, read_kernels, write_kernels),
        Row((f"{ours}.bias",), biases, read_biases, write_biases),
    ]


def attention_out(ours: str, theirs: str, heads: int) -> list[Row]:
    """The projection out of the heads: (heads, head_dim, D)."""
    kernel = converted(
        f"{ours}.weight",
        f"{theirs}/kernel",
        lambda t: t.flatten(0, 1).T,
        lambda t: t.T.reshape(heads, -1, t.shape[0]),
    )
    return [kernel, same(f"{ours}.bias", f"{theirs}/bias")]


def mlp(ours: str, theirs: str) -> list[Row]:
    return [*linear(f"{ours}.expand", f"{theirs}/Dense_0"), *linear(f"{ours}.contract", f"{theirs}/Dense_1")]


def block_rows(ours: str, theirs: str, heads: int, *, numbered: bool) -> list[Row]:
    """One layer. vit_jax: LayerNorm_0, Attention_1, LayerNorm_2, Mlp_3; big_vision counts each kind."""
    attention, second, last = (1, 2, 3) if numbered else (0, 1, 0)
    theirs_attention = f"{theirs}/MultiHeadDotProductAttention_{attention}"
    qkv = (f"{theirs_attention}/query", f"{theirs_attention}/key", f"{theirs_attention}/value")
    return [
        *norm(f"{ours}.attention_norm", f"{theirs}/LayerNorm_0"),
        *projected(f"{ours}.attention.qkv", qkv, heads),
        *attention_out(f"{ours}.attention.out", f"{theirs_attention}/out", heads),
        *norm(f"{ours}.mlp_norm", f"{theirs}/LayerNorm_{second}"),
        *mlp(f"{ours}.mlp", f"{theirs}/MlpBlock_{last}"),
    ]


def stacked(layers: list[list[Row]]) -> list[Row]:
    """The rows of all layers where each of their arrays holds every layer, along its first axis."""

    def over_layers(row: Row) -> Any:
        return lambda *stacks: tuple(chain(*(row.read(*(s[i] for s in stacks)) for i in range(len(layers)))))

    def written(row: Row) -> Any:
        count = len(row.ours)
        return lambda *ours: tuple(
            torch.stack(parts)
            for parts in zip(
                *(row.write(*ours[i : i + count]) for i in range(0, len(ours), count)), strict=True
            )
        )

    return [
        Row(tuple(chain(*(row.ours for row in rows))), rows[0].theirs, over_layers(rows[0]), written(rows[0]))
        for rows in zip(*layers, strict=True)
    ]


def resnet_rows(ours: str, layers: tuple[int, ...], *, flat_norms: bool) -> list[Row]:
    """The ResNet. Hybrids store scale and bias of a GroupNorm as (1, 1, 1, C), big_vision's BiT as (C,)."""

    def group_norm(ours: str, theirs: str) -> list[Row]:
        shape = (-1,) if flat_norms else (1, 1, 1, -1)
        names = (("weight", "scale"), ("bias", "bias"))
        return [
            converted(f"{ours}.{mine}", f"{theirs}/{other}", torch.flatten, lambda t: t.reshape(shape))
            for mine, other in names
        ]

    rows = [convolution(f"{ours}.root", "conv_root"), *group_norm(f"{ours}.root_norm", "gn_root")]
    for stage, units in enumerate(layers):
        for unit in range(units):
            mine, theirs = f"{ours}.stages.{stage}.{unit}", f"block{stage + 1}/unit{unit + 1}"
            for part in (1, 2, 3):
                rows.append(convolution(f"{mine}.conv{part}", f"{theirs}/conv{part}"))
                rows += group_norm(f"{mine}.norm{part}", f"{theirs}/gn{part}")
            if unit == 0:  # each stage begins with more channels, so with a projected shortcut
                rows.append(convolution(f"{mine}.shortcut.0", f"{theirs}/conv_proj"))
                rows += group_norm(f"{mine}.shortcut.1", f"{theirs}/gn_proj")
    return rows


def vit_rows(config: ViTConfig, *, numbered: bool, scanned: bool = False) -> list[Row]:
    """The whole table of a ViT or a hybrid."""
    rows: list[Row] = []
    if config.stem.kind == "resnet":
        rows += resnet_rows("stem.backbone", config.stem.layers, flat_norms=False)
    rows += [convolution("stem.projection", "embedding"), same("stem.projection.bias", "embedding/bias")]
    names = ["cls"] if config.class_token else []
    tokens = [Token(name, (1, 1, config.width), positioned=numbered) for name in names]
    learned = "Transformer/posembed_input/pos_embedding" if numbered else "pos_embedding"
    rows.append(
        tokens_and_positions(
            tokens,
            position=learned if config.position.kind == "learned" else None,
            shape=(1, -1, config.width),
            width=config.width,
            with_class=len(tokens),
        )
    )
    name = "Transformer/encoderblock" if scanned else BLOCK
    layers = [
        block_rows(f"blocks.{i}", name.format(i), config.heads, numbered=numbered)
        for i in range(config.depth)
    ]
    rows += stacked(layers) if scanned else list(chain(*layers))
    rows += norm("norm", "Transformer/encoder_norm")
    if config.pooling == "attention":
        rows += map_rows(config)
    if config.representation_size:
        rows += linear("representation.linear", "pre_logits")
    if config.num_classes is not None:
        rows += linear("head", "head")
    return rows


def map_rows(config: ViTConfig) -> list[Row]:
    """Multi-head attention pooling."""
    attention = "MAPHead_0/MultiHeadDotProductAttention_0"
    return [
        same("pool.probe", "MAPHead_0/probe"),
        *projected("pool.attention.query", (f"{attention}/query",), config.heads),
        *projected("pool.attention.key_value", (f"{attention}/key", f"{attention}/value"), config.heads),
        *attention_out("pool.attention.out", f"{attention}/out", config.heads),
        *norm("pool.norm", "MAPHead_0/LayerNorm_0"),
        *mlp("pool.mlp", "MAPHead_0/MlpBlock_0"),
    ]


def bit_rows(config: BiTConfig) -> list[Row]:
    head = linear("head", "head") if config.num_classes is not None else []
    return [*resnet_rows("backbone", config.layers, flat_norms=True), *head]
