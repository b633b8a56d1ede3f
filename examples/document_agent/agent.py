"""The document agent: reads a folder of documents and writes a briefing about them.

    survey ─┬─ reader ─┬─┬─ keywords ──────┬─ link ─ group ─ write_section
            ├─ reader ─┤ ├─ statistics ────┤                 (once per theme)
            └─ reader ─┘ └─ key_sentences ─┘                       │
                                                  approve ─ editor ─ publish

`reader` runs once per batch of documents, in parallel. `reader` and `editor` are subgraphs with
steps of their own. `approve` asks a person. There is no model: the whole agent is plain text
analysis, so two runs over the same documents must end in the same state.
"""

import operator
from typing import Annotated, Literal, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send, interrupt

import analysis
from analysis import Keyword, Link, Note, Theme
from execution_log import Settings, logged

BATCH = 6
THEMES = 7
ANSWERS = ("publish", "shorten", "discard")


class Statistics(TypedDict):
    """The corpus in figures."""

    documents: int
    words: int
    sentences: int
    distinct_words: int
    words_per_sentence: float
    reading_minutes: int
    longest: str


class Section(TypedDict):
    """One theme of the briefing, with a few sentences from each document."""

    title: str
    entries: list[dict[str, list[str]]]
    related: list[str]


def merge_notes(old: dict[str, Note], new: dict[str, Note]) -> dict[str, Note]:
    """Collect the notes of parallel readers, in an order that does not depend on their speed."""
    return dict(sorted({**old, **new}.items()))


class Briefing(TypedDict, total=False):
    """The state of the agent: what every checkpoint holds."""

    current_plan: str
    batches: list[list[str]]
    notes: Annotated[dict[str, Note], merge_notes]
    trail: Annotated[list[str], operator.add]
    keywords: dict[str, list[Keyword]]
    statistics: Statistics
    highlights: dict[str, list[str]]
    links: list[Link]
    themes: list[Theme]
    sections: Annotated[list[Section], operator.add]
    decision: str
    briefing: str


class Reading(TypedDict, total=False):
    """The state of one reader: its batch, and what it has made of it so far."""

    batch: list[str]
    texts: dict[str, str]
    sentences: dict[str, list[str]]
    counts: dict[str, dict[str, int]]
    notes: dict[str, Note]
    trail: list[str]


class ReadingResult(TypedDict):
    """What a reader hands back."""

    notes: dict[str, Note]
    trail: list[str]


class Editing(TypedDict, total=False):
    """The state of the editor."""

    notes: dict[str, Note]
    keywords: dict[str, list[Keyword]]
    statistics: Statistics
    sections: list[Section]
    decision: str
    ordered: list[Section]
    index: list[str]
    briefing: str
    trail: list[str]


class EditingResult(TypedDict):
    """What the editor hands back."""

    briefing: str
    trail: list[str]


# The reader, a subgraph: load, split, count, note.


def load(state: Reading, runtime: Runtime[Settings]) -> Reading:
    """Read the files of the batch."""
    with logged(runtime, "reader/load", state["batch"]):
        folder = runtime.context.documents
        return {"texts": {name: (folder / name).read_text("utf-8") for name in state["batch"]}}


def split(state: Reading, runtime: Runtime[Settings]) -> Reading:
    """Cut each text into sentences."""
    with logged(runtime, "reader/split", state["batch"]):
        texts = state["texts"].items()
        return {"sentences": {name: analysis.sentences_of(text) for name, text in texts}}


def count(state: Reading, runtime: Runtime[Settings]) -> Reading:
    """Count the meaningful words."""
    with logged(runtime, "reader/count", state["batch"]):
        sentences = state["sentences"].items()
        return {
            "counts": {
                name: analysis.term_counts(document_sentences)
                for name, document_sentences in sentences
            }
        }


def note(state: Reading, runtime: Runtime[Settings]) -> Reading:
    """Combine the findings into one note per document."""
    with logged(runtime, "reader/note", state["batch"]):
        notes: dict[str, Note] = {
            name: {
                "title": analysis.title_of(state["texts"][name], name),
                "sentences": state["sentences"][name],
                "counts": state["counts"][name],
                "words": sum(
                    len(analysis.words_of(sentence)) for sentence in state["sentences"][name]
                ),
            }
            for name in state["batch"]
        }
        total = sum(note["words"] for note in notes.values())
        return {"notes": notes, "trail": [f"read {len(notes)} documents, {total} words"]}


# The agent's own steps.


