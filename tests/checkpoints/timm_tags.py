"""Every pre-trained tag of timm's Vision Transformers: read right, or refused by name.

    python tests/checkpoints/timm_tags.py

makes each model as timm itself does for its tag (own image size and classes, weights drawn), writes the
folder that timm writes, and compares what `vitreous.load` makes of it: the names and shapes of the whole
model, and the outputs of its first layers in float64. It prints the counts, and writes `data/timm_tags.json`.
Arguments are the beginnings of the names to be tried; the results of all others stay. With --names-only, for
models of billions of parameters, no outputs are compared.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from timm_registry import MODULES, import_timm

import vitreous as vt

RESULTS = Path(__file__).parent / "data/timm_tags.json"
DEPTH = 2
TOLERANCE = 1e-6  # of the largest output, in float64; rotary positions are computed in float32 by timm


def published(timm: ModuleType) -> list[str]:
    """Every architecture with its tag."""
    return [name for module in MODULES for name in timm.list_models(module=module, pretrained=True)]


@torch.no_grad()
def draw(model: torch.nn.Module) -> None:
    """Weights that keep the size of what goes through them; none is zero."""
    rng = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=rng)
        if parameter.ndim == 1:
            parameter.copy_(0.2 * values + float(name.endswith("weight") and "norm" in name))
        else:
            tokens = "embed" in name or "token" in name or "latent" in name
            parameter.copy_(values * (0.5 if tokens and "proj" not in name else parameter[0].numel() ** -0.5))


@torch.no_grad()
def examine(timm: ModuleType, name: str, folder: Path, *, outputs: bool) -> dict[str, Any]:
    """What becomes of a published model: refused, with the sentence; or read, with the largest difference."""
    from timm.models._hub import save_config_for_hf

    with torch.device("meta"):
        whole = timm.create_model(name)
    config = folder / "config.json"
    save_config_for_hf(whole, config)
    try:
        vt.load(whole.state_dict(), like=str(folder))
    except vt.InputError as error:
        return {"refused": str(error).removeprefix("the state dict: ")}
    if not outputs:
        return {"names": True}
    entries = json.loads(config.read_text())
    entries.pop("model_args", None)  # which earlier releases did not write
    config.write_text(json.dumps(entries))
    peer = timm.create_model(name, depth=DEPTH).eval()
    draw(peer)
    save_file(peer.state_dict(), folder / "model.safetensors")
    ours = vt.load(folder)
    stem = getattr(peer, "patch_embed", None)  # a NaFlexViT takes images of any size
    size = ours.config.image_size if stem is None else tuple(stem.img_size)
    images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1)).double()
    peer, ours = peer.double(), ours.double()
    tokens = peer.forward_features(images)
    pairs = [(ours(images), peer.forward_head(tokens))]
    difference = max(((one - other).abs().max() / other.abs().max()).item() for one, other in pairs)
    right = difference < TOLERANCE and ours.config.image_size == size and bool(pairs[0][1].any())
    return {"right" if right else "wrong": float(f"{difference:.0e}")}


def main(*beginnings: str) -> None:
    timm, outputs = import_timm(), "--names-only" not in beginnings
    beginnings = tuple(each for each in beginnings if not each.startswith("--"))
    found: dict[str, Any] = json.loads(RESULTS.read_text())["tags"] if beginnings else {}
    names = published(timm)
    for name in names:
        if name.startswith(beginnings or ""):
            with tempfile.TemporaryDirectory() as folder:
                found[name] = examine(timm, name, Path(folder), outputs=outputs)
            print(name, found[name], flush=True)
            write(timm, {each: found[each] for each in names if each in found})


def write(timm: ModuleType, found: dict[str, Any]) -> None:
    counts = {
        key: sum(key in each for each in found.values()) for key in ("right", "names", "refused", "wrong")
    }
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    text = f'{{"timm": "{timm.__version__}", "counts": {json.dumps(counts)}, "tags": {{\n{lines}\n}}}}\n'
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
