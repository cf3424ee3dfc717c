"""OpenMMLab's ViT, DeiT and BEiT (mmpretrain, mmcls, the backbones of mmseg): a state dict, read under timm's
names."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from vitreous.checkpoints.format import Format, Spec
from vitreous.checkpoints.formats.timm import read_timm
from vitreous.checkpoints.source import Documents, Facts, Source, Statements
from vitreous.checkpoints.training_facts import plain_facts, training_statements
from vitreous.checkpoints.weights import pairs
from vitreous.models.config import ViTConfig

NAMES = {
    r"^patch_embed\.projection\.": "patch_embed.proj.",
    r"^(pre_norm|ln_pre)\.": "norm_pre.",
    r"^ln1\.": "norm.",
    r"^ln2\.": "fc_norm.",
    r"^layers\.": "blocks.",
    r"\.ln([12])\.": r".norm\1.",
    r"\.attn\.attn\.in_proj_": ".attn.qkv.",  # of mmseg, in PyTorch's attention
    r"\.attn\.attn\.out_proj\.": ".attn.proj.",
    r"\.attn\.gamma1\.weight$": ".ls1.gamma",
    r"\.ffn\.gamma2\.weight$": ".ls2.gamma",
    r"\.ffn\.layers\.0\.0\.": ".mlp.fc1.",
    r"\.ffn\.layers\.1\.": ".mlp.fc2.",
    r"\.ffn\.w12\.": ".mlp.fc1.",
    r"\.ffn\.w3\.": ".mlp.fc2.",
    r"^head\.layers\.head(_dist)?\.": r"head\1.",
    r"^head\.fc\.": "head.",
}
HIDDEN = "head.layers.pre_logits"


def read_openmmlab(source: Source) -> Spec:
    source = source.under(NAMES)
    last = {"norm": "tokens", "fc_norm": "pooled"}
    norms = [where for name, where in last.items() if f"{name}.weight" in source.tensors]
    stated = {
        "norm_eps": 1e-6,
        "final_norm": "both" if len(norms) == 2 else (*norms, "none")[0],
        "representation_size": source.size_if_there(f"{HIDDEN}.weight", 0, ndim=2),
    }
    colors, family = dict(source.facts.images), "OpenMMLab's ViT"
    if colors:
        family = f"{family}, but for its colors"
    source = replace(source, facts=replace(source.facts, images=Statements()))
    found = read_timm(source.stating(stated), family, crop_fraction=1.0, **colors)
    assert isinstance(found.config, ViTConfig)
    more = {"representation.linear": HIDDEN} if stated["representation_size"] else {}
    more |= {"pool.norm": "fc_norm"} if found.config.final_norm == "both" else {}
    return found._replace(rows=[*found.rows, *pairs(more)])


def openmmlab_facts(documents: Documents, source: Source) -> Facts:
    """Return what the `meta` of a training file says: the configuration, a program that is not run, and the
    classes."""
    said = training_statements(documents).values
    colors: dict[str, object] = {}
    for name in ("mean", "std"):
        if is_numbers(value := said.get(name)):
            colors[name] = tuple(each / 255 for each in value)
    classes = said.get("classes", said.get("CLASSES"))
    labels = [str(each) for each in classes] if isinstance(classes, list | tuple) else None
    return replace(plain_facts(documents, source), images=Statements(colors), labels=labels)


def is_numbers(value: object) -> TypeGuard[list[float]]:
    """Return whether there is a number for each color."""
    return isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value)


OPENMMLAB = Format(
    name="openmmlab",
    about="OpenMMLab's ViT and DeiT (mmpretrain, mmcls, mmseg): a state dict",
    families=("ViT", "DeiT", "BEiT, BEiT v2"),
    keys=(r"layers\.0\.ln1\.weight", r"patch_embed\.projection\.weight"),
    read=read_openmmlab,
    gather=openmmlab_facts,
    unsaid=("heads",),
    outer_names=("head.",),
)
