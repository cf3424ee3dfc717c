"""What the processor of this machine can do."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # of /proc/cpuinfo
INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def has_bf16(flags: Collection[str]) -> bool:
    """Return whether a processor with these flags multiplies in bf16."""
    return not BF16_FLAGS.isdisjoint(flags)


def saturates_int8(flags: Collection[str]) -> bool:
    """Return whether a processor with these flags adds two products of 8 bits in 16 bits, in which large ones
    do not fit: one with AVX2 that has no instruction for sums in 32 bits."""
    return "avx2" in flags and INT8_FLAGS.isdisjoint(flags)


def processor_flags() -> set[str]:
    """Return the flags of this machine's processor, as far as the system says."""
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return set()
    return set(flags[1].split()) if flags else set()
