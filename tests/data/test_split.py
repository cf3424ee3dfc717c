"""Which part each image is in: stable under changes of the folder, recorded in split.csv, and read again."""

import csv

import numpy as np
import pytest

from vitreous.addons.segmentation.folders import open_masked
from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.dataset import ArrayImages, named_parts
from vitreous.data.files import fingerprint
from vitreous.data.findings import data_notes, findings_of
from vitreous.data.held_out import (
    name_hashes,
    read_split,
    split,
    unseen_images,
    validation_fraction,
    write_split,
)
from vitreous.data.sources import open_data
from vitreous.errors import InputError


def parts_of(source, **config):
    """The part of each image by its name relative to the source."""
    splits = open_data(str(source), DataConfig(**config))
    parts = named_parts(*splits[:3])
    return {images.key(i): name for name, images in parts.items() for i in range(len(images))}


def kinds_of(splits):
    return {each.kind: each.found for each in splits.train.findings}


@pytest.fixture
def recorded(tmp_path, make):
    """A folder of 2 x 20 images and the split.csv of a run that learned from it."""
    make(tmp_path / "photos", count=20)
    splits = open_data(str(tmp_path / "photos"), DataConfig(validation_fraction=0.2))
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    return tmp_path / "photos", tmp_path / "split.csv"


def again(photos, file, **recorded):
    return open_data(str(photos), DataConfig(recorded={"file": str(file), **recorded}))


def test_other_images_move_no_image(tmp_path, make, make_jpeg):
    photos = make(tmp_path / "photos", count=40)
    before = parts_of(photos, validation_fraction=0.2)
    assert {"train", "validation", "test"} == set(before.values())
    (photos / "cat" / "0.jpg").unlink()
    (photos / "dog" / "more.jpg").write_bytes(make_jpeg(99))
    make(photos, classes=("zebra",), count=3)
    after = parts_of(photos, validation_fraction=0.2)
    assert {key: after[key] for key in before if key in after} == {
        key: part for key, part in before.items() if key != "cat/0.jpg"
    }
    assert len(after) == len(before) - 1 + 1 + 3


def test_every_class_has_an_image_in_each_part_if_it_has_two(tmp_path, make):
    photos = make(tmp_path / "photos", classes=tuple(f"c{number}" for number in range(30)), count=2)
    splits = open_data(str(photos), DataConfig())
    assert np.bincount(splits.train.targets.strata()).tolist() == [1] * 30
    assert np.bincount(splits.test.targets.strata()).tolist() == [1] * 30


def test_the_fraction_is_held_out_on_average():
    hashes = name_hashes([f"cat/{number:05}.jpg" for number in range(20_000)], "test 0")
    assert (hashes < 0.2).mean() == pytest.approx(0.2, abs=0.01)
    other = name_hashes([f"cat/{number:05}.jpg" for number in range(20_000)], "test 1")
    assert abs(np.corrcoef(hashes, other)[0, 1]) < 0.03


def test_the_same_parts_come_from_split_csv(recorded):
    photos, file = recorded
    rows = read_split(file)
    assert {key: row.part for key, row in rows.items()} == parts_of(photos, validation_fraction=0.2)
    assert {row.label for row in rows.values()} == {"cat", "dog"}
    assert len({row.digest for row in rows.values()}) == 40
    splits = again(photos, file)
    assert parts_of(photos, recorded={"file": str(file)}) == parts_of(photos, validation_fraction=0.2)
    assert data_notes(findings_of(splits)) == []


