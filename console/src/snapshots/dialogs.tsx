/** Restore and delete a snapshot: dialogs that ask before the change, and report it afterwards. */
import { type CheckpointRef, Durability } from "@contract/checkpoint_pb.js";
import { RestoreMode, type Snapshot } from "@contract/snapshot_service_pb.js";
import { useRef, useState } from "preact/hooks";
import { placeOf } from "../actions/checkpoint_names.ts";
import { Advanced, reached } from "../actions/durability.tsx";
import { checkpointLink, snapshotsLink, threadsLink } from "../links.ts";
import { Ask, Dialog } from "../parts/ask.tsx";
import { say } from "../parts/notices.tsx";
import { snapshots } from "../server/calls.ts";
import { newRequestId } from "../server/request_id.ts";
import { counted, oneLine, short } from "../words.ts";

const LISTED = 20; // members that a dialog names; it counts the other members

interface RestoreDialogProps {
  snapshot: Snapshot;
  onClose: () => void;
}

export function RestoreDialog({ snapshot, onClose }: RestoreDialogProps) {
  const [restored, setRestored] = useState<CheckpointRef[]>();
  return restored ? (
    <Restored restored={restored} onClose={onClose} />
  ) : (
    <AskRestore snapshot={snapshot} onRestored={setRestored} onClose={onClose} />
  );
}

interface AskRestoreProps extends RestoreDialogProps {
  onRestored: (restored: CheckpointRef[]) => void;
}

function AskRestore({ snapshot, onRestored, onClose }: AskRestoreProps) {
  const [requestIds] = useState(() => ({
    [RestoreMode.NEW_THREADS]: newRequestId(),
    [RestoreMode.ROLLBACK]: newRequestId(),
  }));
  const [mode, setMode] = useState<RestoreMode.NEW_THREADS | RestoreMode.ROLLBACK>(
    RestoreMode.NEW_THREADS,
  );
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const restored = useRef<CheckpointRef[] | undefined>(undefined);
  const { snapshotId, members } = snapshot;
  const rollback = mode === RestoreMode.ROLLBACK;
  const restore = async () => {
    const requestId = requestIds[mode];
    const done = await snapshots.restoreSnapshot({ snapshotId, mode, requestId, durability });
    const what = rollback ? "Rolled back" : "Restored";
    const as = rollback ? "" : " as new threads";
    say(`${what} ${counted(done.restored.length, "thread")}${as}. ${reached(done.durability)}`, {
      href: threadsLink(),
      text: "All threads",
    });
    restored.current = done.restored;
  };
  return (
    <Ask
      title="Restore the snapshot"
      confirm={rollback ? "Roll the threads back" : "Restore as new threads"}
      dangerous={rollback}
      onConfirm={restore}
      onClose={() => (restored.current ? onRestored(restored.current) : onClose())}
    >
      <fieldset>
        <legend>How</legend>
        <label class="choice">
          <input
            type="radio"
            name="mode"
            checked={!rollback}
            onChange={() => setMode(RestoreMode.NEW_THREADS)}
          />
          <span>As new threads. The captured threads do not change.</span>
        </label>
        <label class="choice">
          <input
            type="radio"
            name="mode"
            checked={rollback}
            onChange={() => setMode(RestoreMode.ROLLBACK)}
          />
          <span>
            By rollback. Each captured thread gets a new head with the captured state; later
            checkpoints stay in its history.
          </span>
        </label>
      </fieldset>
      <p>
        {rollback ? "These threads get a new head:" : "A new thread is made from each of these:"}
      </p>
      <Places refs={members} />
      <p class="hint">All of them, or none.</p>
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

function Restored({ restored, onClose }: { restored: CheckpointRef[]; onClose: () => void }) {
  return (
    <Dialog title="Restored" onClose={onClose}>
      <p>The agents continue from these checkpoints:</p>
      <Places refs={restored} linked onFollow={onClose} />
      <div class="buttons">
        <button type="button" class="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

interface PlacesProps {
  refs: CheckpointRef[];
  linked?: boolean;
  onFollow?: () => void;
}

function Places({ refs, linked, onFollow }: PlacesProps) {
  return (
    <ul class="places">
      {refs.slice(0, LISTED).map((ref) => {
        const text = `${oneLine(ref.threadId, 80)} at ${oneLine(short(ref.checkpointId))}`;
        return (
          <li key={ref.threadId}>
            {linked ? (
              <a href={checkpointLink(placeOf(ref))} onClick={onFollow}>
                {text}
              </a>
            ) : (
              text
            )}
          </li>
        );
      })}
      {refs.length > LISTED && <li>and {counted(refs.length - LISTED, "other")}</li>}
    </ul>
  );
}

interface DeleteSnapshotDialogProps {
  snapshot: Snapshot;
  onDeleted: () => void;
  onClose: () => void;
}

export function DeleteSnapshotDialog({ snapshot, onDeleted, onClose }: DeleteSnapshotDialogProps) {
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const { snapshotId } = snapshot;
  const remove = async () => {
    const done = await snapshots.deleteSnapshot({ snapshotId, durability });
    const what = done.deleted ? "Deleted snapshot" : "There was no snapshot";
    say(`${what} ${short(snapshotId)}. ${reached(done.durability)}`, {
      href: snapshotsLink(),
      text: "All snapshots",
    });
    onDeleted();
  };
  return (
    <Ask
      title="Delete the snapshot"
      confirm="Delete"
      dangerous
      onConfirm={remove}
      onClose={onClose}
    >
      <p>
        Deletes snapshot {short(snapshotId)} and the data that only this snapshot keeps. Captured
        and restored threads stay. This cannot be undone.
      </p>
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}
