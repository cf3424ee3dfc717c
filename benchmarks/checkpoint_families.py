"""How far the models of each family and format are from their own codebase, in and out.

    python benchmarks/checkpoint_families.py [--only DINOv3] [--out benchmarks/results]

Tiny models of each codebase, every weight random: *in* is the largest difference between what the codebase
computes and what the model that vitreous reads from its files computes; *out* between the model and what the
codebase itself computes of the file that vitreous writes. `by` says who opened that file: where the codebase
is not at hand (Google's needs JAX), vitreous reads it back, and what the codebase computed when the golden
models were made stands for it. facebookresearch/dinov3 and mae are found on PYTHONPATH, the code of InternViT
by INTERNVIT_CODE, that of ViT-5 by VIT5_CODE, FrancescoSaverioZuppichini/ViT by VIT_README.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from peers import declare_all
from record import write_results
from safetensors.torch import load_file
from torch import Tensor

import vitreous as vt
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.formats import added_families

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "checkpoints"
GOLDEN = ROOT / "tests" / "golden" / "data"
RESULT = "checkpoint_families.json"

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
    ("ViT", "vit-pytorch"): ("vit-pytorch-qk-norm", "vit-pytorch-registers"),
    ("DINOv3", "dinov3"): ("dinov3", "dinov3-swiglu"),
    ("DINOv3", "huggingface"): ("transformers-dinov3", "transformers-dinov3-gated"),
    ("DINOv3", "timm"): ("timm-dinov3",),
    ("CLIP", "open-clip"): ("openai-clip", "open-clip"),
    ("SigLIP 2, NaFlex", "huggingface"): ("siglip2-naflex",),
    ("Perception Encoder", "timm"): ("timm-pe-core", "timm-pe-lang"),
    ("EVA, EVA-02", "timm"): ("timm-eva02", "timm-eva02-post-norm"),
    ("RoPE-ViT", "timm"): ("timm-rope-mixed",),
    ("BEiT, BEiT v2", "huggingface"): ("beit", "beit-pretrained", "beit-absolute"),
    ("BEiT, BEiT v2", "timm"): ("timm-beit", "timm-beit-shared", "timm-beit-absolute"),
    ("data2vec", "huggingface"): ("data2vec",),
    ("AIMv2", "aimv2"): ("aimv2", "aimv2-native"),
    ("AIMv2", "timm"): ("timm-aimv2",),
    ("InternViT", "huggingface"): ("internvl", "internvl-rms", "internvit", "internvit-6b"),
    ("MLCD", "huggingface"): ("mlcd",),
    ("TIPSv2", "huggingface"): ("tipsv2",),
    ("ViT-5", "vit-5"): ("vit5",),
}
# Of formats that are only read: files in tests/checkpoints/data/published.
PUBLISHED: dict[tuple[str, str], tuple[str, ...]] = {
    ("ViT", "pytorch-pretrained-vit"): ("pretrained_vit",),
    ("ViT", "jeonsworld"): ("jeonsworld",),
    ("ViT", "monai"): ("monai_classifier", "monai_encoder"),
    ("ViT", "openmmlab"): (
        "mmpretrain_vit",
        "mmpretrain_mae",
        "mmpretrain_both_norms",
        "mmpretrain_swiglu",
        "mmseg",
    ),
    ("DeiT", "openmmlab"): ("mmpretrain_deit",),
    ("BEiT, BEiT v2", "openmmlab"): ("mmpretrain_beit",),
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

    def ijepa() -> Any:
        """Its features, and with a head."""
        sizes = peers.SIZED | {"num_labels": peers.CLASSES}
        return transformers("IJepaForImageClassification", "IJepaConfig", "logits", **sizes)

    return {
        ("I-JEPA", "huggingface"): [ijepa],
        ("CLIP", "huggingface"): [clip],
        ("CLIP", "timm"): [lambda: timm("vit_base_patch16_clip_224")],
        ("SigLIP", "huggingface"): [
            lambda: transformers("SiglipVisionModel", "SiglipVisionConfig", **peers.SIZED)
        ],
        ("SigLIP", "timm"): [lambda: timm("vit_base_patch16_siglip_224")],
        ("DINOv2", "timm"): [lambda: timm("vit_small_patch14_reg4_dinov2")],
        ("MAE, with its decoder", "huggingface"): [mae],
    }


def whole_mae(peers: ModuleType, tests: ModuleType, format: str) -> dict[str, Any]:
    """The prediction of a whole MAE: of transformers, or of its authors' code, which has timm's names."""
    images, noise = peers.images(), peers.noise()
    if format == "timm":
        folder = TESTS / "data" / "families" / "mae"
        expected = load_file(folder / "expected.safetensors")["prediction"]
        mae: Any = vt.MAE.load(folder / "model.pth", **tests.GIVEN["mae"] | tests.WHOLE)
    else:
        decoder = {"decoder_hidden_size": 8, "decoder_num_hidden_layers": 1, "decoder_intermediate_size": 16}
        sizes = peers.SIZED | decoder | {"decoder_num_attention_heads": 2}
        case = peers.transformers_case("ViTMAEForPreTraining", "ViTMAEConfig", None, **sizes)
        expected = case.module(pixel_values=images, noise=noise).logits
        mae = vt.MAE.load(case.module)
    predicted = mae.predict(images, mae.mask(noise))
    found = {"in": difference(predicted, expected)}
    with tempfile.TemporaryDirectory() as written:
        path = Path(written) / ("mae.pth" if format == "timm" else "mae")
        found["out"] = vt.save(mae, path, format=format)
        try:
            theirs = tests.prediction_of_its_own_code(peers, path)
        except ImportError as error:
            print(f"{path.name}: {error}: it is read back", file=sys.stderr)
            return found
    return found | {"out": difference(predicted, theirs), "by": MAE_CODE[format]}


MAE_CODE = {"timm": "facebookresearch/mae", "huggingface": "transformers"}


def text_model(name: str) -> dict[str, float]:
    """The logits of a translator or a reader, or the vectors of the two stacks of torch."""
    rng = torch.Generator().manual_seed(0)
    if name == "torch.nn.Transformer":
        peer: Any = torch.nn.Transformer(16, 2, 2, 2, 32, batch_first=True, norm_first=True).eval()
        vectors = torch.randn(2, 2, 4, 16, generator=rng)
        return {"in": difference(vt.load(peer)(*vectors), peer(*vectors))}
    golden = {"Marian": "hf_marian", "TrOCR": "hf_trocr"}[name]
    import transformers

    kind = transformers.MarianMTModel if name == "Marian" else transformers.VisionEncoderDecoderModel
    peer, model = kind.from_pretrained(GOLDEN / golden).eval(), vt.load(GOLDEN / golden)
    assert isinstance(model, vt.Transformer | vt.Captioner)
    ids = torch.randint(3, model.text.config.vocabulary - 1, (2, 2, 5), generator=rng)
    source = ids[0]
    if isinstance(model, vt.Captioner):
        source = torch.randn(2, 3, *model.config.encoder.image_size, generator=rng)
    return {"in": difference(model(source, ids[1]), peer(source, decoder_input_ids=ids[1]).logits)}


def difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape, (one.shape, other.shape)
    return (one - other).abs().max().item()


def peer_output(
    peers: ModuleType, format: str, path: Path, images: Tensor, case: Any
) -> tuple[Tensor, str] | None:
    """What the codebase of a format makes of a file that vitreous wrote, and its name; None where it is not
    at hand."""
    if format == "timm" and path.is_dir():
        timm: Any = peers.import_beside("timm_registry").import_timm()
        return timm.create_model(f"local-dir:{path}", pretrained=True).eval()(images), "timm"
    if path.is_dir():
        import transformers

        described = json.loads((path / "config.json").read_text())
        name = described["architectures"][0]
        if name == "InternVisionModel":  # whose code is of transformers 4, and not loaded by 5 itself
            if case is None:
                return None
            module = type(case.module)(type(case.module.config).from_pretrained(path)).eval()
            module.load_state_dict(load_file(path / "model.safetensors"))
            return module(images).pooler_output, "OpenGVLab/InternVL"
        module = getattr(transformers, name).from_pretrained(path).eval()
        if name == "Siglip2VisionModel":  # which takes flat patches
            case.module.load_state_dict(module.state_dict())
            return case.compute(images)["output"], "transformers"
        found = module(pixel_values=images)
        if "logits" in found:
            return found.logits, "transformers"
        # a ViTModel draws the pooler that its file has not
        pooled = None if name == "ViTModel" else getattr(found, "pooler_output", None)
        return found.last_hidden_state if pooled is None else pooled, "transformers"
    if format in STATE_DICTS and case is not None:
        # of the README's two forms the one that is written
        case = peers.readme_of_vit(1) if format == "frankzvit" else case
        state = {name.removeprefix("visual."): tensor for name, tensor in torch.load(path).items()}
        missing = case.module.load_state_dict(state, strict=False)
        # that of local crops, which only pre-training has
        assert not missing.unexpected_keys, missing
        assert all(name.startswith("local_cls_norm.") for name in missing.missing_keys), missing
        return case.compute(images)["output"], STATE_DICTS[format]
    return None


STATE_DICTS = {
    "dinov3": "facebookresearch/dinov3",
    "open-clip": "open_clip",
    "vit-5": "wangf3014/ViT-5",
    "vit-pytorch": "vit-pytorch",
    "frankzvit": "FrancescoSaverioZuppichini/ViT",
}


def compare(
    peers: ModuleType, model: Any, expected: dict[str, Tensor], images: Tensor, format: str, case: Any
) -> dict[str, Any]:
    """The differences of one case."""
    ours = {"tokens": model.tokens, "output": model}
    found: dict[str, Any] = {
        "in": max(difference(ours[name](images), value) for name, value in expected.items())
    }
    with tempfile.TemporaryDirectory() as folder:
        ending = (checkpoint_formats()[format].suffixes or ("",))[0]
        if format == "timm" and model.config.stem.kind == "resnet":
            ending = ".pth"  # timm has no architecture with so small a ResNet
        path = Path(folder) / f"model{ending}"
        drop = (
            ("position.rotary.periods",)
            if format != "dinov3" and getattr(model.config, "rotary", None)
            else ()
        )
        try:
            found["out"] = vt.save(model, path, format=format, drop=drop)
        except vt.InputError as error:  # as of the post-activation BiT
            print(f"not measured out: {error}", file=sys.stderr)
            return found
        if output := peer_output(peers, format, path, images, case):
            theirs, found["by"] = output
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


def bit_case() -> tuple[Any, dict[str, Tensor], Tensor]:
    """A pre-activation BiT, with what timm's ResNetV2 computed of its file."""
    folder = TESTS / "data" / "bit"
    with np.load(folder / "expected.npz") as arrays:
        expected = {"output": torch.from_numpy(arrays["logits"])}
    return vt.load(folder / "weights.npz"), expected, torch.from_numpy(np.load(folder / "input.npy"))


