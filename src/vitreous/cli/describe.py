"""`vitreous describe MODEL`."""


def describe(model: str, /, *, json: bool = False) -> int:
    """Hm.

    Parameters
    ----------
    model
        name
    """
    print(model)
    return 0
