"""DINO: the formulas of the teacher, the center and the loss by hand; views; that it learns."""

import colorsys
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.addons.self_supervision.dino import (
    DINO,
    DINOConfig,
    FeaturesAt,
    cross_view_loss,
    signs_of_collapse,
)
from vitreous.addons.self_supervision.views import MultiCrop, ViewReader, ViewsConfig, multi_crop
from vitreous.checkpoints.resizing import resize
from vitreous.data.batch_augmentation import BatchRandom, BatchTransform
from vitreous.data.config import AffineConfig, AugmentationConfig, RandomResizedCropConfig
from vitreous.data.dataset import ArrayImages
from vitreous.data.image_samples import Batch, image_loader
from vitreous.data.transforms import random_crop
from vitreous.errors import InputError
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import ImageLike
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.task import self_supervised
from vitreous.training.config import AdamWConfig, TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.optimizers import parameter_groups
from vitreous.training.step import LossOf, TrainStep

SMALL = {"prototypes": 32, "head_hidden": 32, "head_bottleneck": 16}


def test_the_teacher_is_a_moving_average(tiny):
    dino = DINO(tiny(), DINOConfig(teacher_momentum=0.9, **SMALL), steps=100)
    old = dino.teacher.stem.projection.weight.clone()
    with torch.no_grad():
        dino.model.stem.projection.weight.add_(1.0)
    new = dino.model.stem.projection.weight
    taken = torch.tensor(True)
    dino.follow(torch.tensor(0.0), taken)
    assert torch.allclose(dino.teacher.stem.projection.weight, 0.9 * old + 0.1 * new)
    old = dino.teacher.stem.projection.weight.clone()
    dino.follow(torch.tensor(0.5), taken)  # half way along the cosine: 1 - 0.1 / 2
    assert torch.allclose(dino.teacher.stem.projection.weight, 0.95 * old + 0.05 * new)
    old = dino.teacher.stem.projection.weight.clone()
    dino.follow(torch.tensor(1.0), taken)
    assert torch.equal(dino.teacher.stem.projection.weight, old)


def test_the_center_is_a_moving_average_of_outputs(tiny):
    dino = DINO(tiny(), DINOConfig(**SMALL), steps=100)
    mean, taken = torch.randn(32), torch.tensor(True)
    dino.recenter(mean.clone(), taken)
    assert torch.allclose(dino.center, 0.1 * mean)
    dino.recenter(mean.clone(), taken)
    assert torch.allclose(dino.center, 0.19 * mean)


def test_the_teacher_sharpens_more_and_more(tiny):
    dino = DINO(tiny(), DINOConfig(**SMALL), steps=100)
    found = [float(dino.teacher_temperature(torch.tensor(done))) for done in (0.0, 0.15, 0.3, 1.0)]
    assert found == pytest.approx([0.04, 0.055, 0.07, 0.07])


def test_the_loss_by_hand():
    targets = torch.tensor([[[1.0, 0.0]], [[0.25, 0.75]]])
    student = torch.tensor([[[0.0, 0.0]], [[0.0, math.log(3)]], [[math.log(3), 0.0]]])
    # Probabilities at temperature 1: (1/2, 1/2), (1/4, 3/4), (3/4, 1/4). Pairs of different views only.
    quarter, half, three = math.log(4), math.log(2), math.log(4 / 3)
    pairs = [
        quarter,  # teacher 0, student 1
        three,  # teacher 0, student 2
        0.25 * half + 0.75 * half,  # teacher 1, student 0
        0.25 * three + 0.75 * quarter,  # teacher 1, student 2
    ]
    loss = cross_view_loss(student, targets, temperature=1.0)
    assert loss.item() == pytest.approx(sum(pairs) / 4)


