"""Adapting a trained encoder: a rate of its own, LoRA, and never a worse encoder than before."""

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run as command
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.evaluation.scores import is_better
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.adaptation import feature_measure

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture
def encoder(tmp_path):
    """A tiny encoder without classes, as a folder."""
    torch.manual_seed(0)
    model = vt.create("ViT-Ti/8", image_size=16, width=16, depth=2, heads=2, num_classes=None)
    vt.save(model, tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def patterns(tmp_path):
    """Twelve images of each of two classes: stripes across and down, in any color; and none has a label
    where `patterns/plain` is read."""
    rng = np.random.default_rng(0)
    for number in range(24):
        row = rng.integers(0, 255, (16, 1, 3), dtype=np.uint8)
        image = np.broadcast_to(row, (16, 16, 3))
        image = image if number % 2 else image.transpose(1, 0, 2)
        for folder in (tmp_path / "patterns" / ("across" if number % 2 else "down"), tmp_path / "plain"):
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.ascontiguousarray(image)).save(folder / f"{number}.png")
    return tmp_path / "patterns"


@pytest.mark.parametrize("objective", ["contrastive", "dino", "mae", "masked-patch"])
def test_a_trained_encoder_learns_at_a_part_of_the_rate(patterns, encoder, objective):
    task = task_named(objective)
    scratch = task.plan(str(patterns), {"model": {"width": 16}}).config.training
    adapted = task.plan(str(patterns), {}, init=str(encoder)).config.training
    assert adapted.peak_lr < scratch.peak_lr
    assert adapted.epochs < scratch.epochs
    assert adapted.records_config.early_stopping
    own = task.plan(
        str(patterns), {"training": {"peak_lr": 0.5, "records": {"early_stopping": None}}}, init=str(encoder)
    )
    assert own.config.training.peak_lr == 0.5
    assert not own.config.training.records_config.early_stopping


def test_a_large_encoder_learns_slower_towards_the_image(patterns, tmp_path):
    large = vt.create("ViT-S/8", image_size=16, num_classes=None)
    vt.save(large, tmp_path / "large")
    plan = task_named("contrastive").plan(str(patterns), {}, init=str(tmp_path / "large"))
    assert plan.config.training.optimizer.layer_decay == 0.75
    assert any("each layer 0.75 times as fast" in each for each in plan.reasons)


@pytest.mark.parametrize(
    ("source", "locale", "printed"),
    [
        ("patterns", "en_US.UTF-8", "kept: the encoder as it was; share of "),
        ("plain", "ko_KR.UTF-8", "원래 인코더를 저장합니다. 이미지"),
    ],
)
def test_an_encoder_that_became_worse_is_not_kept(
    patterns, encoder, tmp_path, source, locale, printed, capsys, monkeypatch
):
    """Whatever training does to the weights, with labels and without."""
    monkeypatch.setenv("LC_ALL", locale)
    out = tmp_path / "run"
    source = str(patterns.parent / source)
    ruin = [
        "--set",
        "training.peak_lr=50",
        "--set",
        "training.records.early_stopping=none",
        "--batch-size",
        "8",
    ]
    run = ["--epochs", "2", "--out", str(out), "--device", "cpu"]
    done = command(["pretrain", source, "--init", str(encoder), *run, *ruin])
    assert done == 0
    assert printed in capsys.readouterr().err
    before, after = vt.load(encoder).state_dict(), vt.load(out).state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items() if name in after)


def test_better_is_more_than_chance():
    before = np.zeros(100, dtype=bool)
    after = before.copy()
    assert not is_better(after, before)
    after[0] = True
    assert not is_better(after, before)
    after[:9] = True
    assert is_better(after, before)
    assert not is_better(before, after)


def test_features_that_tell_classes_apart_have_more_neighbors_of_their_own(patterns):
    """Without a validation set each training image is asked about, and is not its own neighbor."""
    data = open_data(str(patterns), DataConfig(validation_fraction=0.0))
    measure = feature_measure(data)

    class Stripes(torch.nn.Module):
        preprocessing = vt.create("ViT-Ti/8", image_size=16).preprocessing

        def features(self, images):
            return torch.stack([images.std(dim=2).mean(dim=(1, 2)), images.std(dim=3).mean(dim=(1, 2))], 1)

    class Nothing(Stripes):
        def features(self, images):
            return torch.ones(len(images), 2)

    knows, guesses = measure.right(Stripes()), measure.right(Nothing())
    assert knows.all()
    assert not guesses.all()
    assert is_better(knows, guesses)


def test_without_labels_neighbors_are_near_by_gradients_and_colors(patterns):
    data = open_data(str(patterns.parent / "plain"), DataConfig(validation_fraction=0.0), "unlabeled")
    measure = feature_measure(data)
    ask = {"device": torch.device("cpu"), "batch_size": 24}

    class Pixels(torch.nn.Module):
        preprocessing = vt.create("ViT-Ti/8", image_size=16).preprocessing

        def features(self, images):
            return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)

    class Noise(Pixels):
        def features(self, images):
            return torch.randn(len(images), 4, generator=torch.Generator().manual_seed(0))

    assert measure.right(Pixels(), **ask).mean() > measure.right(Noise(), **ask).mean()


def test_lora_adapts_trained_weights_alone(patterns, encoder, tmp_path):
    lora = {"training.lora.rank": 2}
    with pytest.raises(InputError, match=r"training\.lora changes trained weights: name some with init"):
        vt.pretrain(patterns, settings=lora, progress=False)
    run = vt.pretrain(
        patterns, init=encoder, epochs=1, batch_size=8, settings=lora, out=tmp_path / "run", progress=False
    )
    names = set(vt.load(encoder).state_dict())
    assert set(vt.load(run.path).state_dict()) == names  # merged, whichever encoder was kept


def test_an_encoder_is_adapted_where_nothing_is_held_out(patterns, encoder, tmp_path):
    whole = {"data.validation_fraction": 0.0, "data.test_fraction": 0.0}
    run = vt.pretrain(
        patterns, init=encoder, epochs=1, batch_size=8, settings=whole, out=tmp_path / "run", progress=False
    )
    assert (run.path / "model" / "config.json").is_file()
