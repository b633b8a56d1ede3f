/** The verdicts, page by page; verdicts that need a person come first. */
import { type CheckpointVerdict, Verdict } from "@contract/thread_service_pb.js";
import { useState } from "preact/hooks";
import { checkpointLink } from "../links.ts";
import { Field } from "../parts/fields.tsx";
import { Badge, Identifier } from "../parts/labels.tsx";
import { Pager } from "../parts/pager.tsx";
import { count, hex, oneLine } from "../words.ts";
import { KIND_WORDS, KINDS, type Kind } from "./verdicts.ts";
import type { Run } from "./verifying.ts";

const PAGE = 25;

export function VerdictList({ run }: { run: Run }) {
  const { log } = run;
  const [only, setOnly] = useState<Kind>();
  const [first, setFirst] = useState(0);
  const kinds: readonly Kind[] = only === undefined ? KINDS : [only];
  const size = kinds.reduce((sum, kind) => sum + log.count(kind), 0);
  const shown = log.page(kinds, first, PAGE);
  const isOpen =
    run.phase === "running" || log.count(Verdict.FAIL) + log.count(Verdict.UNVERIFIED) > 0;
  return (
    <details class="entries" open={isOpen}>
      <summary>Verdict on each checkpoint</summary>
      <div class="proof-filter">
        <Field label="Show">
          {(id) => (
            <select
              id={id}
              value={only === undefined ? "" : String(only)}
              onChange={({ currentTarget: { value } }) => {
                setOnly(value ? (Number(value) as Kind) : undefined);
                setFirst(0);
              }}
            >
              <option value="">all, failed first</option>
              {KINDS.map((kind) => (
                <option key={kind} value={String(kind)}>
                  {KIND_WORDS[kind][0]} ({count(log.count(kind))})
                </option>
              ))}
            </select>
          )}
        </Field>
      </div>
      <ul class="verdicts" aria-label="Verdict on each checkpoint">
        {shown.map((verdict) => (
          <Row key={`${verdict.ref?.checkpointNs} ${verdict.ref?.checkpointId}`} one={verdict} />
        ))}
      </ul>
      <Pager what="verdicts" first={first} page={PAGE} size={size} onMove={setFirst} />
    </details>
  );
}

function Row({ one }: { one: CheckpointVerdict }) {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = one.ref ?? {};
  const [word, kind] = KIND_WORDS[one.verdict as Kind] ?? ["unknown", ""];
  const isThere = one.verdict !== Verdict.RETRACTED;
  const ref = { threadId, checkpointNs, checkpointId };
  return (
    <li>
      <span class="verdict-line">
        <Badge kind={kind}>{word}</Badge>
        <Identifier
          id={checkpointId}
          what="checkpoint ID"
          {...(isThere ? { href: checkpointLink(ref) } : {})}
        />
        {checkpointNs && <span class="quiet">{oneLine(checkpointNs, 80)}</span>}
        {one.location && one.verdict === Verdict.PASS && (
          <span class="quiet">
            SHA-256 <Identifier id={hex(one.location.sha256)} what="recorded SHA-256" />
          </span>
        )}
      </span>
      {one.detail && <p>{oneLine(one.detail, 2000)}</p>}
      {one.verdict === Verdict.FAIL && <Hashes one={one} />}
    </li>
  );
}

/** Both hashes of a failed checkpoint, in full, for comparison. */
function Hashes({ one }: { one: CheckpointVerdict }) {
  const { location, actualSha256 } = one;
  return (
    <dl class="facts">
      {location && (
        <>
          <dt>Blob</dt>
          <dd>
            <code>
              {oneLine(location.blobId)}
              {location.identifier && ` / ${oneLine(location.identifier)}`}
            </code>
          </dd>
          <dt>Recorded SHA-256</dt>
          <dd>
            <code>{hex(location.sha256)}</code>
          </dd>
        </>
      )}
      <dt>SHA-256 found</dt>
      <dd>{actualSha256.length > 0 ? <code>{hex(actualSha256)}</code> : "no bytes were found"}</dd>
    </dl>
  );
}
