"""`vitreous optimize RUN [DATA]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Unpack

from cyclopts import Parameter, Token

import vitreous as vt
from vitreous.addons.optimize.options import OptimizeOptions
from vitreous.cli.options import Json, with_parsed_options
from vitreous.cli.printing import print_json, print_named, print_table
from vitreous.languages.terminal import CallError, said, word
from vitreous.results import byte_size

if TYPE_CHECKING:
    from vitreous.addons.optimize.measuring import Optimization


def parse_part(_: object, tokens: Sequence[Token]) -> float:
    """Return 0.003 from "0.3%" or "0.003"."""
    text = tokens[0].value.replace(" ", "")
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise CallError("--budget {text!r} is not a share: write 0.3% or 0.003", text=text) from None


StoredModel = Annotated[str, Parameter(help="a run directory, or a folder of weights in the vitreous format")]
Budget = Annotated[
    float,
    Parameter(converter=parse_part, n_tokens=1, metavar="PART"),
]


@with_parsed_options(budget=Budget)
def optimize(
    run: StoredModel,
    data: Annotated[
        str | None,
        Parameter(
            help="images that the model was not trained on; by default the validation set of the run's data"
        ),
    ] = None,
    /,
    *,
    json: Json = False,
    **options: Unpack[OptimizeOptions],
) -> None:
    """Measure engines, bf16, int8 and token merging here; keep the fastest that is accurate enough."""
    found = vt.optimize(run, data, **options)
    if json:
        print_json(found.to_json())
    else:
        print_optimization(found)


def print_optimization(found: Optimization) -> None:
    """Print a table of the candidates, and which of them is kept."""
    rows: list[tuple[str, ...]] = []
    chosen = ""
    for each in found.rows:
        name = f"{each.engine} {each.precision}"
        if each.merged:
            name = said("{way}, {count} tokens merged at a time", way=name, count=each.merged)
        if each.name == found.chosen:
            name, chosen = f"* {name}", name
        rows.append(
            (
                name,
                f"{100 * each.metric:.2f}%",
                f"{100 * each.agreement:.1f}%",
                f"{each.images_per_second:.1f}",
                f"{each.times:.2f}",
                f"{each.milliseconds:.1f}",
                byte_size(each.memory) if each.memory else "-",
            )
        )
    about = said(
        "{count} images: {source}, {part}; batches of {batch}",
        count=found.count,
        source=found.source,
        part=word(found.part),
        batch=found.batch_size,
    )
    print(f"{about}\n")
    headers = [word(name) for name in ("", "accuracy", "as fp32", "images/s", "times", "ms of one", "memory")]
    print_table(headers, rows)
    if found.file:
        chosen = said("{chosen}, written to {file}", chosen=chosen, file=found.file)
    print()
    print_named("kept", chosen)
    print(said("predict and evaluate use it, unless you pass --precision fp32"))
