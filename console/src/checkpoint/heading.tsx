/** The heading of a checkpoint: its summary, and its position in the thread. */
import { type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import { checkpointLink } from "../links.ts";
import { Badge, Identifier, When } from "../parts/labels.tsx";
import { oneLine } from "../words.ts";
import { metadataOf, originsOf } from "./describe.ts";
import { titleOf } from "./step_title.ts";

export function Heading({ checkpoint }: { checkpoint: Checkpoint }) {
  const { ref, label, agentId, parentCheckpointId, createTime } = checkpoint;
  const { source, step } = metadataOf(checkpoint);
  const threadId = ref?.threadId ?? "";
  const checkpointNs = ref?.checkpointNs ?? "";
  const parent = { threadId, checkpointNs, checkpointId: parentCheckpointId };
  return (
    <>
      <div class="checkpoint-head">
        <h2>{titleOf(checkpoint)}</h2>
        {label && <Badge kind="good">{oneLine(label)}</Badge>}
        <DurabilityBadge durability={checkpoint.durability} />
      </div>
      <p class="checkpoint-facts">
        <span>
          <When time={createTime} />
        </span>
        {step && <span>step {oneLine(step)}</span>}
        {source && <span>source {oneLine(source)}</span>}
        {agentId && <span>agent {oneLine(agentId)}</span>}
        {checkpointNs && (
          <span>
            subgraph <code>{oneLine(checkpointNs)}</code>
          </span>
        )}
        <span>
          ID <Identifier id={ref?.checkpointId ?? ""} what="the checkpoint's ID" />
        </span>
        <span>
          {parentCheckpointId ? (
            <>
              follows{" "}
              <Identifier
                id={parentCheckpointId}
                what="the parent's ID"
                href={checkpointLink(parent)}
              />
            </>
          ) : (
            "follows none"
          )}
        </span>
        {originsOf(checkpoint).map(({ words, from }) => (
          <span key={words}>
            {words} <a href={checkpointLink(from)}>{oneLine(from.threadId, 60)}</a>{" "}
            <Identifier
              id={from.checkpointId}
              what={`the ID that it was ${words}`}
              href={checkpointLink(from)}
            />
          </span>
        ))}
      </p>
    </>
  );
}

export function DurabilityBadge({ durability }: { durability: Durability }) {
  return durability === Durability.CERTIFIED ? (
    <Badge kind="good">certified</Badge>
  ) : (
    <Badge kind="warn">journaled</Badge>
  );
}
