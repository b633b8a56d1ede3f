/** A checkpoint in words: its metadata, its lineage, its tasks. Pure. */
import type { Checkpoint, Lineage } from "@contract/checkpoint_pb.js";
import type { PendingWrite } from "@contract/value_pb.js";
import type { Ref } from "../links.ts";
import type { Json } from "../parts/json/json.ts";
import { short } from "../words.ts";
import { dataOf, type Parsed, parsed } from "./values.ts";

export interface Metadata {
  /** The whole metadata; `{}` if the checkpoint has none. */
  whole: Parsed;
  source: string;
  step: string;
  runId: string;
}

export function metadataOf({ metadataJson }: Checkpoint): Metadata {
  const whole = metadataJson.length > 0 ? parsed(metadataJson) : { json: {} };
  const json = "json" in whole ? whole.json : null;
  const members = json && typeof json === "object" && !Array.isArray(json) ? json : {};
  const member = (name: string): string => {
    const value = (members as { [key: string]: Json })[name];
    return typeof value === "string" || typeof value === "number" ? String(value) : "";
  };
  return { whole, source: member("source"), step: member("step"), runId: member("run_id") };
}

const ORIGINS: [keyof Lineage, string][] = [
  ["forkedFrom", "forked from"],
  ["rolledBackFrom", "rolled back to"],
  ["adoptedFrom", "adopted from"],
];

export interface Origin {
  words: string;
  from: Ref;
  /** Whether `from` may be on another server. */
  isForeign: boolean;
}

/** Return the origins of a checkpoint besides its parent. */
export function originsOf({ lineage, ref }: Checkpoint): Origin[] {
  return ORIGINS.flatMap(([field, words]) => {
    const text = lineage?.[field];
    if (typeof text !== "string" || !text) {
      return [];
    }
    // A thread's ID may have colons; checkpoints' IDs rarely do.
    const colon = text.lastIndexOf(":");
    const from = {
      threadId: text.slice(0, colon),
      checkpointNs: ref?.checkpointNs ?? "",
      checkpointId: text.slice(colon + 1),
    };
    return [{ words, from, isForeign: field === "adoptedFrom" }];
  });
}

/** The writes of one task, in order. */
export interface Task {
  taskId: string;
  name: string;
  writes: PendingWrite[];
}

const NOBODY = "00000000-0000-0000-0000-000000000000";

export function tasksOf(writes: PendingWrite[], sends: readonly string[] = []): Task[] {
  const tasks = new Map<string, Task>();
  for (const write of writes) {
    const { taskId, taskPath } = write;
    const key = JSON.stringify([taskPath, taskId]);
    const task = tasks.get(key) ?? { taskId, name: taskName(taskId, taskPath, sends), writes: [] };
    task.writes.push(write);
    tasks.set(key, task);
  }
  return [...tasks.values()];
}

/**
 * Return the node that a task runs, from LangGraph's path of the task, or else the known parts.
 *
 * The path of a task that a node sent has only its position in `sends`.
 */
export function taskName(taskId: string, taskPath: string, sends: readonly string[] = []): string {
  if (taskId === NOBODY) {
    return "An answer for the whole graph";
  }
  const [, node] = /^~__pregel_pull, (.+)$/s.exec(taskPath) ?? [];
  if (node) {
    return node;
  }
  if (taskPath.startsWith("~__pregel_push")) {
    const [, position] = /^~__pregel_push, (\d+)\b/.exec(taskPath) ?? [];
    return sends[Number(position)] || "a parallel task";
  }
  return short(taskId);
}

/** Return the nodes of the tasks that the step before the checkpoint sent, in their order. */
export function sendsOf({ state }: Checkpoint): string[] {
  const channel = state?.channels.find(({ name }) => name === "__pregel_tasks");
  const data = channel && dataOf(channel);
  const value = data ? parsed(data) : { json: null };
  const sends = "json" in value && Array.isArray(value.json) ? value.json : [];
  return sends.map((send) => {
    const node = send !== null && typeof send === "object" && !Array.isArray(send) && send["node"];
    return typeof node === "string" ? node : "";
  });
}

const SPECIAL: Record<string, string> = {
  __error__: "the task failed",
  __interrupt__: "the task asks a person",
  __resume__: "the answer to the task",
  __scheduled__: "the task was scheduled",
  __no_writes__: "the task ended and wrote nothing",
  __return__: "what the task returned",
  __pregel_tasks: "tasks to run next",
};

/** Return the meaning of a write on a special channel; empty for ordinary channels. */
export function meaningOf(channel: string): string {
  return Object.hasOwn(SPECIAL, channel) ? (SPECIAL[channel] ?? "") : "";
}

/** Channels that LangGraph uses to go from node to node: no agent writes them itself. */
const OWN = /^(__.+__|__pregel_.+|branch:.+|join:.+|start:.+)$/s;

export function isOfFramework(channel: string): boolean {
  return OWN.test(channel);
}

/** Return whether a task of the checkpoint asks a person. */
export function asks(writes: PendingWrite[]): boolean {
  return writes.some(({ channel }) => channel === "__interrupt__");
}
