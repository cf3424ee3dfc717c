"""The journey of one image through a model, stage by stage, without a single weight.

The model is built on torch's meta device, where tensors have a shape but no numbers, and each stage is run
there in the open: what `F.scaled_dot_product_attention` does at once is shown in its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from einops import rearrange
from torch import Tensor, nn

from vitreous.layers.attention import attention_map
from vitreous.layers.block import PreNormBlock
from vitreous.layers.mlp import SwiGLU
from vitreous.layers.resnet import ResNetStem
from vitreous.layers.stems import ConvolutionStem, LinearPatchStem, to_patches
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.counting import CountMacs, count_parameters
from vitreous.models.names import Model, build_model
from vitreous.models.segmenter import Segmenter
from vitreous.models.vit import ViT


class Stage(NamedTuple):
    """One step of the journey.

    Attributes:
        name: what happens.
        equation: where the paper says so (arXiv 2010.11929, unless another number is given).
        shape: of one image behind the step; only the image itself is written as a batch of one.
        times: how often the step happens: once for each layer of the encoder.
        parameters: of all these times together; what layers share counts once.
        macs: multiply-accumulate operations of all these times together.
        heads: the shape begins with the number of heads.
    """

    name: str
    equation: str
    shape: tuple[int, ...]
    times: int
    parameters: int
    macs: int
    heads: bool = False

    @property
    def written_shape(self) -> str:
        """ "197x768"; "12 heads of 197x64" where the first number counts heads."""
        if self.heads:
            count, *head = self.shape
            return f"{count} head{'s' if count > 1 else ''} of {'x'.join(map(str, head))}"
        return "x".join(map(str, self.shape))


class Journal:
    """Runs steps one after another and writes each down as a `Stage`."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def step(
        self,
        name: str,
        equation: str,
        run: Callable[[Tensor], Tensor],
        z: Tensor,
        *,
        holders: Iterable[nn.Module | nn.Parameter] = (),
        times: int = 1,
        heads: bool = False,
    ) -> Tensor:
        """run(z), written down. The step's parameters live in `holders`, and in `run` if that is a module."""
        with CountMacs() as count:  # type: ignore[no-untyped-call]
            result = run(z)
        holders = [*holders, *([run] if isinstance(run, nn.Module) else [])]
        shape = tuple(result.shape[1:])
        self.stages.append(
            Stage(name, equation, shape, times, count_parameters(holders), times * count.macs, heads)
        )
        return result

    def optional(self, name: str, equation: str, module: nn.Module, z: Tensor) -> Tensor:
        """A step that is there only where the configuration asks for it."""
        return z if isinstance(module, nn.Identity) else self.step(name, equation, module, z)


def on_meta(config: ViTConfig | BiTConfig) -> tuple[Model, Tensor]:
    """The model of a configuration and one image for it; neither takes any memory."""
    with torch.device("meta"):
        return build_model(config).eval(), torch.empty(1, config.channels, *config.image_size)


@torch.no_grad()
def journey(config: ViTConfig | BiTConfig) -> list[Stage]:
    """Every stage of one image's way through the model, from pixels to logits."""
    model, images = on_meta(config)
    journal = Journal()
    journal.stages.append(Stage("image", "x", tuple(images.shape), 1, 0, 0))
    if isinstance(model, BiT):
        through_bit(journal, model, images)
    else:
        z = through_embedding(journal, model, images)
        z = through_encoder(journal, model, z)
        through_maps(journal, model, z) if isinstance(model, Segmenter) else through_head(journal, model, z)
    return journal.stages


def through_bit(journal: Journal, model: BiT, images: Tensor) -> None:
    cells = through_resnet(journal, model.backbone, images)
    y = journal.step("mean of the cells", "", lambda x: x.mean(dim=(2, 3)), cells)
    journal.optional("head", "", model.head, y)


