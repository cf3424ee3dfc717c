"""Save one model in the formats of three other codebases, load each file again and compare the outputs.

python examples/weights_in_weights_out.py
"""

import logging
import tempfile
from pathlib import Path

import torch

import vitreous as vt


def main() -> None:
    logging.disable()  # warnings name settings that a file does not store
    model = vt.create("ViT-Ti/16", num_classes=10, image_size=64, mlp="gelu_tanh").eval()
    generator = torch.Generator().manual_seed(0)
    assert isinstance(model.head, torch.nn.Linear)
    torch.nn.init.normal_(model.head.weight, generator=generator)  # the head of a new model is zero
    images = torch.randn(2, 3, 64, 64, generator=generator)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for format, name in {"google": "model.npz", "timm": "timm", "huggingface": "hf"}.items():
            path = Path(folder) / name
            vt.save(model, path, format=format)
            again = vt.load(path)
            difference = (again(images) - model(images)).abs().max().item()
            print(f"{format:12s} largest difference of the logits {difference:.1e}")


if __name__ == "__main__":
    main()
