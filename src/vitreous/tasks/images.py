"""What the tasks do alike that learn from images: plans, data, first weights, held-out parts."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, runtime_checkable

from pydantic import ValidationError
from torch import nn

from vitreous.checkpoints.runs import run_folder
from vitreous.data.config import DataConfig
from vitreous.data.dataset import DataSummary, ImageDataset, Splits
from vitreous.data.image_samples import SampleReader, image_loader
from vitreous.data.workers import loading_workers
from vitreous.errors import InputError, LazyModule, Param
from vitreous.evaluation.outputs import Batching
from vitreous.languages.terminal import said
from vitreous.models.settings import check_names, explain, merged, set_leaf
from vitreous.tasks import task_named
from vitreous.tasks.task import DataParts, HeldOut, Measure, Plan, Task, TrainingBatches, config_of_run
from vitreous.training.config import RunConfig, Tree
from vitreous.training.distributed import ALONE, World
from vitreous.training.machine import autocast
from vitreous.training.options import ImageOptions

if TYPE_CHECKING:
    from vitreous.data import checks, findings, held_out, sources
    from vitreous.data.loading import DevicePrefetcher
    from vitreous.deployment import programs
    from vitreous.evaluation import probes
    from vitreous.tasks import course, recipe_choice
    from vitreous.training import initial_model
    from vitreous.training import settings as training_settings
    from vitreous.training.machine import Place
else:  # a command that answers needs none of what trains
    checks = LazyModule("vitreous.data.checks")
    course = LazyModule("vitreous.tasks.course")
    findings = LazyModule("vitreous.data.findings")
    held_out = LazyModule("vitreous.data.held_out")
    initial_model = LazyModule("vitreous.training.initial_model")
    probes = LazyModule("vitreous.evaluation.probes")
    programs = LazyModule("vitreous.deployment.programs")
    recipe_choice = LazyModule("vitreous.tasks.recipe_choice")
    sources = LazyModule("vitreous.data.sources")
    training_settings = LazyModule("vitreous.training.settings")

log = logging.getLogger(__name__)
MOST_NAMED = 6  # settings of the user's that are named
DRAWN = {"split", "test_fraction", "validation_fraction"}
OPENING: frozenset[str] = frozenset({"image_size", "settings", "config"})
READING: frozenset[str] = OPENING | {"workers"}
INSPECTING: frozenset[str] = OPENING | {"label", "patch", "compare", "attributions"}
TRAINING: frozenset[str] = frozenset(ImageOptions.__annotations__)


def measured_preprocessing(data: DataSummary) -> Tree:
    """Return what was measured of the values of a dataset's images, for their preprocessing."""
    found: dict[str, object] = {}
    if data.value_range is not None:
        found["value_range"] = data.value_range
    if data.statistics is not None:
        found["mean"], found["std"] = data.statistics
    return {"preprocessing": found} if found else {}


@runtime_checkable
class ImageParts(DataParts, Protocol):
    """Images in parts."""

    @property
    def train(self) -> ImageDataset: ...
    @property
    def validation(self) -> ImageDataset | None: ...
    @property
    def test(self) -> ImageDataset | None: ...
    @property
    def summary(self) -> DataSummary: ...


MeasureMore = Callable[..., Mapping[str, float]]  # of a model, with the options of `Batching`
ImageConfigT = TypeVar("ImageConfigT", bound=RunConfig)
ImagesT = TypeVar("ImagesT", bound=ImageParts)
ModelT = TypeVar("ModelT", bound=nn.Module)