def through_resnet(journal: Journal, resnet: nn.Module, images: Tensor) -> Tensor:
    """Root and stages of a BiT, or of a hybrid's first half (section 3.1)."""
    stages, last = cast(nn.Sequential, resnet.stages), resnet._modules.get("norm")
    resnet.stages = nn.Sequential()  # so that a call stops behind the root
    if last:
        resnet.norm = nn.Identity()
    x = journal.step("ResNet root", "1912.11370", resnet, images)
    for number, stage in enumerate(cast(Iterable[nn.Sequential], stages), start=1):
        units = f"{len(stage)} unit{'s' if len(stage) > 1 else ''}"
        x = journal.step(f"ResNet stage {number}, {units}", "1912.11370", stage, x)
    return journal.step("GroupNorm", "1912.11370", last, x) if last else x


def through_embedding(journal: Journal, model: ViT, images: Tensor) -> Tensor:
    """z_0 (Eq. 1)."""
    config = model.config
    if config.pad:
        images = journal.step("padding to whole patches", "", model.sized, images)
    z = through_stem(journal, model, images)
    if config.num_prefix_tokens:
        name = (
            "class token in front"
            if config.num_prefix_tokens == 1
            else f"{config.num_prefix_tokens} tokens in front"
        )
        prefix = model.prefix.expand(1, -1, -1)
        z = journal.step(
            name, "x_class, Eq. 1", lambda z: torch.cat([prefix, z], dim=1), z, holders=[model.prefix]
        )
    z = journal.optional("positions", "+ E_pos, Eq. 1", model.position, z)
    return journal.optional("LayerNorm of the tokens", "", model.embedding_norm, z)


def through_stem(journal: Journal, model: ViT, images: Tensor) -> Tensor:
    """x_p E: the image becomes patch tokens."""
    stem = model.stem
    equation = "x_p E, Eq. 1"
    if isinstance(stem, ConvolutionStem):
        x = images
        for number in range(0, len(stem.convolutions), 3):
            layer = stem.convolutions[number : number + 3]
            x = journal.step(f"convolution {number // 3 + 1}", "2106.14881", layer, x)
        return journal.step("projection", equation, flat(stem.projection), x, holders=[stem.projection])
    if isinstance(stem, ResNetStem):
        x = through_resnet(journal, stem.backbone, images)
        return journal.step("projection", equation, flat(stem.projection), x, holders=[stem.projection])
    patch = model.config.patch_size
    patches = journal.step("patches, flat", "x_p", lambda x: to_patches(x, patch), images)
    if isinstance(stem, LinearPatchStem):
        patches = journal.optional("LayerNorm before projection", "", stem.norm_before, patches)
        z = journal.step("projection", equation, stem.projection, patches)
        return journal.optional("LayerNorm after projection", "", stem.norm_after, z)
    return journal.step("projection", equation, lambda _: stem(images), patches, holders=[stem])


def flat(projection: nn.Module) -> Callable[[Tensor], Tensor]:
    """The projection, and its cells in raster order."""
    return lambda cells: rearrange(projection(cells), "B D h w -> B (h w) D")