def published(name: str) -> float:
    """How far a published file is from what its codebase computed."""
    return difference(*program(TESTS / "test_published_files.py").compared(name))


# Cases of tests/checkpoints/test_published_forms.py.
PERCEPTION_ENCODERS = {
    "Perception Encoder": ("perception_encoder",),
    "PE-Lang, PE-Spatial": (
        "perception_encoder_lang",
        "perception_encoder_spatial",
        "perception_encoder_without_class_token",
    ),
}


def perception_encoder(peers: ModuleType, cases: tuple[str, ...]) -> float:
    """How far Meta's names of a Perception Encoder are from timm's code, of the largest output: its width is
    that of a published model, and random weights of this width make outputs of hundreds."""
    peers.import_beside("timm_registry").import_timm()
    forms, shares = program(TESTS / "test_published_forms.py").CASES, []
    for name in cases:
        state, given, compare = forms[name]()
        found, expected = compare(vt.load(state, **given))
        shares.append(difference(found, expected) / expected.abs().max().item())
    return max(shares)


def naflex(tests: ModuleType, peers: ModuleType) -> dict[str, Any]:
    """How far a NaFlexViT on images of several shapes is from timm's code, in and out."""
    timm = peers.import_beside("timm_registry").import_timm()
    args = {"embed_dim": 64, "depth": 2, "num_heads": 4, "mlp_ratio": 2, "pos_embed_grid_size": (4, 4)}
    images, far = tests.images(16), {"in": 0.0, "out": 0.0}
    for name in ("naflexvit_base_patch16_par_gap", "naflexvit_base_patch16_siglip"):
        module = tests.drawn(timm.create_model(name, num_classes=5, **args))
        expected = module(tests.naflex_batch(images, 16))
        model = vt.load(module)
        far["in"] = max(far["in"], difference(vt.NativeAspect(model)(images), expected))
        with tempfile.TemporaryDirectory() as folder:
            vt.save(model, Path(folder) / "m", format="timm")
            written = json.loads((Path(folder) / "m" / "config.json").read_text(encoding="utf-8"))
            again = timm.create_model(written["architecture"], **written["model_args"]).eval()
            again.load_state_dict(load_file(Path(folder) / "m" / "model.safetensors"))
        far["out"] = max(far["out"], difference(again(tests.naflex_batch(images, 16)), expected))
    return {**far, "by": "timm"}


