"""CSV, TSV and Parquet tables: one label, several, soft ones; splits; mistakes."""

import numpy as np
import pytest

from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.tasks.images import data_config, with_form


def write(path, rows, separator=","):
    path.write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


ROWS = [("path", "label")] + [(f"{name}/{index}.jpg", name) for name in ("cat", "dog") for index in range(10)]


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_paths_are_relative_to_the_manifest(photos, suffix, separator):
    splits = open_data(write(photos / f"list{suffix}", ROWS, separator), DataConfig())
    assert len(splits.train) + len(splits.test) == 20
    assert splits.train.image(0).size == (64, 48)
    assert splits.train.label(0) in splits.train.name(0)


def test_paths_may_be_absolute(photos, tmp_path):
    """A manifest beside other images, or made on another day."""
    rows = [ROWS[0], *((str(photos / path), label) for path, label in ROWS[1:])]
    (tmp_path / "elsewhere").mkdir()
    splits = open_data(write(tmp_path / "elsewhere" / "list.csv", rows), DataConfig())
    assert splits.train.image(0).size == (64, 48)
    assert splits.train.name(0).startswith(str(photos))


def test_parquet_gives_what_csv_gives(photos):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    header, *rows = ROWS
    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    parquet.write_table(pyarrow.table(columns), photos / "list.parquet")
    one = open_data(str(photos / "list.parquet"), DataConfig())
    two = open_data(write(photos / "list.csv", ROWS), DataConfig())
    assert [one.train.name(i) for i in range(16)] == [two.train.name(i) for i in range(16)]
    assert np.array_equal(one.train.targets.strata(), two.train.targets.strata())


