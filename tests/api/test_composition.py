"""vitreous composes: a plain PyTorch loop, Hugging Face's Trainer, timm's transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import vitreous as vt
from vitreous.models.vit import ViT


class Photos(Dataset[tuple[Tensor, int]]):
    """A data set as users write it, with the model's preprocessing as `transform`."""

    def __init__(self, pixels: NDArray[np.uint8], labels: list[str], transform: Any) -> None:
        self.images = [Image.fromarray(image) for image in pixels]
        self.labels = [["bright", "dark"].index(label) for label in labels]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), self.labels[index]


def learn(model: nn.Module, loader: DataLoader[Any], epochs: int = 20) -> float:
    """Train with a plain loop; the accuracy on what was learned."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(epochs):
        for images, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(images), targets).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        hits = sum(int((model(images).argmax(-1) == targets).sum()) for images, targets in loader)
    return hits / len(loader.dataset)  # type: ignore[arg-type]


def test_a_plain_pytorch_loop(
    model: ViT, pixels: NDArray[np.uint8], labels: list[str], tmp_path: Path
) -> None:
    loader = DataLoader(Photos(pixels, labels, model.preprocessing), batch_size=8, shuffle=False)
    assert learn(model, loader) > 0.9
    vt.save(model, tmp_path / "model")
    again = vt.load(tmp_path / "model")
    images = next(iter(loader))[0]
    with torch.no_grad():
        torch.testing.assert_close(again(images), model(images))


class ForTrainer(nn.Module):
    """A model as Hugging Face's Trainer calls it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.model(pixel_values)
        return (
            {"logits": logits}
            if labels is None
            else {"loss": cross_entropy(logits, labels), "logits": logits}
        )


@pytest.mark.slow
@pytest.mark.peers
def test_hugging_face_trainer(
    model: ViT, pixels: NDArray[np.uint8], labels: list[str], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    pytest.importorskip("accelerate", reason="the package accelerate is not installed")
    photos = Photos(pixels, labels, model.preprocessing)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"),
        num_train_epochs=20,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )

    def collate(examples: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
        images, targets = zip(*examples, strict=True)
        return {"pixel_values": torch.stack(images), "labels": torch.tensor(targets)}

    trainer = transformers.Trainer(
        model=ForTrainer(model), args=arguments, train_dataset=photos, data_collator=collate
    )
    trainer.train()
    predicted = trainer.predict(photos).predictions.argmax(-1)
    assert (predicted == np.array(photos.labels)).mean() > 0.9


@pytest.mark.slow
@pytest.mark.peers
def test_timm_transforms(model: ViT, pixels: NDArray[np.uint8], labels: list[str]) -> None:
    pytest.importorskip("torchvision", reason="torchvision, which timm's transforms need, is not installed")
    timm_data = pytest.importorskip("timm.data", reason="the package timm is not installed")
    transform = timm_data.create_transform(
        (3, 16, 16), is_training=True, mean=model.preprocessing.mean, std=model.preprocessing.std
    )
    loader = DataLoader(Photos(pixels, labels, transform), batch_size=8, shuffle=False)
    assert learn(model, loader) > 0.8
