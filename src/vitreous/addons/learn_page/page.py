"""learn.html: one offline page in which a Vision Transformer runs, and shows each of its tensors.

The forward pass is vit.js, equal to PyTorch within 1e-5, and stem.js, that of a convolutional stem, within
1e-4. Weights are in the page; of a model that is too large for that, the results of its matrix products on a
few images are.
"""

from __future__ import annotations

import base64
import copy
import inspect
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import vitreous
from vitreous import __version__
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, ImageDataset
from vitreous.data.sources import open_data
from vitreous.errors import InputError, Param
from vitreous.extensions import CLASSES, outputs_of
from vitreous.inspection.page import POLICY, framed, templates_of
from vitreous.inspection.run_report import label_of
from vitreous.languages import CURRENT, LANGUAGES, catalog, words
from vitreous.layers.attention import Attention, attention_map
from vitreous.layers.block import MLP, PreNormBlock
from vitreous.layers.embedding import AddedPositions, PatchStem, to_patches
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import EfficientNetLiteStemConfig
from vitreous.models.ensemble import Ensemble
from vitreous.models.model import as_probabilities
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import ImageLike
from vitreous.models.vit import ViT
from vitreous.results import Result
from vitreous.whole_files import write_text

if TYPE_CHECKING:
    from vitreous.data.image_list import Failure

# The paper's model on digits (docs/make_digits_model.py) and on emoji in color (docs/make_emoji_model.py);
# and a hybrid on photographs (docs/make_photo_model.py).
DIGITS, EMOJI, PHOTO = (Path(__file__).parent / name for name in ("digits", "emoji", "photo"))
BUNDLED = {"digits": DIGITS, "emoji": EMOJI, "photo": PHOTO}
# Of the page: it compiles kernel.wat, too. No other code is made from data.
POLICY_WITH_KERNEL = POLICY.replace("script-src", "script-src 'wasm-unsafe-eval'")
SITE = "https://vitreous.readthedocs.io"  # has the lessons that the story links to
MOST_SAMPLES = 10  # images of the page
MOST_RECORDED = 2  # of a page of recorded tensors
SMALL = 1_000_000  # parameters of a model that has the page beside its report
NARROW = 12  # numbers of a row that is stored in 8 bits, at least
# What vit.js computes: of each field that chooses a variant the values that it knows; None: without the part.
RUNS: dict[str, tuple[object, ...]] = {
    "stem.kind": ("patch", "convolution", "efficientnet-lite"),
    "position.kind": ("learned", "learned-2d", "sincos-2d", "relative", "rotary-2d", "none"),
    "position.absolute": (False,),
    "rotary.kind": (None, "axial"),
    "rotary.class_angles": (None, False),
    "rotary.register_temperature": (None,),
    "norm": ("pre",),
    "norm_kind": ("layer",),
    "final_norm": ("tokens", "pooled", "none"),
    "qk_norm": ("none", "head"),
    "extra_norms": ((), ("tokens",)),
    "mlp": ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu"),
    "pooling.kind": ("class", "mean", "mean-all", "class+mean"),
    "channels": (1, 3),
}
FINE = 224  # pixels of a side in which people see an image of fewer


class PageSizes(NamedTuple):
    """From which sizes on a page stores a model in fewer bits, or its results in its place."""

    exact: int = 100_000  # parameters that are stored as fp32; more as fp16
    compact: int = 500_000  # parameters; more are stored in 8 bits, where that changes next to nothing
    quiet: float = 0.005  # change of a probability that is nearly nothing
    largest: int = 16_000_000  # bytes of weights that are in the page
    recorded: int = 12 << 20  # bytes of the recorded results of one image


SIZES = PageSizes()


@dataclass(frozen=True)
class LearnPage(Result):
    """The page that `learn` wrote.

    Attributes:
        page: the HTML file.
        parameters: of the model.
        recorded: whether the model is too large to run in the page, which has recorded tensors then.
        rounding: the largest change of a probability on the page's images that storing the weights in 16
            or 8 bits makes; 0 where they are stored as fp32.
        failed: images that could not be read, and why.
    """

    page: Path
    parameters: int
    recorded: bool
    rounding: float
    failed: tuple[Failure, ...] = ()

    def _repr_html_(self) -> str:
        return framed(self.page)


