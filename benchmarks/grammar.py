"""A Transformer on the generated sentences with agreement: BLEU, and whether a pronoun finds its noun.

    vitreous translate train grammar --out runs/grammar
    python benchmarks/grammar.py runs/grammar --out benchmarks/results/grammar.json

On the sentences that the run held out: BLEU by sacrebleu, how often the German pronoun is right, and for
each head how often its largest weight is on the noun that decides the pronoun: in the encoder from "its", and
at the step that writes the pronoun in the decoder's attention over the source and over the German words
before it. The head that is best on the first half of the sentences is reported on the second half. Intervals
are Wilson's, 95%.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from record import write_results

import vitreous as vt
from vitreous.addons.text.batches import padded_ids
from vitreous.addons.text.figures import text_attention, token_labels
from vitreous.addons.text.text_pairs import grammar_words
from vitreous.addons.text.tokenizer import END, START
from vitreous.evaluation.scores import wilson_interval

NOUN = 2  # the third word of a source: the old law
FAR = 10  # words between the noun and the pronoun
KINDS = (
    "encoder, from its to its noun",
    "decoder, over the source, from the pronoun's step to the noun",
    "decoder, over what was written, from the pronoun's step to the German noun",
    "decoder, over what was written, from the pronoun's step to the German noun or its article",
)


def word_starts(labels: list[str]) -> list[int]:
    """The first token of each word; a comma is part of the word before it."""
    return [at for at, label in enumerate(labels) if label.startswith("▁")]


def pronoun_of(text: str) -> int:
    """The place of the pronoun among the words of a translation."""
    words = text.split()
    return next((at for at in range(1, len(words)) if words[at - 1] in grammar_words()["join"].values()), 0)


def hits(translator: vt.Translator, source: str, written: list[int], pronoun: int) -> tuple[list[Any], float]:
    """For each of the KINDS, whether the largest weight of each head (layers, heads) is on the noun; and the
    share that even attention of the encoder would have there."""
    read = translator.encode(source)
    maps = text_attention(translator.model, padded_ids([read]), padded_ids([written]))
    starts, places = (word_starts(token_labels(translator.tokenizer, ids)) for ids in (read, written))
    noun = range(starts[NOUN], starts[NOUN + 1])
    its = starts[source.split().index("its")]
    row = places[pronoun] - 1  # the step that wrote it
    article = range(places[0], places[1])
    its_noun = range(places[NOUN], places[NOUN + 1])
    found = [
        np.isin(maps.encoder[:, :, its].argmax(-1).numpy(), noun),
        np.isin(maps.cross[:, :, row].argmax(-1).numpy(), noun),
        np.isin(maps.decoder[:, :, row].argmax(-1).numpy(), its_noun),
        np.isin(maps.decoder[:, :, row].argmax(-1).numpy(), [*article, *its_noun]),
    ]
    return found, len(noun) / len(read)


def best_head(found: np.ndarray, far: np.ndarray) -> dict[str, Any]:
    """The head that is best on the first half, and its share on the second half.

    Args:
        found: (sentences, layers, heads).
        far: (sentences,) whether many words are between noun and pronoun.
    """
    half = len(found) // 2
    layer, head = np.unravel_index(found[:half].mean(0).argmax(), found.shape[1:])
    rows, distant = found[half:, layer, head], far[half:]

    def share(some: np.ndarray) -> dict[str, Any]:
        low, high = wilson_interval(int(some.sum()), len(some))
        return {"share": float(some.mean()), "interval": [low, high], "sentences": len(some)}

    return {
        "layer": int(layer) + 1,
        "head": int(head) + 1,
        **share(rows),
        f"more than {FAR} words apart": share(rows[distant]),
        "all heads, first half": found[:half].mean(0).round(3).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="trained by vitreous translate train grammar")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    parser.add_argument("--note", default="", help="kept with the results: what else the machine was doing")
    arguments = parser.parse_args()
    evaluation = vt.evaluate(arguments.run)
    translator = vt.Translator.load(arguments.run)
    config = json.loads((arguments.run / "model" / "config.json").read_text(encoding="utf-8"))["model"]
    nouns = {noun for nouns in grammar_words()["noun"].values() for noun in nouns}
    found, far, right, chance = list[list[Any]](), [], 0, []
    examples = list(zip(evaluation.names, evaluation.wanted, evaluation.texts, strict=True))
    for source, wanted, text in examples:
        words, place = source.split(), pronoun_of(wanted)
        assert words[NOUN] in nouns
        right += text.split()[place : place + 1] == wanted.split()[place : place + 1]
        # The wanted text is read, so that the attention is that of the right pronoun.
        written = [START, *translator.tokenizer.encode(wanted), END]
        seen, even = hits(translator, source, written, place)
        found.append(seen)
        far.append(words.index("its") - NOUN > FAR)
        chance.append(even)
    results = {
        "command": f"vitreous translate train grammar --out {arguments.run}",
        "model": {name: config[name] for name in ("width", "depth", "encoder_depth", "heads", "mlp_dim")},
        "sentences": len(examples),
        **{name: [each.value, *(each.interval or ())] for name, each in evaluation.metrics.items()},
        "bleu_signature": evaluation.signature,
        "pronoun_right": [right / len(examples), *wilson_interval(right, len(examples))],
        "even attention": float(np.mean(chance)),
        **{
            kind: best_head(np.stack(each), np.array(far))
            for kind, each in zip(KINDS, zip(*found, strict=True), strict=True)
        },
        "note": arguments.note,
    }
    write_results(results, arguments.out, seeds=[0])


if __name__ == "__main__":
    main()
