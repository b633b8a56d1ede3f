/** All threads: threads that wait for a person first, then failed threads, then all others. */

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Thread, ThreadState } from "@contract/thread_pb.js";
import { ThreadOrder } from "@contract/thread_service_pb.js";
import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { searchLink, type ThreadFilter, threadLink, threadsLink } from "../links.ts";
import { Command } from "../parts/command.tsx";
import { Field, TextField } from "../parts/fields.tsx";
import { State, When } from "../parts/labels.tsx";
import { narrow } from "../parts/narrow.ts";
import { Empty, Loading, ProblemNote } from "../parts/problem.tsx";
import { Rows } from "../parts/rows.tsx";
import { Title } from "../parts/title.tsx";
import { admin, threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { oneLine } from "../words.ts";

const PAGE = 100;

/** Choices for the time since the last change of a thread, in hours. */
const AGES: [string, string, number][] = [
  ["1h", "in the last hour", 1],
  ["1d", "in the last day", 24],
  ["7d", "in the last 7 days", 7 * 24],
  ["30d", "in the last 30 days", 30 * 24],
];

const GROUPS: [string, string, ThreadState][] = [
  ["interrupted", "Waiting for a person", ThreadState.INTERRUPTED],
  ["failed", "Failed", ThreadState.FAILED],
  ["idle", "Idle", ThreadState.IDLE],
];

export function ThreadsPage() {
  const { query, route } = useLocation();
  const filter: ThreadFilter = query;
  const groups = GROUPS.filter(([name]) => !filter.state || filter.state === name);
  return (
    <>
      <div class="page-head">
        <Title text="Threads" />
      </div>
      <WordSearch onSearch={(words) => route(searchLink(words))} />
      <Filters
        key={JSON.stringify(filter)}
        filter={filter}
        onChange={(changed) => route(threadsLink(changed), true)}
      />
      {groups.map(([name, title, state]) => (
        <Group key={name} title={title} state={state} filter={filter} />
      ))}
    </>
  );
}

/** Search in plain words; the search page shows the results. */
function WordSearch({ onSearch }: { onSearch: (words: string) => void }) {
  const [words, setWords] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (words.trim()) {
      onSearch(words.trim());
    }
  };
  return (
    <search>
      <form class="filters" onSubmit={submit} aria-label="Search">
        <div class="wide">
          <Field label="What happened, in plain words">
            {(id) => (
              <input
                id={id}
                type="search"
                value={words}
                placeholder="asked for approval"
                onInput={(event) => setWords(event.currentTarget.value)}
              />
            )}
          </Field>
        </div>
        <button type="submit">Search</button>
      </form>
    </search>
  );
}

interface FiltersProps {
  filter: ThreadFilter;
  onChange: (filter: ThreadFilter) => void;
}

