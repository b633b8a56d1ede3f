/** Checkpoints as the actions name them: in sentences, in links, and for a program. */
import type { Checkpoint, CheckpointRef } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { checkpointLink, type Ref } from "../links.ts";
import { oneLine, short } from "../words.ts";

/** The place of a checkpoint that a call returned. */
export function placeOf(ref: CheckpointRef | undefined): Ref {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = ref ?? {};
  return { threadId, checkpointNs, checkpointId };
}

/** A checkpoint in a sentence. */
export function named(checkpoint: Checkpoint): string {
  const id = oneLine(short(placeOf(checkpoint.ref).checkpointId));
  return checkpoint.label
    ? `checkpoint ${id} (“${oneLine(checkpoint.label, 60)}”)`
    : `checkpoint ${id}`;
}

/** A thread in a sentence. */
export function namedThread(threadId: string): string {
  return `thread “${oneLine(threadId, 80)}”`;
}

/** The latest checkpoint of a namespace, as the thread says; undefined: it does not say. */
export function headOf(thread: Thread | undefined, checkpointNs: string): string | undefined {
  const head =
    thread?.heads.find((one) => one.checkpointNs === checkpointNs)?.checkpointId ??
    (checkpointNs === "" ? thread?.headCheckpointId : undefined);
  return head || undefined;
}

/** A link to a checkpoint, for a notice. */
export function linkTo(
  ref: CheckpointRef | undefined,
  text: string,
): { href: string; text: string } {
  return { href: checkpointLink(placeOf(ref)), text };
}

/** Python that continues a graph: from its head, or from one checkpoint. */
export function continueCode(threadId: string, checkpointId = ""): string {
  const configurable = checkpointId
    ? { thread_id: threadId, checkpoint_id: checkpointId }
    : { thread_id: threadId };
  const members = Object.entries(configurable)
    .map(([key, text]) => `"${key}": ${JSON.stringify(text)}`)
    .join(", ");
  return `graph.invoke(None, {"configurable": {${members}}})`;
}
