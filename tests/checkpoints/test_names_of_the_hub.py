"""A name without hf: is understood."""

from __future__ import annotations

import pytest

from vitreous.checkpoints.download import name_on_hub
from vitreous.cli import run as vitreous

AUGREG2 = "hf:timm/vit_base_patch16_224.augreg2_in21k_ft_in1k"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("google/vit-base-patch16-224", "hf:google/vit-base-patch16-224"),
        ("timm/vit_base_patch16_224.augreg_in21k", "hf:timm/vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224.augreg_in21k", "hf:timm/vit_base_patch16_224.augreg_in21k"),
        ("vit_base_patch16_224", AUGREG2),
        ("timm/vit_base_patch16_224", AUGREG2),
        ("ViT-B/16", None),
        ("R50+ViT-B/16", None),
        ("vit-b/16", None),
        ("weights/B_16.npz", None),
        ("photos", None),
    ],
)
def test_a_bare_name_is_found(name: str, meant: str | None) -> None:
    assert name_on_hub(name) == meant


@pytest.mark.parametrize("option", ["--init", "--model"])
@pytest.mark.parametrize("name", ["google/vit-base-patch16-224", "vit_base_patch16_224"])
def test_training_asks_what_was_meant(option: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vitreous(["train", "digits", option, name]) == 2
    told = capsys.readouterr().err
    assert f"did you mean {'--init ' if option == '--model' else ''}{name_on_hub(name)}?" in told
