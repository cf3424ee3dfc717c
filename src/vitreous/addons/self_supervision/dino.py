"""DINO: self-distillation without labels (Caron et al., arXiv 2104.14294).

A student sees every view of an image, a teacher the two large ones. Both give each view probabilities of K
prototypes, and the student learns to give to one view those that the teacher gives to another (Eq. 3). The
teacher is a moving average of the student; its outputs are centered and sharpened, against a collapse.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.distributed
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from vitreous.addons.self_supervision.views import Views, ViewsConfig, multi_crop
from vitreous.checkpoints.resizing import resized_positions
from vitreous.checkpoints.weights import compute_positions, meta_model
from vitreous.errors import InputError
from vitreous.layers.initialization import init_weights
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Positive, setting
from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.rng import torch_generator
from vitreous.training.learner import move_towards
from vitreous.training.objectives import Illustration
from vitreous.training.step import MicroBatchMeasures


class DINOConfig(Config):
    """DINO, by default with the authors' settings for ViT-S/16; with few images, use far fewer prototypes."""

    prototypes: Positive = setting(65_536, "number of prototypes, which are the outputs of the head [K]")
    head_hidden: Positive = setting(2048, "number of hidden units of the projection head")
    head_bottleneck: Positive = setting(256, "number of units before the prototypes")
    student_temperature: float = setting(0.1, "temperature of the student's softmax", gt=0)
    teacher_temperature: float = setting(0.07, "temperature of the teacher's softmax after the warm-up", gt=0)
    teacher_temperature_start: float = setting(
        0.04, "temperature of the teacher's softmax at the beginning", gt=0
    )
    teacher_temperature_warmup: float = setting(
        0.3, "length of the temperature's warm-up, as a share of the steps", ge=0, le=1
    )
    center_momentum: float = setting(
        0.9, "momentum of the running mean that centers the teacher's outputs", ge=0, lt=1
    )
    teacher_momentum: float = setting(
        0.996, "momentum of the teacher at the start, which rises to 1", ge=0, lt=1
    )
    freeze_prototypes: float = setting(
        0.01, "share of the steps, at the start, during which the prototypes are frozen", ge=0, le=1
    )
    views: ViewsConfig = ViewsConfig()


class ProjectionHead(nn.Module):
    """Three layers, L2 normalization, and weight-normalized prototypes of length one: the output is the
    cosine of a feature with each prototype."""

    def __init__(self, width: int, config: DINOConfig, *, seed: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, config.head_hidden),
            nn.GELU(),
            nn.Linear(config.head_hidden, config.head_hidden),
            nn.GELU(),
            nn.Linear(config.head_hidden, config.head_bottleneck),
        )
        rng = torch_generator(seed, "dino head")
        init_weights(self.mlp, rng, "timm")
        # A linear layer with PyTorch's own initial weights and with weight decay, as the authors'. Its rows
        # have length 0.577; AdamW, whose steps do not grow with the gradient, would turn longer rows slowly.
        self.prototypes = nn.Linear(config.head_bottleneck, config.prototypes, bias=False)
        with torch.no_grad():
            nn.init.kaiming_uniform_(self.prototypes.weight, a=math.sqrt(5), generator=rng)

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B prototypes"]:
        z = F.normalize(self.mlp(features), dim=-1)
        prototypes: Tensor = self.prototypes.weight
        return (z @ F.normalize(prototypes, dim=-1).T).float()  # temperatures of 0.04 ask for it


