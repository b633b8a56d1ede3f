/** Snapshots: the list of all snapshots, or the snapshot that the address names. */
import { useLocation } from "preact-iso";
import { SnapshotList } from "./list.tsx";
import "./snapshots.css";
import { SnapshotView } from "./view.tsx";

export default function SnapshotsPage() {
  const { query } = useLocation();
  const { id = "", session = "" } = query;
  return id ? <SnapshotView key={id} snapshotId={id} /> : <SnapshotList session={session} />;
}
