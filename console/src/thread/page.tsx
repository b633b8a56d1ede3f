/** A thread: its tree over time, live, and beside it the selected checkpoint. */
import { Durability } from "@contract/checkpoint_pb.js";
import { type Thread, ThreadState } from "@contract/thread_pb.js";
import { LineageKind } from "@contract/thread_service_pb.js";
import { useMemo, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { ThreadActions } from "../actions/threads/thread_actions.tsx";
import { NextStepCards } from "../actions/what_next/next_step_cards.tsx";
import { CheckpointPanel } from "../checkpoint/panel.tsx";
import { checkpointLink, proofLink, searchLink, threadsLink } from "../links.ts";
import { Field } from "../parts/fields.tsx";
import { Badge, State, When } from "../parts/labels.tsx";
import { Empty, Loading, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { counted, oneLine } from "../words.ts";
import { FamilyCard, useFamily } from "./family.tsx";
import { type Following, useThread } from "./following.ts";
import { type Entry, keyOf } from "./log.ts";
import { Tree } from "./tree.tsx";
import "./page.css";

export default function ThreadPage() {
  const { query } = useLocation();
  const id = query["id"] ?? "";
  if (!id) {
    return (
      <>
        <Title text="A thread" />
        <Empty title="No thread is named.">
          <a href={threadsLink()}>All threads</a>
        </Empty>
      </>
    );
  }
  return <ThreadView key={id} threadId={id} />;
}

function ThreadView({ threadId }: { threadId: string }) {
  const { query, route } = useLocation();
  const following = useThread(threadId);
  const { log, standing, version } = following;
  const all = useMemo(() => log.newestFirst(), [log, version]);
  const [namespace, setNamespace] = useState<string>();
  const entries = useMemo(
    () => (namespace === undefined ? all : all.filter((one) => one.checkpointNs === namespace)),
    [all, namespace],
  );
  const head = all.find(({ checkpointNs }) => checkpointNs === "") ?? all[0];
  const chosen = query["checkpoint"]
    ? { checkpointNs: query["ns"] ?? "", checkpointId: query["checkpoint"] }
    : head;
  const newest = all.reduce((most, { checkpoint: { seq } }) => (seq > most ? seq : most), 0n);
  const thread = useLoad(
    async (signal) => (await threads.getThread({ threadId }, { signal })).thread,
    [threadId],
    [String(newest), standing],
  );
  const family = useFamily(threadId, standing === "listing");
  const select = (entry: Entry, byKey: boolean) =>
    route(checkpointLink({ threadId, ...placeOf(entry) }, query["tab"]), byKey);
  if (standing === "lost" && all.length === 0 && following.problem) {
    return (
      <>
        <Title text={oneLine(threadId)} />
        <ProblemNote problem={following.problem} />
        <a href={threadsLink()}>All threads</a>
      </>
    );
  }
  return (
    <>
      <Head threadId={threadId} thread={thread.data} size={all.length} />
      <Banner following={following} />
      <NextStepCards threadId={threadId} version={`${newest} ${standing}`} />
      {standing === "listing" && all.length === 0 && <Loading what="checkpoints" />}
      {all.length > 0 && (
        <div class="thread">
          <section class="card thread-tree" aria-label="Checkpoints">
            <Namespaces entries={all} chosen={namespace} onChoose={setNamespace} />
            <Tree
              entries={entries}
              selected={chosen && keyOf(chosen.checkpointNs, chosen.checkpointId)}
              marks={(entry) => (
                <Marks
                  entry={entry}
                  handedOff={log.handedOff.has(entry.key)}
                  head={head}
                  thread={thread.data}
                  family={family.data}
                />
              )}
              onSelect={select}
            />
          </section>
          <section class="card thread-panel" aria-label="Checkpoint">
            {chosen && (
              <CheckpointPanel
                key={keyOf(chosen.checkpointNs, chosen.checkpointId)}
                reference={{ threadId, ...placeOf(chosen) }}
                thread={thread.data}
                tab={query["tab"] ?? ""}
                version={versionOf(log.find(chosen.checkpointNs, chosen.checkpointId))}
              />
            )}
          </section>
        </div>
      )}
      <FamilyCard threadId={threadId} family={family} />
    </>
  );
}

/** Return a number that changes when a checkpoint changes, or is certified. */
function versionOf(entry: Entry | undefined): number {
  const certified = entry?.checkpoint.durability === Durability.CERTIFIED;
  return entry ? 2 * Number(entry.checkpoint.seq) + Number(certified) : 0;
}

function placeOf({ checkpointNs, checkpointId }: { checkpointNs: string; checkpointId: string }) {
  return { checkpointNs, checkpointId };
}

interface HeadProps {
  threadId: string;
  thread: Thread | undefined;
  size: number;
}

function Head({ threadId, thread, size }: HeadProps) {
  return (
    <div class="page-head">
      <Title text={oneLine(threadId)} />
      {thread && <State state={thread.state} />}
      {thread?.agentId && <Badge>agent {oneLine(thread.agentId)}</Badge>}
      <span class="quiet">
        {counted(size, "checkpoint")}
        {thread && (
          <>
            , changed <When time={thread.updateTime} />
            {thread.uncertifiedCount > 0n && `, ${thread.uncertifiedCount} not certified yet`}
          </>
        )}
      </span>
      <span class="actions">
        <a class="button" href={proofLink(threadId)}>
          Proof
        </a>
        <a class="button" href={searchLink("", threadId)}>
          Search in it
        </a>
        {thread && <ThreadActions thread={thread} />}
      </span>
    </div>
  );
}

/** A note that the shown content is not current. */
function Banner({ following }: { following: Following }) {
  const { standing, problem } = following;
  if (standing === "live" || standing === "listing") {
    return (
      <p class="unseen" role="status">
        {standing === "live" ? "Live: changes appear as they happen." : ""}
      </p>
    );
  }
  return (
    <p class="banner" role="status">
      {standing === "lost" &&
        `${problem?.message ?? "The connection was lost."} This page continues by itself once the server answers. Nothing that is shown was lost.`}
      {standing === "deleted" &&
        "This thread was deleted. This page shows its last state until you leave it."}
      {standing === "began-again" && (
        <>
          This thread was deleted and created again.{" "}
          <button type="button" onClick={() => window.location.reload()}>
            Show the new one
          </button>
        </>
      )}
    </p>
  );
}

interface NamespacesProps {
  entries: readonly Entry[];
  chosen: string | undefined;
  onChoose: (namespace: string | undefined) => void;
}

/** Selects one graph of a thread that has subgraphs. */
function Namespaces({ entries, chosen, onChoose }: NamespacesProps) {
  const names = useMemo(
    () => [...new Set(entries.map(({ checkpointNs }) => checkpointNs))].sort(),
    [entries],
  );
  if (names.length < 2) {
    return null;
  }
  return (
    <Field label="Graph">
      {(id) => (
        <select
          id={id}
          value={chosen === undefined ? "all" : `ns ${chosen}`}
          onChange={(event) => {
            const { value } = event.currentTarget;
            onChoose(value === "all" ? undefined : value.slice(3));
          }}
        >
          <option value="all">the graph and its subgraphs</option>
          {names.map((name) => (
            <option key={name} value={`ns ${name}`}>
              {name ? oneLine(name, 80) : "the graph alone"}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface MarksProps {
  entry: Entry;
  handedOff: boolean;
  head: Entry | undefined;
  thread: Thread | undefined;
  family: ReturnType<typeof useFamily>["data"];
}

/** Marks of an entry for facts outside of the entry. */
function Marks({ entry, handedOff, head, thread, family }: MarksProps) {
  const { checkpointNs, checkpointId, key } = entry;
  const made = (kind: LineageKind) =>
    family?.descendants.filter(
      (step) =>
        step.kind === kind &&
        step.from?.threadId === entry.checkpoint.ref?.threadId &&
        step.from?.checkpointNs === checkpointNs &&
        step.from?.checkpointId === checkpointId,
    ).length ?? 0;
  const forks = made(LineageKind.FORK);
  const adoptions = made(LineageKind.ADOPTION);
  const stands = key === head?.key && thread && thread.state !== ThreadState.IDLE;
  return (
    <>
      {stands && <State state={thread.state} />}
      {forks > 0 && <Badge>{counted(forks, "fork")}</Badge>}
      {(handedOff || adoptions > 0 || family?.handedOff.has(key)) && (
        <Badge kind="good">handed off</Badge>
      )}
    </>
  );
}
