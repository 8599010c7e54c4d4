/** The events of a conversation that stand. */

import type { History, StoredEvent } from "../history.js";

/** The events from a version on that no retraction has taken back. A retraction may take back another one. */
export async function standingEvents(history: History, start = 0): Promise<StoredEvent[]> {
  interface Newest {
    event: StoredEvent;
    before: Newest | undefined;
  }
  const newestAt: (Newest | undefined)[] = [undefined];
  let last: StoredEvent | undefined;
  for await (const event of history.events(start)) {
    last = event;
    const before = newestAt.at(-1);
    newestAt.push(event.kind === "retraction" ? newestAt[(event["version"] as number) - start] : { event, before });
  }
  const events: StoredEvent[] = last?.kind === "retraction" ? [last] : []; // its id is the version
  for (let newest = newestAt.at(-1); newest !== undefined; newest = newest.before) events.push(newest.event);
  return events.reverse();
}
