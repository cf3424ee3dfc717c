"""A training step of the Transformer beside the same model built from torch.nn.Transformer, in one run.

    python benchmarks/translation.py --models 256x3 512x6 --out benchmarks/results/translation.json

Same sizes, same embeddings, positions and loss, same optimizer, same padded batch. The two take turns, step
by step, and what is reported is the median of the ratios of neighboring steps, in processor seconds as
well, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from record import write_results
from torch import Tensor, nn

import vitreous as vt
from vitreous.addons.text.layers import TokenEmbedding, sinusoids

VOCABULARY = 8000


class Peer(nn.Module):
    """What one writes around torch.nn.Transformer: embeddings, positions, masks, tied logits."""

    positions: Tensor

    def __init__(self, config: vt.TransformerConfig) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(config.vocabulary, config.width, scale=True)
        self.register_buffer("positions", sinusoids(config.max_length, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.width,
            config.heads,
            config.encoder_depth,
            config.depth,
            config.mlp_dim,
            dropout=config.dropout,
            batch_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.tokens(ids) + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == 0
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        z = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.tokens.logits(z, None)


def batch_of(rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Rows of half to full length, padded."""
    ids = torch.randint(3, VOCABULARY, (2, rows, length))
    lengths = torch.randint(length // 2, length + 1, (2, rows, 1))
    lengths[:, 0] = length
    ids[torch.arange(length) >= lengths] = 0
    return ids[0], ids[1]


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]
) -> tuple[float, float]:
    """Seconds on the clock and of the processor of one training step."""
    begun = time.perf_counter(), time.process_time()
    source, target = batch
    logits = model(source, target[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def compare(width: int, layers: int, threads: int, arguments: argparse.Namespace) -> dict[str, object]:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    config = vt.TransformerConfig(
        vocabulary=VOCABULARY,
        width=width,
        depth=layers,
        encoder_depth=layers,
        heads=width // 64,
        mlp_dim=4 * width,
        dropout=arguments.dropout,
        max_length=arguments.length,
        # torch.nn.Transformer has a norm after each stack, post-norm or not.
        final_norm=True,
    )
    models = [vt.Transformer(config).train(), Peer(config).train()]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert sizes[0] == sizes[1], f"the models differ: {sizes}"
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-4, fused=True) for model in models]
    batch = batch_of(arguments.batch, arguments.length)
    for model, optimizer in zip(models, optimizers, strict=True):
        step(model, optimizer, batch)
    clock, processor, seconds = [], [], []
    for turn in range(arguments.rounds):
        order = (0, 1) if turn % 2 else (1, 0)
        taken = {which: step(models[which], optimizers[which], batch) for which in order}
        clock.append(taken[1][0] / taken[0][0])
        processor.append(taken[1][1] / taken[0][1])
        seconds.append(taken[0][0])
    return {
        "width": width,
        "layers": layers,
        "parameters": sizes[0],
        "batch": f"{arguments.batch} pairs of up to {arguments.length} tokens",
        "dropout": arguments.dropout,
        "faster_than_torch": round(statistics.median(clock), 3),
        "faster_in_processor_seconds": round(statistics.median(processor), 3),
        "seconds_per_step": round(statistics.median(seconds), 3),
        "threads": threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["256x3"], help="WIDTHxLAYERS")
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        width, layers = (int(part) for part in model.split("x"))
        rows += [compare(width, layers, threads, arguments) for threads in arguments.threads]
    results = {
        "rows": rows,
    }
    write_results(results, arguments.out)


if __name__ == "__main__":
    main()
