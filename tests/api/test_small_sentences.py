"""What users meet at the edges: settings, many equal failures, odd characters, wrong arguments, pages."""

import logging

import pytest

import vitreous as vt
from vitreous.addons.learn_page.page import POLICY_WITH_KERNEL
from vitreous.cli import run
from vitreous.cli.printing import print_wrong
from vitreous.errors import InputError, printable
from vitreous.inspection.page import POLICY
from vitreous.whole_files import write_csv


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("training.length.steps=2", "training.length: it is one value, and has no setting 'steps' inside"),
        ("training.batch_size=many", "training.batch_size: 'many' is not a whole number"),
        ("training.batch_size=-3", "is out of range: write a value"),
        ("training.peak_lr=fast", "training.peak_lr: 'fast' is not a number"),
        ("data.class_balance=perhaps", "data.class_balance: 'perhaps' is not true or false"),
        ("data.form.nested=maybe", "'maybe' is unknown: choose from 'ask', 'inner' or 'outer'"),
    ],
)
def test_mistakes_in_settings_have_sentences_of_ours(photos, capsys, setting, sentence):
    assert run(["train", str(photos), "--set", setting, "--out", str(photos / "run")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Input should be" not in said


def test_one_cause_is_not_said_for_every_image(capsys):
    failed = {f"{number}.jpg": "the file is empty" for number in range(48)} | {"x.png": "a text"}
    assert print_wrong(failed, {"y.png": "it ends too early"}) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "vitreous: 0.jpg: the file is empty"
    assert lines[5] == "vitreous: ... 43 more: the file is empty"
    assert [line.split(":")[1].strip() for line in lines[6:]] == ["x.png", "y.png"]


def test_characters_that_turn_a_line_are_written_out():
    assert printable("a\u202eb\u2066c\u200f\n") == "a\\u202eb\\u2066c\u200f\n"


def test_formulas_in_tables_are_kept_and_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        write_csv(
            tmp_path / "x.csv", ("a", "b"), [("=HYPERLINK(1)", "-1"), ("@SUM(1)", "-a.jpg"), ("cat", "+1")]
        )
    assert (tmp_path / "x.csv").read_text().splitlines()[1] == "=HYPERLINK(1),-1"
    assert "2 texts in the table start like formulas, such as '=HYPERLINK(1)'" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        write_csv(tmp_path / "y.csv", ("a",), [("-0.5",), ("cat",)])
    assert not caplog.text


def test_wrong_arguments_of_functions_are_sentences(tmp_path):
    with pytest.raises(
        InputError, match=r"a run is a path or a Run, not a list: write vt\.compare\(one, other\)"
    ):
        vt.compare([tmp_path, tmp_path])


def test_a_run_is_converted_and_its_pages_load_nothing(tmp_path, photos, quick_figures):
    small = {
        "model.depth": 1,
        "model.width": 16,
        "model.heads": 2,
        "model.mlp_dim": 16,
        "model.stem.kind": "patch",
    }
    run = vt.train(
        photos, epochs=1, batch_size=8, image_size=16, out=tmp_path / "run", settings=small, progress=False
    )
    assert vt.convert(run, tmp_path / "converted").max_abs_difference == 0
    image = next(photos.rglob("*.png"))
    vt.inspect(run, image, out=tmp_path / "page", progress=False)
    vt.learn(run, out=tmp_path / "other.html")
    pages = [*tmp_path.rglob("*.html")]
    assert {"report.html", "other.html"} < {page.name for page in pages}
    for page in pages:
        # learn.html also compiles its WebAssembly.
        policy = POLICY_WITH_KERNEL if page.name in ("learn.html", "other.html") else POLICY
        assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page.read_text(), page
