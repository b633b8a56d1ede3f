/** The changes between two checkpoints, channel by channel. */
import type { Change, DiffCheckpointsResponse } from "@contract/thread_service_pb.js";
import { useMemo, useState } from "preact/hooks";
import { isOfFramework } from "../checkpoint/describe.ts";
import { JsonTree, Text } from "../parts/json/json_tree.tsx";
import { Empty } from "../parts/problem.tsx";
import { count, counted, oneLine, visible } from "../words.ts";
import {
  byChannel,
  type ChannelChanges,
  KINDS,
  pathOf,
  type Side,
  sideOf,
  tally,
} from "./change.ts";
import { compareTexts, type Piece, shortened } from "./text_diff.ts";
import "./changes.css";

const PAGE = 100; // changes that are shown at a time
const LONG_PIECE = 2000; // characters of a change that are shown at first

interface ChangesProps {
  difference: DiffCheckpointsResponse;
  /** Whether the two sides of a change are stacked, for a narrow place. */
  compact?: boolean;
}

export function Changes({ difference, compact = false }: ChangesProps) {
  const { changes, truncated } = difference;
  const [pages, setPages] = useState(1);
  const channels = useMemo(() => byChannel(changes.slice(0, pages * PAGE)), [changes, pages]);
  const shown = channels.filter(({ channel }) => !isOfFramework(channel));
  const own = channels.filter(({ channel }) => isOfFramework(channel));
  const left = changes.length - pages * PAGE;
  if (changes.length === 0) {
    return <Empty title="The states are identical." />;
  }
  return (
    <>
      {truncated && (
        <p class="quiet">
          There are more changes than these {count(changes.length)}: the server's answer has room
          for no more.
        </p>
      )}
      {shown.map((one) => (
        <ChannelView key={one.channel} of={one} compact={compact} />
      ))}
      {own.length > 0 && (
        <details class="changes-own">
          <summary>
            Framework's own channels <span class="number">{count(own.length)}</span>
          </summary>
          {own.map((one) => (
            <ChannelView key={one.channel} of={one} compact={compact} />
          ))}
        </details>
      )}
      {left > 0 && (
        <button type="button" onClick={() => setPages(pages + 1)}>
          Show {count(Math.min(PAGE, left))} more of {count(changes.length)}
        </button>
      )}
    </>
  );
}

function ChannelView({ of, compact }: { of: ChannelChanges; compact: boolean }) {
  const { channel, changes } = of;
  return (
    <section class="changes" aria-label={`Channel ${oneLine(channel, 80)}`}>
      <h3>
        {oneLine(channel, 200)} {changes.length > 1 && <span class="quiet">{tally(changes)}</span>}
      </h3>
      <ul class={compact ? "compact" : "beside"}>
        {changes.map((change) => (
          <ChangeView key={`${change.kind} ${change.path}`} change={change} />
        ))}
      </ul>
    </section>
  );
}

function ChangeView({ change }: { change: Change }) {
  const { kind, path, fromJson, toJson } = change;
  const from = useMemo(() => sideOf(fromJson), [fromJson]);
  const to = useMemo(() => sideOf(toJson), [toJson]);
  const { name, sign } = KINDS[kind];
  const parts = pathOf(path);
  return (
    <li class={`change ${name}`}>
      <p class={parts.length === 0 ? "unseen" : "change-path"}>
        <span class="change-sign" aria-hidden="true">
          {sign}
        </span>
        <span class="unseen">{name}: </span>
        {parts.length === 0 ? (
          "the whole value"
        ) : (
          <code>{parts.map((part) => oneLine(part, 120) || '""').join(" › ")}</code>
        )}
      </p>
      <Sides from={from} to={to} />
    </li>
  );
}

function Sides({ from, to }: { from: Side; to: Side }) {
  const texts = from.kind === "text" && to.kind === "text" ? [from, to] : undefined;
  const [before, after] = texts ?? [];
  const compared = useMemo(
    () =>
      before && after
        ? compareTexts(before.text, after.text, { from: before.cut, to: after.cut })
        : undefined,
    [before, after],
  );
  if (before && after && before.text === after.text) {
    return (
      <p class="quiet">
        Both begin with the same {counted(before.text.length, "character")}; they differ after what
        the server sends of them.
      </p>
    );
  }
  const isCut = Boolean(before?.cut || after?.cut);
  return (
    <div class="change-sides">
      <div class="side from">
        <span class="unseen">From: </span>
        {compared && before ? (
          <Pieces pieces={compared.from} removed cut={isCut} />
        ) : (
          <SideView side={from} />
        )}
      </div>
      <div class="side to">
        <span class="unseen">To: </span>
        {compared && after ? (
          <Pieces pieces={compared.to} removed={false} cut={isCut} />
        ) : (
          <SideView side={to} />
        )}
      </div>
    </div>
  );
}

interface PiecesProps {
  pieces: Piece[];
  /** Whether the pieces are from the side before the change. */
  removed: boolean;
  /** Whether the comparison ends before the text. */
  cut: boolean;
}

function Pieces({ pieces, removed, cut }: PiecesProps) {
  return (
    <span class="side-text prose">
      {shortened(pieces).map(({ text, changed }, index) =>
        changed ? (
          <Text key={index} text={text} short={LONG_PIECE} element={removed ? "del" : "ins"} />
        ) : (
          visible(text)
        ),
      )}
      {pieces.length === 0 && !cut && <span class="quiet">empty text</span>}
      {cut && <Cut />}
    </span>
  );
}

function SideView({ side }: { side: Side }) {
  switch (side.kind) {
    case "absent":
      return <span class="quiet">–</span>;
    case "tree":
      return <JsonTree value={side.json} open={2} view />;
    case "text":
      return (
        <span class="side-text prose">
          {side.text === "" ? <span class="quiet">empty text</span> : <Text text={side.text} />}
          {side.cut && <Cut />}
        </span>
      );
    case "json":
      return (
        <span class="side-text">
          <Text text={side.text} short={LONG_PIECE} />
          {side.cut && <Cut />}
        </span>
      );
  }
}

function Cut() {
  return <span class="quiet"> … (the comparison ends here)</span>;
}