def write_learn_page(
    path: Path,
    model: nn.Module,
    samples: Sequence[tuple[ImageLike, str]],
    *,
    name: str,
    trained: bool = True,
    ask_browser: bool = False,
    facts: Mapping[str, Any] | None = None,
    bundled: str = "",
    new: bool = False,
    sizes: PageSizes = SIZES,
) -> LearnPage:
    """Write the page atomically. It has all languages, and opens in the one that is spoken.

    Args:
        samples: images to try, with their labels.
        name: of the model, for the page.
        trained: whether the weights have learned anything.
        ask_browser: whether the page opens in the language of the browser instead, where it has that.
        facts: of a model that comes with the package, as in `bundled_model_facts`.
        bundled: the name of a model that comes with the package: digits, emoji or photo.
        new: replace nothing, as in `whole`.
        sizes: from which on less of the model is stored.

    Raises:
        InputError: the page cannot run this model.
    """
    if reason := reason_against(model):
        raise InputError(f"vitreous learn cannot show {name}: {reason}")
    alone = isinstance(model, Ensemble)  # the network of one, without the others that answer with it
    shown_model = model.network() if isinstance(model, Ensemble) else model
    assert isinstance(shown_model, ViT)
    model = copy.deepcopy(shown_model).float().cpu().eval()
    prepared = model.preprocessing
    parameters = sum(each.numel() for each in model.parameters())
    most = MOST_RECORDED if parameters > sizes.largest else None
    shown = [prepared.image(image) for image, _ in samples[:most]]
    model, bits, rounding = rounded_model(model, prepared(shown), sizes)
    recorded = parameters * bits > 8 * sizes.largest
    if recorded:
        shown = shown[:MOST_RECORDED]
    tensors = {}
    for key, each in tensors_of(model):
        # The products of the encoder's matrices can be recorded in their place.
        is_matrix = key.endswith("weight") and "norm" not in key and "stem" not in key
        if not (recorded and is_matrix):
            tensors[key] = each
    factor, shift = prepared.factor_and_shift()
    practice = practice_of(model)
    data = {
        "version": __version__,
        "name": name,
        "trained": trained,
        "untrainedLayers": shown_model.has_untrained_layers,
        "facts": dict(facts or {}),
        "site": SITE,
        "bundled": bundled,
        "temperature": model.temperature,
        "labels": model.labels or [str(number) for number in range(model.config.num_classes or 0)],
        "multilabel": outputs_of(model) == "sigmoid",
        "parameters": parameters,
        "config": page_config(model.config),
        "resize": {"kind": prepared.resize, "fraction": prepared.crop_fraction, "mean": prepared.mean},
        "factor": factor.flatten().tolist(),
        "shift": shift.flatten().tolist(),
        "alone": alone,
        "bits": bits,
        "rounding": rounding,
        **page_weights(tensors, bits),
        "samples": [
            {
                "label": label,
                "pixels": base64.b64encode(image.tobytes()).decode("ascii"),
                "fine": None if recorded else detailed_jpeg(prepared, original),
            }
            for image, (original, label) in zip(shown, samples, strict=False)
        ],
        "recorded": [recording(model, prepared(image)[None], sizes.recorded) for image in shown]
        if recorded
        else None,
        "code": code_of(model),
        "practice": practice,
        "border": least_certain_digit(model, practice) if practice and trained else None,
    }
    page = (
        templates_of("vitreous.addons.learn_page")
        .get_template("page.html.j2")
        .render(
            language=CURRENT.get(),
            ask_browser=ask_browser,
            policy=POLICY_WITH_KERNEL,
            data=data,
            words={each: catalog(each)["learn"] for each in LANGUAGES},
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, in_ascii(page), new=new)
    return LearnPage(path, parameters, recorded, rounding)


def in_ascii(page: str) -> str:
    """Return a page with all other letters as references of HTML or, in scripts, as escapes of JavaScript.

    Of a text in ASCII alone, most of which is weights, a browser reads and keeps half as many bytes.
    """
    parts = re.split(r"(<script.*?</script>)", page, flags=re.DOTALL)
    for number, part in enumerate(parts):
        parts[number] = (
            re.sub(r"[^\x00-\x7f]", lambda letter: json.dumps(letter[0])[1:-1], part)
            if number % 2
            else part.encode("ascii", "xmlcharrefreplace").decode("ascii")
        )
    return "".join(parts)


def page_of_run(run: Path, model: nn.Module, images: ImageDataset) -> tuple[str, str] | None:
    """Write learn.html beside the report of a small model. Return its name, and the words of the link to it;
    None for another model, and without a readable image.

    On the bundled digits the page has the paper's model, which comes with the package, where the run's own
    has convolutions before the tokens: the page teaches the paper.
    """
    small = sum(each.numel() for each in model.parameters()) <= SMALL and reason_against(model) is None
    samples = labeled_samples(images) if small else []
    if not samples:
        return None
    if isinstance(model, ViT) and reads_digits(model.config) and model.config.stem.kind != "patch":
        from vitreous.checkpoints.loading import load

        write_learn_page(run / "learn.html", load(DIGITS), samples, name="digits", ask_browser=True)
        return "learn.html", words("learn.papers-model")
    write_learn_page(run / "learn.html", model, samples, name=run.name, ask_browser=True)
    return "learn.html", words("learn.beside-report")


def bundled_samples(model: object) -> list[tuple[ImageLike, str]]:
    """Return the images that come with a bundled model, with their labels: 3-animal.png is an animal."""
    if not isinstance(model, Path) or model not in BUNDLED.values():
        return []
    paths = sorted(path for path in model.iterdir() if path.suffix in (".png", ".jpg"))
    return [(Image.open(path), path.stem.partition("-")[2].replace("_", " ")) for path in paths]


def bundled_model_facts(folder: Path) -> dict[str, Any]:
    """Return what is known of a model that comes with the package: "credit", where its images are from and
    their licenses; and how often it is right ("right", "count", ...)."""
    path = folder / "facts.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def detailed_jpeg(prepared: Preprocessing, image: ImageLike) -> str | None:
    """Return what a model sees of an image in as many pixels as people like to see, as base64 of a JPEG; None
    where it sees that many, or the image has no more than it sees."""
    height, width = prepared.size
    if prepared.channels != 3 or min(height, width) >= FINE or not isinstance(image, Image.Image):
        return None
    if min(image.size) < 1.5 * min(height, width):
        return None
    larger = FINE // min(height, width)
    shown = prepared.model_copy(update={"size": (larger * height, larger * width)}).image(image)
    stream = io.BytesIO()
    shown.save(stream, "JPEG", quality=78)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def labeled_samples(images: ImageDataset) -> list[tuple[ImageLike, str]]:
    """Return a few images with their labels: the first of each class where there are as many classes,
    else evenly spread ones. Unreadable images are left out."""
    rows = images.sample(MOST_SAMPLES)
    if isinstance(images.targets, ClassTargets) and len(images.classes) >= MOST_SAMPLES:
        _, first = np.unique(images.targets.numbers, return_index=True)
        rows = first[:MOST_SAMPLES].tolist()
    samples: list[tuple[ImageLike, str]] = []
    for row, image in images.readable(rows):
        samples.append((image, label_of(images, row)))
    return samples


def reason_against(model: nn.Module) -> str | None:
    """Return why the page cannot run a model, as the end of a sentence; None where it can."""
    if isinstance(model, Ensemble):
        network = model.network()
        if not isinstance(network, ViT) or network.config.num_classes is None:
            return (
                "it runs a Vision Transformer with classes, and no member of this ensemble is one: "
                f"train with {Param('model')} ViT-Ti/16, for example"
            )
        model = network
    if not isinstance(model, ViT):
        name = type(model).__name__
        return f"it runs only the encoder of the ViT paper, and this is another model: {name}"
    config = model.config
    if outputs_of(model) not in CLASSES:
        return "it shows how the prediction of a class forms, and this model predicts something else"
    if config.num_classes is None:
        return "it shows how a prediction forms, and this model has no head"
    for field, known in RUNS.items():
        value: Any = config
        for name in field.split("."):
            value = getattr(value, name, None)
        if value not in known:
            values = ", ".join(map(str, known))
            return f"the program in the page supports {field} {values}, and this model has {value}"
    return None


@torch.inference_mode()
def rounded_model(model: ViT, images: Tensor, sizes: PageSizes) -> tuple[ViT, int, float]:
    """Return a model as the page has it, the bits of a weight, and by how much storing them changes a
    probability on images at most."""
    parameters = sum(each.numel() for each in model.parameters())
    if parameters <= sizes.exact:
        return model, 32, 0.0
    before = probabilities(model, images)
    model = model.half().float()
    if sizes.compact < parameters <= sizes.largest:
        compact = copy.deepcopy(model)
        in_8_bits(compact)
        change = float((probabilities(compact, images) - before).abs().max())
        if change <= sizes.quiet:
            return compact, 8, change
    return model, 16, float((probabilities(model, images) - before).abs().max())


@torch.inference_mode()
def probabilities(model: ViT, images: Tensor) -> Tensor:
    return as_probabilities(model(images), outputs_of(model))


def tensors_of(model: ViT) -> Iterator[tuple[str, Tensor]]:
    """Yield what the page computes with: parameters, and for positions the rows that are added, or the
    angles."""
    added: list[str] = []  # prefixes of what the rows stand for
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, AddedPositions):
            added.append(f"{name}.")
            yield f"{name}.rows", module.rows()
    buffers = dict(model.named_buffers(remove_duplicate=False))
    angles = {name: each for name, each in buffers.items() if name.endswith((".cos", ".sin"))}
    for name, each in {**model.state_dict(), **angles}.items():
        if not name.startswith(tuple(added)):
            yield name, each


