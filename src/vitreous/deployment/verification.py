"""Whether a checkpoint is read as the library that it was written for reads it: both open the same file and
the same image, where that library is installed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from vitreous.checkpoints.files import model_folder, read_json
from vitreous.deployment.answering import Choice
from vitreous.deployment.predictor import ClassPredictor
from vitreous.errors import InputError
from vitreous.models.config import Origin
from vitreous.models.names import Model
from vitreous.models.preprocessing import as_pil
from vitreous.results import Result

TOLERANCE = 2e-5  # of the largest output, and of 1 where all are smaller
PIXELS = 1e-5  # of normalized images: rounding


@dataclass(frozen=True)
class Verification(Result):
    """What a checkpoint says of an image, and how far that is from what its own library says.

    Attributes:
        origin: where the weights come from, and what was assumed of them.
        top: the most probable labels; none of a model without classes.
        library: that opened the same file, with its version; None where nothing was compared.
        library_top: its own labels, from the pixels that it prepares itself.
        pixels: the largest difference between the prepared images; None where the file does not describe
            them.
        outputs: the largest difference between the outputs for the same pixels.
        equal: whether both are rounding; None where nothing was compared.
        reason: why nothing was compared.
    """

    model: str
    image: str
    origin: Origin | None
    top: tuple[Choice, ...]
    library: str | None = None
    library_top: tuple[Choice, ...] = ()
    pixels: float | None = None
    outputs: float | None = None
    equal: bool | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"origin": self.origin.model_dump(mode="json") if self.origin else None}

    def __str__(self) -> str:
        origin = self.origin
        lines = (
            [self.model]
            if origin is None
            else [f"{self.model}: {origin.format}, {origin.architecture or '-'}"]
        )
        if origin and origin.assumed:
            lines.append(f"assumed, since the file does not say it: {'; '.join(origin.assumed)}")
        lines += [f"  {choice.probability:6.1%}  {choice.label}" for choice in self.top]
        if self.library is None:
            return "\n".join([*lines, f"not compared: {self.reason}"])
        pixels = (
            "not described by the file" if self.pixels is None else f"largest difference {self.pixels:.1e}"
        )
        lines += [
            f"compared with {self.library}, which opened the same file and the same image:",
            f"  prepared image: {pixels}",
            f"  outputs for the same pixels: largest difference {self.outputs:.1e}",
            *(f"  {choice.probability:6.1%}  {choice.label}" for choice in self.library_top),
            "equal" if self.equal else "NOT EQUAL",
        ]
        return "\n".join(lines)


class Peer(NamedTuple):
    """A checkpoint opened by its own library."""

    outputs: Callable[[Tensor], Tensor]
    pixels: Callable[[Image.Image], Tensor] | None = None


@torch.no_grad()
def compare(model: Model, path: Path, image: Any, like: str | None, names: tuple[str, str]) -> Verification:
    """Show a model an image, and its own library the same, if that is installed.

    Args:
        path: of its file or folder.
        like: as in `load`.
        names: what the user calls the model and the image.
    """
    image = as_pil(image)
    pixels = model.preprocessing(image)[None]
    ours = model(pixels)
    classifies = model.config.num_classes is not None and model.task in ("classification", "multilabel")
    predictor = ClassPredictor(model) if classifies else None
    found = Verification(*names, model.origin, predictor.choices(pixels)[0] if predictor else ())
    format = format_of(model, path)
    if format not in PEERS:
        return replace(found, reason=f"no other library that is known here opens the format {format}")
    package, open_peer = PEERS[format]
    try:
        version = importlib.import_module(package).__version__
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = open_peer(model, path, like)
            own = peer.pixels(image.convert("RGB")) if peer.pixels else pixels
            theirs = peer.outputs(pixels)
    except ImportError as error:
        missing = getattr(error, "name", None) or package
        return replace(found, reason=f"{missing} is not installed: pip install {missing}")
    except Exception as error:  # of a library that is not ours
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return replace(found, reason=f"{package} cannot open it: {reason}")
    if own.shape != pixels.shape or theirs.shape != ours.shape:
        sizes = " -> ".join(str(tuple(each.shape)) for each in (own, theirs))
        return replace(found, reason=f"{package} computes other sizes: {sizes}")
    difference = (own - pixels).abs().max().item() if peer.pixels else None
    outputs = (theirs - ours).abs().max().item()
    again = theirs if own is pixels else peer.outputs(own)
    return replace(
        found,
        library=f"{package} {version}",
        library_top=predictor.most_probable(predictor.activated(again), 5)[0] if predictor else (),
        pixels=difference,
        outputs=outputs,
        equal=outputs <= TOLERANCE * max(1.0, ours.abs().max().item()) and (difference or 0.0) <= PIXELS,
    )


def format_of(model: Model, path: Path) -> str:
    """The format of the file itself, which may not be that of the model's origin."""
    described = model_folder(path) / "config.json"
    own = described.is_file() and read_json(described).get("format") == "vitreous"
    return model.origin.format if model.origin and not own else "vitreous"


def open_timm(model: Model, path: Path, like: str | None) -> Peer:
    timm: Any = importlib.import_module("timm")
    if path.is_dir():
        peer = timm.create_model(f"local-dir:{path}", pretrained=True)
    elif like and like.startswith("timm:"):
        peer = timm.create_model(like.removeprefix("timm:"), checkpoint_path=str(path))
    else:
        raise InputError("a state dict alone: pass like=timm:NAME with the architecture's name")
    data = importlib.import_module("timm.data")
    transform = data.create_transform(**data.resolve_model_data_config(peer), is_training=False)
    return Peer(peer.eval(), lambda image: transform(image)[None])


def open_transformers(model: Model, path: Path, like: str | None) -> Peer:
    transformers: Any = importlib.import_module("transformers")
    folder = path if path.is_dir() else path.parent
    described = transformers.AutoConfig.from_pretrained(folder)
    peer = getattr(transformers, described.architectures[0]).from_pretrained(folder).eval()

    def outputs(pixels: Tensor) -> Tensor:
        if hasattr(peer, "get_image_features"):
            found = peer.get_image_features(pixel_values=pixels)
            return found if isinstance(found, Tensor) else found.pooler_output
        found = peer(pixel_values=pixels)
        names = ("logits", "image_embeds", "pooler_output")
        return next((found[name] for name in names if found.get(name) is not None), found[0][:, 0])

    try:
        name = transformers.AutoImageProcessor.from_pretrained(folder).image_processor_type
    except (OSError, ValueError, AttributeError):
        return Peer(outputs)
    # the processor that resizes with Pillow, as its own and our preprocessing do
    kind = getattr(transformers, f"{name.removesuffix('Fast').removesuffix('Pil')}Pil", None)
    processor = (kind or transformers.AutoImageProcessor).from_pretrained(folder)
    return Peer(outputs, lambda image: processor(image, return_tensors="pt")["pixel_values"])


def open_torchvision(model: Any, path: Path, like: str | None) -> Peer:
    models: Any = importlib.import_module("torchvision.models")
    config, state = model.config, torch.load(path, map_location="cpu", weights_only=True)
    peer = models.VisionTransformer(
        config.image_size[0],
        config.patch_size[0],
        config.depth,
        config.heads,
        config.width,
        config.mlp_dim,
        num_classes=config.num_classes,
        representation_size=config.representation_size,
    )
    peer.load_state_dict(state.get("state_dict", state))
    return Peer(peer.eval())


PEERS: dict[str, tuple[str, Callable[[Model, Path, str | None], Peer]]] = {
    "timm": ("timm", open_timm),
    "huggingface": ("transformers", open_transformers),
    "torchvision": ("torchvision", open_torchvision),
}
