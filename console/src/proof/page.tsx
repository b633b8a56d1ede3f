/** The proof of a thread: verdicts on its stored bytes, the chain that leads to them, the report. */

import type { GetServerInfoResponse } from "@contract/admin_service_pb.js";
import type { GetManifestResponse } from "@contract/thread_service_pb.js";
import { useEffect } from "preact/hooks";
import { useLocation } from "preact-iso";
import { threadLink, threadsLink } from "../links.ts";
import { Empty, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { admin, threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { oneLine } from "../words.ts";
import { ChainView } from "./chain_view.tsx";
import { auditCatalog } from "./commands.ts";
import { Elsewhere } from "./elsewhere.tsx";
import { ReportView } from "./report_view.tsx";
import { VerifySection } from "./verify.tsx";
import { useVerification } from "./verifying.ts";
import "./page.css";

export default function ProofPage() {
  const { query } = useLocation();
  const threadId = query["thread"] ?? "";
  if (!threadId) {
    return (
      <>
        <Title text="Proof of a thread" />
        <Empty title="No thread is named.">
          <p>
            Open a thread, then choose Proof: <a href={threadsLink()}>all threads</a>
          </p>
        </Empty>
      </>
    );
  }
  return <Proof key={threadId} threadId={threadId} runNow={query["run"] === "1"} />;
}

function Proof({ threadId, runNow }: { threadId: string; runNow: boolean }) {
  const verifying = useVerification(threadId);
  const { run, start } = verifying;
  const thread = useLoad(
    async (signal) => (await threads.getThread({ threadId }, { signal })).thread,
    [threadId],
  );
  const info = useLoad((signal) => admin.getServerInfo({}, { signal }), []);
  // The head of the manifest, reloaded at the end of a run: the report names its catalog.
  const head = useLoad(
    (signal) => threads.getManifest({ threadId, pageSize: 1 }, { signal }),
    [threadId],
  );
  useEffect(() => {
    if (runNow) {
      start();
    }
  }, [runNow, start]);
  useEffect(() => {
    if (run.phase === "done") {
      thread.reload();
      head.reload();
    }
  }, [run.phase]);
  if (thread.problem?.reason === "THREAD_NOT_FOUND") {
    return (
      <>
        <Title text={`Proof of ${oneLine(threadId)}`} />
        <ProblemNote problem={thread.problem} retry={thread.reload} />
        <a href={threadsLink()}>All threads</a>
      </>
    );
  }
  return (
    <>
      <div class="page-head">
        <Title text={`Proof of ${oneLine(threadId)}`} />
        <span class="actions">
          <a class="button" href={threadLink(threadId)}>
            To the thread
          </a>
        </span>
      </div>
      <VerifySection verifying={verifying} size={Number(thread.data?.checkpointCount ?? 0n)} />
      {run.phase === "done" && info.data && !head.loading && (
        <ReportView
          sources={{
            threadId,
            run,
            info: info.data,
            manifest: head.data,
            address: window.location.origin,
            check: checkOf(threadId, head.data, info.data),
          }}
        />
      )}
      <ChainView threadId={threadId} version={run.phase === "done" ? run.finished : undefined} />
      {info.data && (
        <Elsewhere
          threadId={threadId}
          catalog={head.data?.catalog}
          backend={info.data.blobBackend}
        />
      )}
      {info.problem && <ProblemNote problem={info.problem} retry={info.reload} />}
    </>
  );
}

function checkOf(
  threadId: string,
  manifest: GetManifestResponse | undefined,
  info: GetServerInfoResponse,
): string {
  return manifest?.catalog ? auditCatalog(manifest.catalog, threadId, info.blobBackend) : "";
}
