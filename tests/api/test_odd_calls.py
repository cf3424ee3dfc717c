"""Odd calls of the Python API end in one sentence, and results print on a screen."""

import io
import pickle

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.api.data_source import data_source
from vitreous.api.training import settings_of
from vitreous.cli import run
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.results import Result, Table
from vitreous.training.config import RunConfig
from vitreous.training.settings import configure


@pytest.fixture(scope="module")
def model():
    return vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=1).eval()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_images_that_are_not_prepared(model, dtype):
    with pytest.raises(vt.InputError, match=r"floating-point numbers, not torch.*preprocessing"):
        model(torch.zeros(1, 3, 32, 32, dtype=dtype))


def test_a_batch_of_nothing(model):
    with pytest.raises(vt.InputError, match="the batch is empty"):
        model(torch.zeros(0, 3, 32, 32))


def image_bytes():
    file = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(file, "PNG")
    return file.getvalue()


def test_images_as_bytes_and_open_files(model, tmp_path):
    (tmp_path / "a.png").write_bytes(image_bytes())
    expected = vt.predict(model, str(tmp_path / "a.png"))[0].probability
    with (tmp_path / "a.png").open("rb") as opened:
        for given in (
            image_bytes(),
            io.BytesIO(image_bytes()),
            [image_bytes()],
            memoryview(image_bytes()),
            opened,
        ):
            found = vt.predict(model, given)
            assert len(found) == 1
            assert found[0].probability == expected
    for wrong in (b"", b"no image", io.StringIO("text"), 137, {1: 2}, None):
        with pytest.raises(vt.InputError):
            vt.predict(model, wrong)


NAMES = [
    ("train", {"epoch": 2}, "epochs"),
    ("train", {"lr": 1e-3}, "training.peak_lr"),
    ("predict", {"batchsize": 2}, "batch_size"),
    ("embed", {"outt": 2}, "out"),
    ("export", {"fromat": 2}, "format"),
]


@pytest.mark.parametrize(("function", "given", "meant"), NAMES, ids=[each[2] for each in NAMES])
def test_a_parameter_that_is_not_there(function, given, meant):
    with pytest.raises(vt.InputError, match=meant) as caught:
        getattr(vt, function)("digits", **given)
    assert isinstance(caught.value, TypeError)
    assert pickle.loads(pickle.dumps(getattr(vt, function))) is getattr(vt, function)


@pytest.mark.parametrize("options", [{"top": 1.5}, {"top": True}, {"batch_size": 1.5}, {"batch_size": True}])
def test_numbers_that_are_not_whole(model, options):
    with pytest.raises(vt.InputError, match="not a whole number"):
        vt.predict(model, Image.new("RGB", (8, 8)), **options)


@pytest.mark.parametrize(
    "options", [{"image_size": np.zeros(2)}, {"settings": 1.5}, {"out": 3}, {"device": b"cpu"}]
)
def test_parameters_of_another_kind(model, options):
    with pytest.raises(vt.InputError, match=f"`{next(iter(options))}` .* is not a"):
        vt.predict(model, Image.new("RGB", (8, 8)), **options)


def test_a_model_without_weights():
    with torch.device("meta"):
        empty = vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=1)
    for call in (vt.predict, vt.embed):
        with pytest.raises(vt.InputError, match="meta device"):
            call(empty, Image.new("RGB", (8, 8)))


def test_weights_that_are_not_numbers():
    broken = vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=1)
    for value in (float("nan"), float("inf")):
        with torch.no_grad():
            next(broken.parameters()).view(-1)[0] = value
        with pytest.raises(vt.InputError, match="NaN or infinite"):
            vt.predict(broken, Image.new("RGB", (8, 8)))


def frame(tmp_path):
    rows = []
    for number in range(12):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (20, 20), (number, 0, 0)).save(path)
        rows.append(
            {
                "Path": path,
                "label": "고양이" if number % 2 else "dog",
                "split": "train" if number < 9 else "test",
            }
        )
    return pandas.DataFrame(rows)


