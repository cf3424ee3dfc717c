"""What a task is: everything that commands and the Python functions need to know about one; the plan of a
training, and what it gave."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from vitreous.checkpoints.runs import CANDIDATES, check_data_present, run_folder
from vitreous.errors import InputError, Param
from vitreous.evaluation.scores import answering_count, candidate_title
from vitreous.outside import read_text
from vitreous.results import failures
from vitreous.training.config import CommandConfig
from vitreous.training.config import Tree as Tree
from vitreous.training.distributed import ALONE, World
from vitreous.whole_files import write_text

if TYPE_CHECKING:
    from typing import Unpack

    from vitreous.data.config import TargetKind
    from vitreous.data.findings import Finding
    from vitreous.data.image_list import ImageRows
    from vitreous.data.loading import BadFiles
    from vitreous.evaluation.outputs import Batching
    from vitreous.evaluation.result import Evaluation
    from vitreous.results import Answer
    from vitreous.training.callbacks import Loader, MetricsRow
    from vitreous.training.clock import Clock
    from vitreous.training.learner import AverageWeight
    from vitreous.training.machine import Place
    from vitreous.training.run import RunDirectory
    from vitreous.training.settings import AnyConfig
    from vitreous.training.step import Objective

IMAGES: dict[str, str] = {"Images": "{model.image_size[0]}x{model.image_size[1]}, {model.channels} channels"}


class Card(NamedTuple):
    """What a task says of its models.

    The texts are filled in with the fields of the run's configuration and of its result, `classes` in words.
    """

    about: str  # what the model is, a sentence
    facts: Mapping[str, str]  # rows of the table
    use: str  # a command, its RUN in place, and lines of Python
    python: str
    limits: str  # what the numbers do not say


Measure = Callable[[nn.Module], Mapping[str, float]]


@runtime_checkable
class DataParts(Iterable[object], Protocol):
    """Data in parts, of images, of texts or of both: a tuple of them."""

    @property
    def name(self) -> str: ...
    @property
    def train(self) -> Sized: ...


ConfigT = TypeVar("ConfigT", bound=CommandConfig)  # all of a run
DataT = TypeVar("DataT", bound=DataParts)  # of which it learns
ExamplesT = TypeVar("ExamplesT")  # that a model is evaluated on
AnswererT = TypeVar("AnswererT")  # what gives its answers


class ComparedCandidates(Protocol):
    """Candidates that were compared before a network is trained: one of them answers in the end, or it does.
    (`vitreous.tasks.trials.CandidateComparison`)"""

    @property
    def seconds_to_answer(self) -> float:
        """Seconds of an image, beside the network's, that what answers in the end may take."""

    def begin(self, run: RunDirectory[Any]) -> None:
        """Write what was compared into the run directory of the network, before that learns."""

    def choose(
        self, trained: Trained[Any, Any], **options: Unpack[Batching]
    ) -> tuple[Trained[Any, Any], list[str]]:
        """Return what answers, and sentences about it: all processes call it together."""


@dataclass(frozen=True)
class Plan(Generic[ConfigT, DataT]):
    """What a training is going to do. It is made by `Task.plan`, changed by `plan_by_trials`, and fitted to
    the machine by `with_run`: nothing that is learned is decided after it.

    Attributes:
        reasons: why it is configured so, in sentences.
        name: of its run directory, where none is given.
        run: that directory, once it is made.
        replaces: the run directory with a first model, in whose place that one is made; None: there is none.
        compared: the candidates among which the answer is chosen at the end; None: the network answers.
        clock: of the command; None: its minutes are those of the training alone.
        findings: what was found in the data and said; None: not yet looked for.
    """

    task: AnyTask
    config: ConfigT
    data: DataT
    name: str
    reasons: tuple[str, ...] = ()
    run: RunDirectory[ConfigT] | None = None
    replaces: Path | None = None
    compared: ComparedCandidates | None = None
    clock: Clock | None = None
    findings: Sequence[Finding] | None = None

    @property
    def made(self) -> RunDirectory[ConfigT]:
        """Its run directory: that of a plan which is fitted to its machine."""
        assert self.run is not None
        return self.run

    def with_reasons(self, *reasons: str) -> Plan[ConfigT, DataT]:
        """Return it with more reasons."""
        return replace(self, reasons=(*self.reasons, *reasons))