def test_new_gone_changed_and_relabeled_images_are_named(recorded, make_jpeg):
    photos, file = recorded
    rows = read_split(file)
    held = [key for key, row in rows.items() if row.part == "test"]
    (photos / "cat" / "new.jpg").write_bytes(make_jpeg(77))
    (photos / "cat" / "0.jpg").unlink()
    (photos / "cat" / "1.jpg").write_bytes(make_jpeg(78))
    moved = held[0].replace("cat/", "dog/x") if "cat/" in held[0] else held[0].replace("dog/", "cat/x")
    (photos / held[0]).rename(photos / moved)  # another label and another name, the same image
    splits = again(photos, file)
    assert kinds_of(splits) == {
        "new images": 1,
        "gone images": 1,
        "changed images": 1,
        "relabeled images": 1,
    }
    parts = parts_of(photos, recorded={"file": str(file)})
    notes = data_notes(findings_of(splits))[0]
    assert parts[moved] == "test"
    assert "cat/new.jpg" not in parts
    assert "1 image is new since the run began, and is left out (such as cat/new.jpg): " in notes
    assert parts_of(photos, recorded={"file": str(file), "new_images": True})["cat/new.jpg"] in (
        "train",
        "test",
    )


def test_a_new_class_is_left_out_and_a_missing_one_keeps_its_number(recorded, make):
    photos, file = recorded
    make(photos, classes=("bird",), count=3)
    splits = again(photos, file, new_images=True)
    assert splits.train.classes == ("cat", "dog")
    assert kinds_of(splits) == {"added images": 3}
    for index in range(len(splits.train)):
        assert splits.train.classes[splits.train.targets.strata()[index]] in splits.train.name(index)
    for image in (photos / "cat").iterdir():
        image.unlink()
    (photos / "cat").rmdir()
    splits = again(photos, file)
    assert splits.train.classes == ("cat", "dog")
    assert set(splits.train.targets.strata().tolist()) == {1}


def test_several_labels_keep_their_columns(tmp_path, make):
    photos = make(tmp_path / "photos", count=10)
    names = [f"photos/{path.parent.name}/{path.name}" for path in sorted(photos.rglob("*.jpg"))]
    labels = ["a|b", "b", "c:0.5|a", ""] * 5
    manifest = tmp_path / "list.csv"

    def write(extra=()):
        rows = [*zip(names, labels, strict=True), *extra]
        manifest.write_text("path,label\n" + "".join(f"{name},{label}\n" for name, label in rows))
        return manifest

    splits = open_data(str(write()), DataConfig())
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    changed = again(write([("photos/cat/none.jpg", "aa|b")]), tmp_path / "split.csv")
    assert changed.train.classes == ("a", "b", "c")
    assert (changed.train.targets.matrix != splits.train.targets.matrix).nnz == 0
    assert kinds_of(changed) == {"new images": 1}


def test_folders_of_the_source_stay_parts(tmp_path, make):
    make(tmp_path / "photos" / "train", count=10)
    make(tmp_path / "photos" / "test", count=3)
    splits = open_data(str(tmp_path / "photos"), DataConfig())
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    assert read_split(tmp_path / "split.csv")["test/cat/0.jpg"].part == "test"
    held = tmp_path / "photos" / "test" / "cat" / "0.jpg"
    held.write_bytes(held.read_bytes() + b"more, so that its content is its own")
    (tmp_path / "split.csv").unlink()
    splits = open_data(str(tmp_path / "photos"), DataConfig())
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    held.rename(tmp_path / "photos" / "train" / "cat" / "stolen.jpg")
    splits = again(tmp_path / "photos", tmp_path / "split.csv")
    assert kinds_of(splits) == {"moved images": 1}
    assert (len(splits.train), len(splits.test)) == (20, 5)


def test_trained_images_are_recognized_under_another_name(recorded, make_jpeg):
    photos, file = recorded
    other = photos.with_name("other")
    photos.rename(other)
    for number, image in enumerate(sorted(other.rglob("*.jpg"))):
        image.rename(image.with_name(f"renamed{number}.jpg"))
    (other / "cat" / "own.jpg").write_bytes(make_jpeg(123))
    everything = open_data(str(other), DataConfig(test_fraction=0)).train
    unseen = unseen_images(everything, file)
    trained = [row for row in read_split(file).values() if row.part == "train"]
    assert len(unseen) == 41 - len(trained)
    assert "cat/own.jpg" in [unseen.key(index) for index in range(len(unseen))]


