"""How a model is trained where nothing is asked for: candidates are tried, from methods that are fitted in
seconds over frozen features to short trainings, and images that none of them has learned from decide. This is
a program before the training: it takes a plan, and returns one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from vitreous.checkpoints.loading import load_image_model
from vitreous.checkpoints.native import save_native
from vitreous.checkpoints.pretrained_encoders import (
    INSTALLED_ENCODERS,
    HubEncoder,
    encoders_at_hand,
    installed_encoders,
)
from vitreous.checkpoints.runs import SHORT_TRIAL
from vitreous.data.dataset import Splits
from vitreous.data.held_out import FOLDS
from vitreous.errors import InputError, Param, check_utf8
from vitreous.evaluation.calibration import write_best_thresholds
from vitreous.evaluation.classical import MOST_FITTED
from vitreous.evaluation.scores import Outputs
from vitreous.languages.terminal import said, said_time
from vitreous.models.model import Model
from vitreous.models.settings import set_leaf
from vitreous.outside import read_text, scheme_of
from vitreous.rng import numpy_generator
from vitreous.tasks import task_of_run
from vitreous.tasks.candidates import (
    FEWEST,
    Candidate,
    CandidateTable,
    Part,
    add_classical,
    add_frozen,
    add_means,
    final_model,
    has_answer,
    has_validation,
    network_outputs,
    problem_of,
)
from vitreous.tasks.kept_trials import KeptTrials, keep_trials, kept_trials
from vitreous.tasks.recipe_choice import SMALL, SMALL_ENCODER, encoder_weight_count
from vitreous.tasks.task import AnyPlan, AnyTask, Plan, Trained, Tree, write_candidates
from vitreous.tasks.training_run import (
    fit,
    open_run,
    plan_of_run,
    recorded_parts,
    report_known_findings,
    seconds_after,
    with_run,
)
from vitreous.training.clock import Clock
from vitreous.training.config import RunConfig, length_of, within_minutes
from vitreous.training.initial_model import described_checkpoint
from vitreous.training.machine import Place, threads_for
from vitreous.training.run import RunDirectory, check_free_for_run, default_run_path, with_training
from vitreous.training.trainer import LONGEST_FINISH, NotFinite

# Each was chosen on training images alone; the values that decided were not kept. The points that three of
# them speak of were measured since, on training images, too: they are differences between `candidates` of
# benchmarks/results/real_images_default.json.
MINUTES = 10.0  # that a training takes at most where it gains: 220,000 looks at 64x64
# Where a method without steps is ahead of the short trials: what a user waits for the report; in runs of 7 to
# 12 minutes a network gained -0.4 to 2.7 points in a mean with it.
MINUTES_WITHOUT_GAIN = 3.0
SHARE = 0.07  # of the time, for each short trial: three leave four fifths for the training
SHORTEST_TRIAL = 2.0  # seconds: of less, most goes into making a model and its batches
LONGEST_TRIAL = 90.0  # seconds: other processes wait for the first one meanwhile
DESCRIBED = 0.25  # of the time, for what an SVM on HOG and color and others see and learn
SECONDS_DESCRIBED = 0.006  # of a core, for an image that these methods learn from
FEWEST_DESCRIBED = 500  # images, of which these methods learn in any case
SECONDS_AT = {128: 0.013, 224: 0.045}  # of a core, for an image's features of vitreous:photos, by their size
# Of the time, until which features at 128 pixels are there: they gain 2 to 19 points over HOG and color, more
# than all that follows. Those at 224 pixels gain -4 to 4 points over those at 128.
FEATURES_UNTIL, FROZEN_UNTIL = 1.0, 0.3
TRIALS_UNTIL = 0.5  # of the time, after which no further training is tried
DETAILED = 128  # pixels of the shorter side, from which on a model that sees as many is tried
MANY_SMALL = 10_000  # images, from which on fewer, larger patches are tried: a quarter of the operations
MOST_TRIED = 20_000  # images that a short trial of small images reads
NOTHING = length_of(steps=0)  # the length of a training where none follows
ENDLESS = 10**9  # epochs between validations: there is one, at the end
FINER: Tree = {"image_size": 128, "patch_size": 16, "stem": {"strides": (2, 2, 2, 1, 2, 1)}}
LIGHTER: Tree = {"patch_size": 8, "stem": {"strides": (2, 1, 2, 1, 2, 1)}}
# Low-rank changes of a large encoder, at the rate that they need.
LORA: Tree = {"lora": {"rank": 8}, "peak_lr": 1e-3, "optimizer": {"layer_decay": None}}


@dataclass(frozen=True)
class TrainingMethod:
    """A way to train a network: its name, here and in the catalog of languages, the checkpoint that it begins
    with, and settings under the user's own. length: where it is not as these settings say."""

    name: str
    words: str
    init: str | None = None
    settings: Tree = field(default_factory=dict)
    length: str | None = None

    @property
    def part(self) -> Part:
        """It as one that answers."""
        return Part(name=self.name, words=f"candidates.{self.words}", init=self.init)


