/** One checkpoint: what happened, its state, its writes, and where it is stored. */
import { type Checkpoint, View } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { CheckpointActions } from "../actions/checkpoint_actions.tsx";
import { Interrupts } from "../actions/interrupts/interrupts.tsx";
import { checkpointLink, proofLink, type Ref } from "../links.ts";
import { JsonTree, LONGEST_TEXT, Text } from "../parts/json/json_tree.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { checkpoints } from "../server/calls.ts";
import { onlyCheckpoint } from "../server/checkpoints.ts";
import { type Loaded, useLoad } from "../server/loading.ts";
import { count, oneLine, visible } from "../words.ts";
import { ChangesTab } from "./changes_tab.tsx";
import { ConversationTab } from "./conversation/conversation_tab.tsx";
import { asks, metadataOf } from "./describe.ts";
import { ending, type Failure, failuresOf } from "./failures.ts";
import { Heading } from "./heading.tsx";
import { StateTab } from "./state_tab.tsx";
import { StoredTab } from "./stored_tab.tsx";
import { WritesTab } from "./writes_tab.tsx";
import "./panel.css";

interface CheckpointPanelProps {
  reference: Ref;
  /** Thread of the checkpoint; undefined while it is loading. */
  thread: Thread | undefined;
  /** The open tab; empty: the first tab. */
  tab: string;
  /** Changes when the checkpoint may have changed, according to the watch of the thread. */
  version: number;
}

const TABS: [string, string][] = [
  ["", "State"],
  ["conversation", "Conversation"],
  ["changes", "Changes"],
  ["writes", "Writes"],
  ["metadata", "Metadata"],
  ["stored", "Stored"],
];

export function CheckpointPanel({ reference, thread, tab, version }: CheckpointPanelProps) {
  const entry = useCheckpoint(reference, View.ENTRY, version);
  const whole = useCheckpoint(reference, View.JSON, version);
  const shown = newest(entry.data, whole.data);
  const known = TABS.some(([name]) => name === tab) ? tab : "";
  if (!shown) {
    return entry.problem ? (
      <ProblemNote problem={entry.problem} retry={entry.reload} />
    ) : (
      <Loading what="the checkpoint" />
    );
  }
  return (
    <div class="checkpoint">
      <Heading checkpoint={shown} />
      {entry.problem && <ProblemNote problem={entry.problem} retry={entry.reload} />}
      {whole.data && asks(whole.data.writes) && (
        <Interrupts checkpoint={whole.data} thread={thread} />
      )}
      {whole.data && <Failures checkpoint={whole.data} />}
      <CheckpointActions checkpoint={whole.data ?? shown} thread={thread} />
      <nav class="tabs" aria-label="Parts of the checkpoint">
        {TABS.map(([name, title]) => (
          <a
            key={name}
            href={checkpointLink(reference, name)}
            aria-current={name === known ? "true" : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      <Tab tab={known} shown={shown} whole={whole} thread={thread} />
    </div>
  );
}

/**
 * Load a checkpoint, and reload it when `version` changes; the previous content stays meanwhile.
 */
function useCheckpoint(reference: Ref, view: View, version: number): Loaded<Checkpoint> {
  const { threadId, checkpointNs, checkpointId } = reference;
  const ref = { threadId, checkpointNs, checkpointId };
  const loaded = useLoad(
    (signal) => onlyCheckpoint(checkpoints.loadCheckpoint({ ref, view }, { signal })),
    [ref],
  );
  const before = useRef(version);
  const { reload } = loaded;
  useEffect(() => {
    if (before.current !== version) {
      before.current = version;
      reload();
    }
  }, [version, reload]);
  return loaded;
}

/**
 * The two calls may see different changes: the later change wins, and of equal changes the
 * checkpoint with values.
 */
function newest(entry: Checkpoint | undefined, whole: Checkpoint | undefined) {
  return entry && whole && entry.seq > whole.seq ? entry : (whole ?? entry);
}

interface TabProps {
  tab: string;
  /** The parts of the checkpoint that are known. */
  shown: Checkpoint;
  /** The checkpoint with its values. */
  whole: Loaded<Checkpoint>;
  thread: Thread | undefined;
}

function Tab({ tab, shown, whole, thread }: TabProps) {
  switch (tab) {
    case "changes":
      return <ChangesTab checkpoint={shown} />;
    case "metadata":
      return <MetadataTab checkpoint={shown} />;
    case "stored":
      return <StoredTab checkpoint={shown} thread={thread} />;
  }
  return (
    <>
      {whole.problem && <Unreadable whole={whole} checkpoint={shown} />}
      {!whole.data && !whole.problem && <Loading what="the values" />}
      {whole.data && tab === "" && <StateTab checkpoint={whole.data} />}
      {whole.data && tab === "conversation" && <ConversationTab checkpoint={whole.data} />}
      {whole.data && tab === "writes" && <WritesTab checkpoint={whole.data} />}
    </>
  );
}

interface UnreadableProps {
  whole: Loaded<Checkpoint>;
  checkpoint: Checkpoint;
}

/** A note that the values cannot be read, although the journal has the checkpoint. */
function Unreadable({ whole, checkpoint }: UnreadableProps) {
  const { problem, data } = whole;
  if (!problem) {
    return null;
  }
  const away = problem.reason === "BLOB_UNAVAILABLE";
  return (
    <>
      <ProblemNote
        problem={away ? { ...problem, title: "The blob store does not answer" } : problem}
        retry={whole.reload}
      />
      <p class="quiet">
        {data
          ? "What is shown below was loaded before."
          : "The values of this checkpoint cannot be shown. Its summary, metadata and place are what the journal knows."}{" "}
        <a href={proofLink(checkpoint.ref?.threadId ?? "")}>Verify the thread</a>
      </p>
    </>
  );
}

function Failures({ checkpoint }: { checkpoint: Checkpoint }) {
  const failures = useMemo(() => failuresOf(checkpoint), [checkpoint]);
  return (
    <>
      {failures.map((failure, index) => (
        <FailureNote key={`${index} ${failure.task}`} failure={failure} />
      ))}
    </>
  );
}

const SHORT_ERROR = 500; // characters of a message that are shown at first: its end

function FailureNote({ failure }: { failure: Failure }) {
  const { task, type, message, traceback } = failure;
  const [whole, setWhole] = useState(false);
  const isCut = message.length > SHORT_ERROR && !whole;
  return (
    <div class="problem">
      <p class="problem-title">
        Failed in {oneLine(task, 200)}
        {type && `: ${oneLine(type, 200)}`}
      </p>
      {isCut ? (
        <>
          <button type="button" onClick={() => setWhole(true)}>
            Show all {count(message.length)} characters
          </button>
          <p class="failure-message">…{visible(ending(message, SHORT_ERROR))}</p>
        </>
      ) : (
        <p class="failure-message">
          <Text text={message} short={LONGEST_TEXT} />
        </p>
      )}
      {traceback && (
        <details>
          <summary>Traceback</summary>
          <pre>
            <Text text={traceback} />
          </pre>
        </details>
      )}
    </div>
  );
}

function MetadataTab({ checkpoint }: { checkpoint: Checkpoint }) {
  const { whole } = metadataOf(checkpoint);
  return "json" in whole ? (
    <JsonTree value={whole.json} open={2} />
  ) : (
    <p role="alert">{visible(whole.problem)}</p>
  );
}
