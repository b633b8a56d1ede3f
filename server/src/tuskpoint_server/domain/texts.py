"""What a text may be that names or describes something."""

from __future__ import annotations


def text_problem(value: str, maximum: int, *, required: bool = False) -> str:
    """Say what is wrong with a string, or return an empty one.

    Args:
        value: The string.
        maximum: Most bytes of UTF-8.
        required: It must not be empty.
    """
    if not value:
        return "must not be empty" if required else ""
    if len(value) > maximum or (
        not value.isascii() and len(value.encode(errors="surrogatepass")) > maximum
    ):
        return f"must be at most {maximum} bytes of UTF-8"
    if "\0" in value:
        return "must not contain NUL"
    return ""