def plan_by_trials(
    plan: Plan[RunConfig, Splits],
    settings: Tree,
    *,
    given: str | None = None,
    out: Path | None = None,
    offline: bool = False,
    place: Place,
    tell: Callable[[str], None],
    clock: Clock | None = None,
    kept: KeptTrials | None = None,
) -> Plan[RunConfig, Splits]:
    """Compare candidates in the first process, and return the plan that they decide in all: each of several
    processes then trains the same method. The run directory has a first model after seconds.

    Args:
        plan: of a training from scratch.
        settings: the user's own.
        given: a checkpoint that is compared with the others.
        out: the run directory; None: a new one.
        offline: never ask the hub for an encoder.
        clock: of the command.
        kept: trials of `out` that were interrupted, and go on.

    Raises:
        InputError: if `Task.plan` raises it, or there is something at `out` already.
    """
    clock = clock or Clock()
    trials: Trials | None = None
    decided: tuple[TrainingMethod, str | None, tuple[str, ...]] | None = None
    if place.world.first:
        # The directory is checked before minutes are spent on it.
        if out is not None and kept is None:
            check_free_for_run(out, "train")
            check_utf8(str(out), Param("out"))
        options = {"offline": offline, "given": given}
        plan = replace(plan, findings=report_known_findings(plan.task, plan.data, tell))
        trials = Trials(plan, settings, place.device, tell, out, clock, options, kept)
        training, notes = compare_candidates(trials)
        folder = str(trials.run.path.absolute()) if trials.run else None
        decided = training, folder, notes
    theirs = place.world.broadcast(decided)
    assert theirs is not None
    training, folder, notes = theirs
    path = Path(folder) if folder else None
    if trials and trials.run:
        # The first process keeps the path as it was given; others may have another working directory.
        path = trials.run.path
    # What it begins with is decided: `base` names it, so that no reason advises what was compared just now.
    base = {**training.settings, "init": training.init}
    found = plan.task.plan(plan.data, settings, init=training.init, base=base)
    config = with_training(found.config, length=training.length) if training.length else found.config
    # The recipe of a network is left out where none is trained.
    reasons = notes if config.training.steps == 0 else (*found.reasons, *notes)
    return replace(
        found,
        reasons=reasons,
        config=config,
        replaces=path,
        compared=CandidateComparison(training, trials.table if trials else None, trials),
        clock=clock,
        findings=plan.findings,
    )


def resumed_trials(
    path: Path,
    place: Place,
    tell: Callable[[str], None],
    *,
    data: str | None,
    length: str | None,
    shard: bool | None,
) -> AnyPlan | None:
    """Begin again with the trials of a run that was interrupted while candidates were compared; None where it
    was not.

    Args:
        data, length, shard: as of `vitreous.tasks.training_run.resume_run`.
        place, tell: as of `plan_by_trials`.
    """
    kept = kept_trials(path)
    if kept is None or kept.decision is not None:
        return None
    run, task = open_run(path).with_data(data), task_of_run(path)
    settings: dict[str, Any] = {**kept.settings, "source": run.config.source}
    for leaf, value in (("training.length", length), ("training.machine.shard", shard)):
        if value is not None:
            set_leaf(settings, leaf, value)
    plan = plan_by_trials(
        task.plan(task.open_data(run.config, run.split), settings),
        settings,
        out=path,
        clock=Clock.after(kept.seconds),
        kept=kept,
        **kept.options,
        place=place,
        tell=tell,
    )
    return with_run(plan, settings, place)


