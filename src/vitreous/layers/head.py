"""DeiT's pair of classifiers; every other head is one `nn.Linear`."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class DistilledHead(nn.Module):
    """One classifier for the class token, one for the distillation token, averaged at test time
    (DeiT, arXiv 2012.12877, section 4)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.classes = nn.Linear(width, num_classes)
        self.distillation = nn.Linear(width, num_classes)

    def both(
        self, y: Float[Tensor, "B 2 D"]
    ) -> tuple[Float[Tensor, "B classes"], Float[Tensor, "B classes"]]:
        """The logits of each token alone: one meets the labels in training, the other the teacher."""
        return self.classes(y[:, 0]), self.distillation(y[:, 1])

    def forward(self, y: Float[Tensor, "B 2 D"]) -> Float[Tensor, "B classes"]:
        classes, distillation = self.both(y)
        return (classes + distillation) / 2
