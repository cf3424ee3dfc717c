"""Every checkpoint of the golden data loads and computes what its own code computes: every array of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

import vitreous as vt

TOLERANCE = 2e-5

# What a case's files do not tell: said by keyword, as a user would.
PLAIN: dict[str, Any] = {}
CASES: dict[str, dict[str, Any]] = {
    "bigvision_bit_resnet": {"image_size": 40},
    "bigvision_flexi_vit": PLAIN,
    "bigvision_vit_gap_sincos": {"image_size": 32},
    "bigvision_vit_map": PLAIN,
    "bigvision_vit_scan": PLAIN,
    "bigvision_vit_tok_rep": {"image_size": (24, 40)},
    "dinov2_native": {"heads": 4},
    "frankzvit": {"heads": 4},
    "google_hybrid": PLAIN,
    "google_hybrid_r_ti": PLAIN,
    "google_vit": PLAIN,
    "google_vit_gap": PLAIN,
    "google_vit_i21k": PLAIN,
    "hf_deit": PLAIN,
    "hf_dinov2": PLAIN,
    "hf_vit": PLAIN,
    "hf_vit_model_pooler": PLAIN,
    "hf_vit_noqkvbias": PLAIN,
    "timm_deit_distilled": {"heads": 4},
    "timm_hybrid": {"heads": 2},
    "timm_vit": PLAIN,
    "timm_vit_dynamic": {"heads": 4},
    "timm_vit_gap_cls_fcnorm": {"heads": 4},
    "timm_vit_gap_nofcnorm": {"heads": 4, "pooling": "mean"},
    "timm_vit_gap_pth": {"heads": 4},
    "timm_vit_reg4": {"heads": 4},
    "timm_vit_reg4_embedded": {"heads": 4},
    "torchvision_vit": {"heads": 4},
    "torchvision_vit_rep_legacy": {"heads": 2},
    "vitpytorch_simplevit": {"heads": 4, "image_size": 32},
    "vitpytorch_vit_1head_noproj": {"image_size": (16, 32)},
    "vitpytorch_vit_cls": {"heads": 3},
    "vitpytorch_vit_mean": {"heads": 4},
}


def hidden(model: Any, images: Tensor) -> Tensor:
    """The residual stream behind each layer."""
    z, seen = model.embed(images), []
    for block in model.blocks:
        z = block(z)
        seen.append(z)
    return torch.stack(seen)


def attention(model: Any, images: Tensor) -> Tensor:
    with vt.capture_attention(model) as captured:
        model(images)
    return torch.stack([captured.maps[layer] for layer in range(model.config.depth)])


def pooling_attention(model: Any, images: Tensor) -> Tensor:
    tokens = model.tokens(images)
    return model.pool.attention.attention_weights(model.pool.probe.expand(len(images), -1, -1), tokens)


def output_of(
    find: Callable[[Any], Any], show: Callable[[Tensor], Tensor]
) -> Callable[[Any, Tensor], Tensor]:
    """What the part `find(model)` gives out while the model looks at the images."""

    def observe(model: Any, images: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = find(model).register_forward_hook(lambda module, inputs, output: seen.append(output))
        model(images)
        handle.remove()
        return show(seen[0])

    return observe


def channels_last(count: int | None = None) -> Callable[[Tensor], Tensor]:
    """The first image with its channels last, or only the first of them."""
    return lambda t: t[:1].permute(0, 2, 3, 1)[..., :count]


def grid_of_patches(model: Any, images: Tensor) -> Tensor:
    return rearrange(model.stem(images), "B (h w) D -> B h w D", h=model.config.grid[0])


# What each array of `expected.npz` is, in terms of our model.
OBSERVED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "logits": lambda model, images: model(images),
    "tokens": lambda model, images: model.tokens(images),
    "features": lambda model, images: model.tokens(images),
    "encoded": lambda model, images: model.tokens(images),
    "last_hidden_state": lambda model, images: model.tokens(images),
    "pre_logits": lambda model, images: model.features(images),
    "pooler_output": lambda model, images: model.features(images),
    "hidden": hidden,
    "hidden_states": lambda model, images: torch.cat([model.embed(images)[None], hidden(model, images)]),
    "attn": attention,
    "attn_map": pooling_attention,
    "with_posemb": lambda model, images: model.embed(images)[:, model.config.num_prefix_tokens :],
    "x_norm_clstoken": lambda model, images: model.tokens(images)[:, 0],
    "x_norm_patchtokens": lambda model, images: model.tokens(images)[:, model.config.num_prefix_tokens :],
    "logits_cls": lambda model, images: model.head.both(model.features(images))[0],
    "cls_logits": lambda model, images: model.head.both(model.features(images))[0],
    "logits_dist": lambda model, images: model.head.both(model.features(images))[1],
    "distillation_logits": lambda model, images: model.head.both(model.features(images))[1],
    "root": output_of(lambda model: model.stem.backbone.root_norm, channels_last(8)),
    "resnet_out": output_of(lambda model: model.stem.backbone, channels_last()),
    "backbone_out": output_of(lambda model: model.stem.backbone, lambda t: t[:1]),
    "stage1": output_of(lambda model: model.backbone.stages[0], channels_last(16)),
    "stage2": output_of(lambda model: model.backbone.stages[1], channels_last(16)),
}

# Arrays that the same name means otherwise in one case.
SPECIAL: dict[tuple[str, str], Callable[[Any, Tensor], Tensor]] = {
    ("timm_deit_distilled", "pre_logits"): lambda model, images: model.features(images).mean(dim=1),
}

# Arrays that have a test of their own below.
ELSEWHERE = {
    "bigvision_flexi_vit": "test_flexivit_with_another_patch_size",
    "hf_vit": "test_images_of_another_size",
    "hf_dinov2": "test_images_of_another_size",
    "timm_vit_dynamic": "test_images_of_another_size",
    "dinov2_native": "test_images_of_another_size",
}


def load(case: Any, **overrides: Any) -> Any:
    """The case's model. A folder with a config.json is loaded as a folder, anything else as a file."""
    told = CASES[case.folder.name] | overrides
    whole = (case.folder / "config.json").is_file()
    return vt.load(case.folder if whole else case.folder / case.manifest["weights"], **told)


