"""The report of a training run: whole, self-contained, and honest about what it leaves out."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jinja2 import Template
from scipy.sparse import csr_array

import vitreous as vt
from answered import answered
from vitreous.addons.learn_page.page import reason_against
from vitreous.addons.segmentation.evaluation import SegmentationEvaluation
from vitreous.data.dataset import ArrayImages, LabelTargets
from vitreous.data.findings import Finding
from vitreous.data.image_samples import ContactSheet
from vitreous.data.image_samples import target_in_words as label_of
from vitreous.evaluation.classical import (
    Baseline,
    LogisticSetting,
    MachineSetting,
    NeighborsSetting,
    RidgeSetting,
)
from vitreous.evaluation.classification import ClassificationEvaluation, MultiLabelEvaluation
from vitreous.evaluation.result import Evaluation
from vitreous.evaluation.scores import Interval, answering_count, candidate_title
from vitreous.inspection.page import Exhibit, write_page
from vitreous.inspection.run_figures import (
    baselines_figure,
    candidates_table,
    classes_table,
    confusion_figure,
    curve_chart,
    curves_figure,
)
from vitreous.inspection.run_report import (
    comparisons_of,
    model_summary,
    report_head,
    twice_as_long,
    write_training_report,
)
from vitreous.languages import baseline_settings, phrase, speaking
from vitreous.models.bit import BiTConfig
from vitreous.models.model import Model, build_model
from vitreous.tasks.regression import RegressionEvaluation
from vitreous.training.callbacks import read_metrics

CLASSES = ("cat", "dog", "<b>bold</b>")
TINY: dict[str, Any] = {
    "image_size": (16, 24),
    "patch_size": (4, 8),
    "width": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 3,
}
KINDS: dict[str, dict[str, Any]] = {
    "class token": {},
    "mean, registers, rotary": {
        "pooling": "mean",
        "class_token": False,
        "registers": 2,
        "position": {"kind": "rotary-2d"},
    },
    "hybrid": {
        "image_size": (32, 32),
        "patch_size": (16, 16),
        "stem": {"kind": "resnet", "layers": (1, 1), "width_factor": 0.5},
    },
    "one channel, patch 1": {"image_size": (6, 6), "patch_size": (1, 1), "channels": 1},
}


def model_of(**changes: Any) -> Model:
    torch.manual_seed(0)
    config = vt.ViTConfig(**{**TINY, **changes})
    channels = config.channels
    preprocessing = vt.Preprocessing(
        size=config.image_size, channels=channels, mean=(0.5,) * channels, std=(0.5,) * channels
    )
    return build_model(config, preprocessing=preprocessing, labels=CLASSES).eval()


def images(count: int = 9) -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 20, 20, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.arange(count) % 3, CLASSES, name="made")


def evaluation(right: int, count: int = 9) -> Evaluation:
    """The first `right` answers are right."""
    targets = np.arange(count) % 3
    said = np.where(np.arange(count) < right, targets, (targets + 1) % 3)
    probabilities = np.full((count, 3), 0.1) + 0.7 * np.eye(3)[said]
    return ClassificationEvaluation(
        classes=CLASSES,
        indices=np.arange(count),
        names=tuple(f"made[{i}]" for i in range(count)),
        **answered(probabilities, targets),
        failed={},
        seconds=0.1,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    rows = [
        {"step": 5 * e, "epoch": float(e), "loss": 2 / e, "accuracy": 1 - 1 / e, "lr": 1e-3, "seconds": e}
        for e in range(1, 6)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.toml").write_text('[training]\nlength = "5 epochs" # <not a tag>\n')
    return folder


def sections(page: str) -> set[str]:
    return set(re.findall(r'<section id="([\w-]+)"', page))


def asks_the_network(page: str) -> list[str]:
    """Whatever a browser would fetch: sources, links and url() that are neither data nor inside the page, nor
    the page beside it."""
    found = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    return [address for address in found if not address.startswith(("data:", "#", "learn.html"))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_for_every_kind_of_model(run: Path, kind: str) -> None:
    path = write_training_report(
        run, model=model_of(**KINDS[kind]), evaluation=evaluation(7), images=images()
    )
    page = path.read_text(encoding="utf-8")
    assert path == run / "report.html"
    assert {"curves", "confusion", "calibration", "predictions", "attention", "classes"} <= sections(page)
    assert asks_the_network(page) == []
    assert "77.8%" in page
    assert "nan" not in re.sub(r'"data:[^"]*"', "", page).lower().split()
    assert [each.name for each in run.iterdir() if each.name.endswith(".tmp")] == []
    runs_in_a_page = reason_against(model_of(**KINDS[kind])) is None
    assert ('href="learn.html"' in page) == runs_in_a_page == (run / "learn.html").is_file()


def test_what_stands_in_the_report(run: Path) -> None:
    baseline = Baseline("SVM on pixels", 0.9, Interval(0.8, 0.95), "C 10", 1.0)
    sheet = ContactSheet(torch.zeros(2, 3, 16, 24, dtype=torch.uint8), ("cat", "cat 70.0% + dog 30.0%"))
    path = write_training_report(
        run,
        model=model_of(),
        evaluation=evaluation(7),
        images=images(),
        baselines=[baseline],
        sheet=sheet,
    )
    page = path.read_text(encoding="utf-8")
    assert {"baselines", "filters", "augmented", "configuration"} <= sections(page)
    assert re.search(r"\d x \d positions are too few to show structure", page)
    assert page.count("<figure><img") == 2  # augmented images
    assert "cat 70.0% + dog 30.0%" in page
    assert "<b>bold" not in page
    assert "5 epochs" in page
    assert "# &lt;not a tag&gt;" in page
    assert "SVM on pixels (C 10)" in page
    assert "var(--first)" in page
    assert "#0b7285" not in page.split("</style>")[1]  # every chart follows the page's light or dark


def test_names_of_classes_are_no_formulas() -> None:
    """matplotlib sets what is between two dollar signs as mathematics."""
    classes = ("$1_$2", "$\\frac{$")
    chart = confusion_figure(np.eye(2, dtype=int), classes)
    assert isinstance(chart, Exhibit)
    assert all(escape(each) in str(chart.html) for each in classes)
    curve = curve_chart("Loss", {"$a_$": ([1.0, 2.0, 3.0], [2.0, 0.5, 0.01])})
    assert curve.logarithmic is not None
    assert {"$a_$", "0.01", "0.1", "1"} <= set(re.findall(r"<text[^>]*>([^<]*)<", curve.logarithmic.svg))


def test_a_validation_curve_is_explained_where_there_is_one(run: Path) -> None:
    rows = read_metrics(run / "metrics.jsonl")
    for validated in (False, True):
        shown = [{**row, "validation_loss": 1.0} for row in rows] if validated else rows
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shown))
        figure = curves_figure(run)
        assert isinstance(figure, Exhibit)
        assert ("validation" in figure.caption) == validated
        assert (
            str(figure.html).count(">training (augmented)<") == 2
        )  # of loss and accuracy, even where they are alone
        assert (">validation<" in figure.html) == validated
        assert "{" not in figure.caption


def test_images_say_label_prediction_and_confidence(run: Path) -> None:
    """In words and by a sign, not by color alone; alternative texts, too."""
    model = model_of()
    torch.nn.init.normal_(model.head.weight, std=5.0)
    page = write_training_report(run, model=model, evaluation=evaluation(7), images=images()).read_text()
    alternatives = re.findall(r'alt="([✓✗]) (\S+), predicted (\S+) \(([\d.]+)%\): attention rollout"', page)
    assert len(alternatives) == 8
    assert all((sign == "✓") == (label == predicted) for sign, label, predicted, _ in alternatives)


def test_the_head_compares_the_accuracy(run: Path) -> None:
    page = write_training_report(run, model=model_of(), evaluation=evaluation(7), images=images()).read_text()
    assert (
        "always predicting the most frequent class in the test set gives 33.3%, "
        "and random guessing gives 33.3%"
    ) in page
    assert (
        "Training accuracy (augmented images, last epoch): 80.0%, 2.2 points above the test accuracy." in page
    )
    assert "no better than always predicting the most frequent class" not in page
    poor = write_training_report(run, model=model_of(), evaluation=evaluation(4), images=images()).read_text()
    assert "This model is no better than always predicting the most frequent class" in poor


@pytest.mark.slow
def test_the_head_has_the_most_important_findings_and_commands(run: Path) -> None:
    findings = [
        Finding("duplicate", found=3, severity="note"),
        Finding("damaged", found=4, severity="warning"),
        Finding("leak", {"between": "train, test"}, found=5),
        Finding(
            "bad files", {"name": "a.png", "reason": "<empty>", "file": "bad_files.txt"}, severity="warning"
        ),
    ]
    path = write_training_report(
        run, model=model_of(), evaluation=evaluation(7), images=images(), findings=findings
    )
    page = path.read_text()
    shown = re.findall(r'<li class="(\w+)"><strong>(\w+):</strong> (\d) .*?\. .*\.</li>', page)
    assert shown == [("error", "Error", "5"), ("warning", "Warning", "4"), ("warning", "Warning", "1")]
    assert "such as a.png (&lt;empty&gt;). Fix or remove the files listed in bad_files.txt.</li>" in page
    assert "1 more: vitreous doctor lists them all" in page
    with speaking("ko"):
        korean = write_training_report(
            run, model=model_of(), evaluation=evaluation(7), images=images(), findings=findings
        ).read_text()
    assert "<strong>오류:</strong> 서로 다른 세트(train, test)에 같은 이미지가 5쌍 있습니다." in korean
    assert "학습 세트에서 지우세요." in korean
    assert "pairs of images" not in korean
    imbalance = Finding("imbalance", {"largest": "a", "most": 9, "smallest": "b", "fewest": 1})
    with speaking("ko"):
        korean = write_training_report(
            run, model=model_of(), evaluation=evaluation(7), images=images(), findings=[imbalance]
        ).read_text()
    assert "장뿐입니다. data.class_balance=true로" in korean, "a setting has no capital letter"
    # Each word is a span, so that a narrow screen breaks lines between them.
    found = re.findall(r"<dd><code>(.*?)</code></dd>", page)
    commands = [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in found]
    assert f"vitreous doctor {run}" in commands
    assert f"vitreous train --resume {run} --epochs 10" in commands
    without = write_training_report(
        run, model=model_of(), evaluation=evaluation(7), images=images()
    ).read_text()
    assert "No problems found" in without


def test_curves_say_their_values_and_have_a_table(run: Path) -> None:
    figure = curves_figure(run, test=("accuracy", 0.7), chance={"accuracy": 0.25})
    assert isinstance(figure, Exhibit)
    assert "<title>epoch 2, Loss: training (augmented): 1</title>" in figure.html
    assert "<title>epoch 5, Accuracy: test: 0.7</title>" in figure.html
    rows = re.findall(
        r'<th scope="row">(\S+)</th><td class="number">([^<]*)</td><td class="number">([^<]*)</td>',
        figure.html,
    )
    assert ("2", "Loss: training (augmented)", "1") in rows
    assert ("5", "Accuracy: test", "0.7") in rows
    assert ("5", "Accuracy: chance", "0.25") in rows
    assert "Dashed: guessing" in figure.html
    assert figure.html.count('<svg class="chart" role="img" aria-label="Learning curves"') == 3
    assert figure.html.count("<title>Learning curves</title><desc>If the loss is still falling") == 3


def test_curves_of_contrastive_learning_say_how_many_pairs_are_found(run: Path) -> None:
    row = {"step": 1, "epoch": 1.0, "loss": 4.8, "pairs_found": 0.25, "lr": 0.1}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    for language, title in (("en", "Pairs found"), ("ko", "짝을 찾은 뷰의 비율")):
        with speaking(language):
            figure = curves_figure(run, kind="pairs")
        assert isinstance(figure, Exhibit)
        assert re.search(f"{title}: [^<]*: 0.25</title>", figure.html)
        assert title in figure.caption


def test_long_curves_stay_small(run: Path) -> None:
    rows = [{"step": e, "epoch": float(e), "loss": 1 / e, "lr": 0.1, "seconds": e} for e in range(1, 2001)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    figure = curves_figure(run)
    assert isinstance(figure, Exhibit)
    assert figure.html.count('class="hover"') == 3 * 60  # the loss twice: with a logarithmic axis, too


def test_labels_of_mixed_images() -> None:
    """Two images of one class, mixed, weigh a little less than one: they show that class alone."""
    assert label_of(torch.tensor([0.9999, 0.0, 0.0]), CLASSES) == "cat"
    assert label_of(torch.tensor([0.7, 0.3, 0.0]), CLASSES) == "cat 70.0% + dog 30.0%"


def test_figures_that_do_not_exist_are_left_out_with_a_reason(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    model = model_of(position={"kind": "rotary-2d"})
    path = write_training_report(run, model=model, evaluation=evaluation(9), images=images())
    page = path.read_text(encoding="utf-8")
    assert not {"curves", "positions", "baselines"} & sections(page)
    assert "rotary-2d positions act inside the attention" in page
    assert "metrics.jsonl holds no numbers yet" in page


def test_a_bit_has_no_attention_to_show(run: Path) -> None:
    bit = build_model(BiTConfig(num_classes=3, image_size=(32, 32), layers=(1, 1), width_factor=0.5))
    path = write_training_report(run, model=bit.eval(), evaluation=evaluation(7), images=images())
    page = path.read_text(encoding="utf-8")
    assert "a convolutional network has no attention" in page
    assert "filters" in sections(page)


def test_several_labels_for_an_image(run: Path) -> None:
    targets = np.eye(3, dtype=np.float32)[np.arange(9) % 3]
    judged = MultiLabelEvaluation(
        classes=CLASSES,
        indices=np.arange(9),
        names=tuple("abcdefghi"),
        targets=targets,
        probabilities=targets * 0.5 + 0.2,
        failed={},
        seconds=0.1,
    )
    made = images()
    made.targets = LabelTargets(csr_array(targets), made.classes)
    page = write_training_report(run, model=model_of(), evaluation=judged, images=made).read_text()
    assert "mean average precision (mAP) on 9 held-out images" in page
    assert "confusion" not in sections(page)
    assert "an image may have several labels at once" in page


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(Exception, match="undefined"):
        write_page(path, "run.html.j2", title="half of what it needs")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_model_in_a_line() -> None:
    small: dict[str, Any] = {
        "image_size": 32,
        "patch_size": 8,
        "width": 16,
        "depth": 2,
        "heads": 2,
        "mlp_dim": 16,
    }
    plain = build_model(vt.ViTConfig(**small, registers=3))
    assert model_summary(plain) == (
        "Vision Transformer, 2 layers, embedding dimension 16, 2 heads, 8×8 patches of 32×32 images, "
        "3 registers"
    )
    hybrid = vt.ViTConfig(**small, stem={"kind": "resnet", "layers": (), "width_factor": 0.5})
    assert model_summary(build_model(hybrid)).startswith("Vision Transformer on a ResNet, 2 layers")


def test_many_classes_are_in_a_table_that_scrolls_and_in_the_explorer(run: Path) -> None:
    classes = tuple(f"class {number}" for number in range(50))
    targets = np.arange(100) % 50
    said = np.where(np.arange(100) == 7, 8, targets)
    found = ClassificationEvaluation(
        classes=classes,
        indices=np.arange(100),
        names=tuple(map(str, range(100))),
        **answered(0.01 + 0.5 * np.eye(50)[said], targets),
        failed={},
        seconds=0.1,
    )
    table = classes_table(found)
    assert re.search(r"<td>class (\d+)</td>", table.html)[1] == "7"  # type: ignore[index]  # the worst first
    assert 'class="tall" tabindex="0" role="group" aria-label="Per-class metrics"' in table.html
    assert "lowest F1 come first" in table.caption
    model = model_of(num_classes=50)
    model.labels = classes
    pixels = np.zeros((100, 20, 20, 3), dtype=np.uint8)
    made = ArrayImages(pixels, targets, classes, name="made")
    page = write_training_report(run, model=model, evaluation=found, images=made).read_text(encoding="utf-8")
    assert "confusion" not in sections(page)
    assert "too many to read" not in page
    assert '<canvas data-part="matrix" tabindex="0" role="img"' in page


def test_over_fitting_and_resumes_are_said(run: Path) -> None:
    rows = read_metrics(run / "metrics.jsonl")
    for row, loss in zip(rows, (1.0, 0.5, 0.6, 0.8, 1.0), strict=True):
        row["validation_loss"] = loss
    rows[3]["resumed"] = rows[2]["step"]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    figure = curves_figure(run)
    assert isinstance(figure, Exhibit)
    assert "lowest in epoch 2 (▾) and has risen by 100% since: this run overfits" in figure.caption
    assert "<title>epoch 2, Loss: lowest validation loss: 0.5</title>" in figure.html
    assert figure.html.count("resumed: –</title>") == 3
    assert "Dotted lines" in figure.caption
    assert 'class="switch" type="checkbox"' not in figure.html, "nothing spans much"
    rows[0]["loss"] = 20.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    switched = curves_figure(run)
    assert isinstance(switched, Exhibit)
    assert 'class="switch" type="checkbox"' in switched.html
    assert switched.html.count('<div class="logarithmic">') == 1
    axes = re.findall(r"<svg.*?</svg>", str(switched.html), re.DOTALL)
    assert len(axes) == 4


def test_settings_of_baselines_are_in_the_language_of_the_page() -> None:
    """A run stores them in English; C and gamma are the names of numbers."""
    machine: dict[str, Any] = {"cost": 10, "gamma": 1e-5, "classes": 2}
    settings = (
        MachineSetting(**machine, mirrored=True),
        MachineSetting(**machine, too_many_to_mirror=True),
        NeighborsSetting(neighbors=5, task="classification", outputs=2),
        LogisticSetting(penalty=0.001, classes=2),
        RidgeSetting(penalty=1e-05, task="regression", outputs=1),
    )
    targets = np.array([1.0, 2.0, 4.0])
    evaluation = RegressionEvaluation(
        names="abc", indices=(0, 1, 2), targets=targets, predictions=targets, failed={}, seconds=1.0
    )
    for setting in settings:
        stored = f"{setting.words}, on 4,000 of 50,000 images"
        baseline = Baseline("k nearest neighbors", 0.5, Interval(0, 1), stored, 1.0)
        captions: dict[str, str] = {}
        for language in ("en", "ko"):
            with speaking(language):
                figure = baselines_figure(evaluation, [baseline])
            assert isinstance(figure, Exhibit)
            captions[language] = figure.caption
        assert stored in captions["en"]
        korean = captions["ko"].partition("k-최근접 이웃 (")[2]
        assert korean.endswith("이미지 4,000장으로 학습(전체 50,000장)).")
        assert set(re.findall("[A-Za-z]{2,}", korean)) <= {"gamma"}
    with speaking("ko"):
        assert (
            baseline_settings("neighbors 5, on 4 of 50 images") == "이웃 5개, 이미지 4장으로 학습(전체 50장)"
        )
        assert baseline_settings("penalty 1e-05") == "규제 강도 1e-05"


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_table_of_candidates_says_how_networks_were_measured(language: str) -> None:
    """It said that each was trained on the whole training set, also where folds alone decided."""
    with speaking(language):
        crossed, estimated, validation = (
            candidates_table([candidate_row(measured_on=measured, speed=9.0)]).caption
            for measured in ("cross-fitted", "difference", "validation")
        )
    assert "100" in crossed
    assert len({crossed, estimated, validation}) == 3


@pytest.mark.parametrize(("language", "words"), [("en", ("network", "trial")), ("ko", ("네트워크", "시도"))])
def test_the_table_of_candidates_says_of_networks_what_was_tried(
    language: str, words: tuple[str, str]
) -> None:
    """It spoke of short trials and of folds that measure networks where none was tried. What is ahead of the
    first, but cannot answer, has its row, which says why."""
    network, trial = words
    svm = candidate_row(measured_on="cross-fitted")
    scratch = candidate_row(measured_on="difference", speed=9.0, name="scratch")
    short = scratch | {"short": [True], "words": ["candidates.scratch"]}
    with speaking(language):
        none, trained, brief, passed_over = (
            candidates_table(rows)
            for rows in ([svm], [scratch, svm], [scratch, short, svm], [svm, short | {"passed_over": True}])
        )
        assert candidate_title(short) in brief.html
        title = candidate_title(short | {"passed_over": True})
    assert network not in none.caption
    assert trial not in none.caption
    assert network in trained.caption
    assert trial not in trained.caption
    assert trial in brief.caption
    assert title in passed_over.html
    assert title not in brief.html
    assert len({none.caption, trained.caption, brief.caption, passed_over.caption}) == 4
    counts = (answering_count([svm, short]), answering_count([svm, short | {"passed_over": True}]))
    assert counts == (2, 1)


def candidate_row(**given: Any) -> dict[str, Any]:
    """A row of candidates.json."""
    row = {"name": "x", "words": [], "init": [None], "measure": "accuracy", "score": 0.5, "count": 9}
    return row | {"interval": (0.4, 0.6), "speed": 0.0, "short": [False], "passed_over": False} | given


def test_every_task_has_its_baseline_and_its_gap() -> None:
    def head(found: Evaluation | None, **last: float) -> list[str]:
        return comparisons_of(found, {"epoch": 1.0, **last})

    targets = np.array([1.0, 2.0, 4.0])
    numbers = RegressionEvaluation(
        names="abc", indices=(0, 1, 2), targets=targets, predictions=targets + 1, failed={}, seconds=1.0
    )
    assert head(numbers, mean_error=0.5) == [
        "For comparison: always predicting the mean of the numbers gives an R2 of 0 and a mean absolute "
        "error of 1.111.",
        "Mean absolute error: 0.5 in training (augmented images, last epoch), 1 on the test set.",
    ]
    masks = SegmentationEvaluation(
        names=("a",), classes=("x", "y"), confusions=np.array([[[5, 5], [0, 10]]]), failed={}, seconds=1.0
    )
    assert "83.3%" not in head(masks, miou=0.9)[0]
    assert "20.8 points above the test mean IoU" in head(masks, miou=0.5 * (0.5 + 10 / 15) + 0.2083)[0]
    several = MultiLabelEvaluation(
        names=("a", "b"),
        indices=np.arange(2),
        classes=("x", "y"),
        targets=np.array([[1, 0], [1, 1]], dtype=np.float32),
        probabilities=np.array([[0.9, 0.1], [0.9, 0.8]]),
        failed={},
        seconds=1.0,
    )
    assert head(several, loss=0.2, validation_loss=0.3) == [
        "For comparison: a random ranking gives 75.0%.",
        "Loss in the last epoch: 0.2 in training, 0.3 in validation.",
    ]
    assert head(None, loss=0.2) == []


def test_a_run_that_minutes_ended_is_extended_in_minutes(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    assert twice_as_long(config, {"epoch": 3.5}, "train") == ("--epochs 7", 0)
    config.write_text('[training]\nlength = "5 epochs"\n')
    assert twice_as_long(config, {"epoch": 3.5, "seconds": 90.0}, "train") == ("--epochs 7", 1.5)
    early = {"epoch": 0.07, "seconds": 72.0}
    assert twice_as_long(config, early, "train") == ("--minutes 3", 1.2)
    assert twice_as_long(config, early, "translate train") == ("--epochs 0.14", 1.2)
    config.write_text('[training]\nlength = "1.0 minutes"\n')
    assert twice_as_long(config, {"epoch": 15.8, "seconds": 20.0}, "train") == ("--minutes 2", 1)
    config.write_text('[training]\nlength = "2.9 minutes"\n')
    assert twice_as_long(config, {"epoch": 62.62, "seconds": 80.0}, "train") == ("--minutes 6", 2.9)


def test_a_training_that_has_hardly_begun_is_said_to_be_that(run: Path) -> None:
    def notice() -> str:
        return report_head(run, model_of(), evaluation(7), (), findings=(), command="train")["notice"]

    assert notice() == ""
    row = {"step": 1, "epoch": 0.07, "loss": 2.0, "accuracy": 0.3, "lr": 1e-3, "seconds": 1}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert "ended after 0.07 of an epoch" in notice()
    with speaking("en"):
        assert phrase("head.commands.longer", minutes=2) == "Train for twice as long: about 2 more minutes"


def test_no_line_breaks_inside_a_rate(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", Template("<p>{{ text }}</p>"), text="44.9% of 30%, and a 7% 3")
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"\d %", written) == []
    assert "44.9% of 30%" in written
