"""DINO: the formulas of the teacher, the center and the loss by hand; views; that it learns."""

import math

import pytest
import torch

from vitreous.errors import InputError
from vitreous.models.bit import BiT, BiTConfig
from vitreous.tasks.pretraining.dino import DINO, DINOConfig, FeaturesAt, cross_view_loss, signs_of_collapse
from vitreous.tasks.pretraining.views import MultiCrop, ViewsConfig, blurred, random_crop, rotate_colors

SMALL = {"prototypes": 32, "head_hidden": 32, "head_bottleneck": 16}


def test_the_teacher_is_a_moving_average(tiny):
    dino = DINO(tiny(), DINOConfig(teacher_momentum=0.9, **SMALL), steps=100)
    old = dino.teacher.stem.projection.weight.clone()
    with torch.no_grad():
        dino.model.stem.projection.weight.add_(1.0)
    new = dino.model.stem.projection.weight
    dino.follow(0.0)
    assert torch.allclose(dino.teacher.stem.projection.weight, 0.9 * old + 0.1 * new)
    old = dino.teacher.stem.projection.weight.clone()
    dino.follow(0.5)  # half way along the cosine: 1 - 0.1 / 2
    assert torch.allclose(dino.teacher.stem.projection.weight, 0.95 * old + 0.05 * new)
    old = dino.teacher.stem.projection.weight.clone()
    dino.follow(1.0)
    assert torch.equal(dino.teacher.stem.projection.weight, old)


def test_the_center_is_a_moving_average_of_outputs(tiny):
    dino = DINO(tiny(), DINOConfig(**SMALL), steps=100)
    outputs = torch.randn(2, 5, 32)
    dino.recenter(outputs)
    assert torch.allclose(dino.center, 0.1 * outputs.mean(dim=(0, 1)))
    dino.recenter(outputs)
    assert torch.allclose(dino.center, 0.19 * outputs.mean(dim=(0, 1)))


def test_the_teacher_sharpens_more_and_more(tiny):
    dino = DINO(tiny(), DINOConfig(**SMALL), steps=100)
    assert dino.teacher_temperature(0.0) == pytest.approx(0.04)
    assert dino.teacher_temperature(0.15) == pytest.approx(0.055)
    assert dino.teacher_temperature(0.3) == dino.teacher_temperature(1.0) == pytest.approx(0.07)


def test_the_loss_by_hand():
    targets = torch.tensor([[[1.0, 0.0]], [[0.25, 0.75]]])
    student = [
        torch.tensor([[0.0, 0.0]]),
        torch.tensor([[0.0, math.log(3)]]),
        torch.tensor([[math.log(3), 0.0]]),
    ]
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


def test_prototypes_stand_still_at_first(tiny, images, losses):
    dino = DINO(tiny(), DINOConfig(freeze_prototypes=0.5, **SMALL), steps=8)
    before = dino.head.prototypes.detach().clone()
    losses(dino, images, steps=4)
    assert torch.equal(dino.head.prototypes, before)
    losses(dino, images, steps=1)
    assert not torch.equal(dino.head.prototypes, before)


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


def test_views_have_their_sizes_and_repeat_with_the_generator(tiny, images):
    crops = MultiCrop(tiny(), ViewsConfig(small_count=3))
    large, small = crops(images, torch.Generator().manual_seed(0))
    assert [view.shape[-2:] for view in large] == [(32, 32)] * 2
    assert [view.shape[-2:] for view in small] == [(16, 16)] * 3  # 3/7 of 32 in whole patches of 8
    assert all(view.min() >= -1.01 and view.max() <= 1.01 for view in [*large, *small])
    again, _ = crops(images, torch.Generator().manual_seed(0))
    assert torch.equal(large[0], again[0])
    assert not torch.equal(large[0], large[1])


def test_a_crop_of_everything_is_the_image(images):
    generator = torch.Generator().manual_seed(0)
    whole = random_crop(images, (4.0, 4.0), (32, 32), flip=0.0, generator=generator)
    assert torch.allclose(whole, images, atol=1e-4)
    mirrored = random_crop(images, (4.0, 4.0), (32, 32), flip=1.0, generator=generator)
    assert torch.allclose(mirrored, images.flip(-1), atol=1e-4)


def test_crops_stay_inside_the_image():
    ramp = torch.linspace(0, 1, 64).expand(400, 1, 64, 64)
    crops = random_crop(ramp, (0.1, 0.4), (8, 8), flip=0.0, generator=torch.Generator().manual_seed(0))
    wide = (crops[:, 0, 0, -1] - crops[:, 0, 0, 0]) * 8 / 7
    assert wide.min() > 0.26  # sqrt(0.1 * 3/4) = 0.27
    assert wide.max() < 0.76  # sqrt(0.4 * 4/3) = 0.73
    assert crops[:, 0, 0, 0].min() < 0.05
    assert crops[:, 0, 0, -1].max() > 0.95


def test_colors_turn_and_fade(images):
    pixels = (images + 1) / 2
    one, zero = torch.ones(16, 1, 1, 1), torch.zeros(16, 1, 1, 1)
    assert torch.allclose(rotate_colors(pixels, one, zero), pixels, atol=1e-5)
    gray = rotate_colors(pixels, zero, zero)
    assert torch.allclose(gray[:, 0], gray[:, 2], atol=2e-2)
    full = rotate_colors(pixels, one, 2 * math.pi * one)
    assert torch.allclose(full, pixels, atol=1e-4)


def test_a_blur_keeps_the_mean_and_lowers_the_contrast():
    noise = torch.rand(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    where = torch.tensor([True, True, True, False]).view(-1, 1, 1, 1)
    smooth = blurred(noise, where, torch.Generator().manual_seed(1))
    assert smooth.mean().item() == pytest.approx(noise.mean().item(), abs=1e-3)
    assert (smooth[:3].std(dim=(1, 2, 3)) < noise[:3].std(dim=(1, 2, 3))).all()
    assert torch.equal(smooth[3], noise[3])


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

    large, small = dino.crops(images, torch.Generator().manual_seed(3))

    def probabilities(model, head, view, temperature, center):
        z = head.mlp(model.features(view)).detach().double()
        z = z / z.norm(dim=-1, keepdim=True)
        w = head.prototypes.detach().double()
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
