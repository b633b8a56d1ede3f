/**
 * A JSON value as a tree that folds; the page contains only open branches, so that any size works.
 */
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { count, visible } from "../../words.ts";
import { Copy } from "../labels.tsx";
import { moved } from "../list_keys.ts";
import { type Branch, type Json, plain, preview, type Reading, ranges, viewed } from "./json.ts";

export type { Json } from "./json.ts";

const PAGE = 100; // members that are shown at a time
const LONG_TEXT = 2000; // characters of a string that are shown at first
export const LONGEST_TEXT = 200_000; // characters that are shown at most; the rest can be copied
const PREVIEW = 60; // characters of a preview of a folded branch

interface JsonTreeProps {
  value: Json;
  /** Number of levels that are open at first. */
  open?: number;
  /** Name of the value, shown before it. */
  name?: string;
  /** Whether the value is a JSON view, whose escapes are decoded. */
  view?: boolean;
}

export function JsonTree({ value, open = 1, name, view = false }: JsonTreeProps) {
  const tree = useRef<HTMLDivElement>(null);
  const press = (event: KeyboardEvent) => {
    const toggles = Array.from(tree.current?.querySelectorAll<HTMLElement>(".json-toggle") ?? []);
    const index = toggles.indexOf(event.target as HTMLElement);
    const next = index < 0 ? undefined : moved(event, index, toggles.length);
    if (next !== undefined) {
      event.preventDefault();
      toggles[next]?.focus();
    }
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the keys move between its buttons
    <div class="json" ref={tree} onKeyDown={press}>
      <Node value={value} open={open} name={name} read={view ? viewed : plain} />
    </div>
  );
}

interface NodeProps {
  value: Json;
  open: number;
  name: string | undefined;
  read: Reading;
}

function Node({ value, open, name, read }: NodeProps) {
  const shown = useMemo(() => read(value), [value, read]);
  const label = name === undefined ? null : <span class="json-key">{visible(name)}: </span>;
  if (shown.kind === "branch" && shown.size === 0) {
    return (
      <div class="json-leaf">
        {label}
        <span class="json-kind">{visible(shown.brackets.join(""))}</span>
      </div>
    );
  }
  if (shown.kind !== "branch") {
    return (
      <div class="json-leaf">
        {label}
        {shown.kind === "text" ? (
          <Text text={shown.text} />
        ) : (
          <span class={`json-${shown.kind}`}>{visible(shown.text)}</span>
        )}
      </div>
    );
  }
  return (
    <Fold
      open={open > 0}
      label={label}
      kind={shown.label}
      inside={() => inside(value, shown, read)}
    >
      {() => <Members of={shown} start={0} end={shown.size} open={open - 1} read={read} />}
    </Fold>
  );
}

/** Return the content of a branch in a few words, without the name in its label. */
function inside(value: Json, { brackets: [left] }: Branch, read: Reading): string {
  return preview(value, read, PREVIEW).slice(left.length - 1);
}

interface FoldProps {
  open: boolean;
  label: ComponentChildren;
  kind: string;
  /** Return the content in a few words; shown while the branch is folded. */
  inside: () => string;
  children: () => ComponentChildren;
}

function Fold({ open, label, kind, inside, children }: FoldProps) {
  const [unfolded, setUnfolded] = useState(open);
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      setUnfolded(event.key === "ArrowRight");
    }
  };
  return (
    <div class="json-branch">
      <button
        type="button"
        class="json-toggle"
        aria-expanded={unfolded}
        onClick={() => setUnfolded(!unfolded)}
        onKeyDown={press}
      >
        {label}
        <span class="json-kind">
          {visible(kind)}
          {!unfolded && ` ${visible(inside())}`}
        </span>
      </button>
      {unfolded && <div class="json-members">{children()}</div>}
    </div>
  );
}

interface MembersProps {
  of: Branch;
  start: number;
  end: number;
  open: number;
  read: Reading;
}

/** Members of a branch; many members in ranges that fold. */
function Members({ of, start, end, open, read }: MembersProps) {
  if (end - start <= PAGE) {
    return of
      .members(start, end)
      .map(([key, member], index) => (
        <Node
          key={of.list ? start + index : key}
          name={key}
          value={member}
          open={open}
          read={read}
        />
      ));
  }
  return ranges(start, end, PAGE).map(([first, past]) => (
    <Fold
      key={first}
      open={first === 0}
      label={null}
      kind={`${count(first)} … ${count(past - 1)}`}
      inside={() => ""}
    >
      {() => <Members of={of} start={first} end={past} open={open} read={read} />}
    </Fold>
  ));
}

interface TextProps {
  text: string;
  /** Number of characters that are shown at first. */
  short?: number;
  /** The element of the text itself: `del` and `ins` mark a change. */
  element?: "span" | "del" | "ins";
}

/** A string of any length; a long string is cut until the reader asks for more. */
export function Text({ text, short = LONG_TEXT, element: Element = "span" }: TextProps) {
  const [whole, setWhole] = useState(false);
  const limit = whole ? LONGEST_TEXT : short;
  return (
    <span class="json-string">
      <Element>{visible(text.slice(0, limit))}</Element>
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
          <Copy text={text} what="the whole text" />
        </>
      )}
    </span>
  );
}
