"""A model's output for every image of a dataset, in its order, and which class an output is of; and in which
precision a model answers: in bf16 where that is faster, and the answers are those in fp32."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from vitreous.checkpoints.weights import listing
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import ImageList
from vitreous.data.image_samples import SampleReader, evaluation_loader
from vitreous.errors import InputError, Param, utf8_name
from vitreous.extensions import CLASSES, outputs_of
from vitreous.languages.terminal import said
from vitreous.models.bit import BiT
from vitreous.models.model import Runnable, check_finite, modes_restored
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.outside import read_text, same_name
from vitreous.training.distributed import ALONE, World
from vitreous.training.machine import (
    WIDE,
    Precision,
    Threads,
    answering_precision,
    computing,
    pick_precision,
    weights_type,
)

MOST_KEPT = 1000  # classes of which all probabilities are kept: of 21,841, those of 50,000 images are 4 GiB
ProgressCallback = Callable[[int, int], None]
AGREEMENT = 0.995  # of top-1 answers with those in fp32: less, and a precision is not chosen
MEASURED = 128  # images
ANGLE = 2.0  # degrees between the features of an image in two precisions
WORTH = 512  # images: of fewer, comparing two precisions takes longer than the faster one saves
AGREED = "precision.json"  # beside the weights


class Batching(TypedDict, total=False):
    """How examples pass through a model.

    device: where it computes; by default the CPU. batch_size: by default 64. workers: threads that decode; 0,
    the default: the caller's. progress: called after each batch with the examples done and all of them.
    world: the processes that share the examples; each of them gets all outputs. threads: that compute; by
    default as many as there are.
    """

    device: str | torch.device
    batch_size: int
    workers: int
    progress: ProgressCallback | None
    world: World
    threads: Threads | None


class ModelOutputs(NamedTuple):
    """The outputs for the images that could be decoded."""

    indices: Int[np.ndarray, " N"]  # the number of each image in its dataset
    names: tuple[str, ...]  # its name there
    values: Shaped[Tensor, "N ..."]  # a row for each, on the CPU
    failed: Mapping[str, str]  # images that could not be decoded, and why
    damaged: Mapping[str, str]  # images that were read, but for a part that is missing, and what that is
    seconds: float  # from the first image to the last

    @property
    def evaluation_fields(self) -> dict[str, Any]:
        """What every evaluation has of them: everything but the values."""
        fields = self._asdict()
        del fields["values"]
        return fields


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Compute without gradients, with a model in evaluation mode; then restore its mode."""
    with modes_restored(model), torch.inference_mode():
        model.eval()
        yield


def compute_outputs(
    model: nn.Module,
    images: ImageDataset,
    compute: Callable[[Any], Tensor] | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    reader: SampleReader | None = None,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: ProgressCallback | None = None,
    world: World = ALONE,
    threads: Threads | None = None,
) -> ModelOutputs:
    """Pass every image through a model once, in evaluation mode; its mode is restored.

    Args:
        compute: what is computed of a batch, a row for each image; by default the model's output in float32.
        preprocessing: by default the model's.
        reader: makes batches of another kind than `Batch`.
        device, batch_size, workers, progress, world, threads: as in `Batching`.

    Raises:
        InputError: no image can be read, or the outputs are not finite.
    """
    shown: Any = preprocessing or model.preprocessing
    loader = evaluation_loader(
        images,
        preprocessing=shown,
        batch_size=batch_size,
        workers=workers,
        rank=world.rank,
        world_size=world.size,
        device=device,
        reader=reader,
    )
    compute = compute or (lambda batch: model(batch.images).float())
    started = time.perf_counter()
    indices: list[Tensor] = []
    values: list[Tensor] = []
    threads = threads or Threads(tries=False)
    with evaluating(model.to(device)), threads:
        for batch in loader:
            with threads.step():
                values.append(check_finite(compute(batch)).cpu())
            indices.append(batch.indices.cpu())
            if progress:
                done = world.size * (sum(map(len, indices)) + len(loader.bad))
                progress(min(done, len(images)), len(images))
    failed, damaged = dict(loader.bad), dict(loader.bad.damaged)
    if world.size > 1:
        parts = world.gather((indices, values, failed, damaged))
        indices, values, failed, damaged = [], [], {}, {}
        for its_indices, its_values, its_failed, its_damaged in parts:
            indices += its_indices
            values += its_values
            failed |= its_failed
            damaged |= its_damaged
    if not len(indices):
        name, why = next(iter(failed.items()))
        raise InputError(f"none of the {len(images)} images can be read: {name}: {why}")
    rows, order = torch.cat(indices).sort()
    found = torch.cat(values)[order] if world.size > 1 else torch.cat(values)
    names = tuple(utf8_name(images.name(row)) for row in rows.tolist())
    return ModelOutputs(rows.numpy(), names, found, failed, damaged, time.perf_counter() - started)


