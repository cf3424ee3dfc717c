"""Tiny models of families of Vision Transformers, made by their own codebases.

    python tests/checkpoints/peer_families.py [NAME ...]

writes `tests/checkpoints/data/families/NAME/` again: the files that the codebase itself writes and, in
expected.safetensors, what it computes. It needs the codebases, and nothing of vitreous.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

HERE = Path(__file__).parent
FOLDER = HERE / "data" / "families"
SIZE, PATCH, WIDTH, HEADS, HIDDEN, CLASSES = 12, 4, 16, 2, 32, 5


class Case(NamedTuple):
    """A module of a codebase, how that is written, and what it computes of images: "tokens", "output"."""

    module: nn.Module
    write: Callable[[Path], object]
    compute: Callable[[Tensor], dict[str, Tensor]]
    resized: Callable[[Tensor], Tensor] | None = None  # its output for images of another size


def images(size: tuple[int, int] = (SIZE, SIZE)) -> Tensor:
    """Two images that need no file: waves."""
    count = torch.arange(2 * 3 * size[0] * size[1], dtype=torch.float64)
    return (2 * torch.sin(0.37 * count + 0.0003 * count**2)).reshape(2, 3, *size).float()


@torch.no_grad()
def randomized(module: nn.Module) -> Any:
    """Weights of a trained model's size, none of them zero, the same on every machine."""
    rng = torch.Generator().manual_seed(0)
    for name, parameter in module.named_parameters():
        values = torch.randn(parameter.shape, generator=rng)
        gain = parameter.ndim == 1 and name.endswith("weight")
        parameter.copy_(1 + 0.3 * values if gain else 0.2 * values)
    return module.eval()


def import_beside(file: str) -> ModuleType:
    """A program of this folder."""
    spec = importlib.util.spec_from_file_location(file, HERE / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_torchvision(package: str) -> ModuleType:
    """A package that imports torchvision and whose models do without it."""
    registry = import_beside("timm_registry")
    registry.import_timm()
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError):
        registry.forget(package, "torchvision")
        sys.meta_path.append(registry.Finder)
        try:
            return importlib.import_module(package)
        finally:
            sys.meta_path.remove(registry.Finder)
            registry.forget("torchvision")


COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "patch_size": PATCH,
}
SIZED = COMMON | {"image_size": SIZE}


def transformers_case(kind: str, config: str, output: str | None = "pooler_output", **fields: Any) -> Case:
    """A model of transformers.

    Args:
        output: what it calls what our model gives; None for nothing but tokens.
    """
    import transformers

    module = randomized(getattr(transformers, kind)(getattr(transformers, config)(**fields)))

    def compute(pixels: Tensor) -> dict[str, Tensor]:
        found = module(pixel_values=pixels)
        tokens = {} if found.get("last_hidden_state") is None else {"tokens": found.last_hidden_state}
        return tokens | ({} if output is None else {"output": found[output]})

    return Case(module, module.save_pretrained, compute)


def eva(name: str, size: tuple[int, int] = (SIZE, SIZE), **arguments: Any) -> Case:
    """A model of timm's Eva, which computes its rotary positions for other sizes."""
    case = timm_case(name, img_size=size, **arguments)

    def resized(pixels: Tensor) -> Tensor:
        module: Any = case.module
        module.set_input_size(img_size=pixels.shape[2:])
        return module(pixels)

    return case._replace(resized=resized)


def siglip2(**fields: Any) -> Case:
    """NaFlex: flat patches and the shape of each image."""
    case = transformers_case("Siglip2VisionModel", "Siglip2VisionConfig", **COMMON, num_patches=9, **fields)

    def compute(pixels: Tensor) -> dict[str, Tensor]:
        rows, columns = pixels.shape[2] // PATCH, pixels.shape[3] // PATCH
        patches = pixels.reshape(2, 3, rows, PATCH, columns, PATCH).permute(0, 2, 4, 3, 5, 1)
        mask = torch.ones(2, rows * columns, dtype=torch.long)
        shapes = torch.tensor([[rows, columns]] * 2)
        found = case.module(patches.reshape(2, rows * columns, -1), mask, shapes)
        return {"tokens": found.last_hidden_state, "output": found.pooler_output}

    return case._replace(compute=compute)


def beit(kind: str, **fields: Any) -> Case:
    config = "BeitConfig" if kind.startswith("Beit") else "Data2VecVisionConfig"
    return transformers_case(kind, config, "logits", **SIZED, num_labels=CLASSES, **fields)


