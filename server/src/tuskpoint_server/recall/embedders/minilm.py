"""What MiniLM computes, in numpy: BERT with six layers, the mean of its tokens, of length 1.

The architecture is that of https://arxiv.org/abs/1810.04805 with the sizes of
`sentence-transformers/all-MiniLM-L6-v2` (its `config.json` and `1_Pooling/config.json`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

DIMENSION = 384
MAX_TOKENS = 256
"""Tokens that the model was trained to read (`sentence_bert_config.json`)."""

_LAYERS = 6
_HEADS = 12
_HEAD = DIMENSION // _HEADS
_EPSILON = np.float32(1e-12)
_HIDDEN = np.float32(-1e9)
"""Added to the score of a token that is only there to fill the batch."""


@dataclass(frozen=True, slots=True, eq=False)
class _Linear:
    """A matrix and what is added after it."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        # All tokens of all texts are the rows of one matrix: one product, not one per text.
        rows: Floats = x.reshape(-1, x.shape[-1]) @ self.weight
        rows += self.bias
        return rows.reshape(*x.shape[:-1], -1)


@dataclass(frozen=True, slots=True, eq=False)
class _Norm:
    """Normalises each token to mean 0 and variance 1, then scales and shifts it."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        scaled: Floats = centred / np.sqrt(variance + _EPSILON) * self.weight + self.bias
        return scaled


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """Attention and a feed-forward network, each added to what it was given."""

    attend: _Linear
    attended: _Linear
    attention_norm: _Norm
    widen: _Linear
    narrow: _Linear
    norm: _Norm

    def __call__(self, x: Floats, hidden: Floats) -> Floats:
        x = self.attention_norm(x + self.attended(self._attention(x, hidden)))
        return self.norm(x + self.narrow(_gelu(self.widen(x))))

    def _attention(self, x: Floats, hidden: Floats) -> Floats:
        texts, tokens, _ = x.shape
        split = self.attend(x).reshape(texts, tokens, 3, _HEADS, _HEAD)
        query, key, value = split.transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(-1, -2) / np.float32(_HEAD**0.5) + hidden
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        joined: Floats = (scores @ value).swapaxes(1, 2).reshape(texts, tokens, DIMENSION)
        return joined


class MiniLM:
    """The model.

    Args:
        weights: Tensors by the names that they have in the model's file.
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = (
            weights["embeddings.position_embeddings.weight"][:MAX_TOKENS]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = _norm(weights, "embeddings.LayerNorm")
        self._layers = [_layer(weights, f"encoder.layer.{n}") for n in range(_LAYERS)]

    def __call__(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return a vector of length 1 for each text.

        Args:
            texts: Numbers of tokens, those at both ends included; at most `MAX_TOKENS`.
        """
        longest = max(map(len, texts))
        numbers = np.zeros((len(texts), longest), np.int64)
        mask = np.zeros((len(texts), longest), np.float32)
        for row, text in enumerate(texts):
            numbers[row, : len(text)] = text
            mask[row, : len(text)] = 1
        x = self._norm(self._words[numbers] + self._places[:longest])
        hidden = (1 - mask)[:, None, None, :] * _HIDDEN
        for layer in self._layers:
            x = layer(x, hidden)
        mean = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors: Floats = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors


def _gelu(x: Floats) -> Floats:
    """Return x times the share of a normal distribution below it.

    The error function is formula 7.1.26 of Abramowitz and Stegun, right to 1.5e-7.
    """
    size = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    error: Floats = np.copysign(1 - series * np.exp(-np.square(size)), x)
    return np.float32(0.5) * x * (1 + error)


def _layer(weights: Mapping[str, Floats], name: str) -> _Layer:
    attention = [
        _linear(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
    ]
    return _Layer(
        attend=_Linear(
            np.concatenate([part.weight for part in attention], axis=1),
            np.concatenate([part.bias for part in attention]),
        ),
        attended=_linear(weights, f"{name}.attention.output.dense"),
        attention_norm=_norm(weights, f"{name}.attention.output.LayerNorm"),
        widen=_linear(weights, f"{name}.intermediate.dense"),
        narrow=_linear(weights, f"{name}.output.dense"),
        norm=_norm(weights, f"{name}.output.LayerNorm"),
    )


def _linear(weights: Mapping[str, Floats], name: str) -> _Linear:
    return _Linear(weights[f"{name}.weight"].T, weights[f"{name}.bias"])


def _norm(weights: Mapping[str, Floats], name: str) -> _Norm:
    return _Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])
