/** The backlog of uncertified data, and the catalog from which a lost server is rebuilt. */
import type { GetArchiveStatusResponse } from "@contract/admin_service_pb.js";
import { Command } from "../parts/command.tsx";
import { Identifier, When } from "../parts/labels.tsx";
import { recover } from "../proof/commands.ts";
import { bytes, count, counted, hex, moment, visible } from "../words.ts";

export function Certification({ status }: { status: GetArchiveStatusResponse }) {
  const waits = status.backlogCheckpoints;
  return (
    <section class="card" aria-label="Certification">
      <h2>Certification</h2>
      <dl class="facts">
        <dt>Backlog</dt>
        <dd>
          {waits === 0n
            ? "nothing waits"
            : `${counted(waits, "checkpoint")}, ${bytes(status.backlogBytes)}`}
        </dd>
        {status.oldestUncertifiedTime && (
          <>
            <dt>Oldest that waits</dt>
            <dd>
              <When time={status.oldestUncertifiedTime} />
            </dd>
          </>
        )}
        <dt>Certified</dt>
        <dd>{counted(status.certifiedCheckpoints, "checkpoint")}</dd>
        <dt>Last flush</dt>
        <dd>{status.lastFlushTime ? <When time={status.lastFlushTime} /> : "none yet"}</dd>
        <dt>Only in the blob store</dt>
        <dd>{bytes(status.evictedBytes)}, evicted from the journal</dd>
        <dt>Last error</dt>
        <dd>
          {status.lastError ? (
            <>
              <span class="bad-text">{visible(status.lastError)}</span>
              {status.lastErrorTime && ` (${moment(status.lastErrorTime)})`}
            </>
          ) : (
            "none since the last success"
          )}
        </dd>
      </dl>
    </section>
  );
}

interface RecoveryProps {
  status: GetArchiveStatusResponse;
  backend: string;
}

export function Recovery({ status, backend }: RecoveryProps) {
  const { catalog, catalogSeq } = status;
  return (
    <section class="card" aria-label="Recovery">
      <h2>Recovery</h2>
      {!catalog && (
        <p>Nothing is certified yet, so a lost journal cannot be rebuilt. Flush, or wait.</p>
      )}
      {catalog && (
        <>
          <dl class="facts">
            <dt>Newest catalog</dt>
            <dd>
              <Identifier id={catalog.blobId} what="blob ID of the catalog" />
            </dd>
            <dt>SHA-256</dt>
            <dd>
              <Identifier id={hex(catalog.sha256)} what="SHA-256 of the catalog" />
            </dd>
            <dt>Flushes so far</dt>
            <dd>{count(catalogSeq)}</dd>
          </dl>
          <p>
            This command rebuilds an empty server from the blob store. Keep the command on another
            machine.
          </p>
          <Command text={recover(catalog, backend)} what="recover command" />
          <p class="hint">
            Replace the words in capitals. If blobs are sealed, add the server's keys, such as
            --key-file.
          </p>
        </>
      )}
    </section>
  );
}
