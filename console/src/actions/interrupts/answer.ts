/** The answer of a filled form, in the format of the question's framework. */
import { isObject, type Json } from "../../parts/json/json.ts";
import { type Decision, type Form, type FormField, fieldText, type Review } from "./form.ts";

/** A person's decision about one review. */
export interface Decided {
  /** Position in `Review.decisions`; undefined: no decision yet. */
  decision: number | undefined;
  text: string;
  /** JSON text of the arguments. */
  args: string;
}

/**
 * Return the answer of the decisions, in the format of the question's framework.
 *
 * @throws FormProblem - A decision is missing, or its text or arguments are.
 */
export function answerOfReviews(form: Form & { kind: "reviews" }, decided: Decided[]): Json {
  const answers = form.reviews.map((review, index) => {
    const own = decided[index];
    const decision = own?.decision === undefined ? undefined : review.decisions[own.decision];
    if (!own || !decision) {
      throw new FormProblem(`Decide about “${review.action}”.`);
    }
    return form.style === "middleware"
      ? middlewareAnswer(review, decision, own)
      : humanAnswer(review, decision, own);
  });
  if (form.style === "middleware") {
    return { decisions: answers };
  }
  return form.list ? answers : (answers[0] ?? null);
}

function humanAnswer(review: Review, decision: Decision, own: Decided): Json {
  if (decision.takes === "args") {
    const args = argsOf(review, own);
    return { type: decision.type, args: { action: review.action, args } };
  }
  return { type: decision.type, args: decision.takes === "text" ? own.text : null };
}

function middlewareAnswer(review: Review, decision: Decision, own: Decided): Json {
  if (decision.takes === "args") {
    return {
      type: decision.type,
      edited_action: { name: review.action, args: argsOf(review, own) },
    };
  }
  return own.text && decision.takes === "text"
    ? { type: decision.type, message: own.text }
    : { type: decision.type };
}

function argsOf(review: Review, own: Decided): Json {
  const args = parsed(own.args, `The arguments of “${review.action}” are not JSON`);
  if (!isObject(args)) {
    throw new FormProblem(`The arguments of “${review.action}” must be a JSON object.`);
  }
  return args;
}

/**
 * Return the answer in the texts of the fields.
 *
 * @param texts - Text of each field, by position; for a choice, the position of the option.
 * @throws FormProblem - A required field is empty, or a text does not fit its field.
 */
export function answerOfFields(form: Form & { kind: "fields" }, texts: string[]): Json {
  const filled = form.fields.map((field, index): [string, Json | undefined] => [
    field.name,
    typed(field, texts[index] ?? ""),
  ]);
  if (form.whole) {
    return filled[0]?.[1] ?? null;
  }
  const given = filled.filter((one): one is [string, Json] => one[1] !== undefined);
  return Object.fromEntries(given);
}

/**
 * Return the texts of the fields that make an answer.
 *
 * @param answer - The answer; undefined: the texts are the initial texts of the fields.
 */
export function textsOf(form: Form & { kind: "fields" }, answer: Json | undefined): string[] {
  return form.fields.map(({ name, kind, options, initial }) => {
    const value = form.whole ? answer : isObject(answer) ? answer[name] : undefined;
    return value === undefined ? initial : fieldText(value, kind, options);
  });
}

function typed(field: FormField, text: string): Json | undefined {
  const name = `“${field.label}”`;
  if (text.trim() === "") {
    if (field.required) {
      throw new FormProblem(`${name} is missing.`);
    }
    return undefined;
  }
  switch (field.kind) {
    case "choice":
      return field.options[Number(text)]?.value;
    case "boolean":
      return text === "true";
    case "json":
      return parsed(text, `${name} is not JSON`);
    case "number":
    case "integer": {
      const number = Number(text);
      if (!Number.isFinite(number) || (field.kind === "integer" && !Number.isSafeInteger(number))) {
        throw new FormProblem(
          `${name} must be ${field.kind === "integer" ? "an integer" : "a number"}.`,
        );
      }
      return number;
    }
    default:
      return text;
  }
}

/** The typed texts do not make a valid answer. */
export class FormProblem extends Error {}

function parsed(text: string, problem: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    throw new FormProblem(`${problem}: ${(error as SyntaxError).message}`);
  }
}
