"""Queries and answers of search: words, vectors, and memories in MemWal.

Words are separated as the full-text index separates them: letters, digits and marks make a word,
every other character ends one. So every returned word can be quoted for the index.

MemWal stores only text. A memory is the summary, because that is what MemWal embeds, and a short
opaque token, its pointer. Anyone with a key of the account can write memories, so returned text is
compared with the text that this server would have written.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import sys
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from .model import CheckpointKey

Compare = Callable[[Sequence[tuple[int, bytes]]], Iterable[tuple[int, float]]]
"""Returns the scores of vectors by the numbers of their items."""


class SearchMode(IntEnum):
    """How a search works. The contract defines the numbers."""

    LEXICAL = 1
    VECTOR = 2
    MEMWAL = 3


class Metric(IntEnum):
    """Distance of two vectors. The contract defines the numbers."""

    COSINE = 1
    L2 = 2


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Which checkpoints a search may find."""

    thread_id: str = ""  # only this thread, unless empty
    agent_id: str = ""  # only threads of this agent, unless empty
    filter: Mapping[str, object] = field(default_factory=dict)  # as `state.matches`, typed


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search."""

    text: str = ""  # words to search with; empty with a `vector`
    vector: bytes = b""  # packed vector to search with; empty with a `text`
    scope: SearchScope = SearchScope()
    limit: int = 5
    mode: SearchMode | None = None  # how to search; `None`: the server decides
    metric: Metric = Metric.COSINE


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result."""

    key: CheckpointKey  # the checkpoint existed when the search found it
    summary: str
    content: str  # its searchable text
    metadata: bytes  # a JSON object, as saved
    distance: float  # from the query; smaller is nearer
    truncated: bool = False  # the state has more text than `content`, which is the latest part
    damage: str = ""  # for people: why the result is left out, because its row was changed


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Result of a search."""

    results: tuple[SearchHit, ...]  # nearest first, then damaged results
    mode: SearchMode  # how the search was made
    metric: str  # name of the metric of distances
    unindexed: int = 0  # checkpoints of the tenant that are not indexed yet
    truncated: bool = False  # more results may exist that the search could not read
    fell_back: str = ""  # why the search used another mode than the server's
    dropped: int = 0  # memories that MemWal could not return
    damaged: tuple[str, ...] = ()  # why checkpoints were left out: their rows were changed
    no_vectors: str = ""  # why there is nothing to compare a vector with
    sealed: bool = False  # the index has summaries and no values
    cut: int = 0  # checkpoints that may have been missed: of their text only a part is indexed

    @property
    def sound(self) -> tuple[SearchHit, ...]:
        """The results without damage."""
        return tuple(result for result in self.results if not result.damage)


MAX_WORDS = 64
"""Most words, phrases and identifiers of a query; further parts are dropped."""

MANY_DIGITS = 4  # a number with this many digits is an identifier

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
"""English words that every text has, and the endings after an apostrophe ("didn't")."""

_QUOTES = '"“”„‟«»\N{FULLWIDTH QUOTATION MARK}'
_QUOTED = re.compile(f"[{_QUOTES}]([^{_QUOTES}]*+)[{_QUOTES}]")
"""Text between two double quotes of any style."""

_JOINERS = "-_./:"
"""Characters that join the parts of an identifier: `PAY-1234`, `v1.2.3`, `thread_42`."""

_JOINED = re.compile(rf"[{_JOINERS}]")
_NOT_JOINED = re.compile(rf"[{_JOINERS}]{{2,}}")


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a query, each part in one of the three fields, in lower case."""

    words: tuple[str, ...] = ()  # words that a text should have: the more, the better
    phrases: tuple[str, ...] = ()  # words that must be adjacent in a text
    identifiers: tuple[str, ...] = ()  # words whose parts (`pay-1234`) must be adjacent

    @property
    def empty(self) -> bool:
        """Whether the query has no words."""
        return not (self.words or self.phrases or self.identifiers)

    @property
    def asks_exactly(self) -> bool:
        """Whether the query has exact text: a phrase or an identifier."""
        return bool(self.phrases or self.identifiers)

    def required(self) -> Words:
        """Return the words with each identifier as a phrase, which every result must have."""
        parts = (_phrase(identifier) for identifier in self.identifiers)
        return Words(self.words, _distinct_words((*self.phrases, *parts)))


