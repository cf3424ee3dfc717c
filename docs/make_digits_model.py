"""The model of `vitreous learn`: the ViT of the paper on the bundled digits, stored with the add-on.

    python docs/make_digits_model.py    # under a minute on two cores

It is the recipe of `vitreous train` with the paper's linear patch embedding in place of the convolutions, for
40 epochs. The weights are stored in 16 bits; the accuracy is that of the stored file.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data

FOLDER = Path(vt.__file__).parent / "addons" / "learn_page" / "digits"


def main() -> None:
    with TemporaryDirectory() as folder:
        run = vt.train(
            "digits", epochs=40, settings={"model.stem": {"kind": "patch"}}, out=Path(folder) / "digits"
        )
        weights = load_file(run.path / "model" / "model.safetensors")
        stored = {name: each.to(torch.float16) for name, each in weights.items()}
        FOLDER.mkdir(exist_ok=True)
        save_file(stored, FOLDER / "model.safetensors")
        config = json.loads((run.path / "model" / "config.json").read_text("utf-8"))
        config["model"] = run.model.config.model_dump(mode="json", exclude_defaults=True)
        (FOLDER / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (FOLDER / "model.safetensors").chmod(0o644)
    model, digits = vt.load(FOLDER).eval(), open_data("digits", DataConfig()).test
    assert digits is not None
    with torch.inference_mode():
        answers = model(model.preprocessing([digits.image(row) for row in range(len(digits))])).argmax(dim=-1)
    print(int((answers.numpy() == digits.targets).sum()), "of", len(digits), "held-out digits are right")


if __name__ == "__main__":
    main()