def survey(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """List the documents and divide them into batches."""
    names = documents_in(runtime.context)
    with logged(runtime, "survey", names):
        batches = [names[at : at + BATCH] for at in range(0, len(names), BATCH)]
        return {
            "batches": batches,
            "current_plan": f"Read {len(names)} documents in {len(batches)} batches.",
            "trail": [f"found {len(names)} documents"],
        }


def deal(state: Briefing) -> list[Send]:
    """Send each batch to a reader of its own."""
    return [Send("reader", {"batch": batch}) for batch in state["batches"]]


def keywords(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Find the words that distinguish each document (TF-IDF over the whole corpus)."""
    with logged(runtime, "keywords", list(state["notes"]), weight=2):
        weighted = analysis.weights(state["notes"])
        keywords = {name: analysis.top_keywords(terms, 12) for name, terms in weighted.items()}
        return {"keywords": keywords, "trail": ["weighed the keywords"]}


def statistics(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Describe the corpus in figures."""
    notes = state["notes"]
    with logged(runtime, "statistics", list(notes)):
        words = sum(note["words"] for note in notes.values())
        sentences = sum(len(note["sentences"]) for note in notes.values())
        figures: Statistics = {
            "documents": len(notes),
            "words": words,
            "sentences": sentences,
            "distinct_words": len({word for note in notes.values() for word in note["counts"]}),
            "words_per_sentence": round(words / max(sentences, 1), 1),
            "reading_minutes": round(words / 230) or 1,
            "longest": max(sorted(notes), key=lambda name: notes[name]["words"]),
        }
        return {"statistics": figures, "trail": ["drew up the statistics"]}


def key_sentences(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Choose the most informative sentences of each document."""
    notes = state["notes"]
    with logged(runtime, "key_sentences", list(notes), weight=6):
        weighted = analysis.weights(notes)
        highlights = {
            name: analysis.key_sentences(note, weighted[name], 2) for name, note in notes.items()
        }
        return {"highlights": highlights, "trail": ["chose the key sentences"]}


def link(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Find pairs of documents about the same topics."""
    with logged(runtime, "link", list(state["notes"])):
        links = analysis.links_between(state["notes"], 40)
        return {"links": links, "trail": [f"linked {len(links)} pairs of documents"]}


def group(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Gather the documents into themes."""
    with logged(runtime, "group", list(state["notes"])):
        themes = analysis.themes_of(state["notes"], THEMES)
        return {
            "themes": themes,
            "current_plan": f"Write {len(themes)} sections, beginning with {themes[0]['title']}.",
            "trail": [f"grouped the documents into {len(themes)} themes"],
        }


def write_section(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Write the section of the next theme; one super-step each."""
    written = len(state.get("sections", []))
    themes = state["themes"]
    theme = themes[written]
    with logged(runtime, "write_section", theme["documents"], weight=len(theme["documents"]) / 2):
        notes = state["notes"]
        related = [
            " and ".join(notes[name]["title"] for name in link["between"])
            + f" ({', '.join(link['shared'][:3])})"
            for link in state["links"]
            if set(link["between"]) <= set(theme["documents"])
        ]
        section: Section = {
            "title": theme["title"],
            "entries": [{name: state["highlights"][name]} for name in theme["documents"]],
            "related": related[:2],
        }
        themes_left = themes[written + 1 :]
        plan = (
            f"Write {len(themes_left)} more, next {themes_left[0]['title']}."
            if themes_left
            else "Ask for approval."
        )
        return {
            "sections": [section],
            "current_plan": plan,
            "trail": [f"wrote section {written + 1} of {len(themes)}"],
        }


def more_sections(state: Briefing) -> Literal["write_section", "approve"]:
    """Continue until every theme has its section."""
    return "write_section" if len(state["sections"]) < len(state["themes"]) else "approve"


def approve(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Ask a person what to do with the draft; ask again if the answer is none of the choices."""
    with logged(runtime, "approve", list(state["notes"])):
        answer = interrupt(
            {
                "question": "The draft is ready. Publish it?",
                "sections": [section["title"] for section in state["sections"]],
                "answers": list(ANSWERS),
            }
        )
        decision = str(answer).strip().lower()
        if decision not in ANSWERS:
            return {"decision": "", "trail": ["got an answer that is none of the choices"]}
        plan = "Nothing left to do." if decision == "discard" else "Edit the draft and publish it."
        return {"decision": decision, "current_plan": plan, "trail": [f"got the answer {decision}"]}


def after_approval(state: Briefing) -> Literal["editor", "approve", "__end__"]:
    """Edit, ask again, or give up."""
    if not state["decision"]:
        return "approve"
    return "__end__" if state["decision"] == "discard" else "editor"


def publish(state: Briefing, runtime: Runtime[Settings]) -> Briefing:
    """Finish the run."""
    with logged(runtime, "publish", list(state["notes"])):
        length = len(state["briefing"].split())
        return {
            "current_plan": "Nothing left to do.",
            "trail": [f"published a briefing of {length} words"],
        }


# The editor, a subgraph: arrange, shorten, index, compose.


def arrange(state: Editing, runtime: Runtime[Settings]) -> Editing:
    """Put the largest sections first."""
    with logged(runtime, "editor/arrange", list(state["notes"])):
        sections = state["sections"]
        return {
            "ordered": sorted(
                sections, key=lambda section: (-len(section["entries"]), section["title"])
            )
        }


def shorten(state: Editing, runtime: Runtime[Settings]) -> Editing:
    """Keep one sentence per document if the reader asked for less."""
    with logged(runtime, "editor/shorten", list(state["notes"])):
        if state["decision"] != "shorten":
            return {"ordered": state["ordered"]}
        return {
            "ordered": [
                {
                    "title": section["title"],
                    "entries": [
                        {name: sentences[:1] for name, sentences in entry.items()}
                        for entry in section["entries"]
                    ],
                    "related": section["related"][:1],
                }
                for section in state["ordered"]
            ]
        }


def index(state: Editing, runtime: Runtime[Settings]) -> Editing:
    """List the keywords that appear in more than one document."""
    with logged(runtime, "editor/index", list(state["notes"])):
        places: dict[str, list[str]] = {}
        for name, keywords in sorted(state["keywords"].items()):
            for keyword in keywords:
                places.setdefault(keyword["word"], []).append(state["notes"][name]["title"])
        shared = {word: titles for word, titles in sorted(places.items()) if len(titles) > 1}
        return {"index": [f"{word}: {'; '.join(titles)}" for word, titles in shared.items()]}


def compose(state: Editing, runtime: Runtime[Settings]) -> Editing:
    """Write the briefing as Markdown."""
    with logged(runtime, "editor/compose", list(state["notes"])):
        figures = state["statistics"]
        lines = [
            f"# Briefing on {figures['documents']} documents",
            "",
            f"{figures['words']} words in {figures['sentences']} sentences, "
            f"about {figures['reading_minutes']} minutes of reading.",
        ]
        for section in state["ordered"]:
            lines += ["", f"## {section['title']}", ""]
            for entry in section["entries"]:
                for name, sentences in entry.items():
                    title = state["notes"][name]["title"]
                    lines.append(f"- **{title}.** {' '.join(sentences)}")
            lines += [f"- See together: {pair}" for pair in section["related"]]
        lines += ["", "## Words in common", "", *(f"- {line}" for line in state["index"])]
        return {"briefing": "\n".join(lines) + "\n", "trail": ["edited the briefing"]}


# Putting it together.


def documents_in(settings: Settings) -> list[str]:
    """The names of the documents to read, in order; the folder's README is not one of them."""
    return sorted(
        path.name
        for path in settings.documents.iterdir()
        if path.suffix in (".md", ".txt") and path.name != "README.md"
    )


def build_agent(
    checkpointer: BaseCheckpointSaver[str],
) -> CompiledStateGraph[Briefing, Settings, Briefing, Briefing]:
    """The whole agent, keeping its state in the given checkpointer."""
    reader = StateGraph(Reading, Settings, output_schema=ReadingResult)
    reader.add_sequence([load, split, count, note])
    reader.add_edge(START, "load")

    editor = StateGraph(Editing, Settings, output_schema=EditingResult)
    editor.add_sequence([arrange, shorten, index, compose])
    editor.add_edge(START, "arrange")

    graph = StateGraph(Briefing, Settings)
    graph.add_node("survey", survey)
    graph.add_node("reader", reader.compile())
    graph.add_node("keywords", keywords)
    graph.add_node("statistics", statistics)
    graph.add_node("key_sentences", key_sentences)
    graph.add_node("link", link)
    graph.add_node("group", group)
    graph.add_node("write_section", write_section)
    graph.add_node("approve", approve)
    graph.add_node("editor", editor.compile())
    graph.add_node("publish", publish)

    graph.add_edge(START, "survey")
    graph.add_conditional_edges("survey", deal, ["reader"])
    for branch in ("keywords", "statistics", "key_sentences"):
        graph.add_edge("reader", branch)
    graph.add_edge(["keywords", "statistics", "key_sentences"], "link")
    graph.add_edge("link", "group")
    graph.add_edge("group", "write_section")
    graph.add_conditional_edges("write_section", more_sections)
    graph.add_conditional_edges("approve", after_approval)
    graph.add_edge("editor", "publish")
    graph.add_edge("publish", END)
    return graph.compile(checkpointer=checkpointer)