def test_large_parts_have_the_digests_of_some(recorded, monkeypatch):
    photos, file = recorded
    for limit in ("held_out.MOST_EQUAL", "likeness.MOST_EQUAL", "held_out.SOME_DIGESTS"):
        monkeypatch.setattr(f"vitreous.data.{limit}", 4)  # these count as large
    splits = open_data(str(photos), DataConfig())
    file.unlink()
    write_split(file, named_parts(*splits[:3]))
    digests = [row.digest for row in read_split(file).values() if row.part == "train"]
    assert len([digest for digest in digests if digest]) == 4
    assert kinds_of(again(photos, file)) == {}
    # Those without a digest are recognized by their names where others say that these are the run's data.
    everything = open_data(str(photos), DataConfig(test_fraction=0)).train
    monkeypatch.setattr("vitreous.data.held_out.MOST_EQUAL", 40)  # all of them, but not more
    assert len(unseen_images(everything, file)) == len(splits.test)


def test_masks_and_shards_have_names_of_their_own(tmp_path, make):
    from PIL import Image

    for kind in ("images", "masks"):
        (tmp_path / "pages" / kind).mkdir(parents=True)
        for number in range(10):
            value = np.full((8, 8), number % 2, dtype=np.uint8)
            Image.fromarray(value).save(tmp_path / "pages" / kind / f"{number}.png")
    splits = open_masked(str(tmp_path / "pages"), DataConfig())
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    rows = read_split(tmp_path / "split.csv")
    assert rows["images/3.png"].label == ""
    (tmp_path / "pages" / "images" / "3.png").rename(tmp_path / "pages" / "images" / "3b.png")
    (tmp_path / "pages" / "masks" / "3.png").rename(tmp_path / "pages" / "masks" / "3b.png")
    config = DataConfig(recorded={"file": str(tmp_path / "split.csv")})
    found = open_masked(str(tmp_path / "pages"), config)
    assert len(found.train) + len(found.test) == 10


def test_a_damaged_split_csv_is_one_sentence(recorded):
    photos, file = recorded
    for text in ("path,part\na,train\n", "path,label,part,digest\na,b\n"):
        file.write_text(text)
        with pytest.raises(InputError, match=r"split\.csv"):
            again(photos, file)
    with pytest.raises(InputError, match=r"cannot read .*none\.csv"):
        again(photos, "none.csv")
    file.write_text("path,label,part,digest\nelsewhere.jpg,cat,train,\n")
    with pytest.raises(InputError, match="is it this run's data"):
        again(photos, file)


def test_a_fingerprint_reads_the_ends_and_the_middle():
    def of(data):
        return fingerprint(len(data), lambda place, count: data[place : place + count])

    data = bytearray(100_000)
    seen = {of(bytes(data))}
    for place in (0, 50_000, 99_999):
        data[place] ^= 1
        seen.add(of(bytes(data)))
        data[place] ^= 1
    assert len(seen | {of(bytes(data) + b"\0"), of(b""), of(b"a"), of(b"b")}) == 8


def test_split_csv_survives_odd_names(tmp_path, make, make_jpeg):
    photos = make(tmp_path / "photos", count=4)
    (photos / "cat" / 'a "quoted", name\nin two lines.jpg').write_bytes(make_jpeg(5))
    (photos / "cat" / b"\xff.jpg".decode("utf-8", "surrogateescape")).write_bytes(make_jpeg(6))
    splits = open_data(str(photos), DataConfig())
    write_split(tmp_path / "split.csv", named_parts(*splits[:3]))
    assert data_notes(findings_of(again(photos, tmp_path / "split.csv"))) == []
    with (tmp_path / "split.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert len(list(csv.reader(file))) == 11


def group_of(key):
    return key.rpartition("/")[2].partition("_")[0]


@pytest.fixture
def patients(tmp_path, make_jpeg):
    """30 patients with 1 to 6 images each, of two classes."""
    for patient in range(30):
        for number in range(1 + patient % 6):
            folder = tmp_path / "scans" / ("ill" if patient % 2 else "well")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"p{patient}_{number}.jpg").write_bytes(make_jpeg(100 * patient + number))
    return tmp_path / "scans"


