"""From stored images to batches: sources, decoding, augmentation, deterministic loaders."""
