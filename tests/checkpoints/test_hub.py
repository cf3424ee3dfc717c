"""The Hugging Face hub, played by a server on this machine: names, revisions, folders, uploads."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from docstring_examples import what_differs, write_place
from vitreous.cli import run


@pytest.fixture
def hub(tmp_path: Path, hub_constants: Callable[..., None]) -> Iterator[Any]:
    path = Path(__file__).with_name("fake_hub.py")
    spec = importlib.util.spec_from_file_location("fake_hub", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Hub()
    hub_constants(
        ENDPOINT=server.address,
        HUGGINGFACE_CO_URL_TEMPLATE=server.address + "/{repo_id}/resolve/{revision}/{filename}",
        HF_HUB_CACHE=str(tmp_path / "hub-cache"),
        HF_HUB_OFFLINE=False,  # the hub of the tests is on this machine
    )
    yield server
    server.shutdown()
    server.server_close()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_names_revisions_folders_and_files(tiny: Any, tmp_path: Path, hub: Any, hub_constants: Any) -> None:
    first, second = tiny(), tiny()
    for name, model in (("one", first), ("two", second)):
        vt.save(model, tmp_path / name, format="timm", license="cc-by-nc-4.0")
    one, two = files_of(tmp_path / "one"), files_of(tmp_path / "two")
    hub.repositories = {
        "timm/vit_tiny.augreg": one | {f"onnx/{name}": data for name, data in two.items()},
        "timm/vit_tiny.augreg@v2": two,
        "timm/vit_tiny.augreg@refs%2Fpr%2F3": two,
    }
    images = torch.randn(2, 3, 32, 32)
    wanted = {
        "": first,
        "@v2": second,
        "@refs/pr/3": second,
        "/onnx": second,
        "/onnx/model.safetensors": second,
        "/model.safetensors@v2": second,
    }
    for rest, model in wanted.items():
        hub.asked.clear()
        loaded = vt.load(f"hf:timm/vit_tiny.augreg{rest}")
        assert torch.equal(loaded(images), model(images)), rest
        assert loaded.origin.source == f"hf:timm/vit_tiny.augreg{rest}"
        assert loaded.origin.license == "cc-by-nc-4.0", rest
        assert sum(name.endswith(".safetensors") for name in hub.asked) <= 1, "no weights of another folder"
    with pytest.raises(vt.InputError, match=r"there is no other\.pth in timm/vit_tiny.augreg"):
        vt.load("hf:timm/vit_tiny.augreg/other.pth")
    with pytest.raises(vt.InputError, match="cannot get hf:timm/nothing from the hub"):
        vt.load("hf:timm/nothing")

    hub_constants(HF_HUB_OFFLINE=True)  # as $HF_HUB_OFFLINE=1 sets it
    assert torch.equal(vt.load("hf:timm/vit_tiny.augreg")(images), first(images))
    with pytest.raises(
        vt.InputError, match=r"is not in the cache, and the hub cannot be reached \(or is set off"
    ):
        vt.load("hf:google/vit-base-patch16-224")


@pytest.mark.slow
def test_an_upload_can_be_loaded(tiny: Any, hub: Any, tmp_path: Path) -> None:
    model = tiny()
    model.labels = ["ant", "bee", "cat", "dog", "elk"]
    address = vt.push_to_hub(model, "me/flowers", license="apache-2.0", token="hf_secret")
    assert address.startswith(f"{hub.address}/me/flowers/commit/")
    assert "Bearer hf_secret" in hub.tokens
    card = hub.repositories["me/flowers"]["README.md"].decode()
    assert card.startswith(
        "---\nlibrary_name: vitreous\nlicense: apache-2.0\npipeline_tag: image-classification\n"
    )
    again = vt.load("hf:me/flowers")
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(images), model(images))
    assert again.labels == model.labels
    run_folder = tmp_path / "run"  # whose own card is taken
    vt.save(model, run_folder / "model")
    (run_folder / "config.toml").write_text("")
    (run_folder / "README.md").write_text("# mine\n\n| Accuracy | 0.9 |\n")
    vt.push_to_hub(run_folder, "me/run", license="mit")
    card = hub.repositories["me/run"]["README.md"].decode()
    assert "\nlicense: mit\n" in card
    assert card.endswith("---\n# mine\n\n| Accuracy | 0.9 |\n")
    (run_folder / "README.md").unlink()
    assert vt.push_to_hub(run_folder, "me/bare", license="mit")
    with pytest.raises(
        vt.InputError, match="cannot upload others/flowers to the hub: not allowed: log in with"
    ):
        vt.push_to_hub(model, "others/flowers")
    with pytest.raises(vt.InputError, match="'flowers' is not a repository of the hub: write owner/name"):
        vt.push_to_hub(model, "flowers")
    with pytest.raises(vt.InputError, match="format torchvision is a single file: the hub takes"):
        vt.push_to_hub(model, "me/flowers", format="torchvision")


def test_the_command_line_converts_from_and_to_the_hub(
    tiny: Any, hub: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vt.save(tiny(), tmp_path / "m", format="huggingface")
    hub.repositories["org/name"] = files_of(tmp_path / "m")
    assert (
        run(["convert", "hf:org/name", str(tmp_path / "timm"), "--format", "timm", "--license", "mit"]) == 0
    )
    card = (tmp_path / "timm/README.md").read_text()
    assert "base_model: org/name" in card
    assert "license: mit" in card
    assert "| Weights from | `hf:org/name` (huggingface, ViTForImageClassification) |" in card
    assert run(["convert", str(tmp_path / "timm"), "hf:me/copy", "--format", "timm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["path"].startswith(f"{hub.address}/me/copy")
    assert json.loads(hub.repositories["me/copy"]["config.json"])["architecture"] == "vit_base_patch16_224"


@pytest.mark.slow
def test_the_example_of_an_upload_does_what_it_says(
    hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.chdir(tmp_path)
    write_place(tmp_path)
    assert what_differs("push_to_hub") == ""
    assert set(hub.repositories) == {"me/photos", "me/photos-timm"}
