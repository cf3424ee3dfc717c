"""The whole description of a run: what `config.toml` holds, and what `--set` can name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.layers.initialization import Scheme
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Positive, Probability, setting, with_kind
from vitreous.models.preprocessing import ImagePreparation, Preparation, Preprocessing, check_normalization

Tree = Mapping[str, Any]  # of settings, as TOML has them
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


FIRST_ESTIMATE = 60  # epochs, of a training that has a time, until its first step has been measured
# A single name stands for a list of one, none for an empty list: --set training.freeze=stem.
Names = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value or ())


class ClipEach(Config):
    """The gradient of each weight is clipped by itself, as DINO does."""

    each: float = Field(gt=0, description="largest norm of a weight's gradient")


class OptimizerConfig(Config):
    """How gradients become steps. Biases and norms never decay."""

    kind: str
    weight_decay: NotNegative | tuple[NotNegative, NotNegative] = setting(
        0.05, "matrices shrink by rate * this in a step; two numbers: from one to the other along a cosine"
    )
    decayed: Literal["kernels", "tokens"] = setting(
        "kernels",
        "kernels: the weights of linear layers and convolutions; tokens: class and mask tokens and positions "
        "that learn, too (DINO, MAE)",
    )
    layer_decay: float | None = setting(None, "rate of layer l times this to the power L + 1 - l", gt=0, le=1)
    clip_norm: float | ClipEach | None = setting(
        1.0, "largest norm of the whole gradient, or of each weight's own"
    )
    sam_radius: float | None = setting(None, "sharpness-aware minimization (2010.01412) on top: rho", gt=0)


class AdamWConfig(OptimizerConfig):
    """AdamW (1711.05101)."""

    kind: Literal["adamw"] = setting("adamw", "the update rule: adamw, sgd, adafactor or muon")
    betas: tuple[Probability, Probability] = setting(
        (0.9, 0.999), "of the running means of the gradient and of its square"
    )
    eps: float = setting(1e-8, "added to the root of the second mean", gt=0)


class SGDConfig(OptimizerConfig):
    """Stochastic gradient descent with momentum."""

    kind: Literal["sgd"] = setting("sgd", "with momentum")
    momentum: Probability = setting(0.9, "part of the last step that is taken again")


class AdafactorConfig(OptimizerConfig):
    """Adafactor (1804.04235)."""

    kind: Literal["adafactor"] = setting("adafactor", "little memory")


class MuonConfig(OptimizerConfig):
    """Muon (2502.16982) for the matrices of encoder layers, AdamW for everything else."""

    kind: Literal["muon"] = setting("muon", "orthogonal steps of matrices")
    momentum: Probability = setting(0.9, "of the matrices' steps")
    betas: tuple[Probability, Probability] = setting(
        (0.9, 0.999), "of AdamW's running means of the gradient and of its square"
    )
    eps: float = setting(1e-8, "of AdamW, added to the root of the second mean", gt=0)


AnyOptimizer = AdamWConfig | SGDConfig | AdafactorConfig | MuonConfig
Optimizer = Annotated[
    Annotated[AnyOptimizer, Field(discriminator="kind")], with_kind("training.optimizer", "adamw")
]


class ScheduleConfig(Config):
    """The learning rate over the steps, as a share of its peak."""

    kind: str
    warmup: NotNegative = setting(0.05, "linear; steps, or below 1 a share of them")
    warmup_start: Share | None = setting(
        None, "share of the peak in the first step; None: one part of the warm-up, so that it changes weights"
    )


Cooldown = Annotated[
    float, Field(ge=0, description="linear, to 0, at the end; steps, or below 1 a share of them")
]


class FallingScheduleConfig(ScheduleConfig):
    """It falls along a line or half a cosine."""

    kind: Literal["linear", "cosine"] = setting(
        "cosine", "after the warm-up: linear, cosine, constant, rsqrt or steps"
    )
    end: Share = setting(0.0, "where it ends, as a share of the peak")
    per_epoch: bool = setting(
        False, "the rate of an epoch is that at the start of the one before it, as in DeiT's loop"
    )
    under_warmup: bool = setting(
        False, "the curve begins with the first step, under the warm-up, as in timm; false: after it"
    )


class ConstantScheduleConfig(ScheduleConfig):
    """It stays."""

    kind: Literal["constant"] = setting("constant", "after the warm-up")
    cooldown: Cooldown = 0.0


class RsqrtScheduleConfig(ScheduleConfig):
    """It falls with the root of the steps: training can go on for any time (2106.04560)."""

    kind: Literal["rsqrt"] = setting("rsqrt", "after the warm-up")
    cooldown: Cooldown = 0.0
    timescale: float = setting(10_000, "sqrt(timescale / (timescale + step))", gt=0)


class StepsScheduleConfig(ScheduleConfig):
    """It is a tenth after each of some parts of the run."""

    kind: Literal["steps"] = setting("steps", "after the warm-up")
    drops: tuple[Share, ...] = setting((0.3, 0.6, 0.9), "parts of the run after which the rate is a tenth")


AnySchedule = FallingScheduleConfig | ConstantScheduleConfig | RsqrtScheduleConfig | StepsScheduleConfig
Schedule = Annotated[
    Annotated[AnySchedule, Field(discriminator="kind")], with_kind("training.schedule", "cosine")
]


class DistillationConfig(Config):
    """A teacher whose outputs are learned besides the labels (DeiT, 2012.12877, section 4)."""

    kind: str
    teacher: str = Field(min_length=1, description="any model or run")
    weight: Share = setting(0.5, "of the teacher's part of the loss")


class HardDistillationConfig(DistillationConfig):
    """The teacher's most probable class is learned."""

    kind: Literal["hard"] = setting("hard", "the teacher's most probable class, or soft: all probabilities")


