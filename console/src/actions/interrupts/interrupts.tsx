/** The questions of a checkpoint's tasks, each with a form for the answer. */
import { type Checkpoint, View } from "@contract/checkpoint_pb.js";
import { type NamespaceHead, type Thread, ThreadState } from "@contract/thread_pb.js";
import { useState } from "preact/hooks";
import { checkpointLink, type Ref } from "../../links.ts";
import { Loading, ProblemNote } from "../../parts/problem.tsx";
import { threads } from "../../server/calls.ts";
import { useLoad } from "../../server/loading.ts";
import { counted } from "../../words.ts";
import "../actions.css";
import { headOf, placeOf } from "../checkpoint_names.ts";
import { loadFirst } from "../first_frame.ts";
import { usePin } from "../pin.ts";
import { innerHeads, openQuestions, type Question, storedAnswer } from "./open_questions.ts";
import { Answered, Asking } from "./question.tsx";

const PAGE = 20; // questions that are shown at a time

interface InterruptsProps {
  /** The checkpoint, in its JSON view. */
  checkpoint: Checkpoint;
}

export function Interrupts({ checkpoint }: InterruptsProps) {
  const questions = openQuestions(checkpoint);
  return questions.length === 0 ? null : (
    <Questions checkpoint={checkpoint} questions={questions} />
  );
}

function Questions({ checkpoint, questions }: InterruptsProps & { questions: Question[] }) {
  const ref = placeOf(checkpoint.ref);
  const pin = usePin(ref);
  const [shown, setShown] = useState(PAGE);
  const { data, problem, reload } = useLoad(
    (signal) => findPlaces(checkpoint, questions, shown, signal),
    [ref],
    [String(checkpoint.seq), shown],
  );
  const isHead = headOf(data?.thread, ref.checkpointNs) === ref.checkpointId;
  const listed = data ? withAnswers(data, isHead && ref.checkpointNs === "") : undefined;
  const answered = listed?.filter((one) => one.stored).length ?? 0;
  const open = (data?.open ?? questions.length) - answered;
  return (
    <section
      class={`card interrupts ${open === 0 ? "done" : ""}`}
      aria-label="Questions for a person"
      onInput={pin}
    >
      <h3>{titleOf(open)}</h3>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the answers" />}
      {data && !isHead && <NotHead place={ref} thread={data.thread} />}
      {listed?.length === 0 && (
        <p>The agent has continued since this page was loaded: no question waits here.</p>
      )}
      {listed?.map(({ place, question, stored }, index) => (
        <Asked
          key={question.id || index}
          place={place}
          question={question}
          several={data ? data.open > 1 : false}
          isHead={isHead}
          stored={stored}
          onAnswered={reload}
        />
      ))}
      {data && data.open > data.places.length && (
        <button type="button" onClick={() => setShown(shown + PAGE)}>
          Show more questions
        </button>
      )}
    </section>
  );
}

function titleOf(open: number): string {
  if (open === 0) {
    return "Answered: the agent can continue";
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
    stored: storedAnswer(place, question, open > 1, waits),
  }));
}

/** A note that a graph does not continue from this checkpoint by itself. */
function NotHead({ place, thread }: { place: Ref; thread: Thread | undefined }) {
  const head = headOf(thread, place.checkpointNs);
  if (!head) {
    return null;
  }
  return (
    <p class="banner">
      The thread has gone on: graphs continue from{" "}
      <a href={checkpointLink({ ...place, checkpointId: head })}>its latest checkpoint</a>. An
      answer here is used only by a graph that is invoked with the ID of this checkpoint.
    </p>
  );
}

interface AskedProps {
  place: Checkpoint;
  question: Question;
  several: boolean;
  isHead: boolean;
  stored: ReturnType<typeof storedAnswer>;
  onAnswered: () => void;
}

/** One question with its stored answer, or with a form. */
function Asked({ stored, onAnswered, ...shared }: AskedProps) {
  const [again, setAgain] = useState(false);
  if (stored && !again) {
    return <Answered {...shared} stored={stored} onReplace={() => setAgain(true)} />;
  }
  const answered = () => {
    setAgain(false);
    onAnswered();
  };
  return <Asking {...shared} onAnswered={answered} />;
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
