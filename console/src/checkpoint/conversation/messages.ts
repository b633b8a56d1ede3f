/** Converts the frameworks' messages of a conversation to one form. Pure. */
import { isObject, type Json, type JsonObject, unescaped } from "../../parts/json/json.ts";
import { deltaOf, merged } from "./delta.ts";
import { modelOf, type Usage, usageOf } from "./usage.ts";

export interface Message {
  /** The speaker: `human`, `assistant`, `system`, `tool`, or the framework's own name. */
  role: string;
  name: string;
  blocks: Block[];
  calls: ToolCall[];
  /** What tools returned, each for a call. */
  results: ToolResult[];
  /** ID of the message; empty: it has none. */
  id: string;
  /** The model that made the message; empty: not told. */
  model: string;
  /** The tokens of the message; undefined: not told. */
  usage: Usage | undefined;
}

export type Block =
  | { kind: "text" | "reasoning"; text: string }
  /** Content that is not text: an image, a file. */
  | { kind: "media"; text: string }
  | { kind: "data"; value: Json };

export interface ToolCall {
  id: string;
  name: string;
  /** The arguments; text if they could not be parsed. */
  args: Json;
  /** Why the framework rejected the call; empty: it did not. */
  problem: string;
}

export interface ToolResult {
  /** ID of the call that is answered. */
  callId: string;
  /** Name of the tool; empty: not told. */
  name: string;
  blocks: Block[];
  failed: boolean;
}

const ROLES: Record<string, string> = {
  ai: "assistant",
  model: "assistant",
  user: "human",
  developer: "system",
  function: "tool",
};

const CLASSES = /^(Human|AI|System|Tool|Function|Chat|Remove)Message(Chunk)?$/;
const CONSIDERED = 50; // items of a list that are checked to recognize a conversation

/** Return the messages in a value of the JSON view; undefined if the value has none. */
export function messagesOf(value: Json): Message[] | undefined {
  const delta = deltaOf(value);
  const base = itemsOf(delta ? delta.base : value);
  const items = delta ? [...base, ...delta.written] : base;
  const first = items.slice(0, CONSIDERED);
  const known = first.filter((item) => messageOf(item) !== undefined).length;
  if (known === 0 || known * 2 < first.length) {
    return undefined;
  }
  const messages = items.map((item) => messageOf(item) ?? unknown(item));
  const start = base.length;
  return delta ? merged(messages.slice(0, start), messages.slice(start)) : messages;
}

function itemsOf(value: Json): Json[] {
  if (Array.isArray(value)) {
    return value;
  }
  if (!isObject(value)) {
    return [];
  }
  const { $type, type, value: stored } = value;
  const isSnapshot = text($type).endsWith("_DeltaSnapshot") || type === "delta_snapshot";
  if (isSnapshot && stored !== undefined) {
    return itemsOf(stored);
  }
  const inner = value["messages"];
  return Array.isArray(inner) ? inner : [value];
}

/** Return one message in any of the known forms; undefined if the item is not a message. */
export function messageOf(item: Json): Message | undefined {
  if (!isObject(item)) {
    return undefined;
  }
  const { $type, lc, id, kwargs, message, content, role } = item;
  const path = typeof $type === "string" ? $type.split(".") : Array.isArray(id) ? id : [];
  const name = path.at(-1);
  if (typeof name === "string" && CLASSES.test(name)) {
    const fields = lc !== undefined && isObject(kwargs) ? kwargs : item;
    return spoken(fields, name.replace(/Message(Chunk)?$/, "").toLowerCase());
  }
  if (typeof role === "string" && (content !== undefined || item["tool_calls"] || item["parts"])) {
    return spoken(item, role);
  }
  // Transcripts and events wrap a message with data of the framework.
  for (const inner of [message, content]) {
    const wrapped = isObject(inner) ? messageOf(inner) : undefined;
    if (wrapped) {
      wrapped.usage ??= usageOf(item);
      wrapped.model ||= modelOf(item);
      return wrapped;
    }
  }
  return withParts(item) ?? itemOfOpenAI(item);
}

function spoken(fields: JsonObject, role: string): Message {
  const content = fields["content"] ?? fields["parts"] ?? null;
  const message: Message = {
    role: ROLES[role] ?? role,
    name: text(role === "remove" ? fields["id"] : fields["name"]),
    blocks: [],
    calls: [],
    results: [],
    id: text(fields["id"]),
    model: modelOf(fields),
    usage: usageOf(fields),
  };
  if (message.role === "tool") {
    const failed = fields["status"] === "error";
    addResult(message, text(fields["tool_call_id"]), content, failed, message.name);
    return message;
  }
  for (const block of listOf(content)) {
    addBlock(message, block);
  }
  addCalls(message, fields["tool_calls"]);
  addCalls(message, fields["invalid_tool_calls"]);
  return withRole(message);
}

/** Frameworks send results of tools as messages of the person. */
function withRole(message: Message): Message {
  const { blocks, calls, results } = message;
  const isAnswer = results.length > 0 && blocks.length === 0 && calls.length === 0;
  return isAnswer ? { ...message, role: "tool" } : message;
}

