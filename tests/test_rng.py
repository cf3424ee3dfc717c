"""Generators differ whenever any part of their key does, and are the same otherwise."""

from itertools import combinations

import torch

from vitreous.rng import numpy_generator, torch_generator


def test_every_part_of_the_key_counts() -> None:
    keys = [
        (0, "a", 0),
        (1, "a", 0),
        (0, "b", 0),
        (0, "a", 1),
        (0, "a", 0, 1),
        (1 << 40, "a", 0),
        (0, "a", 1 << 40),
    ]
    for one, other in combinations(keys, 2):
        assert not torch.equal(
            torch.rand(4, generator=torch_generator(*one)), torch.rand(4, generator=torch_generator(*other))
        )
        assert not (numpy_generator(*one).random(4) == numpy_generator(*other).random(4)).any()


def test_the_same_key_draws_the_same() -> None:
    assert torch.equal(*(torch.rand(4, generator=torch_generator(3, "order", 7)) for _ in range(2)))
