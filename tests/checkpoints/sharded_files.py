"""A tiny model as FSDP2 writes it from two processes (torch.distributed.checkpoint), with what it computes.

    torchrun --nproc_per_node 2 tests/checkpoints/sharded_files.py

writes `data/published/sharded/`, as a run of transformers' Trainer has it, and `sharded.json`. It needs
transformers and torchvision.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from published_files import CLASSES, FOLDER, HEADS, PATCH, SIZE, WIDTH, drawn, write_outputs
from timm_registry import import_torchvision
from torch.distributed.fsdp import fully_shard


def main() -> None:
    import_torchvision()
    import transformers

    dist.init_process_group("gloo")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS}
    sizes |= {"intermediate_size": 24, "image_size": SIZE, "patch_size": PATCH, "num_labels": CLASSES}
    config = transformers.ViTConfig(**sizes)
    model: Any = drawn(transformers.ViTForImageClassification(config))
    whole = copy.deepcopy(model)
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    folder = FOLDER / "sharded" / "checkpoint-20"
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder / "pytorch_model_fsdp_0")
    if dist.get_rank() == 0:
        config.architectures = ["ViTForImageClassification"]
        config.save_pretrained(folder)
        generator = torch.Generator().manual_seed(1)
        images = torch.rand(1, 3, SIZE, SIZE, generator=generator).mul(255).round() / 255
        with torch.no_grad():
            write_outputs("sharded", images, lambda each: whole(each).logits)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
