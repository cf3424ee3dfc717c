"""A model behind HTTP: an API, batches of what arrives together, and a web page.

opening    from MODEL to what is served: a classifier, a reader, a translator, a segmenter
endpoints  what a served model can be asked, and in which words
batching   requests that arrive together are computed together; a full server says so
uploads    from a request's body to images or texts, within limits
app        the HTTP side; `running` starts and stops it
"""

from importlib.util import find_spec

from vitreous.errors import InputError

NEEDED = ("fastapi", "uvicorn", "python_multipart", "prometheus_client")


def check_installed() -> None:
    """Raises InputError if the extra "serve" is missing."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InputError(f"serving needs {', '.join(missing)}: pip install 'vitreous[serve]'")