def assert_close(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert ours.shape == theirs.shape, what
    difference = (ours - theirs).abs().max().item()
    # The tolerance is for logits; a feature map inside a ResNet has values of several units.
    scale = 1.0 if "logits" in what else max(1.0, theirs.abs().max().item())
    assert difference < TOLERANCE * scale, f"{what}: differs by {difference:.1e}"


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_computes_what_its_peer_computes(name: str, golden: Any) -> None:
    case = golden(name)
    model, images = load(case), case.array("input")
    patches = grid_of_patches if name.startswith("google") else lambda model, images: model.stem(images)
    observed = OBSERVED | {"patch_embed": patches, "stem": pooled_root}
    compared = []
    for key, expected in case.expected.items():
        observe = SPECIAL.get((name, key)) or observed.get(key)
        if observe is not None:
            assert_close(observe(model, images), expected, f"{name}: {key}")
            compared.append(key)
    left = set(case.expected) - set(compared)
    assert not left or name in ELSEWHERE, f"{name}: nothing compares {left}"
    assert compared or name == "bigvision_flexi_vit"


def pooled_root(model: Any, images: Tensor) -> Tensor:
    """BiT behind its root: what the first stage sees."""
    seen: list[Tensor] = []
    handle = model.backbone.stages[0].register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0])
    )
    model(images)
    handle.remove()
    return channels_last(16)(seen[0])


@pytest.mark.parametrize(
    ("name", "image", "key"),
    [
        ("hf_vit", "input_48x48", "logits_48x48"),
        ("hf_vit", "input_40x64", "logits_40x64"),
        ("hf_dinov2", "input_48x40", "logits_48x40"),
        ("timm_vit_dynamic", "input_48x40", "logits_input_48x40"),
        ("timm_vit_dynamic", "input_24x56", "logits_input_24x56"),
        ("dinov2_native", "input_48x40", "x_norm_clstoken_48x40"),
        ("dinov2_native", "input_48x40", "x_norm_patchtokens_48x40"),
    ],
)
@torch.no_grad()
def test_images_of_another_size(name: str, image: str, key: str, golden: Any) -> None:
    """Positions are resampled by the way of the source's own code, which is the default."""
    case = golden(name)
    images = case.array(image)
    model = load(case, image_size=tuple(images.shape[-2:]))
    if key.startswith("logits"):
        ours = model(images)
    else:
        ours = model.tokens(images)[:, 0] if "cls" in key else model.tokens(images)[:, 1:]
    assert_close(ours, case.expected[key], key)


@pytest.mark.parametrize("cells", [6, 4, 8, 3])
@torch.no_grad()
def test_flexivit_with_another_patch_size(cells: int, golden: Any) -> None:
    case = golden("bigvision_flexi_vit")
    model = load(case, image_size=48, patch_size=48 // cells, interpolation="flexivit")
    images = case.array("input")
    assert_close(model(images), case.expected[f"logits_seqhw{cells}"], "logits")
    assert_close(
        OBSERVED["with_posemb"](model, images), case.expected[f"with_posemb_seqhw{cells}"], "embedding"
    )


def test_preprocessing_of_a_folder_is_its_peers(golden: Any) -> None:
    from PIL import Image

    case = golden("hf_vit")
    image = Image.fromarray(case.array("raw_uint8").numpy())
    assert_close(load(case).preprocessing([image]), case.expected["pixel_values"], "pixel_values")