class SoftDistillationConfig(DistillationConfig):
    """All of the teacher's probabilities are learned (1503.02531)."""

    kind: Literal["soft"] = setting("soft", "all of the teacher's probabilities")
    temperature: float = setting(3.0, "of the teacher's probabilities and the model's", gt=0)


AnyDistillation = HardDistillationConfig | SoftDistillationConfig
Distillation = Annotated[
    Annotated[AnyDistillation, Field(discriminator="kind")], with_kind("training.distillation", "hard")
]


class LoRAConfig(Config):
    """Low-rank changes of frozen matrices (2106.09685): W + alpha / rank * B A; merged when saved."""

    rank: Positive = setting(8, "4 to 16 is usual")
    alpha: float = setting(16.0, "scale of the change, divided by the rank", gt=0)
    parts: Annotated[tuple[Literal["attention", "mlp"], ...], Names] = setting(
        ("attention", "mlp"), "whose matrices change"
    )


class EMAConfig(Config):
    """Averaged weights: those that a run tests and saves."""

    decay: float = setting(0.999, "part of the average that a step leaves", gt=0, lt=1)
    warmup: bool = setting(True, "a short memory at first; false: Polyak's, as long from the start")


class DrawnHeadConfig(Config):
    """A fresh head's first weights are drawn otherwise than `initialization` says."""

    kind: Literal["drawn"] = setting(
        "drawn", "drawn, or linear: logistic regression on the frozen features of the encoder"
    )
    std: NotNegative | None = setting(None, "of its weights; None: as the scheme has it")
    bias: float = setting(0.0, "for sigmoid -10: all classes improbable at first")


class LinearHeadConfig(Config):
    """A head begins as logistic regression on the frozen features of the encoder."""

    kind: Literal["linear"] = setting("linear", "logistic regression on the frozen features of the encoder")


AnyHead = DrawnHeadConfig | LinearHeadConfig
Head = Annotated[Annotated[AnyHead, Field(discriminator="kind")], with_kind("training.head", "drawn")]


class EarlyStoppingConfig(Config):
    """The result is the model of the best validation, not the last one."""

    patience: Positive | None = setting(
        None, "validations without a better score, after which training ends; None: it goes on"
    )


