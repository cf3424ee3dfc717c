"""A model that writes text and its tokenizer: whether they belong together."""

from __future__ import annotations

from vitreous.data.text.tokenizer import Tokenizer
from vitreous.errors import InputError
from vitreous.models.sequence_config import DecoderConfig


def check_belong(tokenizer: Tokenizer, decoder: DecoderConfig) -> None:
    """Raises InputError where the tokenizer has tokens that the model does not know."""
    if len(tokenizer) > decoder.vocabulary:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens, the model knows {decoder.vocabulary}: they do not "
            "belong together"
        )
