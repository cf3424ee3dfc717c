"""`vitreous predict` and `embed`: what a model answers to images, and its features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter, Token

import vitreous as vt
from vitreous.api.options import EmbedOptions, PredictOptions
from vitreous.cli.options import FeatureModel, ImagesParameter, Json, TrainedModel, with_parsed_options
from vitreous.cli.printing import print_json, print_wrong
from vitreous.languages.terminal import CallError, said


def parse_threshold(_: object, tokens: Sequence[Token]) -> float | str | dict[str, float]:
    """Return 0.5, "best", or {"cat": 0.3} from cat=0.3. Raises InputError."""
    words = [token.value for token in tokens]
    try:
        if len(words) == 1 and "=" not in words[0]:
            return "best" if words[0] == "best" else float(words[0])
        pairs = dict(word.rsplit("=", 1) for word in words)
        return {label: float(number) for label, number in pairs.items()}
    except ValueError:
        raise CallError(
            "--threshold {text}: pass a number, LABEL=NUMBER for some labels, or best", text=" ".join(words)
        ) from None


ThresholdParameter = Annotated[
    object,
    Parameter(
        name="--threshold",
        converter=parse_threshold,
        accepts_keys=False,
        n_tokens=-1,
        metavar="VALUE",
    ),
]


@with_parsed_options(threshold=ThresholdParameter)
def predict(
    model: TrainedModel,
    /,
    *images: ImagesParameter,
    json: Json = False,
    **options: Unpack[PredictOptions],
) -> int:
    """Answer what a model was trained to say of images."""
    if not images:
        raise CallError("no image to classify: vitreous predict RUN photo.jpg photos/ 'more/*.png'")
    found = vt.predict(model, list(images), **options)
    if json:
        print_json(found.to_json())
    else:
        for answer in found.answers:
            print(answer.line().replace("\n", "\\n"))  # of a file's name or a text
        if found.out:
            print(said("predictions for {count} images: {out}", count=found.count, out=found.out))
    return print_wrong(found.failed, found.damaged)


@with_parsed_options()
def embed(
    model: FeatureModel,
    /,
    *images: ImagesParameter,
    json: Json = False,
    **options: Unpack[EmbedOptions],
) -> int:
    """Write the features of images to a file: what the head of the model sees."""
    from vitreous.api.arguments import chosen_encoder

    model = str(chosen_encoder(model))
    out = options.setdefault("out", Path("features.npz"))
    features = vt.embed(model, list(images), **options)
    if json:
        result = {"model": model, "path": str(out), **features.to_json()}
        del result["paths"]  # they are in the file
        print_json(result)
    else:
        count, width = features.count, features.values.shape[1]
        print(said("{out}: {count} images, {width} features of each", out=out, count=count, width=width))
    return print_wrong(features.failed, features.damaged)
