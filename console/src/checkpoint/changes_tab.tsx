/**
 * The changes of a checkpoint against its parent, and a link to compare it with any other
 * checkpoint.
 */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { useLocation } from "preact-iso";
import { Changes } from "../diff/changes.tsx";
import { CheckpointPicker } from "../diff/picker.tsx";
import { diffLink } from "../links.ts";
import { Empty, Loading, ProblemNote } from "../parts/problem.tsx";
import { parentOf, useParentDifference } from "./parent_difference.ts";

export function ChangesTab({ checkpoint }: { checkpoint: Checkpoint }) {
  const { route } = useLocation();
  const { data, problem, reload, loading } = useParentDifference(checkpoint);
  const parent = parentOf(checkpoint);
  const ref = checkpoint.ref;
  if (!ref) {
    return null;
  }
  return (
    <>
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!parent && <Empty title="This checkpoint follows none: all of its state is new." />}
      {parent && loading && !data && <Loading what="the comparison" />}
      {parent && data && (
        <>
          <p>
            <a href={diffLink(parent, ref)}>Side by side</a>
          </p>
          <Changes difference={data} compact />
        </>
      )}
      <details class="values-rest">
        <summary>Compare with another checkpoint</summary>
        <CheckpointPicker
          chosen={parent ?? ref}
          confirm="Compare"
          onPick={(other) => route(diffLink(other, ref))}
        />
      </details>
    </>
  );
}
