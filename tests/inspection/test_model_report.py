"""`vitreous inspect`: a page, figures and arrays for every kind of model; the page in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.browsers import box_of
from torch import nn

import vitreous as vt
from vitreous.addons.serving.models import ServedModel
from vitreous.cli import run
from vitreous.errors import InputError
from vitreous.inspection import charts
from vitreous.inspection.charts import STYLE, WIDE_FONTS, installed
from vitreous.inspection.model_figures import attention_figure
from vitreous.inspection.model_report import (
    InspectionRequest,
    class_number,
    write_inspection,
    write_model_report,
)
from vitreous.inspection.page import Exhibit, Inspection, LeftOut
from vitreous.languages import words as words_at
from vitreous.models.bit import BiTConfig
from vitreous.models.model import Model, build_model

LABELS = ("cat", "dog", "</script><b>bird</b>")
TINY: dict[str, Any] = {
    "image_size": (24, 40),
    "patch_size": (8, 8),
    "width": 16,
    "depth": 3,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 3,
}
MADE = InspectionRequest("made")
HYBRID = {"image_size": 32, "patch_size": 16, "stem": {"kind": "resnet", "layers": (1,), "width_factor": 0.5}}
KINDS: dict[str, dict[str, Any]] = {
    "registers, mean": {"pooling": "mean", "class_token": False, "registers": 2},
    "hybrid, relative": {**HYBRID, "position": {"kind": "relative"}},
    "padded, distilled": {
        "image_size": (20, 36),
        "edge": "pad",
        "pooling": "class+distillation",
    },
    "no classes, patch 1": {"num_classes": None, "image_size": 5, "patch_size": 1, "channels": 1},
}


def model_of(**changes: Any) -> Model:
    torch.manual_seed(0)
    config = vt.ViTConfig(**{**TINY, **changes})
    preprocessing = vt.Preprocessing(
        size=config.image_size,
        channels=config.channels,
        mean=(0.5,) * config.channels,
        std=(0.5,) * config.channels,
    )
    labels = LABELS if config.num_classes else None
    model = build_model(config, preprocessing=preprocessing, labels=labels)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def images(count: int) -> list[tuple[Image.Image, str]]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 30, 50, 3), dtype=np.uint8)
    return [(Image.fromarray(each), f"image {i}") for i, each in enumerate(pixels)]


def report_of(folder: Path, count: int = 2, request: InspectionRequest = MADE, **changes: Any) -> Inspection:
    return write_model_report(model_of(**changes), images(count), folder, request)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_for_every_kind_of_model(tmp_path: Path, kind: str) -> None:
    report = report_of(tmp_path, **KINDS[kind])
    page = report.report.read_text(encoding="utf-8")
    assert 'id="explorer-data"' in page
    assert {each.suffix for each in report.drawings} == {".svg", ".png"}
    assert all(each.stat().st_size > 100 for each in report.drawings)
    with np.load(report.arrays, allow_pickle=False) as arrays:
        assert arrays["distance"].shape == (2, 3, 2)
        assert arrays["attention_rollout"].shape[0] == 2
    json.dumps(report.summary, allow_nan=False)


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    """Ten images, a class, a patch, another model."""
    request = InspectionRequest(
        "made",
        label="dog",
        patch=(2, 4),
        other=model_of(depth=2),
        other_name="another",
        labels=("dog", *["unheard of"] * 9),
    )
    return report_of(tmp_path_factory.mktemp("rich"), count=10, request=request)


@pytest.mark.slow
def test_what_the_summary_says(rich: Inspection) -> None:
    assert rich.summary["images"] == len(rich.summary["answers"]) == 10
    assert len(rich.summary["mean_attention_distance"]) == 3
    assert [each["figure"] for each in rich.summary["left_out"]] == ["Position-embedding similarity"]
    with np.load(rich.arrays, allow_pickle=False) as arrays:
        assert arrays["cka_with_other"].shape == (4, 3)
        assert arrays["distance"].shape == (10, 3, 2)


def test_what_the_page_says(rich: Inspection) -> None:
    page = rich.report.read_text(encoding="utf-8")
    assert "which patches contributed to “dog”" in page
    assert "row 3, column 5" in page
    assert "Layer similarity (CKA) with another" in page
    assert "Of 10 images, the first 8 are shown; all of them count toward the averages." in page


def test_every_figure_has_an_anchor_of_its_own_and_an_alternative_text(rich: Inspection) -> None:
    page = rich.report.read_text(encoding="utf-8")
    anchors = re.findall(r'<section id="([\w-]+)"', page)
    assert {"alignment", "alignment-with-other", "relevance"} <= set(anchors)
    assert len(anchors) == len(set(anchors))
    charts = re.findall(r'<svg class="chart"[^>]*>', page)
    assert len(charts) == 7
    assert all(re.search(r'role="img" aria-label="\w', chart) for chart in charts)
    assert 'alt=""' not in page
    known = r'alt="[^",]+, ([✓✗]) dog, predicted ([^"(]+) \([\d.]+%\)(?:: ([\w ]+)|)"'
    shown = re.findall(known, page)
    assert {(sign, label) for sign, label, _ in shown} in [{("✓", "dog")}, {("✗", shown[0][1])}]
    assert {kind for _, _, kind in shown} >= {
        "",
        "attention rollout",
        "layer 1",
        "layer 3",
        "PCA of its features",
    }
    assert re.search(r'alt="[^",]+, predicted [^"(]+ \([\d.]+%\): attention rollout"', page), (
        "not a class of it"
    )


def test_the_catalog_has_all_words_of_each_exhibit() -> None:
    for name, words in words_at("exhibits").items():
        assert {"title", "caption"} <= words.keys(), name
        variants = {key: value for key, value in words.items() if isinstance(value, dict)}
        assert words.keys() - variants.keys() <= {"name", "title", "subtitle", "caption", "alt"}, name
        assert all(each.keys() <= words.keys() | {"name", "subtitle"} for each in variants.values()), name


def test_labels_cannot_break_out_of_the_page(rich: Inspection) -> None:
    page = rich.report.read_text(encoding="utf-8")
    assert "<b>bird" not in page
    assert page.count("</script>") == 2


def test_charts_follow_the_page_and_their_files_do_not(rich: Inspection) -> None:
    page = rich.report.read_text(encoding="utf-8")
    charts = page[page.index('<svg class="chart"') :]
    assert "fill: var(--first)" in charts
    assert "#0b7285" not in charts
    alone = next(each for each in rich.drawings if each.name == "distance.svg").read_text(encoding="utf-8")
    assert "#0b7285" in alone
    assert "var(--" not in alone


@pytest.mark.slow
def test_a_head_of_zeros_explains_nothing(tmp_path: Path) -> None:
    """As of a model with fresh weights: no evidence, no heads to prune, and the lens agrees with itself."""
    model = model_of()
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    report = write_model_report(model, images(4), tmp_path, MADE)
    assert "all zeros" in report.summary["left_out"][0]["reason"]
    assert report.summary["prunable_heads"] == []
    assert report.summary["answers"][0]["answer"] == "undecided: no class has more than 33.3%"
    page = report.report.read_text(encoding="utf-8")
    notice = "Undecided model: on 4 of 4 images all classes are about equally probable"
    places = "at the top, at the explorer, and at every map: attention, patch, attributions"
    assert page.count(notice) == 5, places
    assert "predicted undecided" not in page
    with np.load(report.arrays) as arrays:
        assert arrays["lens_agrees"].all()


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "even"), [(0, True), (10, False)])
def test_attention_that_is_almost_even_is_said_to_be(tmp_path: Path, scale: float, even: bool) -> None:
    model = model_of()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name:
                parameter.mul_(scale)
    page = write_model_report(model, images(1), tmp_path, MADE).report.read_text(encoding="utf-8")
    assert ("almost uniform (its entropy is 100% of the largest possible)" in page) == even


def test_maps_of_layers_that_never_learned_are_no_evidence(tmp_path: Path) -> None:
    """A classifier of the features of `vitreous:photos` has Transformer layers as they were drawn."""
    features = vt.load("vitreous:photos", image_size=64)
    assert isinstance(features, vt.ViT)
    vt.save(features, tmp_path / "stored")
    (image, name), *_ = images(1)
    found = vt.inspect(tmp_path / "stored", [image], out=tmp_path / "page", progress=False)
    notice = "The Transformer layers of this model have not been trained"
    assert notice in found.report.read_text("utf-8")
    batch = features.preprocessing([image])
    left = attention_figure(features, batch, [name])
    assert isinstance(left, LeftOut)
    assert "have not been trained" in left.reason
    served = ServedModel(features, torch.device("cpu"), precision="fp32", most_pixels=10**6)
    assert [each.name for each in served.endpoints] == ["embed"]

    optimizer = torch.optim.SGD(features.parameters(), lr=1e-3)
    features(batch).square().mean().backward()
    optimizer.step()
    assert isinstance(attention_figure(features, batch, [name]), Exhibit)


@pytest.mark.slow
def test_an_untrained_model_is_named_at_every_map(tmp_path: Path) -> None:
    found = vt.inspect("ViT-Ti/16", [images(1)[0][0]], image_size=32, out=tmp_path / "page", progress=False)
    page = found.report.read_text(encoding="utf-8")
    notice = '<p class="notice" role="note">Untrained model: the maps show its random initialization'
    assert page.count(notice) == 1
    assert page.count("Untrained model: the maps show its random initialization") >= 5
    decided = report_of(tmp_path / "decided").report.read_text(encoding="utf-8")
    assert "Untrained" not in decided
    assert '<p class="notice"' not in decided


@pytest.mark.slow
def test_a_model_in_half_precision_is_inspected_in_float32(tmp_path: Path) -> None:
    half, shown = model_of().bfloat16(), [image for image, _ in images(2)]
    whole = model_of()
    whole.load_state_dict(half.state_dict())
    for name, model in (("half", half), ("whole", whole)):
        vt.inspect(model, shown, out=tmp_path / name, progress=False)
        attributed = vt.attribute(model, shown, steps=2, progress=False)
        np.savez(tmp_path / f"{name}.npz", **attributed.maps)
    for file in ("half/arrays.npz", "half.npz"):
        ours, theirs = (np.load(tmp_path / each) for each in (file, file.replace("half", "whole")))
        assert ours.files == theirs.files
        assert [name for name in ours.files if not np.array_equal(ours[name], theirs[name])] == []
    assert next(half.parameters()).dtype == torch.bfloat16


@pytest.mark.slow
def test_a_map_has_its_numbers(tmp_path: Path) -> None:
    page = report_of(tmp_path).report.read_text(encoding="utf-8")
    numbers = re.findall(r"([\d.]+)% to ([\d.]+)%, uniform: 6\.7%; entropy (\d+)%", page)
    attributions = 4 * 2  # four methods, two images
    maps = "attention and rollout of two images, three layers, two relevances"
    assert len(numbers) == 2 * 2 + 3 + 2 + attributions, maps
    assert all(float(low) <= 6.7 <= float(high) for low, high, _ in numbers)


@pytest.mark.slow
def test_the_memory_does_not_grow_with_layers_or_images(tmp_path: Path) -> None:
    """Two layers of ViT-L/16 at 384, 64 images: their whole maps alone would be 2.7 GB."""
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from PIL import Image
import vitreous as vt
from vitreous.inspection.model_report import InspectionRequest, write_model_report
pixels = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 3), dtype=np.uint8)
images = [(Image.fromarray(each), str(i)) for i, each in enumerate(pixels)]
model, request = vt.create("ViT-L/16", image_size=384, depth=2), InspectionRequest("L")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = write_model_report(model, images, Path(sys.argv[1]), request)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((peak - before) * 1024, report.report.stat().st_size)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    more, page = (int(word) for word in done.stdout.split())
    assert more < 1.2e9
    assert page < 17e6  # 13 MB for one image


def test_a_bit_has_filters_only(tmp_path: Path) -> None:
    bit = build_model(BiTConfig(num_classes=3, image_size=(32, 32), layers=(1, 1), width_factor=0.5))
    report = write_model_report(bit, images(1), tmp_path, InspectionRequest("BiT"))
    assert [each.name for each in report.drawings] == ["filters.png"]
    assert "convolutional" in report.summary["left_out"][0]["reason"]


CUNEIFORM = "\N{CUNEIFORM SIGN A}"  # in no font that is asked


WITHOUT_A_FONT = f"""
import sys
from pathlib import Path
from vitreous.errors import own_warnings
from vitreous.inspection.charts import Chart, canvas
with own_warnings():
    for number in range(2):
        with canvas(2, 2) as (figure, (axes,)):
            axes.set_title("{CUNEIFORM}")
        chart = Chart(figure)
        assert "{CUNEIFORM}" in chart.svg
        print("drawn", file=sys.stderr)
        chart.pixels()
        chart.save(Path(sys.argv[1]) / f"chart{{number}}")
