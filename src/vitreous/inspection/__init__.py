"""What a model sees: attention captured from outside, the paper's figures, reports."""
