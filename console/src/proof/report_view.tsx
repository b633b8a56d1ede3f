/** The report of a verification: shown on the page, and offered as a file. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { Copy } from "../parts/labels.tsx";
import { type ReportSources, reportOf, textOf } from "./report.ts";

export function ReportView({ sources }: { sources: ReportSources }) {
  const { run, manifest } = sources;
  const report = useMemo(() => reportOf(sources), [run, manifest]);
  const json = useMemo(() => (report ? `${JSON.stringify(report, null, 2)}\n` : ""), [report]);
  const url = useFile(json);
  if (!report) {
    return null;
  }
  const text = textOf(report);
  return (
    <section class="card" aria-label="Report">
      <div class="proof-head">
        <h2>Report</h2>
        <a class="button" href={url} download={fileName(report.thread_id, report.finished)}>
          Download as JSON
        </a>
        <Copy text={json} what="report as JSON" />
      </div>
      <pre class="report">{text}</pre>
    </section>
  );
}

/** Return an address of a file with a text, valid on this page only. */
function useFile(text: string): string {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [text]);
  return url;
}

function fileName(threadId: string, finished: string): string {
  const name = threadId.replace(/[^A-Za-z0-9._-]+/g, "_").slice(0, 80);
  return `verification-${name}-${finished.replace(/[:.]/g, "")}.json`;
}
