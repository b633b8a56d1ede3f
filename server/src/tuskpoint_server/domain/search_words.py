"""The words of a search: what may stand in a text, and what must.

Words are told apart as the full text tells them: letters, digits and marks make a word,
everything else ends one. So whatever comes out of here can be quoted and handed to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

MOST = 64
"""Most words, most phrases and most identifiers of a query; what comes after them is dropped."""

MANY_DIGITS = 4
"""So many digits make a number an identifier: it is looked for, not counted with."""

STOPWORDS = frozenset(
    """
    a about after again all am an and any are as at be because been before being but by can
    could d did didn do does doesn doing don for from had hadn has hasn have haven having he
    her here hers him his how i if in into is isn it its just ll m me my no nor not of off on
    only or our out over re s same she should shouldn so some such t than that the their them
    then there these they this those through to too under until up ve very was wasn we were
    weren what when where which while who whom whose why will with would wouldn you your
    """.split()  # noqa: SIM905 - a list of a hundred words reads better as text
)
"""English words that are in every text, and what an apostrophe cuts off ("didn't")."""

_QUOTES = '"“”„‟«»\N{FULLWIDTH QUOTATION MARK}'
_QUOTED = re.compile(f"[{_QUOTES}]([^{_QUOTES}]*+)[{_QUOTES}]")
"""Text between two double quotes of any style."""

_JOINERS = "-_./:"
"""What holds the parts of an identifier together: `PAY-1234`, `v1.2.3`, `thread_42`."""

_JOINED = re.compile(rf"[{_JOINERS}]")
_NOT_JOINED = re.compile(rf"[{_JOINERS}]{{2,}}")


@dataclass(frozen=True, slots=True)
class Words:
    """What a query looks for. Each part of its text is in one of the three; all is lower case.

    Attributes:
        words: Words of which a text should have some: the more of them, the better.
        phrases: Words, one space between them, that a text must have next to one another.
        identifiers: Like words, but each may have parts (`pay-1234`): these must stand next
            to one another.
    """

    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to look for."""
        return not (self.words or self.phrases or self.identifiers)

    @property
    def asks_exactly(self) -> bool:
        """Whether it names something that a text has or has not, whatever the text means."""
        return bool(self.phrases or self.identifiers)

    def required(self) -> Words:
        """Return the same with each identifier as a phrase: texts without it are not meant."""
        parts = (_phrase(identifier) for identifier in self.identifiers)
        return Words(self.words, _distinct((*self.phrases, *parts)))


def analyse(text: str) -> Words:
    """Return the words of a query. Any text will do; it takes time in proportion to its length.

    Phrases are what stands in double quotes. Of the rest, a word that mixes letters and
    digits or has at least `MANY_DIGITS` digits is an identifier, with all that is joined to
    it. Stopwords are left out, unless nothing would be left.
    """
    phrases: list[str] = []

    def take(quoted: re.Match[str]) -> str:
        phrases.append(_phrase(quoted[1]))
        return " "

    words: list[str] = []
    identifiers: list[str] = []
    for token in _tokens(_QUOTED.sub(take, text)):
        if _is_identifier(token):
            identifiers.append(token)
        else:
            words.extend(_JOINED.split(token))
    found = Words(
        _distinct(word for word in words if word not in STOPWORDS),
        _distinct(phrases),
        _distinct(identifiers),
    )
    return Words(words=_distinct(words)) if found.empty else found


def _tokens(text: str) -> list[str]:
    """Return the words of a text with what is joined to each."""
    spaced = "".join(
        char if _is_of_word(char) or char in _JOINERS else " " for char in text.lower()
    )
    whole = _NOT_JOINED.sub(" ", spaced).split()
    return [token for joined in whole if (token := joined.strip(_JOINERS))]


def _phrase(text: str) -> str:
    """Return the words of a text, one space between them."""
    return " ".join("".join(c if _is_of_word(c) else " " for c in text.lower()).split())


def _is_of_word(char: str) -> bool:
    """Tell letters, digits and the marks that stand on letters from what is between words."""
    return char.isalnum() or unicodedata.category(char).startswith("M")


def _is_identifier(token: str) -> bool:
    digits = sum(char.isdigit() for char in token)
    return digits >= MANY_DIGITS or (digits > 0 and any(char.isalpha() for char in token))


def _distinct(found: Iterable[str]) -> tuple[str, ...]:
    """Return the first `MOST` strings that hold more than marks, each once."""
    return tuple(dict.fromkeys(one for one in found if any(map(str.isalnum, one))))[:MOST]
