/**
 * The answers that this page gave, as long as nothing else was written to their checkpoint.
 *
 * A task stores all its answers in one list, and the list does not say which question each answer
 * belongs to. So the page replaces the answer of one of several tasks only if the last change of
 * the checkpoint was an answer of the page itself: no task has used the answer since.
 */
import type { Checkpoint } from "@contract/checkpoint_pb.js";

interface OwnAnswers {
  /** Position of the last answer in the thread's sequence. */
  seq: bigint;
  taskIds: Set<string>;
}

const byPlace = new Map<string, OwnAnswers>();

/** Remember the answer to a task, stored at a position of the thread's sequence. */
export function rememberAnswer(place: Checkpoint, taskId: string, seq: bigint): void {
  const before = byPlace.get(keyOf(place));
  // The page may not have read its last answer back yet: then the next position tells the same.
  const isNext = before && (before.seq === place.seq || before.seq + 1n === seq);
  const taskIds = isNext ? before.taskIds : [];
  byPlace.set(keyOf(place), { seq, taskIds: new Set([...taskIds, taskId]) });
}

/** Return whether the answer to a task is this page's own, and nothing was written after it. */
export function isOwnAnswer(place: Checkpoint, taskId: string): boolean {
  const answers = byPlace.get(keyOf(place));
  return answers !== undefined && answers.seq === place.seq && answers.taskIds.has(taskId);
}

function keyOf({ ref }: Checkpoint): string {
  return JSON.stringify([ref?.threadId, ref?.checkpointNs, ref?.checkpointId]);
}
