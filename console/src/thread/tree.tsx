/**
 * The tree of a thread: its checkpoints over time, newest first. Only visible rows are rendered.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { moved, usePageKeys } from "../parts/list_keys.ts";
import { count } from "../words.ts";
import { lanesOf } from "./lanes.ts";
import type { Entry } from "./log.ts";
import type { Mark } from "./marks.ts";
import { columnsIn } from "./row_layout.ts";
import { drawingOf, ROW, RowContent } from "./tree_row.tsx";

const MARGIN = 12; // rows that are rendered above and below the visible rows

interface TreeProps {
  entries: readonly Entry[];
  selected: string | undefined;
  marks: (entry: Entry) => readonly Mark[];
  /** Return the time since the save of the entry's parent, in milliseconds. */
  tookMs: (entry: Entry) => number | undefined;
  /** `byKey`: the user moves through the list with the keyboard. */
  onSelect: (entry: Entry, byKey: boolean) => void;
  /** Controls before the headings of the columns. */
  children?: ComponentChildren;
}

export function Tree({ entries, selected, marks, tookMs, onSelect, children }: TreeProps) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const { width, height } = useSize(box);
  const rows = useMemo(() => lanesOf(entries), [entries]);
  const lanes = useMemo(() => drawingOf(rows, width), [rows, width]);
  const hasTokens = useMemo(
    () => entries.some(({ checkpoint }) => checkpoint.step?.tokens),
    [entries],
  );
  const at = selected === undefined ? -1 : entries.findIndex(({ key }) => key === selected);
  useEffect(() => reveal(box.current, at), [at]);
  const press = (event: KeyboardEvent) => {
    const next = moved(event, at, entries.length);
    const entry = next === undefined ? undefined : entries[next];
    if (entry) {
      event.preventDefault();
      box.current?.focus();
      onSelect(entry, true);
    }
  };
  usePageKeys(press);
  const first = Math.max(0, Math.floor(top / ROW) - MARGIN);
  const last = Math.min(entries.length, Math.ceil((top + height) / ROW) + MARGIN);
  const columns = columnsIn(width, hasTokens);
  return (
    <>
      <div class="tree-head" style={{ width: `${width}px` }}>
        {children}
        <span class="tree-headings" aria-hidden="true">
          {columns.tokens && <span class="tree-tokens">Tokens</span>}
          {columns.step && <span class="tree-step">Step</span>}
          <span class="tree-took">Took</span>
        </span>
      </div>
      <div
        class="tree"
        ref={box}
        role="listbox"
        aria-label={`${count(entries.length)} checkpoints, newest first`}
        aria-activedescendant={at >= first && at < last ? `row-${at}` : undefined}
        tabIndex={0}
        style={{ "--whole": `${entries.length * ROW + 2}px` }}
        onKeyDown={press}
        onClick={(event) => {
          const row = (event.target as Element).closest<HTMLElement>("[data-index]");
          const entry = row && entries[Number(row.dataset["index"])];
          if (entry) {
            onSelect(entry, false);
          }
        }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div class="tree-whole" role="presentation" style={{ height: `${entries.length * ROW}px` }}>
          {entries.slice(first, last).map((entry, offset) => {
            const index = first + offset;
            return (
              // biome-ignore lint/a11y/useFocusableInteractive: the list has the focus, and names the option
              <div
                key={entry.key}
                id={`row-${index}`}
                class="tree-row"
                role="option"
                aria-selected={index === at}
                aria-posinset={index + 1}
                aria-setsize={entries.length}
                style={{ top: `${index * ROW}px`, height: `${ROW}px` }}
                data-index={index}
              >
                <RowContent
                  entry={entry}
                  above={entries[index - 1]}
                  marks={marks(entry)}
                  tookMs={tookMs(entry)}
                  columns={columns}
                  row={rows[index]}
                  lanes={lanes}
                  width={width}
                />
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}

/** Return the size of an element inside its scroll bars, and follow it. */
function useSize(box: { readonly current: HTMLElement | null }): { width: number; height: number } {
  const [size, setSize] = useState({ width: 480, height: 600 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    const watch = new ResizeObserver(() =>
      setSize({ width: element.clientWidth, height: element.clientHeight }),
    );
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return size;
}

function reveal(box: HTMLDivElement | null, index: number): void {
  if (!box || index < 0) {
    return;
  }
  const top = index * ROW;
  if (top < box.scrollTop) {
    box.scrollTop = top;
  } else if (top + ROW > box.scrollTop + box.clientHeight) {
    box.scrollTop = top + ROW - box.clientHeight;
  }
}
