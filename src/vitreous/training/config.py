"""The whole description of a run: what `config.toml` holds, and what `--set` can name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.layers.initialization import Scheme
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Positive, Probability
from vitreous.models.preprocessing import Preprocessing

Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


def several(value: Any) -> Any:
    """A single name stands for a list of one, none for an empty list: --set training.track=wandb."""
    return (value,) if isinstance(value, str) else value or ()


Names = BeforeValidator(several)


class OptimizerConfig(Config):
    """How gradients become steps. Only matrices and kernels decay: no biases, norms, tokens, positions."""

    kind: Literal["adamw", "sgd", "adafactor", "muon"] = Field(
        default="adamw", description="the update rule; sgd has momentum"
    )
    betas: tuple[Probability, Probability] = Field(
        default=(0.9, 0.999), description="of AdamW's running means of the gradient and of its square"
    )
    eps: float = Field(default=1e-8, gt=0, description="of AdamW, added to the root of the second mean")
    momentum: Probability = Field(default=0.9, description="of SGD and Muon")
    weight_decay: NotNegative = Field(
        default=0.05, description="how much matrices shrink in a step; see decay_form"
    )
    weight_decay_end: NotNegative | None = Field(
        default=None, description="where the decay goes along a cosine; None: it stays"
    )
    decay_form: Literal["times-rate", "independent"] = Field(
        default="times-rate",
        description="w -= rate * decay * w (PyTorch), or w -= rate / peak_lr * decay * w (big_vision)",
    )
    layer_decay: float | None = Field(
        default=None, gt=0, le=1, description="learning rate of layer l times this to the power L + 1 - l"
    )
    clip_norm: float | None = Field(default=1.0, gt=0, description="largest global norm of the gradient")
    clip_each: float | None = Field(
        default=None,
        gt=0,
        description="largest norm of each weight's own gradient, instead of the global one",
    )
    sam_radius: float | None = Field(
        default=None, gt=0, description="sharpness-aware minimization (2010.01412) on top: rho"
    )


class ScheduleConfig(Config):
    """The learning rate over the steps, as a share of its peak."""

    kind: Literal["linear", "cosine", "constant", "rsqrt", "steps"] = Field(
        default="cosine", description="the curve after the warm-up"
    )
    drops: tuple[Share, ...] = Field(
        default=(0.3, 0.6, 0.9), description="steps: parts of the run after which the rate is a tenth"
    )
    warmup: NotNegative = Field(default=0.05, description="linear, from 0; steps, or below 1 a share of them")
    cooldown: NotNegative = Field(
        default=0.0, description="linear, to 0, at the end; steps, or below 1 a share of them"
    )
    end: Share = Field(default=0.0, description="where linear and cosine end, as a share of the peak")
    timescale: NotNegative = Field(default=10_000, description="rsqrt: sqrt(timescale / (timescale + step))")

    @model_validator(mode="after")
    def _drops_of_steps(self) -> ScheduleConfig:
        if self.kind != "steps" and self.drops != type(self).model_fields["drops"].default:
            raise ValueError(f"drops have no effect on kind={self.kind}: set kind=steps, or leave them out")
        return self


class DistillationConfig(Config):
    """A teacher whose outputs are learned besides the labels (DeiT, 2012.12877, section 4)."""

    teacher: str = Field(default="", description="any model or run; empty: no distillation")
    form: Literal["hard", "soft"] = Field(
        default="hard", description="the teacher's most probable class, or all of its probabilities"
    )
    weight: Share = Field(default=0.5, description="of the teacher's part of the loss")
    temperature: float = Field(default=3.0, gt=0, description="of the soft form")


class LoRAConfig(Config):
    """Low-rank changes of frozen matrices (2106.09685): W + alpha / rank * B A; merged when saved."""

    rank: int = Field(default=0, ge=0, description="0: no LoRA")
    alpha: float = Field(default=16.0, gt=0, description="scale of the change, divided by the rank")
    parts: Annotated[tuple[Literal["attention", "mlp"], ...], Names] = Field(
        default=("attention", "mlp"), description="whose matrices change"
    )


class TrainingConfig(Config):
    """How a model is trained, whatever its objective."""

    epochs: float = Field(
        default=60, gt=0, description="passes over the training part; fractions are allowed"
    )
    steps: Positive | None = Field(default=None, description="wins over epochs")
    minutes: float | None = Field(
        default=None, gt=0, description="of training, over all sessions; wins over steps and epochs"
    )
    batch_size: Positive = Field(default=128, description="images in one step, over all processes")
    grad_accum_steps: Positive = Field(default=1, description="micro-batches of a batch, to save memory")
    peak_lr: float = Field(default=1e-3, gt=0, description="largest learning rate, after the warm-up")
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    lr_batch_size: Positive | None = Field(
        default=None, description="the batch that peak_lr is for: it grows with batch_size; None: it does not"
    )
    ema_decay: float | None = Field(default=None, gt=0, lt=1, description="averaged weights; None: none")
    ema_warmup: bool = Field(
        default=True,
        description="the average begins with a short memory; false: Polyak's, as long from the start",
    )

    loss: Literal["softmax", "sigmoid"] = Field(
        default="softmax", description="cross-entropy, or binary cross-entropy summed over the classes"
    )
    label_smoothing: Probability = Field(
        default=0.0, description="share of the target that is spread over all classes"
    )
    distillation: DistillationConfig = DistillationConfig()
    initialization: Scheme = Field(
        default="google", description="of random weights: as in Google's code or in timm"
    )
    head_bias_init: float = Field(
        default=0.0, description="of a fresh head: -10 makes all classes improbable at first, for sigmoid"
    )
    head_std_init: NotNegative | None = Field(
        default=None, description="deviation of a fresh head's weights; None: as the scheme has it"
    )
    freeze: Annotated[tuple[str, ...], Names] = Field(
        default=(),
        description='parts that do not learn: "stem", "blocks.0"; "backbone": all but the head; '
        '"position.prefix": no positions on the class token',
    )
    lora: LoRAConfig = LoRAConfig()

    precision: Literal["auto", "fp32", "bf16", "fp8"] = Field(
        default="auto", description="auto: bf16 on GPUs, and on CPUs that have it for models of some width"
    )
    compile: bool | None = Field(
        default=None, description="torch.compile; None: on GPUs, for long runs with batches of one shape"
    )
    deterministic: bool = Field(
        default=False, description="only algorithms that give the same bits each time; slower"
    )
    shard: bool = Field(
        default=False, description="several processes: each stores a shard of every weight (FSDP)"
    )
    shard_group: Positive | None = Field(
        default=None,
        description="processes that one copy of the weights is sharded over; None: all of them",
    )
    checkpointing: bool = Field(default=False, description="recompute each layer in the backward pass")
    patience: Positive | None = Field(
        default=None, description="validations without a better score, after which training ends"
    )
    keep_best: bool = Field(
        default=False, description="the result is the model of the best validation, not the last one"
    )
    timeout: float = Field(
        default=10.0, gt=0, description="minutes in which no process goes on, after which several stop"
    )
    track: Annotated[tuple[Literal["wandb", "mlflow", "trackio"], ...], Names] = Field(
        default=(), description="experiment trackers, besides metrics.jsonl and TensorBoard"
    )
    save_every: NotNegative | None = Field(
        default=None,
        description="seconds between checkpoints; None: 60, and more where saving takes over 3 % of the time",
    )
    upload: str | None = Field(
        default=None, description="URL that checkpoints are copied to, too, such as s3://BUCKET/RUN"
    )
    keep_last: Positive = Field(default=2, description="checkpoints that are kept")
    keep_every: Positive | None = Field(
        default=None, description="steps between checkpoints that are kept for good; None: none are"
    )
    log_every: Positive | None = Field(
        default=None, description="steps between lines of metrics.jsonl; None: each epoch, at most 200"
    )

    @model_validator(mode="after")
    def _parts(self) -> TrainingConfig:
        if self.batch_size % self.grad_accum_steps:
            raise ValueError(
                f"a batch of {self.batch_size} cannot be split into {self.grad_accum_steps} equal "
                "micro-batches: make training.batch_size a multiple of training.grad_accum_steps"
            )
        if not self.ema_warmup and self.ema_decay is None:
            raise ValueError(
                "training.ema_warmup=false has no effect without training.ema_decay: set it, too"
            )
        if self.shard_group and not self.shard:
            raise ValueError("training.shard_group needs sharded weights: add --shard, or leave it out")
        return self

    def total_steps(self, steps_per_epoch: int) -> int:
        """Return the number of steps of the run; of one that has a time, what is taken for it at first."""
        return self.steps or max(1, round(self.epochs * steps_per_epoch))


class EvaluationConfig(Config):
    """When and how the model is measured on images that it does not learn from."""

    every_epochs: Positive = Field(default=1, description="on the validation part, where there is one")
    batch_size: Positive = Field(
        default=256, description="images in one forward pass; does not change the result"
    )
    fewshot: bool = Field(default=False, description="few-shot accuracy of the features there, too")
    calibrate: bool = Field(
        default=True, description="after training, fit a temperature of the probabilities there"
    )
    temperature: float | None = Field(
        default=None, gt=0, description="of the probabilities where there is no such part; None: none"
    )


class CommandConfig(Config):
    """All of a run, whatever it trains. `config.toml` is this, complete; the command runs it again."""

    command: ClassVar[str] = "train"  # what trains, and resumes, such a run
    task: str = ""  # its name in the registry
    source_from_run: str | None = Field(
        default=None, description="`source` relative to the run directory, where both are files"
    )

    @classmethod
    def following(cls, tree: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of `tree` that must change with what `override` sets."""
        return {}

    def check_defaults(self, group: str, names: Iterable[str], problem: str) -> None:
        """Raise ValueError for the first setting of a group that is changed, but would have no effect.

        Args:
            problem: the end of the sentence that begins with the setting's name.
        """
        settings = getattr(self, group)
        for name in names:
            if getattr(settings, name) != type(settings).model_fields[name].default:
                raise ValueError(f"{group}.{name} {problem}")