def number_outputs(model: nn.Module, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B outputs"]:
    """Return the numbers of a model that gives numbers in float32. Its head computes in float32 under
    autocast, too."""
    # A program has a precision of its own, and views of a model have no head.
    if not hasattr(model, "head"):
        return model(images).float()
    features = model.features(images)  # type: ignore[operator]
    head = model.get_submodule("head")
    with torch.autocast(images.device.type, enabled=False):
        return head(features.to(next(head.parameters()).dtype)).float()


def summaries(
    logits: Float[Tensor, "B classes"], targets: Int[Tensor, " B"], temperature: float
) -> Float[Tensor, "B columns"]:
    """Return what an evaluation keeps of each image: the most probable class, its probability, that of the
    true class, whether it is among the first five, the largest probability without the temperature that
    the logits are divided by; of up to 1,000 classes all probabilities, too."""
    probabilities = logits.softmax(dim=-1)
    confidence, predictions = probabilities.max(dim=-1)
    first = probabilities.topk(min(5, logits.shape[1])).indices
    before = confidence if temperature == 1 else (logits * temperature).softmax(dim=-1).amax(dim=-1)
    found = torch.stack(
        [
            predictions.float(),
            confidence,
            probabilities.gather(1, targets[:, None]).squeeze(1),
            (first == targets[:, None]).any(dim=1).float(),
            before,
        ],
        dim=1,
    )
    return torch.cat([found, probabilities], dim=1) if logits.shape[1] <= MOST_KEPT else found


def class_columns(labels: tuple[str, ...], images: ImageDataset) -> Int[Tensor, " classes"]:
    """Return the number of each of the images' classes among the labels."""
    places = {same_name(label): place for place, label in reversed([*enumerate(labels)])}
    return torch.tensor([places[same_name(label)] for label in images.classes])


def class_labels(model: ImageAnswerer, images: ImageDataset) -> tuple[str, ...]:
    """Return the label of each output of the model, among which every class of `images` is; those of the
    images where the model has none, when their number is right."""
    outputs = model.config.num_classes
    if outputs is None:
        raise InputError("the model has no head, so it cannot classify: train one, or use vitreous probe")
    if model.labels is None:
        if len(images.classes) != outputs:
            raise InputError(
                f"the data has {len(images.classes)} classes, and the model has {outputs} without names: "
                "evaluate it on data with the same classes"
            )
        return tuple(images.classes)
    known = set(map(same_name, model.labels))
    unknown = [repr(label) for label in images.classes if same_name(label) not in known]
    if unknown:
        its = listing([*map(repr, model.labels)])
        raise InputError(
            f"the model does not know {listing(unknown)}; its classes are {its}: name the classes of the "
            "data as the model does"
        )
    return tuple(model.labels)


ENLARGED = 9 / 8  # the size of which the corner crops are cut


class AveragedViews(nn.Module):
    """A model whose answer is the mean over views of an image: the image, its four corners, enlarged, and
    where that is allowed their mirror images. Of probabilities the outputs are the logits of the mean.

    Args:
        model: one that gives classes or numbers.
        mirrored: whether a mirrored image means the same.

    Raises:
        InputError: only its task can read the model's outputs.
    """

    def __init__(self, model: Runnable, *, mirrored: bool) -> None:
        super().__init__()
        if outputs_of(model) == "own":
            raise InputError(
                f"the outputs of a model for {model.task} cannot be averaged over views: leave out "
                f"{Param('tta')}"
            )
        self.model = model
        self.mirrored = mirrored
        self.config, self.preprocessing = model.config, model.preprocessing
        self.labels, self.task = model.labels, model.task
        self.temperature = 1.0  # a mean of probabilities has none

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B outputs"]:
        shown = tta_views(images, mirrored=self.mirrored)
        meaning = outputs_of(self.model)
        if meaning == "number":
            return torch.stack([number_outputs(self.model, view) for view in shown]).mean(dim=0)
        outputs = torch.stack([self.model(view).float() for view in shown])
        if meaning == "sigmoid":
            return outputs.sigmoid().mean(dim=0).logit(eps=1e-7)
        return outputs.log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(outputs))


