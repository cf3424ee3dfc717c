"""Text: pairs of sentences, tokenizers, batches of like length."""
