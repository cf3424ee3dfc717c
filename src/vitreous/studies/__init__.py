"""The paper's experiments (arXiv 2010.11929) at a scale that runs here: paper, ours, and what differs."""
