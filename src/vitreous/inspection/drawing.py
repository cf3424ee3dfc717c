"""The architecture of a model as one SVG.

Parts: the whole model (the paper's Figure 1); its matrices, one after the other; one block of the encoder;
one head with query, key and value. `drawings_of` says which configuration has which parts; of any other
model the stages that `describe` measures are drawn in a column. A figure is 480 units wide, so that its
words can be read on a phone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from vitreous.errors import InputError, LazyModule, nearest
from vitreous.extensions import imported, kind_of
from vitreous.languages import in_language, phrase, words
from vitreous.models.config import ViTConfig

if TYPE_CHECKING:
    from vitreous.models import description
else:  # only models of other kinds are drawn by their stages
    description = LazyModule("vitreous.models.description")

WIDTH = 480
SUBSCRIPT = re.compile(r"_(?:\{([^}]+)\}|(\w))(.?)")  # x_p, U_q; what follows is on the line again
MARGIN = 14
THEMES = ("auto", "light", "dark")
# Of each kind of part: fill and stroke in light, then in dark.
COLORS = {
    "paper": ("#ffffff", "none", "#14191b", "none"),
    "panel": ("#f4f5f2", "#d9ddd8", "#1d2426", "#39444a"),
    "patch": ("#f9d9ae", "#c98a2b", "#6b4a1b", "#dca95c"),
    "token": ("#f6c9d6", "#c2557d", "#65304a", "#e08fb0"),
    "class": ("#ee8fae", "#a83560", "#94385d", "#f3aac4"),
    "position": ("#d9cdf2", "#7d62b8", "#473a6c", "#b29be2"),
    "norm": ("#fbf0b6", "#b8a133", "#544b1e", "#d2be5d"),
    "attention": ("#f8c9a0", "#c26a20", "#6a3e18", "#e79a58"),
    "mlp": ("#bfe0ee", "#2f87a8", "#1d4a5c", "#6cb9d6"),
    "query": ("#f7c8bf", "#c0503a", "#66312a", "#e68d7c"),
    "key": ("#c5e6cf", "#3b8a56", "#25492f", "#7ac293"),
    "value": ("#c9d6f5", "#4a69b8", "#2b3b66", "#90a9ea"),
    "weight": ("#3d8fb0", "none", "#4fa8cb", "none"),
    "head": ("#cfe8c4", "#558a3a", "#334a27", "#93c377"),
    "sum": ("#ffffff", "#5c6769", "#14191b", "#9daaa9"),
}


def style(theme: str) -> str:
    """Return the style sheet of a figure; of "auto" the reader's theme decides."""

    def rules(dark: bool) -> str:
        ink, soft = ("#e6e9e6", "#a5b1b0") if dark else ("#1b2326", "#566164")
        first = 2 if dark else 0
        parts = [f".{name}{{fill:{each[first]};stroke:{each[first + 1]}}}" for name, each in COLORS.items()]
        return "".join(
            [
                *parts,
                f"text{{fill:{ink}}}.soft{{fill:{soft}}}",
                f".line{{stroke:{soft};fill:none;stroke-width:1.5}}.tip{{fill:{soft}}}",
            ]
        )

    fonts = (
        "text{font-family:system-ui,-apple-system,'Segoe UI','Apple SD Gothic Neo','Noto Sans KR',"
        "'Noto Sans CJK KR','Malgun Gothic',sans-serif;font-size:15px;stroke:none}"
        ".soft{font-size:13px}.strong{font-weight:650}.math{font-style:italic;font-family:'STIX Two Text',"
        "'STIX','Cambria','Times New Roman',serif;font-size:17px}"
    )
    dark = f"@media(prefers-color-scheme:dark){{{rules(dark=True)}}}" if theme == "auto" else ""
    return f"<style>{fonts}{rules(dark=theme == 'dark')}{dark}</style>"