def test_columns_are_found_whatever_their_case(photos):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [(*row, str(number // 2)) for number, row in enumerate(ROWS[1:])]
    columns = dict(zip(("Path", " LABEL", "Patient"), zip(*rows, strict=True), strict=True))
    parquet.write_table(pyarrow.table(columns), photos / "list.parquet")
    write(photos / "list.csv", [tuple(columns), *rows])
    config = DataConfig(split=SplitByName(group_by="Patient"))
    one, two = (open_data(str(photos / f"list.{suffix}"), config).train for suffix in ("parquet", "csv"))
    assert one.groups is not None
    assert one.groups.tolist() == two.groups.tolist()


def test_a_split_column_is_kept(photos):
    part = ["train"] * 6 + ["valid"] * 2 + ["test"] * 2
    rows = [(*ROWS[0], "split"), *((*row, part[i % 10]) for i, row in enumerate(ROWS[1:]))]
    splits = open_data(write(photos / "list.csv", rows), DataConfig())
    assert [len(each) for each in splits[:3]] == [12, 4, 4]


def test_several_labels_are_rows(photos):
    rows = [ROWS[0], *((path, f"{label}|animal") for path, label in ROWS[1:]), ("cat/0.jpg", "")]
    splits = open_data(write(photos / "list.csv", rows), DataConfig(test_fraction=0))
    assert splits.train.classes == ("animal", "cat", "dog")
    rows = splits.train.targets.tensor().numpy()
    assert rows[[0, -1]].tolist() == [[1, 1, 0], [0, 0, 0]]
    assert rows.dtype == np.float32
    assert splits.train.targets.matrix.nnz == 40  # no zero is stored
    assert splits.train.targets.strata().tolist() == rows.argmax(axis=1).tolist()
    assert splits.summary.multi_label


def test_a_missing_label_does_not_make_the_task_multi_label(photos):
    """One empty field would change what every other row means."""
    path = write(photos / "list.csv", [*ROWS[:3], ("cat/2.jpg", " "), *ROWS[4:]])
    with pytest.raises(InputError, match=r"^line 4 of .*list\.csv has no label: write its class"):
        open_data(path, DataConfig())


def test_a_missing_label_in_parquet_is_no_class_of_that_name(photos):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"path": [row[0] for row in ROWS[1:]], "label": [None, *(row[1] for row in ROWS[2:])]}
    parquet.write_table(pyarrow.table(columns), photos / "list.parquet")
    with pytest.raises(InputError, match=r"^row 1 of .*list\.parquet has no label"):
        open_data(str(photos / "list.parquet"), DataConfig())


def captions(count):
    things = ("dog", "cat", "bird", "old man", "red car")
    return [f"a {things[i % 5]} that looks at {things[i // 5 % 5]} number {i}" for i in range(count)]


@pytest.mark.parametrize("wanted", [24, 40])
def test_captions_are_not_classes(photos, wanted):
    texts = (captions(wanted) * 2)[:40]
    rows = [ROWS[0], *((f"cat/{i % 10}.jpg", text) for i, text in enumerate(texts))]
    with pytest.raises(InputError, match=rf"{wanted} different texts .* of 40 images.*use classes"):
        open_data(write(photos / "list.csv", rows), DataConfig())


def test_long_names_of_classes_and_of_few_images_are_classes(photos):
    rows = [ROWS[0], *((f"cat/{i % 10}.jpg", text) for i, text in enumerate(captions(20) * 2))]
    assert len(open_data(write(photos / "list.csv", rows), DataConfig()).train.classes) == 20
    assert len(open_data(write(photos / "few.csv", rows[:12]), DataConfig()).train.classes) == 11
    words = [(path, f"class {index}") for index, (path, _) in enumerate(rows[1:])]
    assert len(open_data(write(photos / "words.csv", [ROWS[0], *words]), DataConfig()).train.classes) == 40


LABELS = {
    "none": lambda i: "",
    "captions": lambda i: captions(20)[i],
    "numbers": lambda i: str(i / 7),
    "some": lambda i: "cat" if i else "",
}


@pytest.mark.parametrize("labels", LABELS)
def test_what_needs_no_labels_takes_any_manifest(photos, labels):
    rows = [ROWS[0], *((path, LABELS[labels](i)) for i, (path, _) in enumerate(ROWS[1:]))]
    images = open_data(write(photos / "list.csv", rows), DataConfig(), "unlabeled").train
    assert images.classes == ("image",)
    assert set(images.targets.strata().tolist()) == {0}


def test_what_needs_no_labels_needs_no_such_column(photos):
    paths = [path for path, _ in ROWS[1:]]
    for separator in ",;":
        rows = [("path", "day", "place"), *((path, "3", "lake") for path in paths)]
        splits = open_data(write(photos / "list.csv", rows, separator), DataConfig(), "unlabeled")
        assert len(splits.train) + len(splits.test) == 20
    with pytest.raises(InputError, match="no column 'label'"):
        open_data(str(photos / "list.csv"), DataConfig())
    with_classes = open_data(write(photos / "classes.csv", ROWS), DataConfig(), "unlabeled").train
    assert with_classes.classes == ("cat", "dog")


def test_soft_labels(photos):
    rows = [ROWS[0], ("cat/0.jpg", "cat:0.7 | dog:0.3"), ("cat/1.jpg", "dog")]
    splits = open_data(write(photos / "list.csv", rows), DataConfig(test_fraction=0))
    assert np.allclose(splits.train.targets.tensor().numpy(), [[0.7, 0.3], [0, 1]])
    assert splits.train.targets.strata().tolist() == [0, 1]
    assert splits.train.label(0) == "cat:0.7|dog:0.3"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("where", "label"), ("a", "b")], "no column 'path'"),
        ([("path", "label")], "lists no image"),
        (
            [("path", "label"), ("a.jpg", "cat"), ("b.jpg",)],
            "line 3 has 1 fields instead of 2: add those that are missing",
        ),
        ([("path", "label"), ("a.jpg", "cat:2"), ("b.jpg", "dog:0.5")], "outside 0 ... 1"),
        ([("path", "label", "split"), ("a", "x", "train"), ("b", "y", "tarin")], "split 'tarin'"),
        ([], "no column 'path'"),
    ],
)
def test_each_mistake_has_its_sentence(tmp_path, rows, sentence):
    with pytest.raises(InputError, match=sentence):
        open_data(write(tmp_path / "list.csv", rows), DataConfig())


