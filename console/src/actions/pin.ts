/** Keeps a checkpoint on the page during an action on it. */
import { useLocation } from "preact-iso";
import { checkpointLink, type Ref } from "../links.ts";

/**
 * Return a function that puts the checkpoint into the address of the page.
 *
 * A thread's page without a checkpoint in its address shows the head, and follows it: a new
 * checkpoint would replace the checkpoint of an open dialog or a half-filled form.
 */
export function usePin(ref: Ref): () => void {
  const { path, query, route } = useLocation();
  return () => {
    if (path === "/thread" && query["id"] === ref.threadId && !query["checkpoint"]) {
      route(checkpointLink(ref, query["tab"]), true);
    }
  };
}
