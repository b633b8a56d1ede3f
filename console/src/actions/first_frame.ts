/** A checkpoint of any size, without its large values. */
import type { Checkpoint, View } from "@contract/checkpoint_pb.js";
import type { Ref } from "../links.ts";
import { checkpoints } from "../server/calls.ts";

/** Load a checkpoint; a value that does not fit its message is only announced (`large`). */
export async function loadFirst(ref: Ref, view: View, signal: AbortSignal): Promise<Checkpoint> {
  const enough = new AbortController();
  const frames = checkpoints.loadCheckpoint(
    { ref, view },
    { signal: AbortSignal.any([signal, enough.signal]) },
  );
  for await (const { frame } of frames) {
    if (frame.case === "checkpoint") {
      enough.abort(); // only the chunks of the large values would follow
      return frame.value;
    }
  }
  throw new Error("The server sent no checkpoint.");
}
