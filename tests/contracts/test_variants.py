"""Every variant that a configuration can choose goes through whatever shows, draws, saves or runs a model.

The variants are found in `ViTConfig` itself: each kind of its parts (stem, position, pooling ...) and each
value of its literals. One that is new and missing somewhere fails here; the failure names the file to edit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.addons.learn_page.page import reason_against, write_learn_page
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.deployment.programs import open_image_model
from vitreous.inspection.drawing import drawings_of
from vitreous.inspection.model_figures import model_exhibits, model_summary
from vitreous.inspection.page import LeftOut
from vitreous.languages import LANGUAGES, speaking
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, StemConfig

Field, Value = str, str
PARTS = ("stem", "position", "pooling")  # what goes through a training, too
TINY: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 16,
    "num_classes": 3,
    "width": 16,
    "depth": 1,
    "heads": 2,
}
TINY |= {"mlp_dim": 32}
# What some variants need besides, or their own smallest settings.
NEEDS: dict[tuple[Field, Value], dict[str, Any]] = {
    ("stem", "convolution"): {"stem": {"kind": "convolution", "widths": (8, 8), "strides": (4, 4)}},
    ("stem", "resnet"): {"stem": {"kind": "resnet", "layers": (1,), "width_factor": 0.5}},
    ("stem", "efficientnet-lite"): {"stem": {"kind": "efficientnet-lite", "blocks": 6}},
    ("rotary", "axial"): {"position": {"kind": "rotary-2d", "rotary": {"kind": "axial"}}},
    ("rotary", "mixed"): {"position": {"kind": "rotary-2d", "rotary": {"kind": "mixed"}}},
    ("extra_norms", "tokens"): {"extra_norms": ("tokens",)},
    ("extra_norms", "attention"): {"extra_norms": ("attention",)},
    ("extra_norms", "mlp"): {"extra_norms": ("mlp",)},
}


def values_in(annotation: Any) -> Iterator[Value]:
    """Yield the texts that an annotation allows, those of the kinds of its parts among them."""
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation) if isinstance(value, str))
    elif isinstance(annotation, type) and issubclass(annotation, Config):
        yield from values_in(annotation.model_fields["kind"].annotation)
    else:
        for inner in get_args(annotation):
            yield from values_in(inner)


def variants() -> list[tuple[Field, Value]]:
    found: list[tuple[Field, Value]] = []
    for name, field in ViTConfig.model_fields.items():
        found += [(name, value) for value in values_in(field.annotation)]
    return [*found, ("rotary", "axial"), ("rotary", "mixed")]


VARIANTS = variants()


def model_of(field: Field, value: Value, **changes: Any) -> vt.ViT:
    chosen = NEEDS.get((field, value), {field: {"kind": value} if field in PARTS else value})
    try:
        config = ViTConfig(**{**TINY, **chosen, **changes})
    except ValueError as error:
        error.add_note(f"-> NEEDS of {Path(__file__).name} has to say what {field}={value} needs")
        raise
    try:
        model = vt.create(config, seed=0)
    except Exception as error:
        error.add_note(f"-> edit src/vitreous/models/parts.py, which builds {field}={value}")
        raise
    assert isinstance(model, vt.ViT)
    model.labels = ["a", "b", "c"]
    for parameter in model.head.parameters():  # otherwise zeros, under which nothing can differ
        torch.nn.init.normal_(parameter)
    return model.eval()


def test_every_part_of_the_configuration_is_found() -> None:
    assert {("stem", "patch"), ("position", "relative-bias"), ("pooling", "attention-all")} <= set(VARIANTS)
    assert len(VARIANTS) == len(set(VARIANTS)) >= 40
    assert {name for name in NEEDS if name not in VARIANTS} == set()


@pytest.mark.parametrize(("field", "value"), VARIANTS)
def test_a_variant_is_shown_and_saved(field: Field, value: Value, tmp_path: Path, edit: Any) -> None:
    model, images = model_of(field, value), torch.rand(2, 3, 32, 32)
    with edit("`described` of its module in src/vitreous/layers/, which has to name every part"):
        stages = vt.describe(model).stages
        assert sum(each.parameters for each in stages) == sum(each.numel() for each in model.parameters())
        for stage in stages:  # else the weights of the stem are counted among those of the stage after it
            assert len({name.startswith("stem.") for name in stage.weights}) <= 1, stage.name
    for language in LANGUAGES:
        with speaking(language):
            with edit(
                f"`title` of its class in src/vitreous/models/config_parts.py, or [models] of {language}.toml"
            ):
                assert model_summary(model)
            with edit(
                f"src/vitreous/inspection/drawing.py, or [drawing] of src/vitreous/languages/{language}.toml"
            ):
                for part in drawings_of(model.config):
                    assert "<svg" in vt.draw(model, part=part).svg
            with edit(
                "`first_filters` of its module in src/vitreous/layers/, or inspection/model_figures.py"
            ):
                parts = model_exhibits(model, images, ["one", "two"])
            with edit(f"[readouts], [positions] or [reasons] of src/vitreous/languages/{language}.toml"):
                assert all(each.reason if isinstance(each, LeftOut) else each.title for each in parts)
    with edit("src/vitreous/models/parts.py"), torch.inference_mode():
        vt.save(model, tmp_path / "saved")
        torch.testing.assert_close(vt.load(tmp_path / "saved")(images), model(images))
        with vt.capture_attention(model) as attention:
            model(images)
    maps = attention.maps[0]
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))


def test_every_stem_can_be_chosen() -> None:
    kinds = {stem.model_fields["kind"].default for stem in StemConfig.__subclasses__()}
    assert {("stem", kind) for kind in kinds} <= {*VARIANTS}, "-> edit Stem of models/config_parts.py"


@pytest.mark.parametrize("value", [value for field, value in VARIANTS if field == "stem"])
def test_a_stem_gets_larger_patches_or_is_refused(value: Value, edit: Any) -> None:
    model = model_of("stem", value)
    with edit("`resizes` of its class in src/vitreous/models/config_parts.py"):
        if model.config.stem.resizes:
            larger = vt.resize(model, image_size=64, patch_size=32)
            assert larger(torch.rand(2, 3, 64, 64)).isfinite().all()
        else:
            with pytest.raises(vt.InputError):  # in a sentence
                vt.resize(model, image_size=64, patch_size=32)


@pytest.mark.parametrize("field", sorted({field for field, _ in VARIANTS} - {"edge"}))
def test_the_learn_page_runs_only_what_its_program_knows(field: Field) -> None:
    """An unknown value of any choice is refused, not taken for the usual one."""
    model = model_of("rotary", "axial") if field == "rotary" else model_of("stem", "patch")
    assert reason_against(model) is None
    model.config = model.config.model_copy(deep=True)
    part: Any = model.config.rotary if field == "rotary" else getattr(model.config, field)
    if isinstance(part, Config):
        object.__setattr__(part, "kind", "of tomorrow")
    else:
        object.__setattr__(model.config, field, "of tomorrow")
    assert reason_against(model) is not None, f"{field}: edit RUNS of src/vitreous/addons/learn_page/page.py"


@pytest.mark.slow
@pytest.mark.parametrize(("field", "value"), [each for each in VARIANTS if each[0] in (*PARTS, "rotary")])
def test_a_part_goes_through_every_command(
    field: Field, value: Value, photos: Path, tmp_path: Path, edit: Any
) -> None:
    model = model_of(field, value)
    settings: dict[str, Any] = {"training.length": "2 steps", "training.batch_size": 8}
    described = model.config.model_dump(mode="json", exclude={"num_classes"})
    settings |= {f"model.{name}": described[name] for name in described}
    with edit("whatever the traceback ends in: the training of a new part must need no other change"):
        run = vt.train(
            photos / "photos",
            init="none",
            settings=settings,
            out=tmp_path / "run",
            language="ko",
            progress=False,
        )
    assert (run.path / "report.html").is_file()
    assert (run.path / "README.md").is_file()
    for language in LANGUAGES:
        seen = vt.inspect(run, out=tmp_path / language, language=language, progress=False)
        assert seen.report.is_file()
    image = photos / "photos" / "dark" / "0.png"
    (answer,) = vt.predict(run, [image])
    exported = vt.export(run, tmp_path / "model.onnx", progress=False)
    assert exported.max_abs_difference <= 1e-4
    (same,) = vt.predict(exported.path, [image])
    assert np.isclose(answer.probability, same.probability, atol=1e-4)
    trained = vt.load(run.path)
    held, refusals = 0, []
    for name, format in checkpoint_formats().items():
        if not format.write or name == "vitreous":
            continue
        with edit(f"`limits` of src/vitreous/checkpoints/formats/ for {name}"):
            try:
                vt.save(trained, tmp_path / f"{name}{(format.suffixes or ('',))[0]}", format=name)
                held += 1
            except vt.InputError as refused:  # a sentence that names what it cannot hold
                refusals.append(str(refused))
    assert held or all("cannot hold" in each for each in refusals), refusals
    if reason_against(trained) is None:
        labeled = [(np.zeros((20, 20, 3), np.uint8), "a")]
        assert write_learn_page(tmp_path / "learn.html", trained, labeled, name="run").page.is_file()


def made_photographs(side: int) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Images of broad patches of color, each with its own, and of fine noise."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(24):
        broad = np.kron(rng.integers(0, 200, (4, 4, 3)), np.ones((32, 32, 1), int))
        noise = rng.integers(0, 56, broad.shape)
        found.append((broad + noise).astype(np.uint8)[:side, :side])
    return found


def likeness(model: vt.ViT, path: Path, photographs: list[Any]) -> float:
    """Return the cosine of the features that a file and the model give of images, and of their logits, each
    less its mean over the images, in which all of them agree; the smaller of the two."""
    images = model.preprocessing(photographs)
    program = open_image_model(path)
    with torch.no_grad():
        features, logits = model.features(images), model(images)
        pairs = (features, program.features(images)), (logits, program(images))
    cosines = []
    for ours, theirs in pairs:
        mean = ours.mean(dim=0)
        both = (ours - mean).flatten(), (theirs - mean).flatten()
        cosines.append(torch.nn.functional.cosine_similarity(*both, dim=0).item())
    return min(cosines)


SEVERAL = {"kind": "efficientnet-lite", "blocks": 16, "maps": "several", "projection": False}
STEMS = [value for field, value in VARIANTS if field == "stem"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".onnx", "-openvino", ".pt2"])
@pytest.mark.parametrize("stem", STEMS)
def test_int8_of_every_stem_answers_nearly_as_the_model(stem: str, ending: str, tmp_path: Path) -> None:
    pytest.importorskip("nncf")
    pytest.importorskip("openvino")
    model = model_of("stem", stem, image_size=64)
    photographs = made_photographs(96)
    data = {} if ending == ".pt2" else {"data": (photographs, ["a", "b"] * 12)}
    written = vt.export(model, tmp_path / f"m{ending}", precision="int8", progress=False, **data)
    assert likeness(model, written.path, photographs) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("stem", STEMS)
def test_int8_of_images_that_are_not_square(stem: str, tmp_path: Path) -> None:
    """Photographs of 4:3, in a model that takes them in their shape. Of more tokens the features agree within
    a cosine of 0.99 as well, and the logits of a head of random weights within 0.95 for the ResNet."""
    pytest.importorskip("nncf")
    model = model_of("stem", stem, image_size=(96, 128))
    photographs = [each[:96] for each in made_photographs(128)]
    data = (photographs, ["a", "b"] * 12)
    written = vt.export(model, tmp_path / "m.onnx", precision="int8", progress=False, data=data)
    assert likeness(model, written.path, photographs) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("side", [64, 97])
def test_a_hybrid_of_several_maps_is_exported(side: int, tmp_path: Path) -> None:
    """Where a side is odd, the halved maps of cells have an edge of half cells."""
    pytest.importorskip("nncf")
    changes: dict[str, Any] = {"image_size": side, "patch_size": 32, "width": 1984, "edge": "drop"}
    model = model_of("stem", "patch", stem=SEVERAL, **changes)
    written = vt.export(model, out=tmp_path / "m.onnx", progress=False)
    assert written.max_abs_difference <= 1e-4
    photographs = made_photographs(side)
    for name, data in (("m.pt2", {}), ("int8.onnx", {"data": (photographs, ["a", "b"] * 12)})):
        int8 = vt.export(model, out=tmp_path / name, precision="int8", progress=False, **data)
        assert likeness(model, int8.path, photographs) > 0.9, name


def test_a_stem_that_does_not_fit_is_refused() -> None:
    lite = {"kind": "efficientnet-lite"}
    with pytest.raises(vt.InputError, match="the stem's stride 16"):
        vt.create("ViT-Ti/8", stem=lite)
    with pytest.raises(vt.InputError, match="set width to 112, not 192"):
        vt.create("ViT-Ti/16", stem=lite | {"projection": False})
    with pytest.raises(vt.InputError, match="set patch_size to 16"):
        vt.create("ViT-Ti/32", stem=lite | {"projection": False}, width=112, heads=2)
    with pytest.raises(vt.InputError, match="needs all 16 blocks"):
        vt.create("ViT-Ti/32", stem=lite | {"maps": "several"})
    with pytest.raises(vt.InputError, match="unknown EfficientNet-Lite 'EfficientLite4'"):
        vt.create("EfficientLite4+ViT-Ti/16")
    names = vt.list_models("EfficientLite0*")
    assert [vt.create(name, num_classes=2).config.stem.blocks for name in names] == [11, 11, 16]
