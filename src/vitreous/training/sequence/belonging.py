"""A model that writes text and its tokeniser: whether they belong together."""

from __future__ import annotations

from vitreous.data.text.tokeniser import Tokeniser
from vitreous.errors import InputError
from vitreous.models.sequence_config import DecoderConfig


def check_belong(tokeniser: Tokeniser, decoder: DecoderConfig) -> None:
    """Raises InputError where the tokeniser has tokens that the model does not know."""
    if len(tokeniser) > decoder.vocabulary:
        raise InputError(
            f"the tokeniser has {len(tokeniser)} tokens, the model knows {decoder.vocabulary}: they do not "
            "belong together"
        )
