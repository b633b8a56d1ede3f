/** The errors of the tasks that failed at a checkpoint, each with the end of its message. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { CircleAlert } from "lucide";
import { useMemo, useState } from "preact/hooks";
import { checkpointLink, type Ref } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
import { LONGEST_TEXT, Text } from "../parts/json/json_tree.tsx";
import { count, oneLine, visible } from "../words.ts";
import { ending, type Failure, failuresOf } from "./failures.ts";

interface FailureNotesProps {
  /** The checkpoint in its JSON view. */
  checkpoint: Checkpoint;
  /** Checkpoint of the subgraph in which the first failing task failed; undefined: no subgraph. */
  inside: Ref | undefined;
}

export function FailureNotes({ checkpoint, inside }: FailureNotesProps) {
  const failures = useMemo(() => failuresOf(checkpoint), [checkpoint]);
  return (
    <>
      {failures.map((failure, index) => (
        <FailureNote
          key={`${index} ${failure.task}`}
          failure={failure}
          inside={index === 0 ? inside : undefined}
        />
      ))}
    </>
  );
}

const SHORT_ERROR = 500; // characters of a message that are shown at first: its end

function FailureNote({ failure, inside }: { failure: Failure; inside: Ref | undefined }) {
  const { task, type, message, traceback } = failure;
  const [whole, setWhole] = useState(false);
  const isCut = message.length > SHORT_ERROR && !whole;
  return (
    <div class="problem failure">
      <p class="problem-title">
        <Icon of={CircleAlert} /> Failed in {oneLine(task, 200)}
        {type && `: ${oneLine(type, 200)}`}
      </p>
      <p class="failure-message">
        {isCut ? (
          <>
            <button type="button" class="plain" onClick={() => setWhole(true)}>
              Show all {count(message.length)} characters
            </button>
            {`…${visible(ending(message, SHORT_ERROR))}`}
          </>
        ) : (
          <Text text={message} short={LONGEST_TEXT} />
        )}
      </p>
      {inside && (
        <p>
          <a href={checkpointLink(inside)}>Show where in {oneLine(task, 60)}</a>
        </p>
      )}
      {traceback && (
        <details>
          <summary>Traceback</summary>
          <pre>
            <Text text={traceback} />
          </pre>
        </details>
      )}
    </div>
  );
}
