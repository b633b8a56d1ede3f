/** Records of steps: what ran, what comes next, questions, failures and tokens. */

import type {
  Failure as FailureMessage,
  Question as QuestionMessage,
  Step as StepMessage,
} from "../gen/tuskpoint/v1/step_pb.js";

/** A question for a person: an interrupt of a task. */
export interface Question {
  /** ID of the interrupt; empty if the framework gave no ID. */
  readonly interruptId: string;
  /** Node of the task; empty if the server cannot tell. */
  readonly node: string;
  /** Text of the question, at most 1,024 bytes; empty if the server cannot read the value. */
  readonly text: string;
  /** Whether the task has an answer, or ended. */
  readonly answered: boolean;
}

/** The failure of a task. */
export interface Failure {
  /** Node of the task; empty if the server cannot tell. */
  readonly node: string;
  /** Type of the error, such as `TypeError`; empty if the value has no type. */
  readonly type: string;
  /**
   * Message of the error, at most its last 1,024 bytes; empty if the server cannot read the value.
   */
  readonly message: string;
}

/** Tokens that messages report as `usage_metadata`. */
export interface TokenUsage {
  /** Tokens of prompts. */
  readonly inputTokens: bigint;
  /** Tokens of answers. */
  readonly outputTokens: bigint;
}

/** The step that led to a checkpoint, and the tasks that start at the checkpoint. */
export interface StepRecord {
  /** Nodes that ran in the step, sorted. */
  readonly nodes: readonly string[];
  /** Channels that the step changed, sorted. */
  readonly changedChannels: readonly string[];
  /** Nodes that the graph runs next, sorted. */
  readonly nextNodes: readonly string[];
  /** Questions of the tasks that started at the checkpoint, in order. */
  readonly questions: readonly Question[];
  /** Failures of the tasks that started at the checkpoint, in order. */
  readonly failures: readonly Failure[];
  /** Tokens that the messages of the step report; `undefined` if none reports tokens. */
  readonly tokens: TokenUsage | undefined;
}

/** Return a step as a record. */
export function stepRecord(message: StepMessage): StepRecord {
  const { nodes, changedChannels, nextNodes, tokens } = message;
  return {
    nodes,
    changedChannels,
    nextNodes,
    questions: message.questions.map(questionOf),
    failures: message.failures.map(failureOf),
    tokens: tokens && { inputTokens: tokens.inputTokens, outputTokens: tokens.outputTokens },
  };
}

/** Return a question as a record. */
export function questionOf(message: QuestionMessage): Question {
  const { interruptId, node, text, answered } = message;
  return { interruptId, node, text, answered };
}

/** Return a failure as a record. */
export function failureOf(failure: FailureMessage): Failure {
  const { node, type, message } = failure;
  return { node, type, message };
}
