/** The checkpoints that cannot be stored, or were lost: the first hundred. */
import type { Gap, GetArchiveStatusResponse } from "@contract/admin_service_pb.js";
import { checkpointLink, proofLink, threadLink } from "../links.ts";
import { Identifier, When } from "../parts/labels.tsx";
import { count, hex, oneLine } from "../words.ts";

export function Gaps({ status }: { status: GetArchiveStatusResponse }) {
  const { gaps, firstGaps } = status;
  if (gaps === 0n) {
    return null;
  }
  return (
    <section class="card" aria-label="Gaps">
      <h2>Gaps: {count(gaps)}</h2>
      <p class="quiet">
        Checkpoints that cannot be stored as they are, and segments that were lost. The server
        retries each; nothing else waits for them.
      </p>
      {BigInt(firstGaps.length) < gaps && (
        <p>The server names the first {count(firstGaps.length)}, oldest first.</p>
      )}
      <ul class="gaps">
        {firstGaps.map((gap) => (
          <Row
            key={`${gap.threadId} ${gap.checkpointNs} ${gap.checkpointId} ${hex(gap.segmentSha256)}`}
            gap={gap}
          />
        ))}
      </ul>
    </section>
  );
}

function Row({ gap }: { gap: Gap }) {
  const { threadId, checkpointNs, checkpointId, segmentSha256, reason, retryTime } = gap;
  return (
    <li>
      <span class="gap-line">
        <a href={threadLink(threadId)}>{oneLine(threadId, 80)}</a>
        {checkpointId ? (
          <span>
            checkpoint{" "}
            <Identifier
              id={checkpointId}
              what="checkpoint ID"
              href={checkpointLink({ threadId, checkpointNs, checkpointId })}
            />
          </span>
        ) : (
          <span>
            lost segment <Identifier id={hex(segmentSha256)} what="SHA-256 of the segment" />
          </span>
        )}
        <span class="quiet">
          tried again <When time={retryTime} />
        </span>
        <a href={proofLink(threadId, true)}>Verify</a>
      </span>
      <p>{oneLine(reason, 1000)}</p>
    </li>
  );
}
