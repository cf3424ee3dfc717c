"""The whole description of a run: what `config.toml` holds, and what `--set` can name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from vitreous.data.config import AugmentationConfig, DataConfig, NotNegative
from vitreous.data.workers import loading_workers
from vitreous.layers.initialization import Scheme
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Positive, Probability, setting, with_kind
from vitreous.models.preprocessing import ImagePreparation, Preparation, Preprocessing, check_normalization

Tree = Mapping[str, Any]  # of settings, as TOML has them
Share = Annotated[float, Field(ge=0, le=1)]


CONVOLVED = 200  # numbers that a step keeps for each pixel in a stem of convolutions
FIRST_ESTIMATE = 60  # epochs, of a training that has a time, until its first step has been measured
# A single name stands for a list of one, none for an empty list: --set training.freeze=stem.
NameList = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value or ())


class ClipEach(Config):
    """The gradient of each weight is clipped by itself, as DINO does."""

    each: float = Field(gt=0, description="largest norm of a weight's gradient")


class OptimizerConfig(Config):
    """How gradients become steps. Biases and norms never decay."""

    kind: str
    weight_decay: NotNegative | tuple[NotNegative, NotNegative] = setting(
        0.05,
        "in each step, matrices shrink by this value times the learning rate; two numbers: the value "
        "goes from the first to the second along a cosine",
    )
    decayed: Literal["kernels", "tokens"] = setting(
        "kernels",
        "which weights decay; kernels: the weights of linear layers and convolutions; tokens: also "
        "class and mask tokens, and learned position embeddings (DINO, MAE)",
    )
    layer_decay: float | None = setting(
        None, "the learning rate of layer l is multiplied by this value to the power L + 1 - l", gt=0, le=1
    )
    clip_norm: float | ClipEach | None = setting(
        1.0, "largest norm of the whole gradient, or of each weight's gradient separately"
    )
    sam_radius: float | None = setting(
        None, "rho of sharpness-aware minimization (SAM, 2010.01412); None: no SAM", gt=0
    )


class AdamWConfig(OptimizerConfig):
    """AdamW (1711.05101)."""

    kind: Literal["adamw"] = setting("adamw", "the update rule: adamw, sgd, adafactor or muon")
    betas: tuple[Probability, Probability] = setting(
        (0.9, 0.999), "decay rates of the running means of the gradient and of its square"
    )
    eps: float = setting(
        1e-8, "constant added to the square root of the running mean of the squared gradient", gt=0
    )


class SGDConfig(OptimizerConfig):
    """Stochastic gradient descent with momentum."""

    kind: Literal["sgd"] = setting("sgd", "stochastic gradient descent with momentum")
    momentum: Probability = setting(0.9, "share of the previous step that is added to the next one")


class AdafactorConfig(OptimizerConfig):
    """Adafactor (1804.04235)."""

    kind: Literal["adafactor"] = setting("adafactor", "Adafactor, which needs little memory")


class MuonConfig(OptimizerConfig):
    """Muon (2502.16982) for the matrices of encoder layers, AdamW for everything else."""

    kind: Literal["muon"] = setting("muon", "Muon, which orthogonalizes the steps of matrices")
    momentum: Probability = setting(0.9, "momentum of the steps of matrices")
    betas: tuple[Probability, Probability] = setting(
        (0.9, 0.999), "decay rates of AdamW's running means of the gradient and of its square"
    )
    eps: float = setting(
        1e-8, "constant that AdamW adds to the square root of the running mean of the squared gradient", gt=0
    )


AnyOptimizer = AdamWConfig | SGDConfig | AdafactorConfig | MuonConfig
Optimizer = Annotated[
    Annotated[AnyOptimizer, Field(discriminator="kind")], with_kind("training.optimizer", "adamw")
]


class ScheduleConfig(Config):
    """The learning rate over the steps, as a share of its peak."""

    kind: str
    warmup: NotNegative = setting(
        0.05, "length of the linear warm-up: a number of steps or, below 1, a share of all steps"
    )
    warmup_start: Share | None = setting(
        None,
        "learning rate of the first step, as a share of the peak; None: 1 divided by the number "
        "of warm-up steps, so that the first step changes the weights",
    )


Cooldown = Annotated[
    float,
    Field(
        ge=0,
        description="length of the linear decrease to 0 at the end: a number of steps or, below 1, a share "
        "of all steps",
    ),
]


class FallingScheduleConfig(ScheduleConfig):
    """The learning rate falls linearly, or along half a cosine."""

    kind: Literal["linear", "cosine"] = setting(
        "cosine", "the form of the schedule after the warm-up: linear, cosine, constant, rsqrt or steps"
    )
    end: Share = setting(0.0, "the final learning rate, as a share of the peak")
    per_epoch: bool = setting(
        False,
        "the learning rate changes once per epoch, to that of the start of the previous epoch, as in "
        "DeiT's training loop",
    )
    under_warmup: bool = setting(
        False,
        "the curve begins with the first step, during the warm-up, as in timm; false: it begins "
        "after the warm-up",
    )


class ConstantScheduleConfig(ScheduleConfig):
    """The learning rate stays constant."""

    kind: Literal["constant"] = setting("constant", "the form of the schedule after the warm-up")
    cooldown: Cooldown = 0.0


class RsqrtScheduleConfig(ScheduleConfig):
    """The learning rate falls with the root of the steps, so training can go on for any time (2106.04560)."""

    kind: Literal["rsqrt"] = setting("rsqrt", "the form of the schedule after the warm-up")
    cooldown: Cooldown = 0.0
    timescale: float = setting(10_000, "timescale of the factor sqrt(timescale / (timescale + step))", gt=0)


class StepsScheduleConfig(ScheduleConfig):
    """The learning rate is divided by ten at several points of the run."""

    kind: Literal["steps"] = setting("steps", "the form of the schedule after the warm-up")
    drops: tuple[Share, ...] = setting(
        (0.3, 0.6, 0.9), "shares of the run after which the learning rate is divided by ten"
    )


AnySchedule = FallingScheduleConfig | ConstantScheduleConfig | RsqrtScheduleConfig | StepsScheduleConfig
Schedule = Annotated[
    Annotated[AnySchedule, Field(discriminator="kind")], with_kind("training.schedule", "cosine")
]


class DistillationConfig(Config):
    """A teacher whose outputs are learned besides the labels (DeiT, 2012.12877, section 4)."""

    kind: str
    teacher: str = Field(min_length=1, description="any model or run, as the teacher")
    weight: Share = setting(0.5, "weight of the teacher's part of the loss")


class HardDistillationConfig(DistillationConfig):
    """The teacher's most probable class is learned."""

    kind: Literal["hard"] = setting(
        "hard",
        "hard: the student learns the teacher's most probable class; soft: it learns all of the "
        "teacher's probabilities",
    )


