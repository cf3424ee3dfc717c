"""Labels in tables as people have them: other names of columns, a column for each class, metadata files."""

import json

import pytest

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError

FILES = [f"{name}/{index}.jpg" for name in ("cat", "dog") for index in range(10)]


def write(file, header, row_of):
    rows = [",".join(map(str, row_of(number, path))) for number, path in enumerate(FILES)]
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def labels_of(splits):
    return {part.key(i): part.label(i) for part in splits[:3] if part for i in range(len(part))}


def said(report):
    return [each.problem for each in report.findings if each.kind == "columns"]


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("file_name,label", "label"),
        ("image,label", "label"),
        ("filename,class", "class"),
        ("Image_ID,diagnosis", "diagnosis"),
        ("img_path,Target", "Target"),
    ],
)
def test_usual_names_of_columns_are_understood_and_said(photos, header, labels):
    table = write(photos / "list.csv", header, lambda _, path: (path, path[:3]))
    splits = open_data(str(table), DataConfig())
    assert all(label == key[:3] for key, label in labels_of(splits).items())
    [sentence] = said(vt.check_data(table))
    assert f"'{header.partition(',')[0]}' names the images, and '{labels}' holds their labels" in sentence


def test_the_names_of_this_project_need_no_sentence(photos):
    table = write(photos / "list.csv", "path,label", lambda _, path: (path, path[:3]))
    assert not said(vt.check_data(table))


def test_columns_are_named_by_settings_of_the_same_name_everywhere(photos, capsys):
    table = write(photos / "list.csv", "where,age,kind", lambda number, path: (path, number, path[:3]))
    with pytest.raises(InputError, match=r"no column 'path' .*data\.form\.path_column"):
        vt.check_data(table)
    settings = {"data.form.path_column": "where", "data.form.label_column": "kind"}
    assert set(vt.check_data(table, settings=settings).classes) == {"cat", "dog"}
    assert "'kind' holds their labels" in vt.doctor(table, settings=settings).findings[-1].problem
    assert vt.pack_data(table, photos / "packed", settings=settings).images == 20
    from vitreous.cli import run

    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    assert run(["data", "check", str(table), *options]) == 0
    assert "'kind' holds their labels" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"label_column='species' is not a column of labels: .* age, kind"):
        vt.check_data(table, settings={**settings, "data.form.label_column": "species"})


def test_columns_that_could_all_be_labels_are_asked_about(photos):
    table = write(photos / "list.csv", "path,age,kind", lambda number, path: (path, number, path[:3]))
    with pytest.raises(InputError, match=r"no column 'label' .*data\.form\.label_column"):
        open_data(str(table), DataConfig())


