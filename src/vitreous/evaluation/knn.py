"""Weighted nearest neighbors on frozen features, as in DINO (arXiv 2104.14294, appendix E)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from vitreous.evaluation.features import Features

NEIGHBORS = 20
TEMPERATURE = 0.07
CHUNK = 1024  # images whose similarities are held at once


def knn_hits(
    train: Features,
    test: Features,
    *,
    classes: int,
    neighbors: int = NEIGHBORS,
    temperature: float = TEMPERATURE,
) -> int:
    """How many of `test` are classified rightly: the nearest images by cosine similarity vote, each with
    weight exp(similarity / temperature). Of a train set with fewer images all vote."""
    bank = F.normalize(torch.from_numpy(train.values), dim=1)
    queries = F.normalize(torch.from_numpy(test.values), dim=1)
    labels = torch.from_numpy(train.targets)
    targets = torch.from_numpy(test.targets)
    hits = 0
    for first in range(0, len(queries), CHUNK):
        similarity, nearest = (queries[first : first + CHUNK] @ bank.T).topk(min(neighbors, len(bank)))
        # Minus the largest, so that exp cannot overflow; votes are compared, so a factor does not matter.
        weights = ((similarity - similarity[:, :1]) / temperature).exp()
        votes = torch.zeros(len(weights), classes).scatter_add_(1, labels[nearest], weights)
        hits += int((votes.argmax(dim=1) == targets[first : first + CHUNK]).sum())
    return hits
