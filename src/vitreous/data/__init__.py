"""From where images lie to batches: sources, decoding, augmentation, deterministic loaders."""
