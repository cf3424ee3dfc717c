"""Serving a model over HTTP: an API, dynamic batching, and a web page."""
