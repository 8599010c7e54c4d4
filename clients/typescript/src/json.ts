/** Values of the AI SDK as JSON: a value that JSON would lose or change is refused with its place. */

export type Json = Record<string, unknown>;

const LONE_SURROGATE = /[\ud800-\udfff]/u;

/**
 * A copy of the value as it goes through JSON: without undefined members, and a date as its text.
 * Raises `TypeError` for a value that is no JSON, such as a BigInt, a Map or bytes.
 */
export function toJson(value: unknown, place: string, outer: readonly object[] = []): unknown {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "string") {
    if (LONE_SURROGATE.test(value)) throw refusal(place, "half of a character (a lone surrogate)");
    return value;
  }
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw refusal(place, String(value));
    return value === 0 ? 0 : value; // JSON of JavaScript has no -0
  }
  if (typeof value !== "object") throw refusal(place, `a value of the type ${typeof value}`);
  if (outer.includes(value)) throw refusal(place, "a value that contains itself");
  const inner = [...outer, value];
  if ("toJSON" in value && typeof value.toJSON === "function") return toJson(value.toJSON(), place, inner);
  if (Array.isArray(value)) return value.map((item, index) => toJson(item, `${place}[${index}]`, inner));
  const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
  if (kind !== "Object") throw refusal(place, `a ${kind}`);
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(members.map(([name, member]) => [name, toJson(member, `${place}.${name}`, inner)]));
}

/** The error of a value that JSON cannot hold. */
function refusal(place: string, found: string): TypeError {
  return new TypeError(
    `${place} is ${found}, which JSON cannot hold; nothing was saved; convert it, for example to a text`,
  );
}

/** Whether a value of JSON has members. */
export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether two values are the same JSON, whatever the order of their members. */
export function areEqual(one: unknown, other: unknown): boolean {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

/** The value with its members in the order of their names, and without undefined members. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const names = Object.keys(value).sort();
  return Object.fromEntries(names.map((name) => [name, sorted(value[name])]));
}

/** The object without some members. */
export function without(value: Json, ...names: string[]): Json {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
}