"""


@pytest.mark.parametrize(
    ("locale", "sentence"),
    [("C.UTF-8", "some letters are boxes in PNG figures"), ("ko_KR.UTF-8", "PNG 그림에서 네모로 나옵니다")],
)
def test_letters_without_a_font_are_told_once_in_a_process(
    locale: str, sentence: str, tmp_path: Path
) -> None:
    """With what to install; and not of an SVG, whose letters are those of the page."""
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "1"}
    call = [sys.executable, "-c", WITHOUT_A_FONT, str(tmp_path)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, encoding="utf-8", check=True)
    first, said, *rest = done.stderr.splitlines()
    assert first == "drawn"
    assert said.startswith("vitreous: ")
    assert sentence in said
    assert "fonts-nanum" in said
    assert rest == ["drawn"]


@pytest.mark.slow
def test_letters_without_a_font_stay_letters_in_an_svg(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    from vitreous.checkpoints.native import save_native

    model = model_of()
    model.labels = tuple(f"{CUNEIFORM}{number}" for number in range(3))
    saved = save_native(model, tmp_path / "checkpoint")
    images(1)[0][0].save(tmp_path / "photo.png")
    assert run(["inspect", str(saved), str(tmp_path / "photo.png"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert "Glyph" not in said
    assert not [each for each in recwarn if "lyph" in str(each.message)]
    lens = (tmp_path / "out" / "lens.svg").read_text(encoding="utf-8")
    assert CUNEIFORM in lens
    assert "others" in lens  # the legend names the gray lines, too


def test_a_font_that_came_after_matplotlibs_first_start_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory of fonts is older: without a font for Korean, labels would be boxes."""
    name = "DejaVu Sans Mono"
    known = next(font.fname for font in charts.fontManager.ttflist if font.name == name)
    older = [font for font in charts.fontManager.ttflist if font.name != name]
    monkeypatch.setattr(charts.fontManager, "ttflist", older)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(charts, "findSystemFonts", lambda: [str(tmp_path / "broken.ttf"), known])
    assert installed(["No Such Font", name]) == [name]


