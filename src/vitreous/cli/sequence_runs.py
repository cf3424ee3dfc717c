"""Runs that write text, where a command meets one: which kind it is, judged anew, or reading images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from vitreous.cli.images import opened
from vitreous.cli.kinds import kind_in
from vitreous.cli.options import print_json, tell_failed

Kind = Literal["Transformer", "Captioner"]


def kind_of_run(path: Path) -> Kind | None:
    """What kind of model that writes text lies in a run directory; None for any other."""
    match kind_in(path):
        case "Transformer":
            return "Transformer"
        case "Captioner":
            return "Captioner"
    return None


def read_images(run: Path, images: tuple[str, ...], *, device: str, json: bool) -> int:
    """`vitreous predict` for a reader: the text of each image."""
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.reader import Reader

    reader = Reader.load(run)
    reader.model.to(pick_device(device))
    found, failed = opened(images)
    texts = reader.read([image for _, image in found])
    predictions = [
        {"path": path, "text": each.text, "score": each.score}
        for (path, _), each in zip(found, texts, strict=True)
    ]
    if json:
        print_json({"predictions": predictions, "failed": [asdict(each) for each in failed]})
    else:
        for each in predictions:
            print(f"{each['path']}  {each['text']}")
    return tell_failed(failed)


def judge_again(run: Path, data: str | None, *, batch_size: int, device: str, json: bool) -> None:
    """`vitreous evaluate` for a translator or a reader."""
    from vitreous.training.sequence.config import TranslationConfig, read_config

    config = read_config(run / "config.toml")
    told: dict[str, Any] = {"run": str(run), "data": data or config.source}
    if isinstance(config, TranslationConfig):
        told |= translations_judged(run, config, data, batch_size=batch_size, device=device)
    else:
        told |= readings_judged(run, config, data, batch_size=batch_size, device=device)
    if json:
        print_json(told)
        return
    print(f"{run} on {told['data']}")
    for name, value in told.items():
        if isinstance(value, int | float):
            print(f"  {name:<22}{value:.4g}")


def translations_judged(
    run: Path, config: TranslationConfig, data: str | None, *, batch_size: int, device: str
) -> dict[str, Any]:
    """How good a translator is."""
    from vitreous.evaluation.translation import evaluate_translator, pairs_to_judge
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.translator import Translator

    translator = Translator.load(run)
    translator.model.to(pick_device(device))
    return evaluate_translator(translator, pairs_to_judge(config, data), batch_size=batch_size).to_json()


def readings_judged(
    run: Path, config: ReadingConfig, data: str | None, *, batch_size: int, device: str
) -> dict[str, Any]:
    """How good a reader is."""
    from vitreous.evaluation.reading import captions_to_judge, evaluate_reader
    from vitreous.training.device import pick_device
    from vitreous.training.sequence.reader import Reader

    reader = Reader.load(run)
    reader.model.to(pick_device(device))
    return evaluate_reader(reader, captions_to_judge(config, data), batch_size=batch_size).to_json()
