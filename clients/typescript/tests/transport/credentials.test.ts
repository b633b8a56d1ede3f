/** Tokens and TLS: options combined with the environment. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";

import { afterAll, describe, expect, test } from "vitest";

import { Connection } from "../../src/transport/connection.js";
import { credentialsFor } from "../../src/transport/credentials.js";
import { InvalidRequest } from "../../src/errors.js";
import { Client } from "../../src/index.js";
import { writeCertificates } from "../kit.js";

const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
const certificates = writeCertificates(directory);

afterAll(() => {
  rmSync(directory, { recursive: true });
});

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

describe("credentials", () => {
  const here = "localhost:1";
  const there = "example.org:1";
  const ca = certificates.caFile;

  test("TLS is used if it is asked for, or needed", () => {
    const usesTls = (target: string, ...given: [object?, object?]) =>
      credentialsFor(target, given[0] ?? {}, { ...given[1] }).tls !== undefined;
    expect(usesTls(here)).toBe(false);
    expect(usesTls(there)).toBe(false);
    expect(usesTls(here, { token: "t" })).toBe(false);
    expect(usesTls(there, { token: "t" })).toBe(true);
    expect(usesTls(there, {}, { TUSKPOINT_TOKEN: "t" })).toBe(true);
    expect(usesTls(there, { token: "t", tls: false })).toBe(false);
    expect(usesTls(there, { token: "t" }, { TUSKPOINT_TLS: "0" })).toBe(false);
    expect(usesTls(here, { tls: true })).toBe(true);
    expect(usesTls(here, {}, { TUSKPOINT_TLS: "1" })).toBe(true);
    expect(usesTls(here, { tls: false }, { TUSKPOINT_TLS: "1" })).toBe(false);
    expect(usesTls(here, { caFile: ca })).toBe(true);
    expect(usesTls(here, { caFile: ca }, { TUSKPOINT_TLS: "0" })).toBe(true);
    expect(usesTls(here, {}, { TUSKPOINT_CA_FILE: ca })).toBe(true);
    expect(usesTls(here, {}, { TUSKPOINT_CA_FILE: ca, TUSKPOINT_TLS: "0" })).toBe(false);
    expect(usesTls(here, { tls: false }, { TUSKPOINT_CA_FILE: ca })).toBe(false);
  });

  test("files are read, and belong together", () => {
    const { certFile: cert, keyFile: key } = certificates;
    expect(credentialsFor(here, certificates, {}).tls).toEqual({
      ca: readFileSync(ca, "utf8"),
      cert: readFileSync(cert, "utf8"),
      key: readFileSync(key, "utf8"),
    });
    const garbled = file("garbled.pem", "no PEM");
    for (const options of [{ caFile: garbled }, { certFile: garbled, keyFile: key }]) {
      expect(() => credentialsFor(here, options, {})).toThrow(
        "it is not a certificate or key in PEM",
      );
    }
    const mine = { TUSKPOINT_CERT_FILE: cert, TUSKPOINT_KEY_FILE: "/nowhere" };
    expect(() => credentialsFor(here, {}, mine)).toThrow("keyFile: it cannot be read");
    const refused = [{ certFile: cert }, { keyFile: key }, { caFile: "/nowhere" }];
    for (const options of [...refused, { caFile: ca, tls: false }]) {
      expect(() => credentialsFor(here, options, {})).toThrow(InvalidRequest);
    }
    expect(() => credentialsFor(here, {}, { TUSKPOINT_TLS: "yes" })).toThrow(InvalidRequest);
    const alone = { TUSKPOINT_CERT_FILE: cert };
    expect(() => credentialsFor(here, {}, alone)).toThrow(InvalidRequest);
    const unused = { ...alone, TUSKPOINT_TLS: "0" };
    expect(credentialsFor(here, {}, unused).tls).toBeUndefined();
  });

  test("a token file is read for each call, and a token wins over it", () => {
    const path = file("token", "first\n");
    const { token } = credentialsFor(here, {}, { TUSKPOINT_TOKEN_FILE: path });
    expect(token()).toBe("first");
    file("token", "second\n");
    expect(token()).toBe("second");
    rmSync(path);
    expect(token()).toBe("second");
    file("token", "third");
    expect(token()).toBe("third");
    const both = { TUSKPOINT_TOKEN_FILE: path, TUSKPOINT_TOKEN: "of the environment" };
    expect(() => credentialsFor(here, {}, both)).toThrow(InvalidRequest);
    const gone = { TUSKPOINT_TOKEN_FILE: "/nowhere" };
    expect(() => credentialsFor(here, {}, gone)).toThrow(InvalidRequest);
    expect(credentialsFor(here, { token: "given" }, both).token()).toBe("given");
    expect(() => credentialsFor(here, { token: "given\n" }, {})).toThrow(InvalidRequest);
    expect(credentialsFor(here, {}, {}).token()).toBeUndefined();
  });

  test("a token is in no error and in no view of the client", () => {
    const secret = "tusk_secret";
    const client = new Client({ target: here, token: secret });
    expect(inspect(client, { depth: 9, showHidden: true })).not.toContain(secret);
    expect(JSON.stringify(client)).not.toContain(secret);
    let message = "";
    try {
      credentialsFor(here, { token: `${secret} é` }, {});
    } catch (error) {
      message = inspect(error);
    }
    expect(message).toContain("token");
    expect(message).not.toContain(secret);
  });

  test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY])("%d is not a deadline", (timeoutMs) => {
    expect(() => new Connection({ timeoutMs }, {})).toThrow(InvalidRequest);
  });
});