class SoftDistillationConfig(DistillationConfig):
    """All of the teacher's probabilities are learned (1503.02531)."""

    kind: Literal["soft"] = setting("soft", "soft: the student learns all of the teacher's probabilities")
    temperature: float = setting(3.0, "temperature of the teacher's probabilities and of the student's", gt=0)


AnyDistillation = HardDistillationConfig | SoftDistillationConfig
Distillation = Annotated[
    Annotated[AnyDistillation, Field(discriminator="kind")], with_kind("training.distillation", "hard")
]


class LoRAConfig(Config):
    """Low-rank changes of frozen matrices (2106.09685): W + alpha / rank * B A; merged when saved."""

    rank: Positive = setting(8, "rank of the corrections; 4 to 16 is usual")
    alpha: float = setting(16.0, "scale of the corrections, which is divided by the rank", gt=0)
    parts: Annotated[tuple[Literal["attention", "mlp"], ...], NameList] = setting(
        ("attention", "mlp"), "the parts whose matrices get corrections"
    )


class EMAConfig(Config):
    """The moving average of the weights, which is what a run evaluates and saves."""

    decay: float = setting(0.999, "share of the average that is kept in each step", gt=0, lt=1)
    warmup: bool = setting(
        True,
        "the average covers only a few steps at first; false: it covers as many from the start "
        "(Polyak averaging)",
    )


class DrawnHeadConfig(Config):
    """A fresh head's first weights are drawn otherwise than `initialization` says."""

    kind: Literal["drawn"] = setting(
        "drawn", "drawn: random weights; linear: logistic regression on the frozen features of the encoder"
    )
    std: NotNegative | None = setting(
        None, "standard deviation of the head's weights; None: as `initialization` says"
    )
    bias: float = setting(
        0.0, "initial bias of the head; with a sigmoid, -10 makes all classes improbable at first"
    )


class LinearHeadConfig(Config):
    """A head begins as logistic regression on the frozen features of the encoder."""

    kind: Literal["linear"] = setting("linear", "logistic regression on the frozen features of the encoder")


AnyHead = DrawnHeadConfig | LinearHeadConfig
HeadConfig = Annotated[Annotated[AnyHead, Field(discriminator="kind")], with_kind("training.head", "drawn")]


class EarlyStoppingConfig(Config):
    """The result is the model of the best validation, not the last one."""

    patience: Positive | None = setting(
        None,
        "number of validations without a better score after which training ends; None: training continues",
    )


