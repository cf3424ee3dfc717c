"""How far the models of each family and format are from their own codebase, in and out.

    python benchmarks/checkpoint_families.py [--only DINOv3] [--out benchmarks/results]

Tiny models of each codebase, every weight random: *in* is the largest difference between what the codebase
computes and what the model that vitreous reads from its files computes; *out* between the model and what is
read back from the file that vitreous writes, by the codebase itself where that is timm, transformers or
facebookresearch/dinov3. Where a codebase is not installed (`dinov3`, FrancescoSaverioZuppichini/ViT; Google's
need JAX), what it computed when the golden models were made stands for it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import platform
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

import vitreous as vt
from vitreous.checkpoints.families import FAMILIES

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "checkpoints"
GOLDEN = ROOT / "tests" / "golden" / "data"
RESULT = "checkpoint_families.json"
FILES = {"torchvision": ".pth", "vit-pytorch": ".pt", "frankzvit": ".pt", "dinov2": ".pth", "dinov3": ".pth"}
FILES |= {"open-clip": ".pt", "google": ".npz", "bit": ".npz"}

# The cases of each family and format: golden models, or those of tests/checkpoints/peer_families.py.
GOLDEN_CASES: dict[tuple[str, str], tuple[str, ...]] = {
    ("ViT", "google"): ("google_vit", "google_vit_gap", "bigvision_vit_map", "bigvision_vit_scan"),
    ("ViT", "timm"): ("timm_vit", "timm_vit_gap_cls_fcnorm", "timm_vit_reg4"),
    ("ViT", "huggingface"): ("hf_vit", "hf_vit_noqkvbias"),
    ("ViT", "torchvision"): ("torchvision_vit", "torchvision_vit_rep_legacy"),
    ("ViT", "vit-pytorch"): ("vitpytorch_vit_cls", "vitpytorch_simplevit"),
    ("ViT", "frankzvit"): ("frankzvit",),
    ("Hybrid ViT", "google"): ("google_hybrid", "google_hybrid_r_ti"),
    ("Hybrid ViT", "timm"): ("timm_hybrid",),
    ("BiT", "bit"): ("bigvision_bit_resnet",),
    ("DeiT", "timm"): ("timm_deit_distilled",),
    ("DeiT", "huggingface"): ("hf_deit",),
    ("DINOv2", "dinov2"): ("dinov2_native",),
    ("DINOv2", "huggingface"): ("hf_dinov2",),
}
PEER_CASES: dict[tuple[str, str], tuple[str, ...]] = {
    ("ViT", "frankzvit"): ("frankzvit-apart",),
    ("DINOv3", "dinov3"): ("dinov3", "dinov3-swiglu"),
    ("DINOv3", "huggingface"): ("transformers-dinov3", "transformers-dinov3-gated"),
    ("DINOv3", "timm"): ("timm-dinov3",),
    ("CLIP", "open-clip"): ("openai-clip", "open-clip"),
    ("SigLIP 2, NaFlex at one size", "huggingface"): ("siglip2-naflex",),
    ("Perception Encoder", "timm"): ("timm-pe-core", "timm-pe-lang"),
    ("EVA, EVA-02", "timm"): ("timm-eva02", "timm-eva02-post-norm"),
    ("RoPE-ViT", "timm"): ("timm-rope-mixed",),
    ("BEiT, BEiT v2", "huggingface"): ("beit", "beit-pretrained"),
    ("BEiT, BEiT v2", "timm"): ("timm-beit", "timm-beit-shared"),
    ("data2vec", "huggingface"): ("data2vec",),
    ("AIMv2", "aimv2"): ("aimv2", "aimv2-native"),
    ("AIMv2", "timm"): ("timm-aimv2",),
    ("InternViT", "huggingface"): ("internvl", "internvl-rms", "internvit", "internvit-6b"),
    ("MLCD", "huggingface"): ("mlcd",),
    ("TIPSv2", "huggingface"): ("tipsv2",),
    ("RADIO", "huggingface"): ("radio",),
}


def program(path: Path) -> ModuleType:
    """A program beside the tests, imported."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def live_cases(peers: ModuleType) -> dict[tuple[str, str], list[Callable[[], Any]]]:
    """Cases that have no file among the tests: their codebase is installed with every slow test."""
    transformers, timm = peers.transformers_case, peers.timm_case

    def clip() -> Any:
        """Its last hidden state is before the norm, ours after it."""
        case = transformers("CLIPVisionModel", "CLIPVisionConfig", **peers.SIZED)
        return case._replace(compute=lambda pixels: {"output": case.module(pixels).pooler_output})

    def mae() -> Any:
        """The encoder, with all patches in their order."""
        case = transformers("ViTMAEModel", "ViTMAEConfig", None, **peers.SIZED, mask_ratio=0.0)
        order = torch.arange(9.0).expand(2, -1)
        return case._replace(
            compute=lambda pixels: {"tokens": case.module(pixels, noise=order).last_hidden_state}
        )

    return {
        ("CLIP", "huggingface"): [clip],
        ("CLIP", "timm"): [lambda: timm("vit_base_patch16_clip_224")],
        ("SigLIP", "huggingface"): [
            lambda: transformers("SiglipVisionModel", "SiglipVisionConfig", **peers.SIZED)
        ],
        ("SigLIP", "timm"): [lambda: timm("vit_base_patch16_siglip_224")],
        ("DINOv2", "timm"): [lambda: timm("vit_small_patch14_reg4_dinov2")],
        ("MAE, with its decoder", "huggingface"): [mae],
    }