def test_signs_of_collapse():
    uniform = torch.full((2, 4, 8), 1 / 8)
    one_for_all = torch.eye(8)[0].expand(2, 4, 8)
    healthy = torch.eye(8).view(2, 4, 8)
    assert signs_of_collapse(uniform)["teacher_entropy"].item() == pytest.approx(math.log(8))
    assert signs_of_collapse(one_for_all)["marginal_entropy"].item() == 0
    assert signs_of_collapse(healthy)["teacher_entropy"].item() == 0
    assert signs_of_collapse(healthy)["marginal_entropy"].item() == pytest.approx(math.log(8))


def test_outputs_are_cosines(tiny):
    dino = DINO(tiny(), DINOConfig(**SMALL), steps=10)
    outputs = dino.head(torch.randn(6, 48))
    assert outputs.shape == (6, 32)
    assert outputs.abs().max() <= 1 + 1e-6


@pytest.mark.slow
def test_it_learns_and_only_the_student_has_gradients(tiny, images, losses):
    views = ViewsConfig(small_count=2, color=0.0, gray=0.0, blur=0.0, solarize=0.0)
    config = DINOConfig(
        views=views, freeze_prototypes=0.0, center_momentum=0.5, teacher_momentum=0.9, **SMALL
    )
    dino = DINO(tiny(), config, steps=60)
    found = losses(dino, images, steps=60, lr=1e-3)
    assert sum(found[-10:]) < 0.97 * sum(found[1:11])
    assert int(dino.step) == 60
    assert dino.model.position.table.grad.abs().sum() > 0
    assert all(each.grad is None for each in dino.teacher.parameters())
    assert dino.encoder is dino.teacher
    assert not dino.teacher.training


def test_frozen_prototypes_are_unknown_to_the_optimizer(tiny, images):
    """As in the authors' loop their gradient is None: AdamW counts no step of theirs, and keeps no moments
    of zero, with which their first steps would be several times as large."""
    dino = DINO(tiny(), DINOConfig(freeze_prototypes=0.5, **SMALL), steps=8)
    config = TrainingConfig(optimizer=AdamWConfig(weight_decay=0.1), batch_size=len(images))
    learner = Learner.begin(dino, config)
    step = TrainStep(learner, LossOf(dino, self_supervised), config, seed=0)
    weight = dino.head.prototypes.weight
    before = weight.detach().clone()
    state = learner.optimizers[0].state
    for number in range(6):
        step(Batch(images, torch.zeros(len(images)), torch.ones(len(images))))
        if number < 4:
            assert torch.equal(weight, before)
            assert weight not in state
        else:
            assert state[weight]["step"] == number - 3
            assert state[weight]["exp_avg_sq"].any()
    assert not torch.equal(weight, before)
    assert state[dino.head.mlp[0].weight]["step"] == 6
    dino.set_total(20)  # a training that has a time learns of more steps
    assert dino.frozen_at(9) == (weight,)
    assert dino.frozen_at(10) == ()


def test_evaluation_changes_nothing(tiny, images):
    dino = DINO(tiny(), DINOConfig(**SMALL), steps=8).eval()
    before = {name: tensor.clone() for name, tensor in dino.state_dict().items()}
    dino(images, torch.Generator().manual_seed(0))
    assert all(torch.equal(before[name], tensor) for name, tensor in dino.state_dict().items())


@pytest.mark.parametrize(
    "overrides",
    [
        {"position": {"kind": "learned"}},
        {"position": {"kind": "learned-2d"}},
        {"position": {"kind": "sincos-2d"}},
        {"position": {"kind": "rotary-2d"}},
        {"position": {"kind": "none"}},
        {"position": {"kind": "learned", "where": "every-layer-shared"}},
        {"registers": 2, "pooling": "mean"},
        {"pooling": "attention", "class_token": False},
        {"stem": {"kind": "convolution", "widths": (8, 8, 8), "strides": (2, 2, 2)}},
        {"num_classes": 10, "representation_size": 20},
    ],
)
def test_small_crops_go_through_the_models_own_weights(tiny, overrides):
    model = tiny(**overrides)
    features = FeaturesAt(model, (16, 24))(model, torch.randn(3, 3, 16, 24))
    assert features.shape == (3, 20 if "representation_size" in overrides else 48)
    features.square().sum().backward()
    assert model.blocks[0].attention.qkv.weight.grad.abs().sum() > 0
    if overrides.get("position", {}).get("kind") == "learned":
        table = (
            model.position if overrides["position"].get("where") is None else model.blocks[0].position
        ).table
        assert table.grad.abs().sum() > 0


