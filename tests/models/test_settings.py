"""Settings as a user writes them."""

import pytest

from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
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
    assert check_names({"stem": {"norm_befor": True}}, ViTConfig) == (
        "unknown setting stem.norm_befor: did you mean 'stem.norm_before'?"
    )
    assert check_names({"stem": {"norm_before": True}, "width": 3}, ViTConfig) is None
