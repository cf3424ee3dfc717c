"""vitreous: the Vision Transformer, whole.

    import vitreous as vt
    model = vt.create("ViT-B/16", num_classes=10, image_size=224)
    model = vt.load("B_16.npz")                  # any published format; detected from the content
    vt.save(model, "out.npz", format="google")
    logits = model(model.preprocessing(images))

Everything is imported on first use, so that `import vitreous` itself costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.checkpoints import save as save
    from vitreous.checkpoints.any_kind import load as load
    from vitreous.checkpoints.resizing import resize as resize
    from vitreous.errors import InputError as InputError
    from vitreous.inspection.capture import capture_attention as capture_attention
    from vitreous.models.bit import BiT as BiT
    from vitreous.models.bit import BiTConfig as BiTConfig
    from vitreous.models.captioner import Captioner as Captioner
    from vitreous.models.config import ViTConfig as ViTConfig
    from vitreous.models.names import create as create
    from vitreous.models.preprocessing import Preprocessing as Preprocessing
    from vitreous.models.segmenter import Segmenter as Segmenter
    from vitreous.models.segmenter import SegmenterConfig as SegmenterConfig
    from vitreous.models.sequence_config import TransformerConfig as TransformerConfig
    from vitreous.models.transformer import Transformer as Transformer
    from vitreous.models.vit import ViT as ViT
    from vitreous.training.sequence.reader import Reader as Reader
    from vitreous.training.sequence.translator import Translator as Translator

__version__ = "0.1.0"

HOME = {
    "BiT": "models.bit",
    "BiTConfig": "models.bit",
    "Captioner": "models.captioner",
    "InputError": "errors",
    "Preprocessing": "models.preprocessing",
    "Reader": "training.sequence.reader",
    "Segmenter": "models.segmenter",
    "SegmenterConfig": "models.segmenter",
    "Transformer": "models.transformer",
    "TransformerConfig": "models.sequence_config",
    "Translator": "training.sequence.translator",
    "ViT": "models.vit",
    "ViTConfig": "models.config",
    "capture_attention": "inspection.capture",
    "create": "models.names",
    "load": "checkpoints.any_kind",
    "resize": "checkpoints.resizing",
    "save": "checkpoints",
}

__all__ = ["__version__", *sorted(HOME)]


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'vitreous' has no attribute {name!r}")
    value = getattr(import_module(f"vitreous.{HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *HOME])