@dataclass(frozen=True)
class TrainingBatches:
    """The batches that a training reads, and what is known of them before it does."""

    loader: Loader
    examples: int  # how many there are in an epoch
    bad: BadFiles  # those that could not be read; it fills while training reads
    files: Mapping[str, str] = field(default_factory=dict)  # names and texts of files of the model
    skipped: Mapping[str, int] = field(default_factory=dict)  # examples that were left out, by reason
    notes: tuple[str, ...] = ()  # sentences about them
    fixed_shapes: bool = True  # whether all batches have one shape, for which a step is compiled once
    averaging: AverageWeight | None = None  # of the weights, where the configuration does not ask for it


class HeldOut(NamedTuple, Generic[ExamplesT]):
    """Examples to evaluate a model on: where they are from, which part of that they are, and themselves; for
    a temperature also those from there that the model learned from; and what is known of the data, as by
    `train` and `data check`, or what the run's training has found."""

    source: str
    part: str
    examples: ExamplesT
    learned: object = None
    findings: Sequence[Finding] = ()


class Trained(NamedTuple, Generic[ConfigT, DataT]):
    """A model that has learned in a run, the data, and the seconds (of all sessions) that it took."""

    run: RunDirectory[ConfigT]
    data: DataT
    batches: TrainingBatches
    model: nn.Module
    seconds: float
    waiting: float  # the share of this session's training time in which it waited for data
    compared: ComparedCandidates | None = None  # the candidates that it was compared with


@dataclass(frozen=True)
class RunResult:
    """What a training gave."""

    task: str
    run: RunDirectory[CommandConfig]
    answerer: Any  # what answers with the trained model
    evaluation: Evaluation | None  # on the held-out part; None where there is none
    held_out: str | None  # which part that is: "test" or "validation"
    seconds: float  # of training, over all sessions
    waiting: float  # the share of this session's training time in which it waited for data
    train_count: int
    parameters: int
    bad: Mapping[str, str]  # examples that could not be read, with the reason
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else the task has to say
    findings: Sequence[Finding] = ()  # what may keep the model from being good
    said_before: Sequence[Finding] = ()  # those of them that were said before the training: of the data
    report: Path | None = None

    @property
    def candidates(self) -> Sequence[Mapping[str, Any]]:
        """The rows of the candidates that were compared, the best first."""
        return self.extra.get("candidates", ())

    @property
    def title(self) -> str:
        """The candidate that answers, in words."""
        return candidate_title(self.candidates[0]) if self.candidates else ""

    @property
    def answering_count(self) -> int:
        """How many candidates it is the best of."""
        return answering_count(self.candidates)

    def to_json(self) -> dict[str, object]:
        measured: dict[str, Any] = {"task": self.task, "metrics": {}, "count": 0, "failed": []}
        if self.evaluation:
            measured = self.evaluation.to_json()
        return {
            "run": str(self.run.path),
            **measured,
            "held_out": self.held_out,
            "evaluation_seconds": measured.get("seconds"),
            "seconds": self.seconds,
            "waiting": self.waiting,
            "train_count": self.train_count,
            "parameters": self.parameters,
            "bad_files": failures(self.bad),
            "findings": [each.to_json() for each in self.findings],
            **({"report": str(self.report)} if self.report else {}),
            **self.extra,
        }


def write_candidates(folder: Path, rows: Iterable[Any]) -> None:
    """Write the table of the candidates, of `vitreous.tasks.candidates.Trial`, into a run."""
    write_text(folder / CANDIDATES, json.dumps([asdict(each) for each in rows], indent=1))


