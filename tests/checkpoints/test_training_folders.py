"""The output directories of training programs, opened at their newest checkpoint; folders of
torch.distributed.checkpoint (`sharded_files.py` made the one that is kept)."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

import vitreous as vt

FOLDER = Path(__file__).parent / "data" / "published" / "sharded"
INNER = Path("checkpoint-20") / "pytorch_model_fsdp_0"
State = dict[str, Tensor]


@pytest.mark.parametrize("part", [Path(), Path("checkpoint-20"), INNER, INNER / ".metadata"])
@torch.no_grad()
def test_shards_of_fsdp_give_what_the_model_gave(part: Path) -> None:
    given = {"heads": 2} if INNER.name in part.parts else {}
    model: Any = vt.load(FOLDER / part, **given)
    made = json.loads(FOLDER.with_suffix(".json").read_text())
    images, expected = torch.tensor(made["images"]), torch.tensor(made["outputs"])
    assert (model(images) - expected).abs().max() < 2e-5 * expected.abs().max()
    assert INNER.name in model.origin.source
    assert model.config.heads == 2


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


@pytest.mark.filterwarnings("ignore")
def torchtitan(state: State, folder: Path, step: int) -> None:
    optimizer = {"optimizer": {name: {"exp_avg": torch.ones_like(each)} for name, each in state.items()}}
    dcp.save({"model": state} | optimizer, checkpoint_id=folder / "checkpoint" / f"step-{step}", no_dist=True)


@pytest.mark.parametrize("write", [lightning, last_of_lightning, trainer, accelerate, deepspeed, torchtitan])
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
    with pytest.raises(vt.InputError, match="holds no weights"):
        vt.load(tmp_path)


def change(metadata: Any, place: str, value: Any) -> None:
    """Change the first entry of the storage, or the first tensor."""
    name = next(name for name in metadata.state_dict_metadata if name.endswith("cls_token"))
    index = next(each for each in metadata.storage_data if each.fqn == name)
    described = metadata.state_dict_metadata[name]
    if place == "size":
        described.size = torch.Size(value)
    elif place == "chunks":
        described.chunks = described.chunks * value
    else:
        setattr(metadata.storage_data[index], place, value)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            "relative_path",
            "../elsewhere.distcp",
            r"points at '\.\./elsewhere\.distcp': parts must be",
        ),
        ("relative_path", "__9_0.distcp", r"__9_0\.distcp, which \.metadata names, is missing"),
        ("offset", 10**9, "its parts are not the whole of it"),
        ("offset", 7, "share bytes|is damaged"),
        ("length", 10**12, "its parts are not the whole of it"),
        ("transform_descriptors", ["zstd"], "is compressed, which is not read here"),
        ("size", (10**9, 10**9), "its parts are not the whole of it"),
        ("size", (1, 2, 8), "its parts are not the whole of it"),
        ("chunks", 2, "its parts are not the whole of it|share bytes"),
        ("chunks", 0, "its parts are not the whole of it"),
    ],
)
def test_shards_that_are_not_what_is_said_of_them(
    place: str, value: Any, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(FOLDER / INNER, folder)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata, place, value)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(vt.InputError, match=message):
        vt.load(folder, heads=2)


class Touches:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_the_description_of_shards_is_not_run(tmp_path: Path) -> None:
    folder, target = tmp_path / "m", tmp_path / "touched"
    shutil.copytree(FOLDER / INNER, folder)
    (folder / ".metadata").write_bytes(pickle.dumps({"state_dict_metadata": Touches(target)}))
    with pytest.raises(vt.InputError, match=r"is not the \.metadata of torch\.distributed\.checkpoint"):
        vt.load(folder)
    assert not target.exists()
    for content in (b"", b"\x80\x04", bytes(9 * 2**20)):
        (folder / ".metadata").write_bytes(content)
        with pytest.raises(vt.InputError, match=r"is not the \.metadata|far larger"):
            vt.load(folder)


def test_damaged_shards(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(FOLDER / INNER, folder)
    path = folder / "__0_0.distcp"
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 37):
        content[place] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(vt.InputError, match="is damaged"):
        vt.load(folder, heads=2)


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
