/** What the timeline needs to know of a checkpoint, read once from the contract's fields. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Failure, Question } from "@contract/step_pb.js";
import { type Entry, metadataOf } from "../../log.ts";

/** How a checkpoint came to be: by a step of the graph, or from outside. */
export type Origin = "step" | "input" | "update" | "copy";

export interface Fact {
  key: string;
  /** Namespace of the graph; empty for the root graph. */
  ns: string;
  id: string;
  /** Key of the preceding checkpoint, or of the checkpoint whose step called the subgraph. */
  parent: string | undefined;
  /** Whether `parent` is the checkpoint whose step called the subgraph. */
  called: boolean;
  /** Time of the save, in milliseconds since the epoch. */
  at: number;
  origin: Origin;
  /** What the checkpoint is called: the nodes that ran, if nodes ran. */
  name: string;
  /** `run_id` of the metadata; empty: unknown. */
  run: string;
  next: readonly string[];
  questions: readonly Question[];
  failures: readonly Failure[];
  isRollback: boolean;
  /** Whether a fork or an adoption started the thread with this checkpoint. */
  isStart: boolean;
}

/** Facts by checkpoint; the page makes a new object for each version of a checkpoint. */
const known = new WeakMap<Checkpoint, Fact>();

export function factOf(entry: Entry): Fact {
  const fact = known.get(entry.checkpoint) ?? read(entry);
  known.set(entry.checkpoint, fact);
  return fact;
}

function read({ checkpoint, checkpointNs, checkpointId, key, parent, aside, title }: Entry): Fact {
  const { createTime, lineage, step } = checkpoint;
  const { source, run_id: run, step: number } = metadataOf(checkpoint);
  const isRollback = Boolean(lineage?.rolledBackFrom);
  return {
    key,
    ns: checkpointNs,
    id: checkpointId,
    parent,
    called: aside,
    at: createTime ? millisecondsOf(createTime) : 0,
    origin: isRollback ? "copy" : originOf(source, number),
    name: title,
    run: typeof run === "string" ? run : "",
    next: step?.nextNodes ?? [],
    questions: step?.questions ?? [],
    failures: step?.failures ?? [],
    isRollback,
    isStart: Boolean(lineage?.forkedFrom || lineage?.adoptedFrom),
  };
}

/** LangGraph counts the steps; another framework may use the word `source` for something else. */
function originOf(source: unknown, step: unknown): Origin {
  if (typeof step !== "number") {
    return "step";
  }
  return source === "input" || source === "update" ? source : source === "fork" ? "copy" : "step";
}

/** Unlike `timestampMs`, with the parts of a millisecond. */
function millisecondsOf({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * 1000 + nanos / 1e6;
}
