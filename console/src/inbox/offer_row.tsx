/** An offer: what was handed off, to whom, until when, and what became of it. */
import { type Handoff, HandoffState } from "@contract/handoff_service_pb.js";
import { Undo2 } from "lucide";
import { adoptLink, checkpointLink, inboxLink, threadLink } from "../links.ts";
import { IconButton } from "../parts/icon.tsx";
import { Badge, Unseen, When } from "../parts/labels.tsx";
import { oneLine, short, visible } from "../words.ts";

interface OfferRowProps {
  offer: Handoff;
  onWithdraw: () => void;
}

export function OfferRow({ offer, onWithdraw }: OfferRowProps) {
  const { descriptor, toAgent, createTime } = offer;
  const { threadId = "", checkpointId = "", summary = "", signer = "" } = descriptor ?? {};
  const signed = signer && `\nSigned by ${signer}`;
  return (
    <li class="offer">
      <a class="row" href={checkpointLink({ threadId, checkpointNs: "", checkpointId })}>
        <span
          class="thread-name"
          title={visible(`${threadId}\nCheckpoint ${checkpointId}${signed}`)}
        >
          <bdi>{oneLine(threadId)}</bdi>
          <span class="offer-checkpoint"> {oneLine(short(checkpointId))}</span>
        </span>
        <span class="offer-summary" title={visible(summary)}>
          <bdi>{oneLine(summary) || "No summary."}</bdi>
        </span>
        <span class="number offer-age">
          <Unseen>offered </Unseen>
          <When time={createTime} short />
        </span>
      </a>
      <span class="offer-to">
        <span class="quiet">to </span>
        <a
          href={inboxLink(toAgent ? { agent: toAgent } : { unnamed: "1" })}
          title={visible(toAgent)}
        >
          <bdi>{oneLine(toAgent) || "no agent"}</bdi>
        </a>
      </span>
      <Outcome offer={offer} onWithdraw={onWithdraw} />
    </li>
  );
}

function Outcome({ offer, onWithdraw }: OfferRowProps) {
  const { state, handoffId, expireTime, closeTime, adoptedThreadId, descriptor } = offer;
  const name = oneLine(descriptor?.threadId ?? "", 60);
  switch (state) {
    case HandoffState.OFFERED:
      return (
        <span class="offer-end">
          <span class="quiet">
            {expireTime ? (
              <>
                expires <When time={expireTime} />
              </>
            ) : (
              "does not expire"
            )}
          </span>
          <a class="button" href={adoptLink(handoffId)} aria-label={`Adopt the offer of ${name}`}>
            Adopt
          </a>
          <IconButton of={Undo2} label={`Withdraw the offer of ${name}`} onClick={onWithdraw} />
        </span>
      );
    case HandoffState.ADOPTED:
      return (
        <span class="offer-end">
          <Badge kind="good">adopted</Badge>
          <span>
            <span class="quiet">as </span>
            <a href={threadLink(adoptedThreadId)} title={visible(adoptedThreadId)}>
              <bdi>{oneLine(adoptedThreadId)}</bdi>
            </a>
          </span>
          <span class="quiet">
            <When time={closeTime} short />
          </span>
        </span>
      );
    default:
      return (
        <span class="offer-end">
          <Badge>{state === HandoffState.WITHDRAWN ? "withdrawn" : "expired"}</Badge>
          <span class="quiet">
            <When time={closeTime} />
          </span>
        </span>
      );
  }
}