def timm_case(name: str, **arguments: Any) -> Case:
    """A model of timm, in the folder that it writes for the hub."""
    import_beside("timm_registry").import_timm()
    from timm import create_model
    from timm.models import save_for_hf

    sizes: dict[str, Any] = {
        "img_size": SIZE,
        "patch_size": PATCH,
        "embed_dim": WIDTH,
        "depth": 2,
        "num_heads": HEADS,
    }
    arguments = sizes | {"mlp_ratio": 2.0, "num_classes": CLASSES} | arguments
    module = randomized(create_model(name, **arguments))
    return Case(
        module,
        lambda folder: save_for_hf(module, folder, model_args=arguments, safe_serialization=True),
        lambda pixels: {"tokens": module.forward_features(pixels), "output": module(pixels)},
    )


def open_clip(*, quick_gelu: bool, **fields: Any) -> Case:
    """The tower of open_clip or, by the same names, of OpenAI's code."""
    package = without_torchvision("open_clip.transformer")
    act = package.QuickGELU if quick_gelu else nn.GELU
    module = randomized(
        package.VisionTransformer(
            SIZE, PATCH, WIDTH, 2, HEADS, 2.0, output_dim=CLASSES, act_layer=act, **fields
        )
    )

    def write(folder: Path) -> None:
        text = {"positional_embedding": torch.zeros(4, 8), "logit_scale": torch.ones(())}
        tower = {f"visual.{name}": tensor for name, tensor in module.state_dict().items()}
        save_file(text | tower, folder / "open_clip_model.safetensors")

    return Case(module, write, lambda pixels: {"output": module(pixels)})


def readme_of_vit(attention: int) -> Case:
    """FrancescoSaverioZuppichini/ViT, whose code is the Python of its README (VIT_README: its path).

    Args:
        attention: which definition of its attention: 0 has q, k and v apart, 1 has them in one matrix.
    """
    if "VIT_README" not in os.environ:
        raise ImportError("VIT_README does not say where the README.md of FrancescoSaverioZuppichini/ViT is")
    text = Path(os.environ["VIT_README"]).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    chosen = [block for block in blocks if "class MultiHeadAttention" in block][attention]
    code: dict[str, Any] = {}
    exec("import torch, torch.nn.functional as F\nfrom torch import Tensor, nn", code)
    exec(
        "from einops import rearrange, reduce, repeat\nfrom einops.layers.torch import Rearrange, Reduce",
        code,
    )
    for block in blocks:
        if "class " in block:
            block = chosen if "class MultiHeadAttention" in block else block
            exec("\n".join(re.findall(r"(?m)^(?:class |    |$).*$", block)), code)
    sizes = {"emb_size": WIDTH, "depth": 2, "num_heads": HEADS, "forward_expansion": 2}
    module = randomized(
        code["ViT"](
            patch_size=PATCH, img_size=SIZE, n_classes=CLASSES, drop_p=0.0, forward_drop_p=0.0, **sizes
        )
    )
    return Case(
        module,
        lambda folder: torch.save(module.state_dict(), folder / "model.pt"),
        lambda pixels: {"output": module(pixels)},
    )


def dinov3(heads: int = HEADS, **fields: Any) -> Case:
    """Meta's own code, facebookresearch/dinov3; the wavelengths rounded as in its published files."""
    package = importlib.import_module("dinov3.models.vision_transformer")
    module = package.DinoVisionTransformer(
        img_size=SIZE,
        patch_size=PATCH,
        embed_dim=WIDTH,
        depth=2,
        num_heads=heads,
        layerscale_init=1.0,
        norm_layer="layernormbf16",
        n_storage_tokens=2,
        pos_embed_rope_dtype="fp32",
        **fields,
    )
    module.init_weights()
    module = randomized(module)
    module.rope_embed.periods.copy_(module.rope_embed.periods.bfloat16())

    def tokens(pixels: Tensor) -> Tensor:
        found = module.forward_features(pixels)
        names = ("x_norm_clstoken", "x_storage_tokens", "x_norm_patchtokens")
        return torch.cat([found[names[0]][:, None], *(found[name] for name in names[1:])], dim=1)

    return Case(
        module,
        lambda folder: torch.save(module.state_dict(), folder / "model.pth"),
        lambda pixels: {"tokens": tokens(pixels), "output": module(pixels)},
        module,
    )


def mlcd() -> Case:
    """Its last hidden state is before the norm, ours after it."""
    case = transformers_case("MLCDVisionModel", "MLCDVisionConfig", **SIZED)
    return case._replace(
        compute=lambda pixels: {"output": case.module(pixels).pooler_output},
        resized=lambda pixels: case.module(pixels).pooler_output,
    )


