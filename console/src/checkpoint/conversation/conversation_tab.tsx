/** The messages of a checkpoint as a conversation, scrolled to the newest messages. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { checkpointLink } from "../../links.ts";
import { Empty } from "../../parts/problem.tsx";
import { count, counted, oneLine } from "../../words.ts";
import { type Conversation, conversationsOf, hidesValues } from "./conversations.ts";
import { MessageView } from "./message.tsx";
import type { Message } from "./messages.ts";
import { type Turn, turnsOf } from "./pairing.ts";
import { sumsOf } from "./usage.ts";
import "./conversation.css";

const PAGE = 50; // turns that are shown at a time

export function ConversationTab({ checkpoint }: { checkpoint: Checkpoint }) {
  const channels = checkpoint.state?.channels;
  const conversations = useMemo(() => conversationsOf(channels ?? []), [channels]);
  const ref = checkpoint.ref;
  if (conversations.length === 0) {
    return (
      <Empty title="No channel of this checkpoint holds messages.">
        {hidesValues(channels ?? []) && (
          <p>It has values that the JSON view does not show; they are not searched.</p>
        )}
        {ref && <a href={checkpointLink(ref)}>Show the state</a>}
      </Empty>
    );
  }
  return (
    <>
      {conversations.map((one) => (
        <ConversationView key={one.name} conversation={one} alone={conversations.length === 1} />
      ))}
    </>
  );
}

interface ConversationViewProps {
  conversation: Conversation;
  alone: boolean;
}

function ConversationView({ conversation, alone }: ConversationViewProps) {
  const { name, messages, delta } = conversation;
  const turns = useMemo(() => turnsOf(messages), [messages]);
  const [shown, setShown] = useState(PAGE);
  const [source, setSource] = useState(false);
  const first = Math.max(turns.length - shown, 0);
  const box = useScrolledToEnd(turns, shown);
  return (
    <section aria-label={`Conversation in ${oneLine(name, 80)}`}>
      <h3 class={alone ? "unseen" : undefined}>{oneLine(name, 200)}</h3>
      <div class="conversation-head">
        <Facts messages={messages} />
        <button
          type="button"
          class="plain"
          aria-pressed={source}
          title="Show texts as they were saved, not formatted"
          onClick={() => setSource(!source)}
        >
          Source
        </button>
      </div>
      {delta && (
        <p class="quiet">
          This channel is stored as writes, merged here as LangGraph 1.2.24 merges messages. Other
          releases and reducers can merge them in another way.
        </p>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls the conversation */}
      <div class="messages" ref={box} tabIndex={0} role="log" aria-label="Messages" aria-live="off">
        {first > 0 && (
          <button type="button" onClick={() => setShown(shown + PAGE)}>
            Show {count(Math.min(PAGE, first))} of {count(first)} earlier
          </button>
        )}
        {turns.slice(first).map((turn, index) => (
          <MessageView key={first + index} turn={turn} source={source} />
        ))}
      </div>
    </section>
  );
}

/** The size of a conversation, and the tokens that its messages report. */
function Facts({ messages }: { messages: Message[] }) {
  const { calls, usage, answers, reporting } = useMemo(() => sumsOf(messages), [messages]);
  const { input, output, total } = usage;
  const tokens =
    input === undefined || output === undefined
      ? total !== undefined && `${counted(total, "token")}`
      : `${counted(input, "token")} in, ${count(output)} out`;
  const facts = [
    counted(messages.length, "message"),
    calls > 0 && counted(calls, "tool call"),
    tokens,
  ].filter(Boolean);
  return (
    <p class="conversation-facts">
      {facts.join(" · ")}
      {tokens && reporting < answers && (
        <span title={`${count(reporting)} of ${count(answers)} answers report tokens`}>
          {" "}
          where messages report them
        </span>
      )}
    </p>
  );
}

/**
 * Keep the end in sight when new messages arrive, and the text in place when earlier messages are
 * added.
 */
function useScrolledToEnd(turns: Turn[], shown: number) {
  const box = useRef<HTMLDivElement>(null);
  const before = useRef({ height: 0, shown });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return;
    }
    const { height, shown: shownBefore } = before.current;
    if (shown === shownBefore) {
      element.scrollTop = element.scrollHeight;
    } else {
      element.scrollTop += element.scrollHeight - height;
    }
    before.current = { height: element.scrollHeight, shown };
  }, [turns, shown]);
  return box;
}