def whole_mae(peers: ModuleType, tests: ModuleType, format: str) -> dict[str, float]:
    """The prediction of a whole MAE: of transformers, or of its authors' code, which has timm's names."""
    images, noise = peers.images(), peers.noise()
    if format == "timm":
        folder = TESTS / "data" / "families" / "mae"
        expected = load_file(folder / "expected.safetensors")["prediction"]
        mae: Any = vt.load(folder / "model.pth", **tests.GIVEN["mae"] | tests.WHOLE)
    else:
        decoder = {"decoder_hidden_size": 8, "decoder_num_hidden_layers": 1, "decoder_intermediate_size": 16}
        sizes = peers.SIZED | decoder | {"decoder_num_attention_heads": 2}
        case = peers.transformers_case("ViTMAEForPreTraining", "ViTMAEConfig", None, **sizes)
        expected = case.module(pixel_values=images, noise=noise).logits
        mae = vt.load(case.module, kind=vt.MAE)
    return {"in": difference(mae.predict(images, mae.mask(noise)), expected)}


def difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape, (one.shape, other.shape)
    return (one - other).abs().max().item()


def peer_output(peers: ModuleType, format: str, path: Path, images: Tensor, case: Any) -> Tensor | None:
    """What the codebase of a format makes of a file that vitreous wrote; None where it is not at hand."""
    if format == "timm" and path.is_dir():
        timm: Any = peers.import_beside("timm_registry").import_timm()
        return timm.create_model(f"local-dir:{path}", pretrained=True).eval()(images)
    if format in ("huggingface", "aimv2"):
        import transformers

        kind = json.loads((path / "config.json").read_text())["architectures"][0]
        found = getattr(transformers, kind).from_pretrained(path).eval()(pixel_values=images)
        if "logits" in found:
            return found.logits
        return found.last_hidden_state if found.get("pooler_output") is None else found.pooler_output
    if format == "dinov3" and case is not None:
        missing = case.module.load_state_dict(torch.load(path), strict=False)
        # that of local crops, which only pre-training has
        assert not missing.unexpected_keys, missing
        assert all(name.startswith("local_cls_norm.") for name in missing.missing_keys), missing
        return case.module(images)
    return None


def compare(
    peers: ModuleType,
    model: Any,
    expected: dict[str, Tensor],
    images: Tensor,
    format: str,
    written: bool,
    case: Any,
) -> dict[str, float]:
    """The differences of one case."""
    ours = {"tokens": model.tokens, "output": model}
    found = {"in": max(difference(ours[name](images), value) for name, value in expected.items())}
    if not written:
        return found
    with tempfile.TemporaryDirectory() as folder:
        ending = FILES.get(format, "")
        if format == "timm" and model.config.stem.kind == "resnet":
            ending = ".pth"  # timm has no architecture with so small a ResNet
        path = Path(folder) / f"model{ending}"
        drop = ("rotary.periods",) if format != "dinov3" and getattr(model.config, "rotary", None) else ()
        try:
            found["out"] = vt.save(model, path, format=format, drop=drop)
        except vt.InputError as error:  # as of the post-activation BiT
            print(f"not measured out: {error}", file=sys.stderr)
            return found
        theirs = peer_output(peers, format, path, images, case)
        if theirs is not None:
            mine = model(images) if theirs.ndim == 2 else model.tokens(images)
            found["out"] = max(found["out"], difference(mine, theirs))
    return found


