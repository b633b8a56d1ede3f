/** The form that answers a question of an agent. */
import { Durability } from "@contract/checkpoint_pb.js";
import { useState } from "preact/hooks";
import { done } from "../../parts/ask.tsx";
import { Field } from "../../parts/fields.tsx";
import type { Json } from "../../parts/json/json_tree.tsx";
import { ProblemNote } from "../../parts/problem.tsx";
import { checkpoints } from "../../server/calls.ts";
import { type Problem, problemOf } from "../../server/problems.ts";
import { oneLine, visible } from "../../words.ts";
import { Advanced } from "../durability.tsx";
import { JsonTextError, readExact, writeExact } from "../exact_json.ts";
import { answerOfFields, answerOfReviews, type Decided, FormProblem, textsOf } from "./answer.ts";
import { Control, ReviewControl } from "./fields.tsx";
import { type Form, formOf } from "./form.ts";
import { chosenOption, type Option, oneClickOptions } from "./one_click.ts";
import { type Answer, answerRequest } from "./open_questions.ts";
import { rememberAnswer } from "./own_answers.ts";
import { Asks, type QuestionProps } from "./question.tsx";

interface AskingProps extends QuestionProps {
  /** The stored answer that another answer will replace. */
  current: Answer | undefined;
  onAnswered: () => void;
  /** Called to keep the stored answer. */
  onKeep: () => void;
}

export function Asking({ current, onAnswered, onKeep, ...props }: AskingProps) {
  const { question } = props;
  const form: Form =
    question.value === undefined ? { kind: "json" } : formOf(question.value, question.schema);
  const [asJson, setAsJson] = useState(form.kind === "json");
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const { save, busy, problem } = useSave(props, durability, onAnswered);
  const options = asJson ? undefined : oneClickOptions(form);
  const shared = { form, current: current?.value, busy, onAnswer: save };
  return (
    <article class="asked" aria-label="An open question">
      <Asks question={question} open={form.kind === "json" ? 2 : 0} />
      {options && <Options {...shared} options={options} />}
      {!options && <AnswerForm key={String(asJson)} {...shared} asJson={asJson} />}
      {problem && <ProblemNote problem={problem} />}
      <div class="asked-more">
        {current && (
          <button type="button" class="plain" onClick={onKeep}>
            Keep the answer
          </button>
        )}
        {form.kind !== "json" && (
          <button type="button" class="plain" onClick={() => setAsJson(!asJson)}>
            {asJson ? "Answer with the form" : "Answer with JSON"}
          </button>
        )}
        <Advanced durability={durability} onChange={setDurability} />
      </div>
    </article>
  );
}

/** Return a function that saves an answer, and the state of the call. */
function useSave(
  { place, question, several }: QuestionProps,
  durability: Durability,
  onAnswered: () => void,
) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  /** Save an answer, as JSON text. */
  const save = async (answer: string) => {
    setBusy(true);
    setProblem(undefined);
    try {
      const request = answerRequest(place, question, several, answer);
      const { seq } = await checkpoints.saveWrites({ ...request, durability });
      rememberAnswer(place, question.taskId, seq);
      done.value += 1;
      onAnswered();
    } catch (error) {
      setProblem(problemOf(error));
    }
    setBusy(false);
  };
  return { save, busy, problem };
}

interface AnswerFormProps {
  form: Form;
  /** The value of the stored answer; undefined: there is none. */
  current: Json | undefined;
  /** Whether an answer is being saved. */
  busy: boolean;
  /** Called with the answer, as JSON text. */
  onAnswer: (answer: string) => void;
}

/** A button for each answer: one click saves it. */
function Options({
  form,
  current,
  busy,
  onAnswer,
  options,
}: AnswerFormProps & { options: Option[] }) {
  const [field] = form.kind === "fields" ? form.fields : [];
  const chosen = current === undefined ? undefined : chosenOption(options, current);
  return (
    <>
      {field?.hint && <p class="hint">{visible(field.hint)}</p>}
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset would draw a frame */}
      <div class="options" role="group" aria-label={oneLine(field?.label ?? "Answer", 120)}>
        {options.map((option, index) => (
          <button
            key={index}
            type="button"
            disabled={busy}
            aria-pressed={chosen ? option === chosen : undefined}
            onClick={() => onAnswer(JSON.stringify(option.value))}
          >
            {oneLine(option.label, 500)}
          </button>
        ))}
      </div>
    </>
  );
}

/** Fields, decisions or JSON, and a button that saves the answer. */
function AnswerForm({
  form,
  asJson,
  current,
  busy,
  onAnswer,
}: AnswerFormProps & { asJson: boolean }) {
  const [json, setJson] = useState(
    current === undefined ? "" : JSON.stringify(current, undefined, 2),
  );
  const [texts, setTexts] = useState(form.kind === "fields" ? textsOf(form, current) : []);
  const [decided, setDecided] = useState<Decided[]>(
    form.kind === "reviews" ? form.reviews.map(undecided) : [],
  );
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    try {
      onAnswer(asJson ? fromJson(json) : JSON.stringify(filled(form, texts, decided)));
      setWrong("");
    } catch (error) {
      if (!(error instanceof FormProblem)) {
        throw error;
      }
      setWrong(error.message);
    }
  };
  return (
    <form onSubmit={submit}>
      {asJson && <JsonAnswer text={json} onInput={setJson} />}
      {!asJson &&
        form.kind === "fields" &&
        form.fields.map((field, index) => (
          <Control
            key={field.name}
            field={field}
            text={texts[index] ?? ""}
            onInput={(text) => setTexts(texts.with(index, text))}
          />
        ))}
      {!asJson &&
        form.kind === "reviews" &&
        form.reviews.map((review, index) => (
          <ReviewControl
            key={index}
            review={review}
            decided={decided[index] ?? undecided(review)}
            onChange={(one) => setDecided(decided.with(index, one))}
          />
        ))}
      {!asJson && isText(form) && (
        <p class="hint">
          It is sent as text. To send a number, true or an object, answer with JSON.
        </p>
      )}
      {wrong && (
        <p class="edit-problem" role="alert">
          {wrong}
        </p>
      )}
      <button type="submit" class="primary" disabled={busy}>
        {busy ? "Answering…" : "Answer"}
      </button>
    </form>
  );
}

function undecided({ args }: { args: Json }): Decided {
  return { decision: undefined, text: "", args: JSON.stringify(args, undefined, 2) };
}

function isText(form: Form): boolean {
  return form.kind === "fields" && form.whole && form.fields[0]?.kind === "long";
}

function filled(form: Form, texts: string[], decided: Decided[]): Json {
  switch (form.kind) {
    case "fields":
      return answerOfFields(form, texts);
    case "reviews":
      return answerOfReviews(form, decided);
    default:
      throw new FormProblem("Answer with JSON.");
  }
}

function fromJson(text: string): string {
  try {
    const written = writeExact(readExact(text));
    if (written === "null") {
      throw new FormProblem(
        "null is not an answer for LangGraph. Choose another one, such as false.",
      );
    }
    return written;
  } catch (error) {
    throw error instanceof JsonTextError ? new FormProblem(error.message) : error;
  }
}

function JsonAnswer({ text, onInput }: { text: string; onInput: (text: string) => void }) {
  return (
    <Field
      label="Answer, as JSON"
      hint='For example true, "a text", or {"approved": true}. Not null.'
    >
      {(id, described) => (
        <textarea
          id={id}
          spellcheck={false}
          aria-describedby={described}
          value={text}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}
