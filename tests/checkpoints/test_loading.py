"""What a user says and is told while a checkpoint is loaded."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import sys
import types
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.checkpoints import loading
from vitreous.checkpoints.files import read_checkpoint
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.recognition import recognize
from vitreous.checkpoints.resizing import resize

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
FORMAT_OF = {"bigvision": "google", "hf": "huggingface", "vitpytorch": "vit-pytorch", "dinov2": "dinov2"}


def weights_of(case: str) -> Path:
    return next(path for path in (GOLDEN / case).iterdir() if path.stem in ("weights", "model"))


@pytest.mark.parametrize(
    "case",
    [
        path.parent.name
        for path in sorted(GOLDEN.glob("*/*"))
        if path.stem in ("weights", "model")
        and not path.parent.name.startswith(("torch_nn", "hf_marian", "hf_trocr"))
    ],
)
def test_each_format_is_told_from_its_content(case: str) -> None:
    """By exactly one reader, DINOv2 apart: its keys are timm's and one more."""
    source = read_checkpoint(weights_of(case))
    start = case.split("_")[0]
    right = FORMAT_OF.get(start, start)
    found = recognize(source)
    assert found.format.name == right
    weights, config = "\n".join(found.source.tensors), source.description
    names = [name for name, each in checkpoint_formats().items() if each.recognizes(config, weights)]
    assert names == ([right, "timm"] if right == "dinov2" else [right])


def test_heads_are_asked_for_with_the_likely_number(tiny: Any, tmp_path: Path) -> None:
    vt.save(tiny(width=192, heads=6), tmp_path / "m.pth", format="torchvision")
    with pytest.raises(
        vt.InputError, match=re.escape("pass heads=3 (width 192 / 64; `settings` model.heads=3), or")
    ):
        vt.load(tmp_path / "m.pth")
    assert vt.load(tmp_path / "m.pth", heads=6).config.heads == 6


def test_image_size_is_asked_for(tiny: Any) -> None:
    with pytest.raises(vt.InputError, match="pass image_size=224"):
        vt.load(weights_of("vitpytorch_simplevit"), heads=4)
    with pytest.raises(
        vt.InputError, match=r"15 positions are not a square grid: pass stored_image_size=\(height, width\)"
    ):
        vt.load(weights_of("bigvision_vit_tok_rep"))


def test_unknown_words(tmp_path: Path) -> None:
    path = weights_of("google_vit")
    with pytest.raises(vt.InputError, match="did you mean 'google'"):
        vt.load(path, format="googel")
    with pytest.raises(vt.InputError, match="unknown setting hedas: did you mean 'heads'"):
        vt.load(path, hedas=3)
    with pytest.raises(vt.InputError, match="unknown interpolation 'cubic'"):
        vt.load(path, image_size=64, interpolation="cubic")
    with pytest.raises(vt.InputError, match="is not one of Google's"):
        vt.load(weights_of("timm_vit"), format="google")
    with pytest.raises(vt.InputError, match="not a model folder of vitreous"):
        vt.load(path, format="vitreous")


def test_missing_and_left_over_weights_are_listed(tmp_path: Path) -> None:
    state = torch.load(weights_of("torchvision_vit"), weights_only=True)
    del state["encoder.ln.weight"]
    state["surplus"] = torch.zeros(1)
    torch.save(state, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match=r"missing weights: encoder\.ln\.weight"):
        vt.load(tmp_path / "m.pth", heads=4)
    state["encoder.ln.weight"] = torch.ones(32)
    torch.save(state, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match=r"weights left over.*: surplus"):
        vt.load(tmp_path / "m.pth", heads=4)
    del state["surplus"]
    state["encoder.ln.weight"] = torch.ones(31)
    torch.save(state, tmp_path / "m.pth")
    with pytest.raises(vt.InputError, match=r"has shape \(31,\), but the model needs \(32,\)"):
        vt.load(tmp_path / "m.pth", heads=4)


def test_a_new_head_is_zero_and_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    path = weights_of("google_vit")
    same = vt.load(path, num_classes=7)
    assert same.head.weight.any()
    assert not any("new head" in text for text in caplog.messages)
    model = vt.load(path, num_classes=3)
    assert model.config.num_classes == 3
    assert not model.head.weight.any()
    assert vt.load(path, num_classes="7").head.weight.any()  # a number as text, as pydantic reads it
    assert vt.load(path, num_classes="3").config.num_classes == 3
    assert any("a new head of zeros for 3 classes instead of 7" in text for text in caplog.messages)
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(model.features(images), same.features(images))
    assert torch.equal(vt.load(path, num_classes=None)(images), same.features(images))