def test_a_data_frame_is_a_manifest(tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    source = data_source(frame(tmp_path))
    assert source == data_source(frame(tmp_path))
    splits = open_data(source, DataConfig())
    assert (len(splits.train), len(splits.test), splits.train.classes) == (9, 3, ("dog", "고양이"))
    with pytest.raises(vt.InputError, match="no column 'path'"):
        data_source(pandas.DataFrame({"size": ["a"]}))


def test_labels_as_a_column(model):
    images = [np.full((8, 8), number, np.uint8) for number in range(8)]
    labels = np.array([0, 1] * 4)
    found = [
        open_data((images, each), DataConfig(test_fraction=0)).train.targets.strata()
        for each in (labels, labels[:, None])
    ]
    assert (found[0] == found[1]).all()


def test_channels_that_come_first_are_said(model):
    with pytest.raises(vt.InputError, match=r"transpose\(1, 2, 0\)"):
        model.preprocessing(np.zeros((3, 40, 50), np.uint8))


class Many(Result):
    def to_json(self):
        return {"count": 1000, "name": "x" * 500, "rows": []}

    def table(self):
        return [{f"column {column}": "y" * 100 for column in range(50)} for _ in range(1000)]


def test_results_fit_a_screen(model):
    text = repr(Many())
    assert len(text.splitlines()) < 15
    assert max(map(len, text.splitlines())) < 400
    assert "995 more rows" in text
    assert "42 more columns" in str(Many().table())
    assert str(Table([])) == "(no rows)"
    found = vt.predict(model, [Image.new("RGB", (8, 8))] * 40)
    assert len(repr(found)) < 2000
    assert isinstance(found.table(), Table)
    assert "label" in str(found.table()).splitlines()[0]


@pytest.mark.parametrize("pooling", ["class", "mean", "mean-all", "class+mean"])
def test_features_have_as_many_names_as_columns(pooling):
    sklearn = pytest.importorskip("vitreous.sklearn")
    encoder = vt.create("ViT-Ti/16", num_classes=None, image_size=32, depth=1, pooling={"kind": pooling})
    features = sklearn.ViTFeatures(encoder)
    columns = features.fit_transform([np.zeros((8, 8, 3), np.uint8)] * 2)
    assert columns.shape[1] == len(features.get_feature_names_out())


def test_a_name_that_the_hub_cannot_have():
    with pytest.raises(vt.InputError, match="not a name of the hub"):
        vt.load("hf:../..")


class Nothing(torch.nn.Module):
    def forward(self, images):
        raise KeyError


@pytest.mark.parametrize("module", [torch.nn.Linear(2, 2), torch.nn.Sequential(), Nothing()])
@pytest.mark.parametrize("function", [vt.evaluate, vt.inspect, vt.predict, vt.embed, vt.export, vt.describe])
def test_a_module_that_is_not_a_model_of_images(module, function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30)).save("a.png")
    with pytest.raises(vt.InputError):
        function(module, "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_model_without_weights_is_not_saved(model, tmp_path):
    with pytest.raises(vt.InputError, match="meta device"):
        vt.save(vt.create("ViT-Ti/16", image_size=32, depth=1).to("meta"), tmp_path / "model")


def test_a_data_frame_wherever_data_are(model, tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    paths = [str(tmp_path / f"{index}.png") for index in range(8)]
    for index, path in enumerate(paths):
        Image.new("RGB", (40, 30), (30 * index, 0, 0)).save(path)
    frame = pandas.DataFrame({"path": paths, "label": ["a", "b"] * 4})
    assert sum(vt.check_data(frame).images.values()) == 8
    assert vt.pack_data(frame, tmp_path / "shards").images == 8
    assert [each.path for each in vt.predict(model, frame)] == paths
    assert vt.embed(model, frame).paths == tuple(paths)


@pytest.mark.parametrize("value", [5, "yes", None])
def test_a_switch_is_true_or_false(model, value):
    with pytest.raises(vt.InputError, match=r"`tta` .* is not True or False"):
        vt.evaluate(model, "photos", tta=value)


def test_an_explicit_false_undoes_what_a_file_switches_on(tmp_path):
    """None leaves a switch as the file has it; False is an answer, as True is."""
    file = tmp_path / "own.toml"
    file.write_text(
        "[training.machine]\ndeterministic = true\n[data.reading]\nbad_files = 0.0\nworkers = 2\n"
        '[data.split]\nkind = "time"\ntime = "file"\nexclude = "/unwanted.csv"\n'
    )
    switches = ("deterministic", "strict", "split_by_time")
    kept = configure(RunConfig(), settings_of({"config": file, **dict.fromkeys(switches)}))
    assert kept.training.machine_config.deterministic
    assert (kept.data.read.bad_files, kept.data.split and kept.data.split.kind) == (0, "time")
    undone = configure(RunConfig(), settings_of({"config": file, **dict.fromkeys(switches, False)}))
    assert not undone.training.machine_config.deterministic
    assert (undone.data.read.bad_files, undone.data.read.workers) == (0.01, 2)
    split = undone.data.split
    assert split
    assert (split.kind, split.exclude) == ("name", "/unwanted.csv")
    unsaid = settings_of({**dict.fromkeys(switches, False), "deterministic": None})
    assert unsaid == {}


def test_the_command_line_can_undo_each_switch_of_a_file(tmp_path, capsys):
    """No digit has a time, so a split by time is refused, unless it is undone."""
    (tmp_path / "own.toml").write_text('[data.split]\nkind = "time"\n')
    given = ["train", "digits", "--config", str(tmp_path / "own.toml"), "--dry-run", "--init", "none"]
    assert run(given) == 2
    assert run([*given, "--no-split-by-time", "--no-strict", "--no-deterministic"]) == 0
