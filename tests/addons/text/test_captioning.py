"""`vitreous train --task captioning`, and what other commands do with such a run."""

import json
import tomllib

import pytest
from torch.nn.modules.module import register_module_forward_pre_hook

from vitreous.addons.text.task import images_config, pairs_config
from vitreous.layers.embedding import ConvolutionStem, LinearPatchStem, PatchStem

SMALL = (
    "--set", "training.length=2 steps", "--set", "model.encoder.depth=1", "--set", "model.decoder.depth=1",
    "--set", "training.batch_size=4", "--set", "model.decoder.max_length=24",
)  # fmt: skip


@pytest.fixture(scope="module")
def manifest(workplace):
    rows = [f"photos/{label}/{n}.jpg,text {label}{n}" for label in "37" for n in range(6)]
    path = workplace / "lines.csv"
    path.write_text("\n".join(["path,label", *rows, "photos/3/7.jpg,"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def reader(manifest, command, workplace):
    run = workplace / "runs" / "lines"
    if not run.exists():
        done = command("train", manifest, "--task", "captioning", "--out", run, *SMALL, "--json")
        assert done.code == 0, done.err
        assert "skipped 1" in done.err
        result = json.loads(done.out)
        assert {"test_line_accuracy", "test_character_accuracy", "test_count", "run"} <= set(result)
    return run


@pytest.mark.parametrize("count", [2, 23])
def test_the_recipe_fits_a_few_images(count):
    assert images_config(count).training.batch_size == count
    assert images_config(1000).training.batch_size == 32
    assert pairs_config(count).training.batch_size == count


def test_a_run_holds_what_it_needs(reader):
    names = {path.name for path in reader.iterdir()}
    assert {"config.toml", "model", "metrics.jsonl", "report.html", "README.md", "checkpoints"} <= names
    assert {path.name for path in (reader / "model").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


def test_predict_reads_images(reader, command):
    done = command("predict", reader, "photo.jpg", "missing.jpg", "--json")
    assert done.code == 1
    told = json.loads(done.out)
    answer, missing = told["predictions"]
    assert set(answer) == {"path", "text", "score"}
    assert (answer["path"], missing["path"], missing["text"]) == ("photo.jpg", "missing.jpg", None)
    assert [each["path"] for each in told["failed"]] == ["missing.jpg"]


def test_evaluate_judges_again(reader, command):
    done = command("evaluate", reader, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["test_count"] == 1
    assert "line accuracy" in command("evaluate", reader).out


def test_evaluate_reads_as_many_together_as_are_asked_for(reader, manifest, command):
    together = []

    def counted(module, inputs):
        if isinstance(module, (PatchStem, LinearPatchStem, ConvolutionStem)):
            together.append(len(inputs[0]))

    other = manifest.with_name("as-many.csv")
    other.write_text(manifest.read_text())
    with register_module_forward_pre_hook(counted):
        assert command("evaluate", reader, other, "--batch-size", "5").code == 0
    assert together == [5, 5, 2]


def test_advice_for_training_is_not_given_to_other_commands(reader, command):
    done = command("predict", reader, "photo.jpg", "--image-size", "8")
    assert (done.code, done.err) == (
        2,
        "vitreous: --image-size does not apply to --task captioning: leave it out\n",
    )


def test_evaluate_never_judges_by_what_was_learned(reader, manifest, command):
    same = command("evaluate", reader, manifest, "--json")
    assert json.loads(same.out)["test_count"] == 1
    other = manifest.with_name("other.csv")
    other.write_bytes(manifest.read_bytes())
    assert json.loads(command("evaluate", reader, other, "--json").out)["test_count"] == 12
    other.write_text("path,label,split\nphotos/3/0.jpg,a,train\nphotos/3/1.jpg,b,test\n")
    assert json.loads(command("evaluate", reader, other, "--json").out)["test_count"] == 1


def test_inspect_shows_where_letters_were_read(reader, command, tmp_path):
    done = command("inspect", reader, "photo.jpg", "--out", tmp_path, "--json")
    assert done.code == 0, done.err
    assert [each["source"] for each in json.loads(done.out)["written"]] == ["photo.jpg"]
    done = command("inspect", reader, "--out", tmp_path / "unasked", "--json")
    assert done.code == 0
    assert all("/" not in each["source"] for each in json.loads(done.out)["written"])
    for option in (("--patch", "1x1"), ("--label", "x"), ("--compare", "runs/mine"), ("--image-size", "8")):
        done = command("inspect", reader, "photo.jpg", *option, "--out", tmp_path / "no")
        assert done.code == 2, option
        assert done.err == f"vitreous: {option[0]} does not apply to --task captioning: leave it out\n"
    done = command("inspect", reader, "photo.jpg", "--out", "/proc/nowhere")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "cannot write /proc/nowhere" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--task", "captioning", "photo.jpg"), "not a manifest"),
        (("--task", "captioning", "--model", "ViT-B/16"), "--model does not apply to --task captioning"),
        (("--task", "captioning", "--resume", "runs/mine"), "runs/mine is a run of --task classification"),
        (("--task", "captioning", "--set", "model.encoder.widht=3"), "model.encoder.width"),
        (("--task", "words"), "words"),
        (("--task", "captioning", "--shard"), "--shard spreads the weights over processes, and there is one"),
        (("--task", "captioning", "--strict"), "--strict does not apply to --task captioning"),
        (
            ("--task", "captioning", "--batch-size", "auto"),
            "--batch-size auto does not apply",
        ),
        (("--task", "captioning", "--precision", "fp8"), "take auto, bf16 or fp32"),
        (
            ("--task", "captioning", "--set", "training.records.track=wandbb"),
            "'wandb', 'mlflow' or 'trackio'",
        ),
    ],
)
def test_bad_input_is_one_sentence(command, arguments, said):
    done = command("train", *arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1, done.err


def test_epochs_and_precision_are_heard(manifest, command, tmp_path):
    """Also where a recipe has steps."""
    done = command(
        "train", manifest, "--task", "captioning", "--out", tmp_path / "run", *SMALL[2:], "--epochs", "1",
        "--precision", "bf16",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["training"]
    assert (told["length"], told["precision"]) == ("1 epochs", "bf16")


@pytest.mark.slow
def test_a_run_goes_on_without_being_told_the_task(manifest, command, tmp_path):
    path = tmp_path / "run"
    assert command("train", manifest, "--task", "captioning", "--out", path, *SMALL).code == 0
    toml = path / "config.toml"
    toml.write_text(toml.read_text().replace('length = "2 steps"', 'length = "4 steps"'))
    done = command("train", "--resume", path, "--json")
    assert done.code == 0, done.err
    assert "step 4/4" in done.err


@pytest.mark.slow
def test_the_bundled_lines_are_learned(command, tmp_path):
    done = command("train", "--task", "captioning", "--out", tmp_path / "run", "--json")
    result = json.loads(done.out)
    assert result["test_character_accuracy"] >= 0.97
    assert result["test_line_accuracy"] >= 0.85


@pytest.mark.slow
def test_images_that_cannot_be_read_are_listed(manifest, command, tmp_path):
    rows = [line for line in manifest.read_text().splitlines() if line.startswith(("path", "photos/3"))]
    (manifest.parent / "torn.jpg").write_bytes(b"no image")
    table = manifest.with_name("torn.csv")
    table.write_text("\n".join([*rows, "torn.jpg,torn"]) + "\n")
    done = command(
        "train", table, "--task", "captioning", "--out", tmp_path / "run", *SMALL, "--batch-size", "6"
    )
    assert done.code == 0, done.err
    listed = tmp_path / "run" / "bad_files.txt"
    assert "torn.jpg" in listed.read_text()
    assert f"could not be read and were left out: 1, see {listed}" in done.out
