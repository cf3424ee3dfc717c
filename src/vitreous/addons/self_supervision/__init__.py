"""Self-supervision beyond the paper's: contrastive learning, DINO, and the features of a teacher."""

from vitreous.extensions import Addon, TaskRow

HERE = "vitreous.addons.self_supervision"

ADDON = Addon(
    tasks=dict.fromkeys(
        ("contrastive", "dino", "distillation"), TaskRow(f"{HERE}.tasks", command="pretrain")
    ),
    recipes={"pretrain": ("recipes/dino.toml",)},
    words=True,
)
