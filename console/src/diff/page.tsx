/** Two checkpoints side by side: the differences between their states. */
import { View } from "@contract/checkpoint_pb.js";
import { ArrowLeftRight } from "lucide";
import { useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { metadataOf } from "../checkpoint/describe.ts";
import { graphName, titleOf } from "../checkpoint/step_title.ts";
import { checkpointLink, diffLink, type Ref, threadLink, threadsLink } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
import { Identifier, When } from "../parts/labels.tsx";
import { Empty, Loading, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { checkpoints, threads } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { oneLine } from "../words.ts";
import { Changes } from "./changes.tsx";
import { CheckpointPicker } from "./picker.tsx";
import "./page.css";

const MOST_CHANGES = 1000;

export default function DiffPage() {
  const { query, route } = useLocation();
  const side = (name: "from" | "to"): Ref => ({
    threadId: query[name] ?? query["from"] ?? query["to"] ?? "",
    checkpointNs: query[`${name}_ns`] ?? "",
    checkpointId: query[`${name}_checkpoint`] ?? "",
  });
  const from = side("from");
  const to = side("to");
  if (!from.threadId) {
    return (
      <>
        <Title text="Compare two checkpoints" />
        <Empty title="No checkpoint is named.">
          <p>Open a checkpoint of a thread, then choose Compare.</p>
          <a href={threadsLink()}>All threads</a>
        </Empty>
      </>
    );
  }
  return (
    <>
      <div class="page-head">
        <Title text="What differs" />
        <span class="actions">
          <a class="button" href={diffLink(to, from)}>
            <Icon of={ArrowLeftRight} />
            Swap the sides
          </a>
        </span>
      </div>
      <div class="diff-sides">
        <SideCard title="From" reference={from} onPick={(one) => route(diffLink(one, to))} />
        <SideCard title="To" reference={to} onPick={(one) => route(diffLink(from, one))} />
      </div>
      <Difference from={from} to={to} />
    </>
  );
}

interface SideCardProps {
  title: string;
  reference: Ref;
  onPick: (picked: Ref) => void;
}

/** The checkpoint on one side, and the controls to choose another one. */
function SideCard({ title, reference, onPick }: SideCardProps) {
  const [picking, setPicking] = useState(false);
  const { data, problem, reload } = useLoad(
    async (signal) =>
      (await checkpoints.getCheckpoint({ ref: reference, view: View.STEP }, { signal })).checkpoint,
    [reference],
  );
  const ref = data?.ref;
  const pick = (picked: Ref) => {
    setPicking(false);
    onPick(picked);
  };
  return (
    <section class="card diff-side" aria-label={title}>
      <div class="diff-side-head">
        <span class="quiet">{title}</span>
        <h2>
          {data && reference.checkpointNs && (
            <span class="quiet">{graphName(reference.checkpointNs)} › </span>
          )}
          {data && titleOf(data)}
        </h2>
        <button
          type="button"
          class="plain"
          aria-expanded={picking}
          onClick={() => setPicking(!picking)}
        >
          Choose another
        </button>
      </div>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the checkpoint" />}
      <p class="diff-side-facts">
        <a href={threadLink(reference.threadId)}>{oneLine(reference.threadId, 120)}</a>
        {data && metadataOf(data).step && <span>step {oneLine(metadataOf(data).step)}</span>}
        {ref && !reference.checkpointId && <span>the latest</span>}
        {ref && <When time={data.createTime} />}
        {ref && (
          <Identifier
            id={ref.checkpointId}
            what={`the ID of the side ${title}`}
            href={checkpointLink(ref)}
          />
        )}
      </p>
      {picking && <CheckpointPicker chosen={ref ?? reference} confirm="Show" onPick={pick} />}
    </section>
  );
}

function Difference({ from, to }: { from: Ref; to: Ref }) {
  const [most, setMost] = useState(MOST_CHANGES);
  const { data, problem, reload, loading } = useLoad(
    (signal) => threads.diffCheckpoints({ from, to, maxChanges: most }, { signal }),
    [from, to, most],
  );
  return (
    <section class="card" aria-label="Changes" aria-busy={loading}>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the comparison" />}
      {data && <Changes difference={data} />}
      {data?.truncated && most === MOST_CHANGES && data.changes.length >= MOST_CHANGES && (
        <button type="button" onClick={() => setMost(10 * MOST_CHANGES)}>
          Compare up to 10,000 changes
        </button>
      )}
    </section>
  );
}