def test_images_of_one_group_stay_together(patients, make_jpeg):
    pattern = "([^/_]+)_"
    parts = parts_of(patients, split=SplitByName(group_by=pattern), validation_fraction=0.2)
    part_of = {group_of(key): part for key, part in parts.items()}
    assert {key: part_of[group_of(key)] for key in parts} == parts
    assert set(part_of.values()) == {"train", "validation", "test"}
    (patients / "ill" / "p1_more.jpg").write_bytes(make_jpeg(5))
    more = parts_of(patients, split=SplitByName(group_by=pattern), validation_fraction=0.2)
    assert {key: more[key] for key in parts} == parts
    assert more["ill/p1_more.jpg"] == part_of["p1"]


def test_groups_of_a_manifest_are_a_column(patients):
    paths = [path.relative_to(patients) for path in sorted(patients.rglob("*.jpg"))]
    rows = [f"{path},{path.parts[0]},{group_of(str(path))}" for path in paths]
    manifest = patients / "list.csv"
    manifest.write_text("\n".join(["path,label,Patient", *rows]))
    parts = parts_of(manifest, split=SplitByName(group_by="Patient"))
    part_of = {group_of(key): part for key, part in parts.items()}
    assert {key: part_of[group_of(key)] for key in parts} == parts
    assert parts == parts_of(patients, split=SplitByName(group_by="([^/_]+)_"))
    splits = open_data(str(manifest), DataConfig(split=SplitByName(group_by="Patient")))
    write_split(patients / "split.csv", named_parts(*splits[:3]))
    manifest.write_text("\n".join(["path,label,Patient", *rows[1:], rows[0].replace("_0", "_new")]))
    (patients / paths[0]).rename(patients / str(paths[0]).replace("_0", "_new"))
    assert (
        data_notes(
            findings_of(open_data(str(manifest), DataConfig(recorded={"file": str(patients / "split.csv")})))
        )
        == []
    )


@pytest.mark.parametrize(
    ("source", "pattern", "sentence"),
    [
        ("scans", "patient", r"not a column, and matches nothing in the name '(ill|well)/p\d+_0\.jpg'"),
        ("scans", "(", "is not a pattern: missing"),
        ("scans", "jpg", "puts all images into one group"),
        ("digits", "digit", "digits comes already split, so data.split.group_by='digit' has no effect"),
    ],
)
def test_groups_that_cannot_be(patients, source, pattern, sentence):
    config = DataConfig(split=SplitByName(group_by=pattern))
    with pytest.raises(InputError, match=sentence):
        open_data(str(patients) if source == "scans" else source, config)


@pytest.mark.parametrize(("count", "expected"), [(80, 0), (500, 80)])
def test_enough_images_leave_some_for_validation_by_themselves(count, expected):
    pixels = np.random.default_rng(0).integers(0, 256, (2 * count, 8, 8), dtype=np.uint8)
    images = ArrayImages(pixels, np.arange(2 * count) % 2, ("a", "b"), name="made")
    train, validation, test = split({"train": images}, DataConfig(), where="made")
    found = 0 if validation is None else len(validation)
    assert expected / 2 <= found <= 1.5 * expected
    # The test set is that of a split without validation.
    _, _, same = split({"train": images}, DataConfig(validation_fraction=0.0), where="made")
    assert [test.key(i) for i in range(len(test))] == [same.key(i) for i in range(len(same))]
    assert len(train) + found + len(test) == 2 * count


def test_a_validation_part_is_never_a_large_part():
    shares = [validation_fraction(DataConfig(), images, 2) for images in (199, 200, 3600, 50_000, 10**6)]
    assert shares == [0.0, 0.1, pytest.approx(1 / 12), 0.01, 0.01]
    assert validation_fraction(DataConfig(validation_fraction=0.3), 10, 2) == 0.3
    assert validation_fraction(DataConfig(), 480, 49) == 0.0  # of fewer than ten of a class all are needed
