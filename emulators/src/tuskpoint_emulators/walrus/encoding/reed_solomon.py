"""Systematic Reed-Solomon encoding over GF(2^16), bit for bit as Walrus encodes.

The algorithm comes from the Rust crate reed-solomon-simd
(https://github.com/AndersTrier/reed-solomon-simd, MIT and BSD-3-Clause), which comes from
Leopard-RS (https://github.com/catid/leopard, BSD-3-Clause): a field with the polynomial
0x1002D in a Cantor basis, and the additive FFT of Lin, Chung and Han. This is an independent
rendering of it with numpy; the field's basis and the order of the points are what makes the
results equal.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint16]

_BITS = 16
_ORDER = 1 << _BITS
_MODULUS = _ORDER - 1
_POLYNOMIAL = 0x1002D
_CANTOR_BASIS = (
    0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012,
    0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E,
)  # fmt: skip


@cache
def _field() -> tuple[npt.NDArray[np.int64], Words]:
    """Return the tables of logarithms and powers of elements in the Cantor basis.

    The logarithm of zero is chosen so large that the power of any sum with it is zero.
    """
    state = 1
    discrete = np.zeros(_ORDER, dtype=np.int64)
    for exponent in range(_MODULUS):
        discrete[state] = exponent
        state <<= 1
        if state >= _ORDER:
            state ^= _POLYNOMIAL
    polynomial_form = np.zeros(_ORDER, dtype=np.int64)
    for bit, vector in enumerate(_CANTOR_BASIS):
        width = 1 << bit
        polynomial_form[width : 2 * width] = polynomial_form[:width] ^ vector
    log = discrete[polynomial_form]
    log[0] = 2 * _MODULUS
    power = np.zeros(4 * _MODULUS, dtype=np.uint16)
    for element in range(1, _ORDER):
        power[log[element]] = element
    power[_MODULUS : 2 * _MODULUS] = power[:_MODULUS]
    return log, power


def _multiply(left: int, right: int) -> int:
    log, power = _field()
    return int(power[log[left] + log[right]]) if left and right else 0


def _inverse(element: int) -> int:
    log, power = _field()
    return int(power[_MODULUS - log[element]])


@cache
def _skews() -> Words:
    """Return the twiddle factors: element i belongs to the butterfly that ends at i + 1."""
    skews = np.zeros(_ORDER, dtype=np.uint16)
    basis = [1 << bit for bit in range(1, _BITS)]
    for level in range(_BITS - 1):
        first = (1 << level) - 1
        step = 1 << (level + 1)
        for bit in range(level, _BITS - 1):
            span = 1 << (bit + 1)
            skews[first + span : first + 2 * span : step] = (
                skews[first : first + span : step] ^ basis[bit]
            )
        scale = _inverse(_multiply(basis[level], basis[level] ^ 1))
        for bit in range(level + 1, _BITS - 1):
            factor = _multiply(basis[bit] ^ 1, scale)
            basis[bit] = _multiply(basis[bit], factor)
    return skews


def _scaled(words: Words, factor: int) -> Words:
    """Return every word times a factor that is not zero."""
    log, power = _field()
    by_low: Words = power[log[:256] + log[factor]]
    by_high: Words = power[log[::256] + log[factor]]
    if words.size >= _ORDER:
        products: Words = (by_high[:, None] ^ by_low[None, :]).reshape(-1)
        return products.take(words)
    scaled: Words = by_low.take(words & 0xFF) ^ by_high.take(words >> 8)
    return scaled


def _forward(points: Words, delta: int) -> None:
    """Evaluate in place: coefficients to values at the points that begin at `delta`."""
    skews = _skews()
    distance = len(points) // 2
    while distance:
        for start in range(0, len(points), 2 * distance):
            factor = int(skews[start + distance + delta - 1])
            left = points[start : start + distance]
            right = points[start + distance : start + 2 * distance]
            if factor:
                left ^= _scaled(right, factor)
            right ^= left
        distance //= 2


def _backward(points: Words, delta: int) -> None:
    """Interpolate in place: the inverse of `_forward`."""
    skews = _skews()
    distance = 1
    while distance < len(points):
        for start in range(0, len(points), 2 * distance):
            factor = int(skews[start + distance + delta - 1])
            left = points[start : start + distance]
            right = points[start + distance : start + 2 * distance]
            right ^= left
            if factor:
                left ^= _scaled(right, factor)
        distance *= 2


def _padded(words: Words, length: int) -> Words:
    padded = np.zeros((length, words.shape[1]), dtype=np.uint16)
    padded[: len(words)] = words
    return padded


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def recovery(original: Words, count: int) -> Words:
    """Return `count` recovery symbols for the original symbols.

    Args:
        original: A symbol for each row; columns are encoded independently.
        count: Number of recovery symbols, at least 1.
    """
    originals = _power_of_two(len(original))
    recoveries = _power_of_two(count)
    # Equal powers give equal results.
    if originals > recoveries:
        return _high_rate(original, count, recoveries)
    return _low_rate(original, count, originals)


def _high_rate(original: Words, count: int, chunk: int) -> Words:
    """Encode many originals to few recovery symbols: fold the originals, then evaluate once."""
    folded = np.zeros((chunk, original.shape[1]), dtype=np.uint16)
    for start in range(0, len(original), chunk):
        part = _padded(original[start : start + chunk], chunk)
        _backward(part, start + chunk)
        folded ^= part
    _forward(folded, 0)
    return folded[:count]


def _low_rate(original: Words, count: int, chunk: int) -> Words:
    """Encode few originals to many recovery symbols: interpolate once, then evaluate often."""
    coefficients = _padded(original, chunk)
    _backward(coefficients, 0)
    parts = []
    for start in range(0, count, chunk):
        part = coefficients.copy()
        _forward(part, start + chunk)
        parts.append(part)
    return np.concatenate(parts)[:count]
