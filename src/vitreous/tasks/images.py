"""What the tasks do alike that learn from images with a `RunConfig`: plans, first weights, held-out parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from PIL import Image
from pydantic import ValidationError
from torch import nn

from vitreous.checkpoints import open_model
from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadImage, sampled
from vitreous.errors import InputError
from vitreous.models.settings import explain
from vitreous.tasks.task import HeldOut, Plan, Task, Tree
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import absolute_source, fitted_to_checkpoint, trainable_model
from vitreous.training.run import Run
from vitreous.training.settings import check_known, configure, without_none_words

if TYPE_CHECKING:
    from vitreous.inspection.model_report import Question
    from vitreous.inspection.page import Inspection

MOST_NAMED = 6  # settings of the user's that are named
INSPECTING = frozenset({"--label", "--patch", "--compare", "--image-size", "--set"})


class Base(NamedTuple):
    """A configuration before a checkpoint's and the user's settings, and why it is this one.

    Attributes:
        imposed: fields of its model that a checkpoint does not change.
    """

    config: Any
    reasons: tuple[str, ...]
    imposed: tuple[str, ...] = ()


class ImageTask(Task):
    """A task whose model sees images, configured by a `RunConfig`."""

    config: ClassVar[type[RunConfig]]

    # The plan of a run.

    def plan(
        self, source: Any | None, settings: Tree, *, recipe: str | None = None, init: str | None = None
    ) -> Plan:
        check_known({key: value for key, value in settings.items() if key != "model"}, self.config)
        settings = without_none_words(settings, self.config)
        source = source or settings.get("source") or self.default_source
        data = self.open_source(source, data_config(settings))
        init = init or settings.get("init")
        base = self.base(source, data, settings, recipe=recipe, init=init)
        config = base.config
        if init:
            config = fitted_to_checkpoint(config, init, self.for_checkpoint(settings, init), base.imposed)
        config = self.configured(config, data, {**settings, "task": self.task_for(data)})
        check_batch(config, data.train)
        config = config.model_copy(update={"source": absolute_source(str(source))})
        reasons = (*base.reasons, *self.reasons(config, data), *overruled(settings))
        return Plan(config, reasons, data, self.run_name(data))

    def reasons(self, config: Any, data: Any) -> tuple[str, ...]:
        """Return sentences about a complete configuration."""
        return ()

    def run_name(self, data: Any) -> str:
        """Return what a new run directory is named after."""
        return str(data.name)

    @abstractmethod
    def open_source(self, source: Any, config: DataConfig, **options: Any) -> Any:
        """Open DATA. The result has `train`, `validation`, `test` and `name`.

        Raises:
            InputError: it cannot be read, or it is for another task.
        """

    @abstractmethod
    def base(self, source: Any, data: Any, settings: Tree, *, recipe: str | None, init: str | None) -> Base:
        """Choose a recipe for the data."""

    def for_checkpoint(self, settings: Tree, init: str) -> Tree:
        """Return the user's settings over what a checkpoint has that this task cannot use."""
        return settings

    def task_for(self, data: Any) -> str:
        """Return the name of the task that the data are for, among those that plan alike."""
        return self.name

    def configured(self, config: Any, data: Any, settings: Tree) -> Any:
        """Lay the user's settings, and what the data impose, over a configuration."""
        return configure(config, settings, with_classes(settings, len(data.train.classes), data.name))

    def open_data(self, config: Any) -> Any:
        return self.open_source(config.source, config.data)

    # Training.

    def build(self, config: Any, data: Any, *, steps: int) -> nn.Module:
        model = trainable_model(config, data.train.classes)
        model.task = self.name
        return model

    def held_out_part(self, data: Any) -> tuple[str, Any] | None:
        if data.test:
            return "test", data.test
        return ("validation", data.validation) if data.validation else None

    def sample_images(self, data: Any, count: int) -> list[Image.Image]:
        images = data.train
        return [image for image in (readable(images, row) for row in sampled(images, count)) if image]

    # A trained model.

    def inspect(self, answerer: Any, examples: Sequence[Any], folder: Path, question: Question) -> Inspection:
        from vitreous.inspection.model_report import write_model_report

        return write_model_report(answerer, examples, folder, question)

    def open(self, spec: str, **overrides: Any) -> Any:
        return open_model(spec, **overrides)

    def held_out(self, spec: str, answerer: Any, data: str | None, settings: Tree) -> HeldOut:
        """Data that a run learned from are split as they were then, and their held-out part is taken. Of
        other data the test part is taken where they have one of their own, and everything where they have
        none.

        Args:
            settings: a tree; only `data` may be set.

        Raises:
            InputError: no such run or data, unknown settings, or nothing was held out.
        """
        check_data_settings("evaluate", settings)
        is_run = (Path(spec) / "config.toml").is_file()
        if data is None and not is_run:
            raise InputError(
                f"{spec} is not a run directory, so it does not say what to evaluate on: name the data"
            )
        trained = Run.open(Path(spec), self.config).config if is_run else None
        source = data or (trained.source if trained else "")
        learned = trained is not None and absolute_source(source) == absolute_source(trained.source)
        base = trained.data.model_dump() if trained and learned else self.unsplit(source)
        config = data_config({"data": {**base, **settings.get("data", {})}})
        parts = self.open_source(source, config, **self.expected(answerer))
        if parts.test is not None:
            return HeldOut(source, "held-out part", parts.test)
        if parts.validation is not None:
            return HeldOut(source, "validation part", parts.validation)
        if learned:
            raise InputError(f"{spec} was trained on all of {source}: name other data to evaluate it on")
        return HeldOut(source, "all of it", parts.train)

    def unsplit(self, source: str) -> dict[str, Any]:
        """Return the settings that open data whole."""
        return {"validation_fraction": 0.0, "test_fraction": 0.0}

    def expected(self, model: Any) -> dict[str, Any]:
        """Return what `open_source` is to know of the model that is evaluated."""
        return {}


