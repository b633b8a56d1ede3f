/** The writes of tasks after a checkpoint, task by task, in order. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { useState } from "preact/hooks";
import { Identifier } from "../parts/labels.tsx";
import { Empty } from "../parts/problem.tsx";
import { count, counted, oneLine } from "../words.ts";
import { meaningOf, sendsOf, type Task, tasksOf } from "./describe.ts";
import { ValueRow } from "./value_row.tsx";
import { dataOf } from "./values.ts";

const PAGE = 100; // writes of a task that are shown at a time

export function WritesTab({ checkpoint }: { checkpoint: Checkpoint }) {
  const tasks = tasksOf(checkpoint.writes, sendsOf(checkpoint));
  const [pages, setPages] = useState(1);
  const shown = tasks.slice(0, pages * PAGE);
  if (tasks.length === 0) {
    return (
      <Empty title="No task has written anything after this checkpoint.">
        <p>Tasks write between a checkpoint and the next one.</p>
      </Empty>
    );
  }
  return (
    <>
      {shown.map((task) => (
        <TaskWrites key={`${task.writes[0]?.taskPath} ${task.taskId}`} task={task} />
      ))}
      {tasks.length > shown.length && (
        <button type="button" onClick={() => setPages(pages + 1)}>
          Show more of {counted(tasks.length, "task")}
        </button>
      )}
    </>
  );
}

function TaskWrites({ task }: { task: Task }) {
  const [pages, setPages] = useState(1);
  const { name, taskId, writes } = task;
  const shown = writes.slice(0, pages * PAGE);
  return (
    <section aria-label={`Task ${oneLine(name, 80)}`}>
      <h3>
        {oneLine(name, 200)} <Identifier id={taskId} what="the task's ID" />
      </h3>
      <ul class="values" aria-label="Writes">
        {shown.map((write) => {
          const meaning = meaningOf(write.channel);
          return (
            <li key={write.idx}>
              <ValueRow
                name={write.channel}
                data={dataOf(write)}
                digest={write.digest}
                open={meaning !== ""}
                remarks={meaning && <span>{meaning}</span>}
                facts={
                  (write.idx ?? 0) >= 0 && (
                    <span title="Position among the writes of the task">write {write.idx}</span>
                  )
                }
              />
            </li>
          );
        })}
      </ul>
      {writes.length > shown.length && (
        <button type="button" onClick={() => setPages(pages + 1)}>
          Show more of {count(writes.length)}
        </button>
      )}
    </section>
  );
}
