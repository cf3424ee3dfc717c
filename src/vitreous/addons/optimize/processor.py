"""What the processor of this machine can do."""

from __future__ import annotations

import re
from pathlib import Path


def processor_flags() -> set[str]:
    """Return what the processor can do, as far as the system says."""
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return set()
    return set(flags[1].split()) if flags else set()
