"""What is done to every pixel on a CPU, compiled by Numba: resizing as Pillow does it, and normalizing.

Importing this takes a third of a second, and where nothing is cached yet the first calls about nine seconds
of one core, so that few images are left to Pillow, which computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, no_type_check

import numba
import numpy as np

from vitreous.errors import cache_folder

BLOCK = 32  # rows whose columns are resized together: two cache lines of pixels
FEW = 8
BITS = 22  # of a weight after the point; with 8 of a byte and 2 to spare these are Pillow's 32
HALF = 1 << (BITS - 1)
ONE, TWO, THREE = np.uintp(1), np.uintp(2), np.uintp(3)  # unsigned, so that no index counts from the end


def machine_code(function: Callable[..., Any]) -> Any:
    """The function compiled at its first call, for many threads at once, and kept for the next process."""
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
def cubic(x):
    """Keys's kernel with a = -0.5."""
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    if x < 2:
        return ((x - 5) * x + 8) * x * -0.5 + 2
    return 0.0


@machine_code
@no_type_check
def triangle(x):
    return max(1 - abs(x), 0.0)


@machine_code
@no_type_check
def taps(length, target, first, count, bicubic):
    """The weighted sums that `count` places from `first` on are, of `length` pixels resized to `target`.

    Three things: the first pixel of each; the weights, whole numbers of 2^-BITS, as many for each place, 4 or
    a larger even number, the last ones perhaps 0; where the pixels end that have a weight. A reduction widens
    the kernel, which is what antialiasing means.
    """
    step = length / target
    scale = max(step, 1.0)
    reach = (2.0 if bicubic else 1.0) * scale
    low, high = np.empty(count, np.int32), np.empty(count, np.int32)
    for place in range(count):
        center = (first + place + 0.5) * step
        low[place] = max(int(center - reach + 0.5), 0)
        high[place] = min(int(center + reach + 0.5), length)
    most = (high - low).max()
    weights = np.zeros((count, max(most + most % 2, 4)), np.int32)
    exact = np.empty(most)
    for place in range(count):
        center = (first + place + 0.5) * step
        total = 0.0
        for tap in range(high[place] - low[place]):
            x = (low[place] + tap - center + 0.5) * (1.0 / scale)
            exact[tap] = cubic(x) if bicubic else triangle(x)
            total += exact[tap]
        for tap in range(high[place] - low[place]):
            weight = exact[tap] / total * (1 << BITS)
            weights[place, tap] = int(weight + 0.5) if weight >= 0 else int(weight - 0.5)
    return low, weights, high[-1]


@machine_code
@no_type_check
def rounded(total):
    """A sum of bytes by weights, and HALF, as a byte."""
    return np.uint8(min(max(total >> BITS, 0), 255))


@machine_code
@no_type_check
def add_lines(lines, start, first, weights, sums):
    """Into `sums` (n,) the sum of the lines from `start` on, of n places from `first` on, and HALF. The first
    line follows the last: those without weight may be anywhere."""
    end, count = first + len(sums), len(lines)
    one, two = lines[start % count, first:end], lines[(start + 1) % count, first:end]
    three, four = lines[(start + 2) % count, first:end], lines[(start + 3) % count, first:end]
    a, b, c, d = weights[0], weights[1], weights[2], weights[3]
    for x in range(len(sums)):
        here = a * np.int32(one[x]) + b * np.int32(two[x]) + c * np.int32(three[x]) + d * np.int32(four[x])
        sums[x] = here + HALF
    for tap in range(4, len(weights), 2):
        one, two = lines[(start + tap) % count, first:end], lines[(start + tap + 1) % count, first:end]
        a, b = weights[tap], weights[tap + 1]
        for x in range(len(sums)):
            sums[x] += a * np.int32(one[x]) + b * np.int32(two[x])


@machine_code
@no_type_check
def word(red, green, blue, fourth):
    """Four neighboring bytes as one number, in the order in which a processor reads them at once."""
    low = np.uint32(red) | np.uint32(green) << np.uint32(8)
    return np.int32(low | np.uint32(blue) << np.uint32(16) | np.uint32(fourth) << np.uint32(24))


@machine_code
@no_type_check
def room(across):
    """Where `resize_columns` works: a block on its side, its sums, and its result on its side."""
    starts, weights, _ = across
    used = starts[-1] + weights.shape[1] - starts[0]
    return (
        np.empty((used, BLOCK), np.int32),
        np.empty(4 * BLOCK, np.int32),
        np.empty((len(starts), BLOCK), np.int32),
    )


