/**
 * Runs the interop scenarios with this client:
 *
 *     node build/scenarios/run.js scenarios.json world.json
 *
 * The format of the input and of the output is in `tests/interop/scenarios/README.md`.
 */

import { readFileSync } from "node:fs";

import { TuskPointError } from "../src/index.js";
import type { Json } from "../src/messages/json.js";
import { Player, type Step, type World } from "./calls.js";
import { at, check, fill, Mismatch, type Variables } from "./values.js";

const FORMAT = 1;

interface Scenario {
  readonly name: string;
  readonly steps: readonly Step[];
  readonly export?: readonly string[];
}

/** The printed result of a scenario. */
interface Outcome {
  readonly name: string;
  readonly ok: boolean;
  readonly problem?: string;
  readonly exports?: Json;
}

/** Run all scenarios; return the exit status. */
async function main(paths: readonly string[]): Promise<number> {
  let scenarios: readonly Scenario[];
  let player: Player;
  try {
    const [given, world] = paths.map((path): unknown => JSON.parse(readFileSync(path, "utf8")));
    scenarios = scenariosOf(given);
    player = new Player(world as World);
  } catch (error) {
    console.error(`run: ${error instanceof Error ? error.message : String(error)}`);
    return 2;
  }
  let hasFailed = false;
  try {
    for (const scenario of scenarios) {
      const played = await play(player, scenario);
      hasFailed ||= !played.ok;
      console.log(JSON.stringify(played));
    }
  } finally {
    player.close();
  }
  return hasFailed ? 1 : 0;
}

function scenariosOf(given: unknown): readonly Scenario[] {
  const { format, scenarios } = given as { format: number; scenarios: readonly Scenario[] };
  if (format !== FORMAT) {
    throw new Error(`the format is ${format}, not ${FORMAT}`);
  }
  return scenarios;
}

/** Run the steps of a scenario. */
async function play(player: Player, scenario: Scenario): Promise<Outcome> {
  const { name } = scenario;
  const { client, target, dead_target } = player.world;
  const unique = `${client}-${crypto.randomUUID()}`;
  const variables: Variables = { client, target, dead_target, unique };
  for (const [index, step] of scenario.steps.entries()) {
    const problem = await playStep(player, step, variables);
    if (problem !== "") {
      const where = `step ${index + 1} (${step.rpc ?? step.do})`;
      return { name, ok: false, problem: `${where}: ${problem}` };
    }
  }
  const exported = scenario.export?.map((one) => [one, variables[one] ?? null] as const);
  return { name, ok: true, ...(exported && { exports: Object.fromEntries(exported) }) };
}

/** Run a step and bind its variables; return a message about its failure, or nothing. */
async function playStep(player: Player, step: Step, variables: Variables): Promise<string> {
  try {
    const { bind = {}, ...rest } = step;
    const filled = fill(rest as Json, variables) as Step;
    const result = await outcome(player, filled);
    if (filled.expect_error === undefined) {
      check(filled.expect ?? { $any: true }, result);
    }
    for (const [name, path] of Object.entries(bind)) {
      variables[name] = at(result, path);
    }
    return "";
  } catch (error) {
    return error instanceof Mismatch ? error.message : `the runner failed: ${inspected(error)}`;
  }
}

/** Return the result of a step, or null if the step failed as expected. */
async function outcome(player: Player, step: Step): Promise<Json> {
  let result: Json;
  try {
    result = await player.play(step);
  } catch (error) {
    if (!(error instanceof TuskPointError)) {
      throw error;
    }
    checkError(step.expect_error, error);
    return null;
  }
  if (step.expect_error !== undefined) {
    throw new Mismatch(`it should have failed with ${JSON.stringify(step.expect_error)}`);
  }
  return result;
}

function checkError(expected: Json | undefined, error: TuskPointError): void {
  const shown: Json = {
    status: error.status,
    reason: error.reason,
    metadata: error.metadata,
    fields: error.violations.map((one) => one.field),
  };
  if (expected === undefined) {
    throw new Mismatch(`it failed with ${JSON.stringify(shown)}: ${error.message}`);
  }
  try {
    check(expected, shown, "error");
  } catch (mismatch) {
    const problem = inspected(mismatch);
    throw new Mismatch(`${problem}; the error is ${JSON.stringify(shown)}: ${error.message}`);
  }
}

function inspected(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

process.exitCode = await main(process.argv.slice(2));
