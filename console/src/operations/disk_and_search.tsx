/** The data on the server's disk, and the state of its search. */
import type {
  GetArchiveStatusResponse,
  GetServerInfoResponse,
  MemWalStatus,
  SearchStatus,
} from "@contract/admin_service_pb.js";
import { Badge, When } from "../parts/labels.tsx";
import { modeText } from "../search/answer.ts";
import { bytes, count, counted, visible } from "../words.ts";

export function Disk({ status }: { status: GetArchiveStatusResponse }) {
  const { journalBytes, spoolBytes, cacheBytes } = status;
  return (
    <section class="card" aria-label="Disk">
      <h2>Disk, all tenants together</h2>
      {journalBytes === 0n ? (
        <p>Sign in with a token that has the scope admin to see these sizes.</p>
      ) : (
        <dl class="facts">
          <dt>Journal</dt>
          <dd>{bytes(journalBytes)}</dd>
          <dt>Spool</dt>
          <dd>{bytes(spoolBytes)}, built and not certified yet</dd>
          <dt>Cache</dt>
          <dd>{bytes(cacheBytes)}</dd>
        </dl>
      )}
    </section>
  );
}

interface SearchCardProps {
  status: SearchStatus | undefined;
  info: GetServerInfoResponse;
}

export function SearchCard({ status, info }: SearchCardProps) {
  return (
    <section class="card" aria-label="Search">
      <h2>Search</h2>
      {!status && <p>Search is off: the server runs with --no-search.</p>}
      {status && (
        <dl class="facts">
          <dt>Modes</dt>
          <dd>{info.searchModes.map(modeText).join(", ") || "none for text"}</dd>
          <dt>Embedder</dt>
          <dd>{info.embedder || "none"}</dd>
          <dt>Indexed</dt>
          <dd>
            {counted(status.indexedCheckpoints, "checkpoint")}
            {status.truncatedCheckpoints > 0n &&
              `, ${count(status.truncatedCheckpoints)} by the latest part of their text`}
          </dd>
          <dt>Vectors</dt>
          <dd>{count(status.vectors)}</dd>
          <dt>Not indexed yet</dt>
          <dd>
            {counted(status.unindexedCheckpoints, "checkpoint")}
            {status.oldestUnindexedTime && (
              <>
                , the oldest since <When time={status.oldestUnindexedTime} />
              </>
            )}
          </dd>
          {status.lastError && (
            <>
              <dt>Last error</dt>
              <dd class="bad-text">{visible(status.lastError)}</dd>
            </>
          )}
        </dl>
      )}
      {status?.memwal && <MemWal status={status.memwal} />}
    </section>
  );
}

function MemWal({ status }: { status: MemWalStatus }) {
  return (
    <>
      <h3>MemWal</h3>
      <dl class="facts">
        <dt>State</dt>
        <dd>
          <Badge kind={status.healthy ? "good" : "bad"}>
            {status.healthy ? "answers" : "does not answer"}
          </Badge>
        </dd>
        <dt>Waiting</dt>
        <dd>
          {count(status.waiting)}
          {status.oldestWaitingTime && (
            <>
              , the oldest since <When time={status.oldestWaitingTime} />
            </>
          )}
        </dd>
        <dt>Underway</dt>
        <dd>{count(status.underway)}</dd>
        <dt>Delivered</dt>
        <dd>{count(status.delivered)}</dd>
        <dt>Last search in MemWal</dt>
        <dd>{status.lastRecallTime ? <When time={status.lastRecallTime} /> : "none yet"}</dd>
        {status.lastError && (
          <>
            <dt>Last error</dt>
            <dd>
              <span class="bad-text">{visible(status.lastError)}</span>{" "}
              <When time={status.lastErrorTime} />
            </dd>
          </>
        )}
      </dl>
    </>
  );
}
