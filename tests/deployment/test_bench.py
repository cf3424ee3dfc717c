"""The comparison of speeds: that it compares the same models, and says what it cannot."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.cli import run
from vitreous.deployment import bench
from vitreous.deployment.bench import PEERS, Peer, Way, compare
from vitreous.errors import InputError

SMALL = vt.ViTConfig(
    image_size=16, patch_size=8, width=16, depth=2, heads=2, mlp_dim=24, num_classes=3, channels=3
)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_the_peers_models_are_of_the_same_size(name: str) -> None:
    pytest.importorskip({"huggingface": "transformers", "vit-pytorch": "vit_pytorch"}.get(name, name))
    config = vt.create("ViT-Ti/16", image_size=32, num_classes=10).config
    model = PEERS[name].build(config)
    # vit-pytorch has no bias on q, k and v, and norms and biases around the patches.
    assert parameters(model) == pytest.approx(
        parameters(vt.create("ViT-Ti/16", image_size=32, num_classes=10)), rel=2e-3
    )
    assert bench.logits(model(torch.zeros(2, 3, 32, 32))).shape == (2, 10)


@pytest.mark.parametrize("training", [False, True])
def test_ratios_come_from_turns(monkeypatch: pytest.MonkeyPatch, training: bool) -> None:
    """A peer that computes everything three times is slower, and one that is not there is told."""

    class Thrice(nn.Module):
        def __init__(self, config: vt.ViTConfig) -> None:
            super().__init__()
            self.model = vt.create("ViT-Ti/16", image_size=32, depth=6, num_classes=config.num_classes)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return sum(self.model(nn.functional.interpolate(images, 32)) for _ in range(3))  # type: ignore[return-value]

    def missing(config: vt.ViTConfig) -> nn.Module:
        raise ImportError("no module named timm")

    monkeypatch.setattr(bench, "PEERS", {"thrice": Peer("torch", Thrice), "timm": Peer("timm", missing)})
    found = compare(SMALL, Way(batch=2, rounds=3, training=training))
    ours, thrice = found.contenders
    assert (ours.name, ours.ratio, thrice.name, thrice.version) == (
        "vitreous",
        1.0,
        "thrice",
        version("torch"),
    )
    assert thrice.ratio < 1
    assert thrice.images_per_second < ours.images_per_second
    assert found.absent == {"timm": "no module named timm"}
    with pytest.raises(InputError, match="timm cannot be used here: no module named timm; leave it out"):
        compare(SMALL, Way(batch=2, rounds=1), ["timm"])


@pytest.mark.parametrize(
    "changes",
    [
        {"registers": 2},
        {"num_classes": None},
        {"image_size": (16, 24)},
        {"class_token": False, "pooling": "mean"},
    ],
)
def test_what_the_peers_do_not_have(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the peers have only plain ViTs"):
        compare(SMALL.model_copy(update=changes), Way(rounds=1))


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PEERS", {})
    words = ["bench", "--image-size", "32", "--batch-size", "2", "--rounds", "2", "--train"]
    assert run([*words, "--precision", "bf16", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["contenders"][0]["images_per_second"] > 0
    assert (result["precision"], result["training"], result["absent"]) == ("bf16", True, {})
    assert run(words) == 0
    assert "times vitreous" in capsys.readouterr().out
    assert run(["bench", "--peers", "tim"]) == 2
    assert "unknown peer 'tim'" in capsys.readouterr().err
    assert run(["bench", "--model", "BiT-R50x1"]) == 2
    assert run(["bench", "--rounds", "0"]) == 2
