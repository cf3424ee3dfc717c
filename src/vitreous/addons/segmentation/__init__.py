"""A class for each pixel of an image (Segmenter, arXiv 2105.05633)."""

from vitreous.extensions import Addon, Kind

ADDON = Addon(
    kinds={
        "Segmenter": Kind(
            config="vitreous.models.segmenter:SegmenterConfig",
            build="vitreous.models.segmenter:Segmenter",
            task="segmentation",
            prefix="Seg-",
            named="vitreous.models.segmenter:named",
            names=tuple(f"Seg-{size}{mask}/16" for size in ("Ti", "S", "B", "L") for mask in ("", "-Mask")),
            source="Segmenter (2105.05633)",
        )
    },
)