function listOf(content: Json | undefined): Json[] {
  return Array.isArray(content) ? content : [content ?? null];
}

function addCalls(message: Message, calls: Json | undefined): void {
  for (const call of Array.isArray(calls) ? calls : []) {
    const read = isObject(call) ? callOf(call) : undefined;
    // Some providers repeat a call in the content.
    if (read && !message.calls.some(({ id }) => id !== "" && id === read.id)) {
      message.calls.push(read);
    }
  }
}

function callOf(call: JsonObject): ToolCall | undefined {
  const inner = isObject(call["function"]) ? call["function"] : call;
  const args = inner["args"] ?? inner["input"] ?? inner["arguments"] ?? null;
  const name = text(inner["name"]) || text(inner["tool_name"]);
  if (!name) {
    return undefined;
  }
  const id = text(call["id"]) || text(call["call_id"]) || text(call["tool_call_id"]);
  return { id, name, args: parsed(args), problem: text(call["error"]) };
}

/** Return parsed arguments if they are JSON text. */
function parsed(value: Json): Json {
  if (typeof value !== "string") {
    return value;
  }
  try {
    return JSON.parse(value) as Json;
  } catch (error) {
    if (error instanceof SyntaxError) {
      return value;
    }
    throw error;
  }
}

function addBlock(message: Message, block: Json): void {
  if (isObject(block)) {
    const type = text(block["type"]);
    const call = block["functionCall"] ?? block["function_call"];
    const answer = block["functionResponse"] ?? block["function_response"];
    if (CALLS.test(type)) {
      addCalls(message, [block]);
      return;
    }
    if (isObject(call)) {
      addCalls(message, [call]);
      return;
    }
    if (isObject(answer)) {
      addResult(message, text(answer["id"]), answer["response"], false, text(answer["name"]));
      return;
    }
    const callId = text(block["tool_use_id"]);
    if (callId && type.endsWith("tool_result")) {
      addResult(message, callId, block["content"], block["is_error"] === true);
      return;
    }
  }
  message.blocks.push(...blocksOf(block));
}

const CALLS = /^(server_)?tool_(use|call)$/;

function addResult(
  message: Message,
  callId: string,
  content: Json | undefined,
  failed: boolean,
  name = "",
): void {
  message.results.push({ callId, name, blocks: listOf(content).flatMap(blocksOf), failed });
}

function blocksOf(block: Json): Block[] {
  if (block === null || block === "") {
    return [];
  }
  if (typeof block === "string") {
    return [{ kind: "text", text: block }];
  }
  return isObject(block) ? [blockOf(block, text(block["type"]))] : [{ kind: "data", value: block }];
}

const MEDIA = /image|audio|video|file|document/;

function blockOf(block: JsonObject, type: string): Block {
  const thought = block["thinking"] ?? block["reasoning"];
  if (typeof thought === "string" || (block["thought"] === true && block["text"])) {
    return { kind: "reasoning", text: text(thought) || text(block["text"]) };
  }
  if (typeof block["text"] === "string" && !MEDIA.test(type)) {
    return { kind: "text", text: block["text"] };
  }
  if (MEDIA.test(type)) {
    const mime = text(block["mime_type"]) || text(block["media_type"]);
    return { kind: "media", text: [unescaped(type), mime].filter(Boolean).join(", ") };
  }
  return { kind: "data", value: block };
}

/** Return a message of Pydantic AI: a request or a response, composed of parts. */
function withParts(item: JsonObject): Message | undefined {
  const { kind, parts } = item;
  if ((kind !== "request" && kind !== "response") || !Array.isArray(parts)) {
    return undefined;
  }
  const message = spoken({}, kind === "request" ? "human" : "assistant");
  message.model = modelOf(item);
  message.usage = usageOf(item);
  for (const part of parts.filter(isObject)) {
    const type = text(part["part_kind"]);
    if (type === "tool-call") {
      addCalls(message, [part]);
    } else if (type === "tool-return" || type === "retry-prompt") {
      const callId = text(part["tool_call_id"]);
      addResult(message, callId, part["content"], type === "retry-prompt", text(part["tool_name"]));
    } else if (type === "thinking") {
      message.blocks.push({ kind: "reasoning", text: text(part["content"]) });
    } else {
      message.role = type === "system-prompt" && parts.length === 1 ? "system" : message.role;
      message.blocks.push(...listOf(part["content"]).flatMap(blocksOf));
    }
  }
  return withRole(message);
}

/** Return an item of the OpenAI Agents SDK that is not a message: a call or its output. */
function itemOfOpenAI(item: JsonObject): Message | undefined {
  const callId = text(item["call_id"]);
  switch (item["type"]) {
    case "function_call":
      return spoken({ tool_calls: [{ ...item, id: callId }] }, "assistant");
    case "function_call_output":
      return spoken({ tool_call_id: callId, content: item["output"] ?? null }, "tool");
    default:
      return undefined;
  }
}

function unknown(value: Json): Message {
  return { ...spoken({}, "other"), blocks: [{ kind: "data", value }] };
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}
