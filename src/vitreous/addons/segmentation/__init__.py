"""A class for each pixel of an image (Segmenter, arXiv 2105.05633)."""

from vitreous.extensions import Addon, Kind, TaskRow

HERE = "vitreous.addons.segmentation"

# Names of the folders with images, and of those with their masks.
IMAGES, MASKS = ("images", "imgs", "image"), ("masks", "labels", "annotations", "mask")

ADDON = Addon(
    kinds={
        "Segmenter": Kind(
            config=f"{HERE}.model:SegmenterConfig",
            build=f"{HERE}.model:Segmenter",
            task="segmentation",
            prefix="Seg-",
            named=f"{HERE}.model:named",
            parameters={
                "Seg-Ti/16": 5_553_366,
                "Seg-Ti-Mask/16": 6_554_412,
                "Seg-S/16": 21_723_414,
                "Seg-S-Mask/16": 25_716_012,
                "Seg-B/16": 85_914_006,
                "Seg-B-Mask/16": 101_861_676,
                "Seg-L/16": 303_455_382,
                "Seg-L-Mask/16": 331_796_780,
            },
            source="Segmenter (2105.05633)",
            inspect=f"{HERE}.figures:write_segmenter_report",
        )
    },
    names={"Segmenter": f"{HERE}.model", "SegmenterConfig": f"{HERE}.model"},
    tasks={
        "segmentation": TaskRow(
            f"{HERE}.task",
            pipeline="image-segmentation",
            check=f"{HERE}.checking:check_masks",
            folders=(IMAGES, MASKS),
            data_help="with --task segmentation a folder with images/ and masks/",
        )
    },
    words=True,
)
