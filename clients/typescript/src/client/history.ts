/** What happened on a thread: from the beginning, or as it happens. */

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
   * Yield the checkpoints of a namespace, oldest first; none if there is no such thread.
   *
   * `replay` is the same for all namespaces or a part of them.
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
   * They are streamed: neither side holds more than a few. After a lost connection or a restart of
   * the server, the replay resumes after the last checkpoint that was yielded.
   *
   * @throws NotFound - There is no such thread.
   */
  async *replay(
    threadId: string,
    options: ReplayOptions = {},
  ): AsyncGenerator<CheckpointRecord, void, undefined> {
    checkTexts({ threadId });
    const stream = new ReplayStream(replaying(threadId, options));
    const method = HistoryService.method.replayThread;
    for await (const found of this.connection.resume(method, stream, callOf(options))) {
      yield new CheckpointRecord(found);
    }
  }

  /**
   * Yield the changes of a thread in order: past ones, then each new one as it happens.
   *
   * It does not end. After a lost connection, a shutdown or a crash of the server, it resumes after
   * the last event that was yielded, without gap or duplicate, if a server is back within minutes. To
   * continue in another process, or after an error, start with the `cursor` of the last event. To
   * stop it, leave the loop, abort the signal, or close the client.
   *
   * @param threadId - The thread. It need not exist any more if there is a cursor.
   * @throws NotFound - There is no such thread, and no cursor.
   * @throws CursorCompacted - Events after the cursor were compacted.
   * @throws Unavailable - No server was found for minutes.
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