@pytest.mark.parametrize("values", [("0", "1"), ("0.0", "1.0"), ("False", "True"), ("", "1")])
def test_a_column_for_each_class_is_several_labels(photos, values):
    table = write(
        photos / "list.csv", "path,Cat,dog", lambda n, path: (path, values[n % 2], values[n // 2 % 2])
    )
    splits = open_data(str(table), DataConfig())
    assert splits.train.classes == ("Cat", "dog")
    assert splits.summary.multi_label
    found = labels_of(splits)
    for number, path in enumerate(FILES):
        names = [name for name, shown in (("Cat", number % 2), ("dog", number // 2 % 2)) if shown]
        assert found[path] == "|".join(names)
    [sentence] = said(vt.check_data(table))
    assert "each of 2 columns of 0s and 1s stands for a class (Cat, dog)" in sentence


def test_a_column_for_each_class_of_which_one_is_shown_is_one_label(photos):
    table = write(
        photos / "list.csv", "image,cat,dog", lambda n, path: (path, *(("1", "0"), ("0", "1"))[n > 9])
    )
    splits = open_data(str(table), DataConfig())
    assert not splits.summary.multi_label
    assert all(label == key[:3] for key, label in labels_of(splits).items())


def test_a_value_that_is_neither_0_nor_1_is_named(photos):
    table = write(photos / "list.csv", "path,cat,dog", lambda n, path: (path, -1 if n == 3 else 1, n % 2))
    with pytest.raises(InputError, match="no column 'label'"):
        open_data(str(table), DataConfig())
    settings = {"data.form.label_column": "cat,dog"}
    with pytest.raises(InputError, match=r"line 5 of .* has '-1' in the column of class 'cat'"):
        vt.check_data(table, settings=settings)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_folder_with_metadata_is_read_as_hugging_face_does(photos, suffix):
    """Images in one folder, with a file that says what they show."""
    images = photos / "images"
    images.mkdir()
    for path in FILES:
        (photos / path).rename(images / path.replace("/", "-"))
    for name in ("cat", "dog"):
        (photos / name).rmdir()
    rows = [{"file_name": f"images/{path.replace('/', '-')}", "animal": path[:3]} for path in FILES]
    if suffix == "csv":
        text = "file_name,animal\n" + "".join(f"{row['file_name']},{row['animal']}\n" for row in rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    (photos / f"metadata.{suffix}").write_text(text)
    found = labels_of(open_data(str(photos), DataConfig()))
    assert len(found) == 20
    assert all(label == key.partition("/")[2][:3] for key, label in found.items())
    assert found == labels_of(open_data(str(photos / f"metadata.{suffix}"), DataConfig()))
    assert said(vt.check_data(photos))


def test_metadata_of_parts(photos):
    for part, rows in (("train", range(8)), ("test", range(8, 10))):
        (photos / part).mkdir()
        lines = ["file_name,label"]
        for name in ("cat", "dog"):
            for number in rows:
                (photos / name / f"{number}.jpg").rename(photos / part / f"{name}{number}.jpg")
                lines.append(f"{name}{number}.jpg,{name}")
        (photos / part / "metadata.csv").write_text("\n".join(lines) + "\n")
    for name in ("cat", "dog"):
        (photos / name).rmdir()
    splits = open_data(str(photos), DataConfig())
    assert (len(splits.train), len(splits.test), splits.train.classes) == (16, 4, ("cat", "dog"))
    assert splits.test.key(0) == "test/cat8.jpg"


def test_metadata_beside_class_folders_leave_these_the_classes(photos):
    write(photos / "metadata.csv", "file_name,width", lambda _, path: (path, 64))
    assert open_data(str(photos), DataConfig()).train.classes == ("cat", "dog")


def test_metadata_of_parts_that_have_classes_of_their_own_may_differ(photos):
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (photos / part / name).mkdir(parents=True)
            for number in range(part == "val", 10, 2):
                (photos / name / f"{number}.jpg").rename(photos / part / name / f"{number}.jpg")
    (photos / "train" / "metadata.csv").write_text("file_name,width\ncat/0.jpg,64\n")
    (photos / "val" / "metadata.csv").write_text("file_name,width,lens\ncat/1.jpg,64,wide\n")
    splits = open_data(str(photos), DataConfig())
    assert (len(splits.train), len(splits.test), splits.train.classes) == (10, 10, ("cat", "dog"))


def test_a_table_of_something_else_need_not_be_whole(photos):
    (photos / "metadata.csv").write_text("camera,lens\nsmall,wide,slow\n")
    assert open_data(str(photos), DataConfig()).train.classes == ("cat", "dog")
    (photos / "metadata.csv").write_text("file_name,label\ncat/0.jpg,cat,old\n")
    with pytest.raises(InputError, match=r"metadata\.csv, line 2 has 3 fields instead of 2: quote"):
        open_data(str(photos), DataConfig())


def test_lists_of_labels_in_json_lines_are_several_labels(photos):
    rows = [{"image": path, "labels": ["animal", path[:3]]} for path in FILES]
    (photos / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    splits = open_data(str(photos / "list.jsonl"), DataConfig())
    assert splits.train.classes == ("animal", "cat", "dog")
    (photos / "bad.jsonl").write_text('{"image": "a.jpg"}\n[1]\n')
    with pytest.raises(InputError, match=r"bad\.jsonl, line 2 is not a JSON object"):
        open_data(str(photos / "bad.jsonl"), DataConfig())


def test_data_frames_have_such_columns_too(photos):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"file_name": [str(photos / path) for path in FILES], "class": [path[:3] for path in FILES]}
    )
    assert set(vt.check_data(frame).classes) == {"cat", "dog"}
    other = frame.rename(columns={"file_name": "where"})
    settings = {"data.form.path_column": "where"}
    assert set(vt.check_data(other, settings=settings).classes) == {"cat", "dog"}
