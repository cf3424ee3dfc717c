"""What a file is that is not supported: one table for every refusal. Each row says by what a kind of file is
known, what it is and which part of it is not supported, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

IN_PYTORCH = "load it with transformers and write it with save_pretrained, as PyTorch or safetensors"
MADE_FROM = "give the model that it was made from"
BEFORE_QUANTIZATION = "a quantized model: pass its weights before quantization"
ORBAX = (
    "a checkpoint of orbax (JAX): restore it there, and write its parameters with numpy.savez, by names like "
    "params/Transformer/encoder_norm/scale"
)
KERAS = (
    "a model of Keras, which is not read here: what keras-hub publishes is on the Hub for transformers, too; "
    "of your own write the arrays with numpy.savez, by names like Transformer/encoder_norm/scale"
)
SHARDS = (
    "a checkpoint of torch.distributed.checkpoint, in shards: write one file of it with "
    "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER model.pt"
)
WEB_PAGE = "a web page, not a checkpoint: the download failed, perhaps because a login is required"
OPENVINO = f"a program of OpenVINO: {MADE_FROM}"
CORE_ML = f"a program of Core ML: {MADE_FROM}"
ONNX = "an ONNX program: vitreous.predict takes it as it is, and its weights are not read"
GGUF = "of llama.cpp: its weights are quantized, and are not supported"


class FileKind(NamedTuple):
    """A kind of file, and by what it is known: any one of these is enough.

    Attributes:
        what: it is, and what to do.
        start: its first bytes.
        file: a pattern of its name, or of the name of one that is in a folder.
        inside: a regular expression for a name in an archive; `classes` and `weights` likewise.
    """

    what: str
    start: bytes = b""
    file: str = ""
    inside: str = ""
    classes: str = ""
    weights: str = ""


# Files, folders and archives of other programs.
KINDS = (
    FileKind(
        "an adapter of PEFT, not a model: merge it into its model (merge_and_unload), and save that",
        file="adapter_config.json",
    ),
    FileKind(f"the weights of Flax (flax_model.msgpack): {IN_PYTORCH}", file="flax_model.msgpack"),
    FileKind(f"the weights of TensorFlow (tf_model.h5): {IN_PYTORCH}", file="tf_model.h5"),
    FileKind(f"a SavedModel of TensorFlow: {IN_PYTORCH}", file="saved_model.pb"),
    FileKind(ORBAX, file="_CHECKPOINT_METADATA"),
    FileKind(ORBAX, file="manifest.ocdbt"),
    FileKind(KERAS, start=b"\x89HDF\r\n\x1a\n", file="*.weights.h5", inside=r"^model\.weights\.h5$"),
    FileKind(SHARDS, file=".metadata"),
    FileKind(SHARDS, file="*.distcp"),
    FileKind(OPENVINO, file="openvino_model.xml"),
    FileKind(CORE_ML, file="*.mlpackage"),
    FileKind(CORE_ML, file="*.mlmodel"),
    FileKind(CORE_ML, file="Manifest.json"),
    FileKind(f"an engine of TensorRT, for one GPU: {MADE_FROM}", start=b"ftrt", file="*.engine"),
    FileKind(f"an engine of TensorRT, for one GPU: {MADE_FROM}", start=b"ptrt", file="*.plan"),
    FileKind(f"a GGUF file {GGUF}", start=b"GGUF", file="*.gguf"),
    *(
        FileKind(f"a ggml file {GGUF}", start=start)
        for start in (b"lmgg", b"fmgg", b"tjgg", b"ggml", b"ggjt")
    ),
    FileKind(ONNX, start=b"\x08", file="*.onnx"),
    *(FileKind(WEB_PAGE, start=start) for start in (b"<!DOCTYPE", b"<!doctype", b"<html")),
    FileKind(
        "an XML file, as exported programs have it (OpenVINO, say): pass the model that it was made from",
        start=b"<?xml",
    ),
    FileKind("a JPEG image, not a checkpoint", start=b"\xff\xd8\xff"),
    FileKind("a PNG image, not a checkpoint", start=b"\x89PNG"),
    FileKind("text in JSON, which may describe a model: give the file of its weights", start=b"{"),
    FileKind("compressed with gzip: unpack it", start=b"\x1f\x8b"),
    FileKind("compressed with bzip2: unpack it", start=b"BZh"),
    FileKind("compressed with xz: unpack it", start=b"\xfd7zXZ"),
    FileKind("compressed with zstd: unpack it", start=b"(\xb5/\xfd"),
    FileKind("one NumPy array, not a checkpoint: an .npz holds arrays by name", start=b"\x93NUMPY"),
    FileKind("a Git-LFS pointer and not the file itself: fetch that with git lfs pull", start=b"version h"),
    FileKind(f"a TensorFlow Lite program: {MADE_FROM}", file="*.tflite"),
    FileKind(f"a part of a checkpoint of TensorFlow: {IN_PYTORCH}", file="*.data-0*"),
    FileKind(f"a checkpoint of TensorFlow: {IN_PYTORCH}", file="*.index"),
    FileKind(
        f"a program of torch.export (.pt2), which has no state dict: {MADE_FROM}",
        inside=r"archive_format$|serialized_exported_program\.json$|/models/.*\.json$",
    ),
    # by the classes of the objects in a pickle
    FileKind(
        "a model of ultralytics (YOLO), whose layers are convolutions: not a Vision Transformer",
        classes=r"^ultralytics\.",
    ),
    FileKind(
        "a checkpoint of tensors in shards (DTensor, as FSDP2 and tensor parallelism have them): gather it "
        "with torch.distributed.checkpoint.state_dict.get_model_state_dict and "
        "StateDictOptions(full_state_dict=True), and save that",
        classes=r"DTensor|_sharded_tensor|ShardedTensor",
    ),
    FileKind(
        BEFORE_QUANTIZATION, classes=r"^torchao\.|_rebuild_qtensor|^bitsandbytes\.|^quanto\.|^optimum\.quanto"
    ),
)

# Checkpoints that a format may recognize, and that have a part which is not supported, by names of weights.
UNKNOWN_PARTS = (
    FileKind(
        BEFORE_QUANTIZATION,
        weights=r"\.(SCB|absmax|quant_map|qweight|qzeros|weight_scale_inv|weight_scale|scale_weight|input_scale"
        r"|scale_input|zero_point|weight\._(data|scale))$|_packed_params|(^|\.)scaled_fp8$",
    ),
    FileKind(
        "a model with a LoRA adapter that is not merged into it, and its state dict does not store the "
        "scale: merge it (peft: merge_and_unload), or save the adapter with save_pretrained",
        weights=r"\.base_layer\.|\.lora_[AB]\.\w+\.weight$",
    ),
    FileKind(
        "a part of a model in FSDP, whose weights are one flat tensor of each process: save them with "
        "StateDictOptions(full_state_dict=True) of torch.distributed.checkpoint",
        weights=r"(^|\.)_?flat_param(_\d+)?$",
    ),
    FileKind("a TNT, whose pixels are also tokens, which is not supported", weights=r"^pixel_embed\."),
    FileKind(
        "a Hiera, whose layers pool their tokens, which is not supported",
        weights=r"^blocks\.\d+\.proj\.weight$",
    ),
    FileKind(
        "a CaiT, whose class attention is not supported",
        weights=r"blocks_token_only\.|^patch_transformer\.layers\.",
    ),
    FileKind(
        "a DeepViT, whose heads are mixed after the softmax, which is not supported",
        weights=r"\.reattn_(norm|weights)",
    ),
    FileKind(
        "a T2T-ViT, whose tokens are made by attention: it is not supported",
        weights=r"(?<!\w)tokens_to_token\.",
    ),
    FileKind(
        "a model of groups of channels, as SatMAE: its channel_embed is not supported",
        weights=r"(^|\.)channel_embed$",
    ),
    FileKind(
        "a ViLT: one encoder of text and images",
        weights=r"^((model|module)\.)?token_type_embeddings\.weight$",
    ),
    FileKind(
        "a ViT-Adapter, which is not supported", weights=r"(^|\.)interactions\.\d+\.(injector|extractor)\."
    ),
    FileKind(
        "an encoder with windowed attention (Segment Anything, ViTDet), which is not supported",
        weights=r"\.attn\.rel_pos_[hw]$",
    ),
    FileKind(
        "a UNETR of volumes (three dimensions), where images have two",
        weights=r"(^|\.)(encoder\d|decoder\d)\.(transp_conv|blocks\.\d\.\d\.conv|layer\.conv)",
    ),
)

# What other networks are, by names of weights.
NETWORKS = (
    (
        "a Swin Transformer",
        r"layers\.\d\.(blocks\.\d+\.attn\.(relative_position|logit_scale)|downsample\.)|"
        r"features\.\d\.\d+\.attn\.(relative_position|logit_scale)",
    ),
    ("an XCiT (cross-covariance attention)", r"\.local_mp\.|^cls_attn_blocks\."),
    ("a PVT (a pyramid of maps)", r"block1\.\d+\.attn\.(sr|kv)\.|stages\.\d\.blocks\.\d+\.attn\.(sr|kv)\."),
    ("a MaxViT", r"attn_grid\.|attn_block\."),
    ("an MLP-Mixer", r"MixerBlock_\d|mlp_tokens\."),
    ("a LeViT", r"^stem\.conv1\.linear\.|\.attention_biases$"),
    ("a VOLO", r"^network\.\d\.\d+\.attn\."),
    ("a CrossViT", r"^cls_token_0$"),
    ("a CoaT", r"^cls_token1$"),
    ("a MobileViT", r"^stages\.\d\.\d\.transformer\.\d"),
    ("an EfficientNet or a MobileNet", r"^conv_stem\.weight$"),
    ("a Twins", r"^patch_embeds\.\d"),
    ("a NesT", r"^levels\.\d\.transformer_encoder\."),
    ("a PiT", r"^transformers\.\d\.blocks\."),
    ("a model of ultralytics (YOLO)", r"^(model\.)?(model\.)?\d+\.(cv\d|conv|bn|m\.\d+|attn)\."),
    ("a ResNet", r"layer[1-4]\.\d+\.conv\d\.weight|resnet\.encoder\."),
    ("a ConvNeXt", r"stages\.\d\.(blocks\.|layers\.)?\d+\.(gamma|dwconv|conv_dw)|convnext"),
    (
        "a LoRA adapter, which is not a model: merge it into its model (peft: merge_and_unload), or pass the "
        "folder with its adapter_config.json",
        r"lora_[AB]\.|lora_(down|up)\.",
    ),
    ("a RADIO model of transformers", r"radio_model\."),
    ("a diffusion model", r"model\.diffusion_model\.|down_blocks\.\d"),
    ("a convolutional network of torchvision", r"features\.\d+\.\d?\.?weight"),
    (
        "a model of Flax under other names than those of vit_jax and big_vision: write it with PyTorch's "
        "names (transformers 4: from_pretrained(..., from_flax=True))",
        r"^params/.*/kernel$",
    ),
    ("the weights of TensorFlow", r":0$"),
    (
        "a language model",
        r"(transformer\.h|model\.layers)\.\d+\.|encoder\.layer\.\d+\.attention\.self\.query",
    ),
)
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.\w+$")


def what_is_this(
    kinds: Iterable[FileKind] = KINDS,
    *,
    start: bytes = b"",
    files: Sequence[str] = (),
    inside: Sequence[str] = (),
    classes: Sequence[str] = (),
    weights: Sequence[str] = (),
) -> str | None:
    """Return what a file is, what part of it is not supported and what to do, as the rest of a sentence
    ("PATH is ..."); None where nothing tells.

    Args:
        start: its first bytes.
        files: its name, or the names in a folder.
        inside: the names in an archive.
        classes: of the Python objects in it.
        weights: the names of its tensors.
    """
    for kind in kinds:
        if kind.start and start.startswith(kind.start):
            return kind.what
        if kind.file and any(fnmatch(name, kind.file) for name in files):
            return kind.what
        searched = ((kind.inside, inside), (kind.classes, classes), (kind.weights, weights))
        if any(pattern and any(re.search(pattern, name) for name in names) for pattern, names in searched):
            return kind.what
    return None


def network_of(names: Iterable[str]) -> str | None:
    """Return what network has weights of these names; None where nothing tells."""
    lines = "\n".join(names)
    return next((what for what, pattern in NETWORKS if re.search(rf"(?m){pattern}", lines)), None)


def shard_of(path: Path) -> str | None:
    """Return what one of several files of a model is; None for a file that is whole."""
    if path.suffix == ".distcp":
        return SHARDS
    found = SHARD.search(path.name)
    if found is None or int(found[2]) < 2:
        return None
    return (
        f"shard {int(found[1])} of {int(found[2])} of a model, whose weights are in all of them: pass their "
        "folder, or the .index.json in it"
    )
