"""What the processor of this machine can do."""

from __future__ import annotations

import re
from pathlib import Path

BF16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}  # of /proc/cpuinfo
INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def has_bf16() -> bool:
    """Return whether the processor multiplies in bf16, as far as the system says."""
    return bool(BF16_FLAGS & processor_flags())


def saturates_int8() -> bool:
    """Return whether it adds two products of 8 bits in 16 bits, in which large ones do not fit: one with AVX2
    that has no instruction for sums in 32 bits."""
    flags = processor_flags()
    return "avx2" in flags and not INT8_FLAGS & flags


def processor_flags() -> set[str]:
    """Return what the processor can do, as far as the system says."""
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return set()
    return set(flags[1].split()) if flags else set()