@pytest.mark.parametrize("name", ["list.csv", "list.tsv"])
@pytest.mark.parametrize("sign", [";", ",", "\t"])
def test_what_stands_between_columns_is_told_from_the_first_line(photos, name, sign):
    """Spreadsheets write semicolons where the comma is a decimal point."""
    (photos / name).write_text("".join(f"{sign.join(row)}\n" for row in ROWS))
    usual = open_data(write(photos / "usual.csv", ROWS), DataConfig())
    splits = open_data(str(photos / name), DataConfig())
    assert splits.train.classes == usual.train.classes
    assert np.array_equal(splits.train.targets.strata(), usual.train.targets.strata())


def test_images_of_which_none_can_be_read_say_why(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jpg").write_bytes(b"no image")
    rows = [("path", "label"), ("a.jpg", "cat"), ("b.jpg", "dog")]
    with pytest.raises(InputError, match=r"none of the 2 images .*\.jpg \(not an image of a known format\)"):
        open_data(write(tmp_path / "list.csv", rows), DataConfig(test_fraction=0.5))


def numbers(photos, values):
    rows = [("path", "label"), *((f"cat/{index % 10}.jpg", value) for index, value in enumerate(values))]
    return write(photos / "ages.csv", rows)


@pytest.mark.parametrize("values", [[f"{n / 8}" for n in range(40)] * 3, [str(n % 178) for n in range(200)]])
def test_many_different_numbers_are_not_taken_for_classes(photos, values):
    with pytest.raises(InputError, match=rf"{len(set(values))} different numbers .* add `task` regression"):
        open_data(numbers(photos, values), DataConfig())


def test_numbered_classes_stay_classes(photos):
    splits = open_data(numbers(photos, [str(n % 30) for n in range(120)]), DataConfig())
    assert len(splits.train.classes) == 30


def test_numbers_to_predict_are_float32(photos):
    splits = open_data(numbers(photos, [f"{n / 8}" for n in range(40)]), DataConfig(), "numbers")
    assert splits.train.targets.values.dtype == splits.test.targets.values.dtype == np.float32
    assert splits.train.classes == ()
    assert (splits.summary.classes, splits.summary.multi_label) == (0, False)
    together = np.concatenate([splits.train.targets.values, splits.test.targets.values])
    assert sorted(together.tolist()) == [n / 8 for n in range(40)]
    assert 4 <= len(splits.test) <= 16


def test_a_label_that_is_not_a_number_is_named(photos):
    with pytest.raises(InputError, match=r"line 3 of .*ages\.csv has the label 'old', which is not a finite"):
        open_data(numbers(photos, ["1", "old", "3"]), DataConfig(), "numbers")
    with pytest.raises(InputError, match=r"there is no no\.csv: DATA is"):
        open_data("no.csv", DataConfig(), "numbers")
    with pytest.raises(InputError, match="has no numbers to predict"):
        open_data(str(photos), DataConfig(), "numbers")


@pytest.mark.parametrize(
    ("source", "option", "sentence"),
    [
        ("digits", {"streaming": True}, "streaming has no effect with data.form.kind=plain"),
        ("list.csv", {"streaming": True}, "streaming has no effect with data.form.kind=manifest"),
        (
            "synthetic:20@8",
            {"label_separator": ";"},
            "separator has no effect with data.form.kind=plain",
        ),
        ("list.csv", {"kind": "hub"}, "data.form.kind=hub does not fit list.csv, which is manifest"),
    ],
)
def test_an_option_without_effect_is_refused(photos, monkeypatch, source, option, sentence):
    monkeypatch.chdir(photos)
    write(photos / "list.csv", ROWS)
    with pytest.raises(InputError, match=sentence):
        open_data(source, data_config(with_form({"data": {"form": option}}, source)))


def test_a_validation_fraction_beside_a_validation_part_is_refused(photos):
    part = ["train"] * 6 + ["valid"] * 2 + ["test"] * 2
    rows = [(*ROWS[0], "split"), *((*row, part[i % 10]) for i, row in enumerate(ROWS[1:]))]
    with pytest.raises(InputError, match=r"validation_fraction=0\.1 has no effect"):
        open_data(write(photos / "list.csv", rows), DataConfig(validation_fraction=0.1))
