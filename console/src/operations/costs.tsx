/** The costs that the blob store bills, and the expiry of blobs. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { GetArchiveStatusResponse } from "@contract/admin_service_pb.js";
import { Badge, When } from "../parts/labels.tsx";
import { bytes, count, counted, moment } from "../words.ts";
import { wal } from "./figures.ts";
import { EXPIRES_SOON_MS } from "./findings.ts";

const NEAR_DAYS = 3; // an expiry in fewer days has a warning colour

interface CostsProps {
  status: GetArchiveStatusResponse;
  backend: string;
}

export function Costs({ status, backend }: CostsProps) {
  const { storedBlobs, billedBytes, cost, failingRenewals } = status;
  const isPaid = backend === "walrus" || storedBlobs > 0n;
  return (
    <section class="card" aria-label="Blobs and costs">
      <h2>Blobs and costs</h2>
      <dl class="facts">
        <dt>Blob store</dt>
        <dd>{backend}</dd>
        {isPaid && (
          <>
            <dt>Stored now</dt>
            <dd>{counted(storedBlobs, "blob")}</dd>
            <dt>Billed</dt>
            <dd>{bytes(billedBytes)}, encoded, over all puts</dd>
            <dt>Cost</dt>
            <dd>
              {wal(cost)} <span class="quiet">({count(cost)} FROST, without gas)</span>
            </dd>
            <dt>Failing renewals</dt>
            <dd>
              {failingRenewals > 0 ? (
                <Badge kind="warn">{counted(failingRenewals, "blob")}</Badge>
              ) : (
                "none"
              )}
            </dd>
          </>
        )}
        <dt>Earliest expiry</dt>
        <dd>
          <Expiry status={status} />
        </dd>
      </dl>
      {!isPaid && <p class="hint">This blob store bills nothing that the server knows of.</p>}
    </section>
  );
}

function Expiry({ status: { earliestExpireTime } }: { status: GetArchiveStatusResponse }) {
  if (!earliestExpireTime) {
    return <>nothing expires</>;
  }
  const left = timestampMs(earliestExpireTime) - Date.now();
  const near = left < NEAR_DAYS * EXPIRES_SOON_MS ? "warn" : "";
  return (
    <>
      <Badge kind={left < EXPIRES_SOON_MS ? "bad" : near}>
        <When time={earliestExpireTime} />
      </Badge>{" "}
      <span class="quiet">{moment(earliestExpireTime)}, unless it is renewed</span>
    </>
  );
}