def read_candidates(folder: Path) -> list[dict[str, Any]]:
    """Return the table of the candidates of a run; nothing where none were compared."""
    file = folder / CANDIDATES
    found: list[dict[str, Any]] = json.loads(read_text(file)) if file.is_file() else []
    return found


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """What messages, commands and pages need to know of a task.

    Attributes:
        noun: a model of this task, in messages.
        card: what the model card says of its models.
        options: for each command those that it understands beyond those of every task.
        instead: of an option of `train` that it does not understand; else "leave it out".
        source: the data where none are given.
        targets: what the labels of its data are.
        held_out: the parts of its data that a model is evaluated on, the first that there is.
        training: what training is called in messages.
        panels: the kind of learning curves of its runs, in the catalog of the pages.
        moving_target: whether the loss can climb while the model learns.
        inspected: held-out examples that `vitreous inspect` shows where it is given none.
        answer_folder: where folders of answers are made, if answers are files.
        compares: whether candidates are compared where nothing says what to train.
        has_classes: whether its data have a class for each image, which probes need.
        no_answers: what to do with a model that answers nothing, as it is an encoder alone; "" for others.
        no_images: what to do with a model that has no answer to images.
        evaluation_options: of `evaluate`, which training takes as well.
        generator: whether its model draws masks or views, with a generator that it is given beside images.
        alarms: each yields what rows of metrics.jsonl say that only this task knows of.
        answer_metadata: returns what the answers of an answerer to several images have in common.
        image_rows: yields images as an answerer takes them, where it is not as
            `vitreous.data.image_samples.image_rows` does.
    """

    noun: str
    card: Card
    options: Mapping[str, frozenset[str]]
    instead: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    targets: TargetKind = "classes"
    held_out: tuple[str, ...] = ("test", "validation")
    training: str = "training"
    panels: str = "images"
    moving_target: bool = False
    inspected: int = 24
    answer_folder: str = ""
    compares: bool = False
    has_classes: bool = True
    no_answers: str = ""
    no_images: str = "give another model"
    evaluation_options: frozenset[str] = frozenset()
    generator: bool = False
    alarms: tuple[Callable[[Sequence[MetricsRow]], Iterator[Finding]], ...] = ()
    answer_metadata: Callable[[Any], dict[str, Any]] | None = None
    image_rows: Callable[..., Iterator[ImageRows]] | None = None


class Task(ABC, Generic[ConfigT, DataT, ExamplesT, AnswererT]):
    """A task. There is one object of each, in the registry.

    A task's answerer is what gives its answers: a model, or an object that has one as `model` and more.
    """

    name: str  # in the registry, in config.toml and in model/config.json
    config: type[ConfigT]  # the configuration of its runs; its `command` trains them
    info: ClassVar[TaskInfo]

    # Training, in the order of a run.

    @abstractmethod
    def plan(
        self,
        source: str | DataT | None,
        settings: Tree,
        *,
        recipe: str | None = None,
        init: str | None = None,
        base: Tree | None = None,
    ) -> Plan[ConfigT, DataT]:
        """Return the configuration of a run on `source`, with `base` and the user's settings over it. Raises
        InputError: unknown settings, values or data, or what does not fit together.

        Args:
            source: DATA, or the data of another plan, which need not be opened again.
        """

    @abstractmethod
    def open_data(self, config: ConfigT, split: Path | None = None) -> DataT:
        """Open the data of a run that is resumed. split: its split.csv, where it has one."""

    @abstractmethod
    def prepare(self, config: ConfigT, data: DataT, place: Place) -> TrainingBatches:
        """Make the training batches of this process."""

    @abstractmethod
    def build(self, config: ConfigT, data: DataT, *, steps: int) -> nn.Module:
        """Build the model that learns, as it is before the first of so many steps, on the CPU."""

    @abstractmethod
    def objective(self, config: ConfigT, data: DataT) -> Objective:
        """Return the loss of a model on a batch."""

    def validation(self, config: ConfigT, data: DataT, world: World = ALONE) -> Measure | None:
        """Return what measures the model while it learns, called by all processes of `world` together; None
        without a validation set."""
        return None

    def save(self, run: RunDirectory[ConfigT], result: nn.Module, batches: TrainingBatches) -> None:
        """Write the model into the run's model/."""
        run.save_model(result, batches.files)

    def finalize(
        self, trained: Trained[ConfigT, DataT], **options: Unpack[Batching]
    ) -> tuple[Trained[ConfigT, DataT], list[str]]:
        """Return what is kept of a training, where it can be worse than what it began with, calibrated where
        it gives probabilities, and sentences about that. options: those of `Batching`."""
        return trained, []

    @abstractmethod
    def evaluate(self, answerer: AnswererT, examples: ExamplesT, **options: Unpack[Batching]) -> Evaluation:
        """Compare the answers to every example with what is known. options: those of `Batching`, and the
        task's own."""

    def extra_fields(self, trained: Trained[ConfigT, DataT]) -> dict[str, Any]:
        """Return what else a training command's JSON has."""
        return {}

    @abstractmethod
    def report(self, trained: Trained[ConfigT, DataT], result: RunResult) -> Path | None:
        """Write report.html; None where there is nothing to report on. result: has the answerer, its
        evaluation, findings and what `extra_fields` gives."""

    # A model that is trained.

    @abstractmethod
    def open(self, spec: str, **overrides: object) -> AnswererT:
        """Open the answerer that MODEL means."""

    def answerer_of(self, model: Any, files: Mapping[str, str] | None = None) -> AnswererT:
        """Return what answers with a model that is loaded already, by default itself. files: those of a
        model that was trained just now."""
        return model

    @abstractmethod
    def open_held_out(
        self, spec: str, answerer: AnswererT, data: str | None, settings: Tree
    ) -> HeldOut[ExamplesT]:
        """Return what `vitreous evaluate MODEL [DATA]` evaluates on: never what the model learned from, if
        that can be known."""

    def answer_function(
        self, answerer: AnswererT, device: torch.device, **options: Any
    ) -> Callable[[Sequence[str], Any], Iterable[Answer]]:
        """Return what answers a batch of images, as `image_rows` yields them, with these names. options:
        the task's own; of answers that are files `out`, their folder, and `names`, of all images that will
        come, in order."""
        raise InputError(f"{self.info.noun} has no answer to images: {self.info.no_images}")


