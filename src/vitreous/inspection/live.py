"""A Vision Transformer of another library, as it is, with what the measures of this package ask of a ViT.

One forward pass shows where the layers are, which tokens are patches, and which of them the head reads. What
follows the last layer is the module's own code: it is run on the tokens of any layer (`logit_lens`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.checkpoints.live import labels_of, preprocessing_of
from vitreous.checkpoints.loading import load
from vitreous.errors import InputError
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.measures import layer_tokens, logit_lens, readout_of, readout_weights
from vitreous.inspection.model_figures import first_filters, position_rows
from vitreous.inspection.relevance import Backward, class_score, go_back
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import AttentionPoolingConfig, TokenPoolingConfig
from vitreous.models.model import Model, modes_restored
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

MOST_PREFIX = 16  # class, distillation and register tokens
ONLY = "vitreous.capture_attention gives its maps, but no figures are made of them"
READ = 1e-6  # of the largest gradient: a token with less is not read


class LiveViT(ViT):
    """A module of another library in the place of a ViT: what reports measure of a model is there, its parts
    are not.

    Attributes:
        module: it, as it is; the weights are shared.
        layers: its encoder layers.
        config: its shapes; of the rest nothing is known.
    """

    def __init__(self, module: nn.Module, preprocessing: Preprocessing) -> None:
        nn.Module.__init__(self)
        self.module, self.preprocessing = module, preprocessing
        self.labels, self.task, self.temperature = labels_of(module), None, 1.0
        parameter = next(module.parameters())
        rng = torch.Generator().manual_seed(0)
        images = torch.randn(2, preprocessing.channels, *preprocessing.size, generator=rng).to(parameter)
        with modes_restored(module), torch.no_grad():
            self.measure(module.eval(), images)

    @property
    def has_untrained_layers(self) -> bool:
        """Not known."""
        return False

    def measure(self, module: nn.Module, images: Float[Tensor, "2 C H W"]) -> None:
        """Find layers, tokens and what the head reads, by a forward pass."""
        with capture_attention(module, kind=nn.Module, reduce=lambda maps: maps.shape) as found:
            outputs = module(images)
        # The attention of layers has square maps, that of a pooling has not.
        square = [number for number, shape in enumerate(found.maps) if shape[-1] == shape[-2]]
        shapes = {tuple(found.maps[number]) for number in square}
        if len(shapes) != 1 or next(iter(shapes))[0] != len(images):
            sizes = ["x".join(map(str, shape)) for shape in sorted(shapes)]
            raise InputError(
                f"{type(module).__name__} does not have the same tokens in every layer (attention of "
                f"{' and '.join(sizes) or 'no layer'}): {ONLY}"
            )
        _, heads, tokens, _ = shapes.pop()
        self.shapes = [tuple(shape[1:]) for shape in found.maps]  # of all attention, a pooling's too
        self.pooled = square[-1] < len(found.maps) - 1
        names = block_names([found.names[number] for number in square])
        self.layers = [module.get_submodule(name) for name in names]
        *_, z = self.states(images)
        self.norm = self.final_norm(images, z)
        logits = logits_of(module, outputs)
        classes = None if logits is None else logits.shape[-1]
        self.config = self.shaped(images, heads, tokens, z.shape[-1], classes)
        self.config = self.config.model_copy(update=self.pooling(z))

    def shaped(self, images: Tensor, heads: int, tokens: int, width: int, classes: int | None) -> ViTConfig:
        """Return a configuration with the module's shapes."""
        size = (images.shape[2], images.shape[3])
        prefix, patch = tokens_of_patches(type(self.module).__name__, size, tokens)
        return ViTConfig(
            image_size=size,
            patch_size=patch,
            channels=images.shape[1],
            width=width,
            depth=len(self.layers),
            heads=heads,
            head_dim=max(width // heads, 1),
            num_classes=classes,
            class_token=prefix > 0,
            registers=max(prefix - 1, 0),
            pooling=TokenPoolingConfig(kind="class" if prefix else "mean"),
        )

    def forward(self, images: Float[Tensor, "B C H W"]) -> Tensor:
        outputs = self.module(images)
        logits = logits_of(self.module, outputs)
        return first_tensor(outputs) if logits is None else logits

    def whole_patches(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        return images

    def states(self, images: Float[Tensor, "B C H W"]) -> list[Float[Tensor, "B T D"]]:
        """Return z_0 ... z_L: what enters the first layer, and the output of each."""
        seen: list[Tensor] = []

        def entering(_: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
            if not seen:
                seen.append(first_tensor((*args, *kwargs.values())))

        def leaving(_: nn.Module, __: object, output: Any) -> None:
            self.template = output
            seen.append(first_tensor(output))

        hooks = [self.layers[0].register_forward_pre_hook(entering, with_kwargs=True)]
        hooks += [layer.register_forward_hook(leaving) for layer in dict.fromkeys(self.layers)]
        try:
            self.module(images)
        finally:
            for hook in hooks:
                hook.remove()
        if len(seen) != len(self.layers) + 1 or any(each.ndim != 3 for each in seen):
            raise InputError(
                f"the layers of {type(self.module).__name__} are not modules from tokens (B, T, D) to "
                f"tokens: {ONLY}"
            )
        self.tokens_first = seen[0].shape[0] != len(images)
        return [each.transpose(0, 1) if self.tokens_first else each for each in seen]

    def after_layers(self, z: Float[Tensor, "B T D"]) -> object:
        """Return the module's outputs if its encoder ended with these tokens: its own norm, pooling and head.

        Every layer gives these tokens meanwhile, whatever it is given.
        """
        given: object = z.transpose(0, 1) if self.tokens_first else z
        # The tokens are the first of several outputs.
        if not isinstance(self.template, Tensor):
            given = type(self.template)((given, *self.template[1:]))
        blank = torch.zeros(len(z), self.config.channels, *self.config.image_size).to(z)
        with replaced_forward(self.layers, given):
            return self.module(blank)

    def final_norm(self, images: Tensor, z: Float[Tensor, "B T D"]) -> nn.Module:
        """Return the first normalization that the tokens of the last layer enter."""
        entered: list[nn.Module] = []
        last = self.layers[-1]

        def watch(module: nn.Module, args: object, output: object) -> None:
            if entered and entered[0] is last and "Norm" in type(module).__name__:
                entered.append(module)
            elif module is last:
                entered[:] = [last]

        inner = {id(each) for each in last.modules()} - {id(last)}
        hooks = [each.register_forward_hook(watch) for each in self.module.modules() if id(each) not in inner]
        try:
            self.module(images)
        finally:
            for hook in hooks:
                hook.remove()
        norm = entered[1] if len(entered) > 1 else nn.Identity()
        return norm if norm(z).shape == z.shape else nn.Identity()

    def pooling(self, z: Float[Tensor, "B T D"]) -> dict[str, object]:
        """Return the fields of what the head reads, by the tokens that its outputs depend on."""
        prefix = self.config.num_prefix_tokens
        if self.pooled:
            return {"pooling": AttentionPoolingConfig()}
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            outputs = self.after_layers(z)
            logits = logits_of(self.module, outputs)
            read = logits if logits is not None else getattr(outputs, "pooler_output", None)
            if read is None:
                read = first_tensor(outputs)
        if read.ndim != 2:  # tokens come out, and none of them is read
            return {}
        weights = torch.randn(read.shape, generator=torch.Generator().manual_seed(0)).to(read)
        with torch.enable_grad():
            score = (read * weights).sum()
        slopes = torch.autograd.grad(score, z)[0].norm(dim=-1).mean(dim=0)
        first, patches = slopes[:prefix], slopes[prefix:]
        is_read = (slopes > READ * slopes.max()).tolist()
        if not all(is_read[prefix:]):
            if prefix > 1 and is_read[1]:
                return {"pooling": TokenPoolingConfig(kind="class+distillation"), "registers": prefix - 2}
            return {"pooling": TokenPoolingConfig(kind="class")}
        if not any(is_read[:prefix]):
            return {"pooling": TokenPoolingConfig(kind="mean")}
        # The class token beside the mean of N patches counts N times as much as one of them.
        both = first[0] > 4 * patches.mean()
        return {"pooling": TokenPoolingConfig(kind="class+mean" if both else "mean-all")}


@layer_tokens.register
def _(model: LiveViT, images: Tensor) -> Iterator[Tensor]:
    yield from model.states(images)


@logit_lens.register
def _(model: LiveViT, z: Tensor) -> Tensor:
    logits = logits_of(model.module, model.after_layers(z))
    assert logits is not None
    return logits.softmax(dim=-1)


@readout_of.register
def _(model: LiveViT, images: Tensor) -> Tensor:
    if not model.pooled:
        return readout_weights(model.config).expand(images.shape[0], -1)
    with torch.no_grad(), capture_attention(model, kind=nn.Module) as attention:
        model.module(images)
    row = attention.maps[-1].float().mean(dim=1)[:, 0].cpu()
    return F.pad(row, (model.config.sequence_length - row.shape[1], 0))  # a pooling may skip the first tokens


@first_filters.register
def _(model: LiveViT) -> Tensor | None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return module.weight.detach().float()
    return None


@position_rows.register
def _(model: LiveViT) -> Tensor | None:
    """Return what is called a position, with a row for each patch, or for each token."""
    patches, width = math.prod(model.config.grid), model.config.width
    for name, table in model.named_parameters():
        rows = table.numel() // width
        if "pos" in name and table.shape[-1] == width and patches <= rows <= model.config.sequence_length:
            return table.detach().float().reshape(rows, width)[rows - patches :]
    return None


@go_back.register
def _(model: LiveViT, images: Tensor, classes: Tensor | None, start: Tensor) -> Backward:
    images = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        score = class_score(model(images), classes)
    with Backward(model.shapes, start.expand(len(images), -1)) as backward:
        torch.autograd.grad(score, images)
    return backward


def live_model(module: nn.Module, preprocessing: Preprocessing | None) -> Model:
    """Return a module of another library: as a ViT of vitreous where its weights can be read, so that every
    figure can be made of it, and else as it is. Raises InputError: it is not a Vision Transformer."""
    try:
        model = load(module)
    except InputError:
        try:
            return LiveViT(module, preprocessing or preprocessing_of(module))
        except InputError:
            raise
        except Exception as error:  # of a module that is anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"a {type(module).__name__} is not a Vision Transformer that takes images: {reason:.200}"
            ) from None
    model.preprocessing = preprocessing or model.preprocessing
    return model.to(next(module.parameters()).device)


def logits_of(module: nn.Module, outputs: object) -> Tensor | None:
    """Return the logits; None where features come out."""
    found = getattr(outputs, "logits", None)
    if found is None and isinstance(outputs, Tensor) and getattr(module, "num_classes", None) != 0:
        found = outputs
    return found if isinstance(found, Tensor) and found.ndim == 2 else None


def first_tensor(values: object) -> Tensor:
    """Return the first tensor of what a module takes or gives."""
    if isinstance(values, Tensor):
        return values
    given = values.values() if isinstance(values, Mapping) else values
    assert isinstance(given, Iterable)
    return next(first_tensor(each) for each in given if isinstance(each, Tensor | tuple | list))


def block_names(names: Sequence[str]) -> list[str]:
    """Return the names of the layers of attention modules: up to the part that tells the layers apart."""
    parts = [name.split(".") for name in names]
    differing = [len(set(words)) > 1 for words in zip(*parts, strict=False)]
    if True not in differing:  # a single layer
        differing = [word[-1:].isdigit() for word in parts[0]]
    end = differing.index(True) + 1 if True in differing else len(parts[0])
    return [".".join(each[:end]) for each in parts]


def tokens_of_patches(name: str, size: tuple[int, int], tokens: int) -> tuple[int, tuple[int, int]]:
    """Return how many tokens precede the patches, and the sides of a patch: the fewest tokens that leave a
    grid of square patches."""
    for prefix in range(MOST_PREFIX + 1):
        patch = round(math.sqrt(size[0] * size[1] / max(tokens - prefix, 1)))
        if patch and not (size[0] % patch or size[1] % patch):
            rows, columns = size[0] // patch, size[1] // patch
            if rows * columns == tokens - prefix:
                return prefix, (patch, patch)
    raise InputError(
        f"the {tokens} tokens of {name} are not a grid of square patches of {size[0]}x{size[1]} pixels after "
        f"at most {MOST_PREFIX} others: {ONLY}"
    )


@contextmanager
def replaced_forward(modules: Sequence[nn.Module], output: object) -> Iterator[None]:
    """Let modules return `output` while the context lasts."""
    before = {module: module.__dict__.get("forward") for module in modules}
    try:
        for module in before:
            module.__dict__["forward"] = lambda *_, **__: output
        yield
    finally:
        for module, forward in before.items():
            module.__dict__.pop("forward", None)
            if forward is not None:
                module.__dict__["forward"] = forward
