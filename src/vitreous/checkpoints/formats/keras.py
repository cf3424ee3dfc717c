"""keras-hub's ViT (ViTBackbone, ViTImageClassifier): a .keras archive, .weights.h5 or the folder of a preset,
read under vit_jax's names, whose arrays have the same shapes. Its GELU is the exact one."""

from __future__ import annotations

import re
from dataclasses import replace

from vitreous.checkpoints.facts import CONFIG, TASK, Documents, Facts, Statements
from vitreous.checkpoints.format import Format, Spec
from vitreous.checkpoints.formats.google import BLOCK, POSITIONS, read_google
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.errors import InputError

ENCODER = "layers/vi_t_encoder/"
EMBEDDING = "layers/vi_t_patching_and_embedding/"
POOLINGS = {"token": "class", "gap": "mean-all"}
ATTENTION = {
    "mha/query_dense": "MultiHeadDotProductAttention_1/query",
    "mha/key_dense": "MultiHeadDotProductAttention_1/key",
    "mha/value_dense": "MultiHeadDotProductAttention_1/value",
}
LAYER = ATTENTION | {
    "mha/output_dense": "MultiHeadDotProductAttention_1/out",
    "layer_norm_1": "LayerNorm_0",
    "layer_norm_2": "LayerNorm_2",
    "mlp/dense_1": "MlpBlock_3/Dense_0",
    "mlp/dense_2": "MlpBlock_3/Dense_1",
}
BLOCK_NAME = re.compile(rf"{ENCODER}encoder_layers/vi_t_encoder_block(?:_(\d+))?/(.+)")


def vit_jax_name(name: str) -> str | None:
    """The name of a weight in vit_jax's files; None for another part."""
    part, _, number = name.rpartition("/vars/")
    last = {"0": "kernel", "1": "bias"}.get(number)
    if last is None:
        return None
    if match := BLOCK_NAME.fullmatch(part):
        theirs = LAYER.get(match[2])
        last = "scale" if last == "kernel" and "norm" in match[2] else last
        return theirs and f"{BLOCK.format(match[1] or 0)}/{theirs}/{last}"
    if part == f"{ENCODER}layer_norm":
        return f"Transformer/encoder_norm/{'scale' if last == 'kernel' else last}"
    if part == f"{EMBEDDING}patch_embedding":
        return f"embedding/{last}"
    if part == f"{EMBEDDING}position_embedding":
        return POSITIONS
    return "cls" if f"{part}/" == EMBEDDING else None


def read_keras(source: Source) -> Spec:
    inner = next(name.partition(ENCODER)[0] for name in source.tensors if ENCODER in name)
    described, head = source.facts.model, source.facts.model.part("head")
    entries: dict[str, Entry] = {}
    for name, entry in source.tensors.entries.items():
        if new := vit_jax_name(name.removeprefix(inner)):
            entries[new] = entry
    if (table := entries.get(POSITIONS)) is not None:
        entries[POSITIONS] = Entry((1, *table.shape), lambda: table.read()[None])
    for bias in ("embedding/bias", f"{BLOCK.format(0)}/MlpBlock_3/Dense_0/bias"):
        if bias not in entries:
            raise InputError(f"{source.where}: a ViT of keras-hub without {bias} is not known here")
    # one dense layer is the head; of two the first has a tanh
    denses = [name for name in ("layers/dense", "layers/dense_1") if f"{name}/vars/0" in source.tensors]
    for dense, name in zip(denses[::-1], ("head", "pre_logits"), strict=False):
        for number, kind in enumerate(("kernel", "bias")):
            entries[f"{name}/{kind}"] = source.tensors.entries[f"{dense}/vars/{number}"]
    fields: dict[str, object] = {"mlp": "gelu", "norm_eps": described.get("layer_norm_epsilon", 1e-6)}
    if denses:
        pooling = head.get("pooling", "token" if "cls" in entries else "gap")
        if pooling not in POOLINGS:
            raise InputError(f"{source.where}: pooling={pooling!r} of keras-hub is not known here")
        fields["pooling"] = POOLINGS[pooling]
        if not head:
            source.assumed.append(f"pooling={POOLINGS[pooling]} (or pass pooling=)")
        activation = head.get("activation")
        if activation not in (None, "linear"):
            source.assumed.append(
                f"the head's logits, before the {activation} that its classifier puts on them"
            )
    size = described.get("image_shape")
    if isinstance(size, list) and len(size) == 3:
        channels_first = described.get("data_format") == "channels_first"
        fields["stored_image_size"] = tuple(size[1:] if channels_first else size[:2])
    return read_google(replace(source.stating(fields), tensors=Tensors(entries)))


def keras_facts(documents: Documents, source: Source) -> Facts:
    """Return what config.json (or task.json, of a classifier) says of the backbone, and of the head under
    that name."""
    outer = documents.get(TASK, documents.get(CONFIG, {})).get("config")
    outer = outer if isinstance(outer, dict) else {}
    inner = outer.get("backbone")
    if not isinstance(inner, dict):
        return Facts(model=Statements(outer, source.where))
    found = inner.get("config")
    backbone = found if isinstance(found, dict) else {}
    return Facts(model=Statements({**backbone, "head": outer}, source.where))


KERAS = Format(
    name="keras-hub",
    about="keras-hub's ViT: .keras, .weights.h5 or the folder of a preset",
    keys=(r"(.*/)?layers/vi_t_encoder/layer_norm/vars/0",),
    read=read_keras,
    gather=keras_facts,
    interpolation="google",
)
