/** A JSON value as a tree that folds; only what is open is in the page, so that any size works. */
import { useState } from "preact/hooks";
import { count, visible } from "../words.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const PAGE = 100; // members that are shown at a time
const LONG_TEXT = 2000; // characters of a string that are shown at first
const LONGEST_TEXT = 200_000; // characters that are shown at all; the rest can be copied

interface JsonTreeProps {
  value: Json;
  /** Levels that are open at first. */
  open?: number;
  /** Name of the value, shown before it. */
  name?: string;
}

export function JsonTree({ value, open = 1, name }: JsonTreeProps) {
  return (
    <div class="json">
      <Node value={value} open={open} name={name} />
    </div>
  );
}

function Node({ value, open, name }: { value: Json; open: number; name: string | undefined }) {
  const [unfolded, setUnfolded] = useState(open > 0);
  const [pages, setPages] = useState(1);
  const label = name === undefined ? null : <span class="json-key">{visible(name)}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <div class="json-leaf">
        {label}
        <Leaf value={value} />
      </div>
    );
  }
  const keys = Array.isArray(value) ? value.length : Object.keys(value).length;
  const members: Iterable<[string | number, Json]> = Array.isArray(value)
    ? value.entries()
    : Object.entries(value);
  const shown = unfolded ? Array.from(take(members, pages * PAGE)) : [];
  return (
    <div class="json-branch">
      <button
        type="button"
        class="json-toggle"
        aria-expanded={unfolded}
        onClick={() => setUnfolded(!unfolded)}
      >
        {label}
        <span class="json-kind">{kindOf(value, keys)}</span>
      </button>
      {unfolded && (
        <div class="json-members">
          {shown.map(([key, member]) => (
            <Node key={key} name={String(key)} value={member} open={open - 1} />
          ))}
          {keys > shown.length && (
            <button type="button" onClick={() => setPages(pages + 1)}>
              Show {count(Math.min(PAGE, keys - shown.length))} more of {count(keys)}
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function* take<T>(items: Iterable<T>, most: number): Iterable<T> {
  let taken = 0;
  for (const item of items) {
    if (taken === most) {
      return;
    }
    taken += 1;
    yield item;
  }
}

function kindOf(value: Json[] | { [key: string]: Json }, size: number): string {
  if (Array.isArray(value)) {
    return `[${count(size)}]`;
  }
  const type = value["$type"];
  return typeof type === "string"
    ? `${type.split(".").at(-1)} {${count(size - 1)}}`
    : `{${count(size)}}`;
}

function Leaf({ value }: { value: null | boolean | number | string }) {
  if (typeof value === "string") {
    return <Text text={value} />;
  }
  return <span class={`json-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
}

/** A string of any length: long ones are cut until somebody asks for more. */
export function Text({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  const limit = whole ? LONGEST_TEXT : LONG_TEXT;
  return (
    <span class="json-string">
      {visible(text.slice(0, limit))}
      {text.length > limit && (
        <>
          …{" "}
          <span class="quiet">
            {count(limit)} of {count(text.length)} characters
          </span>{" "}
          {!whole && (
            <button type="button" onClick={() => setWhole(true)}>
              Show more
            </button>
          )}
        </>
      )}
    </span>
  );
}
