"""Models that write text: the original Transformer (2017), which translates, and TrOCR, which reads lines."""

from vitreous.extensions import Addon, Command, Kind, TaskRow

HERE = "vitreous.addons.text"
BUILD = f"{HERE}.transformer:build_sequence_model"

ADDON = Addon(
    kinds={
        "Transformer": Kind(
            config=f"{HERE}.config:TransformerConfig",
            build=BUILD,
            inspect=f"{HERE}.figures:inspect_translator",
            drawings=f"{HERE}.drawing:DRAWINGS",
            task="translation",
            prefix="transformer-",
            named=f"{HERE}.config:named",
            sees=False,
            overridable=False,
        ),
        "Captioner": Kind(
            config=f"{HERE}.config:CaptionerConfig",
            build=BUILD,
            task="captioning",
            overridable=False,
        ),
    },
    commands={
        "translate": Command(
            "Train the original Transformer (2017) on pairs of texts, or translate with it.",
            f"{HERE}.command",
            (
                "vitreous translate train --steps 300 --out runs/numbers",
                'vitreous translate runs/numbers "<de> twenty-one"',
            ),
            texts=True,
        )
    },
    names={
        "translate": f"{HERE}.api",
        "train_translator": f"{HERE}.api",
        "Reader": f"{HERE}.models",
        "Translator": f"{HERE}.models",
        "TransformerConfig": f"{HERE}.config",
        "Captioner": f"{HERE}.transformer",
        "Transformer": f"{HERE}.transformer",
    },
    tasks={
        "translation": TaskRow(f"{HERE}.task", command="translate train"),
    },
    formats=(
        f"{HERE}.published:MARIAN",
        f"{HERE}.published:TROCR",
        f"{HERE}.torch_transformer:TORCH_TRANSFORMER",
    ),
    published={"marian": "translation"},
    families={"Marian": "marian", "TrOCR": "trocr", "torch.nn.Transformer": "torch-transformer"},
    next_steps={
        "translate train": {
            "doctor": "vitreous doctor {run}",
            "longer": "vitreous translate train --resume {run} {longer}",
            "translate": 'vitreous translate {run} "..."',
        }
    },
    words=True,
)
