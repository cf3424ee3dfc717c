"""Orders that are computed where they are asked for: each sample once, each block in one process."""

import numpy as np
import pytest

from vitreous.data.loading import Sampler
from vitreous.data.sampling import WINDOW, BlockOrder, Permutation, shuffled_by_length, shuffled_order


@pytest.mark.parametrize("count", [1, 2, 3, 100, 4096, 4097, 100_003])
def test_a_permutation_has_each_number_once(count):
    order = Permutation(count, np.random.default_rng(7))
    whole = order[:]
    assert sorted(whole.tolist()) == list(range(count))
    assert order[count // 3 : count // 2].tolist() == whole[count // 3 : count // 2].tolist()


def test_a_permutation_looks_random():
    """Of neighbors, of even and odd places, and of another key."""
    count = 200_000
    one, other = (Permutation(count, np.random.default_rng(seed))[:] for seed in (0, 1))
    expected = np.arange(count)
    for values in (expected, other, np.roll(one, 1), expected % 2, expected % 1000):
        assert abs(np.corrcoef(one, values)[0, 1]) < 4 / np.sqrt(count)
    assert (one == expected).sum() < 12
    low = np.bincount(one[:1000] * 10 // count, minlength=10)
    assert low.min() > 60


def test_many_samples_are_ordered_in_no_memory(monkeypatch):
    monkeypatch.setattr("vitreous.data.sampling.LARGE", 50)  # these are many
    sampler = Sampler(lambda epoch: shuffled_order(101, seed=3, epoch=epoch), 101, batch_size=10)
    assert isinstance(sampler.order(0).indices, Permutation)
    steps = [rows.indices.tolist() for rows in sampler.epoch(2)]
    assert len({number for step in steps for number in step}) == 100
    assert [rows.indices.tolist() for rows in sampler.epoch(2, start=4)] == steps[4:]
    assert [rows.indices.tolist() for rows in sampler.epoch(1)] != steps


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_block_is_read_by_one_process(world_size):
    blocks = np.repeat(np.arange(100, dtype=np.int32), np.random.default_rng(0).integers(3, 9, size=100))
    epochs = []
    for epoch in (0, 1):
        orders = [
            BlockOrder(blocks, seed=5, epoch=epoch, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        found = [order[:] for order in orders]
        assert {len(each) for each in found} == {len(blocks) // world_size}
        seen = [set(blocks[each].tolist()) for each in found]
        assert sum(map(len, seen)) == len(set.union(*seen))  # no block twice
        assert len(set.union(*seen)) >= 95
        assert orders[0][7:60].tolist() == found[0][7:60].tolist()
        first = blocks[found[0][: 3 * WINDOW]]
        assert 4 < len(set(first.tolist())) <= WINDOW
        epochs.append(found[0].tolist())
    assert epochs[0] != epochs[1]


def test_every_window_of_blocks_is_mixed_in_its_own_way():
    blocks = np.repeat(np.arange(2 * WINDOW, dtype=np.int32), 10)
    places = BlockOrder(blocks, seed=0, epoch=0)[:].reshape(2, -1) % 10  # in their blocks
    assert (places[0] == places[1]).mean() < 0.3


def test_batches_of_like_lengths_come_in_another_order_in_each_epoch():
    lengths = np.random.default_rng(0).integers(1, 50, size=400)
    first, again, second = (
        shuffled_by_length(lengths, 8, seed=0, epoch=epoch).indices for epoch in (0, 0, 1)
    )
    assert first.tolist() == again.tolist()
    assert (first == second).mean() < 0.1
    assert sorted(first.tolist()) == list(range(400))
    spread = np.ptp(lengths[first].reshape(-1, 8), axis=1).mean()
    assert spread < 0.2 * np.ptp(lengths)


def test_processes_share_blocks_where_there_are_too_few():
    blocks = np.repeat(np.arange(2, dtype=np.int32), 12)
    found = [BlockOrder(blocks, seed=0, epoch=0, rank=rank, world_size=3)[:].tolist() for rank in range(3)]
    assert sorted(number for each in found for number in each) == list(range(24))