function Filters({ filter, onChange }: FiltersProps) {
  const [agent, setAgent] = useState(filter.agent ?? "");
  const [label, setLabel] = useState(filter.label ?? "");
  const submit = (event: Event) => {
    event.preventDefault();
    onChange({ ...filter, agent, label });
  };
  const form = (
    <form class="filters" onSubmit={submit} aria-label="Filter">
      <Field label="State">
        {(id) => (
          <select
            id={id}
            value={filter.state ?? ""}
            onChange={(event) => onChange({ ...filter, state: event.currentTarget.value })}
          >
            <option value="">any</option>
            {GROUPS.map(([name, title]) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Changed">
        {(id) => (
          <select
            id={id}
            value={filter.since ?? ""}
            onChange={(event) => onChange({ ...filter, since: event.currentTarget.value })}
          >
            <option value="">at any time</option>
            {AGES.map(([name, title]) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        )}
      </Field>
      <TextField label="Agent" value={agent} onInput={setAgent} />
      <TextField label="Label" value={label} onInput={setLabel} />
      <button type="submit">Filter</button>
      {Object.keys(filter).length > 0 && (
        <a class="button" href={threadsLink()}>
          Clear
        </a>
      )}
    </form>
  );
  const set = [filter.state, filter.since, filter.agent, filter.label].filter(Boolean).length;
  return narrow.value ? (
    <details class="filters-fold">
      <summary>{set > 0 ? `Filters (${set})` : "Filters"}</summary>
      {form}
    </details>
  ) : (
    form
  );
}

function changedSince(since: string, now: number) {
  const age = AGES.find(([name]) => name === since);
  return age ? { changedAfter: timestampFromMs(now - age[2] * 3_600_000) } : {};
}

interface GroupProps {
  title: string;
  state: ThreadState;
  filter: ThreadFilter;
}

/** The threads in one state, page by page. */
function Group({ title, state, filter }: GroupProps) {
  const [pages, setPages] = useState(1);
  const { agent: agentId = "", label = "", since = "" } = filter;
  const loaded = useLoad(
    async (signal) => {
      const begun = Date.now();
      const found: Thread[] = [];
      let pageToken = "";
      for (let page = 0; page < pages; page += 1) {
        const filters = { state, agentId, label, ...changedSince(since, begun) };
        const request = { ...filters, order: ThreadOrder.LATEST, pageSize: PAGE, pageToken };
        const answer = await threads.listThreads(request, { signal });
        found.push(...answer.threads);
        pageToken = answer.nextPageToken;
        if (!pageToken) {
          break;
        }
      }
      return { found, more: pageToken !== "" };
    },
    [state, agentId, label, since, pages],
  );
  const { data, problem } = loaded;
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      {problem && <ProblemNote problem={problem} retry={loaded.reload} />}
      {!data && !problem && <Loading what="threads" />}
      {data && data.found.length === 0 && <Nothing state={state} filter={filter} />}
      {data && data.found.length > 0 && (
        <Rows label={title}>
          {data.found.map((thread) => (
            <ThreadRow key={thread.threadId} thread={thread} />
          ))}
        </Rows>
      )}
      {data?.more && (
        <button type="button" onClick={() => setPages(pages + 1)}>
          Show more
        </button>
      )}
    </section>
  );
}

function ThreadRow({ thread }: { thread: Thread }) {
  return (
    <li>
      <a class="row" href={threadLink(thread.threadId)}>
        <span class="row-name">{oneLine(thread.threadId)}</span>
        <span class="row-side">
          <State state={thread.state} />
          {thread.agentId && <span>{oneLine(thread.agentId)}</span>}
          <span class="quiet">
            <When time={thread.updateTime} />
          </span>
        </span>
      </a>
    </li>
  );
}

function Nothing({ state, filter }: { state: ThreadState; filter: ThreadFilter }) {
  if (filter.agent || filter.label || filter.since) {
    return <Empty title="No thread matches the filter." />;
  }
  if (state !== ThreadState.IDLE) {
    return <p class="quiet">None.</p>;
  }
  return <EmptyServer />;
}

/** The first steps on a server without threads, with the address that clients take. */
function EmptyServer() {
  const { data, problem, reload } = useLoad((signal) => admin.getServerInfo({}, { signal }), []);
  if (problem) {
    return <ProblemNote problem={problem} retry={reload} />;
  }
  if (!data) {
    return <Loading what="the address of the server" />;
  }
  const address = `"${window.location.hostname}:${data.grpcPort}"`;
  const program = [
    "from tuskpoint import Client",
    "",
    `with Client(${address}) as client:`,
    '    client.save("first", {"count": 1}, summary="counted")',
  ].join("\n");
  return (
    <Empty title="No threads yet.">
      <p>
        An agent that saves a checkpoint appears here. This Python program makes a first thread:
      </p>
      <Command text={program} what="the program" />
      <p>
        With LangGraph: <code>checkpointer=TuskPointSaver({address})</code>.
      </p>
    </Empty>
  );
}