@machine_code
@no_type_check
def resize_columns(pixels, top, left, across, scratch, words):
    """BLOCK rows of an image (H, W, 3) from (top, left) on, resized `across`: `words` (BLOCK, w), red + 2^8
    green + 2^16 blue + something. Of a block on its side a column of the result is a weighted sum of whole
    lines, which a processor adds up many numbers at a time."""
    starts, weights, end = across
    transposed, sums, reduced = scratch
    last, left, used = len(pixels) - 1, left + starts[0], end - starts[0]
    flat = pixels.reshape(-1)
    for group in range(0, BLOCK, FEW):
        for x in range(used - 1):
            for y in range(group, group + FEW):  # so few that the address of each one stays in a register
                at = np.uintp(3 * (min(top + y, last) * pixels.shape[1] + left + x))
                transposed[x, y] = word(flat[at], flat[at + ONE], flat[at + TWO], flat[at + THREE])
    for y in range(BLOCK):  # after the very last pixel there is no fourth byte
        red, green, blue = pixels[min(top + y, last), left + used - 1]
        transposed[used - 1, y] = word(red, green, blue, blue)
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
            bytes_out[x, lane] = rounded(sums[lane])
        for y in range(BLOCK):
            words[y, x] = reduced[x, y]


@machine_code
@no_type_check
def columns_first(pixels, top, left, down, across, out):
    """Into `out` (3, h, w) an image (H, W, 3) from (top, left) on, resized by the taps `down` and `across`.
    Columns are rounded to bytes before the rows are resized."""
    starts, weights, end = down
    width, scratch = out.shape[2], room(across)
    words = np.empty((BLOCK, width), np.int32)
    kept = 2 * BLOCK  # lines, in a ring: what one row of the result needs and a block more
    while kept < weights.shape[1] + BLOCK:
        kept *= 2
    lines = np.zeros((kept, 3 * width), np.int32)
    sums = np.empty(3 * width, np.int32)
    done = starts[0]
    for y in range(len(starts)):
        while done < min(starts[y] + weights.shape[1], end):
            resize_columns(pixels, top + done, left, across, scratch, words)
            for row in range(BLOCK):
                line = lines[(done + row) % kept].reshape(3, width)
                for x in range(width):
                    line[0, x] = words[row, x] & 255
                    line[1, x] = words[row, x] >> 8 & 255
                    line[2, x] = words[row, x] >> 16 & 255
            done += BLOCK
        add_lines(lines, starts[y], 0, weights[y], sums)
        for c in range(3):
            for x in range(width):
                out[c, y, x] = rounded(sums[c * width + x])


@machine_code
@no_type_check
def rows_first(pixels, top, left, down, across, out):
    """As `columns_first`, but rows are rounded to bytes first: quicker where there will be fewer of them."""
    starts, weights, _ = down
    scratch, words = room(across), np.empty((BLOCK, out.shape[2]), np.int32)
    lines = pixels.reshape(len(pixels), -1)
    first, used = left + across[0][0], across[2] - across[0][0]
    block = np.empty((BLOCK, 3 * used), np.uint8)
    sums = np.empty(3 * used, np.int32)
    for y in range(0, len(starts), BLOCK):
        count = min(BLOCK, len(starts) - y)
        for row in range(count):
            add_lines(lines, top + starts[y + row], 3 * first, weights[y + row], sums)
            for x in range(len(sums)):
                block[row, x] = rounded(sums[x])
        resize_columns(block.reshape(BLOCK, used, 3), 0, -across[0][0], across, scratch, words)
        for row in range(count):
            for x in range(out.shape[2]):
                out[0, y + row, x] = np.uint8(words[row, x])
                out[1, y + row, x] = np.uint8(words[row, x] >> 8)
                out[2, y + row, x] = np.uint8(words[row, x] >> 16)


@machine_code
@no_type_check
def normalize(pixels, factor, shift, out):
    """pixels x factor + shift of bytes (B, C, H, W), channel by channel, into `out`, float32."""
    for b in range(pixels.shape[0]):
        for c in range(pixels.shape[1]):
            source, target = pixels[b, c].reshape(-1), out[b, c].reshape(-1)
            for place in range(len(source)):
                target[place] = np.float32(source[place]) * factor[c] + shift[c]
