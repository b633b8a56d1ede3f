/** Keeps a checkpoint on the page while somebody does something from it. */
import { useLocation } from "preact-iso";
import { checkpointLink, type Ref } from "../links.ts";

/**
 * Returns what puts the checkpoint into the address of the page.
 *
 * A thread's page without a checkpoint in its address shows the head, and follows it: a new checkpoint
 * would replace the one that a dialog or a half-filled form belongs to.
 */
export function usePin(ref: Ref): () => void {
  const { path, query, route } = useLocation();
  return () => {
    if (path === "/thread" && query["id"] === ref.threadId && !query["checkpoint"]) {
      route(checkpointLink(ref, query["tab"]), true);
    }
  };
}
