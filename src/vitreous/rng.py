"""Random generators that depend on nothing but a key: (seed, purpose, epoch, index or step, rank).

The key is hashed, since PyTorch's CPU generator (mt19937) takes the low 32 bits of a seed alone: packing the
parts of a key beside each other would make every seed and every rank draw the same numbers. Nothing in this
package draws from a global generator.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def hashed(seed: int, purpose: str, *key: int) -> np.random.SeedSequence:
    """Hash a key into a NumPy seed sequence.

    Args:
        seed: the user's, 0 or larger.
        purpose: what is drawn ("dropout", "order"), so that two purposes never share numbers.
        key: what tells one draw from another, such as epoch, step and rank; each 0 or larger.
    """
    word = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    return np.random.SeedSequence((seed, word, *key))


def numpy_generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return a NumPy generator (Philox) for a key."""
    return np.random.Generator(np.random.Philox(hashed(seed, purpose, *key)))


def torch_seed(seed: int, purpose: str, *key: int) -> int:
    """Return a number for `torch.Generator.manual_seed`: all of its 63 bits, the low 32 too, are hashed."""
    return int(hashed(seed, purpose, *key).generate_state(1, np.uint64)[0] >> 1)


def torch_generator(
    seed: int, purpose: str, *key: int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """Return a PyTorch generator on `device` for a key."""
    return torch.Generator(device).manual_seed(torch_seed(seed, purpose, *key))
