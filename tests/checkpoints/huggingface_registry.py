"""Makes the table of transformers' configurations that comes with the package:

python tests/checkpoints/huggingface_registry.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vitreous.checkpoints.formats import huggingface_configs

TABLE = Path(huggingface_configs.__file__).with_suffix(".json")
# The model_types of image towers that are read, besides those of code that is not part of transformers.
KINDS = (
    *("vit", "deit", "vit_mae", "vit_msn", "ijepa", "dinov2", "dinov2_with_registers", "dinov3_vit", "beit"),
    *("data2vec-vision", "clip_vision_model", "metaclip_2_vision_model", "altclip_vision_model"),
    *("chinese_clip_vision_model", "siglip_vision_model", "siglip2_vision_model", "mlcd_vision_model"),
    *("internvl_vision", "tipsv2_vision_model", "radio", "aimv2_vision_model", "dpt", "flava_image_model"),
    *("blip_vision_model", "git_vision_model", "owlvit_vision_model", "owlv2_vision_model"),
    *("clipseg_vision_model",),
)


def registry() -> dict[str, Any]:
    """The whole table: of each model_type its own fields, without those that change no output."""
    import transformers
    from transformers import CONFIG_MAPPING, PretrainedConfig

    every = PretrainedConfig().to_dict()
    table: dict[str, Any] = {"transformers": transformers.__version__, "configs": {}}
    for kind in KINDS:
        fields = CONFIG_MAPPING[kind]().to_dict()
        irrelevant = {*every, *huggingface_configs.IRRELEVANT}
        table["configs"][kind] = {name: v for name, v in fields.items() if name not in irrelevant}
    return table


def as_text(table: dict[str, Any]) -> str:
    """JSON with one line for each model_type."""
    lines = [f" {json.dumps(kind)}: {json.dumps(fields)}" for kind, fields in table["configs"].items()]
    configs = ",\n".join(lines)
    return f'{{\n"transformers": {json.dumps(table["transformers"])},\n"configs": {{\n{configs}\n}}\n}}\n'


if __name__ == "__main__":
    TABLE.write_text(as_text(registry()), encoding="utf-8")
