/** One message of a conversation: who said it, what, and what it cost. */
import { Bot, type IconNode, MessageSquare, ScrollText, User, Wrench } from "lucide";
import { Icon } from "../../parts/icon.tsx";
import { JsonTree, Text } from "../../parts/json/json_tree.tsx";
import { Badge, Copy } from "../../parts/labels.tsx";
import { count, oneLine, visible } from "../../words.ts";
import { Markdown } from "./markdown/markdown.tsx";
import type { Block, Message } from "./messages.ts";
import type { Turn } from "./pairing.ts";
import { CallId, CallView, ResultView } from "./tool_call.tsx";
import type { Usage } from "./usage.ts";

const SHORT_MESSAGE = 4000; // characters of a message that are shown at first
const SHORT_RULES = 600; // the same for the rules of the system, which seldom change

const SPEAKERS: Record<string, [string, IconNode]> = {
  human: ["Human", User],
  assistant: ["Assistant", Bot],
  system: ["System", ScrollText],
  tool: ["Tool", Wrench],
  remove: ["Removed message", MessageSquare],
  other: ["Something else", MessageSquare],
};

interface MessageViewProps {
  turn: Turn;
  /** Whether text is shown as it was saved, not formatted. */
  source: boolean;
}

export function MessageView({ turn: { message, calls, results }, source }: MessageViewProps) {
  const { role, name, blocks } = message;
  const isKnown = Object.hasOwn(SPEAKERS, role);
  const [speaker, icon] = SPEAKERS[isKnown ? role : "other"] ?? ["", MessageSquare];
  const short = role === "system" ? SHORT_RULES : SHORT_MESSAGE;
  return (
    <article class={`message ${isKnown ? `from-${role}` : ""}`}>
      <p class="message-head">
        <span class="message-speaker">
          <Icon of={icon} />
          <strong>{isKnown ? speaker : oneLine(role, 60)}</strong>
        </span>
        {name && <span class="quiet">{oneLine(name, 120)}</span>}
        <Origin message={message} />
      </p>
      {blocks.map((block, index) => (
        <BlockView key={index} block={block} source={source} short={short} />
      ))}
      {calls.map((call, index) => (
        <CallView key={index} call={call} />
      ))}
      {results.map((result, index) => (
        <div key={index} class="call">
          <p class="call-head">
            {result.name && result.name !== name && <strong>{oneLine(result.name, 200)}</strong>}
            {result.callId && (
              <span class="quiet">
                answers <CallId id={result.callId} />
              </span>
            )}
            {result.failed && <Badge kind="bad">failed</Badge>}
          </p>
          <ResultView result={result} />
        </div>
      ))}
      {blocks.length + calls.length + results.length === 0 && <p class="quiet">No content.</p>}
    </article>
  );
}

/** The model and the tokens of a message, as far as they are reported, and its text to copy. */
function Origin({ message: { model, usage, blocks } }: { message: Message }) {
  const facts = [model && oneLine(model, 60), ...tokenFacts(usage)].filter(Boolean);
  const said = blocks.flatMap((block) => (block.kind === "text" ? [block.text] : []));
  return (
    <span class="message-origin">
      {said.length > 0 && <Copy text={said.join("\n\n")} what="the message" />}
      {facts.length > 0 && <span>{facts.join(" · ")}</span>}
    </span>
  );
}

function tokenFacts(usage: Usage | undefined): string[] {
  const { input, output, total } = usage ?? {};
  if (input === undefined && output === undefined) {
    return total === undefined ? [] : [`${count(total)} tokens`];
  }
  const facts = input === undefined ? [] : [`${count(input)} in`];
  return output === undefined ? facts : [...facts, `${count(output)} out`];
}

interface BlockViewProps {
  block: Block;
  source: boolean;
  short: number;
}

function BlockView({ block, source, short }: BlockViewProps) {
  switch (block.kind) {
    case "text":
      return source ? (
        <pre class="message-source">
          <Text text={block.text} short={short} />
        </pre>
      ) : (
        <Markdown text={block.text} short={short} />
      );
    case "reasoning":
      return (
        <details class="message-thought">
          <summary>Reasoning</summary>
          <Text text={block.text} />
        </details>
      );
    case "media":
      return <p class="quiet">{visible(oneLine(block.text))}</p>;
    case "data":
      return <JsonTree value={block.value} view />;
  }
}
