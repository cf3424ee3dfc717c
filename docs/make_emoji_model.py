"""The second model of `vitreous learn`: a ViT on emoji of 32 x 32 pixels in color, stored with the add-on.

    apt-get install fonts-noto-color-emoji unicode-data
    python docs/make_emoji_model.py    # some minutes on two cores; needs Pillow with raqm

The images are those of Noto Color Emoji (SIL Open Font License 1.1), the classes are groups of Unicode's
emoji-test.txt. A fifth of the emoji of each class is held out, with all of its skin tones. The weights are
stored in 16 bits; the accuracy is that of the stored file.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import load_file, save_file

import vitreous as vt

FOLDER = Path(vt.__file__).parent / "addons" / "learn_page" / "emoji"
FONT = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
NAMES = "/usr/share/unicode/emoji/emoji-test.txt"
GROUPS = {
    "face": "face-.*",
    "person": "person.*",
    "hand": "hand.*",
    "animal": "animal-.*",
    "plant": "plant-.*|food-fruit|food-vegetable",
    "food": "food-prepared|food-asian|food-sweet|drink",
    "vehicle": "transport-(ground|water|air)",
    "building": "place-(building|religious)",
    "clock": "time",
    "flag": "country-flag",
}
SIZE, BOX = 32, (136, 128)  # of an image, and of the font's bitmaps
MOST_FLAGS = 120
SAMPLES = 10


def emoji() -> Iterator[tuple[str, str]]:
    """Yield a class and the text of each emoji: one character, with a skin tone or without, or a flag."""
    group, flags = None, 0
    for line in Path(NAMES).read_text(encoding="utf-8").splitlines():
        if line.startswith("# subgroup:"):
            kind = line.removeprefix("# subgroup: ")
            group = next((name for name, pattern in GROUPS.items() if re.fullmatch(pattern, kind)), None)
        found = re.match(r"([0-9A-F ]+);\s*fully-qualified", line)
        if not found or not group:
            continue
        codes = [int(code, 16) for code in found[1].split()]
        flags += group == "flag"
        single = len([code for code in codes if code != 0xFE0F]) == 1
        toned = len(codes) == 2 and 0x1F3FB <= codes[1] <= 0x1F3FF
        if single or toned or (group == "flag" and flags <= MOST_FLAGS):
            yield group, "".join(map(chr, codes))


def drawn(text: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    canvas = Image.new("RGBA", BOX, "white")
    ImageDraw.Draw(canvas).text((0, 0), text, font=font, embedded_color=True)
    square = Image.new("RGB", (BOX[0], BOX[0]), "white")
    square.paste(canvas.convert("RGB"), (0, (BOX[0] - BOX[1]) // 2))
    return square.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def write_images(folder: Path) -> None:
    font, rng, place = ImageFont.truetype(FONT, 109), random.Random(0), dict[tuple[str, str], str]()
    for number, (group, text) in enumerate(emoji()):
        first = (group, text if group == "flag" else text[0])  # all skin tones are in the same part
        part = place.setdefault(first, "test" if rng.random() < 0.2 else "train")
        path = folder / part / group / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn(text, font).save(path)


def main() -> None:
    with TemporaryDirectory() as folder:
        data = Path(folder) / "emoji"
        write_images(data)
        run = vt.train(
            str(data),
            epochs=60,
            settings={
                "model.image_size": SIZE,
                "model.patch_size": 8,
                "model.stem": {"kind": "patch"},
                "model.width": 64,
                "model.depth": 4,
                "model.heads": 4,
                "model.mlp_dim": 128,
                "model.class_token": True,
                "model.pooling": {"kind": "class"},
                "model.layer_scale": None,
            },
            out=Path(folder) / "run",
        )
        weights = load_file(run.path / "model" / "model.safetensors")
        FOLDER.mkdir(exist_ok=True)
        save_file(
            {name: each.to(torch.float16) for name, each in weights.items()}, FOLDER / "model.safetensors"
        )
        config = json.loads((run.path / "model" / "config.json").read_text("utf-8"))
        config["model"] = run.model.config.model_dump(mode="json", exclude_defaults=True)
        (FOLDER / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (FOLDER / "model.safetensors").chmod(0o644)
        model = vt.load(FOLDER).eval()
        paths = sorted((data / "test").rglob("*.png"))
        with torch.inference_mode():
            answers = model(model.preprocessing([Image.open(path) for path in paths])).argmax(dim=-1).tolist()
        assert model.labels is not None
        right = sum(
            model.labels[answer] == path.parent.name for answer, path in zip(answers, paths, strict=True)
        )
        print(right, "of", len(paths), "held-out emoji are right")
        for number, group in enumerate(GROUPS):
            held_out = sorted((data / "test" / group).glob("*.png"))
            middle = held_out[len(held_out) // 2]
            Image.open(middle).save(FOLDER / f"{number}-{group}.png", optimize=True)


if __name__ == "__main__":
    main()
