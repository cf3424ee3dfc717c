"""The data that the runs in `written/` learned from: made again, the same to the byte."""

from pathlib import Path

import numpy as np
from PIL import Image


def make_data(root: Path) -> None:
    rng = np.random.default_rng(0)

    def noise(channels: tuple[int, ...] = (3,), width: int = 16) -> np.ndarray:
        return rng.integers(0, 60, (16, width, *channels)).astype(np.uint8)

    def save(pixels: np.ndarray, name: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)

    for split in ("train", "val"):
        for number, name in enumerate(("bottom", "top")):
            for index in range(8):
                pixels = noise()
                pixels[8 * (1 - number) : 8 * (2 - number)] += 150
                save(pixels, f"photos/{split}/{name}/{index}.png")
    rows = ["path,label,split"]
    for index in range(20):
        save(noise(), f"ml/{index}.png")
        rows.append(f"ml/{index}.png,{['a', 'b', 'a|b'][index % 3]},{'train' if index < 14 else 'test'}")
    (root / "ml.csv").write_text("\n".join(rows) + "\n")
    for index in range(10):
        pixels, mask = noise(), np.zeros((16, 16), np.uint8)
        mask[4:12, 4:12] = 1
        pixels[mask == 1] += 120
        save(pixels, f"seg/images/{index}.png")
        save(mask, f"seg/masks/{index}.png")
    rows = ["path,label"]
    for index in range(16):
        save(rng.integers(0, 60, (16, 32), dtype=np.uint8), f"cap/{index}.png")
        rows.append(f"cap/{index}.png,{'one two' if index % 2 else 'three'}")
    (root / "cap.csv").write_text("\n".join(rows) + "\n")
    pairs = (
        "one\teins",
        "two\tzwei",
        "three\tdrei",
        "four\tvier",
        "one two\teins zwei",
        "two three\tzwei drei",
    )
    (root / "pairs.tsv").write_text("\n".join(pairs * 6) + "\n")
