"""Settings as a user writes them."""

import pytest
from PIL import Image
from pydantic import ValidationError

from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.names import create
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.settings import check_names, parse_value, set_leaf


def test_a_leaf_is_set_and_its_branches_are_made() -> None:
    tree: dict[str, object] = {}
    set_leaf(tree, "model.stem.bias", False)
    set_leaf(tree, "seed", 3)
    assert tree == {"model": {"stem": {"bias": False}}, "seed": 3}


def test_a_value_that_has_settings_inside_it_is_one_sentence() -> None:
    tree: dict[str, object] = {"model": 3}
    with pytest.raises(InputError, match=r"model is set to 3 and model\.depth inside it as well"):
        set_leaf(tree, "model.depth", 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1e-3", 1e-3), ("[2, 2]", [2, 2]), ("true", True), ("None", None), ("mean", "mean")],
)
def test_values_are_tomls(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_an_unknown_name_gets_the_nearest() -> None:
    sentence = r"unknown setting stem\.norm_befor: did you mean 'stem\.norm_before'\?"
    with pytest.raises(InputError, match=sentence):
        check_names({"stem": {"norm_befor": True}}, ViTConfig)
    check_names({"stem": {"norm_before": True}, "width": 3}, ViTConfig)


def test_gray_images_have_one_mean_and_a_wrong_number_is_said() -> None:
    assert Preprocessing(channels=1).mean == (0.5,)
    batch = create("ViT-Ti/16", image_size=32, channels=1).preprocessing([Image.new("L", (32, 32), 255)])
    assert batch.shape == (1, 1, 32, 32)
    assert batch.max() == pytest.approx(1)
    with pytest.raises(ValidationError, match="greater than 0"):
        Preprocessing(channels=1, std=(0.0,))
    with pytest.raises(ValidationError, match="mean has 3 numbers and std 1, but an image has 1 channels"):
        Preprocessing(channels=1, mean=(0.5, 0.5, 0.5))