def analyse(text: str) -> Words:
    """Return the words of a query. Accepts any text; its time is proportional to the length.

    Text in double quotes is a phrase, a word with letters and digits or with `MANY_DIGITS` digits
    an identifier. Stopwords are left out, unless the query has nothing else.
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
    result = Words(
        _distinct_words(word for word in words if word not in STOPWORDS),
        _distinct_words(phrases),
        _distinct_words(identifiers),
    )
    return Words(words=_distinct_words(words)) if result.empty else result


def _tokens(text: str) -> list[str]:
    """Return the words of a text, each with its joined parts."""
    spaced = "".join(c if _is_of_word(c) or c in _JOINERS else " " for c in text.lower())
    whole = _NOT_JOINED.sub(" ", spaced).split()
    return [token for joined in whole if (token := joined.strip(_JOINERS))]


def _phrase(text: str) -> str:
    """Return the words of a text, separated by single spaces."""
    return " ".join("".join(c if _is_of_word(c) else " " for c in text.lower()).split())


def _is_of_word(char: str) -> bool:
    """Return whether a character is part of a word: a letter, a digit, or a mark on a letter."""
    return char.isalnum() or unicodedata.category(char).startswith("M")


def _is_identifier(token: str) -> bool:
    digits = sum(char.isdigit() for char in token)
    return digits >= MANY_DIGITS or (digits > 0 and any(char.isalpha() for char in token))


def _distinct_words(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the first `MAX_WORDS` distinct strings that are not only marks."""
    return tuple(dict.fromkeys(text for text in texts if any(map(str.isalnum, text))))[:MAX_WORDS]


COMPONENT_BYTES = 4


def pack_vector(components: Iterable[float]) -> bytes:
    """Return a vector in its stored form; a component beyond 32 bits becomes infinite."""
    packed = array("f", components)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_vector(vector: bytes) -> list[float]:
    """Return the components of a stored vector."""
    unpacked = array("f")
    unpacked.frombytes(vector)
    if sys.byteorder == "big":
        unpacked.byteswap()
    return unpacked.tolist()


def vector_dimension(vector: bytes) -> int:
    """Return the number of components of a stored vector."""
    return len(vector) // COMPONENT_BYTES


def vector_problem(components: Iterable[float], maximum: int, *, zero_allowed: bool) -> str:
    """Return the problem of a vector of at most `maximum` components; empty if it is valid."""
    values = list(components)
    if not values:
        return "must have components"
    if len(values) > maximum:
        return f"must have at most {maximum} components, not {len(values)}"
    for number, component in enumerate(values):
        if not math.isfinite(component):
            return f"component {number} is {component}, which is not finite"
    if not zero_allowed and not any(values):
        return "must have a component that is not 0: it has no direction"
    return ""


POINTER_BYTES = 16
_MARK = "ckpt:"
_TEXT = re.compile(rf"(?P<summary>[^\n]+) {_MARK}(?P<token>[A-Za-z0-9_-]{{22}})")


class MemoryState(IntEnum):
    """State of a memory."""

    WAITING = 1  # to be sent
    SENT = 3  # accepted: MemWal has a job for it
    DELIVERED = 4  # stored: a recall finds the memory
    REFUSED = 5  # MemWal refused the memory; no more tries


@dataclass(frozen=True, slots=True)
class Memory:
    """A summary for MemWal."""

    number: int  # its row
    tenant: str
    pointer: bytes
    text: str
    state: MemoryState
    unsure: bool  # a call with an unknown outcome may have stored the memory
    attempts: int  # failed attempts
    job_id: str = ""
    due_us: int = 0  # time of the next step
    blob_id: str = ""  # blob in which MemWal stored the memory, if known


def pointer_of(tenant: str, checkpoint_ns: str, checkpoint_id: str) -> bytes:
    """Return the pointer of a checkpoint, 16 bytes, which a recovered server computes again.

    The pointer does not name the thread: forks and copies keep a checkpoint's ID and its memory.
    """
    parts = [text.encode() for text in (tenant, checkpoint_ns, checkpoint_id)]
    content = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hashlib.sha256(b"tuskpoint.pointer\0" + content).digest()[:POINTER_BYTES]


def memory_text(summary: str, pointer: bytes) -> str:
    """Return the text of a memory."""
    token = base64.urlsafe_b64encode(pointer).decode().rstrip("=")
    return f"{one_line(summary)} {_MARK}{token}"


def one_line(summary: str) -> str:
    """Return a summary in the form of a memory: each run of white space becomes one space."""
    return " ".join(summary.split())


def parse_memory(text: str) -> tuple[str, bytes] | None:
    """Return summary and pointer of a memory; `None` if the form is not this server's."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    pointer = base64.urlsafe_b64decode(match["token"] + "==")
    # The last character of a token has unused bits: only one spelling is valid.
    return (match["summary"], pointer) if memory_text(match["summary"], pointer) == text else None
