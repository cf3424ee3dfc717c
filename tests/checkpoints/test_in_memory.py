"""Weights that are in memory: state dicts, live modules of other libraries, other devices and precisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import vitreous as vt
from vitreous.addons.text.layers import causal_mask, padding_mask
from vitreous.checkpoints.live import check_outputs
from vitreous.checkpoints.resizing import with_head

META = torch.device("meta")
POSITIONS = [
    {"kind": "learned"},
    {"kind": "sincos-2d"},
    {"kind": "rotary-2d"},
    {"kind": "rotary-2d", "shared": True},
]


def model_of(position: dict[str, Any]) -> vt.ViT:
    fields = {
        "width": 16,
        "depth": 2,
        "heads": 2,
        "mlp_dim": 32,
        "image_size": (32, 32),
        "patch_size": (8, 8),
    }
    return vt.ViT(vt.ViTConfig.checked({**fields, "num_classes": 3, "position": position}, {})).eval()


def places(model: nn.Module) -> set[tuple[torch.device, torch.dtype]]:
    tensors = [*model.parameters(), *model.buffers()]
    return {(each.device, each.dtype) for each in tensors if each.is_floating_point()}


@pytest.mark.parametrize("position", POSITIONS, ids=lambda each: "-".join(map(str, each.values())))
@pytest.mark.parametrize(("device", "dtype"), [(META, torch.float32), (torch.device("cpu"), torch.bfloat16)])
def test_a_changed_model_stays_where_it_is(
    position: dict[str, Any], device: torch.device, dtype: torch.dtype
) -> None:
    model = model_of(position).to(device, dtype)
    for changed in (vt.resize(model, 48), vt.resize(model, patch_size=16), with_head(model, 5)):
        assert places(changed) == {(device, dtype)}
        assert (
            changed(torch.zeros(2, 3, *changed.config.image_size, device=device, dtype=dtype)).dtype == dtype
        )


@pytest.mark.parametrize("position", POSITIONS, ids=lambda each: "-".join(map(str, each.values())))
def test_device_and_precision_can_be_chosen(position: dict[str, Any], tmp_path: Path) -> None:
    model = model_of(position)
    vt.save(model, tmp_path / "model")
    loaded = vt.load(tmp_path / "model", device="cpu", dtype=torch.bfloat16)
    assert places(loaded) == {(torch.device("cpu"), torch.bfloat16)}
    assert places(vt.load(tmp_path / "model", device="meta", num_classes=7)) == {(META, torch.float32)}
    assert places(vt.load(tmp_path / "model", image_size=48, dtype=torch.float64)) == {
        (torch.device("cpu"), torch.float64)
    }
    vt.save(loaded, tmp_path / "again")  # in float32
    assert places(vt.load(tmp_path / "again")) == {(torch.device("cpu"), torch.float32)}


def test_weights_in_float64_keep_their_digits(tiny: Any, tmp_path: Path) -> None:
    """Loaded in float32 by default, in float64 where that is asked for: no digit is lost on the way."""
    model = tiny()
    vt.save(model, tmp_path / "m.safetensors", format="timm")
    from safetensors.torch import load_file

    state = {name: each.double() + 1e-12 for name, each in load_file(tmp_path / "m.safetensors").items()}
    narrow = vt.load(state, heads=model.config.heads)
    wide = vt.load(state, heads=model.config.heads, dtype=torch.float64)
    assert places(narrow) == {(torch.device("cpu"), torch.float32)}
    assert torch.equal(wide.head.bias, state["head.bias"])
    assert not torch.equal(wide.head.bias, narrow.head.bias.double())


def test_a_state_dict_is_a_checkpoint_and_is_copied(tiny: Any, tmp_path: Path) -> None:
    model = tiny()
    vt.save(model, tmp_path / "m.safetensors", format="timm")
    from safetensors.torch import load_file

    state = load_file(tmp_path / "m.safetensors")
    loaded = vt.load(
        {"state_dict": {f"module.{name}": each for name, each in state.items()}}, heads=model.config.heads
    )
    images = torch.randn(2, 3, *model.config.image_size)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), model(images), atol=2e-5, rtol=0)
        loaded.head.bias.add_(1)
    assert torch.equal(state["head.bias"], load_file(tmp_path / "m.safetensors")["head.bias"])
    with pytest.raises(vt.InputError, match="not a state dict"):
        vt.load({})


def test_numbers_of_numpy_are_numbers_and_its_arrays_are_weights(tiny: Any, tmp_path: Path) -> None:
    model = tiny()
    vt.save(model, tmp_path / "m.pth", format="torchvision")
    state = torch.load(tmp_path / "m.pth")
    for heads in (np.int64(4), np.float32(4), "4", 4.0):
        assert vt.load(state, heads=heads).config.heads == 4
    for heads in ("four", 4.5, 0, [4], float("nan")):
        with pytest.raises(vt.InputError, match=r"heads=.* is not a "):
            vt.load(state, heads=heads)
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    images, expected = torch.randn(1, 3, 32, 32), vt.load(state, heads=4)
    torch.save(arrays, tmp_path / "arrays.pth")
    for source in (arrays, tmp_path / "arrays.pth"):
        assert torch.equal(vt.load(source, heads=4)(images), expected(images))


def test_a_model_of_vitreous_is_refused(tiny: Any) -> None:
    with pytest.raises(vt.InputError, match="already a model of vitreous"):
        vt.load(tiny())


def agree(ours: nn.Module, theirs: nn.Module, size: int) -> None:
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        expected: Any = theirs.eval()(images)
        torch.testing.assert_close(ours(images), getattr(expected, "logits", expected), atol=2e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit_tiny_patch16_224", {"num_heads": 6, "img_size": 32}),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg", "img_size": 32}),
        (
            "vit_base_patch16_clip_quickgelu_224",
            {"embed_dim": 64, "depth": 2, "num_heads": 2, "img_size": 32},
        ),
        ("deit_tiny_distilled_patch16_224", {"img_size": 32}),
    ],
)
def test_a_live_module_of_timm(name: str, options: dict[str, Any], timm: Any) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model(name, num_classes=3, **options).train()
    ours = vt.load(theirs)
    assert theirs.training
    assert all(each.training for each in theirs.modules())
    agree(ours, theirs, 32)
    theirs.head.weight.data.add_(1)
    assert not torch.equal(getattr(ours.head, "weight", torch.zeros(1)), theirs.head.weight)


@pytest.mark.slow
@pytest.mark.peers
def test_a_live_module_with_an_unknown_part_is_refused(timm: Any) -> None:
    from timm.models import vision_transformer

    options = {"img_size": 32, "embed_dim": 64, "depth": 2, "num_heads": 2}
    after = timm.create_model("vit_base_patch16_rpn_224", num_classes=3, **options)
    agree(vt.load(after), after, 32)
    for name in ("vit_base_patch16_xp_224", "vit_small_patch16_18x2_224"):
        parallel = timm.create_model(name, num_classes=3, **options)
        agree(vt.load(parallel), parallel, 32)
    with pytest.raises(vt.InputError, match="a part that is not supported: differential attention"):
        vt.load(timm.create_model("vit_dwee_patch16_reg1_gap_256", **options))

    class Doubled(vision_transformer.Block):  # type: ignore[misc, name-defined]
        def forward(self, x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
            return 2 * super().forward(x, *args, **options)

    unnamed = vision_transformer.VisionTransformer(**options, block_fn=Doubled)
    with pytest.raises(vt.InputError, match="has a part that is not supported: its outputs differ"):
        vt.load(unnamed)


@pytest.mark.slow
@pytest.mark.peers
def test_a_live_module_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
        patch_size=8, num_labels=3, problem_type="multi_label_classification",
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(config)
    ours = vt.load(theirs)
    assert ours.task == "multilabel"
    agree(ours, theirs, 32)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("norm_first", "activation"), [(True, "gelu"), (False, "relu"), (False, F.silu)])
@torch.no_grad()
def test_a_live_transformer_of_torch(
    norm_first: bool, activation: Any, batch_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The encoder's memory and the decoder's output, with every mask that the module takes."""
    torch.manual_seed(0)
    theirs: Any = nn.Transformer(
        16, 4, 2, 3, 32, norm_first=norm_first, activation=activation, batch_first=batch_first
    ).eval()
    ours = vt.load(theirs, format="torch-transformer")
    assert batch_first != ("takes (tokens, batch, width)" in caplog.text)
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    turned = (source, target) if batch_first else (source.transpose(0, 1), target.transpose(0, 1))

    def same(mine: torch.Tensor, other: torch.Tensor, real: Any = ...) -> None:
        other = other if batch_first else other.transpose(0, 1)
        torch.testing.assert_close(mine[real], other[real], atol=2e-5, rtol=0)

    same(ours(source, target), theirs(*turned))
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    unused = torch.tensor([[False] * 4, [False] * 2 + [True] * 2])
    hidden = padding_mask(~padded)
    # where there is padding itself, the module's fast path leaves zeros
    same(ours.encoder(source, hidden), theirs.encoder(turned[0], src_key_padding_mask=padded), ~padded)
    banded = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).tril(-3).bool(), -torch.inf)
    of_heads = (torch.rand(2, 4, 5, 5) < 0.5) & ~torch.eye(5).bool()
    same(ours.encoder(source, banded[None, None]), theirs.encoder(turned[0], mask=banded))
    logits = torch.zeros(of_heads.shape).masked_fill(of_heads, -torch.inf)
    same(ours.encoder(source, logits), theirs.encoder(turned[0], mask=of_heads.flatten(0, 1)))
    causal = theirs.generate_square_subsequent_mask(4)
    known = theirs(
        *turned,
        tgt_mask=causal,
        src_key_padding_mask=padded,
        tgt_key_padding_mask=unused,
        memory_key_padding_mask=padded,
    )
    same(ours(source, target, hidden, causal_mask(4) + padding_mask(~unused)), known)
    reading = torch.zeros(4, 5).masked_fill(torch.ones(4, 5).triu(2).bool(), -torch.inf)
    same(
        ours.decoder(target, ours.encoder(source), causal_mask(4), reading[None, None]),
        theirs(*turned, tgt_mask=causal, memory_mask=reading),
    )


