"""What a training knows of its data is said before its first step, and stays in its findings."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import vitreous as vt
from vitreous.cli import run
from vitreous.evaluation.classification import ClassificationEvaluation

pytestmark = pytest.mark.usefixtures("quick_figures")

SMALL = {
    "model.depth": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.mlp_dim": 16,
    "model.stem.kind": "patch",
}


def fill(root, seed, count):
    rng = np.random.default_rng(seed)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
                root / name / f"{number}.png"
            )


def smooth(seed):
    """An image with structure, which stays the same where it is mirrored."""
    cells = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize((48, 48), Image.Resampling.BICUBIC)


def leak(root):
    for number in range(4):
        (root / "test" / "a" / f"copy{number}.png").write_bytes(
            (root / "train" / "a" / f"{number}.png").read_bytes()
        )


def conflict(root):
    (root / "train" / "b" / "other.png").write_bytes((root / "train" / "a" / "0.png").read_bytes())


@pytest.mark.parametrize(
    ("damage", "kind", "sentence"),
    [
        (leak, "leak", "data: 4 pairs of images in two splits are identical (train, test)"),
        (conflict, "conflict", "data: 1 pair of identical images has different labels"),
    ],
)
def test_a_training_says_first_what_spoils_it(tmp_path, capsys, damage, kind, sentence):
    fill(tmp_path / "data" / "train", 0, 12)
    fill(tmp_path / "data" / "test", 1, 6)
    damage(tmp_path / "data")
    run = vt.train(
        tmp_path / "data",
        epochs=1,
        image_size=16,
        batch_size=8,
        out=tmp_path / "run",
        device="cpu",
        settings=SMALL,
    )
    said = capsys.readouterr().err
    assert said.startswith(sentence)
    assert "('" not in said.splitlines()[0]  # names, and not how Python writes a pair
    found = json.loads((tmp_path / "run" / "findings.json").read_text())
    assert (found[0]["name"], found[0]["severity"]) == (kind, "error")
    assert run.to_json()["findings"][0]["kind"] == kind
    assert sentence.partition(": ")[2] in (tmp_path / "run" / "report.html").read_text()
    assert kind in [each.kind for each in vt.doctor(run).errors]
    assert kind in [each.kind for each in vt.check_data(tmp_path / "data").errors]


def test_what_is_known_of_the_data_is_printed_once(tmp_path, capsys):
    """Before the training; and not among what the training has shown."""
    fill(tmp_path / "data" / "train", 0, 12)
    fill(tmp_path / "data" / "test", 1, 6)
    conflict(tmp_path / "data")
    settings = [f"--set={name}={value}" for name, value in SMALL.items()]
    options = ["--epochs", "1", "--image-size", "16", "--batch-size", "8", "--device", "cpu", *settings]
    assert run(["train", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *options]) == 0
    printed, sentence = capsys.readouterr(), "1 pair of identical images has different labels"
    assert sentence in printed.err
    assert (printed.err + printed.out).count(sentence) == 1
    assert "conflict" in (tmp_path / "run" / "findings.json").read_text()


def test_a_single_class_is_an_error_for_every_command(tmp_path):
    fill(tmp_path / "one", 0, 12)
    for image in (tmp_path / "one" / "b").iterdir():
        image.unlink()
    (tmp_path / "one" / "b").rmdir()
    with pytest.raises(vt.InputError, match="a single class"):
        vt.train(tmp_path / "one", out=tmp_path / "run", progress=False)
    for report in (vt.check_data(tmp_path / "one"), vt.doctor(tmp_path / "one")):
        assert "single class" in [each.kind for each in report.errors]


@pytest.mark.parametrize(
    ("labels", "fix"),
    [
        (("cat,dog", "cat", "dog"), "label_separator=,"),
        (("cat; dog", "cat", "dog"), "label_separator=;"),
        (("['cat', 'dog']", "['cat']", "['dog']"), "cat|dog"),
        (("['cat', 'dog']", "['elk']", "['dog']"), "cat|dog"),  # cat is never alone
        (("cat;dog", "dog", "elk"), "label_separator=;"),
        (("cat,dog", "cat,elk", "dog"), "label_separator=,"),
        (("cat,dog", "cat,elk,dog", "elk"), "label_separator=,"),
        (("cat,dog", "bird", "cow"), None),  # names of their own, with a comma in one
        (("salt, sea", "sea", "lake"), None),
    ],
)
def test_labels_that_are_several_in_one_are_said(tmp_path, labels, fix):
    fill(tmp_path, 0, 15)
    rows = [f'{path},"{labels[number % 3]}"' for number, path in enumerate(sorted(tmp_path.rglob("*.png")))]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]))
    found = [each for each in vt.check_data(tmp_path / "list.csv").findings if each.kind == "joined"]
    assert [fix in each.fix for each in found] == ([True] if fix else [])


def test_every_command_has_the_same_list(tmp_path):
    """Images that look alike, on both sides of a split of the user's own and in one part."""
    for part, seeds in (("train", range(24)), ("test", range(24, 48))):
        for seed in seeds:
            folder = tmp_path / "data" / part / "ab"[seed % 2]
            folder.mkdir(parents=True, exist_ok=True)
            smooth(seed).save(folder / f"{seed}.png")
    for seed, part in ((0, "test"), (2, "test"), (4, "train")):
        copy = ImageOps.mirror(smooth(seed))
        copy.save(tmp_path / "data" / part / "a" / f"mirrored{seed}.png")
    (tmp_path / "data" / "train" / "a" / "again.png").write_bytes(
        (tmp_path / "data" / "train" / "a" / "6.png").read_bytes()
    )
    run = vt.train(
        tmp_path / "data", epochs=1, image_size=16, batch_size=8, out=tmp_path / "run", settings=SMALL
    )
    wanted = {"near-leak": 2, "near-duplicate": 1, "duplicate": 1}
    trained = json.loads((tmp_path / "run" / "findings.json").read_text())
    assert {row["name"]: row["found"] for row in trained if row["name"] in wanted} == wanted
    for report in (vt.doctor(tmp_path / "data"), vt.doctor(run), vt.check_data(tmp_path / "data")):
        assert {each.kind: each.found for each in report.findings if each.kind in wanted} == wanted