class RecordsConfig(Config):
    """What is recorded while a model learns, and how often."""

    save_every: NotNegative | None = setting(
        None, "seconds between checkpoints; None: 60, and more where saving takes over 3% of the time"
    )
    keep_every: Positive | None = setting(
        None, "steps between checkpoints kept for good; None: the last two are kept"
    )
    upload: str | None = setting(None, "URL that checkpoints are copied to, too, such as s3://BUCKET/RUN")
    log_every: Positive | None = setting(None, "steps between rows of metrics.jsonl; None: an epoch, or 200")
    track: Annotated[tuple[Literal["wandb", "mlflow", "trackio"], ...], Names] = setting(
        (), "experiment trackers, besides metrics.jsonl and TensorBoard"
    )
    early_stopping: EarlyStoppingConfig | None = setting(
        None, "keep the model of the best validation; None: the last one"
    )


class MachineConfig(Config):
    """How a step is computed, by one process or by several."""

    grad_accum_steps: Positive = setting(1, "micro-batches of a batch, to save memory")
    evaluation_batch_size: Positive = setting(
        256,
        "images in a forward pass without a step; changes no result but a pre-training's: its masks and "
        "views differ",
    )
    compile: bool | None = setting(None, "torch.compile; None: on GPUs, long runs with batches of one shape")
    deterministic: bool = setting(False, "only algorithms that give the same bits each time; slower")
    checkpointing: bool = setting(False, "recompute each layer in the backward pass, to save memory")
    shard: bool | Positive = setting(
        False,
        "each process stores a shard of every weight (FSDP); a number: in groups of so many, each a copy",
    )
    timeout: float = setting(10.0, "minutes that processes wait for each other", gt=0)


NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
LENGTH = re.compile(rf"{NUMBER} *(epoch|step|minute)s?(?: in {NUMBER} *minutes?)?")
YEAR = 525_600  # minutes


def check_length(text: str) -> str:
    """Return how long a training is as it is stored: "90 epochs". Raises ValueError: it is not a number of
    epochs or minutes above 0, or a whole number of steps."""
    found = LENGTH.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is not a length: write 90 epochs, 5000 steps, 20 minutes or 90 epochs in 20 minutes"
        )
    number, unit = float(found[1]), found[2]
    if found[3]:
        if unit == "minute" or not 0 < float(found[3]) <= YEAR:
            raise ValueError(
                f"{text!r} is not a length: write, for example, 90 epochs in 20 minutes (whichever is "
                "shorter)"
            )
        return f"{check_length(f'{number:g} {unit}s')} in {without_zeros(float(found[3]))} minutes"
    if unit == "step":
        if number != int(number):
            raise ValueError(f"{text!r} is not a whole number of steps")
        return f"{int(number)} steps"
    if number <= 0 or (unit == "minute" and number > YEAR):
        raise ValueError(f"{text!r} leaves no time to train: give a number above 0, minutes up to {YEAR}")
    return f"{without_zeros(number)} {unit}s"