def test_small_crops_have_positions_as_in_the_authors_code(tiny):
    """`interpolate_pos_encoding` of vision_transformer.py asks for 0.1 patches more than there are."""
    model = tiny().eval()
    table = model.position.table
    torch.nn.init.normal_(table)
    images = torch.randn(2, 3, 16, 24)
    rows, columns = model.config.grid
    grid = table[1:].T.reshape(1, -1, rows, columns)
    scale = (2.1 / rows, 3.1 / columns)
    patches = torch.nn.functional.interpolate(grid, scale_factor=scale, mode="bicubic")
    resized = resize(model, image_size=(16, 24))
    with torch.no_grad():
        resized.position.table.copy_(torch.cat([table[:1], patches.flatten(2)[0].T]))
    assert torch.allclose(FeaturesAt(model, (16, 24))(model, images), resized.features(images), atol=1e-5)


def test_at_its_own_size_the_features_are_the_models(tiny, images):
    model = tiny().eval()
    assert torch.allclose(FeaturesAt(model, (32, 32))(model, images), model.features(images), atol=1e-6)


def test_relative_positions_have_no_small_crops(tiny, images):
    model = tiny(position={"kind": "relative"})
    with pytest.raises(InputError, match="small_count=0"):
        DINO(model, DINOConfig(**SMALL), steps=1)
    config = DINOConfig(views=ViewsConfig(small_count=0), **SMALL)
    assert DINO(model, config, steps=1)(images, torch.Generator())[0].isfinite()


def test_a_bit_can_be_the_student(images):
    model = BiT(BiTConfig(image_size=(32, 32), layers=(1,), width_factor=0.5, num_classes=None))
    loss, _ = DINO(model, DINOConfig(**SMALL), steps=1)(images[:2], torch.Generator())
    assert loss.isfinite()


SIZE = 48  # of the originals that views are cut from
CALM = {"flip": 0.0, "color": 0.0, "gray": 0.0, "blur": 0.0, "solarize": 0.0}
WHOLE = {"large_scale": (1.0, 1.0), "small_count": 0}


@pytest.fixture(scope="module")
def original() -> Image.Image:
    """Colors that change from pixel to pixel, so that every change shows."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8))


def cut(
    image: Image.Image, count: int, small: tuple[int, int] = (16, 16), **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Large and small views of an image, cut `count` times: (count, V, H, W, C)."""
    crops = MultiCrop(ViewsConfig(**settings), (32, 32), small)
    views = [crops.cut(image, np.random.default_rng(number)) for number in range(count)]
    parts = (torch.stack(each).permute(0, 1, 3, 4, 2).numpy() for each in zip(*views, strict=True))
    large, others = parts
    return large.astype(int), others.astype(int)


def test_views_have_their_sizes_and_repeat_with_the_generator(tiny, images):
    model = tiny()
    crops = multi_crop(model.config, ViewsConfig(small_count=3))
    views = crops(images, model.preprocessing, torch.Generator().manual_seed(0))
    assert views.images.shape == (len(images), 2, 3, 32, 32)
    assert views.small.shape == (len(images), 3, 3, 16, 16)  # 3/7 of 32 in whole patches of 8
    assert all(each.min() >= -1.01 and each.max() <= 1.01 for each in views)
    again = crops(images, model.preprocessing, torch.Generator().manual_seed(0))
    assert torch.equal(views.images, again.images)
    assert not torch.equal(views.images[:, 0], views.images[:, 1])


