/**
 * Interrupts: the questions that a checkpoint waits for, and their answers.
 *
 * An interrupt is a pending write of a task on the channel `__interrupt__`. Its answer is a pending
 * write on `__resume__`: of no task if only one interrupt waits, else of the task that asks.
 * LangGraph itself stores both this way (`langgraph/pregel/_task_status.py` and `_algo.py`).
 */

import { create } from "@bufbuild/protobuf";

import type { Calls } from "../transport/calls.js";
import type { CallOptions } from "../transport/connection.js";
import { invalidField, PreconditionFailed } from "../errors.js";
import { View } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  SaveWritesRequestSchema,
  type SaveWritesRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import type { Thread } from "../gen/tuskpoint/v1/thread_pb.js";
import { encodeJson, type Json } from "../messages/json.js";
import { CheckpointRecord, type Write } from "../messages/records.js";

const INTERRUPT = "__interrupt__";
const RESUME = "__resume__";
const NO_TASK = "00000000-0000-0000-0000-000000000000";
/**
 * Channels that record what happened to a task. A write to any other channel means that the task
 * ended.
 */
const OF_CONTROL: ReadonlySet<string> = new Set([
  INTERRUPT,
  RESUME,
  "__error__",
  "__error_source_node__",
]);
/** Most interrupts that an error message names. */
const NAMED = 5;

/** The checkpoint whose interrupts are read. */
export interface InterruptOptions extends CallOptions {
  /** Default: the latest checkpoint. */
  readonly checkpointId?: string | undefined;
  /** The namespace. Default: the root, which also lists interrupts that wait in subgraphs. */
  readonly checkpointNs?: string | undefined;
}

/** The interrupt that is answered. */
export interface AnswerOptions extends InterruptOptions {
  /** The interrupt. Default: the only interrupt that waits. */
  readonly interruptId?: string | undefined;
}

/** An interrupt that waits for an answer. */
export interface OpenInterrupt {
  /** ID of the interrupt; empty if the framework gave it no readable ID. */
  readonly interruptId: string;
  /** The question, as the view "json" shows it. */
  readonly value: Json;
  /** The task that asks. */
  readonly taskId: string;
  /** The checkpoint that waits. */
  readonly checkpointId: string;
}

/**
 * Return the interrupts that a checkpoint, read with the view "json", waits for.
 *
 * A task waits until it has written something else, or until another checkpoint follows. An
 * answered interrupt therefore waits until its graph has continued.
 */
export function openInterrupts(record: CheckpointRecord): OpenInterrupt[] {
  const ended = new Set([NO_TASK]);
  for (const { channel, taskId } of record.writes) {
    if (!OF_CONTROL.has(channel)) {
      ended.add(taskId);
    }
  }
  // A task and its caller record the same interrupt; the task asks. The caller's path is a part of
  // the task's path.
  const writes = record.writes
    .filter(({ channel, taskId }) => channel === INTERRUPT && !ended.has(taskId))
    .sort((one, other) => other.taskPath.length - one.taskPath.length);
  const interrupts = new Map<string, OpenInterrupt>();
  for (const interrupt of writes.flatMap((write) => askedBy(write, record.checkpointId))) {
    const key = interrupt.interruptId || `${interrupt.taskId}/${interrupts.size}`;
    if (!interrupts.has(key)) {
      interrupts.set(key, interrupt);
    }
  }
  return [...interrupts.values()];
}

/**
 * Save the answer to an interrupt.
 *
 * @param record - The checkpoint that waits, read with the view "json".
 * @param value - The answer.
 * @throws InvalidRequest - The answer is null, or JSON cannot represent it.
 * @throws PreconditionFailed - The checkpoint waits for no interrupt, not for the named interrupt,
 *   or for several interrupts and the options name none.
 */
export async function answer(
  calls: Calls,
  record: CheckpointRecord,
  value: unknown,
  options: AnswerOptions,
): Promise<void> {
  if (value === null) {
    throw invalidField("value", "null cannot be the answer of an interrupt");
  }
  const data = encodeJson("value", value);
  const waiting = openInterrupts(record);
  const chosen = choose(waiting, record, options.interruptId);
  const request =
    waiting.length === 1
      ? answering(record, NO_TASK, "", data)
      : await answerOfTask(calls, record, chosen, data, options);
  await calls.saveWrites(request, options);
}

function askedBy(write: Write, checkpointId: string): OpenInterrupt[] {
  const shown = write.value as Json;
  const { taskId } = write;
  return (Array.isArray(shown) ? shown : [shown]).map((one) => ({
    ...idAndValue(one),
    taskId,
    checkpointId,
  }));
}

/**
 * Return the ID and value of an interrupt, which LangGraph encodes alike in Python and JavaScript.
 */
function idAndValue(shown: Json): Pick<OpenInterrupt, "interruptId" | "value"> {
  const isObject = typeof shown === "object" && shown !== null && !Array.isArray(shown);
  if (!isObject || !("id" in shown || "value" in shown)) {
    return { interruptId: "", value: shown };
  }
  const { id, value = null } = shown;
  return { interruptId: typeof id === "string" ? id : "", value };
}

