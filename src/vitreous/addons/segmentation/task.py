"""The task segmentation: a class for each pixel (Segmenter, arXiv 2105.05633)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from pydantic import model_validator
from torch import nn

from vitreous.addons.segmentation.digit_pages import DIGIT_PAGES
from vitreous.addons.segmentation.evaluation import SegmentationEvaluation, evaluate_segmenter, masks_of
from vitreous.addons.segmentation.folders import open_masked
from vitreous.addons.segmentation.masked import (
    IGNORED,
    Mask,
    MaskBatch,
    MaskedDataset,
    MaskReader,
    MaskSplits,
    mask_image,
    overlaid,
    palette,
)
from vitreous.addons.segmentation.model import SegmenterConfig
from vitreous.data.config import AugmentationConfig, DataConfig, RandAugmentConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import ImageRows
from vitreous.data.image_samples import rows_of
from vitreous.data.loading import BadFiles, Sample
from vitreous.deployment.classifier import output_labels
from vitreous.errors import InputError, Param, check_free, writing_to
from vitreous.languages.terminal import said
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import setting
from vitreous.models.preprocessing import ImagePreparation, Preparation
from vitreous.models.stored import BadImage, upright
from vitreous.results import percent
from vitreous.tasks.images import OPENING, READING, TRAINING, ImageTask, measured_preprocessing
from vitreous.tasks.recipe_choice import Reason, RecipeChoice, packaged_config
from vitreous.tasks.task import IMAGES, Card, RunResult, TaskInfo, Trained, Tree, get_held_out, module_of
from vitreous.training.config import RunConfig, TrainingConfig, length_of
from vitreous.training.initial_model import described_checkpoint
from vitreous.training.objectives import Measured, Objective
from vitreous.training.settings import configure, merged
from vitreous.whole_files import whole

RECIPES = Path(__file__).parent / "recipes"
LOOKS = 100_000  # at images, in a whole training
EPOCHS = (20, 400)  # fewest and most
LARGE = 192  # pixels of the shorter side, from which on images are shown at 256x256
CHANGES = ("random_resized_crop", "flip", "policy", "color_jitter", "noise")
FOR_CLASSES = {
    "training": ("loss", "distillation"),
    "evaluation": ("fewshot", "calibrate"),
    "data": ("class_balance",),
}
LARGE_STEM = {"widths": (32, 32, 64, 64, 128, 128, 192), "strides": (2, 1, 2, 1, 2, 1, 2)}


class SegmentationConfig(RunConfig):
    """The complete configuration of a segmentation run."""

    vit: ClassVar[type[ViTConfig]] = SegmenterConfig

    task: Literal["segmentation"] = setting("segmentation", "always segmentation")
    source: str = setting(DIGIT_PAGES, "the DATA argument")
    model: SegmenterConfig = SegmenterConfig()
    preprocessing: Preparation = ImagePreparation(resize="squash", interpolation="bilinear")

    @model_validator(mode="after")
    def _for_pixels(self) -> SegmentationConfig:
        shown = self.preprocessing
        if shown.resize != "squash" or shown.crop_fraction != 1:
            raise ValueError(
                "a segmenter sees whole images: set preprocessing.resize=squash and "
                "preprocessing.crop_fraction=1"
            )
        unused = set(AugmentationConfig.model_fields) - {*CHANGES}
        instead = f"cannot be applied to masks: leave it out; available are {', '.join(CHANGES)}"
        self.check_defaults("augmentation", sorted(unused), instead)
        if isinstance(self.augmentation.policy, RandAugmentConfig):
            raise ValueError(f"augmentation.policy=rand-augment {instead}")
        for group, names in FOR_CLASSES.items():
            self.check_defaults(group, names, "is for images that have one class each: leave it out")
        if self.data.read.in_memory != "auto":
            raise ValueError("data.reading.in_memory is for images that have one class each: leave it out")
        return self


def masks_config(data: MaskSplits) -> SegmentationConfig:
    """Return the configuration for a user's own images, from scratch: a small ViT after convolutions, at
    128x128 or, of images that are large enough, at 256x256; random crops, mirrored where that is asked for.
    """
    images = len(data.train)
    model: dict[str, Any] = {"num_classes": len(data.train.classes), "channels": data.summary.channels}
    if min(data.summary.height, data.summary.width) >= LARGE:
        model |= {"image_size": 256, "patch_size": 16, "stem": LARGE_STEM}
    epochs = min(max(LOOKS // images, EPOCHS[0]), EPOCHS[1])
    training = {"length": length_of(epochs=epochs), "batch_size": min(16, max(images // 4, 1))}
    shown = {"mean": (0.5,), "std": (0.25,)} if data.summary.channels == 1 else {}
    settings = {"source": data.name, "model": model, "preprocessing": shown, "training": training}
    settings = merged(settings, measured_preprocessing(data.summary))
    return packaged_config(SegmentationConfig, RECIPES / "masks.toml", settings)


def fine_tuning_config(data: MaskSplits) -> SegmentationConfig:
    """Return the same on the encoder of a checkpoint: a smaller rate, fewer epochs; its architecture and
    sizes come from the checkpoint. The mask Transformer, and one logit for each patch and class, as in the
    paper."""
    base = masks_config(data)
    epochs = max((base.training.epochs or 0) / 4, 10)
    training = {"peak_lr": 2e-4, "length": length_of(epochs=epochs)}
    model = {"cells": 1, "decoder": "mask-transformer"}
    return configure(base, {"recipe": "masks, fine-tuned", "model": model, "training": training})


UNCROPPED = {"resize": "squash", "crop_fraction": 1.0}  # however a checkpoint's images were cropped
NO_PATCHES = "{} has no patch tokens to make maps of: pass a ViT, such as ViT-Ti/16"


@dataclass(frozen=True)
class Segmented:
    """The classes of an image's pixels."""

    path: str
    shares: Mapping[str, float]  # the part of the pixels that each class has, largest first
    mask: Mask | None = None  # the class number of each pixel; None where it was written into a file
    files: tuple[Path, Path] | None = None  # the mask and the overlay, where they were written

    def to_json(self) -> dict[str, object]:
        written = {"mask": str(self.files[0]), "overlay": str(self.files[1])} if self.files else {}
        return {"path": self.path, **written, "shares": dict(self.shares)}

    def line(self) -> str:
        shares = ", ".join(f"{name} {percent(share)}" for name, share in self.shares.items())
        return f"{self.path}  {shares}" + (f"  ({self.files[0]})" if self.files else "")


