"""Print the entropy of the class token's attention in each layer, captured while the model runs.

    python examples/look_inside.py [MODEL] [IMAGE]

MODEL is a run directory or a checkpoint in any format. By default, it is a model with random weights, whose
attention is nearly uniform.
"""

import sys

import torch
from PIL import Image

import vitreous as vt


def main(model_path: str | None = None, image_path: str | None = None) -> None:
    model = vt.load(model_path) if model_path else vt.create("ViT-Ti/16", image_size=64, num_classes=10)
    assert isinstance(model, vt.ViT), "a BiT has no attention"
    image = Image.open(image_path) if image_path else Image.linear_gradient("L")
    images = model.preprocessing([image])
    with vt.capture_attention(model) as attention, torch.inference_mode():
        model.eval()(images)
    rows, columns = model.config.grid
    for layer, maps in enumerate(attention.maps, start=1):
        # (heads, patches): how the class token (or the mean token) distributes its attention over the patches
        attention_weights = maps[0, :, 0, model.config.num_prefix_tokens :]
        entropy = -(attention_weights * attention_weights.log()).nansum(-1).mean() / torch.log(
            torch.tensor(rows * columns)
        )
        print(f"layer {layer:2d}: attention entropy {entropy:.0%} of a uniform distribution's")


if __name__ == "__main__":
    main(*sys.argv[1:])