def test_a_common_class_that_is_never_found_is_a_finding(tmp_path, capsys):
    targets = np.repeat([0, 1, 2], [40, 40, 40])
    given = targets.copy()
    given[:39] = 1  # one of the 40 of the first class is found
    found = ClassificationEvaluation(
        names=[str(number) for number in range(120)],
        indices=np.arange(120),
        failed={},
        seconds=1.0,
        classes=("meat", "fish", "fruit"),
        targets=targets,
        predictions=given,
        confidence=np.full(120, 0.9),
        true_probability=np.where(given == targets, 0.9, 0.1),
        in_top5=np.ones(120, dtype=bool),
    )
    [finding] = found.findings()
    assert finding.kind == "class not found"
    assert "meat: 1 of 40" in finding.problem
    assert finding.sentence.count("meat: 1 of 40") == 1
    never = vt.create("ViT-Ti/16", num_classes=2, image_size=16, width=8, depth=1, heads=1, mlp_dim=8)
    torch.nn.init.constant_(never.head.bias[:1], 9.0)  # it calls everything fish
    never.labels = ["fish", "meat"]
    vt.save(never, tmp_path / "model")
    for number in range(40):
        for label in never.labels:
            (tmp_path / "data" / label).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (6 * number, 0, 0)).save(tmp_path / f"data/{label}/{number}.png")
    assert run(["evaluate", str(tmp_path / "model"), str(tmp_path / "data")]) == 0
    assert re.search("warning: .*meat: 0 of 40", capsys.readouterr().out, re.DOTALL)
