"""The encoder-decoder of 2017, drawn: Figure 1 of "Attention Is All You Need" (arXiv 1706.03762)."""

from __future__ import annotations

from vitreous.addons.text.config import TransformerConfig
from vitreous.inspection.drawing import MARGIN, Canvas, size_text
from vitreous.languages import phrase, words


def draw_encoder_decoder(config: TransformerConfig) -> Canvas:
    """Draw the encoder at the left, the decoder at the right, which asks the encoder for keys and values."""
    canvas = Canvas()
    left, right, wide = MARGIN, 246.0, 220.0
    heads = config.encoder_heads or config.heads
    wider = config.encoder_mlp_dim or config.mlp_dim
    top = 20.0
    for x, side in ((left, "source"), (right, "target")):
        middle = x + wide / 2
        canvas.text(middle, top + 6, words(f"drawing.text.{side}"), "strong")
        canvas.line((middle, top + 14), (middle, top + 32))
        canvas.box(x + 16, top + 34, wide - 32, 32, "token", words("drawing.text.embedding"))
        canvas.line((middle, top + 67), (middle, top + 84))
        position = f"+ {words('drawing.text.positions')}"
        canvas.box(x + 16, top + 86, wide - 32, 32, "position", position)
        canvas.line((middle, top + 119), (middle, top + 146))
    top = 164.0
    cross = top + 158
    encoder = [("attention", "self", heads), ("mlp", "mlp", wider)]
    decoder = [
        ("attention", "masked", config.heads),
        ("value", "cross", config.heads),
        ("mlp", "mlp", config.mlp_dim),
    ]
    encoder_end = stack(canvas, left, top, wide, "encoder", config.encoder_depth, encoder, config)
    decoder_end = stack(canvas, right, top, wide, "decoder", config.depth, decoder, config)
    # Keys and values go from the last encoder layer to the second attention of every decoder layer.
    out = left + wide / 2
    canvas.line(
        (out, encoder_end),
        (out, encoder_end + 22),
        (236, encoder_end + 22),
        (236, cross + 22),
        (right + 24, cross + 22),
    )
    canvas.text(out, encoder_end + 40, words("drawing.text.keys-values"), "soft")
    canvas.text(out, encoder_end + 58, f"n × {size_text(config.width)}", "soft")
    middle, y = right + wide / 2, decoder_end
    canvas.line((middle, y), (middle, y + 18))
    canvas.box(right + 16, y + 20, wide - 32, 32, "head", words("drawing.text.linear"))
    canvas.line((middle, y + 53), (middle, y + 68))
    canvas.box(right + 16, y + 70, wide - 32, 32, "weight", "")
    canvas.parts.append(
        f'<text x="{middle:g}" y="{y + 91:g}" text-anchor="middle" style="fill:#fff">softmax</text>'
    )
    canvas.text(middle, y + 122, phrase("drawing.text.next", count=config.vocabulary), "soft")
    return canvas


def stack(
    canvas: Canvas,
    x: float,
    top: float,
    wide: float,
    name: str,
    depth: int,
    parts: list[tuple[str, str, int]],
    config: TransformerConfig,
) -> float:
    """Draw the layer of an encoder or a decoder; returns where its panel ends."""
    high = 44 + 104 * len(parts)
    canvas.box(x, top, wide, high, "panel", radius=10)
    canvas.text(x + 12, top + 23, phrase(f"drawing.text.{name}", depth=depth), "strong", "start")
    middle, y = x + wide / 2, top + 34
    for kind, part, number in parts:
        canvas.line((middle, y), (middle, y + 14))
        canvas.box(x + 26, y + 16, wide - 52, 50, kind)
        canvas.text(middle, y + 37, words(f"drawing.text.{part}"))
        about = f"{config.width} → {number} → {config.width}"
        if kind != "mlp":
            about = phrase("drawing.heads-of", heads=number, dim=config.width // number)
        canvas.text(middle, y + 56, about, "soft")
        canvas.line((middle, y + 67), (middle, y + 74), tip=False)
        canvas.box(x + 26, y + 74, wide - 52, 24, "norm", words(f"drawing.text.{config.norm}-norm"))
        canvas.line((middle, y + 6), (x + 12, y + 6), (x + 12, y + 86), (x + 25, y + 86))
        y += 104
    canvas.line((middle, y - 5), (middle, top + high), tip=False)
    return top + high


DRAWINGS = {"model": draw_encoder_decoder}
