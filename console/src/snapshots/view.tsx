/** One snapshot: its members, and its actions. */
import type { Snapshot } from "@contract/snapshot_service_pb.js";
import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { placeOf } from "../actions/checkpoint_names.ts";
import { checkpointLink, snapshotsLink } from "../links.ts";
import { type Json, JsonTree } from "../parts/json/json_tree.tsx";
import { Copy, When } from "../parts/labels.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { Rows } from "../parts/rows.tsx";
import { Title } from "../parts/title.tsx";
import { snapshots } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { counted, oneLine, short } from "../words.ts";
import { DeleteSnapshotDialog, RestoreDialog } from "./dialogs.tsx";

const PAGE = 100; // members that are shown at a time

export function SnapshotView({ snapshotId }: { snapshotId: string }) {
  const loaded = useLoad(
    (signal) => snapshots.getSnapshot({ snapshotId }, { signal }),
    [snapshotId],
  );
  const snapshot = loaded.data?.snapshot;
  return (
    <>
      <div class="page-head">
        <Title text={`Snapshot ${oneLine(short(snapshotId))}`} />
        <a href={snapshotsLink()}>All snapshots</a>
      </div>
      {loaded.problem && <ProblemNote problem={loaded.problem} retry={loaded.reload} />}
      {!loaded.data && !loaded.problem && <Loading what="the snapshot" />}
      {snapshot && <Loaded snapshot={snapshot} />}
    </>
  );
}

function Loaded({ snapshot }: { snapshot: Snapshot }) {
  const { route } = useLocation();
  const [open, setOpen] = useState<"restore" | "delete">();
  const close = () => setOpen(undefined);
  return (
    <>
      <div class="actions snapshot-actions">
        <button type="button" onClick={() => setOpen("restore")}>
          Restore
        </button>
        <button type="button" class="danger" onClick={() => setOpen("delete")}>
          Delete
        </button>
      </div>
      <section class="card" aria-label="About the snapshot">
        <h2>About</h2>
        <Facts snapshot={snapshot} />
      </section>
      <section class="card" aria-label="Members">
        <h2>{counted(snapshot.members.length, "thread")} captured</h2>
        <Members snapshot={snapshot} />
      </section>
      {open === "restore" && <RestoreDialog snapshot={snapshot} onClose={close} />}
      {open === "delete" && (
        <DeleteSnapshotDialog
          snapshot={snapshot}
          onDeleted={() => route(snapshotsLink())}
          onClose={close}
        />
      )}
    </>
  );
}

function Facts({ snapshot }: { snapshot: Snapshot }) {
  const { snapshotId, sessionId, hostname, workingDirectory, metadataJson } = snapshot;
  const metadata = JSON.parse(new TextDecoder().decode(metadataJson) || "{}") as Json;
  const texts: [string, string][] = [
    ["Session", sessionId],
    ["Host", hostname],
    ["Directory", workingDirectory],
  ];
  return (
    <>
      <dl class="facts">
        <dt>ID</dt>
        <dd>
          <code>{oneLine(snapshotId)}</code>
          <Copy text={snapshotId} what="the snapshot's ID" />
        </dd>
        <dt>Captured</dt>
        <dd>
          <When time={snapshot.createTime} />
        </dd>
        {texts
          .filter(([, text]) => text)
          .map(([name, text]) => (
            <>
              <dt>{name}</dt>
              <dd>{oneLine(text)}</dd>
            </>
          ))}
      </dl>
      {Object.keys(metadata ?? {}).length > 0 && <JsonTree value={metadata} name="metadata" />}
    </>
  );
}

function Members({ snapshot }: { snapshot: Snapshot }) {
  const [pages, setPages] = useState(1);
  const shown = snapshot.members.slice(0, pages * PAGE);
  return (
    <>
      <Rows label="Captured threads">
        {shown.map((member) => (
          <li key={member.threadId}>
            <a class="row" href={checkpointLink(placeOf(member))}>
              <span class="row-name">{oneLine(member.threadId)}</span>
              <span class="row-side">
                <code>{oneLine(short(member.checkpointId))}</code>
              </span>
            </a>
          </li>
        ))}
      </Rows>
      {shown.length < snapshot.members.length && (
        <button type="button" onClick={() => setPages(pages + 1)}>
          Show more
        </button>
      )}
    </>
  );
}
