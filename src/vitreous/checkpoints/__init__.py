"""Checkpoints of every published format: in, out, and proven equal."""
