"""Semantic segmentation: a class for each pixel (Segmenter, arXiv 2105.05633)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from PIL import Image

from vitreous.checkpoints.whole_files import whole
from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.data.loading import worker_count
from vitreous.data.segmentation.digit_pages import DIGIT_PAGES, open_digit_pages
from vitreous.data.segmentation.folders import open_masked
from vitreous.data.segmentation.loading import mask_loader
from vitreous.data.segmentation.masked import Mask, MaskedDataset, MaskSplits
from vitreous.deployment.predictor import SegmentPredictor
from vitreous.deployment.serving.endpoints import Limits, Served
from vitreous.errors import InputError
from vitreous.evaluation.result import Evaluation
from vitreous.evaluation.segmentation import (
    SegmentationEvaluation,
    evaluate_segmenter,
    segmentation_monitor,
)
from vitreous.models.vit import ViT
from vitreous.tasks.classification import named_classes
from vitreous.tasks.images import Base, ImageTask
from vitreous.tasks.segmentation.config import SegmentationConfig
from vitreous.tasks.segmentation.objective import segmentation
from vitreous.tasks.segmentation.recipes import digit_pages_config, fine_tuning_config, masks_config
from vitreous.tasks.task import Card, Material, Measure, Progress, Tree
from vitreous.training.distributed import World
from vitreous.training.initial_model import checkpoint
from vitreous.training.objectives import Objective
from vitreous.training.run import Run, default_path
from vitreous.training.settings import merged

if TYPE_CHECKING:
    from vitreous.inspection.model_report import Question
    from vitreous.inspection.page import Inspection

WHOLE = {"resize": "squash", "crop_fraction": 1.0}  # however a checkpoint's images were cropped
NO_PATCHES = "{} has no patch tokens to make maps of: give a ViT, such as ViT-Ti/16"
OPENING = frozenset({"--image-size", "--set"})


@dataclass(frozen=True)
class Segmented:
    """The classes of an image's pixels.

    Attributes:
        shares: the part of the pixels that each class has, largest first.
        mask: the class number of each pixel; None where it was written into a file.
        files: the mask and the overlay, where they were written.
    """

    path: str
    shares: Mapping[str, float]
    mask: Mask | None = None
    files: tuple[Path, Path] | None = None

    def to_json(self) -> dict[str, Any]:
        written = {"mask": str(self.files[0]), "overlay": str(self.files[1])} if self.files else {}
        return {"path": self.path, **written, "shares": dict(self.shares)}

    def line(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        return f"{self.path}  {shares}" + (f"  ({self.files[0]})" if self.files else "")


class Segmentation(ImageTask):
    """Masks for images."""

    name = "segmentation"
    noun = "a segmenter"
    config = SegmentationConfig
    default_source = DIGIT_PAGES
    options: ClassVar[Mapping[str, frozenset[str]]] = {
        "train": frozenset({"--model", "--init", "--image-size", "--minutes", "--strict", "--workers"}),
        "evaluate": OPENING | {"--config", "--workers"},
        "predict": OPENING | {"--out"},
        "inspect": frozenset({"--patch", "--image-size"}),
        "serve": OPENING,
    }
    inspected = 12
    instead: ClassVar[Mapping[str, str]] = {
        "--recipe": "use --set",
        "--batch-size auto": "use --set training.accumulate=2",
    }

    def open_source(self, source: Any, config: DataConfig, **options: Any) -> MaskSplits:
        return open_masked(source, config, **options)

    def base(
        self, source: Any, data: MaskSplits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> Base:
        if str(settings.get("model", {}).get("name", "")).startswith("BiT"):
            raise InputError(NO_PATCHES.format(settings["model"]["name"]))
        count = f"{len(data.train)} images of {len(data.train.classes)} classes"
        if init:
            return Base(fine_tuning_config(data), (f"{count}, on the encoder of {init}",), ("pooling",))
        if source == DIGIT_PAGES:
            return Base(digit_pages_config(), ("the recipe made for the bundled pages of digits",))
        config = masks_config(data)
        height, width = config.model.image_size
        shape = f"a small ViT after convolutions at {height}x{width}, {config.training.epochs:g} epochs"
        return Base(config, (f"{count}: {shape}",))

    def for_checkpoint(self, settings: Tree, init: str) -> dict[str, Any]:
        """Images are not cropped, and there is no norm after a pooling."""
        loaded = checkpoint(init)
        if not isinstance(loaded, ViT):
            raise InputError(NO_PATCHES.format(init))
        changed = {"final_norm": "none"} if loaded.config.final_norm == "pooled" else {}
        return merged({"preprocessing": WHOLE, "model": changed}, settings)

    def prepare(
        self, config: SegmentationConfig, data: MaskSplits, *, device: torch.device, world: World
    ) -> Material:
        loader = mask_loader(
            data.train,
            preprocessing=config.preprocessing,
            augmentation=config.augmentation,
            batch_size=world.share(config.training.batch_size),
            seed=config.seed,
            workers=worker_count(config.data.workers),
            rank=world.rank,
            world_size=world.size,
            strict=config.data.strict,
            device=device,
        )
        return Material(loader, len(data.train), loader.bad)

    def objective(self, config: SegmentationConfig, data: MaskSplits) -> Objective:
        return segmentation(config.training)

    def validation(self, config: SegmentationConfig, data: MaskSplits) -> Measure | None:
        return segmentation_monitor(data.validation, batch_size=config.evaluation.batch_size)

    def unsplit(self, source: str) -> dict[str, Any]:
        """The bundled pages are made of digits that are always split."""
        return {"validation_fraction": 0.0} if source == DIGIT_PAGES else super().unsplit(source)

    def expected(self, model: Any) -> dict[str, Any]:
        return {"classes": tuple(model.labels or ()) or None}

    def evaluate(
        self,
        answerer: Any,
        examples: MaskedDataset,
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> SegmentationEvaluation:
        return evaluate_segmenter(
            answerer,
            examples,
            device=device,
            batch_size=batch_size,
            workers=workers,
            progress=progress,
        )

    def report(
        self, run: Run, answerer: Any, evaluation: Evaluation | None, examples: Any, data: Any, **more: Any
    ) -> Path | None:
        if evaluation is None:
            return None
        assert isinstance(evaluation, SegmentationEvaluation)
        from vitreous.inspection.run_report import write_segmentation_report

        return write_segmentation_report(run.path, model=answerer, evaluation=evaluation, images=examples)

    def more(self, run: Run, answerer: Any, material: Material, data: MaskSplits) -> dict[str, Any]:
        return {"classes": list(data.train.classes)}

    def card(self, config: SegmentationConfig, result: Mapping[str, Any]) -> Card:
        height, width = config.model.image_size
        rows, columns = config.model.patch_size
        model = config.model
        return Card(
            "A Segmenter (arXiv 2105.05633): a Vision Transformer that gives each pixel a class",
            {
                "Classes": named_classes(result),
                "Images": f"{height}x{width}, patches of {rows}x{columns}, {model.channels} channels",
                "Decoder": f"{model.decoder}, {model.cells}x{model.cells} logits of a class in a patch",
            },
            "predict RUN image.jpg --out masks/",
            "logits = model(model.preprocessing([image]))  # (1, classes, H, W) by model.labels",
            "The figures hold for images like those it was measured on. Every pixel gets one of the classes, "
            f"also where it shows none of them. An image is resized to {height}x{width} whatever its shape: "
            "what is smaller than a pixel there is lost.",
        )

    def predict(
        self,
        answerer: Any,
        images: ImageDataset,
        failed: dict[str, str],
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        **options: Any,
    ) -> Iterator[Segmented]:
        """Yield the mask of each image.

        Args:
            options: `out`, the folder for masks and overlays; without one masks are in the answers.
        """
        predictor = SegmentPredictor(answerer, device)
        out: Path | None = options.get("out")
        names = mask_files([images.name(row) for row in range(len(images))], out) if out else []
        for some in image_batches(images, batch_size, failed):
            masks = predictor.predict([image for _, image in some], batch_size=batch_size)
            for (row, image), mask in zip(some, masks, strict=True):
                shares = predictor.shares(mask)
                if not out:
                    yield Segmented(images.name(row), shares, mask)
                    continue
                over = overlay_of(names[row])
                save_png(predictor.image(mask), names[row])
                save_png(predictor.overlay(image, mask), over)
                yield Segmented(images.name(row), shares, files=(names[row], over))

    def inspect(self, answerer: Any, examples: Sequence[Any], folder: Path, question: Question) -> Inspection:
        from vitreous.inspection.segmentation_figures import write_segmenter_report

        return write_segmenter_report(answerer, examples, folder, question)

    def default_out(self, model: str) -> Path:
        return default_path(Path(model).name, root=Path("segmented"))

    def about_answers(self, answerer: Any) -> dict[str, Any]:
        predictor = SegmentPredictor(answerer, next(answerer.parameters()).device)
        return {"classes": list(predictor.classes), "palette": predictor.palette.tolist()}

    def serve(self, answerer: Any, device: torch.device, limits: Limits) -> Served:
        from vitreous.deployment.serving.segmenting import ImageSegmenter

        return ImageSegmenter(answerer, device, most_pixels=limits.pixels)

    def examples(self, run: Path, config: SegmentationConfig, count: int) -> Sequence[Image.Image]:
        """Return pages of held-out digits."""
        if config.source != DIGIT_PAGES:
            return ()
        pages = open_digit_pages(config.data).test
        assert pages is not None  # open_digit_pages insists on it
        return [pages.pair(row)[0] for row in range(count)]


def image_batches(
    images: ImageDataset, batch_size: int, failed: dict[str, str]
) -> Iterator[list[tuple[int, Image.Image]]]:
    """Yield the decoded images with their numbers, a batch at a time; `failed` takes what cannot be read."""
    for start in range(0, len(images), batch_size):
        some = []
        for row in range(start, min(start + batch_size, len(images))):
            try:
                some.append((row, images.image(row)))
            except BadImage as bad:
                failed[bad.name] = bad.reason
        if some:
            yield some


def overlay_of(mask: Path) -> Path:
    return mask.with_name(f"{mask.stem}-overlay.png")


def mask_files(paths: Sequence[str], folder: Path) -> list[Path]:
    """Return where the mask of each image goes: its own name, numbered where several have the same.

    Raises:
        InputError: there is such a file already.
    """
    names: dict[Path, None] = {}
    for path in paths:
        stem, number = Path(path).stem, 2
        place = folder / f"{stem}.png"
        while place in names:
            place, number = folder / f"{stem}-{number}.png", number + 1
        names[place] = None
    for place in names:
        for file in (place, overlay_of(place)):
            if file.exists():
                raise InputError(f"{file} exists already, and nothing is written over: choose another --out")
    return list(names)


def save_png(image: Image.Image, path: Path) -> None:
    """Write a PNG, atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial:
            image.save(partial, format="PNG")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another --out") from None


DEFINED = (Segmentation(),)
