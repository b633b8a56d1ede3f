/** The heading of a checkpoint: what ran, and one line of facts. */
import { type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import { ArrowDownToLine, ShieldCheck, Tag } from "lucide";
import type { ComponentChildren } from "preact";
import { checkpointLink } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
import { Badge, Identifier } from "../parts/labels.tsx";
import { count, duration, moment, oneLine, short } from "../words.ts";
import { metadataOf, originsOf } from "./describe.ts";
import { graphName } from "./step_title.ts";

interface HeadingProps {
  /** The checkpoint in `VIEW_STEP`. */
  checkpoint: Checkpoint;
  title: string;
  /** Time since the save of the parent, in milliseconds; undefined: it is not known. */
  tookMs: number | undefined;
}

export function Heading({ checkpoint, title, tookMs }: HeadingProps) {
  const { ref, label, durability } = checkpoint;
  const graph = graphName(ref?.checkpointNs ?? "");
  return (
    <>
      <div class="checkpoint-head">
        <h2>
          {graph && <span class="checkpoint-graph">{graph} › </span>}
          {title}
        </h2>
        {label && (
          <Badge kind="good">
            <Icon of={Tag} /> {oneLine(label)}
          </Badge>
        )}
        <DurabilityMark durability={durability} />
      </div>
      <Facts checkpoint={checkpoint} tookMs={tookMs} />
    </>
  );
}

function Facts({ checkpoint, tookMs }: Omit<HeadingProps, "title">) {
  const { ref, parentCheckpointId, createTime, step } = checkpoint;
  const { step: number } = metadataOf(checkpoint);
  const threadId = ref?.threadId ?? "";
  const checkpointNs = ref?.checkpointNs ?? "";
  const parent = { threadId, checkpointNs, checkpointId: parentCheckpointId };
  const { inputTokens = 0n, outputTokens = 0n } = step?.tokens ?? {};
  return (
    <p class="checkpoint-facts">
      {number && <span>step {oneLine(number)}</span>}
      {tookMs !== undefined && (
        <span title="Time since the save of the parent">took {duration(tookMs)}</span>
      )}
      {createTime && <time title="Time of the first save">{moment(createTime)}</time>}
      {step && step.nextNodes.length > 0 && <Names what="next" names={step.nextNodes} />}
      {step?.tokens && (
        <span title={`${count(inputTokens)} in, ${count(outputTokens)} out`}>
          {count(inputTokens + outputTokens)} tokens
        </span>
      )}
      {checkpointNs && (
        <span>
          subgraph <Identifier id={checkpointNs} what="the subgraph's namespace" />
        </span>
      )}
      <span>
        ID <Identifier id={ref?.checkpointId ?? ""} what="the checkpoint's ID" />
      </span>
      <span>
        {parentCheckpointId ? (
          <>
            parent{" "}
            <a href={checkpointLink(parent)} title={parentCheckpointId}>
              <code>{oneLine(short(parentCheckpointId))}</code>
            </a>
          </>
        ) : (
          "no parent"
        )}
      </span>
      {originsOf(checkpoint).map(({ words, from, isForeign }) => {
        const name = oneLine(from.threadId, 60);
        const href = checkpointLink(from);
        return (
          <span key={words}>
            {words} {isForeign ? name : <a href={href}>{name}</a>}{" "}
            <Identifier
              id={from.checkpointId}
              what={`the ID that it was ${words}`}
              {...(isForeign ? {} : { href })}
            />
          </span>
        );
      })}
    </p>
  );
}

const MOST_NAMES = 4;

function Names({ what, names }: { what: string; names: readonly string[] }) {
  const shown = names.slice(0, MOST_NAMES).map((name) => oneLine(name, 60));
  const more = names.length - shown.length;
  return (
    <span>
      {what} {shown.join(", ")}
      {more > 0 && ` and ${more} more`}
    </span>
  );
}

/** Whether the blob store has the checkpoint, or only the server's journal. */
export function DurabilityMark({ durability }: { durability: Durability }): ComponentChildren {
  const isCertified = durability === Durability.CERTIFIED;
  return (
    <span
      class="durability"
      title={
        isCertified
          ? "Also in the blob store, read back and compared"
          : "In the server's journal; the next flush writes it to the blob store"
      }
    >
      <Icon of={isCertified ? ShieldCheck : ArrowDownToLine} />
      <span>{isCertified ? "certified" : "journaled"}</span>
    </span>
  );
}
