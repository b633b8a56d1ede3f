/** All snapshots, newest first, page by page. */
import type { Snapshot } from "@contract/snapshot_service_pb.js";
import { Camera } from "lucide";
import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { CaptureDialog } from "../actions/capture_dialog.tsx";
import { snapshotsLink } from "../links.ts";
import { TextField } from "../parts/fields.tsx";
import { Icon } from "../parts/icon.tsx";
import { When } from "../parts/labels.tsx";
import { Empty, Loading, ProblemNote } from "../parts/problem.tsx";
import { Rows } from "../parts/rows.tsx";
import { Title } from "../parts/title.tsx";
import { snapshots } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { counted, oneLine, short } from "../words.ts";

const PAGE = 100;

export function SnapshotList({ session }: { session: string }) {
  const { route } = useLocation();
  const [capturing, setCapturing] = useState(false);
  const [pages, setPages] = useState(1);
  const loaded = useLoad((signal) => loadPages(session, pages, signal), [session, pages]);
  const { data, problem } = loaded;
  const close = () => {
    setCapturing(false);
    loaded.reload();
  };
  return (
    <>
      <div class="page-head">
        <Title text="Snapshots" />
        <span class="actions">
          <button type="button" onClick={() => setCapturing(true)}>
            <Icon of={Camera} />
            Capture threads
          </button>
        </span>
      </div>
      <SessionFilter
        key={session}
        session={session}
        onChange={(name) =>
          route(name ? `/snapshots?${new URLSearchParams({ session: name })}` : snapshotsLink())
        }
      />
      <section class="card" aria-label="All snapshots">
        {problem && <ProblemNote problem={problem} retry={loaded.reload} />}
        {!data && !problem && <Loading what="snapshots" />}
        {data?.found.length === 0 && <Nothing session={session} />}
        {data && data.found.length > 0 && (
          <Rows label="Snapshots">
            {data.found.map((one) => (
              <SnapshotRow key={one.snapshotId} snapshot={one} />
            ))}
          </Rows>
        )}
        {data?.more && (
          <button type="button" onClick={() => setPages(pages + 1)}>
            Show more
          </button>
        )}
      </section>
      {capturing && <CaptureDialog threadIds={[]} onClose={close} />}
    </>
  );
}

async function loadPages(sessionId: string, pages: number, signal: AbortSignal) {
  const found: Snapshot[] = [];
  let pageToken = "";
  for (let page = 0; page < pages; page += 1) {
    const request = { sessionId, pageSize: PAGE, pageToken };
    const answer = await snapshots.listSnapshots(request, { signal });
    found.push(...answer.snapshots);
    pageToken = answer.nextPageToken;
    if (!pageToken) {
      break;
    }
  }
  return { found, more: pageToken !== "" };
}

function SessionFilter({
  session,
  onChange,
}: {
  session: string;
  onChange: (name: string) => void;
}) {
  const [name, setName] = useState(session);
  const submit = (event: Event) => {
    event.preventDefault();
    onChange(name);
  };
  return (
    <form class="filters" onSubmit={submit} aria-label="Filter">
      <TextField label="Session" value={name} onInput={setName} />
      <button type="submit">Filter</button>
      {session && (
        <a class="button" href={snapshotsLink()}>
          Clear
        </a>
      )}
    </form>
  );
}

function SnapshotRow({ snapshot }: { snapshot: Snapshot }) {
  const { snapshotId, sessionId, members, hostname } = snapshot;
  return (
    <li>
      <a class="row" href={snapshotsLink(snapshotId)}>
        <span class="row-name">{sessionId ? oneLine(sessionId) : short(snapshotId)}</span>
        <span class="row-side">
          <span>{counted(members.length, "thread")}</span>
          {hostname && <span>{oneLine(hostname, 40)}</span>}
          <span class="quiet">
            <When time={snapshot.createTime} />
          </span>
        </span>
      </a>
    </li>
  );
}

function Nothing({ session }: { session: string }) {
  return session ? (
    <Empty title={`No snapshot of the session “${oneLine(session, 60)}”.`} />
  ) : (
    <Empty title="No snapshots yet.">
      <p>A snapshot captures several threads at one instant.</p>
    </Empty>
  );
}
