"""From logits to text: greedy, or the best of several beams (1706.03762, section 6.1).

Each function takes a decoder and the memory it reads, a batch of B rows, and gives ids that begin with the
start token, contain the end token, and are padded after it. Work stops as soon as every row is done.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vitreous.addons.text.config import DecoderConfig
from vitreous.addons.text.layers import DecoderPast
from vitreous.addons.text.transformer import Memory, TextDecoder
from vitreous.errors import InputError


@torch.inference_mode()
def greedy(decoder: TextDecoder, memory: Memory, *, max_length: int) -> Int[Tensor, "B T"]:
    """Return the most probable token at each step, until there are `max_length` tokens with the start
    token."""
    config = decoder.config
    check_length(config, max_length)
    rows, past = memory.context.shape[0], decoder.no_past()
    ids = torch.full((rows, max_length), config.pad, device=memory.context.device)
    ids[:, 0] = config.start
    open_ = torch.ones(rows, dtype=torch.bool, device=ids.device)
    for length in range(1, max_length):
        logits = next_logits(decoder, ids[:, length - 1 : length], memory, past)
        logits = without_forbidden(logits, config, last=length == max_length - 1)
        ids[:, length] = torch.where(open_, logits.argmax(dim=-1), config.pad)
        open_ &= ids[:, length] != config.end
        if not open_.any():
            return ids[:, : length + 1]
    return ids


def without_forbidden(
    scores: Float[Tensor, "R V"], config: DecoderConfig, last: bool
) -> Float[Tensor, "R V"]:
    """Return scores with -inf for tokens that may not be written: some never, and at the `last` position all
    but the end."""
    if config.never:
        scores[:, list(config.never)] = -torch.inf
    if last and config.end_at_limit:
        scores[:] = -torch.inf
        scores[:, config.end] = 0
    return scores


def check_length(config: DecoderConfig, max_length: int) -> None:
    if not 2 <= max_length <= config.max_length:
        raise InputError(
            f"max_length {max_length} is not between 2 and {config.max_length}, the most this model can write"
        )


GNMT = 5  # the offset of its length penalty


class Beams(NamedTuple):
    """Sequences of each row of a batch with their scores, -inf for none: ids (B, N, T), scores (B, N). The
    results of a beam search are best first; a score is the log probability of the sequence divided by
    `length_norm` of its written tokens."""

    ids: Int[Tensor, "B N T"]
    scores: Float[Tensor, "B N"]

    def best_of(self, others: Beams) -> Beams:
        """Return the best of both, as many as before."""
        ids, scores = torch.cat([self.ids, others.ids], dim=1), torch.cat([self.scores, others.scores], dim=1)
        scores, rank = scores.topk(self.scores.shape[1])
        return Beams(pick_beams(ids, rank), scores)


def length_norm(length: int, penalty: float, offset: int) -> float:
    """Return what a log probability is divided by: ((5 + n) / 6) ** penalty in GNMT (arXiv 1609.08144,
    Eq. 14), whose penalty the Transformer's authors use; with an offset of 0, n ** penalty."""
    return float(((offset + length) / (offset + 1)) ** penalty)


def pick_beams(ids: Int[Tensor, "B N T"], rank: Int[Tensor, "B R"]) -> Int[Tensor, "B R T"]:
    """Return for each row of the batch its sequences number rank[row]."""
    return ids.gather(1, rank[..., None].expand(-1, -1, ids.shape[-1]))


