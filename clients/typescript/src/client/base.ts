/** The base of all parts of the client: the calls, and the checkpoints that were saved last. */

import { Calls } from "../transport/calls.js";
import { Connection, type ConnectionOptions } from "../transport/connection.js";
import type { RawClients } from "../transport/raw.js";
import { Memory } from "./saving.js";

/** A client without methods for the calls of the service. */
export abstract class Base {
  /** Calls with values of any size. */
  protected readonly calls: Calls;
  /** The checkpoints that this client saved last. */
  protected readonly memory = new Memory();

  /**
   * @param options - Target, token, TLS and deadline; missing options come from the environment. A
   *   text is the target.
   * @throws InvalidRequest - An option is not valid, options contradict one another, or a file that
   *   an option names cannot be read.
   */
  constructor(options: ConnectionOptions | string = {}) {
    const given = typeof options === "string" ? { target: options } : options;
    this.calls = new Calls(new Connection(given));
  }

  /** Address of the server, or addresses of the servers. */
  get target(): string {
    return this.connection.target;
  }

  /** The unchanged calls of the contract: messages in, messages out. */
  get raw(): RawClients {
    return this.connection.raw;
  }

  /** Close the connection. Calls in progress fail, and later calls fail too. */
  close(): void {
    this.connection.close();
  }

  /** The connection. */
  protected get connection(): Connection {
    return this.calls.connection;
  }
}
