"""Checkpoints of the formats that `list_formats` names: in, out, and proven equal.

loading   a model from a file or folder of any format, from `https:` or `hf:`, a state dict or a live module
saving    a model into any format that can hold it
formats   a module for each codebase

Nothing is imported here: a training that begins from random weights needs none of the formats.
"""
