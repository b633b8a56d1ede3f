/** The facts of the timeline in words: for the table, the tooltip, and screen readers. */
import { duration, oneLine } from "../../../words.ts";
import { roughly } from "./gaps.ts";
import type { Bar, Row, Tail } from "./layout.ts";
import type { Marks } from "./marks.ts";

const SHORT = 60; // characters of a name

/** Return the name of a lane. */
export function laneName({ kind, name }: Row): string {
  const graph = name ? oneLine(name, SHORT) : "graph";
  return kind === "branch" ? `${graph}, branch` : graph;
}

/** Return the nodes that ran, or how else the checkpoint came to be. */
export function barName({ fact }: Bar): string {
  return oneLine(fact.name, SHORT) || "step";
}

/** Return the duration of a step; empty for a checkpoint that no step led to. */
export function durationOf({ kind, start, end }: Bar): string {
  return kind === "point" ? "" : duration(end - start);
}

/** Return what is to know about a bar besides its nodes and times. */
export function notesOf(bar: Bar, marks: Marks, tail: Tail | undefined): string[] {
  const notes = (marks.get(bar.fact.key) ?? []).map(({ text }) => text);
  if (bar.kind === "wait") {
    notes.unshift("includes the wait for an answer");
  }
  if (bar.torn) {
    const later = roughly(bar.torn.to - bar.torn.from);
    notes.unshift(`run ended before this was saved, continued ${later} later`);
  }
  if (tail && tail.kind !== "failure") {
    notes.push(tailText(tail)); // the mark of a failure has its text
  }
  return notes;
}

/** Return what comes after the last checkpoint of a lane. */
export function tailText({ after: { fact }, kind, isInner }: Tail): string {
  const nodes = oneLine(fact.next.join(", "), SHORT);
  if (kind === "failure") {
    const [first] = fact.failures;
    const named = [first?.node, first?.type].filter(Boolean).join(": ");
    return oneLine(named, SHORT) || "failed";
  }
  if (kind === "question") {
    const open = fact.questions.find(({ answered }) => !answered);
    const text = isInner ? "" : oneLine(open?.text ?? "", SHORT);
    return text || `${nodes || "a node"} asks a person`;
  }
  return `next: ${nodes}`;
}
