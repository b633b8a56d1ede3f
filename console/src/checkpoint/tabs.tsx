/** The parts of a checkpoint, each under an address of its own. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { checkpointLink, proofLink, type Ref } from "../links.ts";
import { JsonTree } from "../parts/json/json_tree.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import type { Loaded } from "../server/loading.ts";
import { count, visible } from "../words.ts";
import { ChangesTab } from "./changes_tab.tsx";
import { ConversationTab } from "./conversation/conversation_tab.tsx";
import { conversationsOf } from "./conversation/conversations.ts";
import { metadataOf } from "./describe.ts";
import { StateTab } from "./state_tab.tsx";
import { StoredTab } from "./stored_tab.tsx";
import { dataOf } from "./values.ts";
import { WritesTab } from "./writes_tab.tsx";

const TITLES = {
  conversation: "Conversation",
  state: "State",
  changes: "Changes",
  writes: "Writes",
  metadata: "Metadata",
  stored: "Stored",
};

type TabName = keyof typeof TITLES;

interface TabsProps {
  reference: Ref;
  /** Name of the tab in the address; another name: the first tab. */
  asked: string;
  /** The parts of the checkpoint that are known. */
  shown: Checkpoint;
  /** The checkpoint with its values. */
  whole: Loaded<Checkpoint>;
  thread: Thread | undefined;
  /** Number of channels that the step changed; undefined: it is not known. */
  changed: number | undefined;
}

export function Tabs({ reference, asked, shown, whole, thread, changed }: TabsProps) {
  const hasConversation = whole.data !== undefined && mayConverse(whole.data);
  const isAsked = Object.hasOwn(TITLES, asked);
  const first: TabName = hasConversation ? "conversation" : "state";
  const open = isAsked ? (asked as TabName) : first;
  const names = (Object.keys(TITLES) as TabName[]).filter(
    (name) => name !== "conversation" || hasConversation || open === name,
  );
  return (
    <>
      <nav class="tabs" aria-label="Parts of the checkpoint">
        {names.map((name) => (
          <a
            key={name}
            href={checkpointLink(reference, name)}
            aria-current={name === open ? "true" : undefined}
          >
            {TITLES[name]}
            {name === "changes" && (
              <>
                {" "}
                <span class="tab-count">{changed ? count(changed) : ""}</span>
              </>
            )}
          </a>
        ))}
      </nav>
      <Tab name={open} shown={shown} whole={whole} thread={thread} />
    </>
  );
}

const QUICK = 64 * 1024; // bytes of a value that is searched for messages whatever its name is

/** Return whether a checkpoint has a conversation, without reading large values of other names. */
function mayConverse({ state }: Checkpoint): boolean {
  const channels = (state?.channels ?? []).filter(
    (channel) => channel.name === "messages" || (dataOf(channel)?.length ?? 0) <= QUICK,
  );
  return conversationsOf(channels).length > 0;
}

interface TabProps extends Pick<TabsProps, "shown" | "whole" | "thread"> {
  name: TabName;
}

function Tab({ name, shown, whole, thread }: TabProps) {
  switch (name) {
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
      {whole.data && name === "state" && <StateTab checkpoint={whole.data} />}
      {whole.data && name === "conversation" && <ConversationTab checkpoint={whole.data} />}
      {whole.data && name === "writes" && <WritesTab checkpoint={whole.data} />}
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

function MetadataTab({ checkpoint }: { checkpoint: Checkpoint }) {
  const { whole } = metadataOf(checkpoint);
  const { summary } = checkpoint;
  return (
    <>
      {summary && <p class="quiet">{visible(summary)}</p>}
      {"json" in whole ? (
        <JsonTree value={whole.json} open={2} />
      ) : (
        <p role="alert">{visible(whole.problem)}</p>
      )}
    </>
  );
}
