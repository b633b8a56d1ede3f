/** A call of a tool with its arguments and its result, and a result without its call. */
import { Wrench } from "lucide";
import { useMemo } from "preact/hooks";
import { Icon } from "../../parts/icon.tsx";
import { type Json, plain, preview, type Reading, viewed } from "../../parts/json/json.ts";
import { JsonTree, Text } from "../../parts/json/json_tree.tsx";
import { Badge } from "../../parts/labels.tsx";
import { oneLine, visible } from "../../words.ts";
import type { Block, ToolResult } from "./messages.ts";
import type { PairedCall } from "./pairing.ts";

const SHORT_TEXT = 600; // characters of a result that are shown at first
const SHORT_LINES = 12;
const SMALL_TREE = 300; // characters of a value that is unfolded at first
const LARGEST_PARSED = 1_000_000; // characters of a text that is searched for JSON

export function CallView({ call }: { call: PairedCall }) {
  const { id, name, args, problem, result, waits } = call;
  return (
    <div class="call">
      <p class="call-head">
        <Icon of={Wrench} />
        <span class="call-name">
          <span class="unseen">calls </span>
          <strong>{oneLine(name, 200)}</strong>
        </span>
        {id && <CallId id={id} />}
        {problem && <Badge kind="bad">invalid call</Badge>}
        {result?.failed && <Badge kind="bad">failed</Badge>}
      </p>
      <Value name="arguments" value={args} read={viewed} least={1} />
      {problem && <p class="call-problem">{visible(oneLine(problem))}</p>}
      {result && <ResultView result={result} />}
      {!result && id && <p class="quiet">{waits ? "No result yet." : "No result."}</p>}
    </div>
  );
}

/** The ID of a call, whole on hover. */
export function CallId({ id }: { id: string }) {
  return (
    <code class="quiet" title={oneLine(id)}>
      {oneLine(id, 24)}
    </code>
  );
}

/** What a tool returned: text as it is, without Markdown, and JSON as a tree. */
export function ResultView({ result: { blocks } }: { result: ToolResult }) {
  return (
    <div class="call-result">
      {blocks.map((block, index) => (
        <ResultBlock key={index} block={block} />
      ))}
      {blocks.length === 0 && <p class="quiet">The result is empty.</p>}
    </div>
  );
}

function ResultBlock({ block }: { block: Block }) {
  const json = useMemo(() => (block.kind === "text" ? jsonIn(block.text) : undefined), [block]);
  if (block.kind === "data") {
    return <Value name="result" value={block.value} read={viewed} />;
  }
  if (json !== undefined) {
    return <Value name="result" value={json} read={plain} />;
  }
  return (
    <p class="call-text">
      <span class="json-key">result: </span>
      <Text text={block.text} short={shortLength(block.text)} />
    </p>
  );
}

interface ValueProps {
  name: string;
  value: Json;
  read: Reading;
  /** Number of levels that are open even if the value is large. */
  least?: number;
}

/** A value as a tree, folded if it is large. */
function Value({ name, value, read, least = 0 }: ValueProps) {
  const open = useMemo(
    () => (preview(value, read, SMALL_TREE + 1).length <= SMALL_TREE ? 2 : least),
    [value, read, least],
  );
  return <JsonTree name={name} value={value} open={open} view={read === viewed} />;
}

/** Return the array or object that a text is in JSON; undefined for other texts. */
function jsonIn(text: string): Json | undefined {
  if (!/^\s*[[{]/.test(text) || text.length > LARGEST_PARSED) {
    return undefined;
  }
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    if (error instanceof SyntaxError) {
      return undefined;
    }
    throw error;
  }
}

/** Return how many characters of a text are few characters in few lines. */
function shortLength(text: string): number {
  let end = -1;
  for (let line = 0; line < SHORT_LINES; line += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) {
      return SHORT_TEXT;
    }
  }
  return Math.min(end, SHORT_TEXT);
}