def vit5() -> Case:
    """The code of wangf3014/ViT-5 (VIT5_CODE: its folder), which puts a table of numbers on a GPU."""
    if "VIT5_CODE" not in os.environ:
        raise ImportError("VIT5_CODE does not say where models_vit5.py of wangf3014/ViT-5 is")
    import_beside("timm_registry").import_timm()
    sys.path.insert(0, os.environ["VIT5_CODE"])
    code = importlib.import_module("models_vit5")
    sizes = {"patch_size": PATCH, "embed_dim": WIDTH, "num_heads": HEADS, "depth": 2, "num_classes": CLASSES}
    options = {"mlp_ratio": 2, "num_registers": 4, "flash": False, "rope": True, "reg_theta": 100}
    norm = partial(code.RMSNorm, eps=1e-6)

    def make(size: int) -> Any:
        return code.vit_models(img_size=size, qk_norm=True, norm_layer=norm, **sizes, **options).eval()

    module = randomized(make(SIZE))

    def compute(pixels: Tensor, model: nn.Module = module) -> Tensor:
        with patch.object(Tensor, "cuda", lambda tensor: tensor):
            return model(pixels)

    def resized(pixels: Tensor) -> Tensor:
        """As its main.py resamples positions."""
        side, state = SIZE // PATCH, module.state_dict()
        table = state["pos_embed"].reshape(1, side, side, WIDTH).permute(0, 3, 1, 2)
        more = (pixels.shape[-1] // PATCH,) * 2
        table = nn.functional.interpolate(table, size=more, mode="bicubic", align_corners=False)
        larger = make(pixels.shape[-1])
        larger.load_state_dict(state | {"pos_embed": table.permute(0, 2, 3, 1).flatten(1, 2)})
        return compute(pixels, larger)

    def write(folder: Path) -> None:
        torch.save({"model": module.state_dict()}, folder / "model.pth")

    return Case(module, write, lambda pixels: {"output": compute(pixels)}, resized)


def internvit(**fields: Any) -> Case:
    """The code beside the files of OpenGVLab/InternViT-6B and -300M (INTERNVIT_CODE: its folder)."""
    if "INTERNVIT_CODE" not in os.environ:
        raise ImportError("INTERNVIT_CODE does not say where modeling_intern_vit.py of OpenGVLab is")
    import_beside("timm_registry").import_timm()
    folder = Path(os.environ["INTERNVIT_CODE"])
    sys.path.insert(0, str(folder.parent))
    package = importlib.import_module(f"{folder.name}.modeling_intern_vit")
    config = package.InternVisionConfig(**SIZED, drop_path_rate=0.0, use_flash_attn=False, **fields)
    module = randomized(package.InternVisionModel(config))

    def write(folder: Path) -> None:
        save_file(module.state_dict(), folder / "model.safetensors")
        config.save_pretrained(folder)

    def compute(pixels: Tensor) -> dict[str, Tensor]:
        found = module(pixels)
        return {"tokens": found.last_hidden_state, "output": found.pooler_output}

    return Case(module, write, compute)


def noise() -> Tensor:
    """What orders the patches of an MAE."""
    return torch.sin(1.7 * torch.arange(18.0)).reshape(2, 9)


def mae_of_its_authors() -> Case:
    """facebookresearch/mae, whose code is of an older timm and NumPy."""
    import_beside("timm_registry").import_timm()
    import numpy as np
    from timm.models.vision_transformer import Block

    vars(np)["float"] = float
    package = importlib.import_module("models_mae")
    package.Block = lambda *args, qk_scale, **fields: Block(*args, **fields)  # type: ignore[attr-defined]
    sizes = {"img_size": SIZE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": 2, "num_heads": HEADS}
    decoder = {"decoder_embed_dim": 8, "decoder_depth": 1, "decoder_num_heads": HEADS}
    norm = partial(nn.LayerNorm, eps=1e-6)
    module = randomized(
        package.MaskedAutoencoderViT(**sizes, **decoder, mlp_ratio=2.0, norm_layer=norm, norm_pix_loss=True)
    )

    def compute(pixels: Tensor) -> dict[str, Tensor]:
        draw, torch.rand = torch.rand, lambda *size, **options: noise()  # type: ignore[assignment]
        try:
            loss, predicted, _ = module(pixels)
            tokens, _, _ = module.forward_encoder(pixels, 0.0)
        finally:
            torch.rand = draw  # type: ignore[assignment]
        order = noise().argsort(1).argsort(1)[..., None].expand(-1, -1, WIDTH)
        tokens = torch.cat([tokens[:, :1], tokens[:, 1:].gather(1, order)], dim=1)
        return {"tokens": tokens, "prediction": predicted, "loss": loss}

    def write(folder: Path) -> None:
        args = argparse.Namespace(model="mae_vit_base_patch16", norm_pix_loss=True)
        torch.save({"model": module.state_dict(), "args": args, "epoch": 3}, folder / "model.pth")

    return Case(module, write, compute)


def dinov3_vit(**fields: Any) -> Case:
    case = transformers_case("DINOv3ViTModel", "DINOv3ViTConfig", **SIZED, num_register_tokens=2, **fields)
    return case._replace(resized=lambda pixels: case.module(pixels).pooler_output)


WIDE = (3 * PATCH, 5 * PATCH)
# The cases whose images are not SIZE x SIZE.
SIZES = {"timm-pe-core": WIDE, "timm-eva02": WIDE, "timm-rope-mixed": WIDE}
OTHER = (4 * PATCH, 6 * PATCH)  # of resized models
OTHERS = {"vit5": (4 * PATCH, 4 * PATCH)}  # whose code takes squares alone


def vit_pytorch(module: str, kind: str, **arguments: Any) -> Case:
    """One file of vit-pytorch, by itself: the package as a whole asks for more than that."""
    package = importlib.util.find_spec("vit_pytorch")
    if package is None or not package.submodule_search_locations:
        raise ImportError("vit-pytorch is not installed")
    path = Path(package.submodule_search_locations[0]) / f"{module}.py"
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    sizes = {"image_size": SIZE, "patch_size": PATCH, "num_classes": CLASSES, "dim": WIDTH, "depth": 2}
    sizes |= {"heads": HEADS, "dim_head": WIDTH // HEADS, "mlp_dim": HIDDEN}
    made = getattr(code, kind)(**sizes | arguments)
    if type(getattr(made, "linear_head", None)) is nn.LayerNorm:  # that with qk-norm has none
        made.linear_head = nn.Linear(WIDTH, CLASSES)
    model = randomized(made)
    return Case(
        model,
        lambda folder: torch.save(model.state_dict(), folder / "model.pt"),
        lambda pixels: {"output": model(pixels)},
    )


CASES: dict[str, Callable[[], Case]] = {
    "frankzvit-apart": lambda: readme_of_vit(0),
    "siglip2-naflex": siglip2,
    "vit-pytorch-qk-norm": lambda: vit_pytorch("simple_vit_with_qk_norm", "SimpleViT"),
    "vit-pytorch-registers": lambda: vit_pytorch(
        "simple_vit_with_register_tokens", "SimpleViT", num_register_tokens=3
    ),
    "timm-aimv2": lambda: timm_case("aimv2_large_patch14_224"),
    "aimv2": lambda: transformers_case(
        "Aimv2VisionModel", "Aimv2VisionConfig", None, **SIZED, use_head=False
    ),
    "aimv2-native": lambda: transformers_case(
        "Aimv2VisionModel", "Aimv2VisionConfig", None, **SIZED, use_head=False, is_native=True
    ),
    "tipsv2": lambda: transformers_case(
        "Tipsv2VisionModel", "Tipsv2VisionConfig", **SIZED | {"mlp_ratio": 2}, num_register_tokens=2
    ),
    "internvl": lambda: transformers_case(
        "InternVLVisionModel", "InternVLVisionConfig", None, **SIZED, attention_bias=True
    ),
    "internvl-rms": lambda: transformers_case(
        "InternVLVisionModel", "InternVLVisionConfig", None, **SIZED, use_qk_norm=True, norm_type="rms_norm"
    ),
    "internvit": lambda: internvit(norm_type="layer_norm", qkv_bias=True, qk_normalization=False),
    "internvit-6b": lambda: internvit(norm_type="rms_norm", qkv_bias=False, qk_normalization=True),
    "mlcd": mlcd,
    "vit5": vit5,
    "timm-beit": lambda: timm_case("beitv2_base_patch16_224"),
    "timm-beit-shared": lambda: timm_case(
        "beit_base_patch16_224", use_rel_pos_bias=False, use_shared_rel_pos_bias=True, global_pool="token"
    ),
    "beit": lambda: beit("BeitForImageClassification", use_relative_position_bias=True),
    "beit-pretrained": lambda: transformers_case(
        "BeitModel",
        "BeitConfig",
        **SIZED,
        use_shared_relative_position_bias=True,
        use_mask_token=True,
        use_mean_pooling=False,
    ),
    "beit-absolute": lambda: beit(
        "BeitForImageClassification",
        use_absolute_position_embeddings=True,
        use_shared_relative_position_bias=True,
    ),
    "timm-beit-absolute": lambda: timm_case("beit_base_patch16_224", use_abs_pos_emb=True),
    "timm-avgmax": lambda: timm_case("vit_base_patch16_224", global_pool="avgmax"),
    "timm-max": lambda: timm_case("vit_base_patch16_224", global_pool="max", reg_tokens=1),
    "timm-parallel-branches": lambda: timm_case("vit_small_patch16_18x2_224", init_values=0.5),
    "timm-parallel-parts": lambda: timm_case("vit_base_patch16_xp_224"),
    "timm-parallel-parts-gap": lambda: timm_case("vit_pwee_patch16_reg1_gap_256"),
    "vit-pytorch-parallel": lambda: vit_pytorch("parallel_vit", "ViT"),
    "data2vec": lambda: beit("Data2VecVisionForImageClassification", use_relative_position_bias=True),
    "open-clip": lambda: open_clip(quick_gelu=False, ls_init_value=0.5),
    "openai-clip": lambda: open_clip(quick_gelu=True),
    "dinov3": lambda: dinov3(heads=1, mask_k_bias=True),
    "dinov3-swiglu": lambda: dinov3(ffn_layer="swiglu", qkv_bias=False, untie_global_and_local_cls_norm=True),
    "transformers-dinov3": dinov3_vit,
    "transformers-dinov3-gated": lambda: dinov3_vit(use_gated_mlp=True, hidden_act="silu"),
    "mae": mae_of_its_authors,
    "timm-dinov3": lambda: eva("vit_small_plus_patch16_dinov3_qkvb", num_classes=0),
    "timm-pe-core": lambda: eva("vit_pe_core_tiny_patch16_384", WIDE, attn_pool_num_heads=4),
    "timm-pe-lang": lambda: eva("vit_pe_lang_large_patch14_448", num_classes=0),
    "timm-eva02": lambda: eva("eva02_base_patch16_clip_224", WIDE),
    "timm-eva02-post-norm": lambda: eva("eva02_enormous_patch14_clip_224"),
    "timm-rope-mixed": lambda: eva("vit_small_patch16_rope_mixed_ape_224", WIDE),
}


TEXTS = ("the small frog", "we  read books!", "  Haus ß é and mehr ", ">>deu<< the sea")


def write_marian(folder: Path, normalization: str = "identity") -> None:
    """A translator of transformers whose encoder has other heads than its decoder, the two SentencePiece
    models of its tokenizer, and in expected.json what it translates."""
    import sentencepiece
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "the small frog sits in the green grass and sings",
        "we read books and write letters every day",
        "ein kleines Haus steht im Wald am Meer",
        "wir lesen jeden Tag Bücher und schreiben Briefe",
    ]
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 20),
            model_prefix=str(folder / side),
            vocab_size=50,
            model_type="unigram",
            normalization_rule_name=normalization,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        (folder / f"{side}.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [model.IdToPiece(number) for number in range(3, model.GetPieceSize())]
    vocabulary = {name: number for number, name in enumerate(["</s>", "<unk>", *pieces, ">>deu<<", "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    pad = len(vocabulary) - 1
    torch.manual_seed(0)
    peer = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=len(vocabulary), d_model=16, encoder_layers=1, decoder_layers=1,
            encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=16,
            max_position_embeddings=32, pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad,
            forced_eos_token_id=0,
        )
    ).eval()  # fmt: skip
    for name, parameter in peer.named_parameters():
        if parameter.ndim > 1 and "embed_positions" not in name:
            parameter.data = 0.5 * torch.randn_like(parameter)
    peer.generation_config.bad_words_ids = [[pad]]
    peer.save_pretrained(folder)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    expected = []
    for text in TEXTS:
        ids = tokenizer([text], return_tensors="pt")["input_ids"]
        written = peer.generate(ids, num_beams=1, do_sample=False, max_length=16)[0]
        answer = tokenizer.decode(written, skip_special_tokens=True)
        expected.append({"ids": ids[0].tolist(), "written": written.tolist(), "text": answer})
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")


@torch.no_grad()
def write(name: str, folder: Path) -> None:
    """The files of one case."""
    folder.mkdir(parents=True, exist_ok=True)
    case = CASES[name]()
    case.write(folder)
    expected = case.compute(images(SIZES.get(name, (SIZE, SIZE))))
    if case.resized:
        expected["resized"] = case.resized(images(OTHERS.get(name, OTHER)))
    expected = {key: value.contiguous().clone() for key, value in expected.items()}
    save_file(expected, folder / "expected.safetensors")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*CASES, "marian"]:
        if chosen == "marian":
            write_marian(FOLDER / chosen)
        else:
            write(chosen, FOLDER / chosen)
