// The public suite of the protocol for servers.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";
import { addressOf, startProxy } from "./proxy.mjs";

const proxy = await startProxy("/v1/stream/");
runConformanceTests({ baseUrl: addressOf(proxy), longPollTimeoutMs: 25000 });
