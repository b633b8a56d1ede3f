/** Names of checkpoints in the actions: in sentences, and in links. */
import type { Checkpoint, CheckpointRef } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { checkpointLink, type Ref } from "../links.ts";
import { oneLine, short } from "../words.ts";

/** Return the identity of a checkpoint that a call returned. */
export function placeOf(ref: CheckpointRef | undefined): Ref {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = ref ?? {};
  return { threadId, checkpointNs, checkpointId };
}

/** Return the name of a checkpoint in a sentence. */
export function named(checkpoint: Checkpoint): string {
  const id = oneLine(short(placeOf(checkpoint.ref).checkpointId));
  return checkpoint.label
    ? `checkpoint ${id} (“${oneLine(checkpoint.label, 60)}”)`
    : `checkpoint ${id}`;
}

/** Return the name of a thread in a sentence. */
export function namedThread(threadId: string): string {
  return `thread “${oneLine(threadId, 80)}”`;
}

/** Return the latest checkpoint of a namespace; undefined: the thread does not name one. */
export function headOf(thread: Thread | undefined, checkpointNs: string): string | undefined {
  const head =
    thread?.heads.find((one) => one.checkpointNs === checkpointNs)?.checkpointId ??
    (checkpointNs === "" ? thread?.headCheckpointId : undefined);
  return head || undefined;
}

/** Return a link to a checkpoint, for a notice. */
export function linkTo(
  ref: CheckpointRef | undefined,
  text: string,
): { href: string; text: string } {
  return { href: checkpointLink(placeOf(ref)), text };
}