def with_kept_trials(plan: AnyPlan, place: Place) -> AnyPlan:
    """Return the plan of a run that goes on, with the candidates among which its answer is chosen at the
    end."""
    world = place.world
    kept = kept_trials(plan.made.path) if world.first else None
    compared: CandidateComparison | None = None
    why = said(
        "candidates were compared by another version, whose predictions this one cannot read: only the "
        "network is used; a new run compares them again"
    )
    if kept is not None and kept.decision is not None:
        table = CandidateTable.of(plan.data, problem_of(plan.config, plan.data), place.device, kept.most)
        why = said("these are not the images on which the candidates were compared: only the network is used")
        if kept.fill(table):
            compared = CandidateComparison(TrainingMethod(**kept.decision), table)
    others = world.broadcast(compared and CandidateComparison(compared.training, None))
    plan = plan if compared or not world.first else plan.with_reasons(why)
    return replace(plan, compared=compared if world.first else others)


def compare_candidates(trials: Trials) -> tuple[TrainingMethod, tuple[str, ...]]:
    """Try the candidates one after the other. Return the training that follows, and sentences about it. The
    best so far is the model of the run directory, so that there is one after seconds. Raises InputError if
    `Task.plan` does."""
    task, data, settings = trials.plan.task, trials.data, trials.settings
    table, tell = trials.table, trials.tell
    tell(said("comparing candidates on {count:,} training images", count=len(data.train)))

    # ---- Methods that are fitted in seconds; the best of them is the first model

    if not table.candidates:
        add_classical(table, flip=trials.plan.config.augmentation.flip, tell=tell)
        trials.add_means()
    trials.keep_best()

    # ---- Heads on the features of an encoder

    side = min(data.summary.height, data.summary.width)
    is_small = side < SMALL
    at_hand: list[str] = []
    if not is_small:
        offline = bool(trials.options.get("offline"))
        at_hand = encoders_to_try(task, data, settings, tell, offline=offline)
    trainings = [*compare_encoders(trials, at_hand), TrainingMethod("from scratch", "scratch")]

    # ---- Short trainings of networks

    tried_on = data
    if is_small:
        small, tried_on = small_trainings(data)
        trainings = [*trainings[:-1], *small]
    elif side >= DETAILED and has_validation(data):
        trainings.append(TrainingMethod("from scratch at 128x128", "finer", settings={"model": FINER}))
    is_needed = len(trainings) > 1 or not table.uses_validation or bool(table.best and not is_small)
    if is_needed and (trials.asked or not table.is_solved):
        for training in trainings:
            # A run that was interrupted has tried it already.
            if training.name in table.names:
                continue
            if not trials.is_within(TRIALS_UNTIL, trials.last) or trials.are_too_short:
                break
            try:
                trials.train_briefly(training, tried_on)
            except KeyboardInterrupt as stopped:
                trials.note_interrupt(stopped)
                raise
        trials.add_means()
    training, notes = trials.decide(trainings)
    if training.length == NOTHING and not table.is_solved and trials.add_photos_left():
        training, notes = trials.decide(trainings)
    return training, notes


def compare_encoders(trials: Trials, at_hand: Sequence[str]) -> list[TrainingMethod]:
    """Add heads on the features of the checkpoint that the user gives, and of encoders at hand. Return the
    trainings that begin with them; of two at hand with the one from whose features the better answers come,
    since short trials of both would take the time of the training."""
    given = [trials.options["given"]] if trials.options.get("given") else []
    found: dict[str, list[TrainingMethod]] = {}
    for name in reversed([*given, *at_hand]):
        # What was tried before may have taken the time.
        if name in given or trials.has_time_for(name, FEATURES_UNTIL):
            among_several = len(at_hand) > 1 and name not in given
            found[name] = compare_encoder(trials, name, among_several=among_several)
    usable = [name for name in at_hand if found.get(name)]
    best_at_hand = sorted(usable, key=trials.table.merit_on_features, reverse=True)[:1]
    return [each for name in dict.fromkeys([*given, *best_at_hand]) for each in found[name]]


def compare_encoder(trials: Trials, name: str, *, among_several: bool = False) -> list[TrainingMethod]:
    """Add heads on the features of an encoder to the candidates. Return the trainings that begin with it;
    none of one that cannot be used, or not in time, which is said.

    Args:
        among_several: as of `Trials.add_photos`.
    """
    if name in INSTALLED_ENCODERS:
        # A training begins with a head that is fitted on the same features, so that it takes no less time.
        if not trials.add_photos(name, among_several=among_several) and name != trials.options.get("given"):
            return []
        # Its Transformer layers learn; the stem stays as it is.
        base = {"training": {"freeze": ["stem"], **trials.first_head}, "model": {"image_size": 128}}
        return [TrainingMethod(f"fine-tuned {name}", "tuned", name, base)]
    first_head = trials.first_head
    tuned = TrainingMethod(f"fine-tuned {name}", "tuned", name, {"training": first_head})
    begun = trials.task.plan(trials.data, trials.settings, init=tuned.init, base=tuned.settings)
    try:
        trials.add_heads(name, begun.config)
    except InputError as error:
        # Its weights may not be finite, for example.
        trials.tell(said("{name} is not used: {reason}", name=name, reason=error))
        return []
    # A large encoder may forget what it knows where all of its weights are trained.
    if encoder_weight_count(described_checkpoint(name)[0]) < SMALL_ENCODER:
        return [tuned]
    both: dict[str, Any] = {"training": {**first_head, **LORA}}
    return [tuned, TrainingMethod(f"LoRA of {name}", "lora", name, both)]