def without_zeros(number: float) -> float:
    """Return a whole number without decimals: 3 for 3.0."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def length_of(
    *, epochs: float | None = None, steps: int | None = None, minutes: float | None = None
) -> str | None:
    """Return `training.length` from the first number that is given; None for none."""
    for unit, number in (("minutes", minutes), ("steps", steps), ("epochs", epochs)):
        if number is not None:
            return f"{without_zeros(number)} {unit}"
    return None


def within(length: str, minutes: float) -> str:
    """Return a length that ends after some minutes, too: "90 epochs in 10 minutes"."""
    return f"{length.partition(' in ')[0]} in {without_zeros(minutes)} minutes"


class TrainingConfig(Config):
    """How a model is trained, whatever its objective."""

    length: Annotated[str, AfterValidator(check_length)] = setting(
        "60 epochs",
        "epochs (passes over the training set, also parts of one), steps (0: the model stays what it begins "
        "with), or minutes from the command to its report, over all sessions; 90 epochs in 20 minutes: "
        "whichever is shorter",
    )
    batch_size: Positive = setting(128, "images in one step, over all processes")
    peak_lr: float = setting(1e-3, "largest learning rate, after the warm-up", gt=0)
    optimizer: Optimizer = setting(AdamWConfig(), "how gradients become steps")
    schedule: Schedule = setting(FallingScheduleConfig(), "the learning rate over the steps")
    lr_batch_size: Positive | None = setting(
        None, "the batch that peak_lr is for: it grows with batch_size; None: it does not"
    )
    ema: EMAConfig | None = setting(None, "averaged weights; None: none")

    loss: Literal["softmax", "sigmoid", "balanced", "focal", "logit-adjusted"] = setting(
        "softmax",
        "cross-entropy, or binary cross-entropy summed over the classes; for rare classes cross-entropy "
        "divided by the frequency of the class, times (1 - p)^2 (1708.02002), or of logits plus the log "
        "frequencies (2007.07314)",
    )
    label_smoothing: Probability = setting(0.0, "share of the target that is spread over all classes")
    distillation: Distillation | None = setting(None, "a teacher; None: the labels alone")
    initialization: Scheme = setting("google", "of random weights: as in Google's code or in timm")
    head: Head | None = setting(None, "how the head begins; None: as the scheme has it")
    freeze: Annotated[tuple[str, ...], Names] = setting(
        (),
        'parts that do not learn: "stem", "blocks.0"; "backbone": all but the head; "position.prefix": no '
        "positions on the class token",
    )
    lora: LoRAConfig | None = setting(None, "low-rank changes of frozen matrices; None: all weights learn")

    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto", "auto: bf16 on GPUs, and on CPUs that have it for models of some width"
    )
    machine: MachineConfig | None = setting(
        None, "micro-batches, compiled steps, the same bits, shards; None: as suits the machine"
    )
    records: RecordsConfig | None = setting(
        None,
        "checkpoints, rows of metrics, trackers and how often, early stopping; None: as suits the length",
    )

    @model_validator(mode="after")
    def _parts(self) -> TrainingConfig:
        parts = self.computed.grad_accum_steps
        if self.batch_size % parts:
            raise ValueError(
                f"a batch of {self.batch_size} cannot be split into {parts} equal micro-batches: make "
                "training.batch_size a multiple of training.machine.grad_accum_steps"
            )
        return self

    @property
    def epochs(self) -> float | None:
        """The length in epochs, where it is."""
        return self.length_in("epochs")

    @property
    def steps(self) -> int | None:
        """The length in steps, where it is."""
        steps = self.length_in("steps")
        return None if steps is None else int(steps)

    @property
    def minutes(self) -> float | None:
        """The length in minutes, where it is."""
        return self.length_in("minutes")

    def length_in(self, unit: str) -> float | None:
        """Return the number of the length, where it is in this unit."""
        for part in self.length.split(" in "):
            number, _, own = part.partition(" ")
            if own == unit:
                return float(number)
        return None

    @property
    def linear_start(self) -> bool:
        """Whether the head begins as logistic regression."""
        return isinstance(self.head, LinearHeadConfig)

    @property
    def recorded(self) -> RecordsConfig:
        """What is recorded: as it was asked for, or the defaults."""
        return self.records or RecordsConfig()

    @property
    def computed(self) -> MachineConfig:
        """How a step is computed: as it was asked for, or as suits the machine."""
        return self.machine or MachineConfig()

    def total_steps(self, steps_per_epoch: int) -> int:
        """Return the number of steps of the run; of one that has a time, what is taken for it at first."""
        if self.steps is not None:
            return self.steps
        return max(1, round((self.epochs or FIRST_ESTIMATE) * steps_per_epoch))


class EvaluationConfig(Config):
    """When and how the model is measured on images that it does not learn from."""

    every_epochs: Positive = setting(1, "on the validation set, where there is one")
    fewshot: bool = setting(False, "few-shot accuracy of the features there, too")
    calibrate: bool | Annotated[float, Field(gt=0)] = setting(
        True, "fit a temperature of the probabilities there; a number: the temperature without such a part"
    )


CONVOLVED = 200  # numbers for each pixel in a stem of convolutions


class CommandConfig(Config):
    """All of a run, whatever it trains. `config.toml` is this, complete; the command runs it again."""

    command: ClassVar[str] = "train"  # what trains, and resumes, such a run
    task: str = ""  # its name in the registry
    source: str = setting("", "the DATA argument")
    source_from_run: str | None = setting(None, "`source` relative to the run directory, if both are files")
    seed: int = setting(0, "of weights, order, augmentation and dropout", ge=0)
    training: TrainingConfig = Field(default_factory=TrainingConfig)  # made once a run needs it

    of_images: ClassVar[bool] = False  # whether it learns from images

    @property
    def begins_with(self) -> str | None:
        """The checkpoint that it begins with."""
        return None

    @property
    def width(self) -> int | None:
        """Channels of the model's layers; None where they differ."""
        return None

    @property
    def numbers_kept(self) -> float | None:
        """About how many numbers a step keeps of an example, at the most; 0: too few to matter; None: it is
        not known."""
        return 0.0

    @property
    def workers(self) -> int | None:
        """Processes that read examples to evaluate on; None: as suits the machine."""
        return 0

    @property
    def evaluated_together(self) -> int:
        """Examples of a forward pass without a step."""
        return self.training.batch_size

    @property
    def validate_every(self) -> int:
        """Epochs between validations."""
        return 1

    @classmethod
    def following(cls, tree: Tree, override: Tree) -> Tree:
        """Return the settings of `tree` that must change with what `override` sets."""
        return {}

    def check_defaults(self, group: str, names: Iterable[str], problem: str) -> None:
        """Raise ValueError for the first setting of a group that is changed, but would have no effect: its
        name, and `problem`."""
        settings = getattr(self, group)
        for name in names:
            if getattr(settings, name) != type(settings).model_fields[name].default:
                raise ValueError(f"{group}.{name} {problem}")


