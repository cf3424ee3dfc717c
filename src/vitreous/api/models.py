"""`vitreous.describe`, `convert`, `push_to_hub` and `benchmark` a model; recipes; the cache."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    check_batch_size,
    is_fresh,
    model_fields,
    path_of_run,
    resolve_model,
    settings_tree,
)
from vitreous.errors import InputError, check_free, nearest, writing_to
from vitreous.extensions import addons
from vitreous.outside import read_text
from vitreous.results import Result

if TYPE_CHECKING:
    from vitreous.models.description import Description


def describe(
    model: Any,
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
        batch_size: images in a batch, whose memory is computed.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model, or values that do not fit together.
    """
    from vitreous.models.description import describe as describe_model

    check_batch_size(batch_size)
    return describe_model(shapes_of(model, image_size, settings, config), batch_size=batch_size)


def shapes_of(
    model: Any, image_size: ImageSize | None, settings: Settings | None, config: str | Path | None
) -> Any:
    """Return what says the shapes of a model: its configuration where the weights are not needed for that, or
    the model."""
    from vitreous.deployment.programs import check_weights
    from vitreous.models.config_parts import Config
    from vitreous.models.names import change, config_of, config_of_kind
    from vitreous.models.settings import merged

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
    return change(opened.config, fields) if fields else opened


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
    model: Any,
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
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model, part or theme, values that do not fit together, or `out` exists.
    """
    from vitreous.inspection.drawing import draw as draw_model
    from vitreous.languages import speaking
    from vitreous.whole_files import write_text

    with speaking(language):
        svg = draw_model(shapes_of(model, image_size, settings, config), part, theme)
    if out is None:
        return Drawing(svg)
    path = Path(out)
    check_free(path, "choose another file")
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, svg)
    return Drawing(svg, path)


@dataclass(frozen=True)
class Converted(Result):
    """What was written, what was left out of it, and how far its outputs are from the model's."""

    path: Path | str  # an address, of the hub
    format: str
    dropped: tuple[str, ...]
    max_abs_difference: float


def convert(
    source: str | Path,
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
            huggingface, open-clip, dinov3, dinov2 or timm; by default google for .npz, else vitreous.
        source_format: format of the source; by default it is detected.
        like: a published model that describes a source of weights alone: timm:NAME, hf:org/name or a folder.
        drop: parts that the format cannot hold and that are left out: representation_size, head, norm_eps,
            mlp.
        license: license for the model card; by default that of the source.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such source, a destination that is taken, or a part that the format cannot hold.
    """
    from vitreous.checkpoints import open_model, save
    from vitreous.checkpoints.saving import upload
    from vitreous.deployment.programs import check_weights

    fields = model_fields(settings_tree(settings, config), image_size)
    fields |= {} if like is None else {"like": like}
    path, remote = Path(destination), str(destination).startswith("hf:")
    if not remote:
        check_free(path, "choose another path")
    format = format or ("google" if path.suffix == ".npz" else "vitreous")
    check_weights(source, "convert")
    model = open_model(source, format=source_format, **fields)
    if remote:
        address, difference = upload(model, str(destination), format=format, license=license, drop=drop)
        return Converted(address, format, tuple(drop), difference)
    difference = save(model, path, format=format, drop=drop, license=license)
    return Converted(path, format, tuple(drop), difference)


def push_to_hub(
    model: Any,
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
    from vitreous.checkpoints.saving import upload

    path = path_of_run(model)
    card = Path(path) / "README.md" if isinstance(path, str | Path) else None
    text = read_text(card) if card and (card.parent / "config.toml").is_file() and card.is_file() else None
    address, _ = upload(
        resolve_model(model),
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


def list_recipes() -> dict[str, str]:
    """Return the first line of each recipe's description, by the recipe's name: those of `train`, then those
    of `pretrain`."""
    from vitreous.tasks.pretraining.rules import find_recipe, recipe_names

    return {name: find_recipe(name).text.splitlines()[0] for name in recipe_names()}


def compare_recipes(name: str, other: str) -> list[dict[str, Any]]:
    """Return the settings in which a recipe differs from another; or, where `other` is "source", from what
    the code that it is from computes, with the place there and the reason. Raises InputError: there is no
    such recipe; it follows none."""
    from vitreous.tasks.pretraining.rules import find_recipe
    from vitreous.training.recipes import sourced
    from vitreous.training.settings import differences

    shown = find_recipe(name)
    if other == "source":
        return [each._asdict() for each in sourced(shown) if each.why]
    rows = differences(shown.config, find_recipe(other).config)
    return [{"setting": setting, "here": here, "there": there} for setting, (here, there) in rows.items()]


KINDS = {
    "features": "features of frozen models, kept for probes",
    "data": "images and labels that were given in memory",
    "remote": "shards that were fetched",
    "indexes": "names and labels of large folders and shards",
    "downloads": "checkpoints of https: addresses",
    "compiled": "machine code of loops over pixels",
}
for addon in addons().values():
    KINDS |= addon.caches
# The names that the cache gives: hashes, locks, and what was not finished.
CACHED = re.compile(
    r"\.?[0-9a-f]{16,40}(\.(safetensors|npz|tar|lock))?(\.\d+-[0-9a-f]{8}\.tmp.*)?|[0-9a-f]{2}\.lock|\.unfinished-.*"
    r"|\w+_[0-9a-f]{40}"  # Numba's folder of a package
)


@dataclass(frozen=True)
class CacheUse(Result):
    """The cache's folder, and the bytes of each kind of content."""

    folder: Path
    bytes: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "bytes": self.bytes, "total_bytes": sum(self.bytes.values())}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each kind of content."""
        return [{"kind": kind, "what": KINDS[kind], "bytes": size} for kind, size in self.bytes.items()]


def cache_use() -> CacheUse:
    """Measure what the cache ($VITREOUS_CACHE, or ~/.cache/vitreous) holds."""
    from vitreous.errors import cache_folder

    folder = cache_folder()
    return CacheUse(folder, {kind: sum(map(bytes_of, cached_in(folder / kind))) for kind in KINDS})


def cached_in(folder: Path) -> list[Path]:
    """Return the files and folders of the cache in a folder of it; others may be the user's, where
    $VITREOUS_CACHE is a folder that has such names itself."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [each for each in folder.iterdir() if CACHED.fullmatch(each.name)]
    return []


def bytes_of(path: Path) -> int:
    """Return the size of a file, or of all in a folder, which other processes may remove at any time."""
    total = 0
    for file in [Path(parent, name) for parent, _, names in os.walk(path) for name in names] or [path]:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def clear_cache(kind: str | None = None) -> CacheUse:
    """Delete what the cache holds, or one kind of it; no other file in its folders. Returns what was deleted.

    Args:
        kind: of content, such as "features" or "downloads", by the names that `cache_use` gives; by default
            all.

    Raises:
        InputError: there is no such kind, or a file cannot be deleted.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: {nearest(kind, list(KINDS))}")
    use = cache_use()
    deleted = {name: size for name, size in use.bytes.items() if kind in (None, name)}
    for folder in (use.folder / name for name in deleted):
        try:
            while found := cached_in(folder):
                for each in found:
                    with suppress(FileNotFoundError):  # another process has removed something of it before
                        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        except OSError as error:
            raise InputError(f"cannot delete {folder}: {error.strerror or error}") from error
        with suppress(OSError):  # it is not there, has files of others, or is a link to another disk
            folder.rmdir()
    return CacheUse(use.folder, deleted)
