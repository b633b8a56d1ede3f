"""Versions of channels: the successor of the current version."""

from __future__ import annotations

import random

_DIGITS = 16


def next_version(current: str | int | float | None) -> str | int | float:
    """Return a version that sorts after `current`, of the same type.

    A thread that started with numbers keeps numbers, because versions of different
    types cannot be compared. Otherwise versions are text: a counter padded to 32 digits, a
    dot, and random digits that distinguish the branches of a fork.

    Raises:
        ValueError: `current` is text in a form without a successor.
    """
    if isinstance(current, int | float):
        return current + 1
    counter = 0 if current is None else int(current.split(".")[0])
    # A version needs no protection against guessing, and the system's randomness costs a system
    # call.
    digits = random.randrange(10**_DIGITS)  # noqa: S311
    version = f"{counter + 1:032}.{digits:0{_DIGITS}}"
    if current is not None and version <= current:
        raise ValueError(
            f"channel version {current!r} is not padded to 32 digits, so no version of this "
            "saver sorts after it; continue the thread with the saver that made it"
        )
    return version
