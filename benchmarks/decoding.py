"""Decoding with the key/value cache beside decoding without it: the paper's base model, 64 tokens, one
machine.

    python benchmarks/decoding.py --batch 1 4 8 --out benchmarks/results/decoding.json

One text with four beams, as `vitreous translate` decodes by default, is a batch of 4. A batch of 1 gains
least: each step reads all 100 MB of weights for one token, which takes 5.3 of its 6.6 ms with the cache;
without it they serve all tokens so far at once.

The two take turns, call by call, and what is reported is the median of the ratios of neighboring calls, in
processor seconds as well, which other work on the machine disturbs less. Both must write the same tokens.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
from record import write_results
from torch import Tensor

import vitreous as vt
from vitreous.addons.text.beam_search import greedy

SOURCE = 32  # tokens of each source


def with_cache(model: vt.Transformer, source: Tensor, tokens: int) -> Tensor:
    return greedy(model.text, model.encode(source), max_length=tokens)


def without_cache(model: vt.Transformer, source: Tensor, tokens: int) -> Tensor:
    """Each step reads everything that was written, and the encoder's output, again."""
    memory = model.encode(source)
    ids = torch.full((len(source), 1), model.config.start)
    while ids.shape[1] < tokens:
        logits = model.decode(ids, memory)[:, -1]
        logits[:, list(model.config.never)] = -torch.inf
        ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return ids


def timed(decode: object, model: vt.Transformer, source: Tensor, tokens: int) -> tuple[float, float, Tensor]:
    """Seconds on the clock, seconds of the processor, and what was written."""
    begun = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        ids = decode(model, source, tokens)  # type: ignore[operator]
    return time.perf_counter() - begun[0], time.process_time() - begun[1], ids


def compare(batch: int, tokens: int, rounds: int, threads: int) -> dict[str, object]:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    config = vt.TransformerConfig.base(vocabulary=8000, max_length=256, never=(0, 1, 2))  # it never ends
    model = vt.Transformer(config).eval()
    source = torch.randint(3, 8000, (batch, SOURCE))
    timed(with_cache, model, source, 4)
    clock, processor, rates = [], [], []
    for _ in range(rounds):
        fast, slow = (timed(decode, model, source, tokens) for decode in (with_cache, without_cache))
        assert torch.equal(fast[2], slow[2]), "decoding with the cache wrote something else"
        clock.append(slow[0] / fast[0])
        processor.append(slow[1] / fast[1])
        rates.append(batch * (tokens - 1) / fast[0])
    return {
        "batch": batch,
        "tokens": tokens,
        "faster_with_cache": round(statistics.median(clock), 2),
        "faster_in_processor_seconds": round(statistics.median(processor), 2),
        "tokens_per_second_with_cache": round(statistics.median(rates), 1),
        "threads": threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    arguments = parser.parse_args()
    results = {
        "model": "Transformer base, vocabulary 8000",
        "rows": [
            compare(batch, arguments.tokens, arguments.rounds, threads)
            for threads in arguments.threads
            for batch in arguments.batch
        ],
    }
    write_results(results, arguments.out)


if __name__ == "__main__":
    main()
