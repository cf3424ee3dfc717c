"""A model into any format that can hold it, and to the Hugging Face hub. What was written is read back, both
models see the same images, and only then does the file take its name."""

from __future__ import annotations

import logging
import math
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from vitreous import __version__
from vitreous.checkpoints.canonicalize import without_parts
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.loading import load_image_model
from vitreous.checkpoints.model_card import check_license, write_card
from vitreous.checkpoints.native import check_labels
from vitreous.checkpoints.weights import attributes_of, load_weights, meta_model, stored_weights
from vitreous.errors import InputError, check_free, nearest, require_packages, writing_to
from vitreous.extensions import outputs_of
from vitreous.models.bit import BiT
from vitreous.models.ensemble import Ensemble
from vitreous.models.model import Model, WithEncoder
from vitreous.outside import read_text
from vitreous.whole_files import take_new_name, unfinished

OVERWRITE = "choose another path, or pass overwrite=True"
TOLERANCE = 2e-5  # of the largest output, and of 1 where all are smaller
log = logging.getLogger(__name__)


def save(
    model: Model | nn.Module,
    path: str | Path,
    *,
    format: str = "vitreous",
    drop: Sequence[str] = (),
    license: str | None = None,
    overwrite: bool = False,
) -> float:
    """Write `model` in a format, read it back, and compare the outputs. A folder also gets a model card
    (README.md).

        save(model, "out.npz", format="google")
        save(model, "folder", format="huggingface", drop=("representation_size",))
        save(mae, "mae.pth", format="timm")  # a whole MAE, in the layout of its authors

    Example:
        >>> model = vt.create("ViT-Ti/16", num_classes=10, image_size=32)
        >>> vt.save(model, "vit.pth", format="torchvision") < 2e-5
        True

    Args:
        model: an image model; or a `vitreous.MAE`, as timm (a .pth of facebookresearch/mae) or huggingface.
        path: a folder for vitreous, timm, huggingface and aimv2 (for timm also a file, the state dict
            alone); a file for the others.
        format: one of `vitreous.list_formats()` that can be written.
        drop: parts to leave out because the format cannot represent them: "representation_size" (with its
            head) or "head"; or parts to approximate by the format's own: "mlp", "norm_eps",
            "stem.standardization".
        license: for the card: apache-2.0, cc-by-nc-4.0 ...; by default that of the model's origin.
        overwrite: whether existing content at `path` may be replaced: a file, or the files of the same names
            in a folder, except for README.md.

    Returns:
        The largest absolute difference between the outputs of `model` (without the dropped parts) and of the
        model that was read back, for two random images.

    Raises:
        InputError: the format cannot represent a part (the message names it), the number of labels differs
            from the number of outputs, the path already exists, has a wrong extension or cannot be written,
            or the difference is too large. Nothing is written then.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"cannot save {model!r:.60}: pass a model that vitreous.load returns")
    if any(each.is_meta for each in model.parameters()):
        raise InputError("a model on the meta device has no weights to save: load it with vitreous.load")
    if not isinstance(model, Model) and (own := getattr(model, "save", None)):
        if drop:
            raise InputError(f"{type(model).__name__} is saved as a whole: leave out drop")
        return float(own(path, format=format, license=license, overwrite=overwrite))
    writers = {name: each for name, each in checkpoint_formats().items() if each.write}
    if format not in writers:
        raise InputError(f"unknown format {format!r}: {nearest(format, list(writers))}")
    if not isinstance(model, Model):
        raise InputError(f"a {type(model).__name__} is saved by its run; save writes only image models")
    if isinstance(model, Ensemble) and format != "vitreous":
        network = "; or save its network, model.network()" if model.network() else ""
        raise InputError(
            f"format {format} has no place for an ensemble: write a program (vitreous export "
            f"RUN --out model.onnx), or a folder of format vitreous{network}"
        )
    if isinstance(model, WithEncoder) and format != "vitreous":
        raise InputError(
            f"format {format} has no place for a {type(model).__name__}: save its encoder, model.encoder, or "
            "use format vitreous"
        )
    writer, path = writers[format], Path(path)
    if writer.suffixes and path.suffix not in writer.suffixes:
        raise InputError(f"{path}: a file of format {format} ends in {' or '.join(writer.suffixes)}")
    check_license(license)
    if not overwrite:
        check_free(path, OVERWRITE)
    model = without_parts(on_cpu(model), drop, writer.limits_of(model))
    check_labels(model)

    with replacing(path, new=not overwrite) as temporary:
        assert writer.write is not None
        writer.write(model, temporary)
        answers = answers_for(model, writer.unsaid_at(path))
        difference, again = read_back(model, temporary, format, answers)
        if temporary.is_dir():
            write_card(model, temporary, writer, path.resolve().name, license)
    if writer.suffixes and model.labels:
        log.warning("%s: a file of format %s holds no labels and no preprocessing", path, format)
    if model.config.num_classes is not None and outputs_of(again) != outputs_of(model):
        log.warning(
            "%s: format %s has no place for the task %s: loaded again, the model answers as one for "
            "%s, until you set model.task = %r",
            *(path, format, model.task, again.task or "classification", model.task),
        )
    return difference


@contextmanager
def replacing(path: Path, *, new: bool = False) -> Iterator[Path]:
    """Yield a name to write a file or a folder to, which then becomes `path`; a folder that exists gets the
    files one by one. Raises InputError: nothing can be written there, or with `new` something is there;
    nothing is left then."""
    path = Path(os.path.realpath(path))
    with (
        writing_to(path, "free up space, or choose another path"),
        unfinished(path, path.suffix) as temporary,
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if new:
            take_new_name(temporary, path)
            return
        if temporary.is_file() or not path.exists():
            os.replace(temporary, path)
            return
        if not path.is_dir():
            raise InputError(f"{path} is a file; the format is a folder: pass another path")
        for file in temporary.iterdir():
            if file.name != "README.md" or not (path / file.name).exists():  # which may be the user's own
                os.replace(file, path / file.name)


def on_cpu(model: Model) -> Model:
    """Return the model itself, or a float32 copy on the CPU where it is elsewhere or in another precision."""
    weights = stored_weights(model)
    if all(w.device.type == "cpu" and w.dtype == torch.float32 for w in weights.values()):
        return model
    copy: Model = meta_model(model.config, **attributes_of(model))
    load_weights(copy, weights, where="save", device="cpu", dtype=torch.float32)
    return copy


def answers_for(model: Model, unsaid: Sequence[str]) -> dict[str, object]:
    """Return what a reader of the file must be given, from the model."""
    if isinstance(model, BiT):
        return {"image_size": model.config.image_size}
    answers = {field: getattr(model.config, field) for field in unsaid}
    return answers | ({"stored_image_size": answers["image_size"]} if "image_size" in answers else {})


@torch.no_grad()
def read_back(model: Model, path: Path, format: str, answers: dict[str, object]) -> tuple[float, Model]:
    """Return the largest difference between `model` and what is read back from `path`, and that. Raises
    InputError: the difference is above the tolerance."""
    training = model.training
    # What is assumed is not said here, since the model that was written is known.
    with no_warnings():
        again = load_image_model(path, format=format, **answers)
    random = torch.Generator().manual_seed(0)
    images = torch.randn(2, model.config.channels, *model.config.image_size, generator=random)
    model.eval()
    # What the head sees tells models with a head of zeros apart, too.
    outputs: list[tuple[Tensor, Tensor]] = []
    for each in (model, again):
        seen = each.features(images) if isinstance(each, Ensemble) else each.tokens(images)
        outputs.append((each(images), seen))
    model.train(training)
    return check_equal(outputs[0], outputs[1], format), again


@contextmanager
def no_warnings(name: str = "vitreous.checkpoints") -> Iterator[None]:
    """Silence a logger, by default what reading a checkpoint says."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def check_equal(ours: Sequence[Tensor], theirs: Sequence[Tensor], format: str) -> float:
    """Return the largest difference between outputs of what was written and of what was read back. Raises
    InputError: it is above the tolerance."""
    difference, scale = largest_difference(ours, theirs)
    tolerance = TOLERANCE * scale
    if not difference <= tolerance:
        raise InputError(
            f"{format}: the model that was read back differs by {difference:.1e} (tolerance "
            f"{tolerance:.1e}): nothing is written"
        )
    return difference