class RunConfig(CommandConfig):
    """All of a run that learns from images."""

    vit: ClassVar[type[ViTConfig]] = ViTConfig  # the kind of `model` where it is not a BiT

    task: str = Field(default="classification", description="classification or multilabel")
    source: str = Field(default="digits", description="the DATA argument")
    init: str | None = Field(default=None, description="the checkpoint to fine-tune; None: from scratch")
    recipe: str = Field(default="", description="where the values came from, for the reader")
    seed: int = Field(default=0, ge=0, description="of weights, order and augmentation")
    model: SerializeAsAny[ViTConfig | BiTConfig] = Field(
        default=ViTConfig(), description="the architecture: a ViT or a BiT"
    )
    preprocessing: Preprocessing = Preprocessing()
    data: DataConfig = DataConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @classmethod
    def following(cls, tree: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """The images' size and channels follow the model, unless `preprocessing` sets them itself."""
        changed, model = override.get("model", {}), tree["model"]
        found = {
            key: model[source]
            for key, source in (("size", "image_size"), ("channels", "channels"))
            if source in changed and key not in override.get("preprocessing", {})
        }
        return {"preprocessing": found}

    @model_validator(mode="after")
    def _same_images(self) -> RunConfig:
        prepared, model = self.preprocessing, self.model
        sizes = ("size", prepared.size, model.image_size), ("channels", prepared.channels, model.channels)
        for name, made, taken in sizes:
            if made != taken:
                raise ValueError(
                    f"preprocessing.{name} is {made}, but the model takes {taken}: make them the same"
                )
        return self