def small_trainings(data: Splits) -> tuple[list[TrainingMethod], Splits]:
    """Return the trainings that are tried on small images, and the images that they are tried on."""
    trainings = [TrainingMethod("from scratch", "scratch")]
    if len(data.train) <= MANY_SMALL or not has_validation(data):
        return trainings, data
    lighter: Tree = {"model": LIGHTER}
    trainings.append(TrainingMethod("from scratch with fewer, larger patches", "lighter", settings=lighter))
    most = MOST_TRIED
    rows = numpy_generator(0, "images of short trials").permutation(len(data.train))[:most]
    return trainings, data._replace(train=data.train.subset(np.sort(rows)))


class Trials:
    """The candidates of a run while they are tried."""

    def __init__(
        self,
        plan: Plan[RunConfig, Splits],
        settings: Tree,
        device: torch.device,
        tell: Callable[[str], None],
        out: Path | None,
        clock: Clock,
        options: Mapping[str, Any],
        kept: KeptTrials | None,
    ) -> None:
        self.task, self.settings, self.plan, self.device, self.tell = plan.task, settings, plan, device, tell
        self.out, self.clock, self.options = out, clock, options
        self.data = plan.data
        self.asked = "length" in settings.get("training", {})
        self.minutes = plan.config.training.minutes if self.asked else MINUTES
        self.run: RunDirectory[RunConfig] | None = None  # with the best model so far
        self.last = 0.0  # seconds of the last short trial: the next one may take as long
        # An encoder whose features at 224 pixels are not tried yet, and how long those at 128 took.
        self.photos_left: str | None = None
        self.photos_took = 0.0
        most = kept.most if kept else self.most_described()
        self.table = CandidateTable.of(self.data, problem_of(plan.config, self.data), device, most)
        self.table.threads = threads_for(device, tell)
        if kept and out is not None:  # trials that were interrupted
            self.run = RunDirectory.open(out, type(plan.config))
            # Candidates of other images are left out.
            kept.fill(self.table)

    def keep(self, folder: Path, decision: TrainingMethod | None = None) -> None:
        """Keep the candidates, and what they decided, in the run directory."""
        facts = {"settings": self.settings, "options": self.options, "seconds": self.clock.seconds}
        facts["decision"] = asdict(decision) if decision else None
        keep_trials(folder, self.table, facts)

    def is_within(self, share: float, seconds: float = 0.0) -> bool:
        """Return whether something that takes so many seconds would end within a share of the time."""
        return self.minutes is None or self.clock.seconds + seconds < share * 60 * self.minutes

    def has_time_for(self, encoder: str, share: float, seconds: float = 0.0) -> bool:
        """Return whether an encoder can be tried within a share of the time, where its features take so many
        seconds; say so if not. One that was tried before an interruption takes no more time."""
        if self.table.heads_on(encoder) or self.is_within(share, seconds):
            return True
        enough = math.floor((self.clock.seconds + seconds) / share / 60) + 1
        self.tell(
            said(
                "{name} is not tried, since too little time is left for it: give --minutes {more} or more",
                name=encoder,
                more=enough,
            )
        )
        return False

    def keep_best(self) -> None:
        """Make the best candidate the model of the run directory."""
        best = self.table.best
        if best is None or best.learns:
            return
        first = self.run is None
        if self.run is None:
            config = with_training(self.plan.config, length=NOTHING)
            parts = recorded_parts(self.data)
            self.run = RunDirectory.create(self.out or default_run_path(self.plan.name), config, parts)
        self.run.save_model(final_model(self.table, best))
        self.keep(self.run.path)
        if first:
            self.tell(
                said(
                    "first model after {time}: `{command}` works from now on, and Ctrl-C keeps it",
                    time=said_time(self.clock.seconds),
                    command=predicting(self.run.path),
                )
            )

    def add_heads(self, name: str, config: RunConfig) -> None:
        """Add heads on the features of an encoder as it is, and their means with others."""
        # A run that was interrupted has tried it already.
        if f"linear on {name}" in self.table.names:
            return
        add_frozen(self.table, name, config, tell=self.tell)
        self.add_means()
        self.keep_best()

    def add_means(self) -> None:
        """Add the means of two candidates that were not there before."""
        for row in add_means(self.table):
            self.tell(row.sentence())

    @property
    def first_head(self) -> Tree:
        """How the head of a fine-tuned encoder begins: as logistic regression where `RunConfig` takes it."""
        return {"head": {"kind": "linear"}} if self.task.name == "classification" else {}

    def most_described(self) -> int:
        """Return how many images classical methods learn from: as many as the time allows."""
        if self.minutes is None:
            return MOST_FITTED
        seconds = DESCRIBED * 60 * self.minutes / self.clock.slowness
        images = int(seconds / SECONDS_DESCRIBED)
        return min(max(images, FEWEST_DESCRIBED), MOST_FITTED)

    def seconds_left(self, minutes: float | None, answering: float = 0.0) -> float:
        """Return the seconds that are left, of so many minutes from the command to its report.

        Args:
            answering: seconds of an image that what answers in the end takes, where no candidate takes more.
        """
        if minutes is None:
            return math.inf
        answering = max(answering, self.table.seconds_to_answer)
        after = seconds_after(self.plan.config, self.data, self.clock, answering=answering)
        return 60 * minutes - self.clock.seconds - min(after, LONGEST_FINISH * 60 * minutes)

    @property
    def are_too_short(self) -> bool:
        """Whether short trials would end before they have learned anything, each of every fold."""
        folds = 1 if self.table.uses_validation else FOLDS
        seconds = 60 * (self.minutes or math.inf) * SHARE / folds
        return seconds < SHORTEST_TRIAL * self.clock.slowness

    def add_photos(self, name: str, *, among_several: bool = False) -> bool:
        """Add heads on the features of an encoder that has seen photographs: of images at 128 pixels, and
        where there is time at 224. Return whether there was time for any.

        Args:
            among_several: whether another encoder is tried as well; then this one has a share of the time, at
                128 pixels.
        """
        share = FROZEN_UNTIL if among_several else FEATURES_UNTIL
        if not self.has_time_for(name, share, self.seconds_for_photos(128)):
            return False
        began, tried = self.clock.seconds, len(self.table.candidates)
        self.add_photos_at(name, 128)
        if among_several:
            return True
        # A run that was interrupted has its candidates already, and took no time for them now.
        is_new = len(self.table.candidates) > tried
        took = self.clock.seconds - began if is_new else self.seconds_for_photos(128)
        self.photos_left, self.photos_took = name, took
        # No network follows where each fold's short trial, by which it would be chosen, is too short.
        if self.are_too_short and not self.table.uses_validation:
            self.add_photos_left()
        elif self.is_within(FROZEN_UNTIL, self.seconds_for_photos(224)):
            self.add_photos_at(name, 224)
            self.photos_left = None
        return True

    def add_photos_left(self) -> bool:
        """Add the heads at 224 pixels that time was kept from, where no network follows: all of it but the
        report's is theirs now. Return whether they were added."""
        if self.photos_left is None:
            return False
        # Both say too much: the first takes the fitting of heads for features, the second a machine that was
        # busy when the command began for one that still is.
        by_those_at_128 = self.photos_took * SECONDS_AT[224] / SECONDS_AT[128]
        seconds = min(by_those_at_128, self.photos_took + self.seconds_for_photos(224))
        answering = SECONDS_AT[224] * self.clock.slowness
        if seconds >= self.seconds_left(self.longest(self.table.best), answering=answering):
            return False
        self.add_photos_at(self.photos_left, 224)
        self.photos_left = None
        return True

    def seconds_for_photos(self, side: int) -> float:
        """Return how long the features of all images take at this size."""
        images = min(len(self.data.train), MOST_FITTED) + len(self.data.validation or ())
        return images * (SECONDS_AT[side] * self.clock.slowness + self.table.seconds_to_read)

    def add_photos_at(self, name: str, side: int) -> None:
        """Add heads on the features of an encoder that has seen photographs, of images at so many pixels."""
        begun = self.task.plan(self.data, self.settings, init=name, base={"model": {"image_size": side}})
        self.add_heads(f"{name} ({side}x{side})", begun.config)

    def train_briefly(self, training: TrainingMethod, data: Splits) -> None:
        """Train a network for a short time, and add what it answers: to the validation set, or where that is
        small to folds of the training set, each by one that has not seen it."""
        began = self.clock.seconds
        table = self.table
        planned = self.task.plan(data, self.settings, init=training.init, base=training.settings)
        config = planned.config
        if self.minutes is not None:
            config = with_training(config, length=length_of(minutes=self.minutes))
        parts = [(data, np.arange(len(table.images)))]
        if not table.uses_validation:
            parts.clear()
            grouped = table.problem._replace(groups=data.train.together())
            for rows, others in grouped.folds(table.truth):
                learned, left = data.train.subset(rows), data.train.subset(others)
                parts.append((data._replace(train=learned, validation=left, test=None), others))
        config = trial_config(config, SHARE / len(parts))
        if config.training.minutes is not None:
            most = LONGEST_TRIAL / 60 / len(parts)
            config = with_training(config, length=length_of(minutes=min(config.training.minutes, most)))
        outputs = torch.full((len(table.images), table.problem.outputs), float("nan"))
        # A speed of 0 would be that of a method without steps.
        speed = 1.0
        for part, rows in parts:
            answers, per_second, network = trained_answers(config, part, self.device)
            outputs[torch.from_numpy(rows)] = answers
            speed = max(speed, per_second)
        self.last = self.clock.seconds - began
        row = table.add([training.part], outputs, seconds=self.last, speed=speed)
        if self.run is not None:
            alone = [each.trial.merit for each in table.candidates if each.learns and len(each.parts) == 1]
            if table.uses_validation and network is not None and row.merit == max(alone):
                save_short_trial(self.run.path, network, row.name)
            self.keep(self.run.path)
        self.tell(row.sentence())

    def note_interrupt(self, stopped: KeyboardInterrupt) -> None:
        """Say what an interrupt leaves."""
        if self.run is None:
            return
        best = next(each for each in self.table.ranked() if not each.learns)
        stopped.add_note(
            said(
                "stopped while candidates were compared: {run} has the best so far, {name}; use it with "
                "{command}, or resume it with vitreous train --resume {path}",
                run=self.run.path,
                name=best.trial.title(),
                command=predicting(self.run.path),
                path=quote(str(self.run.path)),
            )
        )

    def decide(self, trainings: list[TrainingMethod]) -> tuple[TrainingMethod, tuple[str, ...]]:
        """Choose the training: that of the best trial, unless what is ahead is so by more than chance. Return
        it with its length, and sentences about it."""
        ranked, tried = self.table.ranked(), dict[str, Candidate]()
        for each in ranked:
            if each.learns and len(each.parts) == 1:
                tried[each.trial.name] = each
        best = ranked[0] if ranked else None
        name = next(iter(tried), trainings[0].name)
        training = next(each for each in trainings if each.name == name)
        notes, nothing = list[str](), ""
        # A method without steps that is better than every short trial.
        leader = best if best is not None and not best.learns else None
        if leader is not None:
            above = max(ranked, key=lambda each: each.trial.merit)
            if above is not leader:
                notes.append(
                    said(
                        "{name} is ahead of {other} by no more than chance, and could not be measured again "
                        "after learning from all images",
                        name=above.trial.title(),
                        other=leader.trial.title(),
                    )
                )
            name_and_score = {"name": leader.trial.title(), "score": leader.trial.text(leader.trial.score)}
            if self.table.uses_validation:
                notes.append(
                    said(
                        "so far, {name} is ahead with {score}: the best candidate at the end becomes the "
                        "model",
                        **name_and_score,
                    )
                )
            else:
                notes.append(said("{name}, with {score}, becomes the model", **name_and_score))
            nothing = self.why_nothing(leader, tried.get(name), several=len(trainings) > 1)
        if nothing:
            return replace(training, length=NOTHING), (*notes, nothing)
        if leader is not None and not self.table.uses_validation:
            notes.append(said("a network is trained for the requested length, but does not become the model"))
        elif name in tried:
            notes.append(
                said("training {name}, the best of the short trials", name=tried[name].trial.title())
            )
        return replace(training, length=self.length(training, leader)), tuple(notes)

    def why_nothing(self, leader: Candidate, tried: Candidate | None, *, several: bool) -> str:
        """Return why no network is trained where a method without steps is ahead; "" where one is.

        Args:
            leader: that method.
            tried: the best short trial.
            several: whether there was another.
        """
        if tried is None and not self.table.uses_validation:
            return said(
                "nothing is trained: the time left is too short for trials that would choose what to train"
            )
        if self.table.is_solved and not self.asked:
            return said("nothing is trained: {name} answers all of them correctly", name=leader.trial.title())
        may_end = (several or not self.table.uses_validation) and not self.asked
        if tried is not None and may_end and self.table.is_clearly_worse(tried, leader):
            return said(
                "nothing is trained: after its short trial, {name} is worse by more than chance",
                name=tried.trial.title(),
            )
        if not self.table.uses_validation and not (self.asked and self.minutes is None):
            return said(
                "nothing is trained: with fewer than {count} validation images, a longer training could not "
                "be compared with {name}",
                count=FEWEST,
                name=leader.trial.title(),
            )
        if self.seconds_left(self.longest(leader)) < SHORTEST_TRIAL * self.clock.slowness:
            return said("nothing is trained: the remaining time is for the report")
        return ""

    def length(self, training: TrainingMethod, leader: Candidate | None) -> str | None:
        """Return how long the training is: as it was asked for; else as the time allows, of which less is
        taken where nothing was gained so far."""
        minutes = self.longest(leader)
        if self.asked or minutes is None:
            return None
        planned = self.task.plan(self.data, self.settings, init=training.init, base=training.settings)
        return within_minutes(planned.config.training.length, minutes)

    def longest(self, leader: Candidate | None) -> float | None:
        """Return the minutes of the command."""
        if self.asked:
            return self.minutes
        return MINUTES_WITHOUT_GAIN if leader else MINUTES