def page_config(config: ViTConfig) -> dict[str, Any]:
    """Return a configuration as the page has it, with what is derived from it there."""
    found: dict[str, Any] = {**config.model_dump(mode="json"), "head_dim": config.resolved_head_dim}
    if isinstance(config.stem, EfficientNetLiteStemConfig):
        found["stem"] |= {"shapes": config.stem.shapes, "taken": list(config.stem.taken)}
    return found


def reads_digits(config: ViTConfig) -> bool:
    """Return whether a model takes images and gives classes as the bundled digits have them."""
    return config.image_size == (8, 8) and config.channels == 1 and config.num_classes == 10


def practice_of(model: ViT) -> dict[str, dict[str, str]] | None:
    """Return the bundled digits, for a model of their size to be trained on in the page, as `letters_of` has
    them. None for a model of another size."""
    if not reads_digits(model.config):
        return None
    digits = open_data("digits", DataConfig())
    assert digits.test is not None
    parts = {}
    for part, images in {"train": digits.train, "test": digits.test}.items():
        pixels = "".join(letters_of(images.image(row)) for row in range(len(images)))
        parts[part] = {"pixels": pixels, "labels": "".join(map(str, images.targets.strata()))}
    return parts


def letters_of(digit: ImageLike) -> str:
    """Return the pixels of a bundled digit, 0 to 16, as letters from "a"."""
    levels = np.rint(np.asarray(digit).flatten() * (16 / 255)).astype(int)
    return "".join(chr(ord("a") + level) for level in levels.tolist())