@dataclass
class Canvas:
    """SVG elements from top to bottom, and how far down they reach."""

    parts: list[str] = field(default_factory=list)
    height: float = 0

    def reach(self, y: float) -> None:
        self.height = max(self.height, y)

    def box(
        self, x: float, y: float, wide: float, high: float, kind: str, label: str = "", radius: float = 7
    ) -> None:
        """Draw a rectangle with its label in the middle."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="{radius:g}"/>'
        )
        if label:
            self.text(x + wide / 2, y + high / 2 + 5, label)
        self.reach(y + high)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        found = f' class="{kind}"' if kind else ""
        written = SUBSCRIPT.sub(
            r'<tspan dy="4" font-size="78%">\1\2</tspan><tspan dy="-4">\3</tspan>',
            escape(text).replace("_p E", "_p\u00a0E"),
        )
        self.parts.append(f'<text{found} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{written}</text>')
        self.reach(y + 5)

    def line(self, *points: tuple[float, float], tip: bool = True) -> None:
        """Draw a line through points, with an arrowhead at its end."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="line" d="M{path}"/>')
        if tip:
            (x0, y0), (x, y) = points[-2:]
            length = max(1e-6, ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5)
            dx, dy = (x - x0) / length, (y - y0) / length
            left, right = (
                (x - 7 * dx + 4 * dy, y - 7 * dy - 4 * dx),
                (x - 7 * dx - 4 * dy, y - 7 * dy + 4 * dx),
            )
            corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((x, y), left, right))
            self.parts.append(f'<polygon class="tip" points="{corners}"/>')

    def plus(self, x: float, y: float) -> None:
        """Draw the sum of a residual connection."""
        self.parts.append(f'<circle class="sum" cx="{x:g}" cy="{y:g}" r="10"/>')
        self.line((x - 5, y), (x + 5, y), tip=False)
        self.line((x, y - 5), (x, y + 5), tip=False)

    def matrix(
        self, x: float, y: float, rows: int, columns: int, kind: str, cell: float = 14
    ) -> tuple[float, float]:
        """Draw a matrix as cells, or, where there are more than a dozen, some of them and a gap. Return its
        width and height."""
        across, down = drawn_rows(columns), drawn_rows(rows)
        for j, c in enumerate(across):
            for i, r in enumerate(down):
                if c is None or r is None:
                    if (c is None) != (r is None) and (i in (0, len(down) - 1) or j in (0, len(across) - 1)):
                        here = f'cx="{x + (j + 0.5) * cell:g}" cy="{y + (i + 0.5) * cell:g}"'
                        self.parts.append(f'<circle class="tip" {here} r="1.3"/>')
                    continue
                self.box(x + j * cell, y + i * cell, cell - 1.5, cell - 1.5, kind, radius=2)
        wide, high = len(across) * cell - 1.5, len(down) * cell - 1.5
        self.reach(y + high)
        return wide, high

    def svg(self, title: str, theme: str) -> str:
        high = round(self.height + MARGIN)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" '
            f'height="{high}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
            f'{style(theme)}<rect class="paper" width="{WIDTH}" height="{high}" rx="10"/>'
            f"{''.join(self.parts)}</svg>\n"
        )


def drawn_rows(count: int) -> list[int | None]:
    """Return the numbers of a matrix's rows that are drawn: all, or the first and the last with a gap
    (None)."""
    return [*range(count)] if count <= 12 else [0, 1, 2, None, count - 2, count - 1]


def size_text(*sides: int) -> str:
    return " × ".join(f"{side:,}" if side >= 10_000 else str(side) for side in sides)


def scene(
    canvas: Canvas, x: float, y: float, side: float, view: tuple[float, float, float, float] | None = None
) -> None:
    """Draw a small landscape of 32 x 32 units, or the part `view` of it (x, y, width, height)."""
    left, top, wide, high = view or (0, 0, 32, 32)
    shapes = (
        ("#8ecdf0", "M0 0H32V32H0Z"),
        ("#f5c33b", "M24 4a4 4 0 1 1 0 8a4 4 0 1 1 0-8Z"),
        ("#6fae5a", "M0 24Q10 15 20 22T32 20V32H0Z"),
        ("#d8d0c0", "M6 17h10v9H6z"),
        ("#b8452f", "M4 17L11 10L18 17Z"),
        ("#4a3b32", "M10 21h3v5h-3z"),
    )
    paths = "".join(f'<path fill="{color}" d="{path}"/>' for color, path in shapes)
    canvas.parts.append(
        f'<svg x="{x:g}" y="{y:g}" width="{side:g}" height="{side * high / wide:g}" '
        f'viewBox="{left:g} {top:g} {wide:g} {high:g}" preserveAspectRatio="none">{paths}</svg>'
    )
    canvas.reach(y + side * high / wide)


