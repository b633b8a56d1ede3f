/** One question of an agent, and its stored answer. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { useEffect, useRef } from "preact/hooks";
import { type Json, JsonTree } from "../../parts/json/json_tree.tsx";
import { visible } from "../../words.ts";
import { formOf, headline } from "./form.ts";
import { chosenOption, oneClickOptions } from "./one_click.ts";
import type { Answer, Question } from "./open_questions.ts";

const LONGEST_HEADLINE = 2000; // characters; the tree below shows the rest
const LONGEST_ANSWER = 2000;

export interface QuestionProps {
  /** The checkpoint at which the task asks. */
  place: Checkpoint;
  question: Question;
  /** Whether other questions wait too. */
  several: boolean;
}

/** The question: as text, and as a tree if it has more than text. */
export function Asks({ question, open = 0 }: { question: Question; open?: number }) {
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

interface AnsweredProps extends QuestionProps {
  stored: Answer;
  /** Whether the question was answered just now: the control that had the focus is gone. */
  takesFocus: boolean;
  onChange: () => void;
}

export function Answered({ question, stored, takesFocus, onChange }: AnsweredProps) {
  const line = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    if (takesFocus) {
      line.current?.focus();
    }
  }, [takesFocus]);
  const words = stored.value === undefined ? undefined : wordsOf(question, stored.value);
  return (
    <article class="asked" aria-label="An answered question">
      <Asks question={question} />
      <p class="answered" ref={line} tabIndex={-1}>
        {stored.value === undefined && "Answered. The answer is too large to be shown."}
        {stored.value !== undefined && "Answered: "}
        {words !== undefined && <strong>{visible(words)}</strong>}
        {stored.replaceable && (
          <button type="button" onClick={onChange} aria-label="Change the answer">
            Change
          </button>
        )}
      </p>
      {stored.value !== undefined && words === undefined && (
        <JsonTree value={stored.value} open={2} name="the answer" />
      )}
      {!stored.replaceable && (
        <p class="hint">
          A task takes one answer until the graph has continued. Answer the other questions first,
          or let the graph continue.
        </p>
      )}
    </article>
  );
}

/** Return a short answer in the words of its question; undefined: the answer needs a tree. */
function wordsOf({ value, schema }: Question, answer: Json): string | undefined {
  const options = value === undefined ? undefined : oneClickOptions(formOf(value, schema));
  const option = options && chosenOption(options, answer);
  const text = option?.label ?? answer;
  return typeof text !== "object" && String(text).length <= LONGEST_ANSWER
    ? String(text)
    : undefined;
}
