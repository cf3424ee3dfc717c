"""Segmenters, where a command meets one: judged anew, asked about images, looked into."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.cli.kinds import kind_in
from vitreous.cli.options import print_json, resized, tell_failed
from vitreous.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.models.segmenter import Segmenter


def is_segmenter(model: str) -> bool:
    """Whether MODEL is a segmenter's run, the folder of one, or a name such as Seg-B-Mask/16."""
    return kind_in(Path(model)) == "Segmenter" or (model.startswith("Seg-") and not Path(model).exists())


def opened(model: str, image_size: str | None, device: str) -> Segmenter:
    """The segmenter, on its device."""
    from vitreous.evaluation.trained import open_trained
    from vitreous.models.segmenter import Segmenter
    from vitreous.training.device import pick_device

    segmenter = open_trained(model, **resized(image_size)).to(pick_device(device))
    assert isinstance(segmenter, Segmenter)  # is_segmenter has been asked
    return segmenter


def judge_segmenter(
    run: str,
    data: str | None,
    settings: dict[str, Any],
    *,
    batch_size: int,
    image_size: str | None,
    device: str,
    json: bool,
) -> None:
    """`vitreous evaluate`: mean IoU on the run's held-out part, or on other data."""
    from vitreous.api.arguments import progress_bar
    from vitreous.cli.segmentation_task import print_scores
    from vitreous.evaluation.held_out import held_out_masks
    from vitreous.evaluation.segmentation import evaluate_segmenter

    model = opened(run, image_size, device)
    source, part, images = held_out_masks(run, data, settings, tuple(model.labels or ()) or None)
    with progress_bar("judging") as progress:
        evaluation = evaluate_segmenter(
            model,
            images,
            device=next(model.parameters()).device,
            batch_size=batch_size,
            progress=progress,
        )
    result = evaluation.to_json()
    if json:
        print_json({"run": run, "data": source, "part": part, **result})
        return
    print(f"{run} on {source}, {part}, in {evaluation.seconds:.1f} s")
    print_scores(result)
    for path, reason in evaluation.failed.items():
        print(f"could not be decoded: {path}: {reason}")


def segment_images(
    model: str,
    images: tuple[str, ...],
    *,
    out: Path | None,
    image_size: str | None,
    device: str,
    json: bool,
) -> int:
    """`vitreous predict`: a mask and an overlay for each image, and what part of it each class has."""
    from vitreous.data.dataset import BadImage
    from vitreous.data.image_list import Failure, ImageList, find_images
    from vitreous.deployment.segmenting import SegmentPredictor
    from vitreous.training.device import pick_device
    from vitreous.training.run import default_path

    paths, failed = find_images(images)
    predictor = SegmentPredictor(opened(model, image_size, device), pick_device(device))
    folder = out or default_path(Path(model).name, root=Path("segmented"))
    names = names_for(paths, folder)
    files = ImageList(paths)
    predictions: list[dict[str, Any]] = []
    for row, path in enumerate(paths):
        try:
            image = files.image(row)
            mask = predictor.predict([image])[0]
        except BadImage as bad:
            failed.append(Failure(bad.name, bad.reason))
            continue
        written = names[path]
        save(predictor.image(mask), written)
        over = written.with_name(f"{written.stem}-overlay.png")
        save(predictor.overlay(image, mask), over)
        predictions.append(
            {"path": path, "mask": str(written), "overlay": str(over), "shares": predictor.shares(mask)}
        )
    if json:
        print_json(
            {
                "predictions": predictions,
                "failed": [asdict(each) for each in failed],
                "classes": list(predictor.classes),
                "palette": predictor.palette.tolist(),
            }
        )
    else:
        for each in predictions:
            shares = ", ".join(f"{name} {share:.1%}" for name, share in each["shares"].items())
            print(f"{each['path']}  {shares}  ({each['mask']})")
    return tell_failed(failed)


def names_for(paths: list[str], folder: Path) -> dict[str, Path]:
    """Where the mask of each image goes: its own name, numbered where several have the same. Nothing is
    written over."""
    names: dict[str, Path] = {}
    for path in paths:
        stem, number = Path(path).stem, 2
        place = folder / f"{stem}.png"
        while place in names.values():
            place, number = folder / f"{stem}-{number}.png", number + 1
        names[path] = place
    for place in names.values():
        for file in (place, place.with_name(f"{place.stem}-overlay.png")):
            if file.exists():
                raise InputError(f"{file} exists already, and nothing is written over: choose another --out")
    return names


def save(image: Image.Image, path: Path) -> None:
    """A PNG, written beside and renamed."""
    from vitreous.checkpoints.whole_files import whole

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as beside:
            image.save(beside, format="PNG")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another --out") from None
