"""From where pictures lie to batches: sources, decoding, augmentation, deterministic loaders."""
