"""From logits to text: greedy, sampled, or the best of several beams (1706.03762, section 6.1).

Each function takes a decoder and the memory it reads, a batch of B rows, and gives ids that begin with the
start token, contain the end token, and are padded behind it. Work stops as soon as every row is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitreous.errors import InputError
from vitreous.models.sequence_config import DecoderConfig
from vitreous.models.transformer import Memory, TextDecoder


@torch.inference_mode()
def greedy(decoder: TextDecoder, memory: Memory, *, max_length: int) -> Int[Tensor, "B T"]:
    """The likeliest token, again and again, until there are `max_length` tokens with the start token."""
    return one_by_one(decoder, memory, max_length, lambda logits: logits.argmax(dim=-1))


@torch.inference_mode()
def sample(
    decoder: TextDecoder,
    memory: Memory,
    *,
    max_length: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> Int[Tensor, "B T"]:
    """Tokens drawn from softmax(logits / temperature), of which only the `top_k` likeliest, and of these only
    the fewest whose probabilities reach `top_p` (arXiv 1904.09751), take part."""
    if temperature <= 0:
        raise InputError(
            f"temperature {temperature} is not above 0: for the likeliest token, decode greedily"
        )

    def draw(logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        probability = nucleus(logits / temperature, top_k=top_k, top_p=top_p)
        return torch.multinomial(probability, 1, generator=generator)[:, 0]

    return one_by_one(decoder, memory, max_length, draw)


def nucleus(logits: Float[Tensor, "B V"], *, top_k: int | None, top_p: float) -> Float[Tensor, "B V"]:
    """Probabilities after the unlikely tokens are left out; the likeliest always stays."""
    kept, token = logits.sort(dim=-1, descending=True)
    kept = kept.softmax(dim=-1)
    if top_k is not None:
        kept[:, top_k:] = 0
        kept = kept / kept.sum(dim=-1, keepdim=True)
    before = kept.cumsum(dim=-1) - kept
    kept[:, 1:] = kept[:, 1:].masked_fill(before[:, 1:] >= top_p, 0)
    return torch.zeros_like(kept).scatter(-1, token, kept / kept.sum(dim=-1, keepdim=True))


def one_by_one(
    decoder: TextDecoder, memory: Memory, max_length: int, choose: Callable[[Tensor], Tensor]
) -> Int[Tensor, "B T"]:
    """One token for each row and step; `choose` makes it from the logits (B, V)."""
    config = decoder.config
    check_length(config, max_length)
    rows, past = memory.context.shape[0], decoder.no_past()
    ids = torch.full((rows, max_length), config.pad, device=memory.context.device)
    ids[:, 0] = config.start
    open_ = torch.ones(rows, dtype=torch.bool, device=ids.device)
    for length in range(1, max_length):
        logits = decoder.step(ids[:, length - 1 : length], memory, past)
        logits = permitted(logits, config, last=length == max_length - 1)
        ids[:, length] = torch.where(open_, choose(logits), config.pad)
        open_ &= ids[:, length] != config.end
        if not open_.any():
            return ids[:, : length + 1]
    return ids


def permitted(scores: Float[Tensor, "R V"], config: DecoderConfig, last: bool) -> Float[Tensor, "R V"]:
    """-inf for tokens that may not be written: some never, and at the `last` position all but the end."""
    if config.never:
        scores[:, list(config.never)] = -torch.inf
    if last and config.end_at_limit:
        scores[:] = -torch.inf
        scores[:, config.end] = 0
    return scores


def check_length(config: DecoderConfig, max_length: int) -> None:
    if not 2 <= max_length <= config.max_length:
        raise InputError(
            f"max_length {max_length} is not within 2 and {config.max_length}, the most this model can write"
        )


class Beams(NamedTuple):
    """The results of a beam search, best first: ids (B, N, T), and scores (B, N): the log probability of the
    sequence divided by its number of written tokens ** length_penalty."""

    ids: Int[Tensor, "B N T"]
    scores: Float[Tensor, "B N"]


@dataclass
class Hypotheses:
    """As many sequences for each row of the batch as there are beams, with a score each: -inf for none."""

    ids: Int[Tensor, "B N T"]
    scores: Float[Tensor, "B N"]

    def best_of(self, others: Hypotheses) -> Hypotheses:
        """The best of both, as many as before."""
        ids, scores = torch.cat([self.ids, others.ids], dim=1), torch.cat([self.scores, others.scores], dim=1)
        scores, rank = scores.topk(self.scores.shape[1])
        return Hypotheses(pick(ids, rank), scores)


def pick(ids: Int[Tensor, "B N T"], rank: Int[Tensor, "B R"]) -> Int[Tensor, "B R T"]:
    """For each row of the batch, its sequences number rank[row]."""
    return ids.gather(1, rank[..., None].expand(-1, -1, ids.shape[-1]))


@torch.inference_mode()
def beam_search(
    decoder: TextDecoder,
    memory: Memory,
    *,
    max_length: int,
    beams: int = 4,
    length_penalty: float = 0.6,
    early_stopping: Literal["first", "likely", "never"] = "likely",
) -> Beams:
    """The likeliest sequences that a search with `beams` open ends finds.

    A row is done when as many sequences as beams have ended, and ("likely") the best open one, were it to end
    now, would be worse than all of these; "first" does not look at the open ones; "never" takes them at their
    best, at `max_length`. These are False, True and "never" of Hugging Face's `early_stopping`.

    Args:
        length_penalty: exponent of the length that a log probability is divided by; higher favors longer.
    """
    config = decoder.config
    check_length(config, max_length)
    rows, device = memory.context.shape[0], memory.context.device
    first_row = torch.arange(rows, device=device)[:, None] * beams
    memory, past = memory.repeat(beams), decoder.no_past()

    ids = torch.full((rows, beams, max_length), config.pad, device=device)
    ids[..., 0] = config.start
    running = Hypotheses(ids, torch.full((rows, beams), -torch.inf, device=device))
    running.scores[:, 0] = 0  # all beams are equal at first: only one of them may go on
    ended = Hypotheses(ids.clone(), torch.full((rows, beams), -torch.inf, device=device))
    open_ = torch.ones(rows, 1, dtype=torch.bool, device=device)

    for length in range(1, max_length):
        newest = running.ids[..., length - 1].reshape(-1, 1)
        scores = decoder.step(newest, memory, past).float().log_softmax(dim=-1)
        scores = permitted(scores, config, last=length == max_length - 1)
        # Twice as many candidates as beams: though every beam may end, as many go on.
        candidates, beam = extend(running, scores, length, 2 * beams)
        ends = (candidates.ids[..., length] == config.end) | (length == max_length - 1)
        among_best = torch.arange(2 * beams, device=device) < beams
        done = candidates.scores / length**length_penalty
        ended = ended.best_of(
            Hypotheses(candidates.ids, done.masked_fill(~(ends & among_best & open_), -torch.inf))
        )

        goes_on, rank = candidates.scores.masked_fill(ends, -torch.inf).topk(beams)
        running = Hypotheses(pick(candidates.ids, rank), goes_on)
        came_from = (first_row + beam.gather(1, rank)).flatten()
        for layer in past:  # the context's keys are the same for all beams of a row: they stay
            layer.attention.reorder(came_from)
        best_length = max_length - 1 if early_stopping == "never" and length_penalty > 0 else length
        hope = goes_on[:, :1] / best_length**length_penalty
        open_ &= still_open(ended.scores, hope, early_stopping == "first")
        if not open_.any():
            break
    used = (ended.ids != config.pad).any(dim=0).any(dim=0).nonzero().max() + 1
    return Beams(ended.ids[..., :used], ended.scores)


def extend(
    running: Hypotheses, scores: Float[Tensor, "R V"], length: int, count: int
) -> tuple[Hypotheses, Int[Tensor, "B C"]]:
    """The `count` best continuations of each row of the batch, and the beam that each comes from."""
    rows, beams = running.scores.shape
    vocabulary = scores.shape[-1]
    every = (running.scores[..., None] + scores.view(rows, beams, vocabulary)).flatten(1)
    best, flat = every.topk(count)
    beam = flat // vocabulary
    ids = pick(running.ids, beam)
    ids[..., length] = flat % vocabulary
    return Hypotheses(ids, best), beam


def still_open(ended: Float[Tensor, "B N"], hope: Float[Tensor, "B 1"], first: bool) -> Bool[Tensor, "B 1"]:
    """Whether a row may still find something better than the worst of its ended sequences."""
    worst = ended.min(dim=1, keepdim=True).values
    missing = worst == -torch.inf
    return missing if first else missing | (hope > worst)
