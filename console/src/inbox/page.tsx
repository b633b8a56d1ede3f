/** The inboxes of agents: hand-offs that wait for a receiver, and what became of the others. */
import type { Handoff } from "@contract/handoff_service_pb.js";
import { useMemo, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { type InboxFilter, inboxLink } from "../links.ts";
import { useLive } from "../operations/live.ts";
import { done } from "../parts/ask.tsx";
import { Command } from "../parts/command.tsx";
import { Field, TextField } from "../parts/fields.tsx";
import { narrow } from "../parts/narrow.ts";
import { Empty, Loading, Note, Trouble } from "../parts/problem.tsx";
import { Rows } from "../parts/rows.tsx";
import { Title } from "../parts/title.tsx";
import { useLoad } from "../server/loading.ts";
import { count, oneLine } from "../words.ts";
import { filterOf, inboxOf, STATES } from "./filter.ts";
import { OfferRow } from "./offer_row.tsx";
import { listOffers } from "./offers.ts";
import { useInbox } from "./watching.ts";
import { WithdrawDialog } from "./withdraw_dialog.tsx";
import "./page.css";

const FIRST_PAGE = 100;
const PAGE = 500;
const REFRESH_MS = 5000;
const CALM_MS = 300_000; // a refresh of an inbox whose changes the server reports
const SHARE = 10; // the page keeps the server busy for at most a 10th of the time

export default function InboxPage() {
  const { query, route } = useLocation();
  const filter = filterOf(query);
  const { agent, thread, state, unnamed } = filter;
  const [size, setSize] = useState(FIRST_PAGE);
  const [leaving, setLeaving] = useState<Handoff>();
  const { version, isLive } = useInbox(inboxOf(filter));
  const loaded = useLoad(
    (signal) => listOffers(filter, size, signal),
    [agent, thread, state, unnamed],
    [size, version, done.value],
  );
  const { data, problem, reload } = loaded;
  const pause = Math.max(isLive ? CALM_MS : REFRESH_MS, (data?.tookMs ?? 0) * SHARE);
  useLive(loaded, pause);
  // A long list is drawn again only after a listing.
  const rows = useMemo(
    () => (
      <Rows label="Offers, oldest first">
        {data?.offers.map((offer) => (
          <OfferRow key={offer.handoffId} offer={offer} onWithdraw={() => setLeaving(offer)} />
        ))}
      </Rows>
    ),
    [data],
  );
  return (
    <>
      <div class="page-head">
        <Title text="Inbox" tab={agent ? `Inbox of ${oneLine(agent, 40)}` : "Inbox"} />
        {data && !problem && (
          <span class="quiet live">
            {isLive ? "Live" : `Refreshes every ${Math.ceil(pause / 1000)} s`}
          </span>
        )}
      </div>
      <Filter
        key={JSON.stringify(filter)}
        filter={filter}
        onChange={(changed) => {
          setSize(FIRST_PAGE);
          route(inboxLink({ ...filter, ...changed }));
        }}
      />
      {problem && <Trouble problem={problem} isShown={data !== undefined} retry={reload} />}
      {data?.warnings.map((message) => (
        <Note key={message} kind="warn">
          <p>{message}</p>
        </Note>
      ))}
      {!data && !problem && <Loading what="offers" />}
      {data?.offers.length === 0 && <Nothing filter={filter} />}
      {data && data.offers.length > 0 && (
        <section class="card offers" aria-label="Offers">
          <h2>
            {titleOf(state)}{" "}
            <span class="thread-count">{count(data.offers.length) + (data.more ? "+" : "")}</span>
          </h2>
          {rows}
          {data.more && (
            <button type="button" class="thread-more" onClick={() => setSize(size + PAGE)}>
              Show more
            </button>
          )}
        </section>
      )}
      {leaving && <WithdrawDialog offer={leaving} onClose={() => setLeaving(undefined)} />}
    </>
  );
}

interface FilterProps {
  filter: Required<InboxFilter>;
  onChange: (changed: InboxFilter) => void;
}

/** The filter, folded on a phone. */
function Filter(props: FilterProps) {
  const { agent, thread, state } = props.filter;
  if (!narrow.value) {
    return <FilterForm {...props} />;
  }
  const set = [agent, thread, titleOf(state)].filter(Boolean).map((text) => oneLine(text, 30));
  return (
    <details class="filters-fold">
      <summary>Filter: {set.join(", ")}</summary>
      <FilterForm {...props} />
    </details>
  );
}

function titleOf(state: string): string {
  return STATES.find(({ name }) => name === state)?.title ?? "";
}

function FilterForm({ filter, onChange }: FilterProps) {
  const [agent, setAgent] = useState(filter.agent);
  const [thread, setThread] = useState(filter.thread);
  const { unnamed, state } = filter;
  const entered = { agent: agent.trim(), thread: thread.trim() };
  const submit = (event: Event) => {
    event.preventDefault();
    onChange(entered);
  };
  const isFiltered = filter.agent || filter.thread || unnamed || state;
  return (
    <form class="filters" onSubmit={submit} aria-label="Filter">
      <TextField
        label="To agent"
        value={agent}
        onInput={setAgent}
        placeholder={unnamed ? "none" : "any"}
      />
      <TextField label="From thread" value={thread} onInput={setThread} placeholder="any" />
      <Field label="State">
        {(id) => (
          <select
            id={id}
            value={state}
            onChange={(event) => onChange({ ...entered, state: event.currentTarget.value })}
          >
            {STATES.map(({ name, title }) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        )}
      </Field>
      <button type="submit">Filter</button>
      {isFiltered ? (
        <a class="button" href={inboxLink()}>
          Clear
        </a>
      ) : (
        <a class="button" href={inboxLink({ unnamed: "1" })}>
          To no agent
        </a>
      )}
    </form>
  );
}

function Nothing({ filter }: { filter: Required<InboxFilter> }) {
  const { agent, thread, unnamed, state } = filter;
  if (agent || thread || unnamed || state) {
    return (
      <Empty title="No offer matches the filter.">
        <a href={inboxLink()}>All open offers</a>
      </Empty>
    );
  }
  return (
    <Empty title="No open offers.">
      <p>
        A hand-off offers a checkpoint to an agent. The offer appears here, and one agent adopts it.
      </p>
      <Command text="tuskpoint handoff THREAD --to AGENT" what="the command" />
      <a href={inboxLink({ state: "all" })}>All offers</a>
    </Empty>
  );
}