# --- the parts of a ViT ------------------------------------------------------------------------------------


def draw_model(config: ViTConfig) -> Canvas:
    """Draw the paper's Figure 1: image, patches, projection, tokens, encoder, head."""
    canvas = Canvas()
    rows, columns = config.grid
    count, tokens, width = rows * columns, config.sequence_length, config.width
    patches = config.stem.kind == "patch"
    side = 116.0
    scene(canvas, MARGIN, 16, side)
    canvas.text(MARGIN + side / 2, 150, words("drawing.image"))
    canvas.text(MARGIN + side / 2, 168, size_text(*config.image_size, config.channels), "soft")
    start = MARGIN + side + 44
    right = (start + WIDTH - MARGIN) / 2
    if patches:
        grid_lines(canvas, MARGIN, 16, side, (rows, columns))
        canvas.line((MARGIN + side + 8, 74), (MARGIN + side + 36, 74))
        row_of_patches(canvas, start, (rows, columns))
        canvas.text(right, 150, phrase("drawing.patches", count=count, size=size_text(*config.patch_size)))
        flat = config.channels * config.patch_size[0] * config.patch_size[1]
        canvas.text(right, 168, f"x_p  {size_text(count, flat)}", "soft")
    else:
        canvas.text(start, 72, phrase("drawing.cells", count=count), anchor="start")
        canvas.text(start, 92, phrase("drawing.cell", size=size_text(*config.patch_size)), "soft", "start")
    y = 184.0
    # Projection.
    canvas.line((WIDTH / 2, y - 6), (WIDTH / 2, y + 14))
    title = in_language(config.stem.title)
    stem = phrase("drawing.stem", stem=title) if title else words("drawing.projection")
    canvas.box(MARGIN, y + 16, WIDTH - 2 * MARGIN, 34, "patch", stem)
    canvas.line((WIDTH / 2, y + 52), (WIDTH / 2, y + 72))
    canvas.text(WIDTH / 2 + 10, y + 67, size_text(count, width), "soft", "start")
    y += 78
    # Tokens: each with its position.
    prefix = config.num_prefix_tokens
    named: list[str | None] = ["*"] * min(prefix, 2)
    # Numbers of three digits need more room.
    most = 9 if count < 100 else 7
    named += [str(n + 1) for n in range(min(count, most - len(named)))]
    if count > len(named):
        named[-3:] = [None, str(count - 1), str(count)]
    step = (WIDTH - 2 * MARGIN) / max(len(named), 5)
    positions = config.position.kind.startswith(("learned", "sincos"))
    for place, name in enumerate(named):
        x = MARGIN + place * step + 3
        if name is None:
            canvas.text(x + step / 2 - 3, y + 25, "…")
            continue
        kind = "class" if name == "*" else "token"
        half = (step - 6) / 2 if positions else 0
        canvas.box(x + half, y, step - 6 - half, 38, kind, "" if positions or name != "*" else "*", radius=8)
        if positions:
            canvas.box(x, y, half + 2, 38, "position", "0" if name == "*" else name, radius=8)
    canvas.text(MARGIN, y + 57, phrase("drawing.tokens", count=tokens), anchor="start")
    about = [words("drawing.class-token")] if config.class_token else []
    about += [words("drawing.positions")] if positions else []
    canvas.text(MARGIN, y + 75, "  +  ".join([words("drawing.patch-tokens"), *about]), "soft", "start")
    canvas.text(WIDTH - MARGIN, y + 57, f"z_0  {size_text(tokens, width)}", "soft", "end")
    y += 84
    # The encoder with what is inside a block.
    canvas.line((WIDTH / 2, y - 6), (WIDTH / 2, y + 14))
    canvas.box(MARGIN, y + 16, WIDTH - 2 * MARGIN, 172, "panel", radius=10)
    canvas.text(MARGIN + 14, y + 42, phrase("drawing.encoder", depth=config.depth), "strong", "start")
    block_row(canvas, config, y + 118)
    canvas.reach(y + 188)
    y += 194
    # The head reads the class token, or the mean.
    canvas.line((MARGIN + 40, y - 4), (MARGIN + 40, y + 20))
    reads = config.pooling.kind
    known = ("class", "max", "mean+max")
    pooled = reads if reads in known else "mean" if "mean" in reads else "attention"
    canvas.box(
        MARGIN, y + 22, 80, 36, "class" if pooled == "class" else "token", words(f"drawing.pool-{pooled}")
    )
    canvas.line((MARGIN + 82, y + 40), (MARGIN + 104, y + 40))
    canvas.box(MARGIN + 106, y + 22, 46, 36, "norm", "LN")
    canvas.line((MARGIN + 154, y + 40), (MARGIN + 176, y + 40))
    if config.num_classes:
        canvas.box(MARGIN + 178, y + 22, 118, 36, "head", words("drawing.head"))
        canvas.line((MARGIN + 298, y + 40), (MARGIN + 320, y + 40))
        for i, share in enumerate((0.16, 0.9, 0.3)):
            canvas.box(MARGIN + 326, y + 24 + 12 * i, 110 * share, 9, "weight", radius=2)
        canvas.text(MARGIN + 237, y + 76, f"{width} → {size_text(config.num_classes)}", "soft")
        canvas.text(MARGIN + 384, y + 76, phrase("drawing.classes", count=config.num_classes), "soft")
    canvas.text(MARGIN + 40, y + 76, f"y  {width}", "soft")
    return canvas