AnyTask = Task[Any, Any, Any, Any]  # one of the registry
AnyPlan = Plan[Any, Any]  # of one


def get_held_out(
    task: Task[ConfigT, DataT, ExamplesT, AnswererT], data: DataT
) -> tuple[str | None, ExamplesT | None]:
    """Return the name of the part of a run's data that it does not learn from ("test" or "validation"), and
    its examples; None twice where there is none."""
    for name in task.info.held_out:
        if examples := getattr(data, name, None):
            return name, examples
    return None, None


def check_options(task: AnyTask, command: str, **given: object) -> None:
    """Raise InputError for the first option that is given (not None, False or {}) and not understood."""
    known = task.info.options.get(command, frozenset())
    for name, value in given.items():
        automatic = " auto" if value == "auto" else ""
        option = name + automatic
        if value is not None and value is not False and value != {} and option not in known:
            instead = task.info.instead.get(option) if command == "train" else None
            instead = instead or "leave it out"
            raise InputError(
                f"{Param(name)}{automatic} does not apply to {Param('task')} {task.name}: {instead}"
            )


def other_command(task: AnyTask, path: Path, command: str | None = None) -> str:
    """Return a sentence for a run of this task that is not one of the command that was given it; None: of
    one that asks its model for answers, and it has none."""
    resumed = f"resume it with vitreous {task.config.command} --resume {quote(str(path))}"
    if task.info.no_answers:
        return f"{path} is a pre-training run and has no classes: {task.info.no_answers}; {resumed}"
    if command == "pretrain":
        return (
            f"{path} is not a pre-training run: {resumed}; "
            f"to pre-train from its weights: vitreous pretrain DATA --init {quote(str(path))}"
        )
    return f"{path} is a run of {Param('task')} {task.name}: {resumed}"


def module_of(answerer: object) -> nn.Module:
    """Return the model of an answerer: itself, or the one that it has."""
    model = answerer if isinstance(answerer, nn.Module) else getattr(answerer, "model", None)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"a model is a path, a name such as ViT-B/16, a Run or a PyTorch module, not {answerer!r:.60}"
        )
    return model


def config_of_run(spec: str, data: str | None, kind: type[AnyConfig]) -> AnyConfig | None:
    """Return the configuration of the run that MODEL means, to find what to evaluate on; None where it is not
    a run. Raises InputError: it is not a run, and no data are named."""
    folder = run_folder(spec)
    if (folder / "config.toml").is_file():
        # A command that answers needs this module for nothing else.
        from vitreous.training.run import RunDirectory

        config = RunDirectory.open(folder, kind).config
        if data is None:
            check_data_present(config.source, folder, f"specify its new location after {spec}")
        return config
    if data is None:
        raise InputError(
            f"{spec} is not a run directory, so it does not record its data: name the data to evaluate on"
        )
    return None
