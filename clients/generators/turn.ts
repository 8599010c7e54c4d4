/** The turn of an agent that each generated client carries out, and what it must return. */

/** The address of a service, and a token of the scope "administer". */
export interface Service {
  url: string;
  token: string;
}

export interface Turn {
  /** The status of an append at a version that has passed, with the numbers of its problem. */
  conflict: [status: number, expected: number | undefined, actual: number | undefined];
  /** The messages that the server prepared for a model. */
  prepared: unknown[];
  /** The argument "to" of the call that began. */
  paidTo: unknown;
  kinds: unknown[];
  /** The words that a search marked. */
  found: string[];
  isListed: boolean;
}

export const ASKED = { role: "user", content: "Pay Ann." };
export const REPLY = {
  role: "assistant",
  content: null,
  tool_calls: [{ id: "k1", type: "function", function: { name: "pay", arguments: '{"to": "Ann"}' } }],
};

export const EXPECTED_TURN: Turn = {
  conflict: [409, 0, 1],
  prepared: [ASKED],
  paidTo: "Ann",
  kinds: ["message", "action", "annotation", "observation"],
  found: ["Pay"],
  isListed: true,
};
