"""`vitreous.describe`, `draw`, `convert` and `push_to_hub`: a model as it is, and elsewhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitreous.api.arguments import (
    ImageSize,
    ModelLike,
    RunLike,
    Settings,
    check_batch_size,
    is_fresh,
    model_fields,
    path_of_run,
    settings_tree,
)
from vitreous.api.model_source import resolve_model
from vitreous.checkpoints.loading import open_model
from vitreous.checkpoints.saving import save, upload
from vitreous.deployment.programs import check_weights
from vitreous.errors import InputError, check_free, writing_to
from vitreous.inspection import drawing
from vitreous.languages import speaking
from vitreous.models import description
from vitreous.models.config_parts import Config
from vitreous.models.description import Description
from vitreous.models.ensemble import Ensemble
from vitreous.models.names import change, config_of, config_of_kind
from vitreous.models.settings import merged
from vitreous.outside import read_text, scheme_of
from vitreous.results import Result
from vitreous.whole_files import write_text


def describe(
    model: ModelLike,
    *,
    image_size: ImageSize | None = None,
    batch_size: int = 1,
    settings: Settings | None = None,
    config: str | Path | None = None,
) -> Description:
    """Describe each stage of a forward pass: shape, parameters, operations, equation; and the memory.

    Args:
        model: a name such as ViT-B/16, which needs no weights; a run, a checkpoint in
            any format, or a model.
        image_size: pixels of the images that the model takes: 384, or (height, width); by default its own.
        batch_size: images in a batch, whose memory is computed.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model, or values that do not fit together.
    """
    check_batch_size(batch_size)
    return description.describe(shapes_of(model, image_size, settings, config), batch_size=batch_size)


def shapes_of(
    model: ModelLike, image_size: ImageSize | None, settings: Settings | None, config: str | Path | None
) -> Any:
    """Return what says the shapes of a model: its configuration where the weights are not needed for that, or
    the model."""
    fields = model_fields(settings_tree(settings, config), image_size)
    if isinstance(model, Config):
        return model.checked({}, merged(model.model_dump(), fields))
    if is_fresh(model):
        return config_of_kind(model, fields) or config_of(model, **fields)
    check_weights(model, "describe")
    try:
        opened = resolve_model(model)
    except InputError:  # a question that the settings may answer
        if not fields:
            raise
        return resolve_model(model, **fields)
    if not fields:
        return opened
    if isinstance(opened, Ensemble):
        raise InputError(f"{opened.title} has no setting {min(fields)!r} to change: leave it out")
    return change(opened.config, fields)


@dataclass(frozen=True)
class Drawing(Result):
    """An architecture as SVG, which a notebook shows. `path` is the file, where one was written."""

    svg: str
    path: Path | None = None

    def _repr_html_(self) -> str:
        """Return an image of its own, whose style and text are not mixed with those of the notebook."""
        found = re.search("<title>(.*?)</title>", self.svg)
        data = base64.b64encode(self.svg.encode()).decode("ascii")
        return f'<img alt="{found[1] if found else ""}" src="data:image/svg+xml;base64,{data}">'


def draw(
    model: ModelLike,
    part: str = "model",
    *,
    out: str | Path | None = None,
    theme: str = "auto",
    language: str | None = None,
    image_size: ImageSize | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
) -> Drawing:
    """Draw the architecture of a model as SVG, with the shapes that `describe` measures.

    Args:
        model: a name such as ViT-B/16, a configuration, a model, a run, or a checkpoint in any format.
        part: model, the whole (of a ViT the paper's Figure 1); and of a ViT matrices, from the image through
            the first block; block; or head, one attention head.
        out: the SVG file to write.
        theme: light, dark, or auto: that of the page or the system that shows it.
        language: of the words, en or ko; by default that of the locale.
        image_size: pixels of the images that the model takes: 384, or (height, width); by default its own.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model, part or theme, values that do not fit together, or `out` exists.
    """
    with speaking(language):
        svg = drawing.draw(shapes_of(model, image_size, settings, config), part, theme)
    if out is None:
        return Drawing(svg)
    path = Path(out)
    check_free(path, "choose another file")
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, svg, new=True)
    return Drawing(svg, path)


@dataclass(frozen=True)
class Converted(Result):
    """What was written, what was left out of it, and how far its outputs are from the model's."""

    path: Path | str  # an address, of the hub
    format: str
    dropped: tuple[str, ...]
    max_abs_difference: float


def convert(
    source: str | Path | RunLike,
    destination: str | Path,
    *,
    format: str | None = None,
    source_format: str | None = None,
    like: str | None = None,
    drop: Sequence[str] = (),
    license: str | None = None,
    image_size: ImageSize | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
) -> Converted:
    """Write a model in another format, read it back, and compare the outputs of both.

    Args:
        source: a checkpoint of any format, a run, hf:org/name, an https: address, or a model name.
        destination: a new folder or file, as the format wants it; or hf:owner/name, a repository of the hub.
        format: format to write: vitreous, google, bit, torchvision, vit-pytorch, frankzvit, radio, aimv2,
            vit-5, huggingface, open-clip, dinov3, dinov2 or timm; by default google for .npz, else vitreous.
        source_format: format of the source; by default it is detected.
        like: a published model that describes a source of weights alone: timm:NAME, hf:org/name or a folder.
        drop: parts that the format cannot hold and that are left out: representation_size, head, norm_eps,
            mlp.
        license: license for the model card; by default that of the source.
        image_size: pixels of the images that the model takes: 384, or (height, width); by default its own.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such source, a destination that is taken, or a part that the format cannot hold.
    """
    fields = model_fields(settings_tree(settings, config), image_size)
    fields |= {} if like is None else {"like": like}
    path, remote = Path(destination), scheme_of(destination) == "hf"
    if not remote:
        check_free(path, "choose another path")
    format = format or ("google" if path.suffix == ".npz" else "vitreous")
    named = source.path if isinstance(source, RunLike) else source
    check_weights(named, "convert")
    model = open_model(named, format=source_format, **fields)
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

        push_to_hub("runs/flowers", "me/flowers", license="apache-2.0")
        push_to_hub(model, "me/flowers-timm", format="timm", private=True)

    Args:
        model: a run, whose own card is taken; a checkpoint in any format, or a model.
        name: of the repository, owner/name, which is made where it does not exist.
        format: one that is a folder: vitreous, timm or huggingface.
        drop: parts that the format cannot hold and that are left out; see `save`.
        license: for the card: apache-2.0, cc-by-nc-4.0 ...; by default that of the model's origin.
        private: whether a new repository is seen by its owner alone.
        revision: a branch of the repository; by default its main one.
        token: of the hub; by default that of `hf auth login`, or $HF_TOKEN.

    Returns:
        The address of what was uploaded.

    Raises:
        InputError: as `save`; or the hub cannot be reached, or allows no upload.
    """
    path = path_of_run(model)
    card = Path(path) / "README.md" if isinstance(path, str | Path) else None
    text = read_text(card) if card and (card.parent / "config.toml").is_file() and card.is_file() else None
    opened: Any = resolve_model(model)  # what cannot be saved is refused there
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
