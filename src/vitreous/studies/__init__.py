"""The paper's experiments, re-made at a scale that runs here."""