class RecordsConfig(Config):
    """What is recorded while a model learns, and how often."""

    save_every: NotNegative | None = setting(
        None, "seconds between checkpoints; None: 60, or more if saving would take over 3% of the time"
    )
    keep_every: Positive | None = setting(
        None,
        "number of steps between checkpoints that are kept permanently; None: only the last two "
        "checkpoints are kept",
    )
    upload: str | None = setting(None, "URL to which checkpoints are also copied, such as s3://BUCKET/RUN")
    log_every: Positive | None = setting(
        None, "number of steps between rows of metrics.jsonl; None: one epoch, but at most 200 steps"
    )
    track: Annotated[tuple[Literal["wandb", "mlflow", "trackio"], ...], NameList] = setting(
        (), "experiment trackers to use in addition to metrics.jsonl and TensorBoard"
    )
    early_stopping: EarlyStoppingConfig | None = setting(
        None, "keep the model with the best validation score; None: keep the last one"
    )


class MachineConfig(Config):
    """How a step is computed, by one process or by several."""

    grad_accum_steps: Positive = setting(
        1, "number of micro-batches into which a batch is split, to save memory"
    )
    evaluation_batch_size: Positive = setting(
        256,
        "number of images in a forward pass during evaluation; it changes no results, except in "
        "pre-training, where masks and views differ",
    )
    compile: bool | None = setting(
        None, "use torch.compile; None: only on GPUs, for long runs whose batches all have the same shape"
    )
    deterministic: bool = setting(
        False, "use only algorithms that give bit-identical results each time, which is slower"
    )
    checkpointing: bool = setting(False, "recompute each layer in the backward pass, to save memory")
    shard: bool | Positive = setting(
        False,
        "each process stores a shard of every weight (FSDP); a number: weights are sharded within "
        "groups of this many processes, and each group has a full copy",
    )
    timeout: float = setting(10.0, "number of minutes that processes wait for each other", gt=0)


NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
LENGTH = re.compile(rf"{NUMBER} *(epoch|step|minute)s?(?: in {NUMBER} *minutes?)?")
YEAR = 525_600  # minutes


def check_stored_length(text: str) -> str:
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
        return f"{check_stored_length(f'{number:g} {unit}s')} in {without_zeros(float(found[3]))} minutes"
    if unit == "step":
        if number != int(number):
            raise ValueError(f"{text!r} is not a whole number of steps")
        return f"{int(number)} steps"
    if number <= 0 or (unit == "minute" and number > YEAR):
        raise ValueError(f"{text!r} leaves no time to train: pass a number above 0, minutes up to {YEAR}")
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


def within_minutes(length: str, minutes: float) -> str:
    """Return a length that ends after some minutes, too: "90 epochs in 10 minutes"."""
    return f"{length.partition(' in ')[0]} in {without_zeros(minutes)} minutes"


class TrainingConfig(Config):
    """How a model is trained, whatever its objective."""

    length: Annotated[str, AfterValidator(check_stored_length)] = setting(
        "60 epochs",
        "a number of epochs (passes over the training set, which need not be whole), of steps (0: "
        "the model is not trained), or of minutes from the start of the command to its report, over "
        "all sessions; 90 epochs in 20 minutes: whichever ends first",
    )
    batch_size: Positive = setting(128, "number of images in one step, over all processes")
    peak_lr: float = setting(1e-3, "largest learning rate, after the warm-up", gt=0)
    optimizer: Optimizer = setting(AdamWConfig(), "how gradients become steps")
    schedule: Schedule = setting(FallingScheduleConfig(), "how the learning rate changes over the steps")
    lr_batch_size: Positive | None = setting(
        None,
        "the batch size for which peak_lr is given: the learning rate grows in proportion to "
        "batch_size; None: it does not depend on batch_size",
    )
    ema: EMAConfig | None = setting(None, "moving average of the weights; None: no average")

    loss: Literal["softmax", "sigmoid", "balanced", "focal", "logit-adjusted"] = setting(
        "softmax",
        "cross-entropy, or binary cross-entropy summed over the classes; for rare classes, "
        "cross-entropy divided by the frequency of the class, multiplied by (1 - p)^2 (1708.02002), "
        "or computed from logits plus the logarithms of the frequencies (2007.07314)",
    )
    label_smoothing: Probability = setting(
        0.0, "share of the target probability that is spread over all classes"
    )
    distillation: Distillation | None = setting(None, "the teacher; None: training uses only the labels")
    initialization: Scheme = setting(
        "google", "how weights are initialized: as in Google's code, or as in timm"
    )
    head: HeadConfig | None = setting(None, "how the head is initialized; None: as `initialization` says")
    freeze: Annotated[tuple[str, ...], NameList] = setting(
        (),
        'parts that are not trained: "stem", "blocks.0", ...; "backbone" means everything except the '
        'head, and "position.prefix" the position embedding of the class token, which is also set to 0',
    )
    lora: LoRAConfig | None = setting(
        None, "low-rank corrections of frozen matrices; None: all weights are trained"
    )

    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto",
        "auto: bf16 on GPUs that support it, and on CPUs where it is faster if the model is wide "
        "enough; otherwise fp32",
    )
    machine: MachineConfig | None = setting(
        None, "micro-batches, compilation, determinism and sharding; None: chosen for the machine"
    )
    records: RecordsConfig | None = setting(
        None,
        "checkpoints, rows of metrics, trackers, and early stopping; None: chosen for the length of the run",
    )

    @model_validator(mode="after")
    def _parts(self) -> TrainingConfig:
        parts = self.machine_config.grad_accum_steps
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
    def records_config(self) -> RecordsConfig:
        """`records` as it was asked for, or the defaults."""
        return self.records or RecordsConfig()

    @property
    def machine_config(self) -> MachineConfig:
        """`machine` as it was asked for, or the defaults."""
        return self.machine or MachineConfig()

    def total_steps(self, steps_per_epoch: int) -> int:
        """Return the number of steps of the run; of one that has a time, what is taken for it at first."""
        if self.steps is not None:
            return self.steps
        return max(1, round((self.epochs or FIRST_ESTIMATE) * steps_per_epoch))


