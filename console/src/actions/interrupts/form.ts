/**
 * The form that fits a question of an agent, and the answer that the filled form makes.
 *
 * | the question | the form | |---|---| | has a JSON schema: the graph's `response_schema`, or
 * `schema` `response_schema` `requested_schema` `requestedSchema` in the question, or it is one
 * (`type` "object" and `properties`) | the fields of the schema | | `action_request` and `config`:
 * LangChain's `HumanInterrupt`, or a list of them | accept, edit, respond, ignore, as allowed | |
 * `action_requests` and `review_configs`: LangChain's `HumanInTheLoopMiddleware` | approve, edit,
 * reject, respond, as allowed | | `options`, `choices` or `answers`, a list | radio buttons | |
 * `type` "boolean", "string", "number" or "integer" | yes and no, a text, a number | | a text, or
 * an object with a text under `question` `message` `prompt` `query` `text` `title` | a text | |
 * anything else | JSON |
 *
 * A form has at most 100 fields, options or calls, and a question that needs more is answered with
 * JSON. Any question can also be answered with any JSON. A question in the JSON view is read as the
 * saved value: keys lose the escape "$$", and objects of Python are their fields. A question with
 * other escapes gets the form for JSON, because an answer cannot contain these escapes.
 */
import { isObject, type Json, type JsonObject } from "../../parts/json/json.ts";

/** One control of a form. */
export interface FormField {
  /** Name of the member in the answer; empty: the field is the whole answer. */
  name: string;
  label: string;
  hint: string;
  required: boolean;
  kind: "text" | "long" | "number" | "integer" | "boolean" | "choice" | "json";
  options: { label: string; value: Json }[];
  /** Initial text of the control. */
  initial: string;
}

/** A possible decision about a call of a tool. */
export interface Decision {
  /** Name of the decision in the answer. */
  type: string;
  label: string;
  /** Further input of the person: nothing, text, or the changed arguments. */
  takes: "nothing" | "text" | "args";
}

/** A call of a tool that waits for a decision. */
export interface Review {
  action: string;
  args: Json;
  description: string;
  decisions: Decision[];
}

export type Form =
  | { kind: "fields"; whole: boolean; fields: FormField[] }
  | { kind: "reviews"; style: "human_interrupt" | "middleware"; list: boolean; reviews: Review[] }
  | { kind: "json" };

const MOST = 100; // fields, options or calls in a form

const TEXT_KEYS = ["question", "message", "prompt", "query", "text", "title", "description"];
const SCHEMA_KEYS = ["schema", "response_schema", "requested_schema", "requestedSchema"];

/**
 * Return the text of a question that stands above its form; empty: the question has no such text.
 */
export function headline(question: Json): string {
  if (typeof question === "string") {
    return question;
  }
  if (!isObject(question)) {
    return "";
  }
  const key = TEXT_KEYS.find((one) => typeof question[one] === "string" && question[one] !== "");
  return key ? (question[key] as string) : "";
}

/** Return the form for a question, by the table above. */
export function formOf(question: Json, schema?: Json): Form {
  const plain = unescaped(question);
  const given = schema === undefined ? undefined : unescaped(schema);
  const known = given ?? (isObject(plain) ? schemaIn(plain) : undefined);
  const form = known === undefined ? undefined : schemaForm(known);
  const fitting =
    form ?? (plain === undefined ? undefined : (reviewForm(plain) ?? simpleForm(plain)));
  return fitting && sizeOf(fitting) <= MOST ? fitting : { kind: "json" };
}

/** Return the number of controls in the largest part of a form. */
function sizeOf(form: Form): number {
  if (form.kind === "fields") {
    return Math.max(form.fields.length, ...form.fields.map((one) => one.options.length));
  }
  return form.kind === "reviews" ? form.reviews.length : 0;
}

/**
 * Return a value without the escapes of the JSON view; undefined: JSON cannot represent an escape.
 */
