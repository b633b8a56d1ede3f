/** The questions of a checkpoint's tasks, each with a form for the answer. */
import { type Checkpoint, View } from "@contract/checkpoint_pb.js";
import { type NamespaceHead, type Thread, ThreadState } from "@contract/thread_pb.js";
import { useRef, useState } from "preact/hooks";
import { checkpointLink, type Ref } from "../../links.ts";
import { Loading, Note, ProblemNote } from "../../parts/problem.tsx";
import { threads } from "../../server/calls.ts";
import { useLoad } from "../../server/loading.ts";
import { counted } from "../../words.ts";
import "../actions.css";
import { CHECKPOINT_ACTIONS } from "../action.ts";
import { headOf, placeOf } from "../checkpoint_names.ts";
import { loadFirst } from "../first_frame.ts";
import { useOffer } from "../offers.ts";
import { usePin } from "../pin.ts";
import { ContinueRun } from "../what_next/continue_run.tsx";
import { Asking } from "./asking.tsx";
import {
  type Answer,
  innerHeads,
  openQuestions,
  type Question,
  storedAnswer,
} from "./open_questions.ts";
import { isOwnAnswer } from "./own_answers.ts";
import { Answered, Asks } from "./question.tsx";

const PAGE = 20; // questions that are shown at a time

const FIRST_CONTROL = ".asked :is(button, input, textarea):not(.json-toggle)";

interface InterruptsProps {
  /** The checkpoint, in its JSON view. */
  checkpoint: Checkpoint;
  /** Thread of the checkpoint; undefined while it is loading. */
  thread: Thread | undefined;
}

export function Interrupts({ checkpoint, thread }: InterruptsProps) {
  const questions = openQuestions(checkpoint);
  return questions.length === 0 ? null : (
    <Questions checkpoint={checkpoint} thread={thread} questions={questions} />
  );
}

function Questions({ checkpoint, thread, questions }: InterruptsProps & { questions: Question[] }) {
  const ref = placeOf(checkpoint.ref);
  const pin = usePin(ref);
  const section = useRef<HTMLElement>(null);
  const [shown, setShown] = useState(PAGE);
  const { data, problem, reload } = useLoad(
    (signal) => findPlaces(checkpoint, questions, shown, signal),
    [ref],
    [String(checkpoint.seq), shown, headOf(thread, ref.checkpointNs)],
  );
  const head = headOf(data?.thread, ref.checkpointNs);
  const isHead = head === ref.checkpointId;
  const isPast = head !== undefined && !isHead;
  const listed = data ? withAnswers(data, isHead && ref.checkpointNs === "") : undefined;
  const answered = listed?.filter(({ stored }) => stored).length ?? 0;
  const open = (data?.open ?? questions.length) - answered;
  const focus = () => section.current?.querySelector<HTMLElement>(FIRST_CONTROL)?.focus();
  useOffer("question", isPast ? [] : [{ ...CHECKPOINT_ACTIONS.answer, run: focus }]);
  return (
    <section
      ref={section}
      class={`card interrupts ${open === 0 ? "done" : ""}`}
      aria-label="Questions for a person"
      onInput={pin}
    >
      <h3>{isPast ? "A question that the thread left behind" : titleOf(open)}</h3>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the answers" />}
      {isPast && <LeftBehind head={{ ...ref, checkpointId: head }} />}
      {listed?.length === 0 && (
        <p>The agent has continued since this page was loaded: no question waits here.</p>
      )}
      {listed?.map(({ place, question, stored }, index) =>
        isPast ? (
          <article key={question.id || index} class="asked" aria-label="A question of the past">
            <Asks question={question} />
          </article>
        ) : (
          <Asked
            key={question.id || index}
            place={place}
            question={question}
            several={data ? data.open > 1 : false}
            stored={stored}
            onAnswered={reload}
          />
        ),
      )}
      {data && data.open > data.places.length && (
        <button type="button" onClick={() => setShown(shown + PAGE)}>
          Show more questions
        </button>
      )}
      {answered > 0 && open === 0 && !isPast && <ContinueRun threadId={ref.threadId} />}
    </section>
  );
}