def predicting(run: Path | None) -> str:
    """Return the command that asks the model of a run."""
    return f"vitreous predict {quote(str(run))} IMAGE"


def encoders_to_try(
    task: AnyTask, source: object, settings: Tree, tell: Callable[[str], None], *, offline: bool
) -> list[str]:
    """Return the best pre-trained encoder that can be had and suits the data (one in the hub's cache, a small
    open one of the hub, or one that comes with a package), and beside one of the hub those of installed
    packages: whose features are better is seen on the images."""

    def suits(encoder: HubEncoder) -> bool:
        try:
            if scheme_of(encoder.name) == "hf":
                tell(said("encoder: {name} ({about})", name=encoder.name, about=encoder.about))
            task.plan(source, settings, init=encoder.name)
        except InputError as error:
            tell(said("{name} is not used: {reason}", name=encoder.name, reason=error))
            return False
        return True

    best = next(filter(suits, encoders_at_hand(offline=offline)), None)
    if best is None:
        return []
    others = installed_encoders() if scheme_of(best.name) == "hf" else ()
    return [best.name, *(each.name for each in others if suits(each))]


def trial_config(config: RunConfig, share: float) -> RunConfig:
    """Return the configuration of a trial, which takes a share of the training."""
    training = config.training
    length = length_of(
        epochs=training.epochs and training.epochs * share,
        steps=training.steps and max(1, round(training.steps * share)),
        minutes=training.minutes and training.minutes * share,
    )
    records = training.records_config.model_copy(update={"upload": None, "track": (), "early_stopping": None})
    config = with_training(config, length=length, records=records)
    return config.model_copy(
        update={"evaluation": config.evaluation.model_copy(update={"every_epochs": ENDLESS})}
    )


