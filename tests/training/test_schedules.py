"""The schedules against their formulas."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from vitreous.errors import InputError
from vitreous.training.config import AdamWConfig, AnySchedule, RunConfig, TrainingConfig
from vitreous.training.learner import exponential, learning_rate, scaled_lr, weight_decay
from vitreous.training.recipes import recipe
from vitreous.training.settings import configure


def schedule_of(**fields: Any) -> AnySchedule:
    return TrainingConfig(schedule=fields).schedule


def test_warmup_is_linear_and_ends_at_the_peak() -> None:
    config = schedule_of(kind="cosine", warmup=4)
    assert [learning_rate(step, 100, config) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("linear", 0, 1.0),
        ("linear", 25, 0.75),
        ("linear", 100, 0.0),
        ("cosine", 0, 1.0),
        ("cosine", 50, 0.5),
        ("cosine", 25, (1 + math.cos(math.pi / 4)) / 2),
        ("constant", 99, 1.0),
        ("rsqrt", 0, 1.0),
        ("rsqrt", 30, 0.5),
        ("steps", 29, 1.0),
        ("steps", 30, 1.0),  # BiT drops after this step
        ("steps", 31, 0.1),
        ("steps", 99, 0.001),
    ],
)
def test_curves(kind: str, step: int, expected: float) -> None:
    config = schedule_of(kind=kind, warmup=0, **({"timescale": 10} if kind == "rsqrt" else {}))
    assert learning_rate(step, 100, config) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_the_curve_begins_after_the_warmup(kind: str) -> None:
    """Half of the steps after it are half of the curve, whose last step is close to nothing."""
    config = schedule_of(kind=kind, warmup=20)
    assert learning_rate(20, 100, config) == 1.0
    assert learning_rate(60, 100, config) == pytest.approx(0.5)
    assert 0 < learning_rate(99, 100, config) < 0.02


def test_warmup_may_begin_at_a_share_of_the_peak() -> None:
    config = schedule_of(kind="cosine", warmup=4, warmup_start=0.0)
    assert [learning_rate(step, 100, config) for step in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    config = schedule_of(kind="cosine", warmup=4, warmup_start=0.2)
    assert [learning_rate(step, 100, config) for step in range(3)] == pytest.approx([0.2, 0.4, 0.6])


@pytest.mark.slow
@pytest.mark.peers
def test_deits_rate_is_that_of_timms_scheduler_stepped_as_its_loop_does() -> None:
    """Epochs 0 and 1 have 1e-6, the peak comes in epoch 6, and the cosine counts from epoch 0."""
    scheduler = pytest.importorskip("timm.scheduler.cosine_lr").CosineLRScheduler
    config, epochs, steps = recipe("deit").config.training, 300, 7
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=config.peak_lr)
    theirs = scheduler(optimizer, t_initial=epochs, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6)
    for epoch in range(epochs):
        for step in range(steps):
            share = learning_rate(epoch * steps + step, epochs * steps, config.schedule, steps)
            assert share * config.peak_lr == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        theirs.step(epoch)


def test_a_timescale_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        schedule_of(kind="rsqrt", timescale=0)


def test_the_end_is_a_share_of_the_peak() -> None:
    for kind in ("linear", "cosine"):
        config = schedule_of(kind=kind, warmup=0, end=0.1)
        assert learning_rate(100, 100, config) == pytest.approx(0.1)
        assert learning_rate(50, 100, config) == pytest.approx(0.55)


def test_cooldown_goes_linearly_to_zero() -> None:
    config = schedule_of(kind="constant", warmup=0, cooldown=0.2)
    assert learning_rate(80, 100, config) == 1.0
    assert learning_rate(90, 100, config) == pytest.approx(0.5)
    assert learning_rate(99, 100, config) == pytest.approx(0.05)


def test_lengths_below_one_are_shares_of_the_run() -> None:
    share, steps = schedule_of(warmup=0.1), schedule_of(warmup=20)
    assert [learning_rate(step, 200, share) for step in range(200)] == [
        learning_rate(step, 200, steps) for step in range(200)
    ]


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(["linear", "cosine", "constant", "rsqrt"]),
    warmup=st.floats(0, 500),
    cooldown=st.floats(0, 0.99),
    total=st.integers(1, 300),
)
def test_a_share_is_between_nothing_and_the_peak(
    kind: str, warmup: float, cooldown: float, total: int
) -> None:
    config = schedule_of(kind=kind, warmup=warmup)
    if kind in ("constant", "rsqrt"):
        config = config.model_copy(update={"cooldown": cooldown})
    assert all(0 < learning_rate(step, total, config) <= 1 for step in range(total))


def test_weight_decay_follows_dinos_cosine() -> None:
    """0.04 to 0.4, as utils.cosine_scheduler of the authors computes it."""
    config = AdamWConfig(weight_decay=(0.04, 0.4))
    found = [weight_decay(step, 8, config) for step in range(9)]
    assert found == pytest.approx([0.4 - 0.18 * (1 + math.cos(math.pi * step / 8)) for step in range(9)])
    assert weight_decay(3, 8, AdamWConfig()) is None


def test_polyaks_average_has_its_decay_from_the_first_step() -> None:
    plain, warm = exponential(0.9999, warmup=False), exponential(0.9999)
    assert [plain(step) for step in (0, 20_000)] == pytest.approx([1e-4, 1e-4])
    assert warm(20_000) == pytest.approx(9 / 20_010)  # the decay is 0.99955 there


def test_the_rate_grows_with_the_batch() -> None:
    assert scaled_lr(TrainingConfig(peak_lr=1.5e-4, lr_batch_size=256, batch_size=4096)) == pytest.approx(
        2.4e-3
    )
    assert scaled_lr(TrainingConfig(peak_lr=1.5e-4, batch_size=4096)) == 1.5e-4


@pytest.mark.parametrize(
    "training", [{"schedule": {"cooldown": 0.1}}, {"schedule": {"drops": [0.5]}}], ids=["cooldown", "drops"]
)
def test_a_setting_without_effect_is_refused(training: dict[str, object]) -> None:
    with pytest.raises(InputError, match="no effect"):
        configure(RunConfig(), {"training": training})