def least_certain_digit(model: ViT, parts: Mapping[str, Mapping[str, str]]) -> str:
    """Return the letters of the digit of `practice_of` whose first two classes a model holds for nearly as
    probable. With a few heads off it is another digit to the model."""
    pixels = "".join(part["pixels"] for part in parts.values())
    factor, shift = model.preprocessing.factor_and_shift()
    levels = torch.tensor(list(pixels.encode("ascii"))).view(-1, 1, *model.config.image_size) - ord("a")
    first, second = probabilities(model, (levels * (255 / 16)).round() * factor + shift).topk(2).values.T
    size = levels[0].numel()
    start = int((first - second).argmin()) * size
    return pixels[start : start + size]


def in_8_bits(model: nn.Module) -> None:
    """Round the matrices and convolutions of a model to 8 bits: 255 levels for each output channel."""
    for name, weight in model.named_parameters():
        if in_rows(name, weight):
            levels, step = in_levels(weight.detach())
            weight.data = (levels * step).view_as(weight)


def in_rows(name: str, weight: Tensor) -> bool:
    """Return whether a weight has rows, one for each output channel, that are so wide that a step for each
    costs little. The few numbers of a depthwise filter need their 16 bits."""
    return name.endswith(".weight") and weight.ndim > 1 and weight[0].numel() >= NARROW


