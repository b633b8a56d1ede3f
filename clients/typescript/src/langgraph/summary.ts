/**
 * A sentence about what happened at a checkpoint.
 *
 * The sentence is made from names only: the nodes that ran, the channels that changed, the nodes
 * that come next, and the state's own `current_plan`. Values are neither serialized nor printed for
 * it. The Python saver makes the same sentences.
 */

import type { RunnableConfig } from "@langchain/core/runnables";
import { TASKS } from "@langchain/langgraph-checkpoint";
import type {
  ChannelVersions,
  Checkpoint,
  CheckpointMetadata,
} from "@langchain/langgraph-checkpoint";

import { ordinal } from "./versions.js";

/** Key of `config.configurable` for the summary that a caller gives. */
export const SUMMARY_KEY = "tuskpoint_summary";

/** Most bytes of UTF-8 in a summary, after `tuskpoint.v1.Checkpoint.summary`. */
export const MAX_SUMMARY_BYTES = 1024;

/** Returns a summary: a sentence, "" for none, or `undefined` for the built-in sentence. */
export type Summarize = (
  checkpoint: Checkpoint,
  metadata: CheckpointMetadata,
) => string | undefined;

const PLAN_CHANNEL = "current_plan";
const BRANCH = "branch:to:";
const INTERNAL = ["__", "branch:", "start:", "join:"];
const MAX_NAMES = 8;

/** A checkpoint before its save. */
export interface Saving {
  readonly config: RunnableConfig;
  readonly checkpoint: Checkpoint;
  readonly metadata: CheckpointMetadata;
  readonly newVersions: ChannelVersions;
}

/**
 * Return the summary: the config's summary, else the result of `summarize`, else the built-in
 * sentence.
 *
 * Errors of `summarize` pass through to the caller.
 */
export function summaryOf(saving: Saving, summarize: Summarize | undefined): string {
  const given: unknown = saving.config.configurable?.[SUMMARY_KEY];
  if (typeof given === "string") {
    return bounded(given);
  }
  return bounded(summarize?.(saving.checkpoint, saving.metadata) ?? describe(saving));
}

/** Return the built-in sentence. */
export function describe(saving: Saving): string {
  const { checkpoint, newVersions } = saving;
  const values = checkpoint.channel_values;
  const changed = Object.keys(newVersions).filter((name) => !isInternal(name));
  // A channel of a taken branch changes too, but it is empty afterwards.
  const upcoming = Object.keys(newVersions)
    .filter((name) => name.startsWith(BRANCH) && values[name] !== undefined)
    .map((name) => name.slice(BRANCH.length));
  return [
    happened(saving),
    named("changed", changed.sort()),
    named("next", upcoming.sort()),
    plan(values),
  ]
    .filter((clause) => clause !== "")
    .join("; ");
}

/** Return text on one line, without NUL, cut to the longest summary. */
export function bounded(text: string): string {
  const line = text.replaceAll("\0", " ").trim().replace(/\s+/gu, " ");
  const data = new TextEncoder().encode(line);
  // The streaming mode drops a character that the cut has split.
  return new TextDecoder().decode(data.subarray(0, MAX_SUMMARY_BYTES), { stream: true });
}

/**
 * Return the nodes that ran in the step before a checkpoint.
 *
 * The nodes of a step have seen the newest versions before the step. Nodes started by a `Send` see
 * no version, so their names are missing; the channel of sends, which is new but empty, shows that
 * such nodes ran.
 */
export function tasksRun(checkpoint: Checkpoint, newVersions: ChannelVersions): string[] {
  const made = new Set(Object.values(newVersions).map(ordinal));
  const newest = Math.max(0, ...made);
  // Consumed channels get a version of their own, below the version of the writes.
  const before = made.has(newest - 1) ? newest - 2 : newest - 1;
  if (before < 1) {
    return [];
  }
  const nodes = Object.entries(checkpoint.versions_seen)
    .filter(([node]) => !node.startsWith("__"))
    .filter(([, seen]) => Object.values(seen).some((version) => ordinal(version) === before))
    .map(([node]) => node)
    .sort();
  return Object.hasOwn(newVersions, TASKS) && sends(checkpoint) === 0
    ? [...nodes, "sent tasks"]
    : nodes;
}

function sends(checkpoint: Checkpoint): number {
  const waiting = checkpoint.channel_values[TASKS];
  return Array.isArray(waiting) ? waiting.length : 0;
}

function happened({ config, checkpoint, metadata, newVersions }: Saving): string {
  const where = inside(config.configurable?.["checkpoint_ns"]);
  const when = metadata.step === undefined ? "" : `step ${metadata.step}`;
  const tasks = tasksRun(checkpoint, newVersions);
  const event = eventOf(metadata.source, config.configurable?.["checkpoint_id"], tasks);
  return [where, when, event].filter((part) => part !== "").join(": ");
}

function eventOf(source: string | undefined, parent: unknown, tasks: string[]): string {
  switch (source) {
    case "input":
      return "input received";
    case "update":
      return "state updated from outside";
    case "fork":
      return typeof parent === "string" && parent !== "" ? `forked from ${parent}` : "forked";
    case "loop":
      return tasks.length > 0 ? `${enumerated(tasks)} ran` : "step finished";
    default:
      return "checkpoint saved";
  }
}

/** Return the path of nodes in a namespace such as `planner:<uuid>|critic:<uuid>`. */
function inside(checkpointNs: unknown): string {
  if (typeof checkpointNs !== "string" || checkpointNs === "") {
    return "";
  }
  const nodes = checkpointNs.split("|").map((part) => part.split(":")[0]);
  return `in ${nodes.join("/")}`;
}

function plan(values: Record<string, unknown>): string {
  const stated = values[PLAN_CHANNEL];
  return typeof stated === "string" && stated !== ""
    ? `plan: ${stated.slice(0, MAX_SUMMARY_BYTES)}`
    : "";
}

function named(what: string, names: string[]): string {
  return names.length > 0 ? `${what} ${enumerated(names)}` : "";
}

function enumerated(names: string[]): string {
  const listed = names.slice(0, MAX_NAMES).join(", ");
  const hidden = names.length - MAX_NAMES;
  return hidden > 0 ? `${listed} and ${hidden} more` : listed;
}

function isInternal(name: string): boolean {
  return INTERNAL.some((prefix) => name.startsWith(prefix));
}