class ImageTask(Task[ImageConfigT, ImagesT, ImageDataset, ModelT]):
    """A task whose model sees images, configured by a `RunConfig`."""

    def plan(
        self,
        source: str | ImagesT | None,
        settings: Tree,
        *,
        recipe: str | None = None,
        init: str | None = None,
        base: Tree | None = None,
    ) -> Plan[ImageConfigT, ImagesT]:
        # Names are checked first: opening the data can take minutes. Those of the model wait for its kind.
        check_names({key: value for key, value in settings.items() if key != "model"}, self.config)
        settings = training_settings.without_none_words(settings)
        opened = None if source is None or isinstance(source, str) else source
        where = opened.name if opened else str(source or settings.get("source") or self.info.source)
        settings = with_form(settings, where)
        data = opened or self.open_source(where, data_config(settings))
        asked = settings.get("model", {}).get("channels")
        # Images are shown in gray or in color, as the user wants.
        if isinstance(data, Splits) and {asked, data.summary.channels} == {1, 3}:
            data = data._replace(summary=data.summary._replace(channels=asked))
        # The configuration is laid down in layers, and each may change what those before it have: the recipe
        # that suits the data, the checkpoint's architecture and preprocessing, what was measured of the
        # data's values, and the user's settings, which prevail over all of them but what the data impose.
        init = init or settings.get("init")
        choice = self.choose(where, data, settings, recipe=recipe, init=init)
        config, own = choice.config, settings
        settings = merged(base or {}, settings)
        # The recipe has been fitted to the model that is named.
        if recipe:
            settings = {**settings, "model": {**settings.get("model", {})}}
            settings["model"].pop("name", None)
        if init:
            fields = self.for_checkpoint(settings, init)
            if (bands := data.summary.channels) not in (1, 3):
                half = {"mean": (0.5,) * bands, "std": (0.5,) * bands}
                fields = merged({"model": {"channels": bands}, "preprocessing": half}, fields)
            config = initial_model.fitted_to_checkpoint(config, init, fields, choice.imposed)
        config = training_settings.configure(config, measured_preprocessing(data.summary))
        config = self.configured(config, data, {**settings, "task": self.name})
        # The batch is checked once everything that can set it has been laid down. A user's that is too large
        # is refused; a recipe's is made smaller, and what depends on it (rate, warm-up) with it.
        size, images = config.training.batch_size, len(data.train)
        scaled: tuple[str, ...] = ()
        own_batch = settings.get("training", {}).get("batch_size")
        if own_batch and images < size:
            raise InputError(
                f"a batch of {size} is more than the {images} training images: set {Param('batch_size')} "
                f"{max(images // 4, 1)}, for example"
            )
        if not own_batch and images < (2 * size if recipe else size):
            config, scaled = recipe_choice.fitted_to_count(config, images)
            config = training_settings.configure(config, settings)
        # A run is resumed from any folder: its paths are absolute, also of teachers inside of its settings.
        paths: dict[str, object] = {
            "source": initial_model.absolute_source(where),
            "init": init and initial_model.absolute_checkpoint(init),
        }
        for leaf, value in training_settings.leaves(config).items():
            if leaf.endswith(".teacher") and value:
                set_leaf(paths, leaf, initial_model.absolute_checkpoint(value))
        config = training_settings.configure(config, paths)
        # A recipe's reasons speak of its values: said is what still holds of the values that are in force.
        reasons: list[str] = []
        for reason in choice.reasons:
            answered = "init" in settings and "init" in reason.holds
            if not answered and (text := reason.true_of(config)):
                reasons.append(text)
        reasons += [*scaled, *overruled(own)]
        said_of_recipe = tuple(said("recipe: {reason}", reason=each) for each in reasons)
        # several labels make another task of classification
        return Plan(task_named(config.task), config, data, data.name, said_of_recipe)

    @abstractmethod
    def open_source(self, source: str, config: DataConfig, model: ModelT | None = None) -> ImagesT:
        """Open DATA. The result has `train`, `validation`, `test` and `name`.

        Args:
            model: that is evaluated on it.

        Raises:
            InputError: it cannot be read, or it is for another task.
        """

    @abstractmethod
    def choose(
        self, source: str, data: ImagesT, settings: Tree, *, recipe: str | None, init: str | None
    ) -> recipe_choice.RecipeChoice[ImageConfigT]:
        """Choose a recipe for the data."""

    def for_checkpoint(self, settings: Tree, init: str) -> Tree:
        """Return the user's settings over what a checkpoint has that this task cannot use."""
        return settings

    def configured(self, config: ImageConfigT, data: ImagesT, settings: Tree) -> ImageConfigT:
        """Lay the user's settings, and what the data impose, over a configuration."""
        wanted, present = settings.get("model", {}).get("num_classes"), len(data.train.classes)
        if wanted not in (None, present):
            raise InputError(
                f"model.num_classes is {wanted}, but {data.name} has {present} classes: leave it out"
            )
        return training_settings.configure(config, settings, {"model": {"num_classes": present}})

    def open_data(self, config: ImageConfigT, split: Path | None = None) -> ImagesT:
        return self.open_source(config.source, config.data.with_split(split))

    def prepare(self, config: ImageConfigT, data: ImagesT, place: Place) -> TrainingBatches:
        loader: DevicePrefetcher[Any] = image_loader(
            data.train,
            preprocessing=config.prepared,
            augmentation=config.augmentation,
            batch_size=place.world.share(config.training.batch_size),
            seed=config.seed,
            workers=loading_workers(config.data.read.workers),
            rank=place.world.rank,
            world_size=place.world.size,
            config=config.data,
            device=place.device,
            reader=self.reader(config, data),
        )
        return TrainingBatches(loader, len(data.train), loader.bad)

    def reader(self, config: ImageConfigT, data: ImagesT) -> SampleReader | None:
        """Return what reads the training examples; None: images with their targets."""
        return None

    def build(self, config: ImageConfigT, data: ImagesT, *, steps: int) -> nn.Module:
        model = initial_model.starting_model(config, data.train.classes)
        model.task = self.name
        return model

    def validation(self, config: ImageConfigT, data: ImagesT, world: World = ALONE) -> Measure | None:
        """Return what measures the model on the validation set, in the precision of the training."""
        images, size = self.validation_images(data), config.training.machine_config.evaluation_batch_size
        measures = self.validation_measures(config, data)
        if not images:
            return None
        workers = loading_workers(config.data.read.workers)

        def measure(model: nn.Module) -> Mapping[str, float]:
            device = next(model.parameters()).device
            options = Batching(device=device, batch_size=size, workers=workers, world=world)
            with autocast(config.training.precision, device):
                found = dict(self.validation_scores(config, model, images, **options))
                for each in measures:
                    found |= each(model, **options)
            return found

        return measure

    def validation_measures(self, config: ImageConfigT, data: ImagesT) -> list[MeasureMore]:
        """Return what measures more of a model: the few-shot accuracy of its features, if it is asked for."""
        if not config.evaluation.fewshot or not isinstance(data, Splits):
            return []
        return [probes.fewshot_measure(data)]

    def validation_images(self, data: ImagesT) -> ImageDataset | None:
        """Return what the model is measured on while it learns; None: nothing."""
        return data.validation

    @abstractmethod
    def validation_scores(
        self, config: ImageConfigT, model: Any, images: Any, **options: Unpack[Batching]
    ) -> Mapping[str, float]:
        """Measure a model while it learns."""

    def open(self, spec: str, **overrides: object) -> ModelT:
        return programs.open_image_model(spec, **overrides)

    def open_held_out(
        self, spec: str, answerer: ModelT, data: str | None, settings: Tree
    ) -> HeldOut[ImageDataset]:
        """Return the held-out part: of data that a run learned from, split as they were then; of other data
        the test set where they have one of their own, and everything where they have none.

        Args:
            settings: a tree; only `data` may be set.

        Raises:
            InputError: no such run or data, unknown settings, or nothing was held out.
        """
        source, learned, split, parts = self.parts_for(spec, answerer, data, settings)
        if parts.test is not None:
            part, examples = "held-out part", parts.test
        elif parts.validation is not None:
            part, examples = "validation set", parts.validation
        elif learned:
            raise InputError(f"{spec} was trained on all of {source}: name other data to evaluate it on")
        else:
            part, examples = "all of it", parts.train
        if split and not learned and examples.listed:
            unseen = held_out.unseen_images(examples, split)
            trained_on = len(examples) - len(unseen)
            if not len(unseen):
                part = f"{part}, every image of which it was trained on (by their content)"
            elif trained_on:
                part = f"{part} but {trained_on} images that it was trained on (by their content)"
                examples = unseen
        # The training has examined these data.
        if learned:
            found = findings.read_findings(run_folder(spec) / course.FINDINGS)
        else:
            found = checks.known_findings(tuple(parts), labels=self.info.targets != "unlabeled")
        return HeldOut(source, part, examples, findings=found)

    def to_calibrate(
        self, spec: str, answerer: ModelT, data: str | None, settings: Tree
    ) -> HeldOut[ImageDataset]:
        """Return what a model is calibrated on: the validation set of data that it learned from; of other
        data everything but a test set, without the images that it learned from. Raises InputError if
        `held_out` does, or if there is no validation set."""
        source, learned, split, parts = self.parts_for(spec, answerer, data, settings)
        if learned and (drawn := DRAWN & settings.get("data", {}).keys()):
            raise InputError(
                f"data.{min(drawn)} would calibrate on images that {spec} was trained on: leave it out"
            )
        if learned and parts.validation is None:
            raise InputError(
                f"{spec} was trained without a validation set: name images that it was not trained on, or "
                f"train it again with {Param('settings')} data.validation_fraction=0.1"
            )
        if parts.validation is not None:
            part, examples = "validation set", parts.validation
        else:
            part, examples = "all of it" if parts.test is None else "training set", parts.train
        if split and not learned and examples.listed:
            examples = held_out.unseen_images(examples, split)
        return HeldOut(source, part, examples, parts.train if learned else None)

    def parts_for(
        self, spec: str, answerer: ModelT, data: str | None, settings: Tree
    ) -> tuple[str, bool, Path | None, ImagesT]:
        """Return DATA, by default the run's, whether the run learned from it, its split, and DATA's parts."""
        check_data_settings("evaluate", settings)
        trained = config_of_run(spec, data, self.config)
        source = data or (trained.source if trained else "")
        own = with_form(settings, source).get("data", {})
        absolute = initial_model.absolute_source
        learned = trained is not None and absolute(source) == absolute(trained.source)
        listed = run_folder(spec) / held_out.SPLIT
        split = listed if trained is not None and listed.is_file() else None
        base = self.unsplit(source)
        if trained is not None and learned:
            base = trained.data.with_split(split).model_dump()
        drawn = DRAWN & own.keys()
        if isinstance(own.get("recorded"), Mapping) and "file" in own["recorded"]:
            drawn |= {"recorded.file"}
        if learned and split and drawn:
            raise InputError(
                f"{source} is split as in {split}, so data.{min(drawn)} has no effect: leave it out"
            )
        parts = self.open_source(source, data_config({"data": merged(base, own)}), answerer)
        for note in findings.data_notes(findings.findings_of(tuple(parts))):
            log.warning("%s", note)
        return source, learned, split, parts

    def unsplit(self, source: str) -> Tree:
        """Return the settings that open data whole."""
        return {"validation_fraction": 0.0, "test_fraction": 0.0}


