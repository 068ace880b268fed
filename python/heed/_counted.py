"""Counts in messages."""


def counted(count: int, one: str, many: str = "") -> str:
    """Returns "1 head" or "2 heads". many: the plural of a noun that takes no s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
