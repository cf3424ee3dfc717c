"""Which class is taken for which, whether images were counted or pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

from vitreous.inspection.charts import matrix
from vitreous.inspection.page import Exhibit, LeftOut

MOST_CLASSES = 40  # in a chart that one can still read


def confusion_exhibit(
    counts: Int[np.ndarray, "classes classes"],
    classes: Sequence[str],
    *,
    number: Callable[[int, float], str],
    caption: str,
) -> Exhibit | LeftOut:
    """A square for each pair of classes, as deep as the share of its row.

    Args:
        counts: what is of class [row] and was called [column].
        number: what stands in a square, from its count and its share.
    """
    title = "What is taken for what"
    if len(classes) > MOST_CLASSES:
        return LeftOut(title, f"{len(classes)} classes are too many to read in a matrix")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    chart = matrix(
        shares,
        rows=classes,
        columns=classes,
        title="",
        axes_names=("is", "was called"),
        numbers=[
            [number(int(count), float(share)) for count, share in zip(*row, strict=True)]
            for row in zip(counts, shares, strict=True)
        ],
    )
    return Exhibit(name="confusion", title=title, caption=caption, html=chart.inline())
