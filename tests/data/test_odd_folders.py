"""Folders as people have them: names of parts, links, names without endings, videos, renamed classes."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.dataset import named_parts
from vitreous.data.held_out import SPLIT, write_split
from vitreous.data.loading import BadFiles
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.models.stored import BadImage

pytestmark = pytest.mark.usefixtures("quick_figures")


def kinds(source, **config):
    splits = open_data(str(source), DataConfig(**config))
    return {each.kind: each.sentence for each in splits.train.findings}


@pytest.mark.parametrize("held", ["eval", "holdout", "testing", "Evaluation", "held-out"])
def test_held_out_parts_have_many_names(tmp_path, make, held):
    make(tmp_path / "train")
    make(tmp_path / held, count=3)
    splits = open_data(str(tmp_path), DataConfig())
    assert (len(splits.train), splits.validation, len(splits.test)) == (20, None, 6)
    rows = [f"train/{name}/{i}.jpg,{name},training" for name in ("cat", "dog") for i in range(10)]
    rows += [f"{held}/{name}/{i}.jpg,{name},{held}" for name in ("cat", "dog") for i in range(3)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,split", *rows]))
    listed = open_data(str(tmp_path / "list.csv"), DataConfig())
    assert (len(listed.train), len(listed.test)) == (20, 6)


def test_two_held_out_parts_are_for_validation_and_test(tmp_path, make):
    for part, count in (("train", 10), ("eval", 2), ("holdout", 3)):
        make(tmp_path / part, count=count)
    splits = open_data(str(tmp_path), DataConfig())
    assert (len(splits.validation), len(splits.test)) == (4, 6)


@pytest.mark.parametrize(
    ("link", "target"), [("self", "."), ("above", ".."), ("cat2", "cat"), ("part", "cat/sub")]
)
def test_a_link_to_images_that_have_a_class_is_no_class(photos, make_jpeg, link, target):
    (photos / "cat" / "sub").mkdir()
    (photos / "cat" / "sub" / "more.jpg").write_bytes(make_jpeg(99))
    (photos / link).symlink_to(target)
    splits = open_data(str(photos), DataConfig())
    assert splits.train.classes == ("cat", "dog")
    assert sum(map(len, named_parts(*splits[:3]).values())) == 21
    assert kinds(photos)["link"].startswith("1 class folder is a link to images that already have a class")
    assert "empty" not in kinds(photos)


def test_a_link_to_other_images_is_a_class(photos, tmp_path, make):
    make(tmp_path / "elsewhere", classes=("emu",))
    (photos / "emu").symlink_to(tmp_path / "elsewhere" / "emu")
    assert open_data(str(photos), DataConfig()).train.classes == ("cat", "dog", "emu")


def test_images_without_an_ending_and_videos_are_named(photos, make_jpeg):
    (photos / "emu").mkdir()
    for number in range(3):
        (photos / "emu" / f"IMG{number}").write_bytes(make_jpeg(number))
    (photos / "emu" / "README").write_text("about these images")
    (photos / "cat" / "walk.MP4").write_bytes(b"\0\0\0\x18ftypmp42 and so on")
    found = kinds(photos)
    assert found["no ending"].startswith("3 images are left out because their names have no extension")
    assert found["video"].startswith("1 video is left out (.mp4)")
    shutil.rmtree(photos / "cat")
    shutil.rmtree(photos / "dog")
    with pytest.raises(InputError, match="because their names have no extension"):
        open_data(str(photos), DataConfig())


def test_a_video_is_named_as_one(tmp_path):
    for name, head in {
        "a.mp4": b"\0\0\0\x20ftypisom",
        "b.mov": b"\0\0\0\x14ftypqt  ",
        "c.webm": b"\x1aE\xdf\xa3\x9fB\x86",
        "d.avi": b"RIFF\0\0\0\0AVI LIST",
    }.items():
        (tmp_path / name).write_bytes(head + bytes(200))
        with pytest.raises(InputError, match="a video: save its frames as images"):
            vt.embed("ViT-Ti/16", str(tmp_path / name), progress=False)


@pytest.mark.parametrize("name", ["kitten", "aardvark"])  # after and before the other class
def test_a_renamed_class_keeps_its_images(photos, tmp_path, name):
    splits = open_data(str(photos), DataConfig())
    write_split(tmp_path / SPLIT, named_parts(*splits[:3]))
    (photos / "cat").rename(photos / name)
    again = open_data(str(photos), DataConfig(recorded={"file": str(tmp_path / SPLIT)}))
    assert again.train.classes == ("cat", "dog")
    for before, after in ((splits.train, again.train), (splits.test, again.test)):
        assert np.array_equal(before.targets.counts(), after.targets.counts())
    for index in range(len(again.train)):
        assert (again.train.label(index) == "cat") == (name in again.train.key(index))
    found = {each.kind: each for each in again.train.findings}
    assert found.keys() == {"renamed class"}
    assert f"cat: {name}" in found["renamed class"].problem


def test_a_class_that_took_some_images_is_new(photos, tmp_path):
    splits = open_data(str(photos), DataConfig())
    write_split(tmp_path / SPLIT, named_parts(*splits[:3]))
    (photos / "new").mkdir()
    for number in range(3):
        (photos / "cat" / f"{number}.jpg").rename(photos / "new" / f"{number}.jpg")
    again = open_data(str(photos), DataConfig(recorded={"file": str(tmp_path / SPLIT)}))
    assert again.train.classes == ("cat", "dog")
    assert "renamed class" not in {each.kind for each in again.train.findings}


def test_names_of_classes_with_a_number_after_a_colon_are_kept(photos):
    for names in (("grade:1", "grade:2"), ("ratio 4:1", "ratio 16:9")):
        rows = [f"{name}/{i}.jpg,{names[name == 'dog']}" for name in ("cat", "dog") for i in range(10)]
        (photos / "list.csv").write_text("\n".join(["path,label", *rows]))
        splits = open_data(str(photos / "list.csv"), DataConfig())
        assert splits.train.classes == tuple(sorted(names))
        assert not splits.summary.multi_label


def test_what_is_almost_all_broken_is_not_gone_on_with():
    for bad, remedy in ((30, "bad_files=0.3 to continue"), (99, None)):
        found = BadFiles()
        for number in range(bad):
            found.add(BadImage(f"{number}.jpg", "the file is empty"))
        with pytest.raises(InputError) as error:
            found.check(100)
        assert ("bad_files" in str(error.value)) == bool(remedy)
        assert not remedy or remedy in str(error.value)


def test_masks_that_are_jpegs_are_refused(tmp_path):
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    for number in range(8):
        values = np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(values).save(tmp_path / "images" / f"{number}.png")
        Image.fromarray((values[..., 0] > 127).astype(np.uint8) * 255).save(
            tmp_path / "masks" / f"{number}.jpg"
        )
    for call in (vt.check_data, vt.train):
        with pytest.raises(InputError, match=r"masks/\d\.jpg is a JPEG, whose lossy compression"):
            call(tmp_path, task="segmentation")


def test_a_run_that_ended_before_its_configuration_may_begin_again(photos, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / SPLIT).write_text("path,label,part,digest\n")
    (out / ".split.csv.123-abcd.tmp").write_text("path")
    small = {"model.depth": 1, "model.width": 16, "model.heads": 2, "model.mlp_dim": 16}
    settings = {**small, "model.stem.kind": "patch"}
    vt.train(photos, out=out, epochs=1, image_size=16, batch_size=8, settings=settings, progress=False)
    assert len((out / SPLIT).read_text().splitlines()) == 21
    with pytest.raises(InputError, match="already exists"):
        vt.train(photos, out=out, epochs=1, image_size=16, settings=settings, progress=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / SPLIT).write_text("path,label,part,digest\n")
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        vt.train(photos, out=tmp_path / "other", epochs=1, image_size=16, settings=settings, progress=False)


@pytest.mark.slow
@pytest.mark.peers
def test_labels_of_hugging_face_that_do_not_begin_at_0_keep_their_meaning(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        num_labels=3,
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    described = {**json.loads(file.read_text()), "id2label": {"1": "cat", "2": "dog", "3": "emu"}}
    file.write_text(json.dumps(described))
    assert vt.load(tmp_path).labels == ["LABEL_0", "cat", "dog"]
    file.write_text(json.dumps({**described, "problem_type": "regression"}))
    with pytest.raises(InputError, match="predicts 3 numbers for each image, but regression supports one"):
        vt.predict(tmp_path, np.zeros((16, 16, 3), dtype=np.uint8))
