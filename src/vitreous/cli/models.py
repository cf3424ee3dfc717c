"""`vitreous describe` and `convert` a model; `list-models`, `recipe` and `cache`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.api.options import ConvertOptions, DescribeOptions
from vitreous.cli.options import Json, ModelParameter, with_parsed_options
from vitreous.cli.printing import print_json, print_names, print_table
from vitreous.errors import check_free
from vitreous.languages import phrase, speaking
from vitreous.languages.terminal import CallError, reason, said, word
from vitreous.results import byte_size, si


@with_parsed_options()
def describe(
    model: ModelParameter,
    /,
    *,
    draw: Annotated[
        str | None, Parameter(help="write the architecture as this SVG file", metavar="FILE")
    ] = None,
    part: Annotated[
        str | None, Parameter(help="what to draw: model, matrices, block or head", metavar="TEXT")
    ] = None,
    json: Json = False,
    **options: Unpack[DescribeOptions],
) -> None:
    """Print every stage of the forward pass of a model, and its memory; draw it."""
    if part and draw is None:
        raise CallError("--part says what --draw draws: add --draw FILE.svg")
    if draw is not None:
        check_free(Path(draw), "choose another file")  # before the seconds that a large model takes
    description = vt.describe(model, **options)
    if draw is not None:
        shapes: dict[str, Any] = {**options}
        shapes.pop("batch_size", None)
        vt.draw(model, part or "model", out=draw, **shapes)
    if json:
        print_json({"model": model, **description.to_json()})
    else:
        with speaking(description.language):
            print(phrase("description.title", model=model), description, sep="\n\n")


SourceFormat = Annotated[str, Parameter(name="--from", metavar="TEXT")]


@with_parsed_options(source_format=SourceFormat)
def convert(
    source: ModelParameter,
    destination: Annotated[
        str,
        Parameter(
            help="a new folder or file, depending on the format; or hf:owner/name, a repository of the hub"
        ),
    ],
    /,
    *,
    json: Json = False,
    **options: Unpack[ConvertOptions],
) -> None:
    """Write a model in another format, read it back, and compare what both make of the same images."""
    converted = vt.convert(source, destination, **options)
    if json:
        print_json({"source": source, **converted.to_json()})
        return
    if converted.dropped:
        print(
            said(
                "left out: {parts}; the outputs are compared with those of the model without these parts",
                parts=", ".join(converted.dropped),
            ),
            file=sys.stderr,
        )
    print(
        said(
            "{path} ({format}), largest difference {difference:.1e}",
            path=converted.path,
            format=converted.format,
            difference=converted.max_abs_difference,
        )
    )


def list_models(
    pattern: Annotated[str, Parameter(help="names to list, with * for any characters: 'ViT-*'")] = "*",
    /,
    *,
    json: Json = False,
) -> None:
    """List the names that --model, describe and vitreous.create take: parameters, the memory of weights and
    AdamW in training, where the size is from, and published weights for --init; and the encoders that need
    no download."""
    from vitreous.models.catalog import PUBLISHED, TRAINING_STATES, parameters_of_names, source_of

    known = parameters_of_names()
    counts = {name: known[name] for name in vt.list_models(pattern)}
    encoders = vt.list_encoders(pattern)
    if not counts and not encoders:
        raise CallError("no model name matches {pattern!r}: try 'ViT-*', or '*' for all", pattern=pattern)
    if json:
        listed = []
        for name, count in counts.items():
            listed.append(
                {
                    "name": name,
                    "parameters": count,
                    "bytes": 4 * count,
                    "training_bytes": 4 * TRAINING_STATES * count,
                    "source": source_of(name),
                    "init": PUBLISHED.get(name),
                }
            )
        print_json({"models": listed, "encoders": [each._asdict() for each in encoders]})
        return
    rows = []
    for name, count in counts.items():
        sizes = byte_size(4 * count), byte_size(4 * TRAINING_STATES * count)
        rows.append((name, source_of(name), PUBLISHED.get(name, ""), si(count), *sizes))
    if rows:
        headers = "model", "size from", "pre-trained weights, for --init", "parameters", "weights", "training"
        print_table([word(name) for name in headers], rows, words=3)
    if encoders:
        if rows:
            print(f"\n{said('Encoders that need no download, for --init:')}\n")
        listing = []
        for each in encoders:
            sizes = si(each.parameters), byte_size(each.bytes)
            listing.append((each.name, word(each.trained_on), each.license, *sizes))
        of_encoders = "encoder", "trained on", "license", "parameters", "weights"
        print_table([word(name) for name in of_encoders], listing, words=3)
        for each in encoders:
            if each.made_by:
                made = {"name": each.name, "made_by": word(each.made_by), "package": each.package}
                print("", said("{name}: {made_by}; in the package {package}", **made), sep="\n")
    print(
        "",
        said("A model name means fresh weights and 224-pixel images, unless you pass --image-size."),
        said(
            "Weights of hf: need pip install 'vitreous[hub]'. Training also needs memory for the activations."
        ),
        sep="\n",
        file=sys.stderr,
    )


def recipe(
    name: Annotated[str | None, Parameter(help="a recipe; without one, all are listed")] = None,
    /,
    *,
    diff: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="show the differences from another recipe; source: from the code that it comes from, "
            "with reasons",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show a recipe: what it is, what to expect, and every setting as `--config` takes it."""
    from vitreous.tasks.pretraining.rules import find_recipe
    from vitreous.training.settings import leaves, to_toml

    if name is None:
        if diff is not None:
            raise CallError("--diff compares two recipes: vitreous recipe NAME --diff {other}", other=diff)
        recipes = vt.list_recipes()
        if json:
            print_json({"recipes": recipes})
        else:
            print_names(recipes)
        return
    shown = find_recipe(name)
    if diff is not None:
        print_differences(name, diff, json)
    elif json:
        print_json({"name": name, "text": shown.text, "settings": leaves(shown.config)})
    else:
        print("\n".join(f"# {line}".rstrip() for line in shown.text.splitlines()), end="\n\n")
        sys.stdout.write(to_toml(shown.config))


