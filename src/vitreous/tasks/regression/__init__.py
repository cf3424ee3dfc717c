"""Image regression: one number for each image."""