class EvaluationConfig(Config):
    """When and how the model is measured on images that it does not learn from."""

    every_epochs: Positive = setting(
        1, "number of epochs between evaluations on the validation set, if there is one"
    )
    fewshot: bool = setting(False, "also measure the few-shot accuracy of the features on the validation set")
    calibrate: bool | Annotated[float, Field(gt=0)] = setting(
        True,
        "fit a temperature for the probabilities on the validation set; a number: the temperature to "
        "use if there is no validation set",
    )


class CommandConfig(Config):
    """All of a run, whatever it trains. `config.toml` is this, complete; the command runs it again."""

    command: ClassVar[str] = "train"  # what trains, and resumes, such a run
    of_images: ClassVar[bool] = False  # whether it learns from images, which classical methods see as well
    task: str = ""  # its name in the registry
    source: str = setting("", "the DATA argument")
    source_from_run: str | None = setting(None, "`source` relative to the run directory, if both are files")
    seed: int = setting(
        0, "random seed of the initial weights, the order of images, augmentation and dropout", ge=0
    )
    training: TrainingConfig = Field(default_factory=TrainingConfig)  # made once a run needs it

    @property
    def width(self) -> int | None:
        """Channels of the model's layers; None where they differ."""
        return None

    @property
    def start(self) -> str | None:
        """The checkpoint that training begins from; None: random weights."""
        return None

    @property
    def step_bytes(self) -> float:
        """A generous guess of the bytes that a training step keeps: where they might not fit into the memory,
        they are measured."""
        return 0.0

    @property
    def epochs_between_validations(self) -> int:
        """After how many epochs the model is validated."""
        return 1

    @property
    def evaluation_batch_size(self) -> int:
        """The number of examples in a forward pass of the final evaluation."""
        return self.training.batch_size

    @property
    def loading_workers(self) -> int:
        """The workers of this process that read examples for the final evaluation."""
        return 0

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
    """The complete configuration of a run that learns from images."""

    of_images: ClassVar[bool] = True
    vit: ClassVar[type[ViTConfig]] = ViTConfig  # the kind of `model` where it is not a BiT

    task: str = setting("classification", "classification or multilabel")
    source: str = setting("digits", "the DATA argument")
    init: str | None = setting(None, "the checkpoint to fine-tune; None: training starts from random weights")
    recipe: str = setting("", "the recipe that the values come from, for information only")
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
    def width(self) -> int | None:
        return self.model.width if isinstance(self.model, ViTConfig) else None

    @property
    def start(self) -> str | None:
        return self.init

    @property
    def step_bytes(self) -> float:
        model = self.model
        if not isinstance(model, ViTConfig):
            return math.inf
        height, width = model.image_size
        convolved = 0 if model.stem.kind == "patch" else CONVOLVED * height * width
        kept = model.depth * model.sequence_length * 12 * (model.width + model.mlp_dim) + convolved
        return 4.0 * self.training.batch_size * kept

    @property
    def epochs_between_validations(self) -> int:
        return self.evaluation.every_epochs

    @property
    def evaluation_batch_size(self) -> int:
        return self.training.machine_config.evaluation_batch_size

    @property
    def loading_workers(self) -> int:
        return loading_workers(self.data.read.workers)

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
