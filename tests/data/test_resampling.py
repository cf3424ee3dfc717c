"""The compiled loops beside Pillow, which is what they are to equal."""

from __future__ import annotations

import io
import subprocess
import sys
import threading

import numpy as np
import PIL
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitreous.data import transforms
from vitreous.data.transforms import Loops, crop_pixels, evaluation_pixels, last_row, resample, rows_first
from vitreous.models.preprocessing import Preprocessing, to_tensor
from vitreous.models.stored import stored

from .test_decoding import save

compiled = pytest.importorskip("vitreous.data.compiled", reason="Numba is not installed")
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
SIDES = st.integers(1, 90)


def noise(seed: int, height: int, width: int) -> np.ndarray:
    """Bytes of which many are at the ends, where Pillow cuts off."""
    values = np.random.default_rng(seed).normal(128, 120, (height, width, 3))
    return values.clip(0, 255).astype(np.uint8)


def pillows(pixels: np.ndarray, size: tuple[int, int], kernel: str) -> torch.Tensor:
    return to_tensor(Image.fromarray(pixels).resize(size[::-1], FILTERS[kernel]))


@pytest.mark.parametrize("kernel", FILTERS)
def test_a_crop_of_training_is_resized_as_pillow_does(kernel: str) -> None:
    pixels = noise(1, 40, 50)
    preprocessing = Preprocessing(size=(24, 16), interpolation=kernel)
    cropped = crop_pixels(to_tensor(Image.fromarray(pixels)), (4, 6, 30, 36), (40, 50), preprocessing)
    expected = pillows(pixels[4:34, 6:42], (24, 16), kernel)
    assert (cropped.int() - expected.int()).abs().max() <= 1


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1), height=SIDES, width=SIDES, size=st.tuples(SIDES, SIDES), data=st.data()
)
@pytest.mark.parametrize("kernel", ["bicubic", "bilinear"])
def test_any_part_at_any_size_equals_pillows_bit_for_bit(kernel, seed, height, width, size, data):
    pixels = noise(seed, height, width)
    row, column = data.draw(st.integers(0, size[0] - 1)), data.draw(st.integers(0, size[1] - 1))
    window = (
        row,
        column,
        data.draw(st.integers(1, size[0] - row)),
        data.draw(st.integers(1, size[1] - column)),
    )
    wanted = pillows(pixels, size, kernel)[:, row : row + window[2], column : column + window[3]]
    ours = resample(
        compiled,
        torch.from_numpy(pixels).permute(2, 0, 1),
        size,
        kernel,
        window=window,
        rows_first=rows_first((height, width), size),
    )
    assert torch.equal(ours, wanted)


@pytest.mark.parametrize("size", [(20, 40), (64, 50), (37, 90)])
def test_rows_first_is_columns_first_of_the_image_on_its_side(size):
    pixels = torch.from_numpy(noise(1, 60, 70)).permute(2, 0, 1)
    turned = resample(compiled, pixels.mT, size[::-1], "bicubic").mT
    assert torch.equal(resample(compiled, pixels, size, "bicubic", rows_first=True), turned)


@pytest.mark.parametrize(
    "size", [(375, 500), (500, 375), (90, 120), (224, 224), (230, 900), (900, 230), (256, 301)]
)
@pytest.mark.parametrize("mode", ["crop", "squash"])
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "pillow"])
def test_the_evaluations_images_are_pillows(size, mode, form, is_compiled):
    loops = Loops()
    if is_compiled:
        loops.load()
    data = save(Image.fromarray(noise(2, *size)), form)
    preprocessing = Preprocessing(size=(224, 192), resize=mode, crop_fraction=0.9)
    ours = evaluation_pixels(stored(data, "made", 3), preprocessing, loops)
    assert torch.equal(ours, to_tensor(preprocessing.image(Image.open(io.BytesIO(data)))))


@given(height=st.integers(1, 3000), target=st.integers(1, 600), part=st.floats(0.01, 1))
def test_rows_below_the_last_one_have_no_weight(height, target, part):
    end = max(round(part * target), 1)
    last = last_row(height, target, end)
    assert transforms.taps(height, target, 0, end, "bicubic")[2] <= last <= height