/** Return the interrupt to answer. */
function choose(
  waiting: readonly OpenInterrupt[],
  record: CheckpointRecord,
  interruptId: string | undefined,
): OpenInterrupt {
  const [first] = waiting;
  if (first === undefined) {
    const hint = 'listThreads({ state: "interrupted" }) lists the threads that do';
    throw refusal(record, `waits for no answer: ${hint}`);
  }
  const named = waiting.slice(0, NAMED).map((one) => `'${one.interruptId}'`);
  if (interruptId === undefined) {
    if (waiting.length === 1) {
      return first;
    }
    const which = `choose one with interruptId: ${named.join(", ")}`;
    throw refusal(record, `waits for ${waiting.length} answers: ${which}`);
  }
  const chosen = waiting.find((one) => one.interruptId === interruptId);
  if (chosen === undefined) {
    const others = named.join(", ");
    throw refusal(record, `does not wait for an answer to '${interruptId}', but to ${others}`);
  }
  return chosen;
}

/**
 * Return the request that answers one of several interrupts.
 *
 * The answer goes to the task that asks. If that task is in a subgraph, the task that waits here
 * runs the subgraph, and the asking task is in the subgraph's own namespace.
 */
async function answerOfTask(
  calls: Calls,
  record: CheckpointRecord,
  chosen: OpenInterrupt,
  data: Uint8Array,
  options: CallOptions,
): Promise<SaveWritesRequest> {
  const { place, asking } = await placeOf(calls, record, chosen, options);
  const written = new Map(
    place.writes.filter((one) => one.taskId === asking.taskId).map((one) => [one.channel, one]),
  );
  if (written.has(RESUME)) {
    throw refusal(
      record,
      `has an answer to '${chosen.interruptId}' already and waits for others: ` +
        "invoke the graph, or answer there with new Command({ resume: { id: value } })",
    );
  }
  const list = Buffer.concat([Buffer.from("["), data, Buffer.from("]")]);
  return answering(place, asking.taskId, written.get(INTERRUPT)?.taskPath ?? "", list);
}

/** Return the checkpoint at which an interrupt is asked: this checkpoint, or a subgraph's. */
async function placeOf(
  calls: Calls,
  record: CheckpointRecord,
  chosen: OpenInterrupt,
  options: CallOptions,
): Promise<{ place: CheckpointRecord; asking: OpenInterrupt }> {
  const { threadId, checkpointNs } = record;
  const { thread } = await calls.connection.raw.threads.getThread({ threadId }, options);
  for (const head of innerHeads(thread, checkpointNs, chosen.taskId)) {
    const ref = { threadId, checkpointNs: head.checkpointNs, checkpointId: head.checkpointId };
    const { signal, timeoutMs } = options;
    const inner = await calls.getCheckpoint(ref, { signal, timeoutMs, view: View.JSON });
    const place = inner && new CheckpointRecord(inner);
    const asking = place && openInterrupts(place).find(isSame(chosen));
    if (place !== undefined && asking !== undefined) {
      return { place, asking };
    }
  }
  return { place: record, asking: chosen };
}

function isSame(chosen: OpenInterrupt): (one: OpenInterrupt) => boolean {
  return (one) => one.interruptId === chosen.interruptId;
}

/**
 * Return the latest checkpoints of the namespaces that a task may have asked in, innermost first.
 *
 * A subgraph's namespace is its parent's namespace, a "|", and the name of the node that runs the
 * subgraph. A ":" and the ID of that node's task follow unless the subgraph has memory across
 * calls.
 */
function innerHeads(
  thread: Thread | undefined,
  checkpointNs: string,
  taskId: string,
): Thread["heads"] {
  const outer = checkpointNs === "" ? "" : `${checkpointNs}|`;
  const depth = (namespace: string) => namespace.split("|").length;
  return (thread?.heads ?? [])
    .filter((head) => {
      const isInner = head.checkpointNs.startsWith(outer) && head.checkpointNs !== "";
      const first = head.checkpointNs.slice(outer.length).split("|")[0] ?? "";
      return isInner && (first.endsWith(`:${taskId}`) || !first.includes(":"));
    })
    .sort((one, other) => depth(other.checkpointNs) - depth(one.checkpointNs));
}

function answering(
  record: CheckpointRecord,
  taskId: string,
  taskPath: string,
  data: Uint8Array,
): SaveWritesRequest {
  const { threadId, checkpointNs, checkpointId } = record;
  const content = { case: "value" as const, value: { type: "json", data } };
  return create(SaveWritesRequestSchema, {
    ref: { threadId, checkpointNs, checkpointId },
    writes: [{ taskId, taskPath, channel: RESUME, content }],
  });
}

function refusal(record: CheckpointRecord, problem: string): PreconditionFailed {
  const { threadId, checkpointNs, checkpointId } = record;
  const where = checkpointNs === "" ? "" : ` in namespace '${checkpointNs}'`;
  return new PreconditionFailed(
    `checkpoint '${checkpointId}' of thread '${threadId}'${where} ${problem}`,
    {
      status: "FAILED_PRECONDITION",
      metadata: {
        thread_id: threadId,
        checkpoint_ns: checkpointNs,
        checkpoint_id: checkpointId,
      },
    },
  );
}