class DINO(nn.Module):
    """The objective around `model`, the student. Any model with features will do, a hybrid or a BiT too.
    What changes from step to step is computed on the device, so that Python never waits for a number.

    Args:
        steps: of the optimizer in the whole training, over which temperature and momentum move; one that ends
            after a time estimates them again and again (`set_total`).
    """

    # For training in shards: small views are computed with the student's weights, not in its layers.
    gathered_at_once = True
    steps: Int[Tensor, ""]

    def __init__(self, model: Model, config: DINOConfig, *, steps: int, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("steps", torch.tensor(steps), persistent=False)  # a compiled step stays one
        self.total = steps  # the same, for Python
        self.crops = multi_crop(model.config, self.config.views)
        self.model = model
        self.small_features = FeaturesAt(model, self.crops.small_size)
        self.head = ProjectionHead(feature_width(model), self.config, seed=seed)
        self.teacher = copy.deepcopy(model).requires_grad_(False).eval()
        self.teacher_head = copy.deepcopy(self.head).requires_grad_(False)
        # Parameters that no gradient moves: a saved state holds parameters.
        self.center = nn.Parameter(torch.zeros(self.config.prototypes), requires_grad=False)
        self.step = nn.Parameter(torch.zeros(()), requires_grad=False)

    @property
    def encoder(self) -> Model:
        """What pre-training was for: the teacher, which is the better of the two throughout (Fig. 6)."""
        return self.teacher

    @property
    def kept_whole(self) -> tuple[nn.Parameter, ...]:
        """For training in shards: what is the same in every process."""
        return self.center, self.step

    def train(self, mode: bool = True) -> DINO:
        """Set the mode of the student; the teacher never drops anything."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(
        self, images: Views | Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss over all pairs of different views; those of whole images are cut here."""
        done = self.done
        shown = self.model.preprocessing
        views = images if isinstance(images, Views) else self.crops(images, shown, generator)
        large, small = (each.transpose(0, 1).flatten(0, 1) for each in views)  # view by view
        features = [self.model.features(large)]
        features += [self.small_features(self.model, small)] if len(small) else []
        student = self.head(torch.cat(features)).unflatten(0, (-1, len(views.images)))
        with torch.no_grad():
            teacher = self.teacher_head(self.teacher.features(large)).unflatten(0, (-1, len(views.images)))
            targets = F.softmax((teacher - self.center) / self.teacher_temperature(done), dim=-1)
        loss = cross_view_loss(student, targets, temperature=self.config.student_temperature)
        measured = signs_of_collapse(targets)
        return loss, {**measured, "outputs": teacher.mean(dim=(0, 1))} if self.training else measured

    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        """Return the loss of a student that gives all prototypes the same probability."""
        return torch.tensor(math.log(self.config.prototypes))

    @torch.no_grad()
    def illustration(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Illustration:
        """Show a large and a small view of each image."""
        large, small = self.crops(images, self.model.preprocessing, generator)
        other = small[:, 0] if small.shape[1] else large[:, 1]
        return Illustration("views", {"image": images, "global-crop": large[:, 0], "local-crop": other})

    @property
    def done(self) -> Float[Tensor, ""]:
        """The share of the training that is over."""
        return (self.step.double() / self.steps).clamp(max=1.0)

    def set_total(self, steps: int) -> None:
        """Let temperature and momentum move over another number of steps, as the learning rate does."""
        self.steps.fill_(steps)
        self.total = steps

    def frozen_at(self, step: int) -> tuple[Tensor, ...]:
        """Return the weights that step number `step` leaves as they are: at first the prototypes."""
        frozen = step < self.config.freeze_prototypes * self.total
        return (self.head.prototypes.weight,) if frozen else ()

    @torch.no_grad()
    def after_step(self, measured: MicroBatchMeasures, taken: Bool[Tensor, ""]) -> None:
        """Let the teacher follow the student after a step of the optimizer that was `taken`, and the center
        the teacher's outputs; one that was skipped changes nothing."""
        images = sum(count for count, _ in measured)
        means = torch.stack([count / images * means["outputs"] for count, means in measured])
        self.recenter(means.sum(dim=0), taken)
        self.follow(self.done, taken)
        self.step.add_(taken)

    @torch.no_grad()
    def follow(self, done: Float[Tensor, ""], taken: Bool[Tensor, ""]) -> None:
        """Move the teacher: theta_t <- m theta_t + (1 - m) theta_s, m rising to 1 along a cosine."""
        weight = (1 - self.config.teacher_momentum) * (torch.cos(math.pi * done) + 1) / 2 * taken
        for teacher, student in ((self.teacher, self.model), (self.teacher_head, self.head)):
            move_towards(teacher, student, weight.float())

    @torch.no_grad()
    def recenter(self, mean: Float[Tensor, " prototypes"], taken: Bool[Tensor, ""]) -> None:
        """Move the center: c <- m c + (1 - m) mean of the teacher's outputs, over all processes (Eq. 4)."""
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(mean)
            mean /= torch.distributed.get_world_size()
        moved = self.center.lerp(mean, 1 - self.config.center_momentum)
        self.center.copy_(torch.where(taken, moved, self.center))  # the outputs may not be numbers

    def teacher_temperature(self, done: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Return the sharpness of the teacher: linear from its start to its end value, then constant."""
        start, warmup = self.config.teacher_temperature_start, self.config.teacher_temperature_warmup
        warm = (done / warmup).clamp(max=1.0) if warmup else torch.ones_like(done)
        return start + (self.config.teacher_temperature - start) * warm


def cross_view_loss(
    student: Float[Tensor, "V2 B prototypes"], targets: Float[Tensor, "V B prototypes"], *, temperature: float
) -> Float[Tensor, ""]:
    """Return the mean of the cross-entropies H(teacher's view, student's view) over all pairs of different
    views (Eq. 3). The student's first views are the teacher's, in the same order."""
    logs = F.log_softmax(student / temperature, dim=-1)
    pairs = [(target, log) for t, target in enumerate(targets) for s, log in enumerate(logs) if s != t]
    return torch.stack([-(target * log).sum(dim=-1).mean() for target, log in pairs]).mean()


def signs_of_collapse(targets: Float[Tensor, "V B prototypes"]) -> dict[str, Tensor]:
    """Return the entropies of the teacher's answers: of each, which nears log K where all prototypes are
    equal, and of their mean, which nears 0 where one prototype answers for every image (section 5.3)."""

    def entropy(shares: Tensor) -> Tensor:
        return torch.special.entr(shares).sum(dim=-1).mean()

    return {"teacher_entropy": entropy(targets), "marginal_entropy": entropy(targets.mean(dim=(0, 1)))}


def feature_width(model: Model) -> int:
    """Return the channels of `model.features`."""
    if isinstance(model.config, ViTConfig) and model.config.distillation_token:
        raise InputError(
            "views are compared by one feature vector each, and a model with a distillation token has two: "
            "set model.pooling=class"
        )
    return model.config.feature_width


class FeaturesAt(nn.Module):
    """`model.features` for images of `size` pixels, with gradients for the model's own weights.

    `vitreous.resize` makes a second model; here the learned positions are resampled in every call, as the
    authors of DINO do it, so that what is learned from small crops is learned by the model itself. Raises
    InputError: relative positions, which have no resized form; a size that the patches do not divide.
    """

    def __init__(self, model: Model, size: tuple[int, int]) -> None:
        changes = {"image_size": size, "num_classes": None}
        super().__init__()
        config = model.config.checked(model.config.model_dump(), changes)
        kinds = ("relative", "relative-bias")
        relative = isinstance(config, ViTConfig) and config.position.kind in kinds
        if relative and size != model.config.image_size:
            raise InputError(
                "relative positions cannot be resized for small crops: "
                "set pretraining.dino.views.small_count=0, or choose other positions"
            )
        shape = meta_model(config)
        compute_positions(shape)
        self.shape = (shape,)  # the computation alone, none of the modules here: weights come with each call
        self.names = {name for name, _ in shape.named_parameters()}
        for name, buffer in shape.named_buffers():
            self.register_buffer(name.replace(".", "/"), buffer, persistent=False)

    def forward(self, model: Model, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        weights: dict[str, Tensor] = {
            name: weight for name, weight in model.named_parameters() if name in self.names
        }
        (shape,) = self.shape
        # The code of DINO moves the sample points, too.
        if isinstance(model, ViT) and isinstance(shape, ViT):
            weights |= resized_positions(weights, model.config, shape.config, "dinov2")
        buffers = {name.replace("/", "."): buffer for name, buffer in self.named_buffers()}
        return functional_call(shape.train(model.training), weights | buffers, (images,))