def test_a_view_is_a_bicubic_crop_of_the_original(original):
    """By the box that the same random numbers give, in Pillow's own words."""
    large, small = cut(original, 40, **{**CALM, "small_count": 1})
    box = RandomResizedCropConfig(scale=(0.4, 1.0))
    top, left, height, width = random_crop((SIZE, SIZE), box, np.random.default_rng(7))
    kernel = Image.Resampling.BICUBIC
    expected = original.resize((32, 32), kernel, (left, top, left + width, top + height))
    assert np.array_equal(large[7, 0], np.asarray(expected, dtype=int))
    whole, none = cut(original, 1, **CALM, **WHOLE)
    expected = original.resize((32, 32), kernel)
    assert np.array_equal(whole[0, 1], np.asarray(expected, dtype=int))
    assert none.shape == (1, 0, 16, 16, 3)
    assert len({each.tobytes() for each in small[:, 0]}) == 40
    flipped, _ = cut(original, 60, **{**CALM, **WHOLE, "flip": 0.5})
    mirrored = (flipped == whole[:, :, :, ::-1]).all(axis=(2, 3, 4))
    assert ((flipped == whole).all(axis=(2, 3, 4)) ^ mirrored).all()
    assert 0.35 < mirrored.mean() < 0.65


def test_a_fifth_of_the_views_is_gray_and_most_have_other_colors(original):
    """All gray, none gray, or no change of colors at all is found out."""
    calm, _ = cut(original, 1, **CALM, **WHOLE)
    large, _ = cut(original, 150, **{**CALM, **WHOLE, "gray": 0.2})
    gray = (np.ptp(large, axis=-1) == 0).all(axis=(2, 3))
    assert 0.12 < gray.mean() < 0.28
    assert (large[~gray] == calm[0, 0]).all()
    jittered, _ = cut(original, 150, **{**CALM, **WHOLE, "color": 0.8})
    changed = (jittered != calm[0, 0]).any(axis=(2, 3, 4))
    assert 0.72 < changed.mean() < 0.88
    mean, spread = jittered.mean(axis=(2, 3, 4)), jittered.std(axis=(2, 3, 4))
    assert mean.max() / mean.min() > 1.5  # brightness 0.6 ... 1.4
    assert spread.max() / spread.min() > 1.5  # contrast 0.6 ... 1.4
    hues = [colorsys.rgb_to_hsv(*each)[0] for each in jittered[:, :, 5, 5].reshape(-1, 3) / 255]
    assert np.ptp(hues) > 0.05


def test_only_the_first_view_is_always_blurred_and_only_the_second_solarized(original):
    calm, _ = cut(original, 1, **CALM, **WHOLE)
    large, _ = cut(original, 150, **{**CALM, **WHOLE, "blur": 0.5})
    # A blur of 0.1 to 2 pixels of 224 is less than one of 32: a third changes nothing at all.
    first, second = (large != calm[0, 0]).any(axis=(2, 3, 4)).mean(axis=0)
    assert 0.55 < first < 0.85
    assert second < 0.15
    assert (large[:, 0].std(axis=(1, 2)) <= calm[0, 0].std(axis=(0, 1)) + 0.5).all()
    large, _ = cut(original, 150, **{**CALM, **WHOLE, "solarize": 0.2})
    changed = (large != calm[0, 0]).any(axis=(2, 3, 4))
    assert changed.mean(axis=0) == pytest.approx([0.0, 0.2], abs=0.08)
    inverted = np.where(calm[0, 0] < 128, calm[0, 0], 255 - calm[0, 0])
    assert (large[changed] == inverted).all()
    everything = {**CALM, "blur": 0.5, "small_count": 4, "small_scale": (1.0, 1.0), "large_scale": (1.0, 1.0)}
    _, small = cut(original, 60, small=(32, 32), **everything)
    assert 0.22 < (small != calm[0, 0]).any(axis=(2, 3, 4)).mean() < 0.48  # half of them


