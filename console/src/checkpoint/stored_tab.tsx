/** Where a checkpoint is stored, and which part of it is certified. */
import { type BlobLocation, type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import type { ManifestEntry } from "@contract/manifest_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import type { GetManifestResponse } from "@contract/thread_service_pb.js";
import { useState } from "preact/hooks";
import { proofLink, type Ref } from "../links.ts";
import { Copy, Identifier, When } from "../parts/labels.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { bytes, count, hex } from "../words.ts";
import { DurabilityMark } from "./heading.tsx";

const PAGE = 1000; // entries of the manifest in one request

interface StoredTabProps {
  checkpoint: Checkpoint;
  thread: Thread | undefined;
}

export function StoredTab({ checkpoint, thread }: StoredTabProps) {
  const { ref, location, seq, durability } = checkpoint;
  const [asked, setAsked] = useState(false);
  return (
    <>
      <dl class="facts">
        <dt>Last change</dt>
        <dd>
          number {count(seq)} of the thread <DurabilityMark durability={durability} />
        </dd>
        <dt>Blobs expire</dt>
        <dd>
          {!thread && "…"}
          {thread?.expireTime && <When time={thread.expireTime} />}
          {thread?.expireTime && " at the earliest, unless they are renewed"}
          {thread && !thread.expireTime && "no end is known"}
        </dd>
      </dl>
      <h3>Segment with the state</h3>
      {location ? (
        <Location location={location} />
      ) : (
        <p>
          Not stored yet: the checkpoint is safe in the server's journal, and its segment is written
          with the next flush.
        </p>
      )}
      {durability !== Durability.CERTIFIED && location && (
        <p class="quiet">Its last change is not certified yet.</p>
      )}
      <h3>In the manifest</h3>
      {asked && ref ? (
        <InManifest reference={ref} seq={seq} />
      ) : (
        <button type="button" onClick={() => setAsked(true)}>
          Look it up in the thread's manifest
        </button>
      )}
      <p class="stored-proof">
        <a href={proofLink(ref?.threadId ?? "")}>Verify the thread, and see its chain</a>
      </p>
    </>
  );
}

function Location({ location }: { location: BlobLocation }) {
  const { blobId, identifier, sha256, sizeBytes } = location;
  return (
    <dl class="facts">
      <dt>Blob</dt>
      <dd>
        <code>{blobId}</code> <Copy text={blobId} what="the blob's ID" />
      </dd>
      {identifier && (
        <>
          <dt>Member</dt>
          <dd>
            {identifier === hex(sha256) ? (
              "named by its SHA-256"
            ) : (
              <>
                <code>{identifier}</code> <Copy text={identifier} what="the member's identifier" />
              </>
            )}
          </dd>
        </>
      )}
      <dt>SHA-256</dt>
      <dd>
        <code>{hex(sha256)}</code> <Copy text={hex(sha256)} what="the SHA-256" />
      </dd>
      <dt>Size</dt>
      <dd title={`${count(sizeBytes)} bytes`}>{bytes(sizeBytes)}</dd>
    </dl>
  );
}

interface Found {
  entry: ManifestEntry | undefined;
  manifest: GetManifestResponse;
}

async function find(reference: Ref, signal: AbortSignal): Promise<Found> {
  const { threadId, checkpointNs, checkpointId } = reference;
  let pageToken = "";
  for (;;) {
    const request = { threadId, pageSize: PAGE, pageToken };
    const manifest = await threads.getManifest(request, { signal });
    const entry = manifest.entries.find(
      (one) => one.checkpointNs === checkpointNs && one.checkpointId === checkpointId,
    );
    pageToken = manifest.nextPageToken;
    if (entry || !pageToken) {
      return { entry, manifest };
    }
  }
}

/** The part of the checkpoint that a stranger with the catalog finds. */
function InManifest({ reference, seq }: { reference: Ref; seq: bigint }) {
  const { threadId, checkpointNs, checkpointId } = reference;
  const { data, problem, reload } = useLoad(
    (signal) => find(reference, signal),
    [threadId, checkpointNs, checkpointId, String(seq)],
  );
  if (problem) {
    return <ProblemNote problem={problem} retry={reload} />;
  }
  if (!data) {
    return <Loading what="the manifest" />;
  }
  const { entry, manifest } = data;
  return (
    <>
      {entry ? (
        <Entry entry={entry} />
      ) : (
        <p>The manifest does not have this checkpoint yet: it is not certified.</p>
      )}
      {manifest.catalog && (
        <>
          <h3>Catalog that leads to it</h3>
          <p class="quiet">
            Certified <When time={manifest.certifyTime} />, with the changes up to number{" "}
            {count(manifest.seq)}.
          </p>
          <Location location={manifest.catalog} />
        </>
      )}
    </>
  );
}

function Entry({ entry }: { entry: ManifestEntry }) {
  return (
    <>
      <dl class="facts">
        <dt>Stored change</dt>
        <dd>number {count(entry.seq)}</dd>
        <dt>SHA-256 of the state</dt>
        <dd>
          <Identifier id={hex(entry.stateSha256)} what="the SHA-256 of the state" />
        </dd>
      </dl>
      {entry.writes.length === 0 && <p class="quiet">It has no stored writes.</p>}
      {entry.writes.map((location, index) => (
        <div key={`${location.blobId} ${location.identifier} ${hex(location.sha256)}`}>
          <h4>
            Segment with writes
            {entry.writes.length > 1 && ` (${index + 1} of ${entry.writes.length})`}
          </h4>
          <Location location={location} />
        </div>
      ))}
    </>
  );
}
