"""The card beside the weights of a model that is for others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous import __version__
from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS
from vitreous.errors import InputError
from vitreous.extensions import tasks
from vitreous.models.config import Origin
from vitreous.models.model import Model

if TYPE_CHECKING:
    from vitreous.checkpoints.format import Format

LIBRARIES = {"timm": "timm", "huggingface": "transformers"}  # whose from_pretrained opens the folder
USES = {
    "timm": 'model = timm.create_model("local-dir:{path}", pretrained=True)',
    "huggingface": 'model = transformers.AutoModel.from_pretrained("{path}")',
}
CARD = Path(__file__).with_suffix(".md")  # with names in braces


def write_card(model: Model, folder: Path, format: Format, name: str, license: str | None) -> None:
    """Write README.md: what the model is, where its weights come from, under which license, and what of that
    was assumed."""
    config, origin, kind = model.config, model.origin, type(model).__name__
    license = license or (origin.license if origin else None)
    height, width = config.image_size
    outputs = f", {config.num_classes} outputs" if config.num_classes else ""
    facts = {
        "Parameters": f"{sum(each.numel() for each in model.parameters()):,}",
        "Task": model.task or "features",
        "Labels": ", ".join(f"`{label}`" for label in (model.labels or ())[:20]),
        "Preprocessing": f"{model.preprocessing.resize}, {model.preprocessing.interpolation}, mean "
        f"{model.preprocessing.mean}, std {model.preprocessing.std}",
        "Format": format.about,
        **(origin_facts(origin) if origin else {}),
        **({"License": license} if license else {}),
    }
    library = LIBRARIES.get(format.name, "vitreous")
    text = CARD.read_text(encoding="utf-8").format(
        header="\n".join(header(model, license, library)),
        name=name,
        kind={"ViT": "Vision Transformer", "BiT": "ResNet (BiT)"}.get(kind, kind),
        height=height,
        width=width,
        outputs=outputs,
        version=__version__,
        rows="\n".join(f"| {key} | {value.replace('|', ' ')} |" for key, value in facts.items() if value),
        use=f"import {library}\n\n{USES[format.name]}\n\n".format(path=name) if format.name in USES else "",
        path=name,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def header(model: Model, license: str | None, library: str) -> Iterator[str]:
    """Yield the lines that the hub reads."""
    yield f"library_name: {library}"
    if license:
        yield f"license: {license}"
    row = tasks().get(model.task or "")
    pipeline = "image-feature-extraction" if model.task is None else row.pipeline if row else ""
    if pipeline:
        yield f"pipeline_tag: {pipeline}"
    if model.origin and (source := re.match(r"hf:([\w.-]+/[\w.-]+)", model.origin.source)):
        yield f"base_model: {source[1]}"
    yield "tags: [vision-transformer, vitreous]"


def origin_facts(origin: Origin) -> dict[str, str]:
    """Return rows of a card's table: where the weights come from, and what a reader had to assume of them."""
    named = f", {origin.architecture}" if origin.architecture else ""
    assumed = {"Assumed of them": "; ".join(origin.assumed)} if origin.assumed else {}
    theirs: dict[str, str] = {}
    if known := INSTALLED_ENCODERS.get(origin.source):
        theirs = {"Whose weights": f"{known.made_by} (package `{known.package}`)"}
        theirs["These were trained on"] = known.trained_on
    return {
        "Weights from": f"`{origin.source}` ({origin.format}{named})",
        **theirs,
        "License": origin.license or "not stated by the source, whose license applies",
        **assumed,
    }


def check_license(license: str | None) -> None:
    if license is not None and not re.fullmatch(r"[\w.-]+", license):
        raise InputError(
            f"license {license!r} is not a name: use one such as apache-2.0, mit or cc-by-nc-4.0"
        )