def test_small_views_are_blurred_by_as_many_pixels_as_large_ones():
    """The authors blur views of 224 and of 96 pixels by the same numbers, which an edge shows."""
    edge = np.zeros((SIZE, SIZE, 3), dtype=np.uint8)
    edge[:, SIZE // 2 :] = 255
    settings = {**CALM, **WHOLE, "blur": 1.0, "small_scale": (1.0, 1.0), "small_count": 1}
    crops = MultiCrop(ViewsConfig(**settings), (448, 448), (192, 192))
    steepest = []
    for number in range(30):
        view = crops.cut(Image.fromarray(edge), np.random.default_rng(number)).small[0]
        steepest.append(int(view[0, 96].int().diff().abs().max()))
    assert min(steepest) < 0.5 * max(steepest)  # by 192 / 448 of the pixels: 0.67


def test_crops_stay_inside_the_image():
    ramp = Image.fromarray(np.repeat(np.arange(64, dtype=np.uint8)[None], 64, axis=0) * 4)
    _, small = cut(ramp, 200, **{**CALM, "small_count": 1, "small_scale": (0.1, 0.4)})
    wide = (small[:, 0, 0, -1, 0] - small[:, 0, 0, 0, 0]) * 16 / 15 / 252
    assert wide.min() > 0.24  # sqrt(0.1 * 3/4) = 0.27
    assert wide.max() < 0.78  # sqrt(0.4 * 4/3) = 0.73
    assert small.min() < 10
    assert small.max() > 242


def test_the_loader_cuts_views_from_the_decoded_original(original):
    """Larger than the model's images, each decoded once; the same for any number of workers, another in
    each epoch."""
    opened = []

    class Counted(ArrayImages):
        def held(self, index: int) -> ImageLike:
            opened.append(index)
            return super().held(index)

    pixels = np.stack([np.asarray(original)] * 6)
    data = Counted(pixels, np.zeros(6, dtype=np.int64), ("a",), name="made")
    crops = MultiCrop(ViewsConfig(**{**CALM, "small_count": 2}), (32, 32), (16, 16))
    found = []
    for workers in (0, 2):
        loader = image_loader(
            data,
            preprocessing=Preprocessing(size=(32, 32)),
            augmentation=AugmentationConfig(),
            batch_size=3,
            seed=0,
            workers=workers,
            reader=ViewReader(data, 3, crops),
        )
        found.append([*loader.epoch(0)])
    first, second = found
    assert sorted(opened) == sorted([*range(6)] * 2)
    assert first[0].images.shape == (3, 2, 3, 32, 32)
    assert first[0].small.shape == (3, 2, 3, 16, 16)
    assert all(torch.equal(one.images, other.images) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0].images, next(loader.epoch(1)).images)
    assert first[0].images.min() < -0.5  # normalized
    whole = MultiCrop(ViewsConfig(**{**CALM, **WHOLE}), (32, 32), (16, 16))
    moved = image_loader(
        data,
        preprocessing=Preprocessing(size=(32, 32)),
        augmentation=AugmentationConfig(affine=AffineConfig(rotate=20)),
        batch_size=3,
        seed=0,
        reader=ViewReader(data, 3, whole),
    )
    views = next(iter(moved.epoch(0))).images.flatten(0, 1)
    assert len({each.numpy().tobytes() for each in views}) == 6  # each view turns by itself


def test_small_views_move_unlike_the_large_ones_of_any_seed():
    """A seed's small views and the next seed's large ones are not turned by the same numbers."""
    transforms = [BatchTransform(Preprocessing(), AugmentationConfig(), seed=seed) for seed in (0, 1)]
    drawn = [each.random(2, 3, 4, place).uniform(0.0, 1.0) for each in transforms for place in (0, 1)]
    assert len({each.numpy().tobytes() for each in drawn}) == 4
    assert torch.equal(drawn[2], BatchRandom(1, 2, 3, size=4).uniform(0.0, 1.0))  # as ever


