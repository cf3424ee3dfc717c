"""Encoder layers that are not one attention and then one MLP: several of each that read the same tokens
(arXiv 2203.09795) are one whose matrices lie beside one another; attention and MLP that share their first
matrix (ViT-22B, arXiv 2302.05442) are two with one each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.source import Source
from vitreous.checkpoints.tensors import Entry


class Branches(NamedTuple):
    """What the attentions, or the MLPs, of a layer are called.

    Attributes:
        several: how the names of each begin, with braces for the layer and its number.
        norm, wide, back, scale: the parts of each: LayerNorm, first and last matrix, LayerScale.
        one: what the LayerNorm and the two matrices of a single one are called.
        stacked: the matrices in the first: q, k and v, or one.
    """

    several: str
    norm: str
    wide: str
    back: str
    one: tuple[str, str, str]
    stacked: int
    scale: str = ""


def as_one_branch(source: Source, kinds: Sequence[Branches]) -> tuple[Source, int]:
    """Return the layers with one attention and one MLP each, and how many there were of them."""
    entries, most = dict(source.tensors), 1
    for kind in kinds:
        for layer in count():
            branches: list[dict[str, Entry]] = []
            for number in count():
                start = kind.several.format(layer, number)
                names = [name for name in entries if name.startswith(start)]
                if not names:
                    break
                branches.append({name.removeprefix(start): entries.pop(name) for name in names})
            if not branches:
                break
            most = len(branches)
            norm, wide, back = (name.format(layer) for name in kind.one)
            entries |= joined_branch(kind, branches, (norm, wide, back))
            known = {
                f"{part}.{of}" for part in (kind.norm, kind.wide, kind.back) for of in ("weight", "bias")
            }
            for number, branch in enumerate(branches):  # what is not supported keeps its name
                start = kind.several.format(layer, number)
                entries |= {
                    start + name: each for name, each in branch.items() if name not in {*known, kind.scale}
                }
    return replace(source, tensors=entries), most


def joined_branch(
    kind: Branches, branches: Sequence[dict[str, Entry]], names: tuple[str, str, str]
) -> dict[str, Entry]:
    """Return one branch that computes the sum of several. Their LayerNorms differ in gain and shift alone,
    which the matrices after them absorb, and LayerScale goes into those before it."""
    for part in (kind.norm, kind.wide, kind.back):
        for branch in branches:
            if f"{part}.weight" not in branch:
                return {}
    first = branches[0]
    width = first[f"{kind.norm}.weight"].shape[0]
    rows, inner = first[f"{kind.wide}.weight"].shape[0], first[f"{kind.back}.weight"].shape[1]
    norm, wide, back = names

    def stack(parts: Sequence[Tensor]) -> Tensor:
        thirds = [part.chunk(kind.stacked) for part in parts]
        return torch.cat([torch.cat(each) for each in zip(*thirds, strict=True)])

    def numbers(branch: dict[str, Entry], name: str, otherwise: float = 0.0) -> Tensor:
        return branch[name].read().float() if name in branch else torch.tensor(otherwise)

    def wide_weight() -> Tensor:
        return stack(
            [numbers(b, f"{kind.wide}.weight") * numbers(b, f"{kind.norm}.weight") for b in branches]
        )

    def wide_bias() -> Tensor:
        shifted = []
        for b in branches:
            shift = numbers(b, f"{kind.wide}.weight") @ numbers(b, f"{kind.norm}.bias").expand(width)
            shifted.append(shift + numbers(b, f"{kind.wide}.bias"))
        return stack(shifted)

    def back_weight() -> Tensor:
        scaled = [numbers(b, f"{kind.back}.weight") * scale_of(b).unsqueeze(-1) for b in branches]
        return torch.cat(scaled, dim=1)

    def back_bias() -> Tensor:
        return sum((numbers(b, f"{kind.back}.bias") * scale_of(b) for b in branches), torch.zeros(width))

    def scale_of(branch: dict[str, Entry]) -> Tensor:
        return numbers(branch, kind.scale, 1.0)

    many, shifts = len(branches), {}
    if f"{kind.norm}.bias" in first:
        shifts[f"{norm}.bias"] = Entry((width,), partial(torch.zeros, width))
    return shifts | {
        f"{norm}.weight": Entry((width,), partial(torch.ones, width)),
        f"{wide}.weight": Entry((many * rows, width), wide_weight),
        f"{wide}.bias": Entry((many * rows,), wide_bias),
        f"{back}.weight": Entry((width, many * inner), back_weight),
        f"{back}.bias": Entry((width,), back_bias),
    }


# Of timm's ParallelScalingBlock what timm's Block calls otherwise; a norm and a LayerScale are of both parts.
PARALLEL = {
    "in_norm.": ("norm1.", "norm2."),
    "ls.": ("ls1.", "ls2."),
    "q_norm.": ("attn.q_norm.",),
    "k_norm.": ("attn.k_norm.",),
    "attn_out_proj.": ("attn.proj.",),
    "mlp_out_proj.": ("mlp.fc2.",),
    "mlp_bias": ("mlp.fc1.bias",),
}


def with_parts_apart(source: Source) -> Source:
    """Separate attention and MLP of a model of timm's ParallelScalingBlock."""
    entries: dict[str, Entry] = {}
    for name, entry in source.tensors.items():
        block, _, part = name.partition(".")
        number, _, part = part.partition(".") if block == "blocks" else ("", "", "")
        start = f"blocks.{number}."
        if part in ("in_proj.weight", "in_proj.bias"):
            width = source.shape(f"{start}in_norm.weight")[0]
            of, hidden = part.rpartition(".")[2], entry.shape[0] - 3 * width
            entries[f"{start}mlp.fc1.{of}"] = tensor_rows(entry, 0, hidden)
            entries[f"{start}attn.qkv.{of}"] = tensor_rows(entry, hidden, entry.shape[0])
            continue
        old = next((each for each in PARALLEL if part.startswith(each)), "")
        for new in PARALLEL[old] if old else ():
            entries[start + new + part.removeprefix(old)] = entry
        if not old:
            entries[name] = entry
    return replace(source, tensors=entries).stating({"norm": "parallel"})


def tensor_rows(entry: Entry, first: int, last: int) -> Entry:
    """Return some rows of a tensor."""
    return Entry((last - first, *entry.shape[1:]), lambda: entry.read()[first:last])
