"""The model of `vitreous learn`: the ViT of the paper on handwritten digits, stored with the add-on.

    python docs/make_digits_model.py    # about a minute on two cores

It is the recipe of `vitreous train` with the paper's linear patch embedding in place of the convolutions, for
40 epochs. Beside the bundled digits of training it learns digits that are drawn with strokes, in two hands,
since its readers draw: nearly all of the bundled sevens have a bar, and plain ones were read as a three. The
weights are stored in 16 bits; the accuracies are those of the stored file, on the held-out digits and on
drawings by a third hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from drawn_digits import ANGULAR, QUICK, ROUND, as_digit, drawings
from PIL import Image
from safetensors.torch import load_file, save_file

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data

DRAWN = 20  # of each digit, in each hand
FOLDER = Path(vt.__file__).parent / "addons" / "learn_page" / "digits"


def main() -> None:
    digits = open_data("digits", DataConfig())
    assert digits.test is not None
    drawn = [*drawings(ROUND, DRAWN, seed=1), *drawings(QUICK, DRAWN, seed=2)]
    with TemporaryDirectory() as folder:
        data = Path(folder) / "digits"
        for part, images in {"train": digits.train, "test": digits.test}.items():
            for row, target in enumerate(images.targets.strata().tolist()):
                save(images.image(row), data / part / str(target) / f"{row}.png")
        for number, (digit, strokes) in enumerate(drawn):
            save(as_digit(strokes), data / "train" / str(digit) / f"drawn-{number}.png")
        settings = {"model.stem": {"kind": "patch"}}
        run = vt.train(str(data), recipe="digits", epochs=40, settings=settings, out=Path(folder) / "run")
        weights = load_file(run.path / "model" / "model.safetensors")
        stored = {name: each.to(torch.float16) for name, each in weights.items()}
        FOLDER.mkdir(exist_ok=True)
        save_file(stored, FOLDER / "model.safetensors")
        config = json.loads((run.path / "model" / "config.json").read_text("utf-8"))
        config["model"] = run.model.config.model_dump(mode="json", exclude_defaults=True)
        (FOLDER / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (FOLDER / "model.safetensors").chmod(0o644)
    model = vt.load(FOLDER).eval()
    assert isinstance(model, vt.ViT)
    rows = [
        (digits.test.image(row), target) for row, target in enumerate(digits.test.targets.strata().tolist())
    ]
    print(right(model, rows), "of", len(rows), "held-out digits are right")
    rows = [(as_digit(strokes), digit) for digit, strokes in drawings(ANGULAR, 20, seed=0)]
    print(right(model, rows), "of", len(rows), "digits that another hand draws are right")


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.convert("L").save(path)


@torch.inference_mode()
def right(model: vt.ViT, rows: list[tuple[Image.Image, int]]) -> int:
    answers = model(model.preprocessing([image for image, _ in rows])).argmax(dim=-1).tolist()
    return sum(answer == target for answer, (_, target) in zip(answers, rows, strict=True))


if __name__ == "__main__":
    main()