def in_levels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a weight as whole numbers from -127 to 127, and the step between levels of each."""
    rows = weight.flatten(1)
    step = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (rows / step).round(), step


def page_weights(tensors: Mapping[str, Tensor], bits: int) -> dict[str, object]:
    """Return tensors as the page stores them: in 8 bits matrices as levels, of which those of a row have a
    step, and all others as fp16."""
    levels: list[Tensor] = []
    steps: list[Tensor] = []
    whole: dict[str, Tensor] = {}
    for name, each in tensors.items():
        if bits == 8 and in_rows(name, each):
            of_row, step = in_levels(each)
            levels.append(of_row.flatten())
            steps.append(step.flatten())
        else:
            whole[name] = each
    compact = [[name, *each.shape] for name, each in tensors.items() if name not in whole]
    numbers = torch.cat(levels).to(torch.int8).numpy() if levels else np.zeros(0, np.int8)
    return {
        "index": [[name, *each.shape] for name, each in whole.items()],
        "weights": as_base64(whole.values(), half=bits < 32),
        "compact": compact,
        "levels": base64.b64encode(numbers.tobytes()).decode("ascii"),
        "steps": as_base64(steps, half=False) if steps else "",
    }


def as_base64(tensors: Iterable[Tensor], half: bool) -> str:
    """Return the numbers of tensors, one after the other, as base64 of fp16 or fp32."""
    numbers = torch.cat([each.detach().flatten() for each in tensors]).to(
        torch.float16 if half else torch.float32
    )
    return base64.b64encode(numbers.numpy().tobytes()).decode("ascii")


@torch.inference_mode()
def recording(model: ViT, image: Tensor, most_bytes: int) -> dict[str, object]:
    """Return the results of each matrix product of the encoder on an image, as many layers as fit: all, or
    the first, the middle and the last; the tokens after the others; and the logits after every layer."""
    config = model.config
    each = config.sequence_length * (4 * config.width + config.mlp_dim) * 2 + 2 * config.width
    layers = set(range(config.depth))
    if each * config.depth > most_bytes:
        layers = {0, config.depth // 2, config.depth - 1}
    results: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: object, result: Tensor) -> None:
        results[name] = result[0]

    z = model.embed(image)
    after = [z]
    for number, block in enumerate(model.blocks):
        hooks = []
        for name, module in block.named_modules() if number in layers else ():
            if isinstance(module, nn.Linear):
                hooks.append(module.register_forward_hook(partial(keep, f"blocks.{number}.{name}")))
        z = block(z)
        after.append(z)
        for hook in hooks:
            hook.remove()
        if number not in layers:
            results[f"blocks.{number}"] = z[0]
    results["lens"] = torch.cat(
        [model.head(model.representation(model.pool(model.norm(each)))) for each in after]
    )
    return {
        "counts": token_that_counts(model, z, results["lens"][-1]),
        "index": [[name, *result.shape] for name, result in results.items()],
        "numbers": as_base64(results.values(), half=True),
    }


def token_that_counts(model: ViT, z: Tensor, logits: Tensor) -> int:
    """Return the patch that adds most to the logit of the prediction, where the mean of the patches is read;
    elsewhere 0, the class token. Of a recorded model the page has no weights to ask."""
    weight = model.head.weight if isinstance(model.head, nn.Linear) else None
    if weight is None or model.config.num_prefix_tokens or weight.shape[1] != model.config.width:
        return 0
    return int((model.norm(z)[0] @ weight[logits.argmax()]).argmax())


def code_of(model: ViT) -> dict[str, dict[str, str | int]]:
    """Return the lines of the source that compute each step, read from the source itself."""
    lines: dict[str, tuple[Callable[..., object], str]] = {
        "patches": (to_patches, "cells.permute"),
        "embed": (ViT.embed, "self.stem("),
        "stem": (type(model.stem).forward, "return"),
        "projection": (getattr(type(model.stem), "project", type(model.stem).forward), "self.projection("),
        "plain": (PatchStem.forward, "self.projection("),
        "prefix": (ViT.prepend_tokens, "torch.cat"),
        "positions": (AddedPositions.forward, "z + rows"),
        "attention_positions": (Attention.project, "self.position("),
        "layer_norm": (PreNormBlock.forward, "self.attention_norm(z)"),
        "qkv": (Attention.project, "self.qkv(z)"),
        "logits": (attention_map, "query @ key"),
        "softmax": (attention_map, "torch.softmax"),
        "heads": (Attention.forward, "join_heads"),
        "residual": (PreNormBlock.forward, "self.attention_branch"),
        "mlp": (MLP.forward, "self.contract"),
        "mlp_residual": (PreNormBlock.forward, "self.mlp_branch"),
        "encode": (ViT.encode, "z = block(z)"),
        "features": (ViT.features, "self.pool"),
        "head": (ViT.forward, "self.head"),
    }
    root = Path(vitreous.__file__).parent
    code: dict[str, dict[str, str | int]] = {}
    for key, (function, part) in lines.items():
        source, first = inspect.getsourcelines(function)
        number = next(number for number, line in enumerate(source) if part in line.partition("#")[0])
        file = Path(inspect.unwrap(function).__code__.co_filename).relative_to(root).as_posix()
        code[key] = {"file": file, "line": first + number, "text": source[number].strip()}
    return code
