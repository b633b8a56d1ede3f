/** The latest threads of the server, loaded as far as a query needs them. */
import type { Thread } from "@contract/thread_pb.js";
import { ThreadOrder } from "@contract/thread_service_pb.js";
import { threads } from "../server/calls.ts";
import { MOST_THREADS, threadsFor } from "./entries.ts";

const FIRST_PAGE = 100;
const PAGE = 1000;
const MOST = 5000; // threads that are looked through

/** The contract filters no names, so the names are compared here. */
export class ThreadNames {
  /** Latest change first. A thread that changes during the listing may be left out until it ends. */
  readonly known: Thread[] = [];
  private readonly ids = new Set<string>();
  private readonly leaving = new AbortController();
  private page: Promise<void> | undefined;
  private pageToken = "";
  private isComplete = false;

  /** Whether the server has threads that are too old to be looked through. */
  get isCut(): boolean {
    return !this.isComplete && this.known.length >= MOST;
  }

  /**
   * Load threads until enough of them have the words of a query.
   *
   * The signal ends the search for this query; the page that is being loaded serves the next query.
   */
  async find(query: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !this.isComplete && this.known.length < MOST) {
      if (threadsFor(query, this.known).length >= MOST_THREADS) {
        return;
      }
      this.page ??= this.loadPage().finally(() => {
        this.page = undefined;
      });
      await this.page;
    }
  }

  /** Cancel the page that is being loaded. */
  close(): void {
    this.leaving.abort();
  }

  private async loadPage(): Promise<void> {
    const pageSize = this.pageToken ? PAGE : FIRST_PAGE;
    const request = { order: ThreadOrder.LATEST, pageSize, pageToken: this.pageToken };
    const page = await threads.listThreads(request, { signal: this.leaving.signal });
    for (const thread of page.threads) {
      if (!this.ids.has(thread.threadId)) {
        this.ids.add(thread.threadId);
        this.known.push(thread);
      }
    }
    this.pageToken = page.nextPageToken;
    this.isComplete = !page.nextPageToken;
  }
}
