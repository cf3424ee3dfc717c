"""Random generators that depend on nothing but a key: (seed, purpose, epoch, index or step, rank).

The key is hashed, since PyTorch's CPU generator (mt19937) takes the low 32 bits of a seed alone: packing the
parts of a key beside each other would make every seed and every rank sample the same numbers. Nothing in this
package uses a global generator.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import LazyModule

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")


def hashed(seed: int, purpose: str, *key: int) -> np.random.SeedSequence:
    """Hash a key into a NumPy seed sequence.

    Args:
        seed: the user's, 0 or larger.
        purpose: what is sampled ("dropout", "order"), so that two purposes never share numbers.
        key: what distinguishes one use from another, such as epoch, step and rank; each 0 or larger.
    """
    word = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    return np.random.SeedSequence((seed, word, *key))


@lru_cache
def philox_key(seed: int, purpose: str) -> int:
    """Return the 128 bits that every generator of a seed and a purpose shares."""
    low, high = hashed(seed, purpose).generate_state(2, np.uint64).tolist()
    return int(low) | int(high) << 64


def numpy_generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return a NumPy generator for a key of up to three numbers.

    Philox is counter-based: the key of numbers is where its counter begins, so that a generator for each
    image costs little and no two keys share numbers.
    """
    counter = (0, *key, 0, 0, 0)[:4]
    if len(key) > 3:
        raise ValueError(f"a key of a generator has at most three numbers, not {len(key)}")
    return np.random.Generator(np.random.Philox(key=philox_key(seed, purpose), counter=counter))


def torch_seed(seed: int, purpose: str, *key: int) -> int:
    """Return a number for `torch.Generator.manual_seed`: all of its 63 bits, the low 32 too, are hashed."""
    return int(hashed(seed, purpose, *key).generate_state(1, np.uint64)[0] >> 1)


def torch_generator(
    seed: int, purpose: str, *key: int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """Return a PyTorch generator on `device` for a key."""
    return torch.Generator(device).manual_seed(torch_seed(seed, purpose, *key))


def mixed_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers of which each bit depends on all bits of the given ones: the end of SplitMix64 (Steele,
    Lea and Flood, 2014)."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)
