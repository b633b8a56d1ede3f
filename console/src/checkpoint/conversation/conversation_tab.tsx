/** The messages of a checkpoint as a conversation, scrolled to the newest messages. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { checkpointLink } from "../../links.ts";
import { JsonTree, Text } from "../../parts/json/json_tree.tsx";
import { Badge } from "../../parts/labels.tsx";
import { Empty } from "../../parts/problem.tsx";
import { count, counted, oneLine, visible } from "../../words.ts";
import { type Conversation, conversationsOf, hidesValues } from "./conversations.ts";
import type { Block, Message, ToolCall } from "./messages.ts";

const PAGE = 50; // messages that are shown at a time

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
  const [shown, setShown] = useState(PAGE);
  const first = Math.max(messages.length - shown, 0);
  const box = useScrolledToEnd(messages, shown);
  return (
    <section aria-label={`Conversation in ${oneLine(name, 80)}`}>
      <h3 class={alone ? "unseen" : undefined}>{oneLine(name, 200)}</h3>
      <p class="quiet">
        {counted(messages.length, "message")}
        {first > 0 && `, the newest ${count(messages.length - first)} are shown`}
        {delta &&
          ". This channel is stored as writes: the graph may merge them in another way than they are shown."}
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls the conversation */}
      <div class="messages" ref={box} tabIndex={0} role="log" aria-label="Messages" aria-live="off">
        {first > 0 && (
          <button type="button" onClick={() => setShown(shown + PAGE)}>
            Show {count(Math.min(PAGE, first))} earlier
          </button>
        )}
        {messages.slice(first).map((message, index) => (
          <MessageView key={first + index} message={message} />
        ))}
      </div>
    </section>
  );
}

/**
 * Keep the end in sight when new messages arrive, and the text in place when earlier messages are
 * added.
 */
function useScrolledToEnd(messages: Message[], shown: number) {
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
  }, [messages, shown]);
  return box;
}

const SPEAKERS: Record<string, string> = {
  human: "Human",
  assistant: "Assistant",
  system: "System",
  tool: "Tool",
  remove: "Removed message",
  other: "Something else",
};

function MessageView({ message }: { message: Message }) {
  const { role, name, blocks, calls, callId, failed } = message;
  const known = Object.hasOwn(SPEAKERS, role);
  return (
    <article class={`message ${known ? `from-${role}` : ""}`}>
      <p class="message-head">
        <strong>{known ? SPEAKERS[role] : oneLine(role, 60)}</strong>
        {name && <span>{oneLine(name, 120)}</span>}
        {failed && <Badge kind="bad">failed</Badge>}
        {callId && (
          <span class="quiet" title={`Answers the call ${oneLine(callId)}`}>
            answers {oneLine(callId, 24)}
          </span>
        )}
      </p>
      {blocks.map((block, index) => (
        <BlockView key={index} block={block} />
      ))}
      {calls.map((call, index) => (
        <CallView key={index} call={call} />
      ))}
      {blocks.length === 0 && calls.length === 0 && <p class="quiet">No content.</p>}
    </article>
  );
}

function BlockView({ block }: { block: Block }) {
  switch (block.kind) {
    case "text":
      return (
        <div class="message-text">
          <Text text={block.text} />
        </div>
      );
    case "reasoning":
      return (
        <details class="message-thought">
          <summary>Reasoning</summary>
          <Text text={block.text} />
        </details>
      );
    case "media":
      return <p class="message-media">{visible(oneLine(block.text))}</p>;
    case "data":
      return <JsonTree value={block.value} view />;
  }
}

function CallView({ call }: { call: ToolCall }) {
  const { id, name, args } = call;
  return (
    <div class="message-call">
      <p class="message-head">
        <span>
          calls <strong>{oneLine(name, 200)}</strong>
        </span>
        {id && <span class="quiet">{oneLine(id, 24)}</span>}
      </p>
      <JsonTree value={args} open={2} view />
    </div>
  );
}
