/** What cannot be stored, or was lost: the first hundred. */
import type { GetArchiveStatusResponse, Hole } from "@contract/admin_service_pb.js";
import { checkpointLink, proofLink, threadLink } from "../links.ts";
import { Identifier, When } from "../parts/labels.tsx";
import { count, hex, oneLine } from "../words.ts";

export function Holes({ status }: { status: GetArchiveStatusResponse }) {
  const { holes, firstHoles } = status;
  if (holes === 0n) {
    return null;
  }
  return (
    <section class="card" aria-label="Holes">
      <h2>Holes: {count(holes)}</h2>
      <p class="quiet">
        Checkpoints that cannot be stored as they are, and stored segments that were lost. Each is
        tried again; nothing else waits for it.
      </p>
      {BigInt(firstHoles.length) < holes && (
        <p>The server names the first {count(firstHoles.length)}, oldest first.</p>
      )}
      <ul class="holes">
        {firstHoles.map((hole) => (
          <Row
            key={`${hole.threadId} ${hole.checkpointNs} ${hole.checkpointId} ${hex(hole.segmentSha256)}`}
            hole={hole}
          />
        ))}
      </ul>
    </section>
  );
}

function Row({ hole }: { hole: Hole }) {
  const { threadId, checkpointNs, checkpointId, segmentSha256, reason, retryTime } = hole;
  return (
    <li>
      <span class="hole-line">
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
