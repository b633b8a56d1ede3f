"""Reading texts in plain Python: sentences, keywords, links, themes.

Every function here is pure and deterministic: the same documents always give the same answer, down
to the order of equal things. That is what lets the demo compare two runs value by value.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypedDict

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
_NO_SENTENCE_END = re.compile(r"(?:\b(?:Mr|Mrs|Dr|St|No|vs|etc|e\.g|i\.e)|\b[A-Z])\.$")

STOPWORDS = frozenset(Path(__file__).with_name("stopwords.txt").read_text("utf-8").split())


class Note(TypedDict):
    """What a reader found in one document."""

    title: str
    sentences: list[str]
    counts: dict[str, int]
    words: int


class Keyword(TypedDict):
    """A word that distinguishes a document from the rest of the corpus."""

    word: str
    weight: float


class Link(TypedDict):
    """Two documents about the same topics."""

    between: list[str]
    shared: list[str]
    strength: float


class Theme(TypedDict):
    """A group of related documents."""

    title: str
    documents: list[str]


def title_of(text: str, fallback: str) -> str:
    """The first Markdown heading, or the fallback."""
    for line in text.splitlines():
        if line.startswith("#"):
            return line.lstrip("# ").strip()
    return fallback


def sentences_of(text: str) -> list[str]:
    """Split prose into sentences; headings are left out, wrapped lines are joined."""
    sentences: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        prose = " ".join(
            line.strip() for line in paragraph.splitlines() if not line.startswith("#")
        )
        pending = ""
        for piece in _SENTENCE_END.split(prose):
            pending = f"{pending} {piece}".strip()
            if pending and not _NO_SENTENCE_END.search(pending):
                sentences.append(pending)
                pending = ""
        if pending:
            sentences.append(pending)
    return sentences


def words_of(text: str) -> list[str]:
    """Every word in lower case, without digits and punctuation."""
    return [word.lower().removesuffix("'s") for word in _WORD.findall(text)]


def term_counts(sentences: Iterable[str]) -> dict[str, int]:
    """How often each meaningful word occurs, in alphabetical order."""
    counts = Counter(
        word
        for sentence in sentences
        for word in words_of(sentence)
        if len(word) > 2 and word not in STOPWORDS
    )
    return dict(sorted(counts.items()))


def fold_plurals(notes: Mapping[str, Note]) -> dict[str, str]:
    """Map each plural to its singular where the corpus contains both."""
    vocabulary = {word for note in notes.values() for word in note["counts"]}
    folds: dict[str, str] = {}
    for word in sorted(vocabulary):
        if not word.endswith("s") or word.endswith("ss"):
            continue
        singulars = [word[:-3] + "y"] if word.endswith("ies") else [word[:-1], word[:-2]]
        matches = [singular for singular in singulars if singular in vocabulary]
        if matches:
            folds[word] = matches[0]
    return folds


def weights(notes: Mapping[str, Note]) -> dict[str, dict[str, float]]:
    """TF-IDF weights of every document, scaled to length one."""
    folds = fold_plurals(notes)
    folded: dict[str, Counter[str]] = {}
    for document in sorted(notes):
        counter: Counter[str] = Counter()
        for word, count in notes[document]["counts"].items():
            counter[folds.get(word, word)] += count
        folded[document] = counter
    spread = Counter(word for counter in folded.values() for word in counter)
    result: dict[str, dict[str, float]] = {}
    for document, counter in folded.items():
        raw = {
            word: (1 + math.log(count)) * math.log((1 + len(notes)) / spread[word])
            for word, count in sorted(counter.items())
        }
        length = math.sqrt(math.fsum(value * value for value in raw.values())) or 1.0
        result[document] = {word: value / length for word, value in raw.items()}
    return result


def top_keywords(weighted: Mapping[str, float], limit: int) -> list[Keyword]:
    """The heaviest words, equal ones in alphabetical order."""
    ranked = sorted(weighted.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [{"word": word, "weight": round(weight, 4)} for word, weight in ranked]


def key_sentences(note: Note, weighted: Mapping[str, float], limit: int) -> list[str]:
    """The sentences that carry most of a document's weight, in the order they were written."""
    scored: list[tuple[float, int]] = []
    for position, sentence in enumerate(note["sentences"]):
        words = words_of(sentence)
        if not 6 <= len(words) <= 45:
            continue
        word_weights = (
            weighted.get(word, weighted.get(word[:-1], 0.0)) for word in dict.fromkeys(words)
        )
        opening = 1.2 if position == 0 else 1.0
        scored.append((opening * math.fsum(word_weights) / math.sqrt(len(words)), position))
    best = sorted(scored, key=lambda item: (-item[0], item[1]))[:limit]
    return [note["sentences"][position] for _, position in sorted(best, key=lambda item: item[1])]


def similarity(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """The cosine between two weighted documents."""
    return math.fsum(weight * right[word] for word, weight in left.items() if word in right)


def links_between(notes: Mapping[str, Note], limit: int) -> list[Link]:
    """The strongest pairs of documents, with the words that join them."""
    weighted = weights(notes)
    links: list[Link] = []
    for left, right in combinations(sorted(weighted), 2):
        products = {
            word: weight * weighted[right][word]
            for word, weight in weighted[left].items()
            if word in weighted[right]
        }
        shared = [keyword["word"] for keyword in top_keywords(products, 4)]
        strength = round(math.fsum(products.values()), 4)
        if shared and strength > 0:
            links.append({"between": [left, right], "shared": shared, "strength": strength})
    links.sort(key=lambda link: (-link["strength"], link["between"]))
    return links[:limit]


def themes_of(notes: Mapping[str, Note], wanted: int) -> list[Theme]:
    """Group documents: join the two most similar groups until the wanted number is left.

    Groups are kept at a readable size, so that one large theme does not swallow the others.
    """
    weighted = weights(notes)
    near = {
        (left, right): similarity(weighted[left], weighted[right])
        for left, right in combinations(sorted(weighted), 2)
    }
    groups = [[document] for document in sorted(notes)]
    largest = math.ceil(len(notes) / max(wanted, 1)) + 2

    def closeness(pair: tuple[list[str], list[str]]) -> float:
        pairs = [near[min(a, b), max(a, b)] for a in pair[0] for b in pair[1]]
        return math.fsum(pairs) / len(pairs)

    while len(groups) > wanted:
        pairs = [pair for pair in combinations(groups, 2) if len(pair[0] + pair[1]) <= largest]
        if not pairs:
            break
        left, right = max(pairs, key=closeness)
        groups = [group for group in groups if group not in (left, right)]
        groups = sorted([*groups, sorted(left + right)])
    return [{"title": _theme_title(group, weighted), "documents": group} for group in groups]


def _theme_title(group: Sequence[str], weighted: Mapping[str, Mapping[str, float]]) -> str:
    total: dict[str, list[float]] = {}
    for document in group:
        for word, weight in weighted[document].items():
            total.setdefault(word, []).append(weight)
    shared = {
        word: math.fsum(parts) * len(parts)
        for word, parts in total.items()
        if len(parts) > 1 or len(group) == 1
    }
    words = [keyword["word"] for keyword in top_keywords(shared, 3)]
    return ", ".join(words).capitalize() or group[0]
