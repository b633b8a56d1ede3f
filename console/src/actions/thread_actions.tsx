/** What can be done with a whole thread: copy, capture, search, retention, delete. */
import type { Thread } from "@contract/thread_pb.js";

interface ThreadActionsProps {
  thread: Thread;
}

export function ThreadActions(_: ThreadActionsProps) {
  return <div class="actions" />;
}
