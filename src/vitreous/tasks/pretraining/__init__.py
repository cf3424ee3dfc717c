"""Self-supervision: objectives that wrap a Vision Transformer from outside and need no labels."""
