// The public suite of the protocol, through a proxy that adds a token, since the suite sends none. The suite names its
// streams as it likes, and here a stream belongs to a conversation: the proxy puts a conversation into the path.
import http from "node:http";
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

const CONVERSATIONS = 16;
const target = new URL(process.env.FOLDLOG_URL);
// A connection for each request: the server may close an idle one just when the next request is sent.
const agent = new http.Agent({ keepAlive: false });

function conversationOf(path) {
  let sum = 0;
  for (const character of path) sum = (sum + character.charCodeAt(0)) % CONVERSATIONS;
  return `suite-${sum}`;
}

const proxy = http.createServer((request, response) => {
  const [path, query] = request.url.split("?");
  const name = path.replace("/v1/stream/", "");
  const inside = `/v1/stream/${conversationOf(name)}/${name}`;
  const headers = { ...request.headers, host: target.host, authorization: `Bearer ${process.env.FOLDLOG_TOKEN}` };
  const sent = http.request(
    target,
    { agent, method: request.method, path: query === undefined ? inside : `${inside}?${query}`, headers },
    (answer) => {
      const found = { ...answer.headers };
      if (found.location) found.location = found.location.replace(inside, path);
      response.writeHead(answer.statusCode, found);
      answer.pipe(response);
    },
  );
  sent.on("error", () => {
    if (response.headersSent) request.resume(); // the service answered before it read the whole body
    else response.destroy();
  });
  response.on("close", () => sent.destroy());
  request.pipe(sent);
});

await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
runConformanceTests({ baseUrl: `http://127.0.0.1:${proxy.address().port}`, longPollTimeoutMs: 25000 });
