"""Adapters of PEFT, merged into the model that they name (`published_files.py` made the one that is kept)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt

FOLDER = Path(__file__).parent / "data" / "published" / "lora"
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SIZES |= {"image_size": 32, "patch_size": 8}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy of the kept model and its adapter."""
    shutil.copytree(FOLDER, tmp_path / "lora")
    return tmp_path / "lora" / "adapter"


def described(adapter: Path, **fields: Any) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("file", ["", "adapter_model.safetensors"])
@torch.no_grad()
def test_an_adapter_is_merged_into_the_model_beside_it(file: str) -> None:
    model: Any = vt.load(FOLDER / "adapter" / file)
    made = json.loads((FOLDER.with_suffix(".json")).read_text())
    images, expected = torch.tensor(made["images"]), torch.tensor(made["outputs"])
    assert (model(images) - expected).abs().max() < 2e-5 * expected.abs().max()
    assert f"adapter of {FOLDER / 'adapter'}/../base" in model.origin.source
    base: Any = vt.load(FOLDER / "base")
    assert base.config.num_classes is None


def test_a_merged_adapter_is_a_model_like_any_other(tmp_path: Path) -> None:
    model: Any = vt.load(FOLDER / "adapter")
    vt.save(model, tmp_path / "m", format="huggingface")
    images = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        assert torch.allclose(vt.load(tmp_path / "m")(images), model(images), atol=1e-5)


def test_the_newest_checkpoint_of_a_trainer_may_be_an_adapter(kept: Path) -> None:
    described(kept, base_model_name_or_path=str(kept.parent / "base"))
    (kept.parent / "out").mkdir()
    kept.rename(kept.parent / "out" / "checkpoint-20")
    model: Any = vt.load(kept.parent / "out")
    assert "checkpoint-20 (an adapter of" in model.origin.source


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"base_model_name_or_path": "org/vit"},
            r"adapter for org/vit, which is not on this machine: load that model once",
        ),
        (
            {"base_model_name_or_path": "/gone/vit"},
            r"not on this machine: put it there; or merge it with peft",
        ),
        ({"base_model_name_or_path": None}, "does not name its model"),
        ({"peft_type": "IA3"}, r"a PEFT adapter \(IA3\) for \.\./base: only LoRA is merged"),
        ({"use_dora": True}, "a LoRA adapter with use_dora=True, which is not merged here"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa', which is not merged here"),
        ({"alpha_pattern": {".*q": 3}}, "is not understood: merge it with peft"),
        ({"lora_alpha": "many"}, "lora_alpha='many' and a rank of"),
    ],
)
def test_an_adapter_that_cannot_be_merged_says_what_it_is(
    fields: dict[str, Any], message: str, kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    described(kept, **fields)
    with pytest.raises(vt.InputError, match=message):
        vt.load(kept)


def test_an_adapter_of_another_model(kept: Path) -> None:
    file = kept / "adapter_model.safetensors"
    state = {name.replace("layers.1.", "layers.7."): each for name, each in load_file(file).items()}
    save_file(state, file)
    with pytest.raises(vt.InputError, match=r"has no layers that this adapter changes: vit\.layers\.7"):
        vt.load(kept)
    vt.save(vt.create("ViT-Ti/16", image_size=32, depth=2), kept.parent / "other", format="huggingface")
    described(kept, base_model_name_or_path="../other")
    with pytest.raises(vt.InputError, match="has no layers that this adapter changes"):
        vt.load(kept)


def released_name(name: str) -> str:
    """As an adapter of transformers 4 names the layers of a ViT."""
    name = name.replace("vit.layers.", "vit.encoder.layer.").replace(".mlp.fc1.", ".intermediate.dense.")
    for short, long in {"q": "query", "k": "key", "v": "value"}.items():
        name = name.replace(f".attention.{short}_proj.", f".attention.attention.{long}.")
    return name


CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "all biases": ("ViTForImageClassification", "ViTConfig", "", {"bias": "all"}),
    "released names": ("ViTForImageClassification", "ViTConfig", "", {"bias": "lora_only"}),
    "a head on an encoder": ("ViTForImageClassification", "ViTConfig", "ViTModel", {}),
    "DINOv2": ("Dinov2ForImageClassification", "Dinov2Config", "Dinov2Model", {"use_rslora": True}),
    "the encoder of a classifier": ("ViTModel", "ViTConfig", "ViTForImageClassification", {}),
    "CLIP": ("CLIPVisionModel", "CLIPVisionConfig", "", {"lora_bias": True}),
    "BEiT": ("BeitForImageClassification", "BeitConfig", "BeitModel", {}),
    "DINOv3": ("DINOv3ViTModel", "DINOv3ViTConfig", "", {"init_lora_weights": "gaussian"}),
}


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_equals_what_peft_merges(name: str, timm: Any, tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    kind, config, base, fields = CASES[name]
    sizes = SIZES | ({"use_relative_position_bias": True} if name == "BEiT" else {})

    def drawn(module: Any) -> Any:
        for each in (each for each in module.parameters() if each.requires_grad):
            each.copy_(0.15 * torch.randn_like(each) + (1.0 if each.ndim == 1 and each.min() == 1 else 0.0))
        return module.eval()

    drawn(getattr(transformers, base or kind)(getattr(transformers, config)(**sizes))).save_pretrained(
        tmp_path / "base"
    )
    classifier = "Classification" in kind
    more = {"num_labels": 3} if classifier else {}
    model = getattr(transformers, kind).from_pretrained(
        tmp_path / "base", ignore_mismatched_sizes=True, **more
    )
    targets = ["q_proj", "v_proj", "fc1", "query", "value"]
    heads = {"modules_to_save": ["classifier"]} if classifier else {}
    rules = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, **heads, **fields)
    tuned = drawn(peft.get_peft_model(model, rules))
    tuned.save_pretrained(tmp_path / "adapter")
    if name == "released names":
        file = tmp_path / "adapter" / "adapter_model.safetensors"
        state = {released_name(key): each for key, each in load_file(file).items()}
        save_file(state, file)
    merged = tuned.merge_and_unload().eval()
    images = torch.randn(2, 3, 32, 32)
    ours: Any = vt.load(tmp_path / "adapter", image_size=32)
    found = merged(images)
    if classifier:
        pair = ours(images), found.logits
    elif name == "CLIP":
        pair = ours(images), found.pooler_output
    else:
        pair = ours.tokens(images), found.last_hidden_state
    assert (pair[0] - pair[1]).abs().max() < 2e-5 * max(1.0, pair[1].abs().max().item())


@pytest.mark.parametrize(
    ("part", "shape", "words"),
    [
        ("lora_A.weight", (3, 7), "two matrices of .* do not fit"),
        ("lora_A.weight", (5,), "two matrices of .* do not fit"),
        ("lora_B.weight", (32, 77), "two matrices of .* do not fit"),
        ("lora_B.bias", (99,), "the adapter changes the bias of "),
    ],
)
def test_matrices_that_do_not_fit_are_named(
    kept: Path, part: str, shape: tuple[int, ...], words: str
) -> None:
    file = kept / "adapter_model.safetensors"
    weights = load_file(file)
    layer = next(name for name in weights if name.endswith("lora_A.weight")).removesuffix("lora_A.weight")
    weights[layer + part] = torch.zeros(shape)
    save_file(weights, file)
    with pytest.raises(vt.InputError, match=words):
        vt.load(kept)
