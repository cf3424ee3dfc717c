"""Runs that write text, where a command meets one: which kind it is, judged anew, or reading pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from vitreous.cli.kinds import kind_in
from vitreous.cli.options import print_json

Kind = Literal["Transformer", "Captioner"]


def kind_of_run(path: Path) -> Kind | None:
    """What kind of model that writes text lies in a run directory; None for any other."""
    match kind_in(path):
        case "Transformer":
            return "Transformer"
        case "Captioner":
            return "Captioner"
    return None


def read_pictures(run: Path, images: tuple[str, ...], *, device: str, json: bool) -> int:
    """`vitreous predict` for a reader: the text of each picture."""
    from vitreous.data.pictures import BadPicture
    from vitreous.deployment.predictor import Files, find_pictures
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.reader import Reader

    reader = Reader.load(run)
    reader.model.to(pick_device(device))
    paths, missing = find_pictures(images)
    failed = [(failure.path, failure.reason) for failure in missing]
    files, opened = Files(paths), {}
    for row, path in enumerate(paths):
        try:
            opened[path] = files.picture(row)
        except BadPicture as bad:
            failed.append((bad.name, bad.reason))
    found = zip(opened, reader.read(list(opened.values())), strict=True)
    predictions = [{"path": path, "text": each.text, "score": each.score} for path, each in found]
    if json:
        print_json(
            {
                "predictions": predictions,
                "failed": [{"path": path, "reason": reason} for path, reason in failed],
            }
        )
    else:
        for each in predictions:
            print(f"{each['path']}  {each['text']}")
    for path, reason in failed:
        print(f"vitreous: {path}: {reason}", file=sys.stderr)
    return 2 if failed else 0


def judge_again(run: Path, kind: Kind, data: str | None, *, device: str, json: bool) -> None:
    """`vitreous evaluate` for a translator or a reader: its held-out part, or all of other data."""
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.config import read_config

    config = read_config(run / "config.toml")
    source = data or config.source
    result: dict[str, Any]
    if kind == "Transformer":
        from vitreous.data.text.parallel import open_parallel
        from vitreous.evaluation.translation import evaluate_translator
        from vitreous.training.sequence.translator import Translator

        translator = Translator.load(run)
        translator.model.to(pick_device(device))
        pairs = open_parallel(source, seed=config.seed, test_fraction=config.test_fraction)
        judged = pairs.test if data is None else pairs.train + pairs.test
        result = evaluate_translator(translator, judged).to_json()
    else:
        from vitreous.data.text.captions import Captions, open_captions
        from vitreous.evaluation.reading import evaluate_reader
        from vitreous.training.sequence.reader import Reader

        reader = Reader.load(run)
        reader.model.to(pick_device(device))
        pictures: Captions = open_captions(source, seed=config.seed, test_fraction=config.test_fraction).test
        result = evaluate_reader(reader, pictures).to_json()
    if json:
        print_json({"run": str(run), "data": source, **result})
        return
    print(f"{run} on {source}")
    for name, value in result.items():
        if isinstance(value, int | float):
            print(f"  {name:<22}{value:.4g}")
