"""Vectors without a model: hashed words and parts of words.

Texts that share words, or forms of a word, are near; their meaning plays no part. So two
paraphrases without a common word are as distant as any two texts.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

DIMENSION = 1536
"""The dimension of OpenAI's text-embedding-3-small, which MemWal uses."""

MAX_EMBEDDED_BYTES = 8 * 1024
"""MemWal embeds a summary of a longer text; the emulator embeds the first characters."""

Vector = NDArray[np.float32]

_WORD = re.compile(r"\w+")
_ENDINGS = ("ingly", "edly", "ings", "ing", "ies", "ied", "ed", "es", "ly", "s", "e")
_SHORTEST_STEM = 3
_GRAM = 3
_GRAM_WEIGHT = 0.3
_COMMON_WEIGHT = 0.2
_COMMON = """
    a an and are as at be by did do does for from had has have he i in is it its of on or she
    that the their they this to was we were what when where which who why will with
"""
_COMMON_WORDS = frozenset(_COMMON.split())


def embed(text: str) -> Vector:
    """Return the vector of a text: `DIMENSION` numbers, of length 1."""
    beginning = text.encode("utf-8", "replace")[:MAX_EMBEDDED_BYTES].decode("utf-8", "ignore")
    words = Counter(_WORD.findall(beginning.casefold()))
    vector = np.zeros(DIMENSION, np.float32)
    for word, count in (words or Counter([beginning])).items():
        places, weights = _parts(word)
        np.add.at(vector, places, weights * np.float32(count**0.5))
    # Parts can cancel out; a vector of length 0 has no distance.
    length = float(np.linalg.norm(vector))
    if length == 0:
        vector[0] = length = 1.0
    return vector / np.float32(length)


def stem(word: str) -> str:
    """Return a word without a common English ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


@lru_cache(maxsize=50_000)
def _parts(word: str) -> tuple[NDArray[np.intp], Vector]:
    """Return the dimensions that a word adds to, with the amounts."""
    weight = _COMMON_WEIGHT if word in _COMMON_WORDS else 1.0
    padded = f"^{word}$"
    grams = {padded[start : start + _GRAM] for start in range(len(padded) - _GRAM + 1)}
    features = [(f"w:{stem(word)}", weight)]
    features += [(f"g:{gram}", weight * _GRAM_WEIGHT / len(grams) ** 0.5) for gram in sorted(grams)]
    places, weights = [], []
    for feature, amount in features:
        digest = hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        places.append(number % DIMENSION)
        weights.append(amount if number >> 63 else -amount)
    return np.array(places, np.intp), np.array(weights, np.float32)