def trained_answers(
    config: RunConfig, data: Splits, device: torch.device
) -> tuple[Outputs, float, Model | None]:
    """Train in a folder that is removed, and return what the network answers to the validation set, how many
    images a second it learned from, and the network. Where the loss does not stay finite, all answers are
    zeros, and there is none."""
    assert data.validation is not None
    images = len(data.train)
    if images < config.training.batch_size:
        config = with_training(config, batch_size=images)
    problem, place = problem_of(config, data), Place(device)
    model: Any = None
    # A trial warns that its time is short, which is meant.
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        config = with_training(config, precision=place.precision(config))
        run = RunDirectory.create(Path(folder) / "trial", config)
        try:
            model = fit(plan_of_run(run, data), place, resumable=False).model.to(device)
            outputs = network_outputs(
                model,
                data.validation,
                problem.task,
                device=device,
                workers=0,
                batch_size=config.training.machine_config.evaluation_batch_size,
            )
        except NotFinite:
            model = None
            outputs = torch.zeros(len(data.validation), problem.outputs)
        return outputs, images_per_second(run), model


def images_per_second(run: RunDirectory[RunConfig]) -> float:
    """Return how many images a second a run learned from at its end; 0 where its metrics have none."""
    speeds = [row["images_per_second"] for row in run.metrics() if "images_per_second" in row]
    return float(speeds[-1]) if speeds else 0.0


