/** Operations: the health, the state of archive and search, the server, the trail. */
import type {
  GetArchiveStatusResponse,
  GetServerInfoResponse,
} from "@contract/admin_service_pb.js";
import { Loading, ProblemNote } from "../parts/problem.tsx";
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
        These are the figures of the tenant of your token. The contract has no call that lists
        tenants: to see another one, sign in with a token of it.
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
      <p class="banner">
        The server does not answer now. What follows is what it last said, and may be out of date.
      </p>
    );
  }
  if (findings.length === 0) {
    return (
      <section class="outcome good" aria-label="Health">
        <h2 class="outcome-title">All is well</h2>
        <p>
          The archive certifies in time, nothing is lost, and what search there is keeps up. Memory,
          certificates and failing calls are not in these answers: the metrics have them.
        </p>
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
          <li key={title} class={`outcome ${kind}`}>
            <p class="outcome-title">{title}</p>
            {detail && <p>{detail}</p>}
            <p>{advice}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}
