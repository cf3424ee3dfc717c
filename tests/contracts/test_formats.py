"""Every row of `FORMATS` is what CONTRIBUTING promises of one: recognized by content, not by a file's name,
and converted by the calls that users have; in both directions where it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitreous as vt
from lite0 import drawn_weights
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.saving import answers_for
from vitreous.extensions import FORMATS

IMAGES = list(FORMATS)
WRITTEN = [name for name in IMAGES if checkpoint_formats()[name].write and name != "vitreous"]
TINY: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 16,
    "num_classes": 3,
    "width": 16,
    "depth": 2,
    "heads": 2,
}
TINY |= {"mlp_dim": 32}


def file_of(name: str) -> str:
    """Return the file of a format."""
    return f"src/{FORMATS[name].address.partition(':')[0].replace('.', '/')}.py"


@torch.no_grad()
def model_for(name: str) -> Any:
    """Return a tiny model of those that a format is made for, with weights that differ."""
    format = checkpoint_formats()[name]
    kind = format.overridable or vt.ViTConfig
    fields = {field: value for field, value in TINY.items() if field in kind.model_fields}
    model: Any = vt.create(kind.model_validate(fields | dict(format.typical)), seed=0)
    for path, parameter in model.named_parameters():
        if any(re.search(pattern, path) for pattern in format.without):
            parameter.zero_()
        else:
            parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


FAMILIES = Path(__file__).parents[1] / "checkpoints" / "data" / "families"
PUBLISHED = FAMILIES.with_name("published")


def perception_encoder() -> dict[str, torch.Tensor]:
    """timm's file of a PE-Core under Meta's names."""
    names = {
        "patch_embed.proj": "conv1",
        "pos_embed": "positional_embedding",
        "cls_token": "class_embedding",
        "norm_pre": "ln_pre",
        "blocks.": "transformer.resblocks.",
        "attn.qkv.": "attn.in_proj_",
        "attn.proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
        "attn_pool.latent": "attn_pool.probe",
        "attn_pool.norm": "attn_pool.layernorm",
        "attn_pool.proj": "attn_pool.attn.out_proj",
        ".norm": ".ln_",
    }
    theirs = load_file(FAMILIES / "timm-pe-core" / "model.safetensors")
    del theirs["head.bias"]
    found = {"visual.proj": theirs.pop("head.weight").T.contiguous()}
    for kind in ("weight", "bias"):
        packed = [theirs.pop(f"attn_pool.{part}.{kind}") for part in ("q", "kv")]
        found[f"visual.attn_pool.attn.in_proj_{kind}"] = torch.cat(packed)
    for name, tensor in theirs.items():
        for one, other in names.items():
            name = name.replace(one, other)
        name = re.sub("^norm", "ln_post", name)
        found[f"visual.{name}"] = tensor[0] if name.startswith(("class", "positional")) else tensor
    return found


class Sample(NamedTuple):
    """Weights by the names of a codebase, and what these do not tell."""

    weights: Callable[[], Mapping[str, torch.Tensor]]
    told: Mapping[str, Any]


# Of each format that is only read: a small file of its codebase, or one that is made.
SAMPLES = {
    "pytorch-pretrained-vit": Sample(
        lambda: load_file(PUBLISHED / "pretrained_vit.safetensors"), {"heads": 2}
    ),
    "jeonsworld": Sample(lambda: load_file(PUBLISHED / "jeonsworld.safetensors"), {"heads": 2}),
    "monai": Sample(lambda: load_file(PUBLISHED / "monai_classifier.safetensors"), {"heads": 2}),
    "openmmlab": Sample(lambda: load_file(PUBLISHED / "mmpretrain_vit.safetensors"), {"heads": 2}),
    "efficientnet-lite": Sample(drawn_weights, {"image_size": 32}),
    "perception-encoder": Sample(perception_encoder, {"like": str(FAMILIES / "timm-pe-core")}),
}


def test_every_format_that_is_only_read_has_a_file() -> None:
    read = {name for name, row in FORMATS.items() if not row.written}
    assert {*SAMPLES} == read, "-> edit SAMPLES of tests/contracts/test_formats.py"


@pytest.mark.parametrize("name", IMAGES)
def test_a_row_says_of_a_format_what_the_format_says_of_itself(name: str, edit: Any) -> None:
    format = checkpoint_formats()[name]
    with edit(f"the row of {name} in FORMATS of src/vitreous/extensions.py"):
        assert format.name == name
        assert (format.write is not None) is FORMATS[name].written
    with edit(f"the Format of {file_of(name)}"):
        assert format.about
        assert format.keys or format.entries


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_that_is_only_read_is_recognized_by_its_content(
    name: str, tmp_path: Path, edit: Any
) -> None:
    sample, path = SAMPLES[name], tmp_path / "some.safetensors"
    save_file(dict(sample.weights()), path)
    with edit(f"`keys` or `read` of {file_of(name)}"):
        model = vt.load(path, **sample.told)
        assert model.origin is not None
        assert model.origin.format == name
    with edit("src/vitreous/checkpoints/saving.py"):
        vt.save(model, tmp_path / "ours")
        images = torch.rand(2, 3, *model.config.image_size)
        with torch.inference_mode():
            torch.testing.assert_close(vt.load(tmp_path / "ours").tokens(images), model.tokens(images))
    with pytest.raises(vt.InputError, match=f"unknown format '{name}'"):
        vt.save(model, tmp_path / "theirs", format=name)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_format_is_converted_both_ways(name: str, tmp_path: Path, edit: Any) -> None:
    format, model = checkpoint_formats()[name], model_for(name)
    path = tmp_path / f"theirs{(format.suffixes or ('',))[0]}"
    with edit(f"`limits`, `keys`, `typical`, `unsaid`, `suffixes` or the table of {file_of(name)}"):
        vt.save(model, path, format=name)
        assert path.is_dir() is not bool(format.suffixes)
        answers = answers_for(model, format.unsaid_at(path))
        again = vt.load(path, **answers)
        assert again.origin is not None
        assert again.origin.format == name
    images = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(again(images), model(images), atol=1e-5, rtol=1e-4)
    settings = {f"model.{field}": value for field, value in answers.items()}
    with edit("src/vitreous/checkpoints/saving.py"):
        converted = vt.convert(path, tmp_path / "ours", format="vitreous", settings=settings)
        assert converted.max_abs_difference <= 1e-5
    assert vt.describe(vt.load(tmp_path / "ours")).stages


@pytest.mark.parametrize("task", ["multilabel", "regression"])
@pytest.mark.parametrize("name", ["vitreous", *WRITTEN])
def test_a_task_is_kept_or_its_loss_is_said(
    name: str, task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, edit: Any
) -> None:
    """What was read back as a classifier answered "0, 100.0%" for a model of numbers, without a word."""
    format, model = checkpoint_formats()[name], model_for(name)
    if model.config.num_classes is None:
        return
    model.task, path = task, tmp_path / f"theirs{(format.suffixes or ('',))[0]}"
    with edit(f"{file_of(name)}, or src/vitreous/checkpoints/saving.py"):
        vt.save(model, path, format=name)
        again = vt.load(path, **answers_for(model, format.unsaid_at(path)))
        said = f"format {name} has no place for the task {task}: loaded again, the model answers as"
        assert (again.task == task) is not (said in caplog.text)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["vitreous", *WRITTEN])
def test_labels_of_other_outputs_are_not_written(name: str, count: int, tmp_path: Path) -> None:
    model = model_for(name)
    model.labels = ["red", "green", "blue", "black"][:count]
    folder = tmp_path / "saved"
    with pytest.raises(vt.InputError, match=f" outputs and {count} labels: set model.labels"):
        vt.save(model, folder / f"theirs{(checkpoint_formats()[name].suffixes or ('',))[0]}", format=name)
    assert not folder.exists()
