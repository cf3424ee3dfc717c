"""Makes the table of transformers' configurations that comes with the package:

python tests/checkpoints/huggingface_registry.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from vitreous.checkpoints.formats import huggingface_configs

TABLE = Path(huggingface_configs.__file__).with_suffix(".json")
# The model_types of image towers that are read, besides those of code that is not part of transformers.
KINDS = (
    *("vit", "deit", "vit_mae", "vit_msn", "ijepa", "dinov2", "dinov2_with_registers", "dinov3_vit", "beit"),
    *("data2vec-vision", "clip_vision_model", "metaclip_2_vision_model", "altclip_vision_model"),
    *("chinese_clip_vision_model", "siglip_vision_model", "siglip2_vision_model", "mlcd_vision_model"),
    *("internvl_vision", "tipsv2_vision_model", "aimv2_vision_model", "dpt", "flava_image_model"),
    *("blip_vision_model", "git_vision_model", "owlvit_vision_model", "owlv2_vision_model"),
    *("clipseg_vision_model", "blip_2_vision_model", "instructblip_vision_model", "idefics_vision"),
    *("instructblipvideo_vision_model", "idefics2_vision", "idefics3_vision", "smolvlm_vision"),
    *("janus_vision_model", "kosmos_2_vision_model"),
)


PROCESSORS = (
    *("ViT", "DeiT", "Beit", "CLIP", "Siglip", "Siglip2", "Bit", "ChineseCLIP", "Blip", "OwlViT", "Flava"),
    *("DPT", "DINOv3ViT"),
)
FIELDS = (
    *("do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor"),
    *("do_normalize", "image_mean", "image_std", "do_pad", "keep_aspect_ratio", "ensure_multiple_of"),
)


def registry() -> dict[str, Any]:
    """The whole table: of each model_type its own fields, without those that change no output."""
    import transformers
    from transformers import CONFIG_MAPPING, PretrainedConfig

    every = PretrainedConfig().to_dict()
    table: dict[str, Any] = {"transformers": transformers.__version__, "configs": {}}
    table |= {"processors": {}, "usual": {}}
    for kind in KINDS:
        fields = CONFIG_MAPPING[kind]().to_dict()
        irrelevant = {*every, *huggingface_configs.IRRELEVANT}
        table["configs"][kind] = {name: v for name, v in fields.items() if name not in irrelevant}
    table["usual"] = {kind: name for kind in KINDS if (name := usual_processor(kind)) in PROCESSORS}
    for name in PROCESSORS:
        made = getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(
            transformers, f"{name}ImageProcessor"
        )
        table["processors"][name] = {"shorter": made().default_to_square is False}
        fields = {field: value for field, value in made().to_dict().items() if field in FIELDS}
        table["processors"][name] |= {
            field: plain(value) for field, value in fields.items() if value is not None
        }
    return table


def usual_processor(kind: str) -> str:
    """The image processor of a model_type, or of the larger model whose tower it is."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    whole = re.sub("[-_](vision|image)(_model)?$|_with_registers$", "", kind)
    names = (IMAGE_PROCESSOR_MAPPING_NAMES.get(each) for each in (kind, whole, whole.replace("_", "-")))
    found = next(filter(None, names), {})
    return huggingface_configs.ENDING.sub("", found.get("pil") or found.get("torchvision", ""))


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if hasattr(value, "items") else int(value) if hasattr(value, "name") else value


def as_text(table: dict[str, Any]) -> str:
    """JSON with one line for each model_type."""
    parts = [f'"transformers": {json.dumps(table["transformers"])}']
    for part in ("configs", "processors", "usual"):
        lines = [f" {json.dumps(kind)}: {json.dumps(fields)}" for kind, fields in table[part].items()]
        parts.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(as_text(registry()), encoding="utf-8")