def golden_case(name: str, given: dict[str, Any]) -> tuple[Any, dict[str, Tensor], Tensor]:
    """The model of a golden folder, what its codebase computed, and of which images."""
    folder = GOLDEN / name
    manifest = json.loads((folder / "manifest.json").read_text())
    path = folder if (folder / "config.json").is_file() else folder / manifest["weights"]
    with np.load(folder / "expected.npz") as arrays:
        key = "output" if "logits" in arrays else "x_norm_clstoken"
        expected = {"output": torch.from_numpy(arrays["logits" if key == "output" else key])}
    return vt.load(path, **given), expected, torch.from_numpy(np.load(folder / "input.npy"))


def peer_case(
    peers: ModuleType, name: str, given: dict[str, Any]
) -> tuple[Any, dict[str, Tensor], Tensor, Any]:
    """A case of peer_families.py, made again where its codebase is installed."""
    with tempfile.TemporaryDirectory() as made:
        case, folder = None, TESTS / "data" / "families" / name
        try:
            peers.write(name, Path(made))
            case, folder = peers.CASES[name](), Path(made)
        except ImportError as error:
            print(f"{name}: {error}: the kept files are compared", file=sys.stderr)
        expected = load_file(folder / "expected.safetensors")
        expected.pop("resized", None)
        weights = [file for file in sorted(folder.iterdir()) if file.name != "expected.safetensors"]
        model = vt.load(folder if (folder / "config.json").is_file() else weights[0], **given)
        return model, expected, peers.images(model.config.image_size), case


@torch.no_grad()
def measured(only: str | None = None) -> dict[str, dict[str, dict[str, float | None]]]:
    """Every family and format, with the largest difference of its cases."""
    logging.disable(logging.WARNING)  # what the files leave open is given or known
    peers = program(TESTS / "peer_families.py")
    golden = program(ROOT / "tests" / "golden" / "test_checkpoints.py").CASES
    tests = program(TESTS / "test_families.py")
    given = tests.GIVEN
    live = live_cases(peers)
    rows: dict[str, dict[str, dict[str, float | None]]] = {}
    for family in FAMILIES:
        for format in dict.fromkeys(family.read) if only in (None, family.name) else ():
            key, written = (family.name, format), format in family.written
            found = []
            for name in GOLDEN_CASES.get(key, ()):
                model, expected, images = golden_case(name, golden[name])
                found.append(compare(peers, model, expected, images, format, written, None))
            for name in PEER_CASES.get(key, ()):
                model, expected, images, case = peer_case(peers, name, given[name])
                found.append(compare(peers, model, expected, images, format, written, case))
            for make in live.get(key, []):
                case, images = make(), peers.images()
                with tempfile.TemporaryDirectory() as folder:
                    case.write(Path(folder))
                    model = vt.load(folder)
                    found.append(compare(peers, model, case.compute(images), images, format, written, case))
            if family.name.startswith("MAE"):
                found.append(whole_mae(peers, tests, format))
            assert found, f"no case of {key}"
            ways = ("in", "out") if written else ("in",)
            rows.setdefault(family.name, {})[format] = {
                way: max((each[way] for each in found if way in each), default=None) for way in ways
            }
            print(family.name, format, rows[family.name][format], file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="one family, by its name")
    parser.add_argument("--out", type=Path, help="a folder for the result")
    options = parser.parse_args()
    packages = {}
    for name in ("timm", "transformers", "torch", "open_clip_torch"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    rows = measured(options.only)
    result = {
        "date": str(date.today()),
        "machine": platform.machine(),
        "versions": packages,
        "families": rows,
    }
    print(json.dumps(result, indent=1))
    if options.out:
        (options.out / RESULT).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