def test_a_part_that_the_attributes_of_a_transformer_do_not_tell_is_found() -> None:
    """GELU's approximation; and an activation that is a module, which the decoder of PyTorch 2 forgets."""
    for activation in (nn.GELU(approximate="tanh"), nn.SiLU()):
        theirs = nn.Transformer(16, 4, 1, 1, 32, activation=activation, batch_first=True)
        for parameter in theirs.parameters():
            nn.init.normal_(parameter)
        with pytest.raises(vt.InputError, match="the Transformer has a part that is not supported: its out"):
            vt.load(theirs)


TOWERS = ("CLIPModel", "SiglipModel", "CLIPVisionModel", "Siglip2VisionModel", "MLCDVisionModel")


def another_activation(module: nn.Module) -> None:
    for part in module.modules():
        if hasattr(part, "activation_fn"):
            part.activation_fn = nn.Tanh()


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("kind", TOWERS)
def test_a_live_tower_of_transformers_is_compared(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    vision = sizes | {"patch_size": 8} | ({"num_patches": 16} if "2" in kind else {"image_size": 32})
    fields: dict[str, Any] = vision
    if kind in ("CLIPModel", "SiglipModel"):
        fields = {"vision_config": vision, "text_config": sizes | {"vocab_size": 50}}
        fields |= {"projection_dim": 16} if kind == "CLIPModel" else {}
    torch.manual_seed(0)
    theirs = getattr(transformers, kind)(getattr(transformers, kind.replace("Model", "Config"))(**fields))
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    assert vt.load(theirs).config.image_size == (32, 32)
    another_activation(theirs)
    with pytest.raises(vt.InputError, match="has a part that is not supported: its outputs differ"):
        vt.load(theirs)


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("kind", ["MarianMTModel", "VisionEncoderDecoderModel"])
def test_a_live_text_model_of_transformers_is_compared(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = Path(__file__).parents[1] / "golden" / "data" / ("hf_marian" if "Marian" in kind else "hf_trocr")
    theirs = getattr(transformers, kind).from_pretrained(folder).eval()
    assert isinstance(vt.load(theirs), vt.Transformer | vt.Captioner)
    another_activation(theirs)
    with pytest.raises(vt.InputError, match="has a part that is not supported: its outputs differ"):
        vt.load(theirs)


class Peer(nn.Module):
    """A module whose outputs are those of a model, but for one, which is a tenth larger."""

    def __init__(self, model: vt.ViT, wrong: str = "") -> None:
        super().__init__()
        self.model, self.wrong = model, wrong

    def forward(self, images: torch.Tensor) -> dict[str, Any]:
        model = self.model
        outputs: dict[str, Any] = {"logits": model(images), "pooler_output": model.features(images)}
        outputs |= {"last_hidden_state": model.tokens(images), "hidden_states": model.intermediates(images)}
        outputs["feature_maps"] = model.intermediates(images, maps=True)
        return {name: enlarged(each) if name == self.wrong else each for name, each in outputs.items()}


def enlarged(output: Any) -> Any:
    return [output[0], 1.1 * output[1]] if isinstance(output, list) else 1.1 * output


OUTPUTS = ("logits", "pooler_output", "last_hidden_state", "hidden_states", "feature_maps")


@pytest.mark.parametrize("wrong", OUTPUTS)
def test_every_output_of_a_live_module_is_compared(wrong: str, tiny: Any) -> None:
    model = tiny()
    check_outputs(Peer(model), model)
    with pytest.raises(vt.InputError, match=rf"its outputs differ by .* \({wrong}"):
        check_outputs(Peer(model, wrong), model)


def test_a_live_module_that_does_not_take_images_is_named(tiny: Any) -> None:
    class Deaf(Peer):
        def forward(self, images: torch.Tensor) -> Any:
            raise KeyError("input_ids")

    model = tiny()
    with pytest.raises(vt.InputError, match=r"the Deaf does not take images of shape \(2, 3, 32, 32\)"):
        check_outputs(Deaf(model), model)


def test_formats_are_listed() -> None:
    formats = vt.list_formats()
    assert {"google", "timm", "huggingface", "marian", "vitreous"} <= set(formats)
    assert formats["marian"].endswith("(only read)")


def test_an_interpolation_that_does_not_exist_is_refused_even_if_nothing_is_resized(
    tiny: Any, tmp_path: Path
) -> None:
    vt.save(tiny(), tmp_path / "m")
    with pytest.raises(vt.InputError, match="unknown interpolation 'bicubik'"):
        vt.load(tmp_path / "m", interpolation="bicubik")
