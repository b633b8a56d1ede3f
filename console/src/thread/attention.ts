/** What a thread needs a person for: the question that waits, or the failure. Pure. */
import type { Failure, Question } from "@contract/step_pb.js";
import { graphName } from "../checkpoint/step_title.ts";
import { type Entry, keyOf, metadataOf } from "./log.ts";

export interface Attention {
  kind: "question" | "failure";
  /** Nodes that lead to the task, such as `planner › write`; empty: unknown. */
  where: string;
  /** Type of the error; empty for a question, and if the type is unknown. */
  type: string;
  /** The question, or the end of the error's message. */
  text: string;
  /** Number of further open questions, or of further failures, at the checkpoint. */
  others: number;
  /** Checkpoint of the task that asks or failed. */
  place: Entry;
}

function headOf(entries: readonly Entry[]): Entry | undefined {
  return entries.find(({ checkpointNs }) => checkpointNs === "");
}

/** Return whether the questions of the head are answered, so that the run can continue. */
export function isAnswered(entries: readonly Entry[]): boolean {
  const { questions = [], nextNodes = [] } = headOf(entries)?.checkpoint.step ?? {};
  return (
    questions.length > 0 && nextNodes.length > 0 && questions.every(({ answered }) => answered)
  );
}

/** Return what a thread needs a person for, by its checkpoints, newest first. */
export function attentionOf(entries: readonly Entry[]): Attention | undefined {
  const head = headOf(entries);
  const step = head?.checkpoint.step;
  if (!head || !step) {
    return undefined;
  }
  const open = step.questions.filter(({ answered }) => !answered);
  if (open[0]) {
    return questionAt(head, open[0], open.length - 1);
  }
  const [failure] = step.failures;
  if (!failure) {
    return undefined;
  }
  const inner = failureInside(entries, head, failure);
  const others = step.failures.length - 1;
  return inner ? failureAt(inner.place, inner.failure, others) : failureAt(head, failure, others);
}

/**
 * Return the subgraph's checkpoint at which a task failed that made `failure` of `head`; undefined:
 * the failing task was not in a subgraph. The innermost subgraph knows the task.
 */
export function failureInside(
  entries: readonly Entry[],
  head: Entry,
  { type, message }: Failure,
): { place: Entry; failure: Failure } | undefined {
  const seen = new Set<string>([head.checkpointNs]);
  const failed = entries.flatMap((place) => {
    const isNewest = !seen.has(place.checkpointNs);
    seen.add(place.checkpointNs);
    const failure = isNewest && isInside(place, head) ? sameIn(place, type, message) : undefined;
    return failure ? [{ place, failure }] : [];
  });
  return failed.sort((one, other) => depth(other.place) - depth(one.place))[0];
}

/** Return whether a checkpoint is of a subgraph that a task of `head` ran. */
function isInside({ checkpoint }: Entry, { checkpointNs, checkpointId }: Entry): boolean {
  const { parents } = metadataOf(checkpoint);
  return (
    typeof parents === "object" &&
    parents !== null &&
    (parents as Record<string, unknown>)[checkpointNs] === checkpointId
  );
}

/** Errors pass from a subgraph to the graph around the subgraph unchanged. */
function sameIn({ checkpoint }: Entry, type: string, message: string): Failure | undefined {
  return checkpoint.step?.failures.find((one) => one.type === type && one.message === message);
}

function depth({ checkpointNs }: Entry): number {
  return checkpointNs.split("|").length;
}

function questionAt(place: Entry, question: Question, others: number): Attention {
  const { node, text } = question;
  return { kind: "question", where: nodes(place, node), type: "", text, others, place };
}

function failureAt(place: Entry, failure: Failure, others: number): Attention {
  const { node, type, message } = failure;
  return { kind: "failure", where: nodes(place, node), type, text: message, others, place };
}

function nodes({ checkpointNs }: Entry, node: string): string {
  return [graphName(checkpointNs), node].filter(Boolean).join(" › ");
}

/** Return the keys of checkpoints that a later step of the same graph followed. */
export function continuedIn(entries: readonly Entry[]): ReadonlySet<string> {
  return new Set(
    entries.flatMap(({ checkpoint, checkpointNs }) =>
      checkpoint.parentCheckpointId ? [keyOf(checkpointNs, checkpoint.parentCheckpointId)] : [],
    ),
  );
}
