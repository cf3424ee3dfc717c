"""What a codebase calls the parts of a ViT that is laid out as ours: one row of names for each family, and
from it the one table that reads and writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from torch import Tensor

from vitreous.checkpoints.canonicalize import held
from vitreous.checkpoints.format import PLAIN_VIT, Limits, tokens_and_positions
from vitreous.checkpoints.weights import (
    Row,
    linear_stem,
    packed,
    pairs,
    same,
    stacked,
    without_bias,
    write_rows,
)
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model


class Family(NamedTuple):
    """What tells the names and the parts of one family from those of another.

    Attributes:
        names: of the parts outside of the layers, by ours.
        layer: how the names of a layer begin, with braces for its number.
        layer_names: of the parts in it.
        attention: how the names of q, k and v begin, or of all in one; empty where they lie otherwise.
        biases: of these, where they are not called as the weights are; None for one that is zero and not
            stored.
        gates: SwiGLU's first matrix; two where gate and expansion are apart.
        after_gates: the last matrix of a gated MLP, where it is not that of other MLPs.
        scales: of LayerScale on the two branches.
        plain: whether the attention's projection and the MLP have biases, as all but AIMv2 have.
        tokens: before the patches, by ours; those `positioned` have a row among the positions; None for all.
        token_axes, table_axes: of the tokens and of the table of positions, as in `tokens_and_positions`.
        eps, activation: where there is no config.json.
        limits: what a model can be to be written as one of it.
        keep: parts that it knows, as in `canonical`.
        square: whether its own code knows only square images.
    """

    names: Mapping[str, str]
    layer: str
    layer_names: Mapping[str, str]
    attention: tuple[str, ...]
    biases: tuple[str | None, ...] | None = None
    gates: tuple[str, ...] = ()
    after_gates: str = ""
    scales: tuple[str, ...] = ()
    plain: bool = True
    tokens: Mapping[str, str] = {"class_token": "cls_token"}
    positions: str = "pos_embed"
    positioned: Collection[str] | None = None
    token_axes: int = 3
    table_axes: int = 3
    eps: float = 1e-6
    activation: str = "gelu"
    limits: Limits = PLAIN_VIT
    keep: tuple[str, ...] = ("qkv_bias",)
    square: bool = False

    def rows(self, *, gated: bool = False) -> list[Row]:
        """Return the table but for tokens and positions.

        Args:
            gated: whether the MLP is, where its matrices have other names then.
        """
        ours, theirs, names = "blocks.{}.", self.layer, dict(self.layer_names)
        if gated and self.after_gates:
            names["mlp.contract"] = self.after_gates
        gates = [theirs + each for each in self.gates if gated or not self.after_gates]
        biases = self.biases or [f"{each}bias" for each in self.attention]
        rows: list[Row] = []
        if not self.plain:
            rows.append(without_bias(f"{ours}mlp.gate_expand", gates))
            for last in ("attention.out", "mlp.contract"):
                rows.append(without_bias(ours + last, [theirs + names.pop(last)]))
        elif gates:
            rows += packed(f"{ours}mlp.gate_expand", gates)
        for branch, scale in zip(("attention", "mlp"), self.scales, strict=False):
            rows.append(same(f"{ours}{branch}_branch.scale.gamma", theirs + scale))
        if self.attention:
            weights = [f"{theirs}{each}weight" for each in self.attention]
            rows.append(stacked(f"{ours}attention.qkv.weight", weights))
            rows.append(stacked(f"{ours}attention.qkv.bias", [each and theirs + each for each in biases]))
        return [*pairs(self.names), *pairs(names, ours, theirs), *rows]

    def table(self, config: ViTConfig) -> list[Row]:
        """Return the whole table of a model."""
        positioned = self.tokens if self.positioned is None else self.positioned
        tokens = tokens_and_positions(
            config,
            self.tokens,
            self.positions,
            axes=self.token_axes,
            table_axes=self.table_axes,
            positioned=positioned,
        )
        rows = self.rows(gated=config.gated_mlp)
        if config.stem.kind == "patch" and config.stem.form == "linear":
            patches = f"{self.names['stem.projection']}.weight"
            rows = [linear_stem(patches, config.patch_size) if patches in row.theirs else row for row in rows]
        return [tokens, *rows]

    def write(self, model: Model, format: str, *, headless: bool = True) -> dict[str, Tensor]:
        """Return a model's weights under these names. Raises InputError: the family cannot hold it."""
        config, weights = held(model, format, self.limits, keep=self.keep, headless=headless)
        return write_rows(self.table(config), weights)
