"""The programs of the page, run by node."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.addons.learn_page.page import encoded, tensors_of
from vitreous.models.vit import ViT

FOLDER = Path(vt.__file__).parent / "addons" / "learn_page"


def run_node(program: str, data: Any = None) -> Any:
    """What `program`, the body of a function of `data`, returns; it has what vit.js and train.js define."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: the programs of the page are tried in a browser alone")
    source = "".join((FOLDER / name).read_text("utf-8") for name in ("vit.js", "train.js"))
    source += f"""
    const data = JSON.parse(require("fs").readFileSync(0, "utf8"));
    process.stdout.write(JSON.stringify(((data) => {{ {program} }})(data)));
    """
    done = subprocess.run(
        [node, "-e", source], input=json.dumps(data), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def as_data(model: ViT) -> dict[str, Any]:
    """A model as the page has it."""
    tensors = dict(tensors_of(model))
    config = {**model.config.model_dump(mode="json"), "head_dim": model.config.resolved_head_dim}
    index = [[name, *each.shape] for name, each in tensors.items()]
    return {"config": config, "index": index, "weights": encoded(tensors.values(), half=False)}


def as_numbers(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.detach().float().numpy().tobytes()).decode("ascii")