def save_short_trial(run: Path, network: Model, name: str) -> None:
    """Keep the network of the best short trial in a run: it answers where a longer training is no better."""
    save_native(network.cpu(), run / SHORT_TRIAL, files={"trial.txt": name})


def short_trial_of(run: Path) -> str | None:
    """Return the name of the short trial whose network a run has kept."""
    file = run / SHORT_TRIAL / "trial.txt"
    return read_text(file) if file.is_file() else None


@dataclass(frozen=True)
class CandidateComparison:
    """The candidates of a run, among which its answer is chosen once its network is trained.

    Attributes:
        training: of the network.
        table: None in every process but the first.
        trials: that filled the table in this session.
    """

    training: TrainingMethod
    table: CandidateTable | None
    trials: Trials | None = None

    @property
    def seconds_to_answer(self) -> float:
        """Seconds of an image, beside the network's, that what answers in the end may take."""
        return self.table.seconds_to_answer if self.table else 0.0

    def begin(self, run: RunDirectory[RunConfig]) -> None:
        """Keep the table and what it decided in the run directory of the network, before that learns."""
        if self.table and self.trials:
            write_candidates(run.path, self.table.rows())
            self.trials.keep(run.path, self.training)

    def choose(self, trained: Trained[RunConfig, Splits], **options: Any) -> tuple[Any, list[str]]:
        """Return what answers, and sentences about it: all processes call it together.

        Args:
            options: how examples pass through the network.
        """
        world, run, table = options["world"], trained.run, self.table
        sentences, alone = list[str](), True
        if world.first and table is not None:
            chosen = last_comparison(table, self.training, trained, options)
            if chosen is not None:
                row = replace(chosen.trial, seconds=0.0).sentence()
                sentences.append(said("chosen as the model: {row}", row=row))
                for each in table.rows():
                    if each.passed_over:
                        row = replace(each, seconds=0.0).sentence()
                        sentences.append(said("ahead, but cannot answer: {row}", row=row))
                alone = chosen.learns and len(chosen.parts) == 1 and not chosen.is_short
                if not alone:
                    network: Any = trained.model
                    if chosen.is_short:
                        network = load_image_model(run.path / SHORT_TRIAL)
                    model = final_model(table, chosen, network)
                    run.save_model(model)
                    keep_thresholds(run.path / "model", table, chosen)
                    trained = trained._replace(model=model)
                if not chosen.is_short:
                    rmtree(run.path / SHORT_TRIAL, ignore_errors=True)
            write_candidates(run.path, table.rows())
        if world.size > 1 and not world.broadcast(alone) and not world.first:
            trained = trained._replace(model=run.model())
        return trained, sentences


