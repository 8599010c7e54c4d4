/**
 * The types of the web that a program may have or not: from the DOM, from @types/node, or from
 * neither. Without them, the client's types still compile.
 */

type Instance<Name extends string> = typeof globalThis extends Record<Name, { prototype: infer T }> ? T : any;

export type Signal = Instance<"AbortSignal">;
export type WebResponse = Instance<"Response">;
export type WebRequest = Instance<"Request">;
export type ByteStream = Instance<"ReadableStream">;
export type Fetch = typeof globalThis extends { fetch: infer F } ? F : (...sent: any[]) => Promise<any>;