def through_encoder(journal: Journal, model: ViT, z: Tensor) -> Tensor:
    """The first layer in the open; all layers are alike, so each step happens `depth` times (Eq. 2, 3)."""
    layers = list(model.blocks)
    first: Any = layers[0]
    before = isinstance(first, PreNormBlock)
    position = model.layer_positions[0]
    if not isinstance(position, nn.Identity):
        z = journal.step("positions", "D.4", position, z, holders=model.layer_positions, times=len(layers))

    def step(name: str, equation: str, part: str, run: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        holders = [layer.get_submodule(part) for layer in layers]
        return journal.step(name, equation, run, z, holders=holders, times=len(layers))

    branch = step("LayerNorm", "LN(z), Eq. 2", "attention_norm", first.attention_norm, z) if before else z
    branch = through_attention(journal, [layer.get_submodule("attention") for layer in layers], branch)
    z = step("residual", "+ z, Eq. 2", "attention_branch", lambda y: z + first.attention_branch(y), branch)
    if not before:
        z = step("LayerNorm", "LN, 1706.03762", "attention_norm", first.attention_norm, z)
    middle = z
    branch = step("LayerNorm", "LN(z'), Eq. 3", "mlp_norm", first.mlp_norm, z) if before else z
    branch = through_mlp(journal, [layer.get_submodule("mlp") for layer in layers], branch)
    z = step("residual", "+ z', Eq. 3", "mlp_branch", lambda y: middle + first.mlp_branch(y), branch)
    return z if before else step("LayerNorm", "LN, 1706.03762", "mlp_norm", first.mlp_norm, z)


def through_attention(journal: Journal, attentions: Sequence[Any], z: Tensor) -> Tensor:
    """MSA (Eq. 5-8), one step for each equation."""
    first, depth = attentions[0], len(attentions)
    query, key, value, bias = first.project(z)
    projections = [
        part
        for each in attentions
        for part in (each.qkv, each.query_norm, each.key_norm, each.inner_position)
    ]
    journal.step(
        "query, key, value, each",
        "z U_qkv, Eq. 5",
        lambda z: first.project(z)[0],
        z,
        holders=projections,
        times=depth,
        heads=True,
    )
    weights = journal.step(
        "attention weights", "A, Eq. 6", lambda q: attention_map(q, key, bias), query, times=depth, heads=True
    )
    heads = journal.step(
        "weighted values", "A v, Eq. 7", lambda a: a @ value, weights, times=depth, heads=True
    )
    side_by_side = partial(rearrange, pattern="B K T E -> B T (K E)")
    joined = journal.step("heads side by side", "[SA_1; ...], Eq. 8", side_by_side, heads, times=depth)
    outs = [each.out for each in attentions]
    return journal.step("projection", "... U_msa, Eq. 8", first.out, joined, holders=outs, times=depth)


def through_mlp(journal: Journal, mlps: Sequence[Any], z: Tensor) -> Tensor:
    """MLP(LN(z')) of Eq. 3: up, and down again."""
    first, depth = mlps[0], len(mlps)
    wide = "gate_expand" if isinstance(first, SwiGLU) else "expand"
    expands, contracts = [getattr(mlp, wide) for mlp in mlps], [mlp.contract for mlp in mlps]
    hidden = journal.step("MLP, wide", "MLP, Eq. 3", expands[0], z, holders=expands, times=depth)
    hidden = hidden[..., : first.contract.in_features]  # SwiGLU: the gate has been multiplied in
    return journal.step("MLP, back", "MLP, Eq. 3", first.contract, hidden, holders=contracts, times=depth)


def through_head(journal: Journal, model: ViT, z: Tensor) -> None:
    """y (Eq. 4) and what stands behind it."""
    z = journal.optional("LayerNorm", "LN, Eq. 4", model.norm, z)
    pool, *norms = model.pool if isinstance(model.pool, nn.Sequential) else [model.pool]
    y = journal.step(POOLINGS[model.config.pooling], "y, Eq. 4", pool, z)
    for norm in norms:
        y = journal.step("LayerNorm", "LN, Eq. 4", norm, y)
    y = journal.optional("representation, tanh", "3.1", model.representation, y)
    journal.optional("head", "3.1", model.head, y)


def through_maps(journal: Journal, model: Segmenter, z: Tensor) -> None:
    """The patches become a map of each class (2105.05633)."""
    z = journal.optional("LayerNorm", "LN, Eq. 4", model.norm, z)
    if prefix := model.config.num_prefix_tokens:
        z = journal.step("patches alone", "2105.05633, 3.1", lambda z: z[:, prefix:], z)
    depth = model.config.decoder_depth
    layers = f"mask Transformer, {depth} layer{'s' if depth > 1 else ''}"
    name = layers if model.config.decoder == "mask-transformer" else "linear layer"
    masks = journal.step(name, "2105.05633, 3.2", model.head, z)
    if masks.shape[2:] != model.config.image_size:
        journal.step("maps at the image's size", "2105.05633, 3.2", model.upsample, masks)


POOLINGS = {
    "class": "class token",
    "mean": "mean of the patches",
    "mean-all": "mean of the tokens",
    "attention": "attention pooling",
    "class+mean": "class token and mean",
    "class+distillation": "class, distillation token",
}