def keep_thresholds(folder: Path, table: CandidateTable, chosen: Candidate) -> None:
    """Write the best threshold of each label, by the answers to images that nothing had learned from: the
    model itself has learned from all of them."""
    if table.problem.task != "multilabel":
        return
    known = has_answer(chosen.outputs)
    probabilities = chosen.outputs[known].sigmoid().numpy()
    targets = (table.truth[known] > 0.5).numpy()
    write_best_thresholds(folder, table.data.train.classes, targets, probabilities)


def last_comparison(
    table: CandidateTable,
    training: TrainingMethod,
    trained: Trained[RunConfig, Splits],
    options: Mapping[str, Any],
) -> Candidate | None:
    """Return the first of the table once the trained network is in it, beside the short trials: the best of
    these answers where the longer training is no better."""
    learned, kept = bool(trained.run.metrics()), short_trial_of(trained.run.path)
    if table.uses_validation:
        table.candidates = [each.as_short(kept) for each in table.candidates]
        if learned:
            outputs = network_outputs(
                trained.model,
                table.images,
                table.problem.task,
                device=options["device"],
                workers=options["workers"],
                batch_size=options["batch_size"],
            )
            # A speed of 0 would be that of a method without steps.
            speed = images_per_second(trained.run) or 1.0
            table.add([training.part], outputs, seconds=trained.seconds, speed=speed)
            add_means(table)
    else:
        trained_part = training.name if learned else None
        table.candidates = [each.with_network(trained_part) for each in table.candidates]
    return table.choose()
