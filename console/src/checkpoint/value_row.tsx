/** A value of a channel or write on one line, which unfolds to its tree. */
import type { ComponentChildren } from "preact";
import { useId, useMemo, useState } from "preact/hooks";
import { preview, viewed } from "../parts/json/json.ts";
import { JsonTree, Text } from "../parts/json/json_tree.tsx";
import { Copy } from "../parts/labels.tsx";
import { bytes, hex, oneLine, visible } from "../words.ts";
import { type Parsed, parsed } from "./values.ts";

const AT_ONCE = 64 * 1024; // bytes of JSON that are parsed for the line; more only when opened
const PREVIEW = 160; // characters of the line

interface ValueRowProps {
  name: string;
  /** The JSON view of the value; undefined: there is no view. */
  data: Uint8Array | undefined;
  digest: Uint8Array;
  /** Remarks on the line of the value. */
  remarks?: ComponentChildren;
  /** Facts that are shown with the unfolded value. */
  facts?: ComponentChildren;
  /** Whether the value is unfolded at first. */
  open?: boolean;
}

export function ValueRow({ name, data, digest, remarks, facts, open = false }: ValueRowProps) {
  const [unfolded, setUnfolded] = useState(open);
  const inside = useId();
  const value = data && (unfolded || data.length <= AT_ONCE) ? parsed(data) : undefined;
  return (
    <div class="value">
      <div class="value-line">
        <button
          type="button"
          class="value-name json-toggle"
          aria-expanded={unfolded}
          aria-controls={unfolded ? inside : undefined}
          disabled={!data}
          onClick={() => setUnfolded(!unfolded)}
        >
          {oneLine(name, 200)}
        </button>
        <span class="value-preview">
          {!unfolded && value && <Line value={value} />}
          {!unfolded && data && !value && <code>{oneLine(beginning(data))}</code>}
        </span>
        <span class="value-remarks">
          {remarks}
          {value && <Kind value={value} />}
        </span>
      </div>
      {unfolded && value && data && (
        <div id={inside} class="value-inside">
          <p class="value-facts">
            {facts}
            <span title="Size as JSON">{bytes(data.length)}</span>
            {digest.length > 0 && (
              <span title={hex(digest)}>
                SHA-256 <code>{hex(digest.subarray(0, 4))}</code>
                <Copy text={hex(digest)} what={`the SHA-256 of ${oneLine(name, 60)}`} />
              </span>
            )}
          </p>
          <Inside value={value} />
        </div>
      )}
    </div>
  );
}

/** Return the start of a value that is too large to be parsed for one line. */
function beginning(data: Uint8Array): string {
  return `${new TextDecoder().decode(data.subarray(0, PREVIEW), { stream: true })}…`;
}

/** An unfolded value: a text as prose, anything else as a tree. */
function Inside({ value }: { value: Parsed }) {
  if (!("json" in value)) {
    return <p role="alert">{visible(value.problem)}</p>;
  }
  return typeof value.json === "string" ? (
    <div class="value-text">
      <Text text={value.json} />
    </div>
  ) : (
    <JsonTree value={value.json} view />
  );
}

/** The kind and size of an object or list. */
function Kind({ value }: { value: Parsed }) {
  const shown = useMemo(() => ("json" in value ? viewed(value.json) : undefined), [value]);
  if (!shown) {
    return null;
  }
  return shown.kind === "branch" ? <span>{oneLine(shown.label, 60)}</span> : null;
}

/** The start of a value on one line: a text as prose, anything else as JSON. */
function Line({ value }: { value: Parsed }) {
  const text = useMemo(() => {
    if (!("json" in value)) {
      return value.problem;
    }
    const { json } = value;
    return typeof json === "string" ? json : preview(json, viewed, PREVIEW);
  }, [value]);
  const isProse = "json" in value && typeof value.json === "string";
  return isProse ? <span>{oneLine(text, PREVIEW)}</span> : <code>{oneLine(text)}</code>;
}
