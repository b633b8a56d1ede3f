/**
 * The changes of a checkpoint against its parent, and a link to compare it with any other
 * checkpoint.
 */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { Columns2 } from "lucide";
import { useLocation } from "preact-iso";
import { Changes } from "../diff/changes.tsx";
import { CheckpointPicker } from "../diff/picker.tsx";
import { diffLink } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
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
          <Changes difference={data} compact />
          <p class="changes-beside">
            <a class="button" href={diffLink(parent, ref)}>
              <Icon of={Columns2} />
              Side by side
            </a>
          </p>
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