def test_pillow_resizes_until_compiling_the_loops_pays():
    loops = Loops(pixels=10 * 60 * 80)
    encoded = stored(save(Image.fromarray(noise(5, 60, 80)), "PNG"), "made", 3)
    preprocessing = Preprocessing(size=(32, 32))
    pixels = [evaluation_pixels(encoded, preprocessing, loops) for _ in range(9)]
    assert loops.compiled is None
    pixels += [evaluation_pixels(encoded, preprocessing, loops) for _ in range(5)]  # one thread compiles
    for thread in threading.enumerate():
        if "loops" in thread.name:
            thread.join()
    assert loops.compiled is compiled
    pixels.append(evaluation_pixels(encoded, preprocessing, loops))
    assert all(torch.equal(each, pixels[0]) for each in pixels)


FEW = """
import sys
from pathlib import Path

import numpy as np
from PIL import Image
import vitreous as vt
from vitreous.cli import run
for label in ("a", "b"):
    for index in range(20):
        pixels = np.full((48, 64, 3), 200 * (label == "a") + index, np.uint8)
        Image.fromarray(pixels).resize((300, 250)).save(Path("photos", label, f"{index}.jpg"))
vt.save(vt.create("ViT-Ti/16", num_classes=2, image_size=224, depth=1), "model")
for words in (
    ["predict", "model", "photos", "--batch-size", "32"],
    ["train", "photos", "--epochs", "1", "--init", "model", "--out", "run"]
    + ["--set", "data.reading.in_memory=false"],
    ["evaluate", "run"],
):
    assert run(words) == 0, words
    assert "numba" not in sys.modules, words
"""


@pytest.mark.slow
def test_for_few_images_nothing_is_compiled(tmp_path):
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", FEW], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_is_normalized_as_each_of_its_images_is_bit_for_bit(channels):
    mean, std = (0.485, 0.456, 0.406)[:channels], (0.229, 0.224, 0.225)[:channels]
    preprocessing = Preprocessing(channels=channels, mean=mean, std=std)
    batch = torch.randint(0, 256, (30, channels, 224, 224), dtype=torch.uint8)
    (factor, shift), several = preprocessing.factor_and_shift(), preprocessing.normalize(batch)
    assert torch.equal(several, batch * factor + shift)
    assert torch.equal(several[0], preprocessing.normalize(batch[0]))
    assert torch.equal(several.mT, preprocessing.normalize(batch.mT))


@pytest.mark.slow
def test_the_loops_need_no_folder_to_be_kept_in(tmp_path):
    """As in a container whose file system is read-only: compiled anew, not refused."""
    program = (
        "import numba.core.caching as caching\n"
        "caching._CacheLocator.ensure_cache_path = lambda self: (_ for _ in ()).throw(OSError('read-only'))\n"
        "import torch\n"
        "from vitreous.data.transforms import LOOPS, resample\n"
        "pixels = torch.full((3, 8, 8), 7, dtype=torch.uint8)\n"
        "print(resample(LOOPS.load(), pixels, (4, 4), 'bicubic').unique().tolist())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout == "[7]\n", run.stderr


def test_the_order_of_rows_and_columns_is_that_of_the_pillow_that_is_installed():
    tall, wide = noise(6, 300, 100), noise(6, 100, 300)
    assert rows_first((300, 100), (96, 32)) == (int(PIL.__version__.split(".")[0]) >= 13)
    assert not rows_first((100, 300), (32, 96))
    for pixels, size in ((tall, (96, 32)), (wide, (32, 96))):
        order = rows_first(pixels.shape[:2], size)
        ours = [
            resample(compiled, torch.from_numpy(pixels).permute(2, 0, 1), size, "bicubic", rows_first=each)
            for each in (order, not order)
        ]
        assert torch.equal(ours[0], pillows(pixels, size, "bicubic"))
        assert not torch.equal(ours[1], ours[0])  # so that the test can tell them apart