def data_config(settings: Tree) -> DataConfig:
    """Return the [data] of a tree of settings."""
    try:
        return DataConfig(**settings.get("data", {}))
    except ValidationError as error:
        raise InputError(explain(error, "data")) from None


def check_data_settings(command: str, settings: Tree) -> None:
    """Raise InputError for settings of anything but data."""
    if other := [name for name in settings if name != "data"]:
        raise InputError(f"{command} has no setting {other[0]!r}: all of its settings begin with data.")
    check_known(settings, RunConfig)


def overruled(settings: Tree) -> tuple[str, ...]:
    """Return a sentence about what the user set, where something was."""
    own = [f"{name}={value}" for name, value in dotted(settings)]
    if not own:
        return ()
    more = f", and {len(own) - MOST_NAMED} more" if len(own) > MOST_NAMED else ""
    return (f"over all this your own settings: {', '.join(own[:MOST_NAMED])}{more}",)


def dotted(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ("training.epochs", 2) for every value of a tree of settings."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def with_classes(settings: Tree, present: int, name: str) -> dict[str, Any]:
    """Return the setting that gives the head one output for each class of the data."""
    wanted = settings.get("model", {}).get("num_classes")
    if wanted not in (None, present):
        raise InputError(f"model.num_classes is {wanted}, but {name} has {present} classes: leave it out")
    return {"model": {"num_classes": present}}


def check_batch(config: RunConfig, train: Any) -> None:
    """Raise InputError where an epoch has not one whole batch."""
    if (images := len(train)) < config.training.batch_size:
        raise InputError(
            f"a batch of {config.training.batch_size} is more than the {images} images to train on: set "
            f"--batch-size {max(images // 4, 1)}, for example"
        )


def readable(images: Any, row: int) -> Image.Image | None:
    """Return an image of a source, with or without masks; None where it cannot be read."""
    try:
        image: Image.Image = images.pair(row)[0] if hasattr(images, "pair") else images.image(row)
    except BadImage:
        return None  # listed in the run's bad_files.txt
    return image
