/** Effects of a running task of a graph: what to do once, and its key. */

import { createHash } from "node:crypto";

import type { RunnableConfig } from "@langchain/core/runnables";
import type { SerializerProtocol } from "@langchain/langgraph-checkpoint";

import type { EffectPlan } from "../client/effects/once.js";
import { inputDigest, type EffectOptions, type EffectRecord } from "../client/effects/records.js";
import { InvalidRequest, invalidField, PreconditionFailed } from "../errors.js";
import { threadIdOf } from "./encode.js";

/** Longest wait for the save of a task's checkpoint, which LangGraph.js makes meanwhile. */
const SAVE_WAIT_MS = 10_000;
// LangGraph.js has no public names for these keys.
const TASK_ID = "__pregel_task_id";
const CHECKPOINTER = "__pregel_checkpointer";

/** Options of an effect of a graph. */
export interface SaverEffectOptions extends Omit<EffectOptions, "checkpointId" | "checkpointNs"> {
  /**
   * Key of your own, such as "charge:order-42", for work that the whole thread does once, whatever
   * task does it. Default: the effect belongs to the running task, and needs an `input`.
   */
  readonly key?: string | undefined;
}

/** The checkpoint from which a task runs, and its effect's key. */
interface Task {
  readonly key: string;
  readonly checkpointNs: string;
  readonly checkpointId: string;
}

/**
 * Return the plan of an effect of a running task, or of a thread if a key is given.
 *
 * @throws PreconditionFailed - The config does not belong to a running task that a later run finds.
 * @throws InvalidRequest - The thread, the name or the input is missing.
 */
export async function effectPlan(
  config: RunnableConfig,
  name: string,
  { input, key, ...options }: SaverEffectOptions,
  serde: SerializerProtocol,
): Promise<EffectPlan> {
  const threadId = threadIdOf(config);
  if (threadId === undefined) {
    throw invalidField("thread_id", "the config names no thread; pass the config of the node");
  }
  if (key === undefined && (name === "" || input === undefined)) {
    throw invalidField(
      name === "" ? "name" : "input",
      "without a key, an effect needs a name and the input of the work; pass {} if the work has " +
        "no input",
    );
  }
  const task = key === undefined ? taskOf(config, name) : { key };
  return {
    threadId,
    key: task.key,
    options: {
      ...options,
      ...task,
      name,
      ...(input !== undefined && { inputDigest: await digestOf(input, serde) }),
    },
    saveWaitMs: key === undefined ? SAVE_WAIT_MS : 0,
    encode: async (result) => {
      if (result === undefined) {
        return undefined;
      }
      const [type, data] = await serde.dumpsTyped(result);
      return { type, data };
    },
  };
}

/** Return the result of an effect; `undefined` if there is none. */
export async function resultOf(effect: EffectRecord, serde: SerializerProtocol): Promise<unknown> {
  return effect.resultType === ""
    ? undefined
    : await serde.loadsTyped(effect.resultType, effect.resultData);
}

/**
 * Return the running task of a config.
 *
 * @throws PreconditionFailed - No task runs with this config, or a later run could not find the
 *   task's effects.
 */
function taskOf(config: RunnableConfig, name: string): Task {
  const configurable = config.configurable ?? {};
  const taskId: unknown = configurable[TASK_ID];
  const taskNs = String(configurable["checkpoint_ns"] ?? "");
  const checkpointNs = taskNs.slice(0, Math.max(0, taskNs.lastIndexOf("|")));
  const checkpointId: unknown = configurable["checkpoint_map"]?.[checkpointNs];
  if (typeof taskId !== "string" || typeof checkpointId !== "string") {
    throw noKey(name, "the config does not belong to a running task of a graph");
  }
  if (!configurable[CHECKPOINTER]) {
    throw noKey(name, "the graph has no checkpointer, so another run gives its tasks other IDs");
  }
  return { key: `${taskId}/${name}`, checkpointNs, checkpointId };
}

function noKey(name: string, problem: string): PreconditionFailed {
  return new PreconditionFailed(
    `effect '${name}' cannot have a key of its task: ${problem}; or pass a key of your own for ` +
      'the whole thread, such as key: "charge:order-42"',
    { status: "FAILED_PRECONDITION" },
  );
}

/** Return the digest of an input: of its canonical JSON, or else of the serializer's bytes. */
async function digestOf(input: unknown, serde: SerializerProtocol): Promise<Uint8Array> {
  try {
    return inputDigest(input);
  } catch (error) {
    if (!(error instanceof InvalidRequest)) {
      throw error;
    }
    const [type, data] = await serde.dumpsTyped(input);
    return createHash("sha256").update(`${type}\0`).update(data).digest();
  }
}