def test_only_fonts_that_are_there_are_asked() -> None:
    assert installed(["No Such Font", "DejaVu Sans"]) == ["DejaVu Sans"]
    assert STYLE["font.family"] == ["sans-serif", *installed(WIDE_FONTS)]


def test_a_bit_takes_no_patch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vitreous.checkpoints.native import save_native

    config = BiTConfig(num_classes=3, image_size=(32, 32), layers=(1, 1), width_factor=0.5)
    bit = save_native(build_model(config), tmp_path / "bit")
    assert run(["inspect", str(bit), "--patch", "1x1", "--out", str(tmp_path / "out")]) == 2
    assert "--patch does not apply to a model without attention" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_sentence(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], full_disk: Any
) -> None:
    images(1)[0][0].save(tmp_path / "photo.png")
    asked = ["inspect", str(checkpoint), str(tmp_path / "photo.png"), "--out"]
    assert run([*asked, "/proc/nowhere"]) == 2
    error = capsys.readouterr().err
    assert "cannot write /proc/nowhere: No such file or directory; choose another --out" in error
    assert error.strip().count("\n") == 0
    with full_disk(1000):
        assert run([*asked, str(tmp_path / "out")]) == 2
    assert "File too large; choose another --out" in capsys.readouterr().err


def test_a_class_by_label_or_number() -> None:
    many = [f"class {number}" for number in range(1000)]
    assert class_number(LABELS, "dog") == class_number(LABELS, "1") == 1
    assert class_number(many, "class 7") == class_number(many, "7") == 7
    with pytest.raises(
        InputError, match="no class '1000': give one of its labels, or a number from 0 to 999"
    ):
        class_number(many, "1000")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (InspectionRequest("made", label="dgo"), "no class 'dgo': did you mean 'dog'"),
        (
            InspectionRequest("made", patch=(3, 0)),
            "no patch in row 4, column 1: the grid has 3 rows and 5 columns",
        ),
    ],
)
def test_questions_that_cannot_be_answered(tmp_path: Path, asked: InspectionRequest, message: str) -> None:
    with pytest.raises(InputError, match=message):
        report_of(tmp_path / "new", request=asked)
    assert not (tmp_path / "new").exists()


