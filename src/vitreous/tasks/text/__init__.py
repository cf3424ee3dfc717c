"""Training what writes text: translators, and readers of images."""
