"""Self-supervision beyond the paper's: contrastive learning, DINO, and the features of a teacher."""

from vitreous.extensions import Addon

HERE = "vitreous.addons.self_supervision"

ADDON = Addon(
    tasks=dict.fromkeys(("contrastive", "dino", "distillation"), f"{HERE}.tasks"),
    training=dict.fromkeys(("contrastive", "dino", "distillation"), "pretrain"),
    pretraining_recipes=("recipes/dino.toml",),
    words=True,
)
