/** Tools of the AI SDK that foldlog runs, so that each call runs once, over crashes too. */

import type { ToolSet } from "ai";
import { askOnce, decisionOf, readApprovals, refusalOf } from "../approvals.js";
import { NotApproved } from "../errors.js";
import type { HeldHistory, OpenCall } from "../history.js";
import type { Signal } from "../web.js";

export interface RunToolsOptions {
  /** What to do with a call that a killed worker began: see `RunOptions`. By default it is not run again. */
  repeat?: "never" | "same key";
  /** Who is asked about a call that needs an approval, by default "user". */
  to?: string;
}

interface RunnableTool {
  execute?: (
    input: unknown,
    options: { toolCallId: string; messages: never[]; abortSignal: Signal; key: string },
  ) => unknown;
  needsApproval?:
    boolean | ((input: unknown, options: { toolCallId: string; messages: never[] }) => boolean | PromiseLike<boolean>);
}

/** The tools for `streamText` or `generateText`, which then ends with the calls: `runTools` runs them. */
export function declareTools<T extends ToolSet>(tools: T): T {
  const declared = Object.entries(tools).map(([name, tool]) => {
    const { execute, needsApproval, ...rest } = tool as RunnableTool;
    return [name, rest];
  });
  return Object.fromEntries(declared) as T;
}

/**
 * Run the open calls with `execute` of their tools, each at most once, over all workers and crashes.
 * The options of `execute` have the `key` of the effect too. A call whose tool needs an approval waits
 * for the decision of a person, and a refused call gets the refusal as its result.
 *
 * Returns the calls that wait: for a person, or for a page that runs them (a tool without `execute`).
 */
export async function runTools(held: HeldHistory, tools: ToolSet, options: RunToolsOptions = {}): Promise<OpenCall[]> {
  const waiting: OpenCall[] = [];
  for (const call of await held.openCalls()) {
    const tool = tools[String(call.tool)] as RunnableTool | undefined;
    if (tool?.execute === undefined || !(await hasRun(held, call, tool, options))) waiting.push(call);
  }
  return waiting;
}

/** Run a call if it may run now. Returns whether it has a result then. */
async function hasRun(
  held: HeldHistory,
  call: OpenCall,
  tool: RunnableTool,
  { repeat, to }: RunToolsOptions,
): Promise<boolean> {
  const { execute, needsApproval = false } = tool;
  const asked = { toolCallId: String(call["call_id"]), messages: [] };
  const isAsked = typeof needsApproval === "function" ? await needsApproval(call["arguments"], asked) : needsApproval;
  try {
    await held.run(
      call,
      async (input, { key, signal }) => lastOf(await execute?.(input, { ...asked, abortSignal: signal, key })),
      { needsApproval: isAsked, ...(repeat === undefined ? {} : { repeat }) },
    );
    return true;
  } catch (error) {
    if (!(error instanceof NotApproved)) throw error;
  }
  const decision = decisionOf((await readApprovals(held, call.id)).get(call.id) ?? { shown: [] });
  if (decision?.approved === false) {
    await held.appendToolResult(asked.toolCallId, refusalOf(decision), {
      isError: true,
      idempotencyKey: `refused ${call.id} ${decision.event}`,
    });
    return true;
  }
  await askOnce(held, call, { to });
  return false;
}

/** The output of a tool: of a tool with preliminary outputs, the last one. */
async function lastOf(output: unknown): Promise<unknown> {
  if (typeof output !== "object" || output === null || !(Symbol.asyncIterator in output)) return output;
  let last: unknown;
  for await (const preliminary of output as AsyncIterable<unknown>) last = preliminary;
  return last;
}