function unescaped(value: Json): Json | undefined {
  if (Array.isArray(value)) {
    const items = value.map(unescaped);
    return items.includes(undefined) ? undefined : (items as Json[]);
  }
  if (!isObject(value)) {
    return value;
  }
  const members: [string, Json][] = [];
  for (const [key, one] of Object.entries(value)) {
    const own = unescaped(one);
    if (own === undefined || (/^\$(?!\$)/.test(key) && key !== "$type")) {
      return undefined;
    }
    if (key !== "$type") {
      members.push([key.startsWith("$$") ? key.slice(1) : key, own]);
    }
  }
  return Object.fromEntries(members);
}

function schemaIn(question: JsonObject): Json | undefined {
  const key = SCHEMA_KEYS.find((one) => isObject(question[one]));
  if (key) {
    return question[key];
  }
  return question["type"] === "object" && isObject(question["properties"]) ? question : undefined;
}

function schemaForm(schema: Json): Form | undefined {
  if (!isObject(schema)) {
    return undefined;
  }
  const { properties, required } = schema;
  if (isObject(properties) && Object.keys(properties).length > 0) {
    const needed = new Set(Array.isArray(required) ? required : []);
    const fields = Object.entries(properties).map(([name, one]) =>
      fieldOf(name, resolved(one, schema), needed.has(name)),
    );
    return { kind: "fields", whole: false, fields };
  }
  const field = fieldOf("", schema, true);
  return field.kind === "json" ? undefined : { kind: "fields", whole: true, fields: [field] };
}

/**
 * Return the definition that a part of a schema refers to, or the other type of a nullable part.
 */
function resolved(part: Json, schema: JsonObject): JsonObject {
  if (!isObject(part)) {
    return {};
  }
  const { anyOf, $ref, $defs: _, ...own } = part;
  const name = typeof $ref === "string" ? /^#\/\$defs\/([^/]+)$/.exec($ref)?.[1] : undefined;
  const definitions = schema["$defs"];
  if (name && isObject(definitions) && Object.hasOwn(definitions, name)) {
    const definition = definitions[name];
    return { ...(isObject(definition) ? definition : {}), ...own };
  }
  const others = (Array.isArray(anyOf) ? anyOf : []).filter(
    (one) => !(isObject(one) && one["type"] === "null"),
  );
  const [only] = others;
  return isObject(only) && others.length === 1 ? { ...resolved(only, schema), ...own } : part;
}

function fieldOf(name: string, schema: JsonObject, required: boolean): FormField {
  const options = Array.isArray(schema["enum"]) ? schema["enum"].map(optionOf) : [];
  const kind = options.length > 0 ? "choice" : kindOf(schema);
  const start = schema["default"];
  return {
    name,
    label: textOf(schema["title"]) || name || "Answer",
    hint: textOf(schema["description"]),
    required,
    kind,
    options,
    initial: start === undefined || start === null ? "" : fieldText(start, kind, options),
  };
}

/** Return the text of a control that makes a value; empty: no option has the value. */
export function fieldText(
  value: Json,
  kind: FormField["kind"],
  options: FormField["options"],
): string {
  if (kind === "choice") {
    const text = JSON.stringify(value);
    const index = options.findIndex((one) => JSON.stringify(one.value) === text);
    return index < 0 ? "" : String(index);
  }
  return typeof value === "string" && kind !== "json" ? value : JSON.stringify(value);
}

function kindOf({ type, format }: JsonObject): FormField["kind"] {
  if (type === "string") {
    return format === "textarea" || format === "multiline" ? "long" : "text";
  }
  return type === "number" || type === "integer" || type === "boolean" ? type : "json";
}

