"""Text: pairs of sentences, tokenisers, batches of like length."""
