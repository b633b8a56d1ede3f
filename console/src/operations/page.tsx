/** Operations: the health, the state of archive and search, the server, the trail. */
import type {
  GetArchiveStatusResponse,
  GetServerInfoResponse,
} from "@contract/admin_service_pb.js";
import { Loading, Note, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { admin } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { Certification, Recovery } from "./archive.tsx";
import { Costs } from "./costs.tsx";
import { Disk, SearchCard } from "./disk_and_search.tsx";
import { type Finding, findingsOf } from "./findings.ts";
import { FlushButton } from "./flush.tsx";
import { Gaps } from "./gaps.tsx";
import { useLive } from "./live.ts";
import { Server } from "./server.tsx";
import { Trail } from "./trail_view.tsx";
import "./page.css";

const RELOAD_MS = 5000;

interface Answers {
  info: GetServerInfoResponse;
  status: GetArchiveStatusResponse;
}

export default function OperationsPage() {
  const loaded = useLoad(async (signal): Promise<Answers> => {
    const [info, status] = await Promise.all([
      admin.getServerInfo({}, { signal }),
      admin.getArchiveStatus({}, { signal }),
    ]);
    return { info, status };
  }, []);
  const { data, problem, reload } = loaded;
  useLive(loaded, RELOAD_MS);
  return (
    <>
      <div class="page-head">
        <Title text="Operations" />
        <span class="quiet">Refreshes every {RELOAD_MS / 1000} s</span>
        <span class="actions">
          <FlushButton onDone={reload} />
        </span>
      </div>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the state of the server" />}
      {data && <State answers={data} isCurrent={!problem} />}
      <Trail />
    </>
  );
}

function State({ answers: { info, status }, isCurrent }: { answers: Answers; isCurrent: boolean }) {
  return (
    <>
      <Health findings={findingsOf(status, Date.now())} isCurrent={isCurrent} />
      <p class="quiet">
        Figures of your token's tenant. To see another tenant, sign in with one of its tokens.
      </p>
      <div class="operations">
        <Certification status={status} />
        <Recovery status={status} backend={info.blobBackend} />
        <Costs status={status} backend={info.blobBackend} />
        <SearchCard status={status.search} info={info} />
        <Disk status={status} />
      </div>
      <Gaps status={status} />
      <Server info={info} />
    </>
  );
}

/** A note that all is well, or the problems that need a person. */
function Health({ findings, isCurrent }: { findings: Finding[]; isCurrent: boolean }) {
  if (!isCurrent) {
    return (
      <Note kind="warn">
        <p>The server does not answer now. The figures below are the last known ones.</p>
      </Note>
    );
  }
  if (findings.length === 0) {
    return (
      <section aria-label="Health">
        <Note kind="good" title="All is well">
          <p>
            Certification and search keep up, and nothing is lost. Memory, certificates and failing
            calls are in the server's metrics.
          </p>
        </Note>
      </section>
    );
  }
  return (
    <section class="health" aria-label="Health">
      <h2>
        {findings.length === 1 ? "One thing needs" : `${findings.length} things need`} a person
      </h2>
      <ul>
        {findings.map(({ kind, title, detail, advice }) => (
          <li key={title}>
            <Note kind={kind} title={title}>
              {detail && <p>{detail}</p>}
              <p>{advice}</p>
            </Note>
          </li>
        ))}
      </ul>
    </section>
  );
}
