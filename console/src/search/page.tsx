/** Search in plain words: checkpoints with their distance, and the limits of the answer. */
import type { SearchCheckpointsResponse } from "@contract/search_service_pb.js";
import { useLocation } from "preact-iso";
import { searchLink } from "../links.ts";
import { Empty, Loading, Note, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { admin, search } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { counted, oneLine } from "../words.ts";
import { leftOut, metricText, modeText } from "./answer.ts";
import { filterOf, objection, type Question, questionOf, requestOf } from "./asking.ts";
import { SearchForm } from "./form.tsx";
import { ResultTable } from "./result.tsx";
import "./page.css";

export default function SearchPage() {
  const { query, route } = useLocation();
  const question = questionOf(query);
  const info = useLoad((signal) => admin.getServerInfo({}, { signal }), []);
  const ask = (next: Question) => route(searchLink(next.q.trim(), next.thread, filterOf(next)));
  if (info.data && info.data.searchModes.length === 0) {
    return (
      <>
        <Head words={oneLine(question.q.trim(), 80)} />
        <NoIndex />
      </>
    );
  }
  return (
    <>
      <Head words={oneLine(question.q.trim(), 80)} />
      <SearchForm
        key={JSON.stringify(question)}
        question={question}
        modes={info.data?.searchModes ?? []}
        onAsk={ask}
      />
      {info.problem && <ProblemNote problem={info.problem} retry={info.reload} />}
      <Answer question={question} />
    </>
  );
}

function Head({ words }: { words: string }) {
  return (
    <div class="page-head">
      <Title text="Search" tab={words ? `Search: ${words}` : "Search"} />
    </div>
  );
}

function NoIndex() {
  return (
    <Empty title="Search is off on this server.">
      <p>
        The server runs with <code>--no-search</code>. Start the server without this flag, and it
        also indexes the checkpoints saved in between. Until then, filter the list of threads by
        state, agent and label.
      </p>
    </Empty>
  );
}

function Answer({ question }: { question: Question }) {
  const wrong = objection(question);
  const isValid = question.q.trim() !== "" && wrong === "";
  const { data, problem, loading, reload } = useLoad(
    async (signal) =>
      isValid ? await search.searchCheckpoints(requestOf(question), { signal }) : undefined,
    [question, isValid],
  );
  if (!isValid) {
    return wrong ? null : <Advice />;
  }
  return (
    <section aria-label="Results" aria-busy={loading}>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="results" />}
      {data && <Found answer={data} question={question} onAgain={reload} />}
    </section>
  );
}

interface FoundProps {
  answer: SearchCheckpointsResponse;
  question: Question;
  onAgain: () => void;
}

function Found({ answer, question, onAgain }: FoundProps) {
  const { results } = answer;
  return (
    <>
      <h2>
        {results.length > 0
          ? `${counted(results.length, "checkpoint")}, nearest first`
          : "Nothing found"}
      </h2>
      <p class="unseen" role="status">
        {counted(results.length, "checkpoint")} found.
      </p>
      <p class="quiet">
        Searched {modeText(answer.mode)}. {results.length > 0 && metricText(answer.metric)}
      </p>
      <LeftOutList answer={answer} limit={Number(question.limit)} onAgain={onAgain} />
      {results.length === 0 && <Nothing question={question} />}
      {results.length > 0 && (
        <ResultTable results={results} words={question.q} metric={answer.metric} />
      )}
    </>
  );
}

interface LeftOutListProps {
  answer: SearchCheckpointsResponse;
  limit: number;
  onAgain: () => void;
}

function LeftOutList({ answer, limit, onAgain }: LeftOutListProps) {
  const items = leftOut(answer, limit);
  if (items.length === 0) {
    return null;
  }
  return (
    <Note kind="warn">
      <ul class="left-out" aria-label="What was left out">
        {items.map(({ what, advice, detail }) => (
          <li key={what}>
            <strong>{what}</strong> {advice} {detail && <span class="quiet">Server: {detail}</span>}
          </li>
        ))}
        {answer.unindexedCheckpoints > 0n && (
          <li>
            <button type="button" onClick={onAgain}>
              Search again
            </button>
          </li>
        )}
      </ul>
    </Note>
  );
}

function Nothing({ question }: { question: Question }) {
  const { q, thread, agent, filter, mode } = question;
  const isFiltered = thread || agent || filter.trim();
  return (
    <Empty title="No checkpoint matches.">
      <ul class="advice">
        {isFiltered && (
          <li>
            Search <a href={searchLink(q)}>everywhere</a>, without the filters.
          </li>
        )}
        {q.includes('"') && (
          <li>Leave the quotes out: quoted words must occur exactly as written.</li>
        )}
        {mode && (
          <li>
            Let <a href={searchLink(q, thread, { agent, filter })}>the server choose the mode</a>.
          </li>
        )}
        <li>Use fewer words, or other words for the same thing.</li>
        <li>
          Deleted checkpoints and threads that are not searchable are never found. Text is found at
          the checkpoint that added the text.
        </li>
      </ul>
    </Empty>
  );
}

function Advice() {
  return (
    <Empty title="Search for what happened.">
      <ul class="advice">
        <li>
          Plain words: <code>customer asked for a refund</code>
        </li>
        <li>
          Identifiers: <code>PAY-1234</code>
        </li>
        <li>
          An exact phrase: <code>"approved by legal"</code>
        </li>
        <li>Search covers summaries, plans and new values of the state.</li>
      </ul>
    </Empty>
  );
}
