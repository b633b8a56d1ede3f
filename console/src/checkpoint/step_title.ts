/** What a checkpoint is called: by the nodes that ran, else by what else led to it. Pure. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { oneLine, short } from "../words.ts";
import { metadataOf } from "./describe.ts";

/** What led to a checkpoint of LangGraph if no node ran, by `source` in its metadata. */
const SOURCES = new Map([
  ["input", "Input"],
  ["update", "Update"],
  ["fork", "Fork"],
]);

/**
 * Return the name of a checkpoint: the nodes that ran in the step, else what led to the checkpoint,
 * else the summary, the number of the step, or the ID.
 *
 * @param checkpoint - The checkpoint in `VIEW_STEP`.
 * @param parent - Its parent, if it is known.
 */
export function titleOf(checkpoint: Checkpoint, parent?: Checkpoint): string {
  const { step, summary, ref, lineage } = checkpoint;
  const { source, step: number } = metadataOf(checkpoint);
  if (step && step.nodes.length > 0) {
    return oneLine(step.nodes.join(", "));
  }
  if (step && lineage?.rolledBackFrom) {
    return "Rollback"; // the server's checkpoint, which has the metadata of the earlier step
  }
  // LangGraph counts the steps; another framework may use the word `source` for something else.
  const event = number ? SOURCES.get(source) : undefined;
  const followsInput = number === "0" || (parent && metadataOf(parent).source === "input");
  const starts = source === "loop" && followsInput && step?.changedChannels.length;
  return (
    event ??
    (starts ? "Start" : undefined) ??
    (oneLine(summary) ||
      (number ? `Step ${oneLine(number)}` : oneLine(short(ref?.checkpointId ?? ""))))
  );
}

/** Return the nodes that lead to a subgraph, such as `planner › critic`; empty: the root graph. */
export function graphName(checkpointNs: string): string {
  return checkpointNs
    .split("|")
    .map((part) => oneLine(part.split(":")[0] ?? "", 40))
    .join(" › ");
}