# --- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    from vitreous.checkpoints.native import save_native

    return save_native(model_of(), tmp_path / "checkpoint")


def test_the_command_on_images(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(1)[0][0].save(tmp_path / "photo.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    asked = [
        str(checkpoint),
        str(tmp_path / "*.png"),
        "--out",
        str(tmp_path / "out"),
        "--patch",
        "1x5",
        "--json",
    ]
    assert run(["inspect", *asked]) == 1  # one of the two could not be read; the other was looked at
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert Path(result["report"]).is_file()
    assert Path(result["arrays"]).is_file()
    assert result["images"] == 1
    assert "needs at least 4 images" in result["left_out"][1]["reason"]  # the alignment of layers
    assert [each["path"] for each in result["failed"]] == [str(tmp_path / "broken.png")]
    assert "broken.png" in printed.err


@pytest.mark.slow
def test_the_command_without_images_takes_the_digits(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(checkpoint), "--out", str(tmp_path / "out")]) == 0
    assert "report.html" in capsys.readouterr().out
    assert "these are handwritten digits" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--patch", "5"], "write ROWxCOLUMN"),
        (["--patch", "9x9"], "there is no patch in row 9, column 9"),
        (["--label", "dgo"], "did you mean 'dog'"),
        (["nowhere.png"], "no such file"),
    ],
)
def test_bad_input_is_one_sentence(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["inspect", str(checkpoint), *arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.html").write_text("of a training run")
    with pytest.raises(InputError, match="already exists"):
        write_inspection(model_of(), images(1), tmp_path, MADE)
    assert (tmp_path / "report.html").read_text() == "of a training run"


# --- the page in a browser ---------------------------------------------------------------------------------


class Opened:
    """A report in a browser tab without a network, and what went wrong there."""

    def __init__(self, browser: Any, report: Path) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": 1000, "height": 1000})
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.context.set_offline(True)
        self.page.goto(report.as_uri(), timeout=1_000_000)
        self.wait(lambda state: True)

    def wait(self, reached: Any) -> None:
        """Until the page has drawn a state."""
        for _ in range(3000):  # a minute: the machine may be busy
            drawn = self.page.get_attribute(".explorer", "data-drawn")
            if drawn and reached(json.loads(drawn)):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"the page never drew it; it says {self.problems}, drawn: {drawn}")

    def pixels(self, canvas: str) -> str:
        return self.page.evaluate(f"document.getElementById('{canvas}').toDataURL()")

    def slide(self, slider: str, value: int) -> None:
        self.page.evaluate(
            f"{{ const s = document.getElementById('{slider}'); s.value = {value};"
            "s.dispatchEvent(new Event('input')); }"
        )


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    report = report_of(tmp_path_factory.mktemp("page"), count=3)
    tab = Opened(browser, report.report)
    yield tab
    tab.page.close()


def test_the_page_loads_without_errors_or_network(opened: Opened) -> None:
    assert opened.problems == []
    assert [each for each in opened.requests if not each.startswith(("file:", "data:", "blob:"))] == []
    assert opened.page.locator("#chosen-a button").count() == 3


def test_the_sliders_change_the_map(opened: Opened) -> None:
    before = opened.pixels("map-a")
    opened.slide("layer-a", 1)
    opened.wait(lambda state: state["layer"] == 0)
    first_layer = opened.pixels("map-a")
    assert first_layer != before
    opened.slide("head-a", 2)
    opened.wait(lambda state: state["head"] == 2)
    assert opened.pixels("map-a") != first_layer
    assert opened.page.inner_text("#layer-now-a") == "1 of 3"
    assert opened.page.inner_text("#head-now-a") == "2 of 2"
    assert opened.problems == []


def test_a_click_on_a_patch_asks_it(opened: Opened) -> None:
    """The numbers in words are those of the map: row 2, column 4 of 3 x 5, token 1 + 8."""
    before = opened.pixels("map-a")
    box = box_of(opened.page, "#image-a")
    opened.page.mouse.click(box["x"] + box["width"] * 3.5 / 5, box["y"] + box["height"] * 1.5 / 3)
    opened.wait(lambda state: state["patch"] == 8)
    assert opened.pixels("map-a") != before
    opened.slide("layer-a", 2)
    opened.slide("head-a", 1)
    opened.wait(lambda state: state["layer"] == 1 and state["head"] == 1)
    words = opened.page.inner_text("#words-a")
    assert "the patch in row 2, column 4" in words
    model = model_of()
    model.eval()
    with vt.capture_attention(model) as attention, torch.no_grad():
        model(model.preprocessing([images(3)[0][0]]))
    row = attention.maps[1][0, 0, 9] * 100
    itself, token, patches = (float(each) for each in re.findall(r"([\d.]+)%", words))
    assert itself == pytest.approx(row[9].item(), abs=0.2)
    assert token == pytest.approx(row[0].item(), abs=0.2)
    assert patches == pytest.approx(row[1:].sum().item() - row[9].item(), abs=1)
    assert itself + token + patches == pytest.approx(100, abs=1e-6), "whole"
    legend = opened.page.inner_text("#scale-a")
    low, high, even = (float(each) for each in re.findall(r"([\d.]+)%", legend)[:3])
    shares = 100 * row[1:] / row[1:].sum()
    assert (low, high) == pytest.approx((shares.min().item(), shares.max().item()), abs=0.1)
    assert even == pytest.approx(100 / 15, abs=0.1)
    opened.page.click("#reset-a")
    opened.wait(lambda state: state["patch"] is None)
    assert opened.problems == []


def test_another_image_and_the_whole_models_views(opened: Opened) -> None:
    seen = {opened.pixels("map-a")}
    opened.page.locator("#chosen-a button").nth(1).click()
    opened.wait(lambda state: state["image"] == 1)
    seen.add(opened.pixels("map-a"))
    for show in ("rollout", "relevance"):
        opened.page.select_option("#show-a", show)
        opened.wait(lambda state, show=show: state["show"] == show)
        seen.add(opened.pixels("map-a"))
    assert len(seen) == 4
    opened.page.locator("#atlas-a").click(position={"x": 3, "y": 3})
    opened.wait(lambda state: (state["layer"], state["head"], state["show"]) == (0, 1, "attention"))
    assert opened.problems == []


def test_the_arrow_keys_move_the_query_the_head_and_the_reading(opened: Opened) -> None:
    opened.page.goto(opened.page.url.split("#")[0] + "#layer=2&head=1&image=1&patch=2x3")
    opened.wait(lambda state: (state["layer"], state["head"], state["patch"]) == (1, 1, 7))
    opened.page.focus("#image-a")
    opened.page.keyboard.press("ArrowRight")
    opened.wait(lambda state: state["patch"] == 8)
    opened.page.keyboard.press("ArrowUp")
    opened.wait(lambda state: state["patch"] == 3)
    assert opened.page.url.endswith("#layer=2&head=1&image=1&patch=1x4"), "the address keeps what is shown"
    opened.page.focus("#atlas-a")
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowDown")
    opened.wait(lambda state: (state["layer"], state["head"]) == (2, 2))
    opened.page.focus("#map-a")
    opened.page.keyboard.press("ArrowLeft")
    assert opened.page.inner_text("#at-a").startswith("row 1, column 3: ")
    assert opened.page.locator("#views-a .mark:visible").count() == 2, "in the image and in the map"
    opened.page.keyboard.press("Enter")
    opened.wait(lambda state: state["patch"] == 2)
    opened.page.keyboard.press("Escape")
    opened.wait(lambda state: state["patch"] is None)
    assert opened.problems == []


def test_the_pointer_marks_the_same_patch_in_image_and_map(opened: Opened) -> None:
    box = box_of(opened.page, "#image-a")
    opened.page.mouse.move(box["x"] + box["width"] * 4.5 / 5, box["y"] + box["height"] * 2.5 / 3)
    assert opened.page.inner_text("#at-a").startswith("row 3, column 5: ")
    frames = [mark.bounding_box() for mark in opened.page.locator("#views-a .mark").all()]
    assert [round(each["width"]) for each in frames] == [round(box["width"] / 5)] * 2
    opened.page.mouse.move(0, 0)
    assert opened.page.inner_text("#at-a") == ""


def test_two_views_share_the_query(opened: Opened) -> None:
    opened.page.goto(
        opened.page.url.split("#")[0] + "#layer=3&head=1&patch=3x5&b.layer=1&b.head=mean&b.image=2"
    )
    opened.wait(lambda state: state["second"] is not None)
    drawn = json.loads(opened.page.get_attribute(".explorer", "data-drawn"))
    assert (drawn["layer"], drawn["head"], drawn["patch"]) == (2, 1, 14)
    assert (drawn["second"]["layer"], drawn["second"]["head"], drawn["second"]["image"]) == (0, 0, 1)
    for view in "ab":
        assert "the patch in row 3, column 5 gives" in opened.page.inner_text(f"#words-{view}")
    assert opened.pixels("map-a") != opened.pixels("map-b")
    opened.page.locator("#map-b").click(position={"x": 3, "y": 3})
    opened.wait(lambda state: state["patch"] == 0)
    opened.page.click("#compare")
    opened.wait(lambda state: state["second"] is None)
    assert opened.page.locator("#pane-b").is_hidden()
    assert opened.problems == []


def test_the_atlas_has_its_layers_and_heads_along_its_edges(opened: Opened) -> None:
    assert opened.page.locator("#layers-a span").all_inner_texts() == ["1", "2", "3"]
    assert opened.page.locator("#heads-a span").all_inner_texts() == ["1", "2"]
    tile = box_of(opened.page, "#atlas-a")
    number = box_of(opened.page, "#layers-a span:nth-of-type(3)")
    middle = (number["y"] + number["height"] / 2 - tile["y"]) / tile["height"]
    assert middle == pytest.approx(5 / 6, abs=0.03), "beside its row"


def test_two_models_side_by_side(browser: Any, tmp_path: Path) -> None:
    other = vt.create("ViT-Ti/16", image_size=32, num_classes=4, depth=2, seed=1)
    report = vt.inspect(model_of(), [images(1)[0][0]], compare=other, out=tmp_path / "two", progress=False)
    tab = Opened(browser, report.report)
    tab.wait(lambda state: state["second"] is not None and state["second"]["model"] == 1)
    box = box_of(tab.page, "#image-a")
    tab.page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.9)
    tab.wait(lambda state: state["patch"] == 14)
    assert "row 3, column 5" in tab.page.inner_text("#words-a")
    assert "row 2, column 2" in tab.page.inner_text("#words-b"), "the same place in another grid"
    assert tab.page.locator("#layers-b span").count() == 2
    assert tab.problems == []
    tab.page.close()
