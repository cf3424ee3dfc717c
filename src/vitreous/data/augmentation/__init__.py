"""Data augmentation: image by image, and batch by batch."""
