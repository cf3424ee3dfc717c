"""Multiplying in 8 bits: emulated here, where no hardware can."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vitreous.data.dataset import Splits
from vitreous.errors import InputError
from vitreous.models.names import create
from vitreous.tasks.fit import fit
from vitreous.tasks.training_run import plan_of_run
from vitreous.training import run as run_module
from vitreous.training.callbacks import read_metrics
from vitreous.training.config import RunConfig
from vitreous.training.precision import check_float8, from_float8, pick_precision, to_float8
from vitreous.training.run import Run
from vitreous.training.settings import configure

SMALL: dict[str, Any] = {
    "image_size": 8,
    "width": 32,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 40,
    "num_classes": 3,
}


def test_a_cpu_has_no_float8() -> None:
    for refuse in (check_float8, partial(pick_precision, "fp8")):
        with pytest.raises(InputError, match=r"needs a GPU that multiplies in 8 bits .*this is a CPU"):
            refuse(torch.device("cpu"))


@pytest.mark.slow
def test_matrices_of_the_layers_whose_sides_are_multiples_of_16_change_and_come_back() -> None:
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    model = create("ViT-Ti/4", **SMALL)
    nn.init.normal_(model.head.weight)  # type: ignore[arg-type]
    images = torch.randn(2, 3, 8, 8)
    before, weights = model(images), dict(model.named_parameters())
    to_float8(model, emulate=True)
    changed = [name for name, module in model.named_modules() if type(module).__name__ == "Float8Linear"]
    assert changed == [f"blocks.{layer}.attention.{part}" for layer in (0, 1) for part in ("qkv", "out")]
    rounded = model(images)
    assert not torch.equal(rounded, before)
    torch.testing.assert_close(rounded, before, rtol=0.1, atol=0.1)
    from_float8(model)
    assert dict(model.named_parameters()).keys() == weights.keys()
    assert all(parameter is weights[name] for name, parameter in model.named_parameters())
    assert torch.equal(model(images), before)


def test_a_model_whose_matrices_do_not_fit_is_an_input_error() -> None:
    pytest.importorskip("torchao")
    with pytest.raises(InputError, match="no encoder layer with unparametrized matrices"):
        to_float8(create("ViT-Ti/4", **{**SMALL, "width": 24}))


def test_a_run_in_8_bits_learns_like_one_in_16_and_its_model_is_plain(
    tiny: RunConfig, splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchao")
    monkeypatch.setattr(run_module, "to_float8", partial(to_float8, emulate=True))
    monkeypatch.setattr("vitreous.training.precision.check_float8", lambda device: None)
    losses = {}
    for precision in ("bf16", "fp8"):
        training = {
            "length": "24 steps",
            "precision": precision,
            "peak_lr": 1e-2,
            "records": {"log_every": 8, "save_every": 1e9},
        }
        config = configure(tiny, {"training": training, "augmentation": {"mix": None}})
        run = Run.create(tmp_path / precision, config)
        trained = fit(plan_of_run(run, splits), validate=lambda model: {})
        losses[precision] = [row["loss"] for row in read_metrics(run.path / "metrics.jsonl")]
        assert all(type(module).__name__ != "Float8Linear" for module in trained.model.modules())
        assert run.model().state_dict().keys() == trained.model.state_dict().keys()
    assert losses["fp8"][-1] < 0.9 * losses["fp8"][0]
    assert losses["fp8"] == pytest.approx(losses["bf16"], rel=0.1)
    assert losses["fp8"] != losses["bf16"]
