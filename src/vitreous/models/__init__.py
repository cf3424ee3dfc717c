"""Configuration and assembly: parts become a Vision Transformer, a BiT, the 2017 Transformer."""