def grid_lines(canvas: Canvas, x: float, y: float, side: float, grid: tuple[int, int]) -> None:
    """Draw the cuts between the patches of an image, of a coarser grid where it has more than 16."""
    rows, columns = (min(count, 16) for count in grid)
    across = "".join(f"M{x:g} {y + side * i / rows:g}h{side:g}" for i in range(1, rows))
    down = "".join(f"M{x + side * i / columns:g} {y:g}v{side:g}" for i in range(1, columns))
    canvas.parts.append(f'<path stroke="#fff" stroke-width="1.5" d="{across}{down}"/>')


def row_of_patches(canvas: Canvas, start: float, grid: tuple[int, int]) -> None:
    """Draw the patches in raster order: all, or the first, two from the middle, and the last."""
    rows, columns = grid
    count, center = rows * columns, (rows // 2) * columns + columns // 3
    places: list[int | None] = [0, 1, None, center, center + 1, None, count - 2, count - 1]
    if count <= 9:
        places = [*range(count)]
    step = (WIDTH - MARGIN - start) / max(4, len(places))
    each = min(step - 5, 60)
    for place, number in enumerate(places):
        x = start + place * step
        if number is None:
            canvas.text(x + each / 2, 79, "…")
            continue
        r, c = divmod(number, columns)
        view = (32 * c / columns, 32 * r / rows, 32 / columns, 32 / rows)
        scene(canvas, x, 74 - each / 2, each, view)


def block_row(canvas: Canvas, config: ViTConfig, y: float) -> None:
    """Draw a block from left to right: LN, MSA, +, LN, MLP, +, with two residual connections; y is its
    middle."""
    left = MARGIN + 16
    places = {
        "ln1": left + 26,
        "msa": left + 88,
        "plus1": left + 206,
        "ln2": left + 236,
        "mlp": left + 298,
        "plus2": left + 402,
    }
    canvas.line((left - 6, y), (places["ln1"] - 2, y))
    canvas.box(places["ln1"], y - 19, 42, 38, "norm", "LN")
    canvas.line((places["ln1"] + 43, y), (places["msa"] - 2, y))
    canvas.box(places["msa"], y - 26, 90, 52, "attention")
    canvas.text(places["msa"] + 45, y - 3, words("drawing.attention-1"))
    canvas.text(places["msa"] + 45, y + 15, words("drawing.attention-2"))
    canvas.line((places["msa"] + 91, y), (places["plus1"] - 12, y))
    canvas.plus(places["plus1"], y)
    canvas.line((places["plus1"] + 11, y), (places["ln2"] - 2, y))
    canvas.box(places["ln2"], y - 19, 42, 38, "norm", "LN")
    canvas.line((places["ln2"] + 43, y), (places["mlp"] - 2, y))
    canvas.box(places["mlp"], y - 26, 76, 52, "mlp", "MLP")
    canvas.line((places["mlp"] + 77, y), (places["plus2"] - 12, y))
    canvas.plus(places["plus2"], y)
    canvas.line((places["plus2"] + 11, y), (places["plus2"] + 32, y))
    for start, end in ((left + 8, places["plus1"]), (places["plus1"] + 18, places["plus2"])):
        canvas.line((start, y), (start, y - 44), (end, y - 44), (end, y - 12))
    heads = phrase("drawing.heads-of", heads=config.heads, dim=config.resolved_head_dim)
    canvas.text(places["msa"] + 45, y + 44, heads, "soft")
    canvas.text(places["mlp"] + 38, y + 44, f"{config.width} → {config.mlp_dim} → {config.width}", "soft")


def draw_block(config: ViTConfig) -> Canvas:
    """Draw a block of the encoder from top to bottom, with its equations and shapes."""
    canvas = Canvas()
    x, wide = 84.0, 190.0
    middle = x + wide / 2
    tokens, width = config.sequence_length, config.width
    shape = size_text(tokens, width)
    canvas.text(middle, 30, "z_{ℓ−1}", "math")
    canvas.text(middle + 30, 30, shape, "soft", "start")
    steps: list[tuple[str, str, str, str]] = [
        ("norm", "LayerNorm", shape, ""),
        (
            "attention",
            words("drawing.attention"),
            phrase("drawing.heads-of", heads=config.heads, dim=config.resolved_head_dim),
            words("drawing.exchange"),
        ),
        ("+", "z′_ℓ = MSA(LN(z_{ℓ−1})) + z_{ℓ−1}", shape, "(2)"),
        ("norm", "LayerNorm", shape, ""),
        ("mlp", "MLP", f"{width} → {config.mlp_dim} → {width}", words("drawing.think")),
        ("+", "z_ℓ = MLP(LN(z′_ℓ)) + z′_ℓ", shape, "(3)"),
    ]
    y, start = 42.0, 42.0
    for kind, label, about, note in steps:
        if kind == "+":
            canvas.line((middle, y), (middle, y + 20))
            canvas.plus(middle, y + 32)
            canvas.line((middle, start + 6), (38, start + 6), (38, y + 32), (middle - 12, y + 32))
            canvas.text(middle + 22, y + 37, f"{label}  {note}", "math", "start")
            y += 44
            start = y
            continue
        canvas.line((middle, y), (middle, y + 24))
        high = 40 if kind == "norm" else 56
        canvas.box(x, y + 26, wide, high, kind, label)
        canvas.text(x + wide + 12, y + 26 + high / 2 + (-3 if note else 5), about, "soft", "start")
        if note:
            canvas.text(x + wide + 12, y + 26 + high / 2 + 15, note, "soft", "start")
        y += 26 + high
    canvas.line((middle, y), (middle, y + 20))
    canvas.text(middle, y + 38, phrase("drawing.next-block", depth=config.depth), "soft")
    return canvas


def draw_head(config: ViTConfig) -> Canvas:
    """Draw one head: q, k and v, the weights A, and the weighted sum of the values."""
    canvas, dim, tokens = Canvas(), config.resolved_head_dim, config.sequence_length
    cell = 11.0 if tokens <= 12 else 13.0
    middle = WIDTH / 2
    canvas.text(middle, 26, "z", "math")
    canvas.text(middle + 14, 26, size_text(tokens, config.width), "soft", "start")
    columns = (88.0, 240.0, 392.0)
    kinds = ("query", "key", "value")
    canvas.line((columns[0], 46), (columns[2], 46), tip=False)
    canvas.line((middle, 34), (middle, 46), tip=False)
    for x, kind in zip(columns, kinds, strict=True):
        canvas.line((x, 46), (x, 62))
        canvas.box(x - 66, 64, 132, 32, kind, words(f"drawing.{kind}"))
        canvas.line((x, 98), (x, 114))
        wide, high = len(drawn_rows(dim)) * cell, len(drawn_rows(tokens)) * cell
        canvas.matrix(x - wide / 2, 118, tokens, dim, kind, cell)
        canvas.text(x, 134 + high, f"{kind[0]}  {size_text(tokens, dim)}", "soft")
    y = 148 + len(drawn_rows(tokens)) * cell
    canvas.line((columns[0], y), (columns[0], y + 16), (150, y + 30))
    canvas.line((columns[1], y), (columns[1], y + 16), (186, y + 30))
    canvas.box(34, y + 34, 270, 36, "attention", f"softmax( q kᵀ / √{dim} )")
    canvas.text(316, y + 50, words("drawing.each-row"), "soft", "start")
    canvas.line((169, y + 72), (169, y + 88))
    high = len(drawn_rows(tokens)) * cell
    x = 169 - high / 2
    weights_matrix(canvas, x, y + 92, tokens, cell)
    canvas.text(169, y + 108 + high, f"A  {size_text(tokens, tokens)}", "soft")
    canvas.line((columns[2], y), (columns[2], y + 92 + high / 2 - 18))
    canvas.text(columns[2], y + 92 + high / 2, "×", "strong")
    canvas.line((x + high + 10, y + 92 + high / 2 - 5), (columns[2] - 14, y + 92 + high / 2 - 5))
    canvas.line((columns[2], y + 92 + high / 2 + 8), (columns[2], y + 118 + high))
    y += 122 + high
    wide = len(drawn_rows(dim)) * cell
    canvas.matrix(columns[2] - wide / 2, y, tokens, dim, "value", cell)
    canvas.text(columns[2] - wide / 2 - 12, y + high / 2 - 2, "A v", "math", "end")
    canvas.text(columns[2] - wide / 2 - 12, y + high / 2 + 16, size_text(tokens, dim), "soft", "end")
    canvas.text(MARGIN + 8, y + high / 2 - 2, phrase("drawing.one-of", heads=config.heads), anchor="start")
    canvas.text(
        MARGIN + 8,
        y + high / 2 + 16,
        f"[SA_1; … ; SA_k]  {size_text(tokens, config.heads * dim)}",
        "soft",
        "start",
    )
    canvas.reach(y + high + 8)
    return canvas


def weights_matrix(canvas: Canvas, x: float, y: float, tokens: int, cell: float, head: int = 0) -> None:
    """Draw a pattern of attention weights, which stands for any: each token looks at itself, and at others
    that differ from head to head."""
    numbers = drawn_rows(tokens)
    for i, r in enumerate(numbers):
        for j, c in enumerate(numbers):
            if r is None or c is None:
                continue
            share = (
                0.9
                if c == head % max(tokens, 1) and (r + head) % 2
                else 0.75
                if r == c
                else 0.45
                if (r * (2 + head) + 1 + head) % max(tokens, 1) == c
                else 0.12
            )
            canvas.parts.append(
                f'<rect class="weight" opacity="{share}" x="{x + j * cell:g}" y="{y + i * cell:g}" '
                f'width="{cell - 1.5:g}" height="{cell - 1.5:g}" rx="2"/>'
            )
    canvas.reach(y + len(numbers) * cell)


def draw_matrices(config: ViTConfig) -> Canvas:
    """Draw every matrix from the image to the logits of the first block, one below the other."""
    canvas = Canvas()
    tokens, width = config.sequence_length, config.width
    count = config.grid[0] * config.grid[1]
    heads, dim = config.heads, config.resolved_head_dim
    y = 18.0
    scene(canvas, MARGIN + 20, y, 84)
    if config.stem.kind == "patch":
        grid_lines(canvas, MARGIN + 20, y, 84, config.grid)
    canvas.text(MARGIN + 128, y + 38, words("drawing.image"), anchor="start")
    canvas.text(MARGIN + 128, y + 58, size_text(*config.image_size, config.channels), "soft", "start")
    y += 92

    def row(label: str, sides: tuple[int, int], kind: str, many: int = 1, first: str = "") -> None:
        """Draw one matrix, or several side by side, with its name and shape at the right."""
        nonlocal y
        rows, columns = sides
        cell = 13.0
        each = len(drawn_rows(columns)) * cell
        copies = min(many, 4)
        while copies * (each + 12) > 214 and cell > 7:
            cell -= 1
            each = len(drawn_rows(columns)) * cell
        canvas.line((MARGIN + 62, y + 4), (MARGIN + 62, y + 20))
        y += 24
        for copy in range(copies):
            left = MARGIN + 20 + copy * (each + 12)
            if kind == "weight":
                weights_matrix(canvas, left, y, rows, cell, copy)
            else:
                canvas.matrix(left, y, rows, columns, kind, cell)
            if first:
                canvas.matrix(left, y, 1, columns, first, cell)
        high = len(drawn_rows(rows)) * cell
        middle = y + high / 2
        canvas.text(256, middle - 3, label, anchor="start")
        shape = (
            size_text(*sides)
            if many == 1
            else phrase("drawing.heads-shape", heads=many, shape=size_text(*sides))
        )
        canvas.text(256, middle + 16, shape, "soft", "start")
        y = max(y + high, middle + 20)

    first = "class" if config.num_prefix_tokens else ""
    if config.stem.kind == "patch":
        row(
            words("drawing.flat"),
            (count, config.channels * config.patch_size[0] * config.patch_size[1]),
            "patch",
        )
    row(words("drawing.embedded"), (count, width), "token")
    if tokens > count:
        row(words("drawing.with-class"), (tokens, width), "token", first=first)
    row(words("drawing.qkv"), (tokens, dim), "query", many=heads)
    row(words("drawing.weights"), (tokens, tokens), "weight", many=heads)
    row(words("drawing.head-outputs"), (tokens, dim), "value", many=heads)
    row(words("drawing.side-by-side"), (tokens, heads * dim), "value")
    row(words("drawing.projected"), (tokens, width), "attention")
    row(words("drawing.mlp-wide"), (tokens, config.mlp_dim), "mlp")
    row(words("drawing.mlp-back"), (tokens, width), "mlp")
    return canvas


def draw_stages(stages: Sequence[description.Stage]) -> Canvas:
    """Draw the stages in a column, with their shapes: for any model."""
    canvas, y = Canvas(), 16.0
    for number, stage in enumerate(stages):
        if number:
            canvas.line((WIDTH / 2, y - 2), (WIDTH / 2, y + 10))
            y += 12
        kind = next((kind for part, kind in STAGE_COLORS.items() if part in stage.name), "panel")
        canvas.box(MARGIN, y, WIDTH - 2 * MARGIN, 30, kind)
        times = f" ({stage.times} ×)" if stage.times > 1 else ""
        canvas.text(MARGIN + 12, y + 20, stage.title + times, anchor="start")
        canvas.text(WIDTH - MARGIN - 12, y + 20, description.stage_words(stage.written_shape), "soft", "end")
        y += 32
    return canvas


STAGE_COLORS = {
    "Norm": "norm",
    "query": "query",
    "weights": "attention",
    "attention": "attention",
    "heads": "attention",
    "weighted": "value",
    "MLP": "mlp",
    "class token": "class",
    "position": "position",
    "embedding": "token",
    "projection": "token",
    "head": "head",
    "image": "patch",
    "ResNet": "patch",
    "convolution": "patch",
}

Drawings = Mapping[str, Callable[[Any], Canvas]]  # of the parts of a configuration, by their names
OF_VIT: Drawings = {
    "model": draw_model,
    "matrices": draw_matrices,
    "block": draw_block,
    "head": draw_head,
}


def drawings_of(config: object) -> Drawings:
    """Return the drawings of a configuration; none where the stages are drawn."""
    if isinstance(config, ViTConfig):
        return OF_VIT if config.norm == "pre" else {}
    kind = kind_of(config)
    drawings: Drawings = imported(kind.drawings) if kind and kind.drawings else {}
    return drawings


def draw(model: Any, part: str = "model", theme: str = "auto") -> str:
    """Draw a part of a model, or of the one that a configuration stands for, in the language that is spoken.

    Returns:
        An SVG, with its own style and no outside references.

    Raises:
        InputError: an unknown part or theme.
    """
    config = getattr(model, "config", model)
    drawings = drawings_of(config)
    parts = list(drawings) or ["model"]
    if part not in parts:
        raise InputError(f"part {part!r} is unknown: {nearest(part, parts)}")
    if theme not in THEMES:
        raise InputError(f"theme {theme!r} is unknown: {nearest(theme, THEMES)}")
    canvas = drawings[part](config) if drawings else draw_stages(description.describe(model).stages)
    return canvas.svg(words("drawing.title"), theme)
