"""DATA from Python: torch datasets, the datasets library, arrays, lists."""

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

EVERYTHING = DataConfig(test_fraction=0)
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 12, 16, 3), dtype=np.uint8)
NUMBERS = [index % 3 for index in range(20)]


class Pairs(torch.utils.data.Dataset):
    """As torchvision's datasets are: items, and perhaps targets and classes."""

    def __init__(self, images, labels, **attributes):
        self.images, self.labels, self.read = images, labels, 0
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        self.read += 1
        return self.images[index], self.labels[index]


def same(images, pixels=PIXELS):
    return all(
        np.array_equal(np.asarray(images.image(i)), each) for i, each in zip(range(20), pixels, strict=True)
    )


FORMS = {
    "arrays": (PIXELS, np.array(NUMBERS)),
    "tensors": (torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.tensor(NUMBERS)),
    "numbers of 0 ... 1": (torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255, torch.tensor(NUMBERS)),
    "list": [(Image.fromarray(pixels), label) for pixels, label in zip(PIXELS, NUMBERS, strict=True)],
    "dataset": Pairs([torch.from_numpy(pixels).permute(2, 0, 1) for pixels in PIXELS], NUMBERS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_images_and_class_numbers(form):
    splits = open_data(FORMS[form], EVERYTHING)
    assert same(splits.train)
    assert splits.train.targets.strata().tolist() == NUMBERS
    assert splits.train.targets.numbers.dtype == np.int64
    assert splits.train.classes == ("0", "1", "2")
    assert (splits.summary.images, splits.summary.height, splits.summary.width) == (20, 12, 16)


ALONE = {
    "array": PIXELS,
    "tensor": torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
    "list": [Image.fromarray(pixels) for pixels in PIXELS],
    "dataset": torch.utils.data.Subset(list(PIXELS), range(20)),
    "pairs without labels": [(pixels, None) for pixels in PIXELS],
    "captions": [(pixels, f"a text for image {i}") for i, pixels in enumerate(PIXELS)],
}


@pytest.mark.parametrize("form", ALONE)
def test_what_needs_no_labels_takes_images_alone(form):
    data = {"train": ALONE[form], "test": ALONE[form]}
    for splits in (open_data(ALONE[form], EVERYTHING, "unlabeled"), open_data(data, EVERYTHING, "unlabeled")):
        assert same(splits.train)
        assert splits.train.classes == ("image",)
    with pytest.raises(InputError, match=r"pair|class"):
        open_data(ALONE[form], EVERYTHING)
    labeled = open_data(FORMS["list"], EVERYTHING, "unlabeled").train
    assert labeled.targets.strata().tolist() == NUMBERS


def test_objects_are_split_and_loaded_like_any_data():
    splits = open_data(FORMS["list"], DataConfig())
    assert len(splits.train) + len(splits.test) == 20
    assert len(splits.test) >= 3
    assert splits.train.source == splits.test.source == "list"
    loader = image_loader(
        splits.train,
        preprocessing=Preprocessing(size=(8, 8)),
        augmentation=AugmentationConfig(flip=0.5),
        batch_size=4,
        seed=0,
        workers=2,
    )
    batch = next(loader.epoch(0))
    assert batch.images.shape == (4, 3, 8, 8)
    assert batch.targets.tolist() == splits.train.targets.strata(batch.indices.numpy()).tolist()


def test_a_dataset_says_its_labels_and_classes_without_being_read():
    images = [Image.fromarray(pixels) for pixels in PIXELS]
    data = Pairs(images, NUMBERS, targets=NUMBERS, classes=["a", "b", "c"])
    splits = open_data({"train": data, "test": FORMS["arrays"]}, EVERYTHING)
    assert data.read == 20  # once for each image whose size is looked at
    assert splits.train.classes == splits.test.classes == ("a", "b", "c")
    assert splits.validation is None


def test_words_are_classes_in_alphabetical_order():
    words = [("dog", "cat", "emu")[number] for number in NUMBERS]
    splits = open_data((PIXELS, words), EVERYTHING)
    assert splits.train.classes == ("cat", "dog", "emu")
    assert [splits.train.label(row) for row in range(len(splits.train))] == words


@pytest.mark.parametrize(
    "labels",
    [
        [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]] * 5,
        [["a"], ["b"], ["a", "b"], []] * 5,
    ],
)
def test_several_labels_are_rows(labels):
    pairs = [(Image.fromarray(pixels), label) for pixels, label in zip(PIXELS, labels, strict=True)]
    splits = open_data(pairs, EVERYTHING)
    assert splits.train.targets.tensor().numpy().dtype == np.float32
    assert splits.train.targets.matrix[:4].toarray().tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]
    assert splits.summary.multi_label


def test_numbers_to_predict():
    ages = [index / 7 for index in range(20)]
    splits = open_data((PIXELS, np.array(ages)), EVERYTHING, "numbers")
    assert splits.train.targets.values == pytest.approx(ages)
    assert splits.train.targets.tensor().numpy().dtype == np.float32
    with pytest.raises(InputError, match="20 different numbers"):
        open_data((PIXELS, np.array(ages)), EVERYTHING)


def test_the_datasets_library():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    words = [("dog", "cat")[index % 2] for index in range(20)]
    table = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(pixels) for pixels in PIXELS], "label": words}, features=features
    )
    splits = open_data(table, EVERYTHING)
    assert splits.train.classes == ("cat", "dog")
    assert same(splits.train)
    parts = datasets.DatasetDict({"train": table, "test": table.select([1, 3])})
    splits = open_data(parts, EVERYTHING)
    assert splits.test.targets.strata().tolist() == [0, 0]
    assert splits.test.classes == ("cat", "dog")
    with pytest.raises(InputError, match="the class 'cat', which is not one of dog"):
        open_data({"train": table.select([0, 2]), "test": table}, EVERYTHING)


def test_an_image_that_cannot_be_had_is_counted_as_any_other():
    data = list(FORMS["list"])
    data[3] = ("nothing.jpg", 0)
    loader = image_loader(
        open_data(data, EVERYTHING).train,
        preprocessing=Preprocessing(size=(8, 8)),
        augmentation=AugmentationConfig(),
        batch_size=20,
        seed=0,
    )
    assert 3 not in next(loader.epoch(0)).indices
    assert dict(loader.bad) == {"list[3]": "there is no image nothing.jpg"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (17, "DATA is a int: pass a torch Dataset"),
        ([], "is empty"),
        ([1, 2], "item 0 of DATA is not a pair"),
        ((PIXELS, [1, 2]), "20 images and 2 labels"),
        ((PIXELS, [-1, *NUMBERS[1:]]), "the label -1"),
        ((PIXELS, [[1.0], [0.0, 1.0]] * 10), r"rows of \[1, 2\] numbers"),
        ((PIXELS, [[2.0, 0.0]] * 20), "outside 0 ... 1"),
        ((PIXELS, ["a", ["b"]] * 10), "one label for some images and several"),
        ({"test": FORMS["arrays"]}, "no split 'train'"),
        ({"train": FORMS["arrays"], "extra": FORMS["arrays"]}, "a split 'extra'"),
    ],
)
def test_each_mistake_has_its_sentence(data, sentence):
    with pytest.raises(InputError, match=sentence):
        open_data(data, EVERYTHING)