def classes_and_colors(answerer: Any) -> dict[str, Any]:
    """Return the classes of masks, and the colors of their images."""
    classes = output_labels(answerer)
    return {"classes": classes, "palette": palette(len(classes)).tolist()}


def rows_at_own_size(answerer: Any, images: ImageDataset, **batching: Any) -> Iterator[ImageRows]:
    """Yield images upright and in the colors of the model, but at their own size: a list of PIL images
    for each batch."""
    model: Any = module_of(answerer)
    for start in range(0, len(images), batching["batch_size"]):
        rows, bad = range(start, min(start + batching["batch_size"], len(images))), BadFiles()
        read: dict[int, Image.Image] = {}
        for row in rows:
            try:
                opened = images.opened(row, model.preprocessing)
                read[row] = opened.upright()
            except BadImage as error:
                bad.add(error)
            else:
                bad.note(Sample.of(None, opened))
        yield rows_of(images, rows, read, [*read.values()], bad)


class Segmentation(ImageTask[SegmentationConfig, MaskSplits, nn.Module]):
    """Masks for images."""

    name, config = "segmentation", SegmentationConfig
    info = TaskInfo(
        noun="a segmenter",
        card=Card(
            "A Segmenter (arXiv 2105.05633): a Vision Transformer that gives each pixel a class",
            {
                "Classes": "{classes}",
                **IMAGES,
                "Patches": "{model.patch_size[0]}x{model.patch_size[1]}",
                "Decoder": "{model.decoder}, {model.cells}x{model.cells} logits of a class in a patch",
            },
            "predict RUN image.jpg --out masks/",
            "logits = model(model.preprocessing([image]))  # (1, classes, H, W) by model.labels",
            "The metrics apply to images like those it was evaluated on. Every pixel gets one of the "
            "classes, "
            "even if it shows none of them. Every image is resized to {model.image_size[0]}x"
            "{model.image_size[1]}, whatever its shape; details smaller than a pixel at that size are lost.",
        ),
        source=DIGIT_PAGES,
        panels="segmentation",
        has_classes=False,
        inspected=12,
        answer_folder="segmented",
        answer_metadata=classes_and_colors,
        image_rows=rows_at_own_size,
        options={
            "train": TRAINING,
            "evaluate": READING,
            "predict": OPENING | {"out"},
            "inspect": frozenset({"patch", "image_size"}),
        },
        instead={
            "recipe": f"use {Param('settings')}",
            "batch_size auto": f"use {Param('settings')} training.machine.grad_accum_steps=2",
        },
    )

    def open_source(self, source: Any, config: DataConfig, model: Any = None) -> MaskSplits:
        """Open DATA; where a model is evaluated on it, with the model's classes."""
        return open_masked(source, config, classes=tuple(getattr(model, "labels", None) or ()) or None)

    def choose(
        self, source: str, data: MaskSplits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> RecipeChoice[SegmentationConfig]:
        if str(settings.get("model", {}).get("name", "")).startswith("BiT"):
            raise InputError(NO_PATCHES.format(settings["model"]["name"]))
        count: dict[str, object] = {"images": len(data.train), "classes": len(data.train.classes)}
        if init:
            why = said("{images} images of {classes} classes, on the encoder of {init}", init=init, **count)
            return RecipeChoice(fine_tuning_config(data), (Reason(why),), ("pooling",))
        if source == DIGIT_PAGES:
            config = packaged_config(SegmentationConfig, RECIPES / "digit-pages.toml")
            return RecipeChoice(config, (Reason(said("the recipe made for the bundled pages of digits")),))
        config = masks_config(data)
        height, width = config.model.image_size
        why = said(
            "{images} images of {classes} classes: a small ViT after convolutions at {width}x{height}, "
            "{epochs:g} epochs",
            width=width,
            height=height,
            epochs=config.training.epochs,
            **count,
        )
        return RecipeChoice(config, (Reason(why),))

    def for_checkpoint(self, settings: Tree, init: str) -> dict[str, Any]:
        """Return the user's settings over images that are not cropped and a model without a norm after a
        pooling."""
        config, _ = described_checkpoint(init)
        if type(config) is not ViTConfig:  # but not a Segmenter, for example
            raise InputError(NO_PATCHES.format(init))
        changed = {"final_norm": "none"} if config.final_norm == "pooled" else {}
        return merged({"preprocessing": UNCROPPED, "model": changed}, settings)

    def reader(self, config: Any, data: MaskSplits) -> MaskReader:
        return MaskReader(data.train, config.prepared, config.augmentation)

    def objective(self, config: SegmentationConfig, data: MaskSplits) -> Objective:
        return segmentation(config.training)

    def validation_scores(
        self, config: SegmentationConfig, model: Any, images: MaskedDataset, **options: Any
    ) -> Mapping[str, float]:
        found = evaluate_segmenter(model, images, **options)
        return {"validation_miou": found.miou, "validation_accuracy": found.pixel_accuracy}

    def unsplit(self, source: str) -> Tree:
        """Return the settings that open data whole; the bundled pages are made of digits that are always
        split."""
        return {"validation_fraction": 0.0} if source == DIGIT_PAGES else super().unsplit(source)

    def evaluate(self, answerer: Any, examples: ImageDataset, **options: Any) -> SegmentationEvaluation:
        assert isinstance(examples, MaskedDataset)
        return evaluate_segmenter(answerer, examples, **options)

    def report(self, trained: Trained[SegmentationConfig, MaskSplits], result: RunResult) -> Path | None:
        images = get_held_out(self, trained.data)[1]
        if images is None:
            return None
        from vitreous.addons.segmentation.figures import write_segmentation_report

        shown: Any = {"evaluation": result.evaluation, "images": images, "findings": result.findings}
        return write_segmentation_report(trained.run.path, model=result.answerer, **shown)

    def extra_fields(self, trained: Trained[SegmentationConfig, MaskSplits]) -> dict[str, Any]:
        return {"classes": list(trained.data.train.classes)}

    def answer_function(
        self, answerer: Any, device: torch.device, **options: Any
    ) -> Callable[[Sequence[str], Sequence[Image.Image]], Iterable[Segmented]]:
        """Return what gives images their masks, as files in the folder `out`, if there is one."""
        classes, out = output_labels(answerer), options.get("out")
        files = mask_files(options["names"], out) if out else {}
        written: set[Path] = set()

        def segmented(names: Sequence[str], images: Sequence[Image.Image]) -> Iterator[Segmented]:
            for name, image, mask in zip(names, images, masks_of(answerer, images), strict=True):
                counts = np.bincount(mask.ravel(), minlength=len(classes)) / mask.size
                largest_first = np.argsort(-counts)
                shares = {classes[n]: float(counts[n]) for n in largest_first if counts[n]}
                if not out:
                    yield Segmented(name, shares, mask)
                    continue
                file = files[name]
                # An image that is named twice has its mask in one file.
                if file not in written:
                    save_png(mask_image(mask, len(classes)), file)
                    over = overlaid(np.asarray(upright(image)), mask, len(classes))
                    save_png(Image.fromarray(over), overlay_of(file))
                    written.add(file)
                yield Segmented(name, shares, files=(file, overlay_of(file)))

        return segmented


def overlay_of(mask: Path) -> Path:
    return mask.with_name(f"{mask.stem}-overlay.png")


def mask_files(names: Sequence[str], folder: Path) -> dict[str, Path]:
    """Return where the mask of each image goes: its own name, numbered where another mask or overlay has it;
    of one that is named twice the same. Raises InputError: there is such a file already."""
    places: dict[str, Path] = {}
    taken: set[Path] = set()
    for name in dict.fromkeys(names):
        stem, number = Path(name).stem, 2
        place = folder / f"{stem}.png"
        while not taken.isdisjoint((place, overlay_of(place))):
            place, number = folder / f"{stem}-{number}.png", number + 1
        places[name] = place
        taken |= {place, overlay_of(place)}
    for file in (each for place in places.values() for each in (place, overlay_of(place))):
        check_free(file)
    return places


def save_png(image: Image.Image, path: Path) -> None:
    """Write a PNG, atomically."""
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path, new=True) as partial:
            image.save(partial, format="PNG")


def segmentation(config: TrainingConfig) -> Objective:
    """Return the mean cross-entropy over all pixels that have a class (2105.05633, section 3.2). Of a batch
    in micro-batches or shared by processes, each takes the mean over its own pixels."""

    how: Any = {"ignore_index": IGNORED, "label_smoothing": config.label_smoothing, "reduction": "sum"}

    def objective(model: nn.Module, batch: MaskBatch, generator: torch.Generator) -> Measured:
        logits = model(batch.images).float()
        total = F.cross_entropy(logits, batch.masks, **how)
        known = batch.masks != IGNORED
        wanted, found = batch.masks[known], logits.detach().argmax(dim=1)[known]
        right = wanted[wanted == found]
        hits, present, claimed = (torch.bincount(each, minlength=IGNORED) for each in (right, wanted, found))
        union = present + claimed - hits
        count = known.sum().clamp_min(1)  # none where every pixel is ignored
        # Over the classes that the batch shows or that were found in it: a rough, early measure.
        miou = (hits / union.clamp_min(1)).sum() / (union > 0).sum().clamp_min(1)
        return total / count, {"accuracy": hits.sum() / count, "miou": miou}

    return objective


DEFINED = (Segmentation(),)