def print_differences(name: str, other: str, json: bool) -> None:
    """Print the settings in which a recipe differs from another, or from its source, and what was measured
    beside that."""
    from vitreous.tasks.pretraining.rules import find_recipe
    from vitreous.training.recipes import source_differences, sourced

    rows, of_source = vt.compare_recipes(name, other), other == "source"
    executed = source_differences(name) if of_source else []
    if json:
        print_json({"differences": rows} | ({"measured": executed} if of_source else {}))
        return
    if rows:
        titles = {"here": name, "there": other} | {key: word(key) for key in ("setting", "where", "why")}
        heads = [titles[key] for key in rows[0]]
        listing = []
        for setting in rows:
            values = {key: str(value) for key, value in setting.items()}
            listing.append([reason(text) if key == "why" else text for key, text in values.items()])
        print_table(heads, listing, words=len(heads))
    elif not of_source:
        print(said("they are the same"))
    elif count := len(sourced(find_recipe(name))):
        print(said("all {count} settings that the source code computes are the same", count=count))
    else:
        print(said("{name} has the settings from the tables of its paper: no code computes them", name=name))
    if executed:
        own = [row for row in executed if not row["peer"]]  # libraries have recipes of their own
        apart = [word(row["quantity"]) for row in own if row["difference"] > row["limit"]]
        if apart:
            print(said("the code behaves differently in: {quantities}", quantities=", ".join(apart)))
        print(f"\n{said('Run side by side with the source on the same data:')}\n")
        compared = []
        for row in executed:
            numbers = f"{row['difference']:.2g}", f"{row['limit']:.2g}"
            cells = row["where"], row["source"], reason(row["why"])
            compared.append([word(row["quantity"]), *numbers, *cells])
        titles_of = ("quantity", "largest difference", "explained", "where", "source", "why")
        print_table([word(each) for each in titles_of], compared, words=6)


def cache(
    kind: Annotated[
        str | None,
        Parameter(help="what --clear deletes: one of the kinds shown, such as features; by default all"),
    ] = None,
    /,
    *,
    clear: Annotated[bool, Parameter(show_default=False, help="delete the cache")] = False,
    json: Json = False,
) -> None:
    """Show the size of the cache ($VITREOUS_CACHE, or ~/.cache/vitreous), or clear it."""
    from vitreous.api.cache import KINDS, cache_use, clear_cache

    if kind is not None and not clear:
        raise CallError(
            "{kind} without --clear has no effect: vitreous cache shows all, --clear deletes", kind=kind
        )
    found = clear_cache(kind) if clear else cache_use()
    if json:
        print_json({"cleared": clear, **found.to_json()})
        return
    if clear:
        print(said("deleted from {folder}", folder=found.folder), end="\n\n")
    else:
        print(said("cache {folder}", folder=found.folder), end="\n\n")
    rows = [(name, KINDS[name], byte_size(count)) for name, count in found.bytes.items()]
    print_table([word(name) for name in ("kind", "what", "size")], rows, words=2)
