/** The head of a thread's page: the thread in one line, and what it needs a person for. */
import { type Thread, ThreadState } from "@contract/thread_pb.js";
import { CircleX, MessageCircleQuestionMark } from "lucide";
import { useMemo } from "preact/hooks";
import { ThreadActions } from "../actions/threads/thread_actions.tsx";
import { ending } from "../checkpoint/failures.ts";
import { checkpointLink } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
import { Badge, State, When } from "../parts/labels.tsx";
import { Title } from "../parts/title.tsx";
import { count, counted, duration, oneLine } from "../words.ts";
import { type Attention, isAnswered } from "./attention.ts";
import { type Family, Origin } from "./family.tsx";
import { tokensOf, wholeTimeMs } from "./figures.ts";
import type { Following } from "./following.ts";
import type { Entry } from "./log.ts";

interface HeadProps {
  threadId: string;
  thread: Thread | undefined;
  entries: readonly Entry[];
  family: Family | undefined;
  following: Following;
}

export function Head(props: HeadProps) {
  const { threadId, thread, entries } = props;
  return (
    <div class="page-head">
      <Title text={oneLine(threadId)} />
      {thread?.state === ThreadState.IDLE && isAnswered(entries) ? (
        <Badge kind="good">answered, ready to continue</Badge>
      ) : (
        thread && <State state={thread.state} />
      )}
      <ThreadActions threadId={threadId} thread={thread} />
      <Facts {...props} />
    </div>
  );
}

function Facts({ thread, entries, family, following }: HeadProps) {
  const wholeTime = useMemo(() => wholeTimeMs(entries), [entries]);
  const tokens = useMemo(() => tokensOf(entries), [entries]);
  return (
    <span class="thread-facts">
      {thread?.agentId && <span>agent {oneLine(thread.agentId)}</span>}
      {thread?.lease && <span>driven by {oneLine(thread.lease.owner)}</span>}
      {family && <Origin family={family} />}
      <span>{counted(entries.length, "checkpoint")}</span>
      {wholeTime !== undefined && (
        <span title="From the first to the last save, with all pauses">{duration(wholeTime)}</span>
      )}
      {tokens && (
        <span title={`${count(tokens.inputTokens)} in, ${count(tokens.outputTokens)} out`}>
          {count(tokens.inputTokens + tokens.outputTokens)} tokens
        </span>
      )}
      {thread && (
        <span>
          changed <When time={thread.updateTime} />
        </span>
      )}
      {thread && thread.uncertifiedCount > 0n && (
        <span>{count(thread.uncertifiedCount)} not certified yet</span>
      )}
      {following.standing === "live" && (
        <span class="live" role="status" title="Changes appear as they happen">
          Live
        </span>
      )}
    </span>
  );
}

/** A note that the shown content is not current. */
export function Banner({ following }: { following: Following }) {
  const { standing, problem } = following;
  if (standing === "live" || standing === "listing") {
    return null;
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

const LONGEST = 160; // characters of a question or message

/** What the thread waits for or failed with, and a link to where. */
export function AttentionLine({ threadId, of }: { threadId: string; of: Attention }) {
  const { kind, where, type, text, others, place } = of;
  const { checkpointNs, checkpointId } = place;
  const href = checkpointLink({ threadId, checkpointNs, checkpointId });
  const asks = kind === "question";
  const what = asks ? "Waits for an answer" : "Failed";
  return (
    <p class={`attention ${asks ? "warn" : "bad"}`}>
      <Icon of={asks ? MessageCircleQuestionMark : CircleX} />
      <strong>
        {where ? `${what} in ${oneLine(where, 120)}` : what}
        {type && `: ${oneLine(type, 80)}`}
      </strong>
      <span class="attention-text">
        {asks ? oneLine(text, LONGEST) : endOf(text)}
        {others > 0 && <span class="quiet"> and {count(others)} more</span>}
      </span>
      <a href={href}>{asks ? "Show the question" : "Show where"}</a>
    </p>
  );
}

/** Return the end of a message: the reason is there. It begins with a whole word. */
function endOf(message: string): string {
  const end = ending(message, LONGEST);
  const isCut = end.length < message.length;
  return oneLine(isCut ? `… ${end.slice(end.indexOf(" ") + 1)}` : end, LONGEST + 2);
}
