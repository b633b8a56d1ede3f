/**
 * Questions that a checkpoint waits for, and the writes that answer them.
 *
 * A question is a pending write of a task on the channel `__interrupt__`. Its answer is a pending
 * write on `__resume__`: of no task if only one question is open, else of the task that asks.
 * LangGraph itself stores both in this form, and docs/json-view.md describes it.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { SaveWritesRequestSchema } from "@contract/checkpoint_service_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import type { PendingWrite } from "@contract/value_pb.js";
import type { Json } from "../../parts/json/json_tree.tsx";

export const NO_TASK = "00000000-0000-0000-0000-000000000000";
const INTERRUPT = "__interrupt__";
const RESUME = "__resume__";
/** Channels with the state of a task. A write to any other channel means that the task ended. */
const OF_CONTROL = new Set([INTERRUPT, RESUME, "__error__", "__error_source_node__"]);

/** A question that waits for an answer. */
export interface Question {
  /** ID of the question; empty if the framework gave it no readable ID. */
  id: string;
  /** The question in the JSON view; undefined: it is too large to be shown. */
  value: Json | undefined;
  /** JSON schema of the answer, if the graph gave one. */
  schema: Json | undefined;
  /** The task that asks. */
  taskId: string;
  /** Position of the task in the graph. */
  taskPath: string;
}

/**
 * Return the questions that wait in a checkpoint, read in the JSON view.
 *
 * A task waits until it has written something else or another checkpoint follows, so an answered
 * task waits until its graph has continued.
 */
export function openQuestions(checkpoint: Checkpoint): Question[] {
  const ended = new Set([NO_TASK]);
  for (const { channel, taskId } of checkpoint.writes) {
    if (!OF_CONTROL.has(channel)) {
      ended.add(taskId);
    }
  }
  const questions = new Map<string, Question>();
  // A task and its caller, whose path is a prefix, both have the question; the called task asks.
  const writes = checkpoint.writes
    .filter(({ channel, taskId }) => channel === INTERRUPT && !ended.has(taskId))
    .sort((one, other) => other.taskPath.length - one.taskPath.length);
  for (const question of writes.flatMap(questionsOf)) {
    const key = question.id || `${question.taskId}/${questions.size}`;
    if (!questions.has(key)) {
      questions.set(key, question);
    }
  }
  return [...questions.values()];
}

/** Return the JSON of a write; undefined: the server's answer left it out. */
export function jsonOf(write: PendingWrite): Json | undefined {
  return write.content.case === "value"
    ? (JSON.parse(new TextDecoder().decode(write.content.value.data)) as Json)
    : undefined;
}

function questionsOf(write: PendingWrite): Question[] {
  const { taskId, taskPath } = write;
  const shown = jsonOf(write);
  return (Array.isArray(shown) ? shown : [shown]).map((one) => {
    const interrupt = typeof one === "object" && one !== null && !Array.isArray(one) ? one : {};
    if (!("id" in interrupt || "value" in interrupt)) {
      return { id: "", value: one, schema: undefined, taskId, taskPath };
    }
    const { id, value = null, response_schema: schema } = interrupt;
    return {
      id: typeof id === "string" ? id : "",
      value,
      schema: schema ?? undefined,
      taskId,
      taskPath,
    };
  });
}

/** A stored answer. */
export interface Answer {
  value: Json | undefined;
  /** Whether the answer can be replaced, because the graph has not continued. */
  replaceable: boolean;
}

/**
 * Return the stored answer to a question; undefined: the question is open.
 *
 * The checkpoint does not record whether the question or the answer of one task came first. If this
 * checkpoint is the head of a thread that is still interrupted, and no other question is asked, the
 * question is newer.
 *
 * @param place - The checkpoint at which the task asks.
 * @param several - Whether more than one question waits.
 * @param stillWaits - Whether the thread waits for an answer at this checkpoint, according to the
 *   server.
 */
export function storedAnswer(
  place: Checkpoint,
  question: Question,
  several: boolean,
  stillWaits: boolean,
): Answer | undefined {
  const answers = new Map(
    place.writes.filter((one) => one.channel === RESUME).map((one) => [one.taskId, one]),
  );
  const own = answers.get(question.taskId);
  if (several) {
    return own && { value: lastOf(jsonOf(own)), replaceable: false };
  }
  const toAll = answers.get(NO_TASK);
  if (stillWaits || !(own || toAll)) {
    return undefined;
  }
  const value = toAll ? jsonOf(toAll) : lastOf(own && jsonOf(own));
  return { value, replaceable: true };
}

/** A task has a list of all its answers. */
function lastOf(answers: Json | undefined): Json | undefined {
  return Array.isArray(answers) ? answers.at(-1) : answers;
}

/**
 * Return the namespaces in which a task may ask, innermost first, and their latest checkpoints.
 *
 * A subgraph's namespace is its parent's namespace, a "|", and the name of the node that runs the
 * subgraph. A ":" and the ID of that node's task follow, unless the subgraph keeps its state
 * between calls.
 */
export function innerHeads(
  thread: Thread | undefined,
  checkpointNs: string,
  taskId: string,
): Thread["heads"] {
  const outer = checkpointNs === "" ? "" : `${checkpointNs}|`;
  const depth = (namespace: string) => namespace.split("|").length;
  return (thread?.heads ?? [])
    .filter((head) => {
      const inner = head.checkpointNs !== "" && head.checkpointNs.startsWith(outer);
      const first = head.checkpointNs.slice(outer.length).split("|")[0] ?? "";
      return inner && (first.endsWith(`:${taskId}`) || !first.includes(":"));
    })
    .sort((one, other) => depth(other.checkpointNs) - depth(one.checkpointNs));
}

/**
 * Return the request that saves an answer.
 *
 * @param place - The checkpoint at which the task asks.
 * @param several - Whether more than one question waits: the answer then goes to the task, in a
 *   list.
 * @param answer - JSON text; not `null`, which LangGraph does not accept as an answer.
 */
export function answerRequest(
  place: Checkpoint,
  question: Question,
  several: boolean,
  answer: string,
): MessageInitShape<typeof SaveWritesRequestSchema> {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = place.ref ?? {};
  const data = new TextEncoder().encode(several ? `[${answer}]` : answer);
  const write = {
    taskId: several ? question.taskId : NO_TASK,
    taskPath: several ? question.taskPath : "",
    channel: RESUME,
    content: { case: "value" as const, value: { type: "json", data } },
  };
  return { ref: { threadId, checkpointNs, checkpointId }, writes: [write] };
}
