/** The threads in one table: a line each, in groups whose columns align. */
import type { Thread, ThreadState } from "@contract/thread_pb.js";
import { CircleAlert, GitCommitHorizontal, type IconNode, MessageCircleQuestionMark } from "lucide";
import type { RefObject } from "preact";
import { threadLink } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
import { Unseen, When } from "../parts/labels.tsx";
import { Rows } from "../parts/rows.tsx";
import { count, duration, moment, oneLine, visible } from "../words.ts";
import { GROUPS, type Group } from "./groups.ts";
import { FIRST_PAGE, type Sizes } from "./listing.ts";
import { splitByWords } from "./names.ts";
import { type Reason, reasonOf } from "./reason.ts";

interface ThreadTableProps {
  groups: Group[];
  /** Words to mark in the names. */
  words: string;
  table: RefObject<HTMLDivElement | null>;
  /** Most threads of each group to show. */
  sizes: Sizes;
  /** Shows more threads in a state. */
  onMore: (state: ThreadState) => void;
}

export function ThreadTable({ groups, words, table, sizes, onMore }: ThreadTableProps) {
  return (
    <div class="card thread-table" ref={table}>
      <div class="thread-columns" aria-hidden="true">
        <span>Name</span>
        <span>Waits for, failed with, or did last</span>
        <span>Agent</span>
        <span class="number">Checkpoints</span>
        <span class="number">Duration</span>
        <span class="number">Changed</span>
      </div>
      {groups.map((group) => (
        <GroupSection
          key={group.state}
          group={group}
          words={words}
          size={sizes[group.state] ?? FIRST_PAGE}
          onMore={onMore}
        />
      ))}
    </div>
  );
}

interface GroupSectionProps extends Pick<ThreadTableProps, "words" | "onMore"> {
  group: Group;
  size: number;
}

function GroupSection({ group, words, size, onMore }: GroupSectionProps) {
  const { state, threads, more } = group;
  const title = GROUPS.find((choice) => choice.state === state)?.title ?? "";
  return (
    <section aria-label={title}>
      <h2>
        {title} <span class="thread-count">{count(threads.length) + (more ? "+" : "")}</span>
      </h2>
      <Rows label={title}>
        {threads.slice(0, size).map((thread) => (
          <ThreadRow key={thread.threadId} thread={thread} words={words} />
        ))}
      </Rows>
      {(more || threads.length > size) && (
        <button type="button" class="thread-more" onClick={() => onMore(state)}>
          Show more
        </button>
      )}
    </section>
  );
}

function ThreadRow({ thread, words }: { thread: Thread; words: string }) {
  const { threadId, agentId, checkpointCount, lease } = thread;
  const driver = lease && `driven by ${lease.owner}`;
  const agent = [agentId, driver].filter(Boolean).join(", ");
  return (
    <li>
      <a class="row" href={threadLink(threadId)}>
        <span class="thread-name" title={visible(threadId)}>
          {splitByWords(oneLine(threadId), words).map((part, index) =>
            index % 2 === 1 ? <mark key={index}>{part}</mark> : part,
          )}
        </span>
        <ReasonCell reason={reasonOf(thread)} />
        <span class="thread-agent" title={visible(agent)}>
          {oneLine(agent)}
        </span>
        <span class="number thread-size">
          {count(checkpointCount)}
          <Unseen> checkpoints</Unseen>
        </span>
        <Duration thread={thread} />
        <span class="number thread-age">
          <Unseen>changed </Unseen>
          <When time={thread.updateTime} short />
        </span>
      </a>
    </li>
  );
}

const KINDS: Record<Reason["kind"], { icon: IconNode; said: string; unknown: string }> = {
  question: {
    icon: MessageCircleQuestionMark,
    said: "asks: ",
    unknown: "The server cannot read the question.",
  },
  failure: {
    icon: CircleAlert,
    said: "failed: ",
    unknown: "The server cannot read the error.",
  },
  summary: { icon: GitCommitHorizontal, said: "", unknown: "No summary." },
};

const LONG_LINE = 120; // characters above which the end of an error says more than its beginning

function ReasonCell({ reason }: { reason: Reason }) {
  const { kind, node, type, text, whole } = reason;
  const { icon, said, unknown } = KINDS[kind];
  const isKnown = type !== "" || text !== "";
  const told = isKnown ? whole : [node, unknown].filter(Boolean).join(": ");
  const isLong = kind === "failure" && text.length > LONG_LINE;
  return (
    <span class={`thread-reason of-${kind}`} title={visible(told)}>
      <Icon of={icon} />
      <Unseen>{said}</Unseen>
      {kind === "failure" && node && <span class="thread-node">{oneLine(node, 60)}</span>}
      {type && (
        <span class="thread-type">
          {oneLine(type, 60)}
          {text && ":"}
        </span>
      )}
      <span class={isLong ? "thread-text from-end" : "thread-text"}>
        <bdi>{isKnown ? oneLine(isLong ? text.slice(-300) : text) : unknown}</bdi>
      </span>
    </span>
  );
}

/** The time from the first change of a thread to the last. */
function Duration({ thread: { createTime, updateTime } }: { thread: Thread }) {
  if (!createTime || !updateTime) {
    return <span class="number thread-duration">–</span>;
  }
  const nanos = updateTime.nanos - createTime.nanos;
  const milliseconds = Number(updateTime.seconds - createTime.seconds) * 1000 + nanos / 1e6;
  return (
    <span
      class="number thread-duration"
      title={`From ${moment(createTime)} to ${moment(updateTime)}`}
    >
      <Unseen>lasted </Unseen>
      {duration(milliseconds)}
    </span>
  );
}