def largest_difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> tuple[float, float]:
    """Return the largest difference between outputs, infinite where one alone is NaN or infinite; and the
    largest finite number of ours, or 1."""
    difference, scale = 0.0, 1.0
    for one, other in zip(ours, theirs, strict=True):
        same = (one == other) | (one.isnan() & other.isnan())
        apart = (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)
        difference = max(difference, apart.max().item())
        scale = max(scale, one.abs().nan_to_num(nan=0.0, posinf=0.0).max().item())
    return difference, scale


def upload(
    model: Model,
    name: str,
    *,
    format: str,
    license: str | None = None,
    drop: Sequence[str] = (),
    card: str | None = None,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> tuple[str, float]:
    """Save a model and upload it; see `vitreous.push_to_hub`.

    Args:
        card: instead of the one that `save` writes.

    Returns:
        The address of what was uploaded, and the difference that `save` returns.
    """

    name = name.removeprefix("hf:")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"{name!r} is not a repository of the hub: write owner/name")
    if format in checkpoint_formats() and checkpoint_formats()[format].suffixes:
        raise InputError(f"format {format} is a single file: the hub takes vitreous, timm or huggingface")
    require_packages("huggingface_hub", extra="hub", what="an upload")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name.rpartition("/")[2]
        difference = save(model, folder, format=format, license=license, drop=drop)
        if card is not None:
            written = read_text(folder / "README.md")
            (folder / "README.md").write_text(written[: written.index("\n# ") + 1] + card, encoding="utf-8")
        api = HfApi(library_name="vitreous", library_version=__version__, token=token)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=name, folder_path=folder, revision=revision, commit_message="Upload by vitreous"
            )
        except (HfHubHTTPError, OSError, ValueError) as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if status in (401, 403):
                reason = "not allowed: log in with hf auth login, or pass a token with write access"
            raise InputError(f"cannot upload {name} to the hub: {reason}") from None
    return str(done.commit_url), difference
