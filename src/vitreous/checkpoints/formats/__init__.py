"""Every foreign format that is known. A new one is a file here and an entry in `FORMATS`."""

from vitreous.checkpoints.format import Format
from vitreous.checkpoints.formats.aimv2 import AIMV2
from vitreous.checkpoints.formats.bit import BIT
from vitreous.checkpoints.formats.dinov3 import DINOV3
from vitreous.checkpoints.formats.google import GOOGLE
from vitreous.checkpoints.formats.huggingface_text import MARIAN, TROCR
from vitreous.checkpoints.formats.huggingface_writing import HUGGINGFACE
from vitreous.checkpoints.formats.open_clip import OPEN_CLIP
from vitreous.checkpoints.formats.radio import RADIO
from vitreous.checkpoints.formats.state_dicts import DINOV2, FRANKZVIT, TORCH_TRANSFORMER
from vitreous.checkpoints.formats.timm_writing import TIMM
from vitreous.checkpoints.formats.torchvision import TORCHVISION
from vitreous.checkpoints.formats.vit_pytorch import VIT_PYTORCH
from vitreous.checkpoints.native import VITREOUS

# In the order of detection: DINOv2's keys are timm's and one more, and TrOCR has those of a ViT, too.
FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        VITREOUS,
        MARIAN,
        TROCR,
        GOOGLE,
        BIT,
        TORCHVISION,
        VIT_PYTORCH,
        FRANKZVIT,
        RADIO,
        AIMV2,
        HUGGINGFACE,
        OPEN_CLIP,
        DINOV3,
        DINOV2,
        TIMM,
        TORCH_TRANSFORMER,
    )
}
