"""Resizing as Pillow does it, to the bit, in a seventh of the time: loops over pixels that Numba compiles.

Importing this takes a third of a second, and the first call, where nothing is cached yet, five seconds of one
core. `transforms.Loops` says when that pays; until then Pillow does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import no_type_check

import numba
import numpy as np

from vitreous.errors import cache_folder

BLOCK = 32  # rows whose columns are resized together: two cache lines of pixels
FEW = 8
BITS = 22  # of a weight after the point, as `transforms.taps` has them
HALF = 1 << (BITS - 1)
ONE, TWO, THREE = np.uintp(1), np.uintp(2), np.uintp(3)  # unsigned, so that no index counts from the end


def machine_code(function: Callable[..., object]) -> object:
    """Return the function compiled at its first call, for many threads at once, and kept for the next
    process."""
    try:
        return numba.njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # neither this package nor the home can be written, as in a container
        numba.config.CACHE_DIR = str(cache_folder() / "compiled")  # type: ignore[attr-defined]
    try:
        Path(numba.config.CACHE_DIR).mkdir(mode=0o700, parents=True, exist_ok=True)  # type: ignore[attr-defined]
        return numba.njit(function, nogil=True, error_model="numpy", cache=True)
    except (RuntimeError, OSError):
        return numba.njit(function, nogil=True, error_model="numpy")


@machine_code
@no_type_check
def rounded_byte(total):
    """Return a sum of bytes by weights, and HALF, as a byte."""
    return np.uint8(min(max(total >> BITS, 0), 255))


@machine_code
@no_type_check
def add_lines(lines, start, weights, sums):
    """Write into `sums` (n,) the sum of the lines (n,) from `start` on, and HALF. The first line follows the
    last: those without weight may be anywhere."""
    count = len(lines)
    one, two = lines[start % count], lines[(start + 1) % count]
    three, four = lines[(start + 2) % count], lines[(start + 3) % count]
    a, b, c, d = weights[0], weights[1], weights[2], weights[3]
    for x in range(len(sums)):
        here = a * np.int32(one[x]) + b * np.int32(two[x]) + c * np.int32(three[x]) + d * np.int32(four[x])
        sums[x] = here + HALF
    for tap in range(4, len(weights), 2):
        one, two = lines[(start + tap) % count], lines[(start + tap + 1) % count]
        a, b = weights[tap], weights[tap + 1]
        for x in range(len(sums)):
            sums[x] += a * np.int32(one[x]) + b * np.int32(two[x])


@machine_code
@no_type_check
def four_bytes(red, green, blue, fourth):
    """Return four neighboring bytes as one number, in the order in which a processor reads them at once."""
    low = np.uint32(red) | np.uint32(green) << np.uint32(8)
    return np.int32(low | np.uint32(blue) << np.uint32(16) | np.uint32(fourth) << np.uint32(24))


@machine_code
@no_type_check
def workspace(across):
    """Return where `resize_columns` works: a block on its side, its sums, and its result on its side."""
    starts, weights, _ = across
    used = starts[-1] + weights.shape[1] - starts[0]
    return (
        np.empty((used, BLOCK), np.int32),
        np.empty(4 * BLOCK, np.int32),
        np.empty((len(starts), BLOCK), np.int32),
    )


@machine_code
@no_type_check
def resize_columns(pixels, top, across, scratch, words):
    """Resize BLOCK rows of an image (H, W, 3) from `top` on `across`: `words` (BLOCK, w), red + 2^8 green +
    2^16 blue + something. Of a block on its side a column of the result is a weighted sum of whole lines,
    which a processor adds up many numbers at a time."""
    starts, weights, end = across
    transposed, sums, reduced = scratch
    last, left, used = len(pixels) - 1, starts[0], end - starts[0]
    flat = pixels.reshape(-1)
    for group in range(0, BLOCK, FEW):
        for x in range(used - 1):
            for y in range(group, group + FEW):  # so few that the address of each one stays in a register
                at = np.uintp(3 * (min(top + y, last) * pixels.shape[1] + left + x))
                transposed[x, y] = four_bytes(flat[at], flat[at + ONE], flat[at + TWO], flat[at + THREE])
    # There is no fourth byte after the very last pixel.
    for y in range(BLOCK):
        red, green, blue = pixels[min(top + y, last), left + used - 1]
        transposed[used - 1, y] = four_bytes(red, green, blue, blue)
    bytes_in, bytes_out = transposed.view(np.uint8), reduced.view(np.uint8)
    for x in range(len(starts)):
        # As `add_lines`, written out for a length that the compiler knows.
        start = starts[x] - starts[0]
        a, b, c, d = weights[x, 0], weights[x, 1], weights[x, 2], weights[x, 3]
        for lane in range(4 * BLOCK):
            ab = a * np.int32(bytes_in[start, lane]) + b * np.int32(bytes_in[start + 1, lane])
            cd = c * np.int32(bytes_in[start + 2, lane]) + d * np.int32(bytes_in[start + 3, lane])
            sums[lane] = ab + cd + HALF
        for tap in range(4, weights.shape[1], 2):
            a, b = weights[x, tap], weights[x, tap + 1]
            line = start + tap
            for lane in range(4 * BLOCK):
                sums[lane] += a * np.int32(bytes_in[line, lane]) + b * np.int32(bytes_in[line + 1, lane])
        for lane in range(4 * BLOCK):
            bytes_out[x, lane] = rounded_byte(sums[lane])
        for y in range(BLOCK):
            words[y, x] = reduced[x, y]


@machine_code
@no_type_check
def columns_first(pixels, down, across, out):
    """Write into `out` (3, h, w) an image (H, W, 3), resized by `down` and `across` (`transforms.taps`).
    Columns are rounded to bytes before the rows are resized."""
    starts, weights, end = down
    width, scratch = out.shape[2], workspace(across)
    words = np.empty((BLOCK, width), np.int32)
    kept = 2 * BLOCK  # lines, in a ring: what one row of the result needs and a block more
    while kept < weights.shape[1] + BLOCK:
        kept *= 2
    lines = np.zeros((kept, 3 * width), np.int32)
    sums = np.empty(3 * width, np.int32)
    done = starts[0]
    for y in range(len(starts)):
        while done < min(starts[y] + weights.shape[1], end):
            resize_columns(pixels, done, across, scratch, words)
            for row in range(BLOCK):
                line = lines[(done + row) % kept].reshape(3, width)
                for x in range(width):
                    line[0, x] = words[row, x] & 255
                    line[1, x] = words[row, x] >> 8 & 255
                    line[2, x] = words[row, x] >> 16 & 255
            done += BLOCK
        add_lines(lines, starts[y], weights[y], sums)
        for c in range(3):
            for x in range(width):
                out[c, y, x] = rounded_byte(sums[c * width + x])