function simpleForm(question: Json): Form | undefined {
  const whole = (given: Partial<FormField>): Form => {
    const field = { ...fieldOf("", {}, true), ...given };
    return { kind: "fields", whole: true, fields: [field] };
  };
  if (typeof question === "string") {
    return whole({ kind: "long" });
  }
  if (!isObject(question)) {
    return undefined;
  }
  const options = [question["options"], question["choices"], question["answers"]].find(
    (one) => Array.isArray(one) && one.length > 0,
  ) as Json[] | undefined;
  if (options) {
    return whole({ kind: "choice", options: options.map(optionOf) });
  }
  const { type } = question;
  if (type === "bool" || type === "confirm" || type === "yes_no") {
    return whole({ kind: "boolean" });
  }
  const kind = kindOf(question);
  if (kind !== "json") {
    return whole({ kind: kind === "text" ? "long" : kind });
  }
  return headline(question) ? whole({ kind: "long" }) : undefined;
}

/** An option is its own answer, unless the option is an object with a value besides its label. */
function optionOf(option: Json): FormField["options"][number] {
  if (isObject(option)) {
    const label = [option["label"], option["title"], option["name"]].find(
      (one) => typeof one === "string",
    );
    if (typeof label === "string") {
      const own = ["value", "id", "const"].find((key) => option[key] !== undefined);
      return { label, value: own ? (option[own] as Json) : option };
    }
  }
  return { label: typeof option === "string" ? option : JSON.stringify(option), value: option };
}

const HUMAN: [string, Decision][] = [
  ["allow_accept", { type: "accept", label: "Accept", takes: "nothing" }],
  ["allow_edit", { type: "edit", label: "Edit the arguments", takes: "args" }],
  ["allow_respond", { type: "response", label: "Respond", takes: "text" }],
  ["allow_ignore", { type: "ignore", label: "Ignore", takes: "nothing" }],
];

const MIDDLEWARE: Record<string, Decision> = {
  approve: { type: "approve", label: "Approve", takes: "nothing" },
  edit: { type: "edit", label: "Edit the arguments", takes: "args" },
  reject: { type: "reject", label: "Reject", takes: "text" },
  respond: { type: "respond", label: "Respond", takes: "text" },
};

function reviewForm(question: Json): Form | undefined {
  const list = Array.isArray(question);
  const requests = list ? question : [question];
  if (requests.length > 0 && requests.every(isHumanInterrupt)) {
    const reviews = requests.map(humanReview).filter((one) => one.decisions.length > 0);
    const whole = reviews.length === requests.length;
    return whole ? { kind: "reviews", style: "human_interrupt", list, reviews } : undefined;
  }
  if (!isObject(question) || !Array.isArray(question["action_requests"])) {
    return undefined;
  }
  const reviews = question["action_requests"].map((one) =>
    middlewareReview(isObject(one) ? one : {}, question["review_configs"] ?? null),
  );
  const whole = reviews.length > 0 && reviews.every((one) => one.decisions.length > 0);
  return whole ? { kind: "reviews", style: "middleware", list: false, reviews } : undefined;
}

function isHumanInterrupt(one: Json): one is JsonObject {
  return isObject(one) && isObject(one["action_request"]) && isObject(one["config"]);
}

function humanReview(request: JsonObject): Review {
  const { action, args } = request["action_request"] as JsonObject;
  const config = request["config"] as JsonObject;
  return {
    action: textOf(action),
    args: args ?? {},
    description: textOf(request["description"]),
    decisions: HUMAN.filter(([allow]) => config[allow] === true).map(([, decision]) => decision),
  };
}

function middlewareReview(request: JsonObject, configs: Json): Review {
  const action = textOf(request["name"]) || textOf(request["action"]);
  const config = (Array.isArray(configs) ? configs : [])
    .filter(isObject)
    .find((one) => one["action_name"] === action);
  const allowed = config?.["allowed_decisions"];
  const decisions = (Array.isArray(allowed) ? allowed : []).flatMap((one) => {
    const known = typeof one === "string" && Object.hasOwn(MIDDLEWARE, one) && MIDDLEWARE[one];
    return known ? [known] : [];
  });
  const args = request["args"] ?? request["arguments"] ?? {};
  return { action, args, description: textOf(request["description"]), decisions };
}

function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}