def listed_of_images() -> list[tuple[str, str, str]]:
    """Family, format, and the ways that this is gone, of every family of models of images."""
    texts = added_families()
    rows = ((name, formats.items()) for name, formats in vt.list_families().items() if name not in texts)
    return [(name, format, ways) for name, formats in rows for format, ways in formats]


@torch.no_grad()
def measured(only: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """Every family and format, with the largest difference of its cases."""
    declare_all()
    logging.disable(logging.WARNING)  # what the files leave open is given or known
    peers = program(TESTS / "peer_families.py")
    golden = program(ROOT / "tests" / "golden" / "test_checkpoints.py").CASES
    tests = program(TESTS / "test_families.py")
    given = tests.GIVEN
    live = live_cases(peers)
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for family, format, ways in listed_of_images():
        if only not in (None, family):
            continue
        if ways == "in":
            names = PUBLISHED.get((family, format), ())
            rows.setdefault(family, {})[format] = {"in": max(map(published, names), default=None)}
            if format == "perception-encoder":
                rows[family][format] = {"in": perception_encoder(peers, PERCEPTION_ENCODERS[family])}
            continue
        key, found = (family, format), list[dict[str, Any]]()
        for name in GOLDEN_CASES.get(key, ()):
            found.append(compare(peers, *golden_case(name, golden[name]), format, None))
        for name in PEER_CASES.get(key, ()):
            model, expected, images, case = peer_case(peers, name, given[name])
            found.append(compare(peers, model, expected, images, format, case))
        for make in live.get(key, []):
            case, images = make(), peers.images()
            with tempfile.TemporaryDirectory() as folder:
                case.write(Path(folder))
                model = vt.load(folder)
                found.append(compare(peers, model, case.compute(images), images, format, case))
        if family.startswith("MAE"):
            found.append(whole_mae(peers, tests, format))
        if family == "NaFlexViT":
            found.append(naflex(program(TESTS / "test_native_aspect.py"), peers))
        if format == "bit":
            found.append(compare(peers, *bit_case(), format, None))
        assert found, f"no case of {key}: add one to PEER_CASES"
        largest = {way: max(each[way] for each in found if way in each) for way in ("in", "out")}
        opened = ", ".join(dict.fromkeys(each["by"] for each in found if "by" in each)) or None
        rows.setdefault(family, {})[format] = largest | {"by": opened}
        print(family, format, rows[family][format], file=sys.stderr)
    for name, format in added_families().items() if only is None else ():
        rows[name] = {format: text_model(name)}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="one family, by its name")
    parser.add_argument("--out", type=Path, help="a folder for the result")
    options = parser.parse_args()
    out = options.out / RESULT if options.out else None
    packages = "timm", "transformers", "open_clip_torch"
    write_results({"families": measured(options.only)}, out, packages=packages)


if __name__ == "__main__":
    main()