def test_a_new_head_of_deit() -> None:
    model = vt.load(weights_of("timm_deit_distilled"), heads=4, num_classes=9)
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 9)


def test_what_is_assumed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    vt.load(weights_of("google_vit"))
    assert any("; preprocessing as vit_jax: squash, bilinear" in text for text in caplog.messages)
    caplog.clear()
    vt.load(GOLDEN / "hf_vit")
    assert not caplog.messages, "config.json and preprocessor_config.json tell everything"


@pytest.mark.parametrize(
    "fields",
    [
        {"class_token": False, "pooling": "attention", "mlp": "gelu_tanh"},
        {"extra_norms": ("tokens",), "mlp": "quick_gelu", "norm_eps": 1e-5},
    ],
    ids=["siglip", "clip"],
)
def test_what_config_json_leaves_out_is_the_default_of_its_model_type(
    fields: dict[str, Any], tiny: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """transformers writes only what differs from its defaults into the config.json of a tower."""
    model = tiny(width=48, heads=12, num_classes=None, **fields)
    vt.save(model, tmp_path / "m", format="huggingface")
    complete = vt.load(tmp_path / "m").config
    described = json.loads((tmp_path / "m" / "config.json").read_text())
    for name in ("hidden_act", "layer_norm_eps", "num_attention_heads"):
        del described[name]
    (tmp_path / "m" / "config.json").write_text(json.dumps(described))
    with caplog.at_level(logging.WARNING):
        assert vt.load(tmp_path / "m").config == complete
    assert not caplog.messages


def test_another_size_keeps_class_token_and_registers() -> None:
    path = weights_of("timm_vit_reg4_embedded")
    small, large = vt.load(path, heads=4), vt.load(path, heads=4, image_size=(48, 24))
    assert large.config.grid == (6, 3)
    assert large.preprocessing.size == (48, 24)
    assert torch.equal(large.prefix, small.prefix)
    assert torch.equal(large.position.table[0], small.position.table[0])
    assert large(torch.randn(1, 3, 48, 24)).shape == (1, 6)
    named = vt.load(path, heads=4, image_size=(48, 24), interpolation="google")
    assert not torch.equal(named.position.table, large.position.table)
    assert torch.equal(named.position.table, resize(small, (48, 24), interpolation="google").position.table)


def test_each_format_has_its_own_interpolation() -> None:
    """The same positions of the same grid, resampled as the code behind each format does it."""
    size = {"image_size": 48}
    google = vt.load(weights_of("google_vit"), **size)
    plain = vt.load(weights_of("google_vit"))
    assert torch.equal(google.position.table, resize(plain, 48, interpolation="google").position.table)
    torchvision = vt.load(weights_of("torchvision_vit"), heads=4, **size)
    plain = vt.load(weights_of("torchvision_vit"), heads=4)
    assert torch.equal(
        torchvision.position.table, resize(plain, 48, interpolation="torchvision").position.table
    )


@pytest.mark.parametrize(("format", "file"), [("huggingface", "m"), ("dinov2", "m.pth")])
def test_dinov2_with_registers_is_resized_with_antialiasing(
    format: str, file: str, tiny: Any, tmp_path: Path
) -> None:
    """As the code of both does it, and only with registers."""
    fields = {"mlp_dim": 128, "layer_scale": 0.1, "num_classes": None}
    for registers, method in ((2, "timm"), (0, format)):
        path = tmp_path / str(registers) / file
        vt.save(tiny(registers=registers, **fields), path, format=format)
        told = {"heads": 4} if file.endswith("pth") else {}
        plain, small = vt.load(path, **told), vt.load(path, **told, image_size=16)
        expected = resize(plain, 16, interpolation=method).position.table
        assert torch.equal(small.position.table, expected)


def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(vt.InputError, match="not a multiple of patch size 8: use 56"):
        vt.load(weights_of("google_vit"), image_size=50)
    with pytest.raises(vt.InputError, match="a LayerNorm on the flat patch has no resized form"):
        vt.load(weights_of("vitpytorch_vit_cls"), heads=3, patch_size=4)


def test_a_hybrid_at_another_size() -> None:
    model = vt.load(weights_of("google_hybrid"), image_size=(64, 32))
    assert model(torch.randn(1, 3, 64, 32)).shape == (1, 6)


@pytest.mark.parametrize("wrap", ["state_dict", "model", "model_ema", "module", "teacher"])
def test_state_dicts_in_the_wrappings_of_training_code(wrap: str, tmp_path: Path) -> None:
    state = torch.load(weights_of("timm_vit_gap_pth"), weights_only=True)
    wrapped: Any = {f"module.{name}": t for name, t in state.items()}
    if wrap != "module":
        wrapped = {"epoch": 3, wrap: wrapped}
    torch.save(wrapped, tmp_path / "m.pth")
    images = torch.randn(1, 3, 32, 32)
    expected = vt.load(weights_of("timm_vit_gap_pth"), heads=4)(images)
    assert torch.equal(vt.load(tmp_path / "m.pth", heads=4)(images), expected)


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    state = torch.load(weights_of("torchvision_vit"), weights_only=True)
    torch.save({name: tensor.bfloat16() for name, tensor in state.items()}, tmp_path / "m.pth")
    model = vt.load(tmp_path / "m.pth", heads=4)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def old_vit_pytorch(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The keys and shapes of old releases: PreNorm wrappers, a batch axis, no norms around the patches, the
    last LayerNorm in the head."""
    old: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        name = re.sub(r"(layers\.\d+)\.0\.to_", r"\1.0.fn.to_", name)
        name = re.sub(r"(layers\.\d+)\.1\.net\.0\.", r"\1.1.norm.", name)
        name = re.sub(r"(layers\.\d+)\.1\.net\.1\.", r"\1.1.fn.net.0.", name)
        name = re.sub(r"(layers\.\d+)\.1\.net\.4\.", r"\1.1.fn.net.3.", name)
        name = (
            name.replace("to_patch_embedding.2.", "to_patch_embedding.1.")
            if tensor.ndim > 1 or "bias" in name
            else name
        )
        if (
            re.match(r"to_patch_embedding\.[13]\.", name)
            and tensor.ndim == 1
            and name != "to_patch_embedding.1.bias"
        ):
            continue
        name = name.replace("transformer.norm", "mlp_head.0")
        name = re.sub(r"^mlp_head\.(weight|bias)", r"mlp_head.1.\1", name)
        if name in ("cls_token", "pos_embedding"):
            tensor = tensor[None]
        old[name] = tensor
    return old


def test_vit_pytorch_with_patch_dropout(tmp_path: Path) -> None:
    """Its class token has no position."""
    state = torch.load(weights_of("vitpytorch_vit_cls"), weights_only=True)
    rows, token = state["pos_embedding"], state["cls_token"]
    changed = {"pos_embedding": rows[1:], "cls_token": (token + rows[:1])[None]}
    torch.save(state | changed, tmp_path / "m.pt")
    images = torch.randn(2, 3, 32, 32)
    one, other = (
        vt.load(path, heads=3)(images) for path in (weights_of("vitpytorch_vit_cls"), tmp_path / "m.pt")
    )
    torch.testing.assert_close(one, other, atol=2e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["class", "mean-all"])
@torch.no_grad()
def test_old_releases_of_vit_pytorch(pooling: str, tmp_path: Path) -> None:
    state = torch.load(weights_of("vitpytorch_vit_cls"), weights_only=True)
    bias = state["to_patch_embedding.2.bias"]
    old = old_vit_pytorch(state) | {"to_patch_embedding.1.bias": bias}
    assert old["cls_token"].shape == (1, 1, 48)
    torch.save(old, tmp_path / "m.pt")
    model = vt.load(tmp_path / "m.pt", heads=3, pooling=pooling)
    assert model.config.final_norm == "pooled"
    new = vt.load(weights_of("vitpytorch_vit_cls"), heads=3)
    images = torch.randn(2, 3, 32, 32)
    patches = new.stem.projection(vt_patches(images))
    z = model.encode(new.position(torch.cat([new.prefix.expand(2, -1, -1), patches], dim=1)))
    pooled = z[:, 0] if pooling == "class" else z.mean(dim=1)
    torch.testing.assert_close(model(images), new.head(new.norm(pooled)))


def vt_patches(images: torch.Tensor) -> torch.Tensor:
    from vitreous.layers.embedding import to_patches

    return to_patches(images, (8, 8))


def test_registers_and_chunks_of_dinov2(tmp_path: Path) -> None:
    state = torch.load(weights_of("dinov2_native"), weights_only=True)
    state["register_tokens"] = torch.randn(1, 3, 32)
    chunked = {re.sub(r"^blocks\.(\d+)", r"blocks.\1.\1", name): tensor for name, tensor in state.items()}
    torch.save(state, tmp_path / "whole.pth")
    torch.save(chunked, tmp_path / "chunked.pth")
    images = torch.randn(1, 3, 32, 32)
    whole, parts = (vt.load(tmp_path / f"{name}.pth", heads=4) for name in ("whole", "chunked"))
    assert whole.config.registers == 3
    assert torch.equal(whole.tokens(images), parts.tokens(images))


def test_big_vision_in_bfloat16_and_among_other_towers(tmp_path: Path) -> None:
    import numpy as np

    with np.load(weights_of("bigvision_vit_map")) as arrays:
        weights = {name: arrays[name] for name in arrays.files}
    halves = {
        f"params/img/{name}": torch.from_numpy(w).bfloat16().view(torch.int16).numpy().view("V2")
        for name, w in weights.items()
    }
    np.savez(tmp_path / "siglip.npz", **halves, **{"params/txt/Embed_0/embedding": np.zeros(3, np.float32)})
    images = torch.randn(1, 3, 32, 32)
    exact = vt.load(weights_of("bigvision_vit_map"))(images)
    torch.testing.assert_close(vt.load(tmp_path / "siglip.npz")(images), exact, atol=0.2, rtol=0.1)


def test_a_run_directory_and_its_model(tiny: Any, tmp_path: Path) -> None:
    model = tiny()
    vt.save(model, tmp_path / "run" / "model")
    images = torch.randn(1, 3, 32, 32)
    for path in (
        tmp_path / "run",
        tmp_path / "run" / "model",
        tmp_path / "run" / "model" / "model.safetensors",
    ):
        assert torch.equal(vt.load(path)(images), model(images))
    assert vt.load(tmp_path / "run", drop_path=0.1, dropout=0.1).config.dropout == 0.1
    assert vt.load(tmp_path / "run", num_classes=2, image_size=48).config.grid == (6, 6)


def test_what_a_command_calls_a_model(tiny: Any, tmp_path: Path) -> None:
    assert loading.open_model("ViT-Ti/16", num_classes=2).config.width == 192
    with pytest.raises(vt.InputError, match="is not an existing file or folder"):
        loading.open_model("nothing")
    with pytest.raises(vt.InputError, match="no checkpoint at"):
        vt.load(tmp_path / "B_16.npz")
    with pytest.raises(vt.InputError, match="unknown size 'Q'"):
        loading.open_model("ViT-Q/16")


def test_a_name_that_the_hub_cannot_have() -> None:
    with pytest.raises(vt.InputError, match="written hf:org/name"):
        vt.load("hf:only-a-name")


def test_the_hub_offline(hub_constants: Callable[..., None], tmp_path: Path) -> None:
    hub_constants(HF_HUB_OFFLINE=True, HF_HUB_CACHE=str(tmp_path))
    with pytest.raises(vt.InputError, match="hf:org/name is not in the cache"):
        vt.load("hf:org/name")


def test_the_hub_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(vt.InputError, match=re.escape("pip install 'vitreous[hub]'")):
        vt.load("hf:org/name")


class Response(io.BytesIO):
    """What urlopen gives back."""

    def __init__(self, content: bytes, **headers: str) -> None:
        super().__init__(content)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def test_an_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    content, asked = weights_of("google_vit").read_bytes(), []

    def urlopen(address: str, timeout: float) -> Response:
        asked.append(address)
        if "broken" in address:
            raise OSError("connection lost")
        if "cut" in address:
            return Response(content[:1000], Content_Length=str(len(content)))
        if "packed" in address:  # the length is that of what is sent
            return Response(content, Content_Length="1000", Content_Encoding="gzip")
        return Response(content, Content_Length=str(len(content)))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    for _ in range(2):
        assert vt.load("https://storage.example/vit/B_16.npz").config.width == 48
    assert len(asked) == 1, "the second time it comes from the cache"
    with pytest.raises(
        vt.InputError, match=r"cannot get https://storage\.example/broken\.npz: connection lost"
    ):
        vt.load("https://storage.example/broken.npz")
    for _ in range(2):
        with pytest.raises(vt.InputError, match=rf"broke off after 1,000 of {len(content):,} bytes; try"):
            vt.load("https://storage.example/cut.npz")
    assert not [path for path in tmp_path.rglob("*") if re.search("broken|cut", path.name) and path.is_file()]
    assert vt.load("https://storage.example/packed.npz").config.width == 48
    with pytest.raises(vt.InputError, match="a path, an https: address, hf:org/name or vitreous:"):
        vt.load("http://storage.example/B_16.npz")


def test_nothing_is_imported_from_the_peers() -> None:
    """Not one of the peers is needed to read its files."""
    assert isinstance(loading, types.ModuleType)
    assert logging.getLogger("vitreous.checkpoints") is not None
    source = "".join(path.read_text() for path in Path(loading.__file__).parent.glob("*.py"))
    assert not re.search(
        r"^\s*(?:import|from) (?:timm|transformers|torchvision|vit_pytorch|flax|jax)\b", source, re.M
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("google/vit-base-patch16-224", "hf:google/vit-base-patch16-224"),
        ("timm/vit_base_patch16_224.augreg_in21k", "hf:timm/vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224", "hf:timm/vit_base_patch16_224.augreg2_in21k_ft_in1k"),
    ],
)
def test_a_model_of_the_hub_is_known_by_its_name(name: str, hint: str) -> None:
    for load in (loading.open_model, vt.load):
        with pytest.raises(vt.InputError, match=rf"did you mean {re.escape(hint)}\?$"):
            load(name)
        with pytest.raises(vt.InputError, match=r"is written hf:org/name$"):
            load("nowhere")


def test_what_config_json_says_otherwise_and_what_is_left_out_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert vt.load(GOLDEN / "hf_vit", heads=2).config.heads == 2
    assert f"heads=2 is used as specified, instead of heads=4 from {GOLDEN / 'hf_vit'}" in caplog.text
    caplog.clear()
    vt.load(GOLDEN / "hf_vit", heads=4)
    assert not caplog.messages
    vt.load(GOLDEN / "hf_mae")
    assert "24 weights of other parts are left out: decoder (24)" in caplog.text


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"model_type": "llava", "vision_config": {"model_type": "pixtral"}}, "rotary positions"),
        ({"model_type": "dinov3_convnext"}, "is not a Vision Transformer: convolutions instead of attention"),
    ],
)
def test_an_unknown_family_of_transformers_is_refused_by_name(
    config: dict[str, Any], part: str, tmp_path: Path
) -> None:
    torch.save({"embeddings.patches.weight": torch.zeros(8, 3, 4, 4)}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(vt.InputError, match=f"of transformers .*{part}"):
        vt.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "newformer"}))
    with pytest.raises(vt.InputError, match="newformer of transformers is not among the supported models"):
        vt.load(tmp_path)


def test_a_vit_by_another_name_is_read_where_its_format_is_given(tmp_path: Path) -> None:
    """An unknown model_type may compute anything; the names of its weights do not tell."""
    for file in (GOLDEN / "hf_vit").iterdir():
        shutil.copy(file, tmp_path)
    described = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "my_vit"}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(vt.InputError, match="my_vit of transformers is not among the supported models"):
        vt.load(tmp_path)
    assert vt.load(tmp_path, format="huggingface").config == vt.load(GOLDEN / "hf_vit").config


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "gpu"}, "device='gpu' cannot be used here: Expected one of cpu, cuda"),
        ({"device": "cuda:99"}, "device='cuda:99' cannot be used here: "),
        ({"dtype": torch.int8}, r"dtype=torch.int8 is not a floating-point type of torch: pass torch.bfloat"),
    ],
)
def test_where_weights_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(vt.InputError, match=sentence):
        vt.load(GOLDEN / "hf_vit", **options)


@pytest.mark.parametrize(
    "named",
    [
        lambda name: "".join(f"['{key}']" for key in ("params", *name.split("/"))),
        lambda name: "".join(f"['{key}']" for key in name.split("/")) + ".value",
        lambda name: f"params.{name.replace('/', '.')}",
    ],
)
def test_names_that_jax_gives_the_leaves_of_a_tree(named: Any, tiny: Any, tmp_path: Path) -> None:
    model = tiny(mlp="gelu_tanh")
    vt.save(model, tmp_path / "m.npz", format="google")
    with np.load(tmp_path / "m.npz") as arrays:
        np.savez(tmp_path / "tree.npz", **{named(name): arrays[name] for name in arrays.files})
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(vt.load(tmp_path / "tree.npz")(images), model(images))


def test_files_that_the_flax_of_today_writes(tiny: Any, tmp_path: Path) -> None:
    """A block's parts are counted by kind, where the published files of vit_jax number them through."""
    model = tiny(mlp="gelu_tanh", representation_size=24)
    vt.save(model, tmp_path / "m.npz", format="google")
    today = {"MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0", "MlpBlock_3": "MlpBlock_0"}
    today["LayerNorm_2"] = "LayerNorm_1"
    renamed = {}
    with np.load(tmp_path / "m.npz") as arrays:
        for name in arrays.files:
            renamed["/".join(today.get(part, part) for part in name.split("/"))] = arrays[name]
    np.savez(tmp_path / "today.npz", **renamed)
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(vt.load(tmp_path / "today.npz")(images), model(images))
