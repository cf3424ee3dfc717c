"""Images with their text: composed lines of digits, manifests, batches."""

from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.addons.text.captions import Captions, caption_loader, encode_captions, open_captions
from vitreous.addons.text.digit_lines import SIDE, compose, digit_line_loader
from vitreous.addons.text.tokenizer import SMALLEST, Tokenizer
from vitreous.data.config import DataConfig
from vitreous.data.sources.small import open_digits
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

GRAY = Preprocessing(size=(12, 80), channels=1, mean=(0.1,), std=(0.2,))


@pytest.fixture(scope="module")
def digits():
    train, _, test = open_digits(DataConfig())
    return train, test


def test_a_line_shows_the_digits_that_its_text_says(digits):
    train, _ = digits
    images, texts = compose(train, 50, np.random.default_rng(0))
    known = {np.asarray(train.image(i)).tobytes(): train.label(i) for i in range(len(train))}
    assert {len(text) for text in texts} == {3, 4, 5, 6, 7, 8}
    for row in range(50):
        pixels = np.asarray(images.image(row))
        found = [
            (left, known[window.tobytes()])
            for top in range(pixels.shape[0] - SIDE + 1)
            for left in range(pixels.shape[1] - SIDE + 1)
            if (window := np.ascontiguousarray(pixels[top : top + SIDE, left : left + SIDE])).tobytes()
            in known
        ]
        assert "".join(name for _, name in sorted(found)) == texts[row]


def test_no_digit_is_in_training_and_test_lines(digits):
    train, test = ({p.image(i).tobytes() for i in range(len(p))} for p in digits)
    assert len(train & test) == 0


@pytest.fixture(scope="module")
def fresh(digits):
    captions = Captions(digits[0], [digits[0].label(row) for row in range(len(digits[0]))])
    tokenizer = Tokenizer.train(captions.texts, SMALLEST + 11)

    def loader(batch_size=32, longest=16, preprocessing=GRAY):
        return digit_line_loader(
            captions.images,
            tokenizer,
            preprocessing=preprocessing,
            longest=longest,
            batch_size=batch_size,
            seed=3,
        )

    return loader, tokenizer


def test_lines_to_learn_from_are_like_lines_to_judge_by(digits, fresh):
    batch = next(fresh[0](200).epoch(2))
    lines, texts = compose(digits[0], 200, np.random.default_rng(0))
    plain = GRAY([lines.image(row) for row in range(200)])
    assert batch.images.shape == plain.shape == (200, 1, 12, 80)
    ink = [(images + 0.5).mean().item() for images in (batch.images, plain)]  # a ground of about zero
    assert 0.8 < ink[0] / ink[1] < 1.2
    written = [fresh[1].decode(ids) for ids in batch.target.tolist()]
    assert {len(text) for text in written} == {len(text) for text in texts} == {3, 4, 5, 6, 7, 8}
    assert set("".join(written)) == set("0123456789")


def test_fresh_lines_begin_short_and_depend_on_seed_epoch_and_step_alone(fresh):
    loader, tokenizer = fresh
    lengths = [
        {len(tokenizer.decode(ids)) for ids in next(loader().epoch(epoch, 150)).target.tolist()}
        for epoch in range(3)
    ]
    assert lengths[0] == {1, 2}
    assert lengths[1] == {1, 2, 3, 4}
    assert min(lengths[2]) == 3
    later, eighth = list(islice(loader().epoch(2), 9))[7:]
    assert torch.equal(later.images, next(loader().epoch(2, start=7)).images)
    assert not torch.equal(later.images, eighth.images)
    assert not torch.equal(later.images, next(loader().epoch(1, start=7)).images)


def test_what_fresh_lines_cannot_be_is_said(fresh):
    with pytest.raises(InputError, match="gray images of 12 x 80"):
        fresh[0](preprocessing=Preprocessing(size=(32, 80), channels=1, mean=(0.1,), std=(0.2,)))
    with pytest.raises(InputError, match="up to 11 tokens"):
        fresh[0](longest=10)


