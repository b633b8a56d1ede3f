/** The chain of hashes that leads to a thread: catalog, manifest, segments, blobs. */
import type { BlobLocation } from "@contract/checkpoint_pb.js";
import type { ManifestEntry } from "@contract/manifest_pb.js";
import type { GetManifestResponse } from "@contract/thread_service_pb.js";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Copy, Identifier, When } from "../parts/labels.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { bytes, count, counted, hex, oneLine } from "../words.ts";
import { chainOf } from "./chain.ts";
import { Entries } from "./entries.tsx";

const PAGE = 1000; // entries that are loaded at a time
const LISTED = 5; // segments and blobs that are listed in the drawing

interface ChainViewProps {
  threadId: string;
  /** A change of the version reloads the chain. */
  version: Date | undefined;
}

export function ChainView({ threadId, version }: ChainViewProps) {
  const [pages, setPages] = useState(1);
  const { data, problem, loading, reload } = useLoad(
    async (signal) => {
      const entries: ManifestEntry[] = [];
      let head: GetManifestResponse | undefined;
      let pageToken = "";
      for (let page = 0; page < pages; page += 1) {
        const request = { threadId, pageSize: PAGE, pageToken };
        const answer = await threads.getManifest(request, { signal });
        head ??= answer;
        entries.push(...answer.entries);
        pageToken = answer.nextPageToken;
        if (!pageToken) {
          break;
        }
      }
      return { head, entries, more: pageToken !== "" };
    },
    [threadId, pages, version?.getTime() ?? 0],
  );
  return (
    <section class="card" aria-label="Chain" aria-busy={loading}>
      <h2>The chain</h2>
      <p class="quiet">
        Every step names the next by the SHA-256 of its bytes, so the hash of the catalog covers
        everything.
      </p>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the manifest" />}
      {data?.head && !data.head.catalog && (
        <p>Nothing of this thread is certified yet. Verify the thread above, then flush.</p>
      )}
      {data?.head?.catalog && (
        <>
          <Drawing
            head={data.head}
            catalog={data.head.catalog}
            entries={data.entries}
            more={data.more}
          />
          {data.more && (
            <p>
              Only the first {counted(data.entries.length, "entry", "entries")} of the manifest are
              shown.{" "}
              <button type="button" disabled={loading} onClick={() => setPages(pages + 1)}>
                Load the next {count(PAGE)}
              </button>
            </p>
          )}
          <Entries threadId={threadId} entries={data.entries} />
        </>
      )}
    </section>
  );
}

interface DrawingProps {
  head: GetManifestResponse;
  catalog: BlobLocation;
  entries: ManifestEntry[];
  more: boolean;
}

function Drawing({ head, catalog, entries, more }: DrawingProps) {
  const chain = useMemo(() => chainOf(entries), [entries]);
  const least = more ? "at least " : "";
  return (
    <ol class="chain">
      <Step title="Catalog" says="names the runs of records of all threads">
        <dl class="facts">
          <dt>Blob</dt>
          <dd>
            <Identifier id={catalog.blobId} what="blob ID of the catalog" />
          </dd>
          {catalog.identifier && (
            <>
              <dt>Member</dt>
              <dd>
                {catalog.identifier === hex(catalog.sha256) ? (
                  "named by its SHA-256"
                ) : (
                  <Identifier id={catalog.identifier} what="name of the catalog in its blob" />
                )}
              </dd>
            </>
          )}
          <dt>SHA-256</dt>
          <dd>
            <Identifier id={hex(catalog.sha256)} what="SHA-256 of the catalog" />
          </dd>
          <dt>Size</dt>
          <dd>{bytes(catalog.sizeBytes)}</dd>
          <dt>Certified</dt>
          <dd>
            <When time={head.certifyTime} />
          </dd>
        </dl>
      </Step>
      <Step title="Manifest" says="the records of this thread: an entry for each checkpoint">
        <dl class="facts">
          <dt>Entries</dt>
          <dd>
            {least}
            {count(entries.length)}
          </dd>
          <dt>Incarnation</dt>
          <dd>{count(head.incarnation)}</dd>
          <dt>Generation</dt>
          <dd>{count(head.generation)}</dd>
          <dt>Last change</dt>
          <dd>{count(head.seq)}</dd>
        </dl>
      </Step>
      <Step title="Segments" says="hold states, pending writes and values">
        <p>
          {least}
          {counted(chain.segments.length, "segment")}, {bytes(chain.bytes)}
        </p>
        <ul>
          {chain.segments.slice(0, LISTED).map(({ location, checkpoints }) => (
            <li key={hex(location.sha256) + location.identifier}>
              <Identifier id={hex(location.sha256)} what="SHA-256 of the segment" />{" "}
              <span class="quiet">{counted(checkpoints, "checkpoint")}</span>
            </li>
          ))}
        </ul>
        <Others shown={LISTED} size={chain.segments.length} />
      </Step>
      <Step title="Blobs" says="the bytes in the blob store">
        <p>
          {least}
          {counted(chain.blobs.length, "blob")}
        </p>
        <ul>
          {chain.blobs.slice(0, LISTED).map((blob) => (
            <li key={blob.blobId}>
              <code title={blob.blobId}>{oneLine(blob.blobId, 12)}</code>
              <Copy text={blob.blobId} what="blob ID" />{" "}
              <span class="quiet">{counted(blob.segments, "segment")}</span>
            </li>
          ))}
        </ul>
        <Others shown={LISTED} size={chain.blobs.length} />
      </Step>
    </ol>
  );
}

function Others({ shown, size }: { shown: number; size: number }) {
  return size > shown ? <p class="quiet">and {count(size - shown)} more</p> : null;
}

interface StepProps {
  title: string;
  /** The purpose of the step in the chain. */
  says: string;
  children: ComponentChildren;
}

function Step({ title, says, children }: StepProps) {
  return (
    <li class="chain-step">
      <h3>{title}</h3>
      <p class="quiet">{says}</p>
      {children}
    </li>
  );
}
