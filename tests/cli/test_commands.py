"""What evaluate, predict and describe print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import vitreous as vt

Call = Callable[..., tuple[int, str, str]]


def test_evaluate_judges_the_held_out_part_of_the_run(command: Call) -> None:
    code, out, err = command("evaluate", "runs/mine", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["run"] == "runs/mine"
    assert result["test_count"] == 360, "a fifth of the digits"
    low, high = result["test_accuracy_interval"]
    assert low < result["test_accuracy"] < high < 0.5, "it never learned"
    assert {"seconds", "per_class", "confusion", "calibration"} <= result.keys()
    assert len(result["confusion"]) == 10


def test_another_split_is_another_split(command: Call) -> None:
    results = [
        json.loads(command("evaluate", "runs/mine", "--json", "--set", f"data.split.seed={seed}").out)  # type: ignore[attr-defined]
        for seed in (0, 0, 1)
    ]
    confusions = [result["confusion"] for result in results]
    assert confusions[0] == confusions[1] != confusions[2]


def test_other_data_are_judged_whole(command: Call) -> None:
    code, out, _ = command("evaluate", "runs/mine", "photos/", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["test_count"] == 24
    supports = {score["label"]: score["support"] for score in result["per_class"]}
    assert supports["3"] == supports["7"] == 12
    assert sum(supports.values()) == 24


def test_evaluate_for_people(command: Call) -> None:
    code, out, _ = command("evaluate", "runs/mine")
    assert code == 0
    for word in (
        "accuracy",
        "95%",
        "calibration error (ECE)",
        "precision",
        "recall",
        "F1",
        "confusion",
        "most confident",
    ):
        assert word in out


def test_predict_gives_the_contracts_json(command: Call) -> None:
    code, out, err = command("predict", "runs/mine", "photos/", "photo.jpg", "--json", "--top", "2")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result.keys() == {"task", "predictions", "failed", "damaged"}
    assert result["failed"] == []
    assert len(result["predictions"]) == 25
    first = result["predictions"][0]
    assert first.keys() == {"path", "label", "probability", "top"}
    assert first["top"][0] == {"label": first["label"], "probability": first["probability"]}
    assert len(first["top"]) == 2


def test_predict_and_evaluate_say_the_same(command: Call) -> None:
    """Through two doors, with one preprocessing."""
    predictions = json.loads(command("predict", "runs/mine", "photos/", "--json")[1])["predictions"]
    right = sum(each["label"] == Path(each["path"]).parent.name for each in predictions)
    evaluation = json.loads(command("evaluate", "runs/mine", "photos/", "--json")[1])
    assert evaluation["test_accuracy"] == pytest.approx(right / 24)


def test_evaluate_has_the_findings_of_the_data(command: Call, tmp_path: Path) -> None:
    """As `data check` has them: equal images in two parts of the data that it is given."""
    for part in ("train", "test"):
        for label in range(2):
            (tmp_path / part / str(label)).mkdir(parents=True)
            for number in range(3):
                gray = Image.effect_noise((32, 32), 60)
                gray.putpixel((0, 0), 100 * label)
                gray.save(tmp_path / part / str(label) / f"{number}.png")
            (tmp_path / part / str(label) / "same.png").write_bytes(
                (tmp_path / f"train/{label}/0.png").read_bytes()
            )
    checked, evaluated = (
        json.loads(command(*words, str(tmp_path), "--json")[1])["findings"]
        for words in (("data", "check"), ("evaluate", "runs/mine"))
    )
    leak = next(each for each in checked if each["kind"] == "leak")
    assert leak in evaluated


def test_describe_shows_the_journey_that_one_can_follow_by_hand(command: Call) -> None:
    settings = (
        "width=3",
        "heads=3",
        "head_dim=4",
        "mlp_dim=4",
        "stem.norm_before=true",
        "stem.norm_after=true",
    )
    options = [word for setting in settings for word in ("--set", f"model.{setting}")]
    code, out, _ = command("describe", "ViT-Ti/16", "--image-size", "32", *options)
    assert code == 0
    place = 0
    for shape in ("1x3x32x32", "4x768", "4x3", "5x3", "3 heads of 5x4", "5x12", "5x3"):
        place = out.index(shape, place) + 1
    assert max(map(len, out.splitlines())) <= 100


def test_describe_knows_runs_checkpoints_and_names(command: Call) -> None:
    run = json.loads(command("describe", "runs/mine", "--json")[1])
    checkpoint = json.loads(command("describe", "runs/mine/model", "--json")[1])
    assert run["parameters"] == checkpoint["parameters"] > 0
    assert run["tokens"] == 5
    named = json.loads(command("describe", "R50+ViT-B/16", "--json")[1])
    assert named["gmacs"] == pytest.approx(21.6, abs=0.1)
    assert {"stages", "memory", "tokens"} <= named.keys()


def test_what_happens_to_an_image_is_said_in_a_line(command: Call, tmp_path: Path) -> None:
    """By what describes a model, checks data or packs them, in words and in JSON, as by `train --dry-run`."""
    model = ("describe", "ViT-Ti/16", "--image-size", "32")
    for number in range(24):
        (tmp_path / "made" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * number).save(tmp_path / "made" / str(number % 2) / f"{number}.png")
    made = str(tmp_path / "made")
    check = ("data", "check", made)
    size = ("--size", "6")
    for words, line in (
        (model, "decode | crop(1, 32x32) || normalize"),
        (check, "decode | squash(1, 32x32) || normalize"),
        (("data", "pack", made, tmp_path / "1", *size), "decode | shrink(6) | jpeg(90)"),
    ):
        assert f"images: {line}" in command(*map(str, words))[1].splitlines()
    assert json.loads(command(*model, "--json")[1])["images"] == "decode | crop(1, 32x32) || normalize"
    assert json.loads(command(*check, "--json")[1])["pipeline"] == "decode | squash(1, 32x32) || normalize"
    raw = command("data", "pack", made, str(tmp_path / "2"), *size, "--raw", "--json")[1]
    assert json.loads(raw)["pipeline"] == "decode | shrink(6) | ppm"


def test_describe_shows_the_memory_of_a_batch(command: Call) -> None:
    sizes = ("describe", "ViT-Ti/16", "--image-size", "32", "--json", "--batch-size")
    one, eight = (json.loads(command(*sizes, count)[1]) for count in ("1", "8"))
    assert eight["memory"]["activations"] == pytest.approx(8 * one["memory"]["activations"], rel=0.2)
    assert eight["memory"]["weights"] == one["memory"]["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ViT-B/16", "R50+ViT-B/16", "BiT-R50x1", "ViT-G/14"])
def test_describe_keeps_within_100_columns(model: str, command: Call) -> None:
    code, out, _ = command("describe", model)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100


def test_probe_gives_the_contracts_json(command: Call) -> None:
    code, out, err = command("probe", "runs/mine", "photos", "--json", "--shots", "1", "5")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["fewshot"].keys() == {"1", "5"}
    low, high = result["fewshot"]["5"]["interval"]
    assert low <= result["fewshot"]["5"]["mean"] <= high
    assert 0 <= result["knn"] <= 1


def test_probe_says_that_a_name_has_fresh_weights(command: Call) -> None:
    options = [word for size in ("width=12", "depth=1") for word in ("--set", f"data.{size}")]
    assert command("probe", "runs/mine", "digits", *options)[0] == 2, "data has no width"
    code, out, err = command("probe", "ViT-Ti/16", "photos", "--image-size", "16", "--shots", "1")
    assert code == 0
    assert "fresh weights" in err
    assert "logistic regression" in out


def test_study_without_a_name_lists_all(command: Call) -> None:
    from vitreous.addons.studies.api import list_studies

    code, out, _ = command("study")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(list_studies())


@pytest.mark.slow
def test_study_prints_paper_ours_and_what_differs(
    command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitreous.addons.studies.api.QUICK", 0.01)  # of its full length
    options = ("--quick", "--seeds", "1", "--out", tmp_path)
    code, out, err = command("study", "attention", *options)
    assert code == 0, err
    for word in ("paper", "ours", "what differs", "Fig. 7", "one seed: no verdict", "table.md"):
        assert word in out
    assert err.count("\n") == 3, "a line for each trial: ViT, hybrid, and the untrained ViT as the null"
    assert (tmp_path / "plot.png").exists()
    code, out, _ = command("study", "ledger", "--out", tmp_path / "none")
    assert code == 2


def test_what_a_state_dict_does_not_tell_is_set(command: Call, tmp_path: Path) -> None:
    model = vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=1)
    vt.save(model, tmp_path / "vit.pth", format="torchvision")
    image = tmp_path / "image.png"
    Image.new("RGB", (40, 40), "red").save(image)
    code, _, said = command("predict", tmp_path / "vit.pth", image)
    assert code == 2
    assert "--set model.heads=3" in said
    code, told, _ = command("predict", tmp_path / "vit.pth", image, "--set", "model.heads=3", "--json")
    assert code == 0
    assert len(json.loads(told)["predictions"]) == 1
    code, _, said = command("predict", tmp_path / "vit.pth", image, "--set", "training.length=3 epochs")
    assert code == 2
    assert "not a setting of the model" in said
