"""The output directories of training programs, opened at their newest checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import format_utils

import vitreous as vt

State = dict[str, Tensor]


def timm_state(model: vt.ViT, tmp_path: Path) -> State:
    vt.save(model, tmp_path / "state.pth", format="timm", overwrite=True)
    return dict(torch.load(tmp_path / "state.pth"))


def lightning(state: State, folder: Path, step: int) -> None:
    folder /= f"lightning_logs/version_{step // 10}/checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    content = {"state_dict": {f"model.{name}": each for name, each in state.items()}, "epoch": 1}
    torch.save(content, folder / f"epoch=1-step={step}.ckpt")


def last_of_lightning(state: State, folder: Path, step: int) -> None:
    """`last.ckpt` is newer than those that were best."""
    lightning(state, folder, 5)
    path = folder / "lightning_logs/version_0/checkpoints/epoch=1-step=5.ckpt"
    shutil.copy(path, path.with_name("last.ckpt" if step == 12 else f"epoch=9-step={step}.ckpt"))


def trainer(state: State, folder: Path, step: int) -> None:
    folder /= f"checkpoint-{step}"
    folder.mkdir(parents=True)
    torch.save(state, folder / "pytorch_model.bin")
    torch.save({"state": {0: {"exp_avg": torch.ones(3, 3)}}}, folder / "optimizer.pt")


def accelerate(state: State, folder: Path, step: int) -> None:
    folder /= f"checkpoints/checkpoint_{step}"
    folder.mkdir(parents=True)
    torch.save(state, folder / "pytorch_model.bin")


def deepspeed(state: State, folder: Path, step: int) -> None:
    folder /= f"global_step{step}"
    folder.mkdir(parents=True)
    torch.save({"module": state}, folder / "mp_rank_00_model_states.pt")
    torch.save({"optimizer_state_dict": {}}, folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt")


@pytest.mark.parametrize("write", [lightning, last_of_lightning, trainer, accelerate, deepspeed])
@torch.no_grad()
def test_the_newest_checkpoint_is_opened_and_said(
    write: Callable[[State, Path, int], None], tiny: Any, tmp_path: Path
) -> None:
    models = {2: tiny(), 12: tiny(), 9: tiny()}
    for step, model in models.items():
        write(timm_state(model, tmp_path), tmp_path / "out", step)
    images = torch.randn(2, 3, 32, 32)
    loaded: Any = vt.load(tmp_path / "out", heads=4)
    assert torch.allclose(loaded(images), models[12](images), atol=1e-5)
    assert Path(loaded.origin.source).is_relative_to(tmp_path / "out")
    assert loaded.origin.source.removeprefix(str(tmp_path)).count("12") or "last." in loaded.origin.source


def test_a_folder_without_checkpoints_says_so(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(vt.InputError, match="contains no weights"):
        vt.load(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_shards_are_refused_with_the_command_that_joins_them(tiny: Any, tmp_path: Path) -> None:
    state = timm_state(tiny(), tmp_path)
    shards = tmp_path / "out" / "checkpoint" / "step-2"
    dcp.save({"model": state}, checkpoint_id=shards, no_dist=True)
    for given in (tmp_path / "out", shards / "__0_0.distcp"):
        with pytest.raises(vt.InputError, match=r"format_utils dcp_to_torch FOLDER model\.pt"):
            vt.load(given)
    format_utils.dcp_to_torch_save(shards, tmp_path / "model.pt")
    loaded: Any = vt.load(tmp_path / "model.pt", heads=4)
    assert loaded.config.depth == 2


@pytest.mark.slow
@pytest.mark.peers
def test_what_transformers_trainer_writes(timm: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=3)
    model = transformers.ViTForImageClassification(config)
    data = [{"pixel_values": torch.randn(3, 32, 32), "labels": number % 3} for number in range(12)]
    rules = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        save_steps=2,
        max_steps=10,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to="none",
        learning_rate=1e-2,
    )
    transformers.Trainer(model=model, args=rules, train_dataset=data).train()
    loaded: Any = vt.load(tmp_path / "out")
    assert loaded.origin.source.endswith("checkpoint-10")
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert (loaded(images) - model.eval()(images).logits).abs().max() < 2e-5
