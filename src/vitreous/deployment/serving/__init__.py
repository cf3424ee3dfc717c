"""Serving a model over HTTP: an API, dynamic batching, and a web page.

endpoints  what a served model can be asked; classifying, segmenting, writing: the models of each kind
batching   requests that arrive together are computed together; a full server says so
uploads    from a request's body to images or texts, within limits
app        the HTTP side; `running` starts and stops it
"""

from vitreous.errors import require_packages

NEEDED = "fastapi", "uvicorn", "python_multipart", "prometheus_client", "matplotlib"


def check_installed() -> None:
    """Raises InputError if the extra "serve" is missing."""
    require_packages(*NEEDED, extra="serve", what="serving")