@torch.inference_mode()
def beam_search(
    decoder: TextDecoder,
    memory: Memory,
    *,
    max_length: int,
    beams: int = 4,
    length_penalty: float = 0.6,
    length_offset: int = GNMT,
    early_stopping: Literal["first", "likely", "never"] = "likely",
) -> Beams:
    """Return the most probable sequences that a search with `beams` open ends finds.

    A row is done when as many sequences as beams have ended, and ("likely") the best open one, were it to end
    now, would be worse than all of these; "first" does not look at the open ones; "never" takes them at their
    best, at `max_length`. These are False, True and "never" of Hugging Face's `early_stopping`.

    Args:
        length_penalty: exponent of the length that a log probability is divided by; higher favors longer.
        length_offset: that of `length_norm`; 0 for Hugging Face's search.
    """
    config = decoder.config
    check_length(config, max_length)
    rows, device = memory.context.shape[0], memory.context.device
    first_row = torch.arange(rows, device=device)[:, None] * beams
    memory, past = memory.repeat(beams), decoder.no_past()

    ids = torch.full((rows, beams, max_length), config.pad, device=device)
    ids[..., 0] = config.start
    no_scores = torch.full((rows, beams), -torch.inf, device=device)
    ended, running = Beams(ids.clone(), no_scores), Beams(ids, no_scores.clone())
    # All beams are equal at first, so only one of them may go on.
    running.scores[:, 0] = 0
    open_ = torch.ones(rows, 1, dtype=torch.bool, device=device)

    for length in range(1, max_length):
        newest = running.ids[..., length - 1].reshape(-1, 1)
        scores = next_logits(decoder, newest, memory, past).float().log_softmax(dim=-1)
        scores = without_forbidden(scores, config, last=length == max_length - 1)
        # Twice as many candidates as beams: though every beam may end, as many go on.
        candidates, beam = extend_beams(running, scores, length, 2 * beams)
        ends = (candidates.ids[..., length] == config.end) | (length == max_length - 1)
        among_best = torch.arange(2 * beams, device=device) < beams
        done = candidates.scores / length_norm(length, length_penalty, length_offset)
        done = done.masked_fill(~(ends & among_best & open_), -torch.inf)
        ended = ended.best_of(Beams(candidates.ids, done))

        goes_on, rank = candidates.scores.masked_fill(ends, -torch.inf).topk(beams)
        running = Beams(pick_beams(candidates.ids, rank), goes_on)
        came_from = (first_row + beam.gather(1, rank)).flatten()
        # The keys of the context are the same for all beams of a row, and stay.
        for layer in past:
            layer.attention.reorder(came_from)
        best_length = max_length - 1 if early_stopping == "never" and length_penalty > 0 else length
        hope = goes_on[:, :1] / length_norm(best_length, length_penalty, length_offset)
        worst = ended.scores.min(dim=1, keepdim=True).values
        missing = worst == -torch.inf
        open_ &= missing if early_stopping == "first" else missing | (hope > worst)
        if not open_.any():
            break
    used = (ended.ids != config.pad).any(dim=0).any(dim=0).nonzero().max() + 1
    return Beams(ended.ids[..., :used], ended.scores)


def extend_beams(
    running: Beams, scores: Float[Tensor, "R V"], length: int, count: int
) -> tuple[Beams, Int[Tensor, "B C"]]:
    """Return the `count` best continuations of each row of the batch, and the beam that each comes from."""
    rows, beams = running.scores.shape
    vocabulary = scores.shape[-1]
    every = (running.scores[..., None] + scores.view(rows, beams, vocabulary)).flatten(1)
    best, flat = every.topk(count)
    beam = flat // vocabulary
    ids = pick_beams(running.ids, beam)
    ids[..., length] = flat % vocabulary
    return Beams(ids, best), beam


def next_logits(
    decoder: TextDecoder, ids: Int[Tensor, "R T"], memory: Memory, past: list[DecoderPast]
) -> Float[Tensor, "R V"]:
    """Call `decoder.step` with the faster product where there are few rows."""
    with few_rows(ids.numel(), memory.context):
        return decoder.step(ids, memory, past)


FEW_ROWS = 4  # rows; from six on, BLAS takes as long either way round


def few_rows(rows: int, like: Tensor) -> AbstractContextManager[object]:
    """Return `TransposedLinear` where it is faster: for few rows, on a CPU, in float32 as `like`."""
    few = rows <= FEW_ROWS and like.device.type == "cpu" and like.dtype == torch.float32
    return TransposedLinear() if few else nullcontext()


class TransposedLinear(TorchFunctionMode):
    """While it is on, a linear layer of few rows is computed as (W x^T)^T.

    Such a product takes as long as reading W. BLAS reads it at half the speed that the memory has when W is
    the right factor, transposed, and nearly at full speed when it is the left one and there are two columns
    or more: 100 MB of weights took 4.9 ms instead of 6.5 for one row (as a pair), 4.9 instead of 9 for two
    and 7 instead of 9 for four on a core of Zen 4; on two cores 4.2 instead of 9.4 for four.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs and args[0].numel() <= FEW_ROWS * args[0].shape[-1]:
            return transposed_linear(*args)
        return func(*args, **(kwargs or {}))


def transposed_linear(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*B O"]:
    """Return x W^T + b, with W as the left factor."""
    # BLAS is slow with columns that overlap.
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    columns = (rows if len(rows) > 1 else torch.cat([rows, rows])).t()
    product = weight @ columns if bias is None else torch.addmm(bias[:, None], weight, columns)
    return product.t()[: len(rows)].reshape(*x.shape[:-1], len(weight)).contiguous()