function titleOf(open: number): string {
  if (open === 0) {
    return "The agent can continue";
  }
  return open === 1
    ? "A question waits for a person"
    : `${counted(open, "question")} wait for a person`;
}

function withAnswers({ places, open, thread }: Found, isRootHead: boolean) {
  const waits = isRootHead && thread?.state === ThreadState.INTERRUPTED;
  return places.map(({ place, question }) => ({
    place,
    question,
    stored: withOwn(place, question, storedAnswer(place, question, open > 1, waits)),
  }));
}

/** Return an answer that can be replaced because this page gave it. */
function withOwn(place: Checkpoint, { taskId }: Question, stored: Answer | undefined) {
  return stored && { ...stored, replaceable: stored.replaceable || isOwnAnswer(place, taskId) };
}

/**
 * A note about the only way to answer: LangGraph drops the answers of a checkpoint that it is
 * invoked with by its ID.
 */
function LeftBehind({ head }: { head: Ref }) {
  return (
    <Note kind="warn">
      <p>
        The thread has gone on: graphs continue from{" "}
        <a href={checkpointLink(head)}>its latest checkpoint</a>. To answer, fork from here, and
        answer on the new thread.
      </p>
    </Note>
  );
}

interface AskedProps {
  place: Checkpoint;
  question: Question;
  several: boolean;
  stored: Answer | undefined;
  onAnswered: () => void;
}

/** One question with its stored answer, or with a form. */
function Asked({ stored, onAnswered, ...shared }: AskedProps) {
  const [isChanging, setChanging] = useState(false);
  const [wasAsking, setWasAsking] = useState(false);
  const leave = () => {
    setChanging(false);
    setWasAsking(true);
  };
  if (stored && !isChanging) {
    return (
      <Answered
        {...shared}
        stored={stored}
        takesFocus={wasAsking}
        onChange={() => setChanging(true)}
      />
    );
  }
  const answered = () => {
    leave();
    onAnswered();
  };
  return <Asking {...shared} current={stored} onAnswered={answered} onKeep={leave} />;
}

interface Found {
  thread: Thread | undefined;
  /** Number of questions that are open, or whose answer is not used yet. */
  open: number;
  /** Where the first questions are asked. */
  places: Place[];
}

interface Place {
  /** The checkpoint at which the task asks. */
  place: Checkpoint;
  question: Question;
}

/**
 * Find the current checkpoint of the task that asks each question.
 *
 * If the task is in a subgraph, the waiting task runs the subgraph, and the asking task is in the
 * subgraph's own namespace. The only question is answered at the waiting checkpoint in any case.
 */
async function findPlaces(
  checkpoint: Checkpoint,
  questions: Question[],
  most: number,
  signal: AbortSignal,
): Promise<Found> {
  const ref = placeOf(checkpoint.ref);
  const { thread } = await threads.getThread({ threadId: ref.threadId }, { signal });
  const here = await loadFirst(ref, View.JSON, signal);
  const still = openQuestions(here);
  // For a question that is too large for the first frame, only the task is known.
  const keys = new Set(still.map(keyOf));
  const tasks = new Set(still.filter((one) => one.value === undefined).map((one) => one.taskId));
  const open = questions.filter((one) => keys.has(keyOf(one)) || tasks.has(one.taskId));
  const places: Place[] = [];
  for (const question of open.slice(0, most)) {
    const heads = open.length > 1 ? innerHeads(thread, ref.checkpointNs, question.taskId) : [];
    places.push((await findInside(ref, heads, question, signal)) ?? { place: here, question });
  }
  return { thread, open: open.length, places };
}

async function findInside(
  { threadId }: Ref,
  heads: NamespaceHead[],
  question: Question,
  signal: AbortSignal,
): Promise<Place | undefined> {
  for (const { checkpointNs, checkpointId } of heads) {
    const place = await loadFirst({ threadId, checkpointNs, checkpointId }, View.JSON, signal);
    const asking = question.id && openQuestions(place).find((one) => one.id === question.id);
    if (asking) {
      const { taskId, taskPath } = asking;
      return { place, question: { ...question, taskId, taskPath } };
    }
  }
  return undefined;
}

function keyOf({ id, taskId }: Question): string {
  return id ? `id ${id}` : `task ${taskId}`;
}
