"""Meta's Perception Encoders (arXiv 2504.13181) as their own code stores them, read under timm's names: the
image tower of PE-Core, a CLIP with attention pooling; PE-Lang and PE-Spatial, without pooling. Their rotary
positions are those of timm's architecture of the same width, since no weight shows them."""

from __future__ import annotations

from dataclasses import replace

import torch

from vitreous.checkpoints.format import Format, Spec
from vitreous.checkpoints.formats.timm import read_timm
from vitreous.checkpoints.formats.timm_facts import description_of, timm_facts
from vitreous.checkpoints.source import CONFIG, Source
from vitreous.checkpoints.tensors import Entry
from vitreous.errors import InputError

TOWER = "visual."
# By width, with attention pooling and without; of the latter PE-Lang has the positions of PE-Spatial.
CORE = {
    192: "vit_pe_core_tiny_patch16_384",
    384: "vit_pe_core_small_patch16_384",
    768: "vit_pe_core_base_patch16_224",
    1024: "vit_pe_core_large_patch14_336",
    1536: "vit_pe_core_gigantic_patch14_448",
}
WITHOUT_POOLING = {
    192: "vit_pe_spatial_tiny_patch16_512",
    384: "vit_pe_spatial_small_patch16_512",
    768: "vit_pe_spatial_base_patch16_512",
    1024: "vit_pe_spatial_large_patch14_448",
    1536: "vit_pe_spatial_gigantic_patch14_448",
}
NAMES = {
    r"conv1\.": "patch_embed.proj.",
    r"transformer\.resblocks\.": "blocks.",
    r"attn_pool\.probe": "attn_pool.latent",
    r"attn_pool\.layernorm\.": "attn_pool.norm.",
    r"attn_pool\.attn\.out_proj\.": "attn_pool.proj.",
    r"ln_pre\.": "norm_pre.",
    r"ln_post\.": "norm.",
    r"\.ln_": ".norm",
    r"ls_([12])\.gamma": r"gamma_\1",
    r"attn\.in_proj_": "attn.qkv.",
    r"\.out_proj\.": ".proj.",
    r"mlp\.c_fc\.": "mlp.fc1.",
    r"mlp\.c_proj\.": "mlp.fc2.",
}


def read_perception_encoder(source: Source) -> Spec:
    prefix = source.prefix("a Perception Encoder", (TOWER, ""), "conv1.weight")
    pooled = f"{prefix}attn_pool.probe" in source.tensors
    known = CORE if pooled else WITHOUT_POOLING
    width = source.size(f"{prefix}conv1.weight", 0, ndim=4)
    facts = source.facts
    if not facts.name:
        if width not in known:
            raise InputError(
                f"{source.where}: a Perception Encoder of width {width} is not one of Meta's: pass "
                "like='timm:NAME' with the architecture whose rotary positions it has"
            )
        facts = timm_facts({CONFIG: description_of(known[width])}, source)
        source.assumed.append(f"rotary positions and heads of timm's {known[width]}")
    tower = source.renamed(lambda name: name.removeprefix(prefix) if name.startswith(prefix) else None)
    tower = tower.under(NAMES)
    entries = dict(tower.tensors)
    for kind in ("weight", "bias") if pooled else ():
        query, key_value = split_in_projection(entries.pop(f"attn_pool.attn.qkv.{kind}"))
        entries |= {f"attn_pool.q.{kind}": query, f"attn_pool.kv.{kind}": key_value}
    changes = {"class_embedding": ("cls_token", (1, 1, width)), "positional_embedding": ("pos_embed", None)}
    for theirs, (ours, shape) in changes.items():
        if theirs in entries:
            entry = entries.pop(theirs)
            entries[ours] = reshaped(entry, shape or (1, *entry.shape))
    if "proj" in entries:
        projection = entries.pop("proj")
        classes = projection.shape[1]
        entries["head.weight"] = Entry((classes, width), lambda: projection.read().T.contiguous())
        entries["head.bias"] = Entry((classes,), lambda: torch.zeros(classes))
    found = read_timm(replace(tower, tensors=entries, facts=facts))
    return found._replace(task=None)


def split_in_projection(packed: Entry) -> tuple[Entry, Entry]:
    """Return the query, and key and value, of a packed in-projection."""
    width, rest = packed.shape[0] // 3, packed.shape[1:]
    query = Entry((width, *rest), lambda: packed.read()[:width])
    return query, Entry((2 * width, *rest), lambda: packed.read()[width:])


def reshaped(entry: Entry, shape: tuple[int, ...]) -> Entry:
    return Entry(shape, lambda: entry.read().reshape(shape))


PERCEPTION_ENCODER = Format(
    name="perception-encoder",
    about="Meta's Perception Encoder: a state dict of PE-Core, PE-Lang or PE-Spatial",
    # of the latter two no norm follows the layers, as one does in every CLIP
    keys=(
        r"(?:visual\.)?(?:attn_pool\.probe|conv1\.weight(?![\s\S]*^(?:visual\.)?ln_post\.))",
        r"(?:visual\.)?transformer\.resblocks\.0\.attn\.in_proj_weight",
        r"(?:visual\.)?ln_pre\.weight",
    ),
    families=("Perception Encoder", "PE-Lang, PE-Spatial"),
    read=read_perception_encoder,
    gather=timm_facts,
)
