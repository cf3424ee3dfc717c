"""Models that write text: the Transformer of 2017, which translates, and a decoder that reads images."""

from vitreous.extensions import Addon, Kind

BUILD = "vitreous.models.transformer:build_sequence_model"

ADDON = Addon(
    words=True,
    drawings=("vitreous.addons.text.drawing:DRAWINGS",),
    kinds={
        "Transformer": Kind(
            config="vitreous.models.sequence_config:TransformerConfig",
            build=BUILD,
            task="translation",
            prefix="transformer-",
            named="vitreous.models.sequence_config:named",
            sees=False,
            overridable=False,
        ),
        "Captioner": Kind(
            config="vitreous.models.sequence_config:CaptionerConfig",
            build=BUILD,
            task="captioning",
            overridable=False,
        ),
    },
)