ImageAnswerer = Runnable | AveragedViews


def tta_views(images: Float[Tensor, "B C H W"], *, mirrored: bool) -> list[Float[Tensor, "B C H W"]]:
    """Return the image, its four corners at 9/8 of the size, and all five mirrored where that is allowed."""
    height, width = images.shape[-2:]
    size = (round(height * ENLARGED), round(width * ENLARGED))
    large = F.interpolate(images, size=size, mode="bilinear", align_corners=False)
    down, right = size[0] - height, size[1] - width
    found = [images]
    for y, x in ((0, 0), (0, right), (down, 0), (down, right)):
        found.append(large[..., y : y + height, x : x + width])
    if mirrored:
        found += [view.flip(-1) for view in found]
    return found


def automatic_precision(
    model: Runnable,
    images: ImageDataset | None,
    wanted: str,
    device: torch.device,
    *,
    folder: Path | None = None,
    workers: int = 0,
    say: Callable[[str], None] = lambda sentence: None,
) -> Precision:
    """Return the precision of inference. "auto" is bf16 where the device gains from it, and its top-1 answers
    agree with those in fp32 for `AGREEMENT` of the images; the features of a model without a head are no
    answer, and must have the same direction, within `ANGLE`. Outputs that are not of classes stay in fp32.

    Args:
        images: to compare on, the first time; None: bf16 only if it was compared before.
        folder: of the weights, beside which the comparison is stored.
        say: is called with a sentence about it.
    """
    if wanted != "auto" or weights_type(model) != torch.float32:
        return answering_precision(wanted, device, model)
    if not isinstance(model, ViT | BiT):
        return "fp32"
    features = model.config.num_classes is None
    if not features and outputs_of(model) not in CLASSES:
        return "fp32"
    record = None if folder is None else folder / AGREED
    known: dict[str, Any] = {}
    if record is not None:
        with suppress(OSError, ValueError):
            known = json.loads(read_text(record))
    few = images is None or len(images) < WORTH
    # A few images without a comparison need no answer to what is faster, which itself takes a while.
    unknown = few and not known
    if unknown or pick_precision("auto", device, getattr(model.config, "width", WIDE)) == "fp32":
        return "fp32"
    weights = sum(float(each.detach().double().sum()) for each in model.parameters())  # differ by training
    here = {"device": str(device), "torch": torch.__version__, "weights": f"{weights:.12g}"}
    if features:
        here["compared by"] = "angle"
    if not here.items() <= known.items():
        if images is None or few:
            return "fp32"
        agreed, count = count_agreeing(model, images, device, workers)
        known = {**here, "agreed": agreed, "images": count}
        if record is not None:
            with suppress(OSError):
                record.write_text(json.dumps(known, indent=1), encoding="utf-8")
    chosen: Precision = "bf16" if known["agreed"] >= AGREEMENT * known["images"] else "fp32"
    seen = {"precision": chosen, "agreed": known["agreed"], "count": known["images"]}
    if features:
        say(
            said(
                "computing in {precision}: bf16 gives the same features as fp32, within {angle:g} degrees, "
                "for {agreed} of {count} calibration images",
                angle=ANGLE,
                **seen,
            )
        )
    else:
        say(
            said(
                "computing in {precision}: bf16 gives the same answer as fp32 for {agreed} of {count} "
                "calibration images",
                **seen,
            )
        )
    return chosen


def count_agreeing(
    model: Runnable, images: ImageDataset, device: torch.device, workers: int
) -> tuple[int, int]:
    """Return for how many images, and of how many, the answers in bf16 are those in fp32."""
    some = ImageList([image for _, image in images.readable(images.sample(MEASURED))])
    answers = []
    for precision in ("fp32", "bf16"):
        with computing(precision, device):
            found = compute_outputs(model, some, device=device, batch_size=16, workers=workers).values
        answers.append(found.flatten(1).double())
    exact, rounded = answers
    if model.config.num_classes is None:
        # All images have the mean in common, which would hide the angles.
        mean = exact.mean(dim=0)
        cosine = nn.functional.cosine_similarity(exact - mean, rounded - mean, dim=1)
        return int((cosine >= math.cos(math.radians(ANGLE))).sum()), len(some)
    return int((exact.argmax(dim=1) == rounded.argmax(dim=1)).sum()), len(some)
