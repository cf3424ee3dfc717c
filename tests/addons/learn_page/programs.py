"""The programs of the page, run by node."""

from __future__ import annotations

import base64
import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import vitreous as vt
from vitreous.addons.learn_page.page import as_base64, page_config, tensors_of
from vitreous.models.vit import ViT

PROGRAMS = ("kernel.js", "stem.js", "vit.js", "train.js")
WITHOUT_KERNEL = "Kernel.make = () => null;"  # as in a browser that has no WebAssembly, or no SIMD
FOLDER = Path(vt.__file__).parent / "addons" / "learn_page"


def run_node(program: str, data: Any = None) -> Any:
    """What `program`, the body of a function of `data`, returns; it has what kernel.js, stem.js, vit.js and
    train.js define."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: the programs of the page are tried in a browser alone")
    source = "".join((FOLDER / name).read_text("utf-8") for name in PROGRAMS)
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
    index = [[name, *each.shape] for name, each in tensors.items()]
    return {
        "config": page_config(model.config),
        "index": index,
        "weights": as_base64(tensors.values(), half=False),
    }


def as_numbers(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.detach().float().numpy().tobytes()).decode("ascii")


TRAIN = """
  const tensors = unpacked(data.index, decoded(data.weights));
  const trainer = new Trainer(data.config, tensors, data.labels.length);
  const images = data.images.map((each) => tensor(decoded(each), ...data.shape));
  const losses = [];
  let gradients = null;
  for (let step = 0; step < data.steps; step++) {
    losses.push(trainer.forward(images, data.labels).loss);
    trainer.backward();
    gradients ??= Object.fromEntries(Object.entries(trainer.gradients).map(([k, v]) => [k, Array.from(v)]));
    trainer.update(data.rate, data.options);
  }
  const after = Object.fromEntries(Object.entries(tensors).map(([k, v]) => [k, Array.from(v.data)]));
  return { losses, gradients, after };
"""


def parameters(model: ViT) -> dict[str, torch.nn.Parameter]:
    """The parameters by the names that they have in the page."""
    return {name.replace("position.table", "position.rows"): each for name, each in model.named_parameters()}


def train_in_pytorch(
    model: ViT, images: torch.Tensor, labels: list[int], steps: int, rate: float, options: dict[str, Any]
) -> tuple[list[float], dict[str, torch.Tensor], ViT]:
    """The losses of each step, the gradients of the first, and the model after the last; in float64."""
    model = copy.deepcopy(model).double().train()
    named = parameters(model)
    decayed = [each for name, each in named.items() if each.ndim > 1 and name.endswith("weight")]
    others = [each for each in named.values() if all(each is not one for one in decayed)]
    groups = [
        {"params": decayed, "weight_decay": options["decay"]},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=tuple(options["betas"]), eps=options["eps"])
    losses, first = [], {}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.double()), torch.tensor(labels))
        loss.backward()
        losses.append(loss.item())
        first = first or {name: each.grad.clone() for name, each in named.items() if each.grad is not None}
        optimizer.step()
    return losses, first, model
