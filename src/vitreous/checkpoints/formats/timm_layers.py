"""The encoder layers of timm's VisionTransformer and Eva, and of codebases that name theirs alike; and the
ResNetV2 before the patches of its hybrids."""

from __future__ import annotations

from typing import Any, NamedTuple

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.weights import Row, packed, pairs, same, stacked, without_bias

# Both sides call their encoder layers blocks.N.
BLOCK = "blocks.{}."
BLOCK_NAMES = {
    "attention_norm": "norm1",
    "attention.sub_norm": "attn.norm",
    "attention.out": "attn.proj",
    "attention.query_norm": "attn.q_norm",
    "attention.key_norm": "attn.k_norm",
    "mlp_norm": "norm2",
    "mlp.sub_norm": "mlp.norm",
    "mlp.expand": "mlp.fc1",
}


LAST = ("attention.out", "mlp.contract")


class Layers(NamedTuple):
    """What differs in the names of encoder layers.

    Attributes:
        projections: of q, k and v: one matrix or three.
        biases: of q, k and v; None for one that is zero and not stored.
        gates: SwiGLU's first matrix; two where gate and expansion are apart.
        contract: the last matrix of the MLP.
        scales: of LayerScale.
        plain: whether the attention's projection and the MLP have biases, as all but AIMv2 have.
    """

    projections: tuple[str, ...] = ("qkv.weight",)
    biases: tuple[str | None, ...] = ("qkv.bias",)
    gates: tuple[str, ...] = ("fc1",)
    contract: str = "fc2"
    scales: tuple[str, str] = ("ls1.gamma", "ls2.gamma")
    plain: bool = True

    def rows(self) -> list[Row]:
        """The table of the encoder layers."""
        attention, mlp = f"{BLOCK}attn.", f"{BLOCK}mlp."
        names = BLOCK_NAMES | {"mlp.contract": f"mlp.{self.contract}"}
        gates = [mlp + each for each in self.gates]
        expanding = packed(f"{BLOCK}mlp.gate_expand", gates)
        if not self.plain:
            expanding = [without_bias(f"{BLOCK}mlp.gate_expand", gates)]
            expanding += [without_bias(BLOCK + ours, [BLOCK + names.pop(ours)]) for ours in LAST]
        return [
            *pairs(names, BLOCK, BLOCK),
            stacked(f"{BLOCK}attention.qkv.weight", [attention + each for each in self.projections]),
            stacked(f"{BLOCK}attention.qkv.bias", [each and attention + each for each in self.biases]),
            *expanding,
            same(f"{BLOCK}attention_branch.scale.gamma", BLOCK + self.scales[0]),
            same(f"{BLOCK}mlp_branch.scale.gamma", BLOCK + self.scales[1]),
        ]


FUSED = Layers()
APART = ("q_proj", "k_proj", "v_proj")


def layers_of(source: Source) -> Layers:
    """The names that a file has."""
    first = {name.removeprefix("blocks.0.") for name in source.tensors if name.startswith("blocks.0.")}
    layers = FUSED
    if "attn.q_proj.weight" in first:
        biases = tuple(each if f"attn.{each}" in first else None for each in (f"{p}.bias" for p in APART))
        layers = layers._replace(projections=tuple(f"{p}.weight" for p in APART), biases=biases)
    elif "attn.q_bias" in first:
        layers = layers._replace(biases=("q_bias", None, "v_bias"))
    if "mlp.fc1_g.weight" in first:
        layers = layers._replace(gates=("fc1_g", "fc1_x"))
    if "attn.proj.bias" not in first:
        layers = layers._replace(plain=False)
    if "gamma_1" in first:
        layers = layers._replace(scales=("gamma_1", "gamma_2"))
    return layers


# The ResNetV2 of a hybrid.
RESNET_NAMES = {name: name for name in ("conv1", "conv2", "conv3", "norm1", "norm2", "norm3")} | {
    "shortcut.0": "downsample.conv",
    "shortcut.1": "downsample.norm",
}
# The root of a hybrid's ResNet; a ResNet that is its root alone has no `stem` in the name.
ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def root_of(layers: tuple[int, ...]) -> str:
    return ROOTS[0] if layers else ROOTS[1]


def hybrid_rows(layers: tuple[int, ...]) -> list[Row]:
    """The table of a ResNet with so many units in each stage."""
    root, units = root_of(layers), "patch_embed.backbone.stages.{}.blocks.{}."
    return [
        *pairs({"root": f"{root}.conv", "root_norm": f"{root}.norm"}, "stem.backbone."),
        *pairs(RESNET_NAMES, "stem.backbone.stages.{}.{}.", units),
    ]


def resnet_stem(source: Source) -> dict[str, Any]:
    """The ResNetV2 of a hybrid."""
    stages = "patch_embed.backbone.stages.{}.blocks.{}.conv3.weight"
    layers = source.units(stages, first=0)
    root = source.size(f"{root_of(layers)}.conv.weight", 0, ndim=4)
    return {
        "kind": "resnet",
        "layers": layers,
        "widths": tuple(source.size(stages.format(i, 0), 0, ndim=4) for i in range(len(layers))),
        "width_factor": root / 64,
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }
