"""`vitreous.describe`, `draw`, `convert` and `push_to_hub`: look at a model, convert it, and upload it."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from vitreous.api.arguments import changed_fields, check_batch_size, is_fresh, path_of_run
from vitreous.api.model_source import resolve_model
from vitreous.api.options import ConvertOptions, DescribeOptions, DrawOptions
from vitreous.checkpoints.loading import open_model
from vitreous.checkpoints.saving import save, upload
from vitreous.data.image_samples import pipeline
from vitreous.deployment.programs import check_weights
from vitreous.errors import InputError, check_free, writing_to
from vitreous.inspection import drawing
from vitreous.languages import speaking
from vitreous.models import description
from vitreous.models.config_parts import Config
from vitreous.models.description import Description
from vitreous.models.ensemble import Ensemble
from vitreous.models.names import changed_config, config_of, config_of_kind
from vitreous.models.settings import merged
from vitreous.outside import read_text, scheme_of
from vitreous.results import Result
from vitreous.training.options import ModelLike, RunLike, with_options
from vitreous.whole_files import write_text


@with_options(DescribeOptions)
def describe(model: ModelLike, **options: Unpack[DescribeOptions]) -> Description:
    """Describe each stage of a forward pass (shape, parameters, operations, equation) and the memory.

    Example:
        >>> found = vt.describe("ViT-B/16")
        >>> found.parameters
        86567656
        >>> [(stage.name, stage.shape) for stage in found.stages[1:3]]
        [('patches, flat', (196, 768)), ('projection', (196, 768))]

    Args:
        model: a name such as ViT-B/16, which needs no weights; a run, a checkpoint in
            any format, or a model.
        options: of `DescribeOptions`.

    Raises:
        InputError: the model does not exist, or values contradict each other.
    """
    check_batch_size(options["batch_size"])
    shapes = shapes_of(model, changed_fields(options))
    with speaking(options["language"]):
        found = description.describe(shapes, batch_size=options["batch_size"])
    return replace(found, images=pipeline(found.preprocessing)) if found.preprocessing else found


def shapes_of(model: ModelLike, fields: dict[str, Any]) -> Any:
    """Return what says the shapes of a model with some fields changed: its configuration, where the weights
    are not needed for that, or the model."""
    if isinstance(model, Config):
        return model.checked({}, merged(model.model_dump(), fields))
    if is_fresh(model):
        return config_of_kind(model, fields) or config_of(model, **fields)
    check_weights(model, "describe")
    try:
        opened = resolve_model(model)
    except InputError:
        # The settings may answer what the file leaves open.
        if not fields:
            raise
        return resolve_model(model, **fields)
    if not fields:
        return opened
    if isinstance(opened, Ensemble):
        raise InputError(f"an ensemble has no setting {min(fields)!r} to change: leave it out")
    return changed_config(opened.config, fields)


@dataclass(frozen=True)
class Drawing(Result):
    """An architecture as SVG, which a notebook displays. `path` is the file, if one was written."""

    svg: str
    path: Path | None = None

    def _repr_html_(self) -> str:
        """Return a separate image, whose style and text do not mix with those of the notebook."""
        found = re.search("<title>(.*?)</title>", self.svg)
        data = base64.b64encode(self.svg.encode()).decode("ascii")
        return f'<img alt="{found[1] if found else ""}" src="data:image/svg+xml;base64,{data}">'


@with_options(DrawOptions)
def draw(model: ModelLike, part: str = "model", **options: Unpack[DrawOptions]) -> Drawing:
    """Draw the architecture of a model as SVG, with the shapes that `describe` measures.

    Example:
        >>> vt.draw("ViT-B/16", out="vit.svg").path.name
        'vit.svg'
        >>> drawing = vt.draw("runs/photos", "head")  # in a notebook, the last line shows it

    Args:
        model: a name such as ViT-B/16, a configuration, a model, a run, or a checkpoint in any format.
        part: model (for a ViT, the paper's Figure 1); for a ViT also matrices (from the image through the
            first block), block, or head (one attention head).
        options: of `DrawOptions`.

    Raises:
        InputError: the model, the part or the theme does not exist, values contradict each other, or `out`
            exists.
    """
    with speaking(options["language"]):
        svg = drawing.draw(shapes_of(model, changed_fields(options)), part, options["theme"])
    if options["out"] is None:
        return Drawing(svg)
    path = Path(options["out"])
    check_free(path, "choose another file")
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, svg, new=True)
    return Drawing(svg, path)


@dataclass(frozen=True)
class Converted(Result):
    """What was written, what was left out, and the largest difference between its outputs and the model's."""

    path: Path | str  # an address, of the hub
    format: str
    dropped: tuple[str, ...]
    max_abs_difference: float


@with_options(ConvertOptions)
def convert(
    source: str | Path | RunLike, destination: str | Path, **options: Unpack[ConvertOptions]
) -> Converted:
    """Write a model in another format, read it back, and compare the outputs of both.

    Example:
        >>> done = vt.convert("runs/photos", "photos-timm", format="timm")
        >>> done.max_abs_difference < 2e-5
        True

    Args:
        source: a checkpoint of any format, a run, hf:org/name, an https: address, or a model name.
        destination: a new folder or file, depending on the format; or hf:owner/name, a repository of the hub.
        options: of `ConvertOptions`.

    Raises:
        InputError: the source does not exist, the destination already exists, or the format cannot represent
            a part of the model.
    """
    fields, drop, license = changed_fields(options), options["drop"], options["license"]
    fields |= {} if options["like"] is None else {"like": options["like"]}
    path, remote = Path(destination), scheme_of(destination) == "hf"
    if not remote:
        check_free(path, "choose another path")
    format = options["format"] or ("google" if path.suffix == ".npz" else "vitreous")
    named = source.path if isinstance(source, RunLike) else source
    check_weights(named, "convert")
    model = open_model(named, format=options["source_format"], **fields)
    if remote:
        address, difference = upload(model, str(destination), format=format, license=license, drop=drop)
        return Converted(address, format, tuple(drop), difference)
    difference = save(model, path, format=format, drop=drop, license=license)
    return Converted(path, format, tuple(drop), difference)


def push_to_hub(
    model: ModelLike,
    name: str,
    *,
    format: str = "vitreous",
    drop: Sequence[str] = (),
    license: str | None = None,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> str:
    """Save a model and upload it, with its card, to the Hugging Face hub.

    Example:
        >>> address = vt.push_to_hub("runs/photos", "me/photos", license="apache-2.0")
        >>> vt.load("hf:me/photos").labels
        ['apples', 'pears']
        >>> model = vt.load("runs/photos")
        >>> address = vt.push_to_hub(model, "me/photos-timm", format="timm", private=True)

    Args:
        model: a run, whose model card is uploaded; a checkpoint in any format; or a model.
        name: the repository, owner/name; it is created if it does not exist.
        format: a format that is a folder: vitreous, timm or huggingface.
        drop: parts to leave out because the format cannot represent them; see `save`.
        license: the license for the card, such as apache-2.0; by default that of the model's origin.
        private: whether a new repository is private.
        revision: a branch of the repository; by default the main branch.
        token: an access token of the hub; by default that of `hf auth login`, or $HF_TOKEN.

    Returns:
        The address of the upload.

    Raises:
        InputError: if `save` raises it, or the hub cannot be reached or does not allow the upload.
    """
    path = path_of_run(model)
    card = Path(path) / "README.md" if isinstance(path, str | Path) else None
    text = read_text(card) if card and (card.parent / "config.toml").is_file() and card.is_file() else None
    # A model that cannot be saved is refused when it is opened.
    opened: Any = resolve_model(model)
    address, _ = upload(
        opened,
        name,
        format=format,
        license=license,
        drop=drop,
        card=text,
        private=private,
        revision=revision,
        token=token,
    )
    return address
