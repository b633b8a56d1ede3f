/** The entries of a manifest as a table, page by page. */
import type { ManifestEntry } from "@contract/manifest_pb.js";
import { useState } from "preact/hooks";
import { checkpointLink } from "../links.ts";
import { Identifier } from "../parts/labels.tsx";
import { Pager } from "../parts/pager.tsx";
import { count, hex, oneLine } from "../words.ts";

const PAGE = 25;

interface EntriesProps {
  threadId: string;
  entries: ManifestEntry[];
}

export function Entries({ threadId, entries }: EntriesProps) {
  const [first, setFirst] = useState(0);
  return (
    <details class="entries">
      <summary>All entries: where each checkpoint is, and its hash</summary>
      <ul class="verdicts" aria-label="Entries of the manifest">
        {entries.slice(first, first + PAGE).map((entry) => (
          <Entry
            key={`${entry.checkpointNs} ${entry.checkpointId}`}
            threadId={threadId}
            entry={entry}
          />
        ))}
      </ul>
      <Pager what="entries" first={first} page={PAGE} size={entries.length} onMove={setFirst} />
    </details>
  );
}

function Entry({ threadId, entry }: { threadId: string; entry: ManifestEntry }) {
  const { checkpointNs, checkpointId, segment, stateSha256, writes, seq, summary } = entry;
  const href = checkpointLink({ threadId, checkpointNs, checkpointId });
  return (
    <li>
      <span class="verdict-line">
        <Identifier id={checkpointId} what="checkpoint ID" href={href} />
        {checkpointNs && <span class="quiet">{oneLine(checkpointNs, 80)}</span>}
        <span>{oneLine(summary, 120)}</span>
        <span class="quiet">change {count(seq)}</span>
      </span>
      <span class="verdict-line quiet">
        <span>
          state SHA-256 <Identifier id={hex(stateSha256)} what="SHA-256 of the state" />
        </span>
        {segment && (
          <>
            <span>
              segment SHA-256 <Identifier id={hex(segment.sha256)} what="SHA-256 of the segment" />
            </span>
            <span>
              in blob <Identifier id={segment.blobId} what="blob ID" />
            </span>
          </>
        )}
        {writes.map((write) => (
          <span key={hex(write.sha256)}>
            writes in <Identifier id={hex(write.sha256)} what="SHA-256 of a segment of writes" />
          </span>
        ))}
      </span>
    </li>
  );
}
