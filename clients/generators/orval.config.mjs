export default {
  foldlog: {
    input: "../../docs/openapi.json",
    output: {
      target: "build/orval/client.ts",
      client: "fetch",
      urlEncodeParameters: true,
      override: { mutator: { path: "orval-request.ts", name: "request" } },
    },
  },
};
