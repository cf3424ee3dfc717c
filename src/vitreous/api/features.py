"""`vitreous.embed` and `probe`: the frozen features of a model, and how good they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from vitreous.api.answer_parts import answer_parts
from vitreous.api.arguments import (
    chosen_encoder,
    model_fields,
    path_of_run,
    progress_bar,
    say,
    settings_tree,
    weights_folder,
)
from vitreous.api.model_source import computation, resolve_model
from vitreous.api.options import EmbedOptions, ProbeOptions
from vitreous.api.predictor import Predictor, predictor_for
from vitreous.data.dataset import check_to_learn
from vitreous.data.held_out import SPLIT
from vitreous.data.image_list import Failure, ImageList, image_list
from vitreous.data.sources import open_data
from vitreous.deployment.answers import is_folder
from vitreous.errors import InputError, Param, check_free, is_installed, writing_to
from vitreous.evaluation import probes
from vitreous.evaluation.outputs import automatic_precision
from vitreous.evaluation.probes import SHOTS, Probe, check_draws, with_baselines
from vitreous.models.settings import merged
from vitreous.results import Result
from vitreous.tasks import task_of_run
from vitreous.tasks.images import check_data_settings, data_config, with_form
from vitreous.tasks.training_run import open_run
from vitreous.training.config import RunConfig
from vitreous.training.options import ModelLike, Settings, with_options
from vitreous.whole_files import folder_for, whole


@dataclass(frozen=True)
class Embeddings(Result):
    """The features of images: what the head of the model sees.

    Attributes:
        values: one row of D numbers for each image, in the order given (repeated images have several rows);
            NaN for images that could not be read.
        paths: the path of each row's image; `image[3]` for an image that was given in memory.
        failed: images that could not be read, and why.
        damaged: images that are incomplete, and what is missing.
        count: the number of images.
        out: the folder to which the features were written; `values` and `paths` are then empty.
    """

    values: NDArray[np.float32]
    paths: tuple[str, ...]
    failed: tuple[Failure, ...]
    count: int
    out: Path | None = None
    damaged: tuple[Failure, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "width": self.values.shape[1],
            "paths": list(self.paths),
            "failed": [asdict(each) for each in self.failed],
            "damaged": [asdict(each) for each in self.damaged],
        }

    def table(self) -> list[dict[str, object]]:
        """Return one row for each image: its path and its D numbers."""
        columns = [f"feature_{column}" for column in range(self.values.shape[1])]
        rows: list[dict[str, object]] = []
        for path, row in zip(self.paths, self.values.tolist(), strict=True):
            rows.append({"path": path, **dict(zip(columns, row, strict=True))})
        return rows

    def save(self, path: str | Path) -> Path:
        """Write the features: .npz (arrays "features" and "paths") or .parquet (columns "path", "features").
        Raises InputError: another suffix, a file that exists or cannot be written, or pyarrow is missing."""
        path = Path(path)
        check_features_file(path)
        with (
            writing_to(path),
            folder_for(path.parent),
            whole(path, path.suffix, new=True) as partial,
        ):
            if path.suffix == ".npz":
                np.savez(partial, features=self.values, paths=np.array(self.paths, dtype=str))
            else:
                import pyarrow.parquet

                columns = {"path": list(self.paths), "features": list(self.values)}
                pyarrow.parquet.write_table(pyarrow.table(columns), partial)
        return path


def check_features_file(path: Path) -> None:
    """Check that features can be written to `path`. Raises InputError."""
    if path.suffix not in (".npz", ".parquet"):
        raise InputError(
            f"{path}: features are written as .npz or .parquet, or to a folder (a name without an extension)"
        )
    check_free(path)
    with writing_to(path), folder_for(path.parent):
        pass  # it can be made, and is made again with the features in it
    if path.suffix == ".parquet" and not is_installed("pyarrow"):
        raise InputError(f"{path} needs pyarrow: pip install pyarrow, or write .npz")


@with_options(EmbedOptions)
def embed(model: ModelLike, images: object, **options: Unpack[EmbedOptions]) -> Embeddings:
    """Compute the features of images: what the head of the model sees.

    Example:
        >>> features = vt.embed("runs/photos", "photos/", progress=False)
        >>> features.values.shape
        (24, 32)
        >>> features.save("features.npz").name
        'features.npz'

    Args:
        model: vitreous:best (the best pre-trained encoder at hand), a run, a checkpoint in any format,
            hf:org/name, a model name (fresh weights), or a model.
        images: one or more paths (files, folders or globs), PIL images, arrays or tensors. If `out` is a
            folder, also any DATA: folders, manifests, tar shards, Parquet files, URLs.
        options: of `EmbedOptions`.

    Raises:
        InputError: the model or an image does not exist, or no image can be read.
    """
    asked: dict[str, Any] = {**options}
    out, progress = asked.pop("out"), asked.pop("progress")
    predictor = predictor_for(chosen_encoder(model), "features", **asked)
    if out is not None and is_folder(out):
        found = answer_parts(predictor, images, out, progress=progress)
        failed, damaged = (
            tuple(Failure(*each) for each in wrong.items()) for wrong in (found.failed, found.damaged)
        )
        empty = np.empty((0, found.width), np.float32)
        return Embeddings(empty, (), failed, found.images, Path(out), damaged)
    if out is not None:
        check_features_file(Path(out))
    listed = image_list(images)
    predictor.begin(listed)
    features = features_of(predictor, listed, progress)
    if out is not None:
        features.save(out)
    return features


def features_of(predictor: Predictor, images: ImageList, progress: bool) -> Embeddings:
    """Return the features of images, a row for each. Raises InputError: not one can be read."""
    names: list[str] = []
    read: list[int] = []  # the rows of images that can be read
    values: list[NDArray[np.float32]] = []
    failed: list[Failure] = []
    damaged: list[Failure] = []
    with progress_bar("features", progress) as advance:
        for rows, found in predictor.batches(images, predictor.engine.columns):
            read += [len(names) + place for place in rows.readable]
            failed += [Failure(rows.names[place], reason) for place, reason in rows.failed.items()]
            damaged += [Failure(rows.names[place], reason) for place, reason in rows.damaged.items()]
            names += rows.names
            if found:
                values.append(found["features"])
            advance(len(names), len(images))
    if not values:
        raise InputError(
            f"none of the {len(images)} images can be read: {failed[0].path}: {failed[0].reason}"
        )
    whole = np.full((len(names), values[0].shape[1]), np.nan, np.float32)
    whole[read] = np.concatenate(values)
    return Embeddings(whole, tuple(names), tuple(failed), len(names), damaged=tuple(damaged))


@with_options(ProbeOptions)
def probe(model: ModelLike, data: object = None, **options: Unpack[ProbeOptions]) -> Probe:
    """Evaluate frozen features: few-shot linear (closed form), k-NN, logistic regression.

    Example:
        >>> found = vt.probe("runs/photos", "photos/", shots=[1, 5], progress=False)
        >>> sorted(found.fewshot)
        [1, 5]

    Args:
        model: vitreous:best (the best pre-trained encoder at hand), a run, a checkpoint in any format,
            hf:org/name, a model name (fresh weights), or a model.
        data: a dataset in any form that `train` takes; by default that of the run, or the digits for other
            models.
        options: of `ProbeOptions`.

    Returns:
        The probes; `baselines` has those of raw pixels and of the same encoder with fresh weights.

    Raises:
        InputError: the model or the data does not exist, nothing is held out, or a class has too few images.
    """
    model, shots = chosen_encoder(model), tuple(options["shots"] or SHOTS)
    check_draws(shots, options["draws"], options["seed"])
    tree = settings_tree(options["settings"], options["config"])
    fields = model_fields({"model": tree.pop("model", {})}, options["image_size"])
    opened = resolve_model(model, **fields)
    if data is None:
        data, tree = data_of_run(model, tree)
    check_data_settings("probe", tree)
    splits = open_data(data, data_config(with_form(tree, data)))
    check_to_learn(splits.train, splits.name)
    how = computation(options["device"], options["batch_size"], options["workers"])
    precision = automatic_precision(
        opened, splits.train, options["precision"], how["device"], folder=weights_folder(model), say=say
    )
    asked: dict[str, Any] = {"shots": shots, "seed": options["seed"], "draws": options["draws"], **how}
    with progress_bar("extracting features", options["progress"]) as advance:
        found = probes.probe(opened, splits, progress=advance, precision=precision, **asked)
    return with_baselines(found, opened, splits, precision=precision, **asked)


def data_of_run(model: ModelLike, settings: Settings) -> tuple[str, dict[str, object]]:
    """Return what a run was trained on, split as it was; the digits for any other model."""
    path = path_of_run(model)
    if not isinstance(path, str | Path) or not (Path(path) / "config.toml").is_file():
        return "digits", dict(settings)
    if not (task := task_of_run(Path(path))).info.has_classes:
        raise InputError(
            f"{path} is a run of {Param('task')} {task.name}, whose data has no class for each image: name "
            "the data to probe it on"
        )
    trained = open_run(Path(path)).config
    assert isinstance(trained, RunConfig)  # as every run with classes
    data = trained.data.with_split(Path(path, SPLIT))
    return trained.source, merged({"data": data.model_dump()}, settings)