def test_a_step_follows_the_authors_pseudo_code(tiny, images):
    """Algorithm 1 of 2104.14294 in float64, with plain loops, and section 3.1's pairs of views: the teacher
    sees the two large views, the student all, and no view is compared with itself."""
    views = ViewsConfig(small_count=2, small_size=32)  # as large as the model's, so that no table is resized
    config = DINOConfig(views=views, center_momentum=0.9, teacher_momentum=0.9, **SMALL)
    dino = DINO(tiny(), config, steps=10).eval()
    with torch.no_grad():
        dino.center.normal_(std=0.3)
        for parameter in dino.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))  # the student has moved on
    loss, _ = dino(images, torch.Generator().manual_seed(3))

    views = dino.crops(images, dino.model.preprocessing, torch.Generator().manual_seed(3))
    large, small = (each.unbind(dim=1) for each in views)

    def probabilities(model, head, view, temperature, center):
        z = head.mlp(model.features(view)).detach().double()
        z = z / z.norm(dim=-1, keepdim=True)
        w = head.prototypes.weight.detach().double()
        exponentials = ((z @ (w / w.norm(dim=-1, keepdim=True)).T - center) / temperature).exp()
        return exponentials / exponentials.sum(dim=-1, keepdim=True)

    teacher = [
        probabilities(dino.teacher, dino.teacher_head, view, 0.04, dino.center.double()) for view in large
    ]
    student = [probabilities(dino.model, dino.head, view, 0.1, 0.0) for view in [*large, *small]]
    total, pairs = 0.0, 0
    for first, t in enumerate(teacher):
        for second, s in enumerate(student):
            if first != second:
                total += -(t * s.log()).sum(dim=1).mean().item()
                pairs += 1
    assert pairs == 6
    assert loss.item() == pytest.approx(total / pairs, rel=1e-4)


def test_prototypes_begin_and_turn_as_those_of_the_authors(tiny) -> None:
    """Rows as of nn.Linear (length 0.577), which AdamW decays and turns as fast as a head like the authors':
    20 steps at a rate of 1e-3 turn them by degrees and not by tenths of one."""
    config = DINOConfig(prototypes=64, head_hidden=32, head_bottleneck=256)
    head = DINO(tiny(), config, steps=20).head
    weight = head.prototypes.weight
    assert weight.norm(dim=1).mean().item() == pytest.approx(3**-0.5, rel=0.03)
    (decayed,) = [
        group
        for group in parameter_groups(head, AdamWConfig(weight_decay=0.04), 1e-3)
        if any(each is weight for each in group["params"])
    ]
    assert decayed["weight_decay"] == 0.04
    before = torch.nn.functional.normalize(weight.detach().clone(), dim=1)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.04)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        features = torch.randn(32, head.mlp[0].in_features, generator=generator)
        targets = torch.randn(32, 64, generator=generator).softmax(dim=1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(features) / 0.1, targets).backward()
        optimizer.step()
    after = torch.nn.functional.normalize(weight.detach(), dim=1)
    assert torch.rad2deg(torch.arccos((before * after).sum(dim=1).clamp(max=1))).mean() > 4


def test_few_images_get_a_sharp_teacher_and_gray_ones_views_that_agree() -> None:
    """Differences between images grow only where views agree by more than the teacher's temperature over the
    student's: changes of brightness and small crops left digits at a third, and 0.07 asks for 0.7."""
    task = task_named("dino")
    for data in ("digits", "world:shapes:60@32,test=20"):
        dino = task.plan(data, {}).config.own
        assert (dino.teacher_temperature, dino.teacher_temperature_start) == (0.04, 0.04)
    views = task.plan("digits", {}).config.own.views
    assert (views.color, views.gray, views.large_scale, views.small_count) == (0.0, 0.0, (0.8, 1.0), 0)


@pytest.mark.slow
def test_views_that_agree_and_a_sharp_teacher_keep_dino_from_collapse_on_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    one_run = import_module("dino_collapse").one_run
    former, today = (one_run(name, 0, 200)["trained"] for name in ("former defaults", "today's defaults"))
    assert former["information"] < 0.05 < today["information"]
    assert former["gain"] < 1 < today["gain"]