def manifest(folder, rows, header="path,label"):
    for number in range(6):
        Image.fromarray(np.full((10, 30), 40 * number, np.uint8)).save(folder / f"{number}.png")
    path = folder / "lines.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_manifest_of_images_and_texts(tmp_path):
    rows = ["0.png,eins,train", "1.png,zwei,train", "2.png,,train", '3.png,"drei, vier",test']
    data = open_captions(str(manifest(tmp_path, rows, "path,label,split")), seed=0, test_fraction=0.5)
    assert list(data.train.texts) == ["eins", "zwei"]
    assert list(data.test.texts) == ["drei, vier"]
    assert data.empty == 1
    assert np.asarray(data.test.images.image(0))[0, 0] == 120


def test_a_manifest_without_a_split_is_split_by_the_hashes_of_its_names(tmp_path):
    rows = [f"{number}.png,text {number}" for number in range(60)]
    data = open_captions(str(manifest(tmp_path, rows)), seed=0, test_fraction=0.33)
    train, test = set(data.train.texts), set(data.test.texts)
    assert (len(train | test), not train & test) == (60, True)
    assert 10 <= len(test) <= 30
    fewer = open_captions(str(manifest(tmp_path, rows[:-7])), seed=0, test_fraction=0.33)
    assert set(fewer.train.texts) <= train  # no other text moves to another part
    assert set(fewer.test.texts) <= test


def test_bad_manifests_are_said(tmp_path):
    with pytest.raises(InputError, match="not a manifest"):
        open_captions(str(tmp_path), seed=0, test_fraction=0.1)
    with pytest.raises(InputError, match="1 images with a text"):
        open_captions(str(manifest(tmp_path, ["0.png,eins", "1.png,"])), seed=0, test_fraction=0.1)
    one_side = manifest(tmp_path, ["0.png,eins,train", "1.png,zwei,train"], "path,label,split")
    with pytest.raises(InputError, match="2 images train and 0 other"):
        open_captions(str(one_side), seed=0, test_fraction=0.1)


def loader_of(captions, **options):
    tokenizer = Tokenizer.train(captions.texts, SMALLEST + 12)
    encoded = encode_captions(captions, tokenizer, options.pop("longest", 20))
    settings = {"preprocessing": Preprocessing(size=(8, 24), channels=1, mean=(0.5,), std=(0.5,))}
    return caption_loader(encoded, **{**settings, "batch_size": 2, "seed": 0, **options}), encoded


def test_batches_of_images_and_texts(digits):
    captions = Captions(*compose(digits[1], 10, np.random.default_rng(0)))
    loader, _ = loader_of(captions)
    batches = list(loader.epoch(0))
    assert len(batches) == loader.steps_per_epoch == 5
    assert batches[0].images.shape == (2, 1, 8, 24)
    later = list(loader_of(captions, workers=2)[0].epoch(0, start=3))
    assert torch.equal(later[0].images, batches[3].images)
    assert torch.equal(later[0].target, batches[3].target)
    _, short = loader_of(captions, longest=6)
    assert short.too_long == sum(len(text) + 3 > 6 for text in captions.texts) > 0
    with pytest.raises(InputError, match="a batch of 11 is more than the 10 samples"):
        loader_of(captions, batch_size=11)
    with pytest.raises(
        InputError, match=r"each of the 10 texts has more than 2 tokens: raise model\.decoder\."
    ):
        loader_of(captions, longest=2)


def test_an_image_that_cannot_be_read_is_replaced_and_recorded(tmp_path):
    path = manifest(tmp_path, [f"{number}.png,{number}{number}" for number in range(6)])
    (tmp_path / "2.png").write_bytes(b"no image")
    data = open_captions(str(path), seed=1, test_fraction=0.2)
    loader, _ = loader_of(data.train, batch_size=len(data.train.texts))
    batch = next(iter(loader.epoch(0)))
    assert len(batch.images) == len(data.train.texts)
    assert len(loader.bad) == ("22" in data.train.texts)
