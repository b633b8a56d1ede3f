/** The history of a thread: from its first change, or live. */

import { NotFound } from "../errors.js";
import { ReplayStream, WatchStream } from "../frames/resumable.js";
import { HistoryService } from "../gen/tuskpoint/v1/history_service_pb.js";
import {
  replaying,
  threadEvent,
  watching,
  type HistoryOptions,
  type ReplayOptions,
  type ThreadEvent,
  type WatchOptions,
} from "../messages/history.js";
import { CheckpointRecord } from "../messages/records.js";
import { callOf, checkTexts } from "./arguments.js";
import { Checkpoints } from "./checkpoints.js";

/** The part of the client that reads the history of threads. */
export abstract class History extends Checkpoints {
  /**
   * Yield the checkpoints of a namespace, oldest first; none if the thread does not exist.
   *
   * `replay` does the same for all namespaces or for a range of checkpoints.
   */
  async *history(
    threadId: string,
    options: HistoryOptions = {},
  ): AsyncGenerator<CheckpointRecord, void, undefined> {
    const { checkpointNs = "", view = "entry" } = options;
    try {
      yield* this.replay(threadId, { ...callOf(options), checkpointNs, view });
    } catch (error) {
      if (!(error instanceof NotFound && error.reason === "THREAD_NOT_FOUND")) {
        throw error;
      }
    }
  }

  /**
   * Yield the checkpoints of a thread, oldest first.
   *
   * The checkpoints are streamed: neither side keeps more than a few in memory. After a lost
   * connection or a restart of the server, the replay resumes after the last checkpoint that was
   * yielded.
   *
   * @throws NotFound - The thread does not exist.
   */
  async *replay(
    threadId: string,
    options: ReplayOptions = {},
  ): AsyncGenerator<CheckpointRecord, void, undefined> {
    checkTexts({ threadId });
    const stream = new ReplayStream(replaying(threadId, options));
    const method = HistoryService.method.replayThread;
    for await (const checkpoint of this.connection.resume(method, stream, callOf(options))) {
      yield new CheckpointRecord(checkpoint);
    }
  }

  /**
   * Yield the changes of a thread in order: past changes, then each new change as it happens.
   *
   * A watch does not end. After a lost connection, a shutdown or a crash of the server, the watch
   * resumes after the last event that was yielded, without gap or duplicate, if a server is back
   * within minutes. To continue in another process, or after an error, pass the `cursor` of the
   * last event. To stop a watch, leave the loop, abort the signal, or close the client.
   *
   * @param threadId - The thread. With a cursor, the thread may have been deleted.
   * @throws NotFound - The thread does not exist, and no cursor was given.
   * @throws CursorCompacted - Events after the cursor were compacted.
   * @throws Unavailable - No server could be reached for minutes.
   */
  async *watch(
    threadId: string,
    options: WatchOptions = {},
  ): AsyncGenerator<ThreadEvent, void, undefined> {
    checkTexts({ threadId });
    const stream = new WatchStream(watching(threadId, options));
    const method = HistoryService.method.watchThread;
    for await (const message of this.connection.resume(method, stream, callOf(options))) {
      const event = threadEvent(message);
      if (options.progressMs !== undefined || !event.isProgress) {
        yield event;
      }
    }
  }
}
