/** A value of a channel or write on one line, which unfolds to its tree. */
import type { ComponentChildren } from "preact";
import { useId, useMemo, useState } from "preact/hooks";
import { preview, viewed } from "../parts/json/json.ts";
import { JsonTree } from "../parts/json/json_tree.tsx";
import { bytes, hex, oneLine, visible } from "../words.ts";
import { type Parsed, parsed } from "./values.ts";

const AT_ONCE = 64 * 1024; // bytes of JSON that are parsed for the line; more only when opened
const PREVIEW = 160; // characters of the line

interface ValueRowProps {
  name: string;
  /** The JSON view of the value; undefined: there is no view. */
  data: Uint8Array | undefined;
  digest: Uint8Array;
  /** Marks beside the value. */
  marks: ComponentChildren;
  /** Whether the value is unfolded at first. */
  open?: boolean;
}

export function ValueRow({ name, data, digest, marks, open = false }: ValueRowProps) {
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
        <span class="value-marks">
          {marks}
          {value && <Kind value={value} />}
          {data && <span title="Size as JSON">{bytes(data.length)}</span>}
          {digest.length > 0 && (
            <code title={`SHA-256 of the stored value: ${hex(digest)}`}>
              {hex(digest.subarray(0, 4))}
            </code>
          )}
        </span>
      </div>
      {!unfolded && value && <Line value={value} />}
      {!unfolded && data && !value && <p class="value-preview">{oneLine(beginning(data))}</p>}
      {unfolded && value && (
        <div id={inside} class="value-inside">
          {"json" in value ? (
            <JsonTree value={value.json} view />
          ) : (
            <p role="alert">{visible(value.problem)}</p>
          )}
        </div>
      )}
    </div>
  );
}

/** Return the start of a value that is too large to be parsed for one line. */
function beginning(data: Uint8Array): string {
  return `${new TextDecoder().decode(data.subarray(0, PREVIEW), { stream: true })}…`;
}

const KINDS: Record<string, string> = { text: "text", special: "" };

/** The kind of a value. */
function Kind({ value }: { value: Parsed }) {
  const shown = useMemo(() => ("json" in value ? viewed(value.json) : undefined), [value]);
  if (!shown) {
    return null;
  }
  const kind = shown.kind === "branch" ? shown.label : (KINDS[shown.kind] ?? shown.kind);
  return kind ? <span>{oneLine(kind, 60)}</span> : null;
}

function Line({ value }: { value: Parsed }) {
  const text = useMemo(
    () => ("json" in value ? preview(value.json, viewed, PREVIEW) : value.problem),
    [value],
  );
  return <p class="value-preview">{oneLine(text)}</p>;
}
