/** One question of an agent, with the form for the answer, or the answer itself. */
import { type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import { useState } from "preact/hooks";
import { Ask } from "../../parts/ask.tsx";
import { Field } from "../../parts/fields.tsx";
import { type Json, JsonTree } from "../../parts/json/json_tree.tsx";
import { Copy } from "../../parts/labels.tsx";
import { say } from "../../parts/notices.tsx";
import { checkpoints } from "../../server/calls.ts";
import { visible } from "../../words.ts";
import { continueCode, linkTo, named, placeOf } from "../checkpoint_names.ts";
import { DurabilityField, reached } from "../durability.tsx";
import { JsonTextError, readExact, writeExact } from "../exact_json.ts";
import { answerOfFields, answerOfReviews, type Decided, FormProblem } from "./answer.ts";
import { Control, ReviewControl } from "./fields.tsx";
import { type Form, formOf, headline } from "./form.ts";
import { type Answer, answerRequest, type Question } from "./open_questions.ts";

const LONGEST_HEADLINE = 2000; // characters; the tree below shows the rest

interface QuestionProps {
  /** The checkpoint at which the task asks. */
  place: Checkpoint;
  question: Question;
  /** Whether other questions wait too. */
  several: boolean;
  /** Whether graphs continue from this checkpoint. */
  isHead: boolean;
}

/** The question: as text, and as a tree if it has more than text. */
function Asks({ question, open = 0 }: { question: Question; open?: number }) {
  if (question.value === undefined) {
    return <p>The question is too large to be shown. Load the checkpoint with a client.</p>;
  }
  const words = headline(question.value);
  return (
    <>
      {words && <p class="question">{visible(words.slice(0, LONGEST_HEADLINE))}</p>}
      {!isOnly(words, question.value) && (
        <JsonTree value={question.value} open={open} name="the whole question" />
      )}
    </>
  );
}

/** Return whether a question has only text that is shown whole. */
function isOnly(words: string, question: Json): boolean {
  const members = typeof question === "object" && question !== null ? Object.keys(question) : [];
  return words !== "" && words.length <= LONGEST_HEADLINE && members.length <= 1;
}

export function Answered(props: QuestionProps & { stored: Answer; onReplace: () => void }) {
  const { question, place, stored, several, onReplace } = props;
  return (
    <article class="asked" aria-label="An answered question">
      <Asks question={question} />
      {stored.value === undefined ? (
        <p>The answer is too large to be shown.</p>
      ) : (
        <JsonTree value={stored.value} open={2} name="the answer" />
      )}
      {several && (
        <p class="hint">
          A task takes one answer until the graph has continued. Answer the other questions first,
          or let the graph continue.
        </p>
      )}
      <Continue {...props} place={place} />
      {stored.replaceable && (
        <button type="button" onClick={onReplace}>
          Give another answer
        </button>
      )}
    </article>
  );
}

/** How to continue the agent: the console runs no graphs. */
function Continue({ place, isHead }: QuestionProps) {
  const { threadId, checkpointNs, checkpointId } = placeOf(place.ref);
  const code = continueCode(threadId, isHead || checkpointNs ? "" : checkpointId);
  return (
    <p>
      The answer is saved. The program that runs the graph continues with{" "}
      <code>{visible(code)}</code>
      <Copy text={code} what="the code" />
    </p>
  );
}

export function Asking({ onAnswered, ...props }: QuestionProps & { onAnswered: () => void }) {
  const { question } = props;
  const form: Form =
    question.value === undefined ? { kind: "json" } : formOf(question.value, question.schema);
  const [asJson, setAsJson] = useState(form.kind === "json");
  const [json, setJson] = useState("");
  const [texts, setTexts] = useState(
    form.kind === "fields" ? form.fields.map((one) => one.initial) : [],
  );
  const [decided, setDecided] = useState<Decided[]>(
    form.kind === "reviews" ? form.reviews.map(undecided) : [],
  );
  const [problem, setProblem] = useState("");
  const [answer, setAnswer] = useState<string>();
  const submit = (event: Event) => {
    event.preventDefault();
    try {
      setAnswer(asJson ? fromJson(json) : JSON.stringify(filled(form, texts, decided)));
      setProblem("");
    } catch (error) {
      if (!(error instanceof FormProblem)) {
        throw error;
      }
      setProblem(error.message);
    }
  };
  return (
    <article class="asked" aria-label="An open question">
      <Asks question={question} open={form.kind === "json" ? 2 : 0} />
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
        {problem && (
          <p class="edit-problem" role="alert">
            {problem}
          </p>
        )}
        <div class="actions">
          <button type="submit" class="primary">
            Answer…
          </button>
          {form.kind !== "json" && (
            <button type="button" onClick={() => setAsJson(!asJson)}>
              {asJson ? "Answer with the form" : "Answer with JSON"}
            </button>
          )}
        </div>
      </form>
      {answer !== undefined && (
        <Confirm
          {...props}
          answer={answer}
          onAnswered={onAnswered}
          onClose={() => setAnswer(undefined)}
        />
      )}
    </article>
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

interface ConfirmProps extends QuestionProps {
  /** JSON text. */
  answer: string;
  onAnswered: () => void;
  onClose: () => void;
}

function Confirm({ place, question, several, answer, onAnswered, onClose }: ConfirmProps) {
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const save = async () => {
    const request = answerRequest(place, question, several, answer);
    const saved = await checkpoints.saveWrites({ ...request, durability });
    say(
      `Saved the answer at ${named(place)}. ${reached(saved.durability)} The program that runs the graph continues with it.`,
      linkTo(place.ref, "Open the checkpoint"),
    );
    onAnswered();
  };
  return (
    <Ask title="Answer" confirm="Save the answer" onConfirm={save} onClose={onClose}>
      <p>
        Saves this answer as a write of {named(place)}. The graph continues with it when its program
        invokes it the next time.
        {several
          ? " Other questions wait too, so this answer cannot be replaced later."
          : " Until then another answer can replace it."}
      </p>
      <JsonTree value={JSON.parse(answer) as Json} open={3} name="the answer" />
      <DurabilityField value={durability} onChange={setDurability} />
    </Ask>
  );
}