def with_form(settings: Tree, source: object) -> Tree:
    """Return settings with the kind of form that DATA has, where they have settings of its form."""
    data = settings.get("data", {})
    if not isinstance(data.get("form"), Mapping):
        return settings
    return {**settings, "data": {**data, "form": {"kind": sources.find_source(source).form, **data["form"]}}}


def data_config(settings: Tree) -> DataConfig:
    """Return the [data] of a tree of settings."""
    try:
        return DataConfig(**settings.get("data", {}))
    except ValidationError as error:
        raise InputError(explain(error, "data", DataConfig)) from None


def check_data_settings(command: str, settings: Tree) -> None:
    """Raise InputError for settings of anything but data."""
    if other := [name for name in settings if name != "data"]:
        raise InputError(f"{command} has no setting {other[0]!r}: all of its settings begin with data.")
    check_names(settings, RunConfig)


def overruled(settings: Tree) -> tuple[str, ...]:
    """Return a sentence about what the user set, where something was."""
    own = []
    for name, value in training_settings.leaves(settings).items():
        own.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
    if not own:
        return ()
    named, more = ", ".join(own[:MOST_NAMED]), len(own) - MOST_NAMED
    if more > 0:
        return (said("your own settings take precedence: {names}, and {more} more", names=named, more=more),)
    return (said("your own settings take precedence: {names}", names=named),)
