"""What open_clip_config.json says, with the defaults of open_clip field by field."""

from __future__ import annotations

from dataclasses import replace

from vitreous.checkpoints.facts import OPEN_CLIP, Documents, Facts, Statements
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.errors import InputError

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# Of open_clip's PreprocessCfg.
IMAGES = {
    "size": None,
    "mean": list(CLIP_MEAN),
    "std": list(CLIP_STD),
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def open_clip_facts(documents: Documents, source: Source) -> Facts:
    """Return what open_clip_config.json says of the tower that sees images, and whether QuickGELU is that of
    the whole. Raises InputError: it describes no tower."""
    plain = plain_facts(documents, source)
    if OPEN_CLIP not in documents:
        return plain
    described = documents[OPEN_CLIP]
    model = described.get("model_cfg", {})
    if not (isinstance(model, dict) and isinstance(model.get("vision_cfg", {}), dict)):
        raise InputError(
            f"{source.where}: {OPEN_CLIP} is not understood: it has no model_cfg with a vision_cfg"
        )
    tower = {"quick_gelu": bool(model.get("quick_gelu")), **model.get("vision_cfg", {})}
    look = Statements(described, source.where).part("preprocess_cfg")
    stated = {name: look[name] for name in IMAGES if look.get(name) is not None}
    return replace(
        plain,
        name=str(tower.get("timm_model_name") or "clip"),
        model=Statements(tower, source.where),
        images=Statements({**IMAGES, **stated}, source.where),
    )
