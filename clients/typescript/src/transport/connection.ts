/**
 * The only module that opens transports and makes calls.
 *
 * Each call has a deadline, is retried where that is safe (`retry.ts`), can be aborted, and fails
 * with the errors of `errors.ts`.
 */

import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import {
  create,
  type DescMessage,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { EmptySchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { invalidField, TuskPointError } from "../errors.js";
import type { Resumable } from "../frames/resumable.js";
import { MAX_MESSAGE_BYTES, Outgoing, type Answers, type Call } from "../frames/outgoing.js";
import { DEFAULT_CACHE_BYTES } from "../frames/value-cache.js";
import { CheckpointService } from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import {
  credentialsFor,
  type CredentialOptions,
  type Credentials,
  type Environment,
} from "./credentials.js";
import { FIRST_ANSWER_MS, FirstContact, isAnswer } from "./first-contact.js";
import {
  HEALTH,
  ON_STREAMS,
  only,
  patienceOf,
  repeatOf,
  withRequestId,
  type Patience,
} from "./methods.js";
import { ResumeAttempts } from "./resume-attempts.js";
import { Exchange } from "./exchange/exchange.js";
import { rawClients, type RawClients } from "./raw.js";
import { Attempts, checkedTime, RETRY_POLICY, type Repeat, type Times } from "./retry.js";
import { Servers } from "./servers.js";
import { fromCallError, fromConnectError, isUntrusted, unsent } from "./status.js";
import { DEFAULT_PORT, normalizeTarget } from "./target.js";

const DEFAULT_TARGET = `127.0.0.1:${DEFAULT_PORT}`;
const USER_AGENT = "tuskpoint-typescript";
const DEFAULT_TIMEOUT_MS = 30_000;
const LONG_TIMEOUT_MS = 300_000;
const STREAM_TIMEOUT_MS = 3_600_000;
/** Longest time, in milliseconds, that fits the header `grpc-timeout`: eight digits. */
const MAX_TIMEOUT_MS = 99_999_999;

/** Options of a connection. */
export interface ConnectionOptions extends CredentialOptions {
  /**
   * `host:port` of the server, several with commas between, or `dns:///host:port`. Default:
   * TUSKPOINT_TARGET, else `127.0.0.1:7390`.
   */
  readonly target?: string | undefined;
  /**
   * Milliseconds after which a quick call gives up, its retries included. Calls that wait for the
   * blob store or read streams have longer deadlines. Default: 30,000, which is longer than the
   * restart of a server; but 5,000 for a target that has never answered this process.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Bytes of values to keep from the checkpoints that were saved and loaded last, so that loads
   * need not send them again; 0 keeps no values. Default: 16 MiB.
   */
  readonly valueCacheBytes?: number | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /** Ends the call when it is aborted: the call fails with the signal's reason, as `fetch` does. */
  readonly signal?: AbortSignal | undefined;
  /** Deadline of this call, retries included, in milliseconds. Default: the method's deadline. */
  readonly timeoutMs?: number | undefined;
}

/** A connection to the servers of a target; the first call opens it, a later call reopens it. */
export class Connection {
  /** Addresses of the servers. */
  readonly target: string;
  /** The unchanged calls of the contract; see `RawClients`. */
  readonly raw: RawClients;
  /** Bytes of values that the calls on this connection keep. */
  readonly valueCacheBytes: number;
  readonly #timeoutMs: number;
  readonly #firstAnswerMs: number;
  readonly #contact: FirstContact;
  readonly #credentials: Credentials;
  readonly #servers: Servers;
  readonly #exchange: Exchange;
  readonly #stops = new Set<() => void>();
  #isClosed = false;

  /**
   * @param options - Target, token, TLS and deadline.
   * @param environment - Source of missing options.
   * @throws InvalidRequest - An option is not valid, options contradict one another, or a file that
   *   an option names cannot be read.
   */
  constructor(options: ConnectionOptions = {}, environment: Environment = process.env) {
    const target = options.target ?? (environment["TUSKPOINT_TARGET"] || DEFAULT_TARGET);
    this.target = normalizeTarget(target);
    this.valueCacheBytes = checkedBytes(options.valueCacheBytes ?? DEFAULT_CACHE_BYTES);
    this.#timeoutMs = checkedTime(options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    this.#firstAnswerMs = options.timeoutMs ?? FIRST_ANSWER_MS;
    this.#contact = new FirstContact(this.target, (signal) => this.#ask(signal));
    this.#credentials = credentialsFor(this.target, options, environment);
    this.#servers = new Servers(this.target, this.#credentials.tls);
    this.raw = rawClients(this);
    this.#exchange = new Exchange({
      target: this.target,
      open: (requests, signal) =>
        this.duplex(CheckpointService.method.exchange, requests, { signal }),
      token: () => this.#credentials.token(),
      pause: (ms) => this.#sleep(ms, {}),
    });
  }

  /** Close the connection. Calls in progress fail, and later calls fail too. */
  close(): void {
    this.#isClosed = true;
    for (const stop of [...this.#stops]) {
      stop();
    }
    this.#servers.close();
  }

  /**
   * Check that the connection is open.
   *
   * @throws TuskPointError - The connection was closed.
   */
  checkOpen(): void {
    if (this.#isClosed) {
      throw closed();
    }
  }

  /**
   * Make a call with one answer; retry the call where that is safe.
   *
   * An empty `requestId`, with which the server detects a repeated request, is filled in.
   */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const message = withRequestId(method.input, create(method.input, request));
    const attempts = this.#attempts(patienceOf(method, message), repeatOf(message), options);
    if (!this.#contact.hasAnswered) {
      await this.#reach(options);
    }
    for (;;) {
      const shown = this.#credentials.token();
      try {
        return await this.#answer(method, message, attempts, options);
      } catch (error) {
        await this.#again(attempts, this.#failure(error, options), options, shown);
      }
    }
  }

  /**
   * Make a call with a stream of answers. The call is retried only before the first answer; see
   * `resume`. Leaving the loop that reads the stream ends the call.
   */
  async *serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const message = withRequestId(method.input, create(method.input, request));
    const attempts = this.#attempts(patienceOf(method, message), repeatOf(message), options);
    if (!this.#contact.hasAnswered) {
      await this.#reach(options);
    }
    let hasBegun = false;
    for (;;) {
      const shown = this.#credentials.token();
      try {
        const timeoutMs = attempts.remainingMs(performance.now());
        for await (const frame of this.#frames(method, only(message), timeoutMs, options)) {
          hasBegun = true;
          yield frame;
        }
        return;
      } catch (error) {
        const failure = this.#failure(unsent(error, method.input, message), options);
        if (hasBegun) {
          throw failure;
        }
        await this.#again(attempts, failure, options, shown);
      }
    }
  }

  /** Make a call with a stream of answers that resumes after a break. */
  async *resume<I extends DescMessage, O extends DescMessage, Item>(
    method: DescMethodServerStreaming<I, O>,
    stream: Resumable<MessageShape<I>, MessageShape<O>, Item>,
    options: CallOptions = {},
  ): AsyncGenerator<Item, void, undefined> {
    const first = stream.nextRequest();
    const times = this.#times(patienceOf(method, first), options);
    const { timeoutMs: wholeMs } = options;
    if (!this.#contact.hasAnswered) {
      await this.#reach(options);
    }
    const tried = new ResumeAttempts(performance.now(), times, repeatOf(first), wholeMs);
    for (;;) {
      const shown = this.#credentials.token();
      try {
        const timeoutMs = tried.begin(performance.now());
        const request = only(stream.nextRequest());
        for await (const frame of this.#frames(method, request, timeoutMs, options)) {
          const item = stream.add(frame);
          if (item !== undefined) {
            tried.delivered();
            yield item;
          }
        }
        stream.end();
        return;
      } catch (error) {
        const failure = this.#failure(error, options);
        await this.#again(tried.afterFailure(performance.now()), failure, options, shown);
      }
    }
  }

  /**
   * Make a call on the streams that all callers share; retry the call where that is safe.
   *
   * @param call - The call, with values of any size.
   */
  async exchange<C extends Call>(call: C, options: CallOptions = {}): Promise<Answers[C["case"]]> {
    options.signal?.throwIfAborted();
    const outgoing = new Outgoing(call);
    const isLarge = outgoing.values.length > 0;
    const patience = isLarge ? "long" : patienceOf(ON_STREAMS[call.case], call.value);
    const attempts = this.#attempts(patience, repeatOf(call.value), options);
    if (!this.#contact.hasAnswered) {
      await this.#reach(options);
    }
    for (;;) {
      options.signal?.throwIfAborted();
      this.checkOpen();
      const result = await this.#exchange.call(outgoing, attempts, options.signal);
      if (result.case !== "error") {
        return result.value as Answers[C["case"]];
      }
      await this.#pause(attempts, fromCallError(result.value), options);
    }
  }

  /** Make a call with streams in both directions, without retries. */
  async *duplex<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    requests: AsyncIterable<MessageInitShape<I>>,
    options: CallOptions = {},
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const patience = patienceOf(method, create(method.input));
    const timeoutMs = this.#times(patience, options).deadlineMs;
    try {
      yield* this.#frames(method, requests, timeoutMs, options);
    } catch (error) {
      throw this.#failure(error, options);
    }
  }

  /**
   * Wait until the target has answered this process for the first time.
   *
   * @throws Unavailable - The target does not answer.
   */
  async #reach(options: CallOptions): Promise<void> {
    const call = this.#begin(options);
    try {
      await this.#contact.wait(options.timeoutMs ?? this.#firstAnswerMs, call.signal);
    } catch (error) {
      throw this.#failure(error, options);
    } finally {
      call.end();
    }
  }

  /** Request any answer from the servers; fail if no server answers. */
  async #ask(signal: AbortSignal): Promise<void> {
    const call = this.#begin({ signal });
    try {
      const headers = { "user-agent": USER_AGENT };
      const transport = this.#transport(call.signal);
      await transport.unary(HEALTH, call.signal, undefined, headers, create(EmptySchema));
    } catch (error) {
      const failure = this.#failure(error, { signal });
      if (!isAnswer(failure)) {
        throw failure;
      }
    } finally {
      call.end();
    }
  }

  /** Make one attempt of a call with one answer. */
  async #answer<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    message: MessageShape<I>,
    attempts: Attempts,
    options: CallOptions,
  ): Promise<MessageShape<O>> {
    const timeoutMs = Math.max(1, attempts.remainingMs(performance.now()));
    const call = this.#begin(options, timeoutMs);
    try {
      const { signal } = call;
      const transport = this.#transport(signal);
      const headers = this.#headers(timeoutMs);
      return (await transport.unary(method, signal, undefined, headers, message)).message;
    } catch (error) {
      throw unsent(error, method.input, message);
    } finally {
      call.end();
    }
  }

  async *#frames<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    requests: AsyncIterable<MessageInitShape<I>>,
    timeoutMs: number,
    options: CallOptions,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const call = this.#begin(options, timeoutMs);
    try {
      const headers = this.#headers(timeoutMs);
      const { signal } = call;
      const transport = this.#transport(signal);
      const answer = await transport.stream(method, signal, undefined, headers, requests);
      yield* answer.message;
    } finally {
      call.end();
    }
  }

  /** Return a transport for one call, which the signal ends. */
  #transport(signal: AbortSignal): Transport {
    return createGrpcTransport({
      baseUrl: this.#servers.authority,
      sessionManager: this.#servers.during(signal),
      acceptCompression: [],
      readMaxBytes: MAX_MESSAGE_BYTES,
      writeMaxBytes: MAX_MESSAGE_BYTES,
    });
  }

  /**
   * Start an operation that ends by itself, by its deadline, by the caller's signal, or by `close`.
   *
   * Connect's own deadline is not used: its timer outlives a stream that is not read to its end.
   */
  #begin(
    { signal }: CallOptions,
    timeoutMs = Number.POSITIVE_INFINITY,
  ): { signal: AbortSignal; end: () => void } {
    signal?.throwIfAborted();
    this.checkOpen();
    const controller = new AbortController();
    // Connect cancels the call on the server only with this code.
    const stop = () => controller.abort(new ConnectError("the call was ended", Code.Canceled));
    const expire = () =>
      controller.abort(new ConnectError("the deadline passed", Code.DeadlineExceeded));
    const timer = Number.isFinite(timeoutMs) ? setTimeout(expire, bounded(timeoutMs)) : undefined;
    if (signal !== undefined) {
      setMaxListeners(0, signal); // One signal may end any number of calls.
      signal.addEventListener("abort", stop, { once: true });
    }
    this.#stops.add(stop);
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      this.#stops.delete(stop);
      stop();
    };
    return { signal: controller.signal, end };
  }

  /** Return the error of a failed attempt; throw an error that no retry can fix. */
  #failure(error: unknown, { signal }: CallOptions): TuskPointError {
    signal?.throwIfAborted();
    this.checkOpen();
    if (error instanceof TuskPointError) {
      return error;
    }
    if (error instanceof ConnectError) {
      return fromConnectError(error, this.target);
    }
    throw error;
  }

  /**
   * Wait until the next attempt may start; throw the failure if no attempt is left.
   *
   * @param shown - The token of the failed attempt.
   */
  async #again(
    attempts: Attempts,
    failure: TuskPointError,
    options: CallOptions,
    shown: string | undefined,
  ): Promise<void> {
    const isOurs = failure.status === "DEADLINE_EXCEEDED" && failure.reason === "";
    if (isOurs && attempts.last instanceof TuskPointError) {
      throw attempts.last; // The earlier failure is the reason that no time is left.
    }
    const isUnknown = failure.status === "UNAUTHENTICATED" && attempts.isSafe;
    if (isUnknown && this.#credentials.token() !== shown) {
      return; // The token was replaced during the call.
    }
    await this.#pause(attempts, failure, options);
  }

  /** Wait before the next attempt; throw the failure if there is none. */
  async #pause(attempts: Attempts, failure: TuskPointError, options: CallOptions): Promise<void> {
    const delayMs = attempts.delayMs(performance.now(), failure, Math.random);
    if (delayMs === undefined || isUntrusted(failure)) {
      throw failure;
    }
    await this.#sleep(delayMs, options);
  }

  async #sleep(delayMs: number, options: CallOptions): Promise<void> {
    const call = this.#begin(options);
    try {
      await sleep(delayMs, undefined, { signal: call.signal });
    } catch (error) {
      throw this.#failure(error, options);
    } finally {
      call.end();
    }
  }

  #attempts(patience: Patience, repeat: Repeat, options: CallOptions): Attempts {
    return new Attempts(RETRY_POLICY, performance.now(), this.#times(patience, options), repeat);
  }

  #times(patience: Patience, options: CallOptions): Times {
    if (options.timeoutMs !== undefined) {
      const timeoutMs = checkedTime(options.timeoutMs);
      return { giveUpMs: timeoutMs, deadlineMs: timeoutMs };
    }
    const deadlines: Record<Patience, number> = {
      quick: this.#timeoutMs,
      long: Math.max(this.#timeoutMs, LONG_TIMEOUT_MS),
      stream: Math.max(this.#timeoutMs, STREAM_TIMEOUT_MS),
      endless: Number.POSITIVE_INFINITY,
    };
    return { giveUpMs: this.#timeoutMs, deadlineMs: deadlines[patience] };
  }

  #headers(timeoutMs: number): Record<string, string> {
    const token = this.#credentials.token();
    return {
      "user-agent": USER_AGENT,
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(Number.isFinite(timeoutMs) && { "grpc-timeout": `${bounded(timeoutMs)}m` }),
    };
  }
}

/** Return a finite time in whole milliseconds that timers and headers accept. */
function bounded(timeoutMs: number): number {
  return Math.min(MAX_TIMEOUT_MS, Math.max(1, Math.ceil(timeoutMs)));
}

function checkedBytes(valueCacheBytes: number): number {
  if (!(Number.isInteger(valueCacheBytes) && valueCacheBytes >= 0)) {
    throw invalidField("valueCacheBytes", `it must be a number of bytes, not ${valueCacheBytes}`);
  }
  return valueCacheBytes;
}

function closed(): TuskPointError {
  return new TuskPointError("this client is closed: create another one", {
    status: "FAILED_PRECONDITION",
  });
}
