/** A thread: its tree over time, live, and beside it the selected checkpoint. */
import { Durability } from "@contract/checkpoint_pb.js";
import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { NextStepCards } from "../actions/what_next/next_step_cards.tsx";
import { CheckpointPanel } from "../checkpoint/panel.tsx";
import { checkpointLink, type Ref, threadsLink } from "../links.ts";
import { oneColumn } from "../parts/narrow.ts";
import { Empty, Loading, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { oneLine } from "../words.ts";
import { attentionOf, continuedIn, failureInside } from "./attention.ts";
import { Effects } from "./effects/list.tsx";
import { FamilyCard, madeFrom, useFamily } from "./family.tsx";
import { useThread } from "./following.ts";
import { AttentionLine, Banner, Head } from "./head.tsx";
import { type Entry, keyOf } from "./log.ts";
import { type Mark, marksOf } from "./marks.ts";
import { threadView, ViewChoice } from "./timeline/choice.tsx";
import { Seal } from "./timeline/seal.tsx";
import { Timeline } from "./timeline/timeline.tsx";
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
  const head = all.find(({ checkpointNs }) => checkpointNs === "") ?? all[0];
  const chosen = query["checkpoint"]
    ? { checkpointNs: query["ns"] ?? "", checkpointId: query["checkpoint"] }
    : head;
  const newest = all.reduce((most, { checkpoint: { seq } }) => (seq > most ? seq : most), 0n);
  const thread = useLoad(
    async (signal) => (await threads.getThread({ threadId }, { signal })).thread,
    [threadId],
    [String(newest), String(log.certified), standing],
  );
  const family = useFamily(threadId, standing === "listing");
  const attention = useMemo(() => attentionOf(all), [all]);
  const continued = useMemo(() => continuedIn(all), [all]);
  const made = useMemo(() => madeFrom(family.data), [family.data]);
  const marks = useCallback(
    ({ key, checkpoint }: Entry) =>
      marksOf(checkpoint, {
        isContinued: continued.has(key),
        isHandedOff: log.handedOff.has(key) || made.handedOff.has(key),
        forks: made.forks.get(key) ?? 0,
      }),
    [log, version, continued, made],
  );
  const panel = useRef<HTMLElement>(null);
  const select = (entry: Entry, byKey: boolean) => {
    route(checkpointLink({ threadId, ...placeOf(entry) }, query["tab"]), byKey);
    if (oneColumn.value && !byKey) {
      panel.current?.scrollIntoView();
    }
  };
  if (standing === "lost" && all.length === 0 && following.problem) {
    return (
      <>
        <Title text={oneLine(threadId)} />
        <ProblemNote problem={following.problem} />
        <a href={threadsLink()}>All threads</a>
      </>
    );
  }
  const entry = chosen && log.find(chosen.checkpointNs, chosen.checkpointId);
  const listed = entry && {
    checkpoint: entry.checkpoint,
    title: entry.title,
    tookMs: log.tookMs(entry),
    failedInside: failedInside(all, entry),
  };
  const key = chosen && keyOf(chosen.checkpointNs, chosen.checkpointId);
  const view = threadView();
  const choice = (
    <div key="choice" class="thread-views">
      <ViewChoice />
      <Seal threadId={threadId} size={all.length} newest={newest} />
    </div>
  );
  const shown = { entries: all, selected: key, marks, onSelect: select };
  const history =
    view === "timeline" ? (
      <Timeline key="timeline" threadId={threadId} {...shown} />
    ) : (
      <TreeCard key="tree" tookMs={(entry) => log.tookMs(entry)} {...shown} />
    );
  const checkpoint = (
    <section key="panel" class="card thread-panel" aria-label="Checkpoint" ref={panel}>
      {chosen && (
        <CheckpointPanel
          key={key}
          reference={{ threadId, ...placeOf(chosen) }}
          listed={listed}
          thread={thread.data}
          tab={query["tab"] ?? ""}
          version={versionOf(entry)}
        />
      )}
    </section>
  );
  return (
    <>
      <Head
        threadId={threadId}
        thread={thread.data}
        entries={all}
        family={family.data}
        following={following}
      />
      <Banner following={following} />
      {attention && <AttentionLine threadId={threadId} of={attention} />}
      <NextStepCards threadId={threadId} version={`${newest} ${standing}`} />
      <Effects threadId={threadId} version={`${log.effects} ${standing}`} />
      {standing === "listing" && all.length === 0 && <Loading what="checkpoints" />}
      {all.length > 0 && (
        <div class={`thread ${view}-view`}>
          {oneColumn.value ? [checkpoint, choice, history] : [choice, history, checkpoint]}
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

/** Return the checkpoint of a subgraph in which the first failing task of `entry` failed. */
function failedInside(entries: readonly Entry[], entry: Entry): Ref | undefined {
  const [failure] = entry.checkpoint.step?.failures ?? [];
  const inner = failure && failureInside(entries, entry, failure);
  const threadId = entry.checkpoint.ref?.threadId ?? "";
  return inner && { threadId, ...placeOf(inner.place) };
}

function placeOf({ checkpointNs, checkpointId }: { checkpointNs: string; checkpointId: string }) {
  return { checkpointNs, checkpointId };
}

interface TreeCardProps {
  /** The checkpoints of the thread, newest first. */
  entries: readonly Entry[];
  selected: string | undefined;
  marks: (entry: Entry) => Mark[];
  tookMs: (entry: Entry) => number | undefined;
  onSelect: (entry: Entry, byKey: boolean) => void;
}

/** The tree of all graphs of the thread, or of one graph. */
function TreeCard({ entries, ...props }: TreeCardProps) {
  const [graph, setGraph] = useState<string>();
  const shown = useMemo(
    () => (graph === undefined ? entries : entries.filter((one) => one.checkpointNs === graph)),
    [entries, graph],
  );
  return (
    <section class="card thread-tree" aria-label="Checkpoints">
      <Tree entries={shown} {...props}>
        <Graphs entries={entries} chosen={graph} onChoose={setGraph} />
      </Tree>
    </section>
  );
}

interface GraphsProps {
  entries: readonly Entry[];
  chosen: string | undefined;
  onChoose: (namespace: string | undefined) => void;
}

/** Selects one graph of a thread that has subgraphs. */
function Graphs({ entries, chosen, onChoose }: GraphsProps) {
  const names = useMemo(
    () => [...new Set(entries.map(({ checkpointNs }) => checkpointNs))].sort(),
    [entries],
  );
  if (names.length < 2) {
    return null;
  }
  return (
    <select
      class="tree-graphs"
      aria-label="Graph"
      value={chosen === undefined ? "all" : `ns ${chosen}`}
      onChange={(event) => {
        const { value } = event.currentTarget;
        onChoose(value === "all" ? undefined : value.slice(3));
      }}
    >
      <option value="all">Graph and subgraphs</option>
      {names.map((name) => (
        <option key={name} value={`ns ${name}`}>
          {name ? oneLine(name, 80) : "Graph alone"}
        </option>
      ))}
    </select>
  );
}
