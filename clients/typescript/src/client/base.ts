/** What every part of the client has: the calls, and the checkpoints that were saved last. */

import { Calls } from "../transport/calls.js";
import { Connection, type ConnectionOptions } from "../transport/connection.js";
import type { RawClients } from "../transport/raw.js";
import { Memory } from "./saving.js";

/** A client without methods for the service's calls. */
export abstract class Base {
  /** The calls whose values may have any size. */
  protected readonly calls: Calls;
  /** The checkpoints that this client saved last. */
  protected readonly memory = new Memory();

  /**
   * @param options - Target, token, TLS and deadline; what is left out comes from the environment.
   *   A text is the target.
   * @throws InvalidRequest - An option cannot be one, options contradict one another, or a file
   *   that one names cannot be read.
   */
  constructor(options: ConnectionOptions | string = {}) {
    const given = typeof options === "string" ? { target: options } : options;
    this.calls = new Calls(new Connection(given));
  }

  /** Where the server is, or the servers are. */
  get target(): string {
    return this.connection.target;
  }

  /** The calls of the contract as they are: messages in, messages out. */
  get raw(): RawClients {
    return this.connection.raw;
  }

  /** Close the connection. Calls that are under way fail, and so do calls made afterwards. */
  close(): void {
    this.connection.close();
  }

  /** The connection. */
  protected get connection(): Connection {
    return this.calls.connection;
  }
}
