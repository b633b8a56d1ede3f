/**
 * The tree of a thread: its checkpoints over time, newest first. Only visible rows are rendered.
 */
import { Durability } from "@contract/checkpoint_pb.js";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Badge } from "../parts/labels.tsx";
import { moved, usePageKeys } from "../parts/list_keys.ts";
import { count, moment, oneLine, timeOfDay } from "../words.ts";
import { type LaneRow, lanesOf } from "./lanes.ts";
import type { Entry } from "./log.ts";

const ROW = 34; // pixels
const LANE = 14;
const MOST_LANES = 10; // lanes beyond this number are drawn over the last lane
const MARGIN = 12; // rows that are rendered above and below the visible rows
const COLOURS = 6;

interface TreeProps {
  entries: readonly Entry[];
  selected: string | undefined;
  /** Marks beside the title of an entry, such as the marks of forks. */
  marks: (entry: Entry) => ComponentChildren;
  /** `byKey`: the user moves through the list with the keyboard. */
  onSelect: (entry: Entry, byKey: boolean) => void;
}

export function Tree({ entries, selected, marks, onSelect }: TreeProps) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const rows = useMemo(() => lanesOf(entries), [entries]);
  const at = selected === undefined ? -1 : entries.findIndex(({ key }) => key === selected);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    const watch = new ResizeObserver(() => setHeight(element.clientHeight));
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
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
  const lanes = Math.min(MOST_LANES, 1 + rows.reduce((most, { lane }) => Math.max(most, lane), 0));
  return (
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
              <Lanes row={rows[index]} lanes={lanes} entry={entry} />
              <RowText entry={entry} marks={marks(entry)} />
            </div>
          );
        })}
      </div>
    </div>
  );
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

function RowText({ entry, marks }: { entry: Entry; marks: ComponentChildren }) {
  const { checkpoint, checkpointNs, title } = entry;
  const { createTime, label, lineage } = checkpoint;
  return (
    <>
      <span class="tree-title">{oneLine(title, 200)}</span>
      <span class="tree-marks">
        {checkpointNs && <Badge>{oneLine(checkpointNs.split(":")[0] ?? "", 40)}</Badge>}
        {label && <Badge kind="good">{oneLine(label, 40)}</Badge>}
        {lineage?.forkedFrom && <Badge>forked here</Badge>}
        {lineage?.rolledBackFrom && <Badge kind="warn">rolled back</Badge>}
        {lineage?.adoptedFrom && <Badge kind="good">adopted</Badge>}
        {marks}
      </span>
      {createTime && (
        <time class="tree-time" title={moment(createTime)}>
          {timeOfDay(createTime)}
        </time>
      )}
    </>
  );
}

interface LanesProps {
  row: LaneRow | undefined;
  lanes: number;
  entry: Entry;
}

function Lanes({ row, lanes, entry }: LanesProps) {
  if (!row) {
    return null;
  }
  const x = place(row.lane);
  const middle = ROW / 2;
  const certified = entry.checkpoint.durability === Durability.CERTIFIED;
  return (
    <svg width={lanes * LANE + 4} height={ROW} aria-hidden="true" focusable="false">
      {row.passing.map(({ lane, aside }) => (
        <path key={lane} class={strokeOf(lane, aside)} d={`M${place(lane)} 0V${ROW}`} />
      ))}
      {row.arriving.map(({ lane, aside }) => (
        <path
          key={lane}
          class={strokeOf(lane, aside)}
          d={`M${place(lane)} 0C${place(lane)} ${middle} ${x} 4 ${x} ${middle}`}
        />
      ))}
      {row.leaving && (
        <path class={strokeOf(row.lane, row.leaving.aside)} d={`M${x} ${middle}V${ROW}`} />
      )}
      <circle
        class={`knot ${strokeOf(row.lane, false)} ${certified ? "certified" : ""}`}
        cx={x}
        cy={middle}
        r={5}
      />
    </svg>
  );
}

function place(lane: number): number {
  return Math.min(lane, MOST_LANES - 1) * LANE + LANE / 2 + 2;
}

function strokeOf(lane: number, aside: boolean): string {
  return `lane-${lane % COLOURS}${aside ? " aside" : ""}`;
}