class RunConfig(CommandConfig):
    """All of a run that learns from images."""

    vit: ClassVar[type[ViTConfig]] = ViTConfig  # the kind of `model` where it is not a BiT
    of_images: ClassVar[bool] = True

    task: str = setting("classification", "classification or multilabel")
    source: str = setting("digits", "the DATA argument")
    init: str | None = setting(None, "the checkpoint to fine-tune; None: from scratch")
    recipe: str = setting("", "where the values came from, for the reader")
    model: SerializeAsAny[ViTConfig | BiTConfig] = setting(ViTConfig(), "the architecture: a ViT or a BiT")
    preprocessing: Preparation = ImagePreparation()
    data: DataConfig = Field(default_factory=DataConfig)
    augmentation: AugmentationConfig = Field(default_factory=AugmentationConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)

    @model_validator(mode="after")
    def _head_of_classes(self) -> RunConfig:
        if self.training.linear_start and self.task != "classification":
            raise ValueError("training.head.kind=linear is for images that have one class each: leave it out")
        return self

    @property
    def begins_with(self) -> str | None:
        return self.init

    @property
    def width(self) -> int | None:
        return self.model.width if isinstance(self.model, ViTConfig) else None

    @property
    def numbers_kept(self) -> float | None:
        model = self.model
        if not isinstance(model, ViTConfig):
            return None
        height, width = model.image_size
        convolved = 0 if model.stem.kind == "patch" else CONVOLVED * height * width
        return model.depth * model.sequence_length * 12 * (model.width + model.mlp_dim) + convolved

    @property
    def workers(self) -> int | None:
        return self.data.read.workers

    @property
    def evaluated_together(self) -> int:
        return self.training.computed.evaluation_batch_size

    @property
    def validate_every(self) -> int:
        return self.evaluation.every_epochs

    @property
    def prepared(self) -> Preprocessing:
        """How images are prepared for the model, at its size and with its channels."""
        return self.preprocessing.of_size(self.model.image_size, self.model.channels)

    @model_validator(mode="after")
    def _normalized_as_the_model(self) -> RunConfig:
        try:
            check_normalization(self.preprocessing, self.model.channels)
        except ValueError as error:
            raise ValueError(f"preprocessing: {error}") from None
        return self
